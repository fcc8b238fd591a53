//! Volumes of pods, and the sources that persistent volumes share with them.

use serde_json::{Value, json};

use super::fields::{each, fill, fill_blank, text, unset, with, within};
use super::pod::pull_policy;
use super::storage;

/// The sources a volume can have. One that has none is an empty directory.
const SOURCES: &[&str] = &[
    "awsElasticBlockStore",
    "azureDisk",
    "azureFile",
    "cephfs",
    "cinder",
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "fc",
    "flexVolume",
    "flocker",
    "gcePersistentDisk",
    "gitRepo",
    "glusterfs",
    "hostPath",
    "image",
    "iscsi",
    "nfs",
    "persistentVolumeClaim",
    "photonPersistentDisk",
    "portworxVolume",
    "projected",
    "quobyte",
    "rbd",
    "scaleIO",
    "secret",
    "storageos",
    "vsphereVolume",
];

const FILE_MODE: i32 = 0o644;

pub(super) fn volume(volume: &mut Value) {
    if SOURCES.iter().all(|source| unset(volume.get(*source))) {
        fill(volume, "emptyDir", json!({}));
    }
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        with(volume, source, |s| fill(s, "defaultMode", FILE_MODE));
    }
    with(volume, "downwardAPI", downward_items);
    with(volume, "projected", |projected| {
        // Go writes this list even when nothing is in it.
        fill(projected, "sources", Value::Null);
        each(projected, "sources", |source| {
            with(source, "downwardAPI", downward_items);
            with(source, "serviceAccountToken", |token| fill(token, "expirationSeconds", 3600));
            with(source, "podCertificate", |cert| fill(cert, "maxExpirationSeconds", 86400));
        });
    });
    with(volume, "ephemeral", |ephemeral| {
        with(ephemeral, "volumeClaimTemplate", |template| {
            fill(template, "metadata", json!({}));
            if let Some(spec) = within(template, "spec") {
                storage::claim_spec(spec);
            }
        });
    });
    with(volume, "image", |image| {
        let policy = pull_policy(text(image, &["reference"]));
        fill_blank(image, "pullPolicy", policy);
    });
    sources(volume);
}

/// Sources that pod volumes and persistent volumes have in common.
pub(super) fn sources(volume: &mut Value) {
    with(volume, "hostPath", |s| fill(s, "type", ""));
    with(volume, "iscsi", |s| fill_blank(s, "iscsiInterface", "default"));
    with(volume, "rbd", |s| {
        fill_blank(s, "pool", "rbd");
        fill_blank(s, "user", "admin");
        fill_blank(s, "keyring", "/etc/ceph/keyring");
    });
    with(volume, "azureDisk", |s| {
        fill(s, "cachingMode", "ReadWrite");
        fill(s, "kind", "Shared");
        fill(s, "fsType", "ext4");
        fill(s, "readOnly", false);
    });
    with(volume, "scaleIO", |s| {
        fill_blank(s, "storageMode", "ThinProvisioned");
        fill_blank(s, "fsType", "xfs");
    });
}

fn downward_items(source: &mut Value) {
    each(source, "items", |item| with(item, "fieldRef", |field| fill_blank(field, "apiVersion", "v1")));
}
