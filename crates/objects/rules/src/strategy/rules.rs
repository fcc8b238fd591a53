//! What each resource allows, and what happens when one of its objects is deleted.

use schema::catalogue::Resource;
use serde_json::Value;

use crate::defaults::fields::{at, text};

/// Whether PUT on a name that does not exist creates it.
pub fn allow_create_on_update(group: &str, resource: &str) -> bool {
    match group {
        "" => matches!(resource, "endpoints" | "events" | "limitranges" | "services"),
        "events.k8s.io" => resource == "events",
        "coordination.k8s.io" => resource == "leases",
        "node.k8s.io" => resource == "runtimeclasses",
        "rbac.authorization.k8s.io" => true,
        _ => false,
    }
}

/// Whether an update without a resource version is taken. Custom objects never allow it.
pub fn allow_unconditional_update(group: &str, resource: &str) -> bool {
    match group {
        "admissionregistration.k8s.io"
        | "apiextensions.k8s.io"
        | "apiregistration.k8s.io"
        | "coordination.k8s.io"
        | "node.k8s.io"
        | "policy" => false,
        "storage.k8s.io" => matches!(resource, "storageclasses" | "volumeattributesclasses"),
        _ => BUILT_IN.contains(&group),
    }
}

const BUILT_IN: &[&str] = &[
    "",
    "apps",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "networking.k8s.io",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
];

/// What becomes of an object's dependents when the client does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    Background,
    Orphan,
    /// Has no dependents, and takes no propagation policy.
    None,
}

pub fn default_propagation(group: &str, resource: &str) -> Propagation {
    match (group, resource) {
        ("batch", "jobs") | ("", "replicationcontrollers") => Propagation::Orphan,
        ("" | "events.k8s.io", "events") => Propagation::None,
        _ => Propagation::Background,
    }
}

/// Whether a delete may first only set the time by which the object has to be gone.
pub fn deletes_gracefully(group: &str, resource: &str) -> bool {
    group.is_empty() && resource == "pods"
}

/// The grace of a delete that asks for none. `None` if the kind knows no grace, 0 if this object has nothing to finish:
/// a client's wish for more does not count then either.
pub fn default_grace_period(resource: &Resource, obj: &Value) -> Option<i64> {
    if !deletes_gracefully(&resource.group, &resource.resource) {
        return None;
    }
    let ended = matches!(text(obj, &["status", "phase"]), "Failed" | "Succeeded");
    if ended || text(obj, &["spec", "nodeName"]).is_empty() {
        return Some(0);
    }
    let period = at(obj, &["spec", "terminationGracePeriodSeconds"]).and_then(Value::as_i64).unwrap_or_default();
    // A negative period means the shortest there is.
    Some(if period < 0 { 1 } else { period })
}
