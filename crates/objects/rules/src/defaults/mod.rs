//! Defaulting: what upstream fills into an object of a built-in kind that a client left out.
//!
//! Every function here takes any JSON and never fails; a field of an unexpected type is left for validation to refuse.
//! Defaults that need the clock, the store or another object (addresses, tolerations, service accounts) are not here but
//! in [`crate::strategy`] and the server.

use serde_json::Value;

mod admission;
mod autoscaling;
mod core;
pub(crate) mod fields;
mod flowcontrol;
mod networking;
mod pod;
mod resource;
mod storage;
#[cfg(test)]
mod tests;
mod volume;
mod workload;

/// Fills in the defaults of one object. `group` is empty for the core group. Kinds without defaults are left alone.
pub fn apply(group: &str, version: &str, kind: &str, obj: &mut Value) {
    match (group, kind) {
        ("", _) => core::apply(kind, obj),
        ("apps", _) => workload::apps(kind, obj),
        ("batch", _) => workload::batch(kind, obj),
        ("autoscaling", "HorizontalPodAutoscaler") => autoscaling::horizontal_pod_autoscaler(version, obj),
        ("networking.k8s.io", _) => networking::apply(kind, obj),
        ("discovery.k8s.io", "EndpointSlice") => networking::endpoint_slice(obj),
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => core::role_binding(obj),
        ("storage.k8s.io", _) => storage::apply(kind, obj),
        ("scheduling.k8s.io", "PriorityClass") => fields::fill(obj, "preemptionPolicy", "PreemptLowerPriority"),
        ("node.k8s.io", "RuntimeClass") => {
            fields::with(obj, "overhead", |overhead| fields::with(overhead, "podFixed", resource::round));
        }
        ("admissionregistration.k8s.io", _) => admission::apply(kind, obj),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => admission::custom_resource_definition(obj),
        ("apiregistration.k8s.io", "APIService") => admission::api_service(obj),
        ("flowcontrol.apiserver.k8s.io", _) => flowcontrol::apply(kind, obj),
        ("resource.k8s.io", _) => resource::apply(kind, obj),
        ("authentication.k8s.io", "TokenRequest") => core::token_request(obj),
        _ => {}
    }
}
