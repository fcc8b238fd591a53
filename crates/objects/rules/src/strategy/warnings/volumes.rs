//! Persistent volumes and claims.

use serde_json::Value;

use super::pod::selector_terms;
use crate::defaults::fields::{at, text, unset};
use crate::strategy::limits::is_fractional;

pub(super) fn persistent_volume(obj: &Value, out: &mut Vec<String>) {
    for (key, why) in [
        (
            "volume.beta.kubernetes.io/storage-class",
            "deprecated since v1.8; use \"storageClassName\" attribute instead",
        ),
        ("volume.beta.kubernetes.io/mount-options", "deprecated since v1.31; use \"mountOptions\" attribute instead"),
    ] {
        if !unset(at(obj, &["metadata", "annotations", key])) {
            out.push(format!("metadata.annotations[{key}]: {why}"));
        }
    }
    if text(obj, &["spec", "persistentVolumeReclaimPolicy"]) == "Recycle" {
        out.push(
            "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. \
             Instead, the recommended approach is to use dynamic provisioning."
                .to_owned(),
        );
    }
    let terms = at(obj, &["spec", "nodeAffinity", "required"]).unwrap_or(&Value::Null);
    selector_terms("spec.nodeAffinity.required.nodeSelectorTerms", terms, out);
    for (source, shown, why) in [
        ("cephfs", "cephfs", "deprecated in v1.28, non-functional in v1.31+"),
        ("photonPersistentDisk", "photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
        ("scaleIO", "scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
        ("storageos", "storageOS", "deprecated in v1.22, non-functional in v1.25+"),
        ("glusterfs", "glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
        ("rbd", "rbd", "deprecated in v1.28, non-functional in v1.31+"),
    ] {
        if !unset(at(obj, &["spec", source])) {
            out.push(format!("spec.{shown}: {why}"));
        }
    }
}

pub(super) fn persistent_volume_claim(obj: &Value, out: &mut Vec<String>) {
    const CLASS: &str = "volume.beta.kubernetes.io/storage-class";
    if !unset(at(obj, &["metadata", "annotations", CLASS])) {
        out.push(format!(
            "metadata.annotations[{CLASS}]: deprecated since v1.8; use \"storageClassName\" attribute instead"
        ));
    }
    claim_spec("spec", obj.get("spec").unwrap_or(&Value::Null), out);
}

pub(super) fn claim_spec(path: &str, spec: &Value, out: &mut Vec<String>) {
    for key in ["requests", "limits"] {
        if let Some(shown) = at(spec, &["resources", key, "storage"]).and_then(is_fractional) {
            out.push(format!(
                "{path}.resources.{key}[storage]: fractional byte value \"{shown}\" is invalid, must be an integer"
            ));
        }
    }
}
