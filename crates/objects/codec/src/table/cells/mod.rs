//! What the cells of a row say, for each built-in kind: upstream's printers.

mod admission;
mod apps;
mod autoscaling;
mod batch;
mod core;
mod network;
mod pod;
mod rbac;
mod storage;
#[cfg(test)]
mod tests;

use serde_json::{Value, json};

use super::age::age;
use super::read::{name, text, text_or};
use super::tree::Node;

/// The cells of an object's row, in the order of the resource's columns. `now` is in seconds since 1970.
pub fn cells(group: &str, resource: &str, object: &Node<'_>, now: i64) -> Vec<Value> {
    let o = object;
    match (group, resource) {
        ("", "pods") => pod::pod(o, now),
        ("", "podtemplates") => core::pod_template(o),
        ("", "componentstatuses") => core::component_status(o),
        ("", "configmaps") => core::config_map(o, now),
        ("", "secrets") => core::secret(o, now),
        ("", "serviceaccounts") => vec![name(o), age(o, now)],
        ("", "namespaces") => vec![name(o), text(o, "/status/phase").into(), age(o, now)],
        ("", "nodes") => core::node(o, now),
        ("" | "events.k8s.io", "events") => core::event(o, now),
        ("", "resourcequotas") => core::resource_quota(o, now),
        ("", "replicationcontrollers") => apps::replication_controller(o, now),
        ("", "services") => network::service(o, now),
        ("", "endpoints") => network::endpoints(o, now),
        ("", "persistentvolumes") => storage::volume(o, now),
        ("", "persistentvolumeclaims") => storage::claim(o, now),
        ("apps", "deployments") => apps::deployment(o, now),
        ("apps", "replicasets") => apps::replica_set(o, now),
        ("apps", "statefulsets") => apps::stateful_set(o, now),
        ("apps", "daemonsets") => apps::daemon_set(o, now),
        ("apps", "controllerrevisions") => apps::controller_revision(o, now),
        ("batch", "jobs") => batch::job(o, now),
        ("batch", "cronjobs") => batch::cron_job(o, now),
        ("autoscaling", "horizontalpodautoscalers") => autoscaling::autoscaler(o, now),
        ("discovery.k8s.io", "endpointslices") => network::endpoint_slice(o, now),
        ("networking.k8s.io", "ingresses") => network::ingress(o, now),
        ("networking.k8s.io", "ingressclasses") => network::ingress_class(o, now),
        ("networking.k8s.io", "networkpolicies") => network::policy(o, now),
        ("networking.k8s.io", "servicecidrs") => network::service_cidr(o, now),
        ("networking.k8s.io", "ipaddresses") => network::ip_address(o, now),
        ("policy", "poddisruptionbudgets") => apps::disruption_budget(o, now),
        ("rbac.authorization.k8s.io", "rolebindings" | "clusterrolebindings") => rbac::binding(o, now),
        ("certificates.k8s.io", "certificatesigningrequests") => rbac::signing_request(o, now),
        ("storage.k8s.io", "storageclasses") => storage::class(o, now),
        ("storage.k8s.io", "volumeattributesclasses") => vec![name(o), text(o, "/driverName").into(), age(o, now)],
        ("storage.k8s.io", "volumeattachments") => storage::attachment(o, now),
        ("storage.k8s.io", "csidrivers") => storage::csi_driver(o, now),
        ("storage.k8s.io", "csinodes") => storage::csi_node(o, now),
        ("admissionregistration.k8s.io", _) => admission::admission(resource, o, now),
        ("apiregistration.k8s.io", "apiservices") => admission::api_service(o, now),
        ("flowcontrol.apiserver.k8s.io", "flowschemas") => admission::flow_schema(o, now),
        ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations") => admission::priority_level(o, now),
        ("scheduling.k8s.io", "priorityclasses") => core::priority_class(o, now),
        ("coordination.k8s.io", "leases") => vec![name(o), text(o, "/spec/holderIdentity").into(), age(o, now)],
        ("node.k8s.io", "runtimeclasses") => vec![name(o), text(o, "/handler").into(), age(o, now)],
        ("resource.k8s.io", "deviceclasses" | "resourceclaimtemplates") => vec![name(o), age(o, now)],
        ("resource.k8s.io", "resourceclaims") => core::resource_claim(o, now),
        ("resource.k8s.io", "resourceslices") => core::resource_slice(o, now),
        _ => default(o),
    }
}

/// Name and time of creation: what is known of any object.
pub(super) fn default(object: &Node<'_>) -> Vec<Value> {
    // Go's zero time stands for none.
    vec![name(object), text_or(object, "/metadata/creationTimestamp", "0001-01-01T00:00:00Z").into()]
}

/// What a row says about its object as a whole; only finished pods have something.
pub(super) fn conditions(group: &str, resource: &str, object: &Node<'_>) -> Option<Value> {
    if (group, resource) != ("", "pods") {
        return None;
    }
    let (reason, message) = match &*text(object, "/status/phase") {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(json!([{"type": "Completed", "status": "True", "reason": reason, "message": message}]))
}
