//! What each resource allows, and what happens when one of its objects is deleted.

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

/// The grace that a delete gives, with `asked` as the client's own wish: pods that never ran or have ended get none.
pub fn default_grace_period(group: &str, resource: &str, obj: &Value, asked: Option<i64>) -> i64 {
    if !deletes_gracefully(group, resource) {
        return 0;
    }
    let ended = matches!(text(obj, &["status", "phase"]), "Failed" | "Succeeded");
    if ended || text(obj, &["spec", "nodeName"]).is_empty() {
        return 0;
    }
    let own = || at(obj, &["spec", "terminationGracePeriodSeconds"]).and_then(Value::as_i64).unwrap_or_default();
    match asked.unwrap_or_else(own) {
        // A negative period means the shortest there is.
        period if period < 0 => 1,
        period => period,
    }
}
