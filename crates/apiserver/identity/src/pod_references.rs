//! Which other objects a pod or a volume names.

use serde_json::Value;

/// Marks a pod that a node made to show what it runs of its own.
pub const MIRROR: &str = "kubernetes.io/config.mirror";

fn list<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    value[field].as_array().into_iter().flatten()
}

fn text<'a>(value: &'a Value, pointer: &str) -> Option<&'a str> {
    value.pointer(pointer)?.as_str().filter(|name| !name.is_empty())
}

fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    ["initContainers", "containers", "ephemeralContainers"].into_iter().flat_map(|field| list(&pod["spec"], field))
}

fn volumes(pod: &Value) -> impl Iterator<Item = &Value> {
    list(&pod["spec"], "volumes")
}

/// Where the volumes of a pod name secrets.
const VOLUME_SECRETS: [&str; 10] = [
    "/secret/secretName",
    "/azureFile/secretName",
    "/cephfs/secretRef/name",
    "/cinder/secretRef/name",
    "/flexVolume/secretRef/name",
    "/rbd/secretRef/name",
    "/scaleIO/secretRef/name",
    "/iscsi/secretRef/name",
    "/storageos/secretRef/name",
    "/csi/nodePublishSecretRef/name",
];

pub fn secrets(pod: &Value) -> impl Iterator<Item = &str> {
    let pulls = list(&pod["spec"], "imagePullSecrets").filter_map(|s| text(s, "/name"));
    pulls
        .chain(from_environment(pod, "/valueFrom/secretKeyRef/name", "/secretRef/name"))
        .chain(volumes(pod).flat_map(|v| VOLUME_SECRETS.iter().filter_map(move |path| text(v, path))))
        .chain(projected(pod, "/secret/name"))
}

pub fn config_maps(pod: &Value) -> impl Iterator<Item = &str> {
    from_environment(pod, "/valueFrom/configMapKeyRef/name", "/configMapRef/name")
        .chain(volumes(pod).filter_map(|v| text(v, "/configMap/name")))
        .chain(projected(pod, "/configMap/name"))
}

fn from_environment<'a>(pod: &'a Value, one: &'static str, all: &'static str) -> impl Iterator<Item = &'a str> {
    containers(pod).flat_map(move |container| {
        let single = list(container, "env").filter_map(move |e| text(e, one));
        single.chain(list(container, "envFrom").filter_map(move |e| text(e, all)))
    })
}

fn projected<'a>(pod: &'a Value, path: &'static str) -> impl Iterator<Item = &'a str> {
    volumes(pod).flat_map(|v| list(&v["projected"], "sources")).filter_map(move |source| text(source, path))
}

/// Claims of volumes, also those that are made with the pod and named after it.
pub fn claims(pod: &Value) -> Vec<String> {
    let own = text(pod, "/metadata/name").unwrap_or_default();
    let name = |volume: &Value| match text(volume, "/persistentVolumeClaim/claimName") {
        Some(claim) => Some(claim.to_owned()),
        None => volume.get("ephemeral").and_then(|_| Some(format!("{own}-{}", text(volume, "/name")?))),
    };
    volumes(pod).filter_map(name).collect()
}

/// Resource claims: named directly, or made from a template and named in the status.
pub fn resource_claims(pod: &Value) -> impl Iterator<Item = &str> {
    let named = list(&pod["spec"], "resourceClaims").filter_map(|claim| {
        text(claim, "/resourceClaimName").or_else(|| {
            let of = text(claim, "/name")?;
            let made = list(&pod["status"], "resourceClaimStatuses").find(|made| made["name"] == of)?;
            text(made, "/resourceClaimName")
        })
    });
    named.chain(text(pod, "/status/extendedResourceClaimStatus/resourceClaimName"))
}

/// The secrets, as `namespace/name`, that a node needs to mount a volume; `spec` is that of a PersistentVolume.
pub fn volume_secrets(spec: &Value, claim_namespace: &str) -> Vec<Box<str>> {
    let key = |namespace: Option<&str>, name: &str| -> Box<str> {
        format!("{}/{name}", namespace.unwrap_or(claim_namespace)).into()
    };
    let mut found = Vec::new();
    if let Some(name) = text(spec, "/azureFile/secretName") {
        found.push(key(text(spec, "/azureFile/secretNamespace"), name));
    }
    let references = [
        "/cephfs/secretRef",
        "/cinder/secretRef",
        "/flexVolume/secretRef",
        "/rbd/secretRef",
        "/scaleIO/secretRef",
        "/iscsi/secretRef",
        "/storageos/secretRef",
        "/csi/nodePublishSecretRef",
        "/csi/nodeStageSecretRef",
        "/csi/nodeExpandSecretRef",
    ];
    for reference in references.iter().filter_map(|path| spec.pointer(path)) {
        if let Some(name) = text(reference, "/name") {
            found.push(key(text(reference, "/namespace"), name));
        }
    }
    found
}

/// Why a pod cannot be a mirror of what a node runs: nobody may give such a pod what its node could then read.
pub fn not_for_mirrors(pod: &Value) -> Option<&'static str> {
    if text(pod, "/spec/serviceAccountName").is_some() {
        return Some("a mirror pod may not reference service accounts");
    }
    if secrets(pod).next().is_some() {
        return Some("a mirror pod may not reference secrets");
    }
    let mut sources = volumes(pod).flat_map(|v| list(&v["projected"], "sources"));
    let token = sources.any(|source| source.get("serviceAccountToken").is_some());
    token.then_some("a mirror pod may not use ServiceAccountToken volume projections")
}

/// What else a pod that a node makes itself may not have: the first reference to another object, in upstream's words.
pub fn foreign_reference(pod: &Value) -> Result<(), String> {
    let refuse = |what: &str| Err(what.to_owned());
    if config_maps(pod).next().is_some() {
        return refuse("configmaps");
    }
    if list(&pod["spec"], "resourceClaims").next().is_some() {
        return refuse("resourceclaims");
    }
    for volume in volumes(pod) {
        let is = |field: &str| volume.get(field).is_some_and(|v| !v.is_null());
        for (field, what) in [
            ("csi", "csidrivers (via CSI volumes)"),
            ("glusterfs", "endpoints (via glusterFS volumes)"),
            ("persistentVolumeClaim", "persistentvolumeclaims"),
            ("ephemeral", "persistentvolumeclaims (via ephemeral volumes)"),
        ] {
            if is(field) {
                return refuse(what);
            }
        }
        for source in list(&volume["projected"], "sources") {
            for (field, what) in [("clusterTrustBundle", "clustertrustbundles"), ("podCertificate", "podcertificates")]
            {
                if source.get(field).is_some() {
                    return refuse(what);
                }
            }
        }
    }
    Ok(())
}
