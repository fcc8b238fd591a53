//! The small steps: finalizers that protect storage, default classes, taints of new nodes, limits.

use api::{status::Result, strategy::admission};
use serde_json::Value;

use super::{all, pods};
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

/// Judges a new object that is valid by itself.
pub fn judge(call: &Call, value: &Value) -> Result<()> {
    match &*call.kind.collection {
        "core/pods" | "core/persistentvolumeclaims" => pods::within_limits(call, value),
        _ => Ok(()),
    }
}
