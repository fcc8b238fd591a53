//! Volumes of a pod.

use std::collections::{BTreeMap, HashSet};

use schema::names;
use serde_json::Value;

use super::env::{VOLUME_FIELDS, field_ref, resource_ref};
use super::{Spec, container, plugins};
use crate::validate::amount::Amount;
use crate::validate::node::{Node, Quoted};
use crate::validate::{claims, meta};

/// The volumes that are in order, by name, with their source.
pub(super) type Volumes<'a> = BTreeMap<&'a str, &'a Value>;

const ONE_TYPE: &str = "may not specify more than 1 volume type";
const MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";
const HOST_PATH_TYPES: &[&str] =
    &["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];

/// Sources in the order upstream looks for them, with the fields they cannot do without.
const SOURCES: &[(&str, &[&str])] = &[
    ("emptyDir", &[]),
    ("hostPath", &[]),
    ("gitRepo", &["repository"]),
    ("gcePersistentDisk", &["pdName"]),
    ("awsElasticBlockStore", &["volumeID"]),
    ("secret", &[]),
    ("nfs", &[]),
    ("iscsi", &["targetPortal", "iqn"]),
    ("glusterfs", &["endpoints", "path"]),
    ("flocker", &[]),
    ("persistentVolumeClaim", &["claimName"]),
    ("rbd", &["monitors", "image"]),
    ("cinder", &["volumeID"]),
    ("cephfs", &["monitors"]),
    ("quobyte", &[]),
    ("downwardAPI", &[]),
    ("fc", &[]),
    ("flexVolume", &["driver"]),
    ("configMap", &[]),
    ("azureFile", &["secretName", "shareName"]),
    ("vsphereVolume", &["volumePath"]),
    ("photonPersistentDisk", &["pdID"]),
    ("portworxVolume", &["volumeID"]),
    ("azureDisk", &["diskName", "diskURI"]),
    ("storageos", &["volumeName"]),
    ("projected", &[]),
    ("scaleIO", &["gateway", "system", "volumeName"]),
    ("csi", &[]),
    ("ephemeral", &[]),
    ("image", &[]),
];

pub(super) fn volumes<'a>(pod: Spec<'a>) -> Volumes<'a> {
    let pod_name = pod.meta.map_or("", |meta| meta.get("name").str());
    let mut good = Volumes::new();
    let list = pod.spec.get("volumes");
    let made: HashSet<String> = list
        .items()
        .filter(|v| !pod_name.is_empty() && v.get("ephemeral").is_set())
        .map(|v| format!("{pod_name}-{}", v.get("name").str()))
        .collect();
    for volume in list.items() {
        let before = volume.errors();
        source(volume, pod, pod_name);
        let name = volume.get("name");
        name.required_and(names::dns1123_label);
        if good.contains_key(name.str()) {
            name.duplicate();
        }
        if volume.errors() == before {
            good.insert(name.str(), volume.value);
        }
        let claim = volume.get("persistentVolumeClaim").get("claimName");
        if made.contains(claim.str()) {
            claim.invalid("must not reference a PVC that gets created for an ephemeral volume");
        }
    }
    good
}

fn source(volume: Node<'_>, pod: Spec<'_>, pod_name: &str) {
    let mut found = false;
    for (kind, required) in SOURCES {
        let source = volume.get(kind);
        if !source.is_set() {
            continue;
        }
        if found {
            // Two of upstream's paths differ from the field's name.
            match *kind {
                "cephfs" => volume.get("cephFS").forbidden(ONE_TYPE),
                "downwardAPI" => volume.get("downwarAPI").forbidden(ONE_TYPE),
                _ => source.forbidden(ONE_TYPE),
            }
            continue;
        }
        found = true;
        let source =
            if *kind == "gcePersistentDisk" { volume.get("persistentDisk").with(source.value) } else { source };
        for field in *required {
            if source.get(field).is_empty() {
                source.get(field).required("");
            }
        }
        match *kind {
            "emptyDir" if Amount::of(source.get("sizeLimit").value) < Amount::zero() => {
                source.get("sizeLimit").forbidden("SizeLimit field must be a valid resource quantity");
            }
            "hostPath" => host_path(source),
            "secret" => files_of(source, "secretName"),
            "configMap" => files_of(source, "name"),
            "nfs" => nfs(source),
            "downwardAPI" => {
                mode(source.get("defaultMode"));
                source.get("items").array().iter().for_each(|file| downward_file(source.with(file)));
            }
            "projected" => projected(source),
            "csi" => csi(source),
            "image" => {
                if pod.is_pod() && source.get("reference").is_empty() {
                    source.get("reference").required("");
                }
                source.get("pullPolicy").required_one_of(container::PULL_POLICIES);
            }
            "ephemeral" => ephemeral(volume, source, pod_name),
            _ => plugins::source(kind, source, plugins::Of::Pod),
        }
    }
    if !found {
        volume.required("must specify a volume type");
    }
}

pub(crate) fn host_path(source: Node<'_>) {
    let path = source.get("path");
    if path.str().is_empty() {
        return path.required("");
    }
    no_backsteps(path);
    if source.get("type").is_set() {
        source.get("type").one_of(HOST_PATH_TYPES);
    }
}

pub(crate) fn nfs(source: Node<'_>) {
    if source.get("server").is_empty() {
        source.get("server").required("");
    }
    let path = source.get("path");
    if path.is_empty() {
        path.required("");
    }
    if !path.str().starts_with('/') {
        path.invalid_str("must be an absolute path");
    }
}

fn mode(mode: Node<'_>) {
    if mode.int().is_some_and(|m| !(0..=0o777).contains(&m)) {
        mode.invalid(MODE);
    }
}

fn files_of(source: Node<'_>, name: &'static str) {
    if source.get(name).is_empty() {
        source.get(name).required("");
    }
    mode(source.get("defaultMode"));
    source.get("items").items().for_each(key_to_path);
}

fn key_to_path(item: Node<'_>) {
    if item.get("key").is_empty() {
        item.get("key").required("");
    }
    if item.get("path").is_empty() {
        item.get("path").required("");
    }
    unreserved_path(item.get("path"));
    mode(item.get("mode"));
}

pub(crate) fn has_backsteps(path: &str) -> bool {
    path.split('/').any(|part| part == "..")
}

pub(crate) fn no_backsteps(path: Node<'_>) {
    if has_backsteps(path.str()) {
        path.invalid("must not contain '..'");
    }
}

/// A path below something: relative, and without steps back.
pub(crate) fn local_path(path: Node<'_>) {
    if path.str().starts_with('/') {
        path.invalid("must be a relative path");
    }
    no_backsteps(path);
}

fn unreserved_path(path: Node<'_>) {
    local_path(path);
    if path.str().starts_with("..") && !path.str().starts_with("../") {
        path.invalid("must not start with '..'");
    }
}

fn downward_file(file: Node<'_>) {
    if file.get("path").is_empty() {
        file.get("path").required("");
    }
    unreserved_path(file.get("path"));
    let (field, resource) = (file.get("fieldRef"), file.get("resourceFieldRef"));
    if field.is_set() {
        field_ref(field, VOLUME_FIELDS);
        if resource.is_set() {
            file.invalid_text("resource", "fieldRef and resourceFieldRef can not be specified simultaneously");
        }
    } else if resource.is_set() {
        resource_ref(resource, true);
    } else {
        file.required("one of fieldRef and resourceFieldRef is required");
    }
    mode(file.get("mode"));
}

fn projected(volume: Node<'_>) {
    mode(volume.get("defaultMode"));
    let mut paths = HashSet::new();
    let mut claim = |path: &str, shown: &str| {
        if !path.is_empty() && !paths.insert(path.to_owned()) {
            volume.invalid_text(shown, "conflicting duplicate paths");
        }
    };
    for source in volume.get("sources").items() {
        let mut found = 0;
        for kind in ["secret", "configMap"] {
            let files = source.get(kind);
            if files.is_set() {
                found += 1;
                if files.get("name").is_empty() {
                    files.get("name").required("");
                }
                for item in files.get("items").items() {
                    key_to_path(item);
                    claim(item.get("path").str(), files.get("name").str());
                }
            }
        }
        let downward = source.get("downwardAPI");
        if downward.is_set() {
            found += 1;
            for file in downward.get("items").array() {
                downward_file(downward.with(file));
                let path = file.get("path").and_then(Value::as_str).unwrap_or("");
                claim(path, path);
            }
        }
        let token = source.get("serviceAccountToken");
        if token.is_set() {
            found += 1;
            let seconds = token.get("expirationSeconds");
            if seconds.int_or_0() < 600 {
                seconds.invalid_as(seconds.int_or_0(), "may not specify a duration less than 10 minutes");
            }
            if seconds.int_or_0() > 1 << 32 {
                seconds.invalid("may not specify a duration larger than 2^32 seconds");
            }
            let path = volume.get("path").with(token.get("path").value);
            if path.is_empty() {
                path.required("");
            } else {
                unreserved_path(path);
            }
        }
        let bundle = source.get("clusterTrustBundle");
        if bundle.is_set() {
            found += 1;
            if !bundle.get("name").is_set() && !bundle.get("signerName").is_set() {
                bundle.required("either name or signerName must be specified");
            }
            if bundle.get("path").is_empty() {
                bundle.get("path").required("");
            }
            unreserved_path(bundle.get("path"));
            claim(bundle.get("path").str(), bundle.get("path").str());
        }
        found += i32::from(source.get("podCertificate").is_set());
        if found > 1 {
            source.forbidden("may not specify more than 1 volume type per source");
        }
    }
}

pub(crate) fn driver_name(driver: Node<'_>) {
    if driver.is_empty() {
        return driver.required("");
    }
    if driver.str().len() > 63 {
        driver.too_long(63);
    }
    driver.all(names::dns1123_subdomain(&driver.str().to_lowercase()));
}

fn csi(source: Node<'_>) {
    driver_name(source.get("driver"));
    let secret = source.get("nodePublishSecretRef");
    if secret.is_set() {
        let name = secret.get("name");
        if name.is_empty() {
            name.required("");
        } else {
            source.get("name").with(name.value).check(names::dns1123_subdomain);
        }
    }
}

fn ephemeral(volume: Node<'_>, source: Node<'_>, pod_name: &str) {
    let template = source.get("volumeClaimTemplate");
    if template.is_set() {
        let metadata = template.get("metadata");
        meta::annotations(metadata.get("annotations"));
        meta::labels(metadata.get("labels"));
        for field in ["name", "generateName", "namespace", "finalizers", "ownerReferences", "managedFields"] {
            if !metadata.get(field).is_empty() {
                metadata.get(field).forbidden("cannot be set");
            }
        }
        claims::claim_spec(template.get("spec"));
    } else {
        template.required("");
    }
    let name = volume.get("name");
    if !pod_name.is_empty() && !name.str().is_empty() {
        let claim = format!("{pod_name}-{}", name.str());
        for complaint in names::dns1123_subdomain(&claim) {
            name.invalid(&format!("PVC name {}: {complaint}", Quoted(&claim)));
        }
    }
}
