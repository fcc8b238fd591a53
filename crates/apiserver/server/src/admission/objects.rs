//! The small steps: finalizers that protect storage, default classes, taints of new nodes, limits.

use rules::strategy::admission;
use schema::quantity::Quantity;
use schema::status::Result;
use serde_json::Value;

use super::{Plugin, all, forbid, on, one, pods};
use crate::call::Call;

/// Completes a new object.
pub fn create(call: &Call, collection: &str, value: &mut Value) {
    match collection {
        "core/nodes" if on(call, Plugin::TaintNodesByCondition) => admission::taint_new_node(value),
        "core/persistentvolumes" if on(call, Plugin::StorageObjectInUseProtection) => {
            admission::protect_storage("PersistentVolume", value);
        }
        "core/persistentvolumeclaims" => {
            if on(call, Plugin::DefaultStorageClass) {
                admission::default_storage_class(value, &all(call, "storage.k8s.io/storageclasses", ""));
            }
            if on(call, Plugin::StorageObjectInUseProtection) {
                admission::protect_storage("PersistentVolumeClaim", value);
            }
        }
        "storage.k8s.io/volumeattributesclasses" if on(call, Plugin::StorageObjectInUseProtection) => {
            admission::protect_storage("VolumeAttributesClass", value);
        }
        "networking.k8s.io/ingresses" if on(call, Plugin::DefaultIngressClass) => {
            admission::default_ingress_class(value, &all(call, "networking.k8s.io/ingressclasses", ""));
        }
        _ => {}
    }
}

/// Judges an object that is valid by itself. `old` is what it is changed from.
pub fn judge(call: &Call, value: &Value, old: Option<&Value>) -> Result<()> {
    match (&*call.kind.collection, old) {
        ("core/pods" | "core/persistentvolumeclaims", None) => pods::within_limits(call, value),
        ("core/pods", Some(old)) if call.target.subresource == "resize" => {
            pods::resize(call, value, old)?;
            pods::within_limits(call, value)
        }
        ("core/persistentvolumeclaims", Some(old)) if call.target.subresource.is_empty() => {
            let size = |claim: &Value| {
                let size = claim["spec"]["resources"]["requests"]["storage"].as_str();
                size.and_then(|text| Quantity::parse(text).ok()).unwrap_or_else(Quantity::zero)
            };
            if size(value) > size(old) && on(call, Plugin::PersistentVolumeClaimResize) {
                can_grow(call, value, old)?;
            }
            pods::within_limits(call, value)
        }
        _ => Ok(()),
    }
}

/// Whoever asks for it lets nobody take addresses that are not theirs.
pub fn external_ips(call: &Call, service: &Value, old: &Value) -> Result<()> {
    if !on(call, Plugin::DenyServiceExternalIPs) {
        return Ok(());
    }
    let ips = |service: &Value| service["spec"]["externalIPs"].as_array().cloned().unwrap_or_default();
    let had = ips(old);
    if ips(service).iter().all(|ip| had.contains(ip)) {
        return Ok(());
    }
    Err(forbid(call, service, "Use of external IPs is denied by admission control."))
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
