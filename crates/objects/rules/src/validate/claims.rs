//! PersistentVolumeClaim and PersistentVolume.

use schema::names;
use serde_json::Value;

use super::amount::Amount;
use super::internal;
use super::meta;
use super::node::{Node, Quoted, same};
use super::pod::scheduling::node_selector;
use super::pod::{optional, plugins, resources, volume};

const ACCESS_MODES: &[&str] = &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
const VOLUME_MODES: &[&str] = &["Block", "Filesystem"];
const ONE_TYPE: &str = "may not specify more than 1 volume type";
const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

/// Sources of persistent volumes in the order upstream looks for them, with what they cannot do without.
const SOURCES: &[(&str, &[&str])] = &[
    ("hostPath", &[]),
    ("gcePersistentDisk", &["pdName"]),
    ("awsElasticBlockStore", &["volumeID"]),
    ("glusterfs", &["endpoints", "path"]),
    ("flocker", &[]),
    ("nfs", &[]),
    ("rbd", &["monitors", "image"]),
    ("quobyte", &[]),
    ("cephfs", &["monitors"]),
    ("iscsi", &["targetPortal", "iqn"]),
    ("cinder", &["volumeID"]),
    ("fc", &[]),
    ("flexVolume", &["driver"]),
    ("azureFile", &["secretName", "shareName"]),
    ("vsphereVolume", &["volumePath"]),
    ("photonPersistentDisk", &["pdID"]),
    ("portworxVolume", &["volumeID"]),
    ("azureDisk", &["diskName", "diskURI"]),
    ("scaleIO", &["gateway", "system", "volumeName"]),
    ("local", &["path"]),
    ("storageos", &["volumeName"]),
    ("csi", &[]),
];

fn access_modes(modes: Node<'_>) {
    let (mut single, mut others) = (false, false);
    for mode in modes.array() {
        let mode = modes.with(mode);
        mode.one_of(ACCESS_MODES);
        match mode.str() {
            "ReadWriteOncePod" => single = true,
            name => others |= ACCESS_MODES.contains(&name),
        }
    }
    if single && others {
        modes.forbidden("may not use ReadWriteOncePod with other access modes");
    }
}

fn positive_quantity(at: Node<'_>) -> bool {
    let good = Amount::of(at.value) > Amount::zero();
    if !good {
        at.invalid("must be greater than zero");
    }
    good
}

pub(super) fn claim(root: Node<'_>) {
    claim_spec(root.get("spec"));
}

pub(crate) fn claim_spec(spec: Node<'_>) {
    let modes = spec.get("accessModes");
    if modes.is_empty() {
        modes.required("at least 1 access mode is required");
    }
    meta::label_selector(spec.get("selector"));
    access_modes(modes);
    // Upstream's path leaves out the requests.
    let size = spec.get("resources").get("requests").key("storage");
    let at = spec.get("resources").key("storage").with(size.value);
    if !size.is_set() {
        at.required("");
    } else if positive_quantity(at) {
        resources::quantity(at, "storage");
    }
    optional(spec.get("storageClassName"), names::dns1123_subdomain);
    if spec.get("volumeMode").is_set() {
        spec.get("volumeMode").one_of(VOLUME_MODES);
    }
    let (source, reference) = (spec.get("dataSource"), spec.get("dataSourceRef"));
    for source in [source, reference] {
        if source.is_set() {
            data_source(source);
        }
    }
    optional(reference.get("namespace"), names::dns1123_label);
    if source.is_set() && reference.is_set() {
        let shown = "{}";
        if !reference.get("namespace").is_empty() {
            spec.invalid_as(shown, "may not be specified when dataSourceRef.namespace is specified");
        } else if ["apiGroup", "kind", "name"].iter().any(|f| !source.get(f).same(reference.get(f))) {
            spec.invalid_as(shown, "must match dataSourceRef");
        }
    }
    optional(spec.get("volumeAttributesClassName"), names::dns1123_subdomain);
}

fn data_source(source: Node<'_>) {
    for field in ["name", "kind"] {
        if source.get(field).is_empty() {
            source.get(field).required("");
        }
    }
    let (group, kind) = (source.get("apiGroup"), source.get("kind"));
    if group.is_empty() && kind.str() != "PersistentVolumeClaim" {
        source.invalid_text(kind.str(), "must be 'PersistentVolumeClaim' when referencing the default apiGroup");
    }
    optional(group, names::dns1123_subdomain);
}

fn class_note(root: Node<'_>) -> Node<'_> {
    root.get("metadata").get("annotations").key(BETA_CLASS)
}

fn size(spec: Node<'_>) -> Node<'_> {
    spec.get("resources").get("requests").key("storage")
}

pub(super) fn claim_update(new: Node<'_>, old: Node<'_>) {
    let (spec, old_spec) = (new.get("spec"), old.get("spec"));
    let (note, old_note) = (class_note(new), class_note(old));
    let mut allowed = spec.value.clone();
    let mut before = old_spec.value.clone();
    let set = |value: &mut Value, field: &str, to: &Value| {
        if let Some(map) = value.as_object_mut() {
            if to.is_null() {
                map.remove(field);
            } else {
                map.insert(field.to_owned(), to.clone());
            }
        }
    };
    if old_spec.get("volumeName").is_empty() {
        set(&mut before, "volumeName", spec.get("volumeName").value);
    }
    let (class, old_class) = (spec.get("storageClassName"), old_spec.get("storageClassName"));
    let from_note = old_note.is_set()
        && !old_class.is_set()
        && class.is_set()
        && class.str() == old_note.str()
        && (!note.is_set() || note.str() == old_note.str());
    if from_note {
        set(&mut allowed, "storageClassName", &Value::Null);
    } else {
        if !note.same(old_note) {
            new.get("metadata").get("annotations").get(BETA_CLASS).with(note.value).invalid_str("field is immutable");
        }
        if class.is_set() && !old_class.is_set() && (!old_note.is_set() || class.str() == old_note.str()) {
            set(&mut allowed, "storageClassName", old_class.value);
        }
    }
    if new.get("status").get("phase").str() == "Bound" {
        if spec.get("resources").get("requests").is_set()
            && let Some(requests) = allowed.pointer_mut("/resources/requests")
        {
            set(requests, "storage", size(old_spec).value);
        }
        set(&mut allowed, "volumeAttributesClassName", old_spec.get("volumeAttributesClassName").value);
    }
    if !same(&allowed, &before) {
        let diff = internal::diff("PersistentVolumeClaimSpec", &before, &allowed);
        spec.forbidden(&format!(
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n{diff}"
        ));
    }
    let (want, had) = (Amount::of(size(spec).value), Amount::of(size(old_spec).value));
    let capacity = Amount::of(old.get("status").get("capacity").key("storage").value);
    if want < had && want <= capacity {
        spec.get("resources").get("requests").get("storage").forbidden("field can not be less than status.capacity");
    }
    new.get("volumeMode").with(spec.get("volumeMode").value).immutable(old_spec.get("volumeMode"));
    let (attributes, old_attributes) =
        (spec.get("volumeAttributesClassName"), old_spec.get("volumeAttributesClassName"));
    if !attributes.same(old_attributes) && old.get("status").get("currentVolumeAttributesClassName").is_set() {
        let to = if attributes.is_set() { "empty string" } else { "nil" };
        if attributes.is_empty() {
            attributes.forbidden(&format!(
                "update to {to} is forbidden when status.currentVolumeAttributesClassName is not nil"
            ));
        }
    }
}

pub(super) fn persistent_volume(root: Node<'_>) {
    volume_spec(root.get("spec"), false);
}

/// A volume that is attached without being an object: one of a driver, and nobody's.
pub(super) fn inline_volume(spec: Node<'_>) {
    let nowhere = "may not be specified in the context of inline volumes";
    if spec.get("claimRef").is_set() {
        spec.get("claimRef").forbidden(nowhere);
    }
    if !spec.get("capacity").is_empty() {
        spec.get("capacity").forbidden(nowhere);
    }
    if !spec.get("csi").is_set() {
        spec.get("csi").required("has to be specified in the context of inline volumes");
    }
    volume_spec(spec, true);
}

pub(super) fn claim_status(new: Node<'_>, _old: Node<'_>) {
    const RESIZING: &[&str] = &[
        "ControllerResizeInProgress",
        "ControllerResizeInfeasible",
        "NodeResizeInProgress",
        "NodeResizeInfeasible",
        "NodeResizePending",
    ];
    let status = new.get("status");
    let negative = |amount: Node<'_>| {
        let value = Amount::of(amount.value).value();
        if value < 0 {
            amount.invalid_as(value, "must be a valid resource quantity");
        }
        value < 0
    };
    status.get("capacity").entries().for_each(|(_, amount)| {
        negative(amount);
    });
    let resizing = status.get("allocatedResourceStatuses");
    for (name, state) in resizing.entries() {
        claim_resource(resizing, name);
        if !RESIZING.contains(&state.str()) {
            resizing.not_supported_as(Quoted(name), RESIZING);
        }
    }
    let allocated = status.get("allocatedResources");
    for (name, amount) in allocated.entries() {
        if claim_resource(allocated, name) && !negative(amount) {
            resources::quantity(amount, "storage");
        }
    }
}

/// Claims are about storage; what else they count must be somebody's own.
fn claim_resource(at: Node<'_>, name: &str) -> bool {
    let before = at.errors();
    names::qualified_name(name).iter().for_each(|complaint| at.invalid_text(name, complaint));
    if at.errors() == before && name != "storage" && resources::is_native(name) {
        at.not_supported_as(Quoted(name), &["storage"]);
    }
    at.errors() == before
}

fn capacity(capacity: Node<'_>) {
    if capacity.is_empty() {
        capacity.required("");
    }
    if capacity.len() != 1 || capacity.value.get("storage").is_none() {
        let shown = if capacity.is_set() { capacity.value.to_string() } else { "null".to_owned() };
        capacity.not_supported_as(shown, &["storage"]);
    }
    for (_, amount) in capacity.entries() {
        let value = Amount::of(amount.value).value();
        if value < 0 {
            amount.invalid_as(value, "must be a valid resource quantity");
        }
        positive_quantity(amount);
    }
}

fn volume_spec(spec: Node<'_>, inline: bool) {
    let (modes, reclaim) = (spec.get("accessModes"), spec.get("persistentVolumeReclaimPolicy"));
    if modes.is_empty() {
        modes.required("");
    }
    access_modes(modes);
    if !inline {
        capacity(spec.get("capacity"));
    }
    if inline && !matches!(reclaim.str(), "" | "Retain") {
        reclaim.forbidden("may only be Retain in the context of inline volumes");
    } else if !reclaim.is_empty() {
        reclaim.one_of(&["Delete", "Recycle", "Retain"]);
    }
    let affinity = spec.get("nodeAffinity");
    if inline && affinity.is_set() {
        affinity.forbidden("may not be specified in the context of inline volumes");
    } else if affinity.is_set() {
        if affinity.get("required").is_set() {
            node_selector(affinity.get("required"));
        } else {
            affinity.get("required").required("must specify required node constraints");
        }
    }
    volume_source(spec, affinity.is_set());
    let host_path = spec.get("hostPath");
    let is_root =
        !host_path.get("path").str().is_empty() && host_path.get("path").str().trim_matches(['/', '.']).is_empty();
    if is_root && reclaim.str() == "Recycle" {
        reclaim.forbidden("may not be 'recycle' for a hostPath mount of '/'");
    }
    optional(spec.get("storageClassName"), names::dns1123_subdomain);
    if spec.get("volumeMode").is_set() {
        spec.get("volumeMode").one_of(VOLUME_MODES);
    }
    let attributes = spec.get("volumeAttributesClassName");
    if attributes.is_set() {
        if attributes.is_empty() {
            attributes.required("an empty string is disallowed");
        } else {
            attributes.check(names::dns1123_subdomain);
        }
        if !spec.get("csi").is_set() {
            spec.get("csi").required("has to be specified when using volumeAttributesClassName");
        }
    }
}

fn volume_source(spec: Node<'_>, has_affinity: bool) {
    let mut found = false;
    for (kind, required) in SOURCES {
        let source = spec.get(kind);
        if !source.is_set() {
            continue;
        }
        if found {
            // One of upstream's paths differs from the field's name, and another below.
            if *kind == "cephfs" { spec.get("cephFS") } else { source }.forbidden(ONE_TYPE);
            continue;
        }
        found = true;
        let source = if *kind == "gcePersistentDisk" { spec.get("persistentDisk").with(source.value) } else { source };
        for field in *required {
            if source.get(field).is_empty() {
                source.get(field).required("");
            }
        }
        match *kind {
            "hostPath" => volume::host_path(source),
            "nfs" => volume::nfs(source),
            "csi" => csi(source),
            "local" => {
                if !source.get("path").is_empty() {
                    volume::no_backsteps(source.get("path"));
                }
                if !has_affinity {
                    spec.get("nodeAffinity").required("Local volume requires node affinity");
                }
            }
            _ => plugins::source(kind, source, plugins::Of::PersistentVolume),
        }
    }
    if !found {
        spec.required("must specify a volume type");
    }
}

fn csi(source: Node<'_>) {
    volume::driver_name(source.get("driver"));
    if source.get("volumeHandle").is_empty() {
        source.get("volumeHandle").required("");
    }
    for secret in
        ["controllerPublishSecretRef", "controllerExpandSecretRef", "nodePublishSecretRef", "nodeExpandSecretRef"]
    {
        if source.get(secret).is_set() {
            source.get(secret).get("name").required_and(names::dns1123_subdomain);
            source.get(secret).get("namespace").required_and(names::dns1123_label);
        }
    }
}

pub(super) fn persistent_volume_update(new: Node<'_>, old: Node<'_>) {
    let (spec, old_spec) = (new.get("spec"), old.get("spec"));
    let source = |spec: Node<'_>| -> Value {
        let pick = |kind: &str| spec.value.get(kind).map(|v| (kind.to_owned(), v.clone()));
        Value::Object(SOURCES.iter().filter_map(|(kind, _)| pick(kind)).collect())
    };
    let (mut now, was) = (source(spec), source(old_spec));
    if was.pointer("/csi/controllerExpandSecretRef").is_none()
        && was.get("csi").is_some()
        && let Some(csi) = now.get_mut("csi").and_then(Value::as_object_mut)
    {
        csi.remove("controllerExpandSecretRef");
    }
    if !same(&now, &was) {
        let diff = internal::diff("PersistentVolumeSource", &was, &now);
        spec.get("persistentvolumesource")
            .forbidden(&format!("spec.persistentvolumesource is immutable after creation\n{diff}"));
    }
    new.get("volumeMode").with(spec.get("volumeMode").value).immutable(old_spec.get("volumeMode"));
    let (affinity, old_affinity) = (spec.get("nodeAffinity"), old_spec.get("nodeAffinity"));
    if old_affinity.is_set() && !affinity.same(old_affinity) {
        let shown =
            if affinity.is_set() { internal::shown("VolumeNodeAffinity", affinity.value) } else { "null".to_owned() };
        new.get("nodeAffinity").invalid_as(shown, "field is immutable, except for updating from beta label to GA");
    }
    let attributes = spec.get("volumeAttributesClassName");
    if !attributes.is_set() && old_spec.get("volumeAttributesClassName").is_set() {
        attributes.forbidden("update from non-nil value to nil is forbidden");
    }
}
