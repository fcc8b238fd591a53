//! The small steps: finalizers that protect storage, default classes, taints of new nodes, limits.

use api::{quantity::Quantity, status::Result, strategy::admission};
use serde_json::Value;

use super::{all, forbid, one, pods};
use crate::call::Call;

/// Completes a new object.
pub fn create(call: &Call, collection: &str, value: &mut Value) {
    match collection {
        "core/nodes" => admission::taint_new_node(value),
        "core/persistentvolumes" => admission::protect_storage("PersistentVolume", value),
        "core/persistentvolumeclaims" => {
            admission::default_storage_class(value, &all(call, "storage.k8s.io/storageclasses", ""));
            admission::protect_storage("PersistentVolumeClaim", value);
        }
        "networking.k8s.io/ingresses" => {
            admission::default_ingress_class(value, &all(call, "networking.k8s.io/ingressclasses", ""));
        }
        _ => {}
    }
}

/// Judges an object that is valid by itself. `old` is what it is changed from.
pub fn judge(call: &Call, value: &Value, old: Option<&Value>) -> Result<()> {
    match (&*call.kind.collection, old) {
        ("core/pods" | "core/persistentvolumeclaims", None) => pods::within_limits(call, value),
        ("core/persistentvolumeclaims", Some(old)) if call.target.subresource.is_empty() => {
            let size = |claim: &Value| {
                let size = claim["spec"]["resources"]["requests"]["storage"].as_str();
                size.and_then(|text| Quantity::parse(text).ok()).unwrap_or_else(Quantity::zero)
            };
            if size(value) > size(old) {
                can_grow(call, value, old)?;
            }
            pods::within_limits(call, value)
        }
        _ => Ok(()),
    }
}

/// A claim grows only if whoever made its volume can make it larger.
fn can_grow(call: &Call, claim: &Value, old: &Value) -> Result<()> {
    if old["status"]["phase"] != "Bound" {
        return Err(forbid(call, claim, "Only bound persistent volume claims can be expanded"));
    }
    let class = claim["spec"]["storageClassName"].as_str().unwrap_or_default();
    let class = one(call, "storage.k8s.io/storageclasses", "", class);
    if class.is_some_and(|class| class["allowVolumeExpansion"] == true) {
        return Ok(());
    }
    let why = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize";
    Err(forbid(call, claim, why))
}
