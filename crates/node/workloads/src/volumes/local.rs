//! Volumes that are directories of this machine: when to make one and when to remove it. Pure.

use std::path::Path;

use k8s_openapi::{
    api::{
        core::v1::{
            LocalVolumeSource, Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, ObjectReference,
            PersistentVolume, PersistentVolumeClaim, PersistentVolumeSpec, VolumeNodeAffinity,
        },
        storage::v1::StorageClass,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use super::{
    claim::{NODE, PROVISIONER},
    matching::annotation,
    volume::BY,
};

pub const NAME: &str = "selvedge.dev/local";
/// The class of who says nothing.
pub const CLASS: &str = "local";
/// The directory is removed before the object is, whoever deletes the object: as every provisioner's volumes have it.
pub const FINALIZER: &str = "external-provisioner.volume.kubernetes.io/finalizer";
const HOST: &str = "kubernetes.io/hostname";
/// What one directory of one machine can be.
const MODES: [&str; 2] = ["ReadWriteOnce", "ReadWriteOncePod"];

/// The class that claims have by default. It is made once, and is the operator's then.
pub fn class() -> StorageClass {
    StorageClass {
        metadata: ObjectMeta {
            name: Some(CLASS.into()),
            annotations: Some([("storageclass.kubernetes.io/is-default-class".into(), "true".into())].into()),
            ..ObjectMeta::default()
        },
        provisioner: NAME.into(),
        reclaim_policy: Some("Delete".into()),
        volume_binding_mode: Some("WaitForFirstConsumer".into()),
        ..StorageClass::default()
    }
}

#[derive(Debug, PartialEq)]
pub enum Next {
    Nothing,
    Make(Box<PersistentVolume>),
    /// Why there cannot be one.
    Refuse(String),
}

/// Whether containers of this node are processes of this machine: there is one such node on an edge, and it is ours.
pub fn is_here(node: &Node) -> bool {
    let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
    info.is_some_and(|info| info.container_runtime_version.starts_with("process://"))
}

/// Whether a claim needs a directory below `dir`. `here` is this machine's node.
pub fn provision(claim: &PersistentVolumeClaim, class: Option<&StorageClass>, here: Option<&Node>, dir: &Path) -> Next {
    let marked = PROVISIONER.iter().any(|name| annotation(&claim.metadata, name) == Some(NAME));
    let spec = claim.spec.clone().unwrap_or_default();
    let has_volume = spec.volume_name.as_deref().is_some_and(|name| !name.is_empty());
    let (Some(class), Some(here)) = (class.filter(|class| class.provisioner == NAME), here) else {
        return Next::Nothing;
    };
    let chosen = annotation(&claim.metadata, NODE);
    let waits = class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer");
    let is_here = match chosen {
        Some(chosen) => here.metadata.name.as_deref() == Some(chosen),
        None => !waits,
    };
    if !marked || has_volume || claim.metadata.deletion_timestamp.is_some() || !is_here {
        return Next::Nothing;
    }
    let modes = spec.access_modes.clone().unwrap_or_default();
    if let Some(mode) = modes.iter().find(|mode| !MODES.contains(&mode.as_str())) {
        return Next::Refuse(format!("a directory of one machine can be {}, not {mode}", MODES.join(" or ")));
    }
    if spec.volume_mode.as_deref() == Some("Block") {
        return Next::Refuse("a directory is no block device: use volumeMode Filesystem".into());
    }
    if spec.selector.is_some() {
        return Next::Refuse("claim.spec.selector is not supported: what is made for a claim has no labels".into());
    }
    if class.mount_options.iter().flatten().next().is_some() {
        return Next::Refuse("a directory has no mountOptions".into());
    }
    let (Some(uid), Some(host)) = (&claim.metadata.uid, host_of(here)) else { return Next::Nothing };
    let name = format!("pvc-{uid}");
    let affinity = NodeSelectorRequirement { key: HOST.into(), operator: "In".into(), values: Some(vec![host]) };
    let term = NodeSelectorTerm { match_expressions: Some(vec![affinity]), ..NodeSelectorTerm::default() };
    let policy = class.reclaim_policy.clone().unwrap_or_else(|| "Delete".into());
    let volume = PersistentVolume {
        metadata: ObjectMeta {
            annotations: Some([(BY.to_owned(), NAME.to_owned())].into()),
            finalizers: (policy == "Delete").then(|| vec![FINALIZER.to_owned()]),
            name: Some(name.clone()),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeSpec {
            access_modes: Some(modes),
            capacity: spec.resources.and_then(|resources| resources.requests),
            claim_ref: Some(ObjectReference {
                api_version: Some("v1".into()),
                kind: Some("PersistentVolumeClaim".into()),
                namespace: claim.metadata.namespace.clone(),
                name: claim.metadata.name.clone(),
                uid: Some(uid.clone()),
                resource_version: claim.metadata.resource_version.clone(),
                field_path: None,
            }),
            local: Some(LocalVolumeSource { path: dir.join(&name).display().to_string(), fs_type: None }),
            node_affinity: Some(VolumeNodeAffinity {
                required: Some(NodeSelector { node_selector_terms: vec![term] }),
            }),
            persistent_volume_reclaim_policy: Some(policy),
            storage_class_name: class.metadata.name.clone(),
            volume_mode: Some("Filesystem".into()),
            ..PersistentVolumeSpec::default()
        }),
        status: None,
    };
    Next::Make(Box::new(volume))
}

fn host_of(node: &Node) -> Option<String> {
    let label = node.metadata.labels.as_ref().and_then(|labels| labels.get(HOST));
    label.or(node.metadata.name.as_ref()).cloned()
}

/// Whether a volume's directory has to go, and the volume with it.
pub fn is_over(volume: &PersistentVolume, here: Option<&Node>) -> bool {
    let spec = volume.spec.as_ref();
    let policy = spec.and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
    is_ours(volume, here) && policy == Some("Delete") && phase == Some("Released")
}

/// Whether a volume is a directory that was made here.
pub fn is_ours(volume: &PersistentVolume, here: Option<&Node>) -> bool {
    let affinity = volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref()?.required.as_ref());
    let host = here.and_then(host_of);
    let is_here = affinity.is_some_and(|affinity| {
        let expressions = affinity.node_selector_terms.iter().filter_map(|term| term.match_expressions.as_ref());
        let mut values = expressions.flatten().filter_map(|expression| expression.values.as_ref()).flatten();
        values.any(|value| Some(value) == host.as_ref())
    });
    annotation(&volume.metadata, BY) == Some(NAME) && is_here
}
