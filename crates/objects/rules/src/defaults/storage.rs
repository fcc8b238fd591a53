//! Persistent volumes and claims, and the storage group.

use serde_json::{Value, json};

use super::fields::{fill, fill_blank, with, within};
use super::resource::{round, round_requirements};
use super::volume;

pub(super) fn apply(kind: &str, obj: &mut Value) {
    match kind {
        "StorageClass" => {
            fill(obj, "reclaimPolicy", "Delete");
            fill(obj, "volumeBindingMode", "Immediate");
        }
        "CSIDriver" => {
            let Some(spec) = within(obj, "spec") else { return };
            fill(spec, "attachRequired", true);
            fill(spec, "podInfoOnMount", false);
            fill(spec, "storageCapacity", false);
            fill(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
            fill_blank(spec, "volumeLifecycleModes", json!(["Persistent"]));
            fill(spec, "requiresRepublish", false);
            fill(spec, "seLinuxMount", false);
        }
        "VolumeAttachment" => {
            if let Some(spec) = within(obj, "spec")
                && let Some(source) = spec.get_mut("source")
                && let Some(inline) = source.get_mut("inlineVolumeSpec").filter(|s| s.is_object())
            {
                with(inline, "capacity", round);
                volume::sources(inline);
            }
        }
        _ => {}
    }
}

pub(super) fn persistent_volume(obj: &mut Value) {
    if let Some(status) = within(obj, "status") {
        fill_blank(status, "phase", "Pending");
    }
    if let Some(spec) = within(obj, "spec") {
        fill_blank(spec, "persistentVolumeReclaimPolicy", "Retain");
        fill(spec, "volumeMode", "Filesystem");
        with(spec, "capacity", round);
        volume::sources(spec);
    }
}

pub(super) fn persistent_volume_claim(obj: &mut Value) {
    if let Some(status) = within(obj, "status") {
        fill_blank(status, "phase", "Pending");
    }
    if let Some(spec) = within(obj, "spec") {
        claim_spec(spec);
    }
}

pub(super) fn claim_spec(spec: &mut Value) {
    fill(spec, "volumeMode", "Filesystem");
    if let Some(resources) = within(spec, "resources") {
        round_requirements(resources);
    }
}
