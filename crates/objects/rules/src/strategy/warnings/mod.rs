//! Warning headers: what is accepted but probably not what the client meant.

use schema::catalogue::Resource;
use schema::quantity::Quantity;
use serde_json::Value;

use super::metadata::{differ, generation};
use crate::defaults::fields::{at, blank, list, text, unset};

mod addresses;
mod pod;
mod secret;
mod volumes;

use addresses::{cidr, ip};
use pod::{deprecated_label, template};

/// What a client hears on every request for a kind that is on its way out.
pub fn deprecations(resource: &Resource) -> Vec<String> {
    let told = match (&*resource.group, &*resource.version, &*resource.kind) {
        ("", "v1", "ComponentStatus") => "v1 ComponentStatus is deprecated in v1.19+",
        ("", "v1", "Endpoints") => "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
        _ => return Vec::new(),
    };
    vec![told.to_owned()]
}

/// The warnings of a write, after [`super::prepare_create`] (`old` is then `None`) or [`super::prepare_update`].
pub fn warnings(resource: &Resource, obj: &Value, old: Option<&Value>) -> Vec<String> {
    let mut out = Vec::new();
    let kind = (&*resource.group, &*resource.kind);
    if old.is_none() {
        name(kind, obj, &mut out);
    }
    match kind {
        ("", "Pod") if old.is_none() => pod::pod(obj, &mut out),
        ("", "Endpoints") => endpoints(obj, &mut out),
        ("", "Service") => service(obj, &mut out),
        ("", "Node") => node(obj, &mut out),
        ("", "PersistentVolume") => volumes::persistent_volume(obj, &mut out),
        ("", "PersistentVolumeClaim") => volumes::persistent_volume_claim(obj, &mut out),
        ("", "ResourceQuota") if old.is_none() => quota(obj, &mut out),
        ("", "Secret") => secret::secret(obj, &mut out),
        ("", "ServiceAccount") => service_account(obj, old, &mut out),
        ("discovery.k8s.io", "EndpointSlice") => endpoint_slice(obj, old, &mut out),
        ("networking.k8s.io", "Ingress") if old.is_none() => ingress(obj, &mut out),
        ("networking.k8s.io", "NetworkPolicy") => network_policy(obj, &mut out),
        ("node.k8s.io", "RuntimeClass") => {
            for key in at(obj, &["scheduling", "nodeSelector"]).and_then(Value::as_object).into_iter().flatten() {
                out.extend(deprecated_label(key.0).map(|why| format!("scheduling.nodeSelector: {why}")));
            }
        }
        ("storage.k8s.io", "StorageClass") => storage_class(obj, &mut out),
        ("storage.k8s.io", "CSIStorageCapacity") => storage_capacity(obj, &mut out),
        ("storage.k8s.io", "CSIDriver") => csi_driver(obj, old, &mut out),
        ("batch", "CronJob") if old.is_some() && text(obj, &["spec", "schedule"]).contains("TZ") => {
            out.push(
                "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see \
                 https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
                    .to_owned(),
            );
        }
        _ => {}
    }
    // A template speaks up only when it is new or something changed.
    if let Some(path) = template_path(kind)
        && old.is_none_or(|old| generation(old) != generation(obj) || differ(obj.get("template"), old.get("template")))
        && let Some(template_value) = at(obj, path)
    {
        template(&path.join("."), template_value, &mut out);
    }
    if kind == ("batch", "Job") || kind == ("batch", "CronJob") {
        many_indexes(if kind.1 == "Job" { &["spec"] } else { &["spec", "jobTemplate", "spec"] }, obj, &mut out);
    }
    if kind == ("apps", "StatefulSet") {
        for (i, claim) in list(obj, &["spec", "volumeClaimTemplates"]).iter().enumerate() {
            let spec = claim.get("spec").unwrap_or(&Value::Null);
            volumes::claim_spec(&format!("spec.volumeClaimTemplates[{i}]"), spec, &mut out);
        }
        if at(obj, &["spec", "revisionHistoryLimit"]).and_then(Value::as_i64).is_some_and(|limit| limit < 0) {
            out.push(
                "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended"
                    .to_owned(),
            );
        }
    }
    out
}

pub(super) fn template_path((group, kind): (&str, &str)) -> Option<&'static [&'static str]> {
    Some(match (group, kind) {
        ("", "ReplicationController")
        | ("apps", "Deployment" | "DaemonSet" | "ReplicaSet" | "StatefulSet")
        | ("batch", "Job") => &["spec", "template"],
        ("batch", "CronJob") => &["spec", "jobTemplate", "spec", "template"],
        ("", "PodTemplate") => &["template"],
        _ => return None,
    })
}

/// Names that make poor host names.
fn name((group, kind): (&str, &str), obj: &Value, out: &mut Vec<String>) {
    let where_used = match (group, kind) {
        ("", "Pod") => "the Pod's hostname",
        ("", "ReplicationController") | ("apps", "Deployment" | "ReplicaSet") | ("batch", "Job" | "CronJob") => {
            "Pod names and hostnames"
        }
        _ => return,
    };
    let wrong = schema::names::dns1123_label(text(obj, &["metadata", "name"]));
    if !wrong.is_empty() {
        out.push(format!(
            "metadata.name: this is used in {where_used}, which can result in surprising behavior; \
             a DNS label is recommended: [{}]",
            wrong.join(" ")
        ));
    }
}

fn endpoints(obj: &Value, out: &mut Vec<String>) {
    if text(obj, &["metadata", "labels", "endpoints.kubernetes.io/managed-by"]) == "endpoint-controller" {
        return;
    }
    for (i, subset) in list(obj, &["subsets"]).iter().enumerate() {
        for key in ["addresses", "notReadyAddresses"] {
            for (j, address) in list(subset, &[key]).iter().enumerate() {
                ip(&format!("subsets[{i}].{key}[{j}].ip"), text(address, &["ip"]), out);
            }
        }
    }
}

fn endpoint_slice(obj: &Value, old: Option<&Value>, out: &mut Vec<String>) {
    if old.is_none() && text(obj, &["addressType"]) == "FQDN" {
        out.push("spec.addressType: FQDN endpoints are deprecated".to_owned());
    }
    let manager = text(obj, &["metadata", "labels", "endpointslice.kubernetes.io/managed-by"]);
    if manager.starts_with("endpointslice") && manager.ends_with("controller.k8s.io") {
        return;
    }
    for (i, endpoint) in list(obj, &["endpoints"]).iter().enumerate() {
        for (j, address) in list(endpoint, &["addresses"]).iter().enumerate() {
            ip(&format!("endpoints[{i}].addresses[{j}]"), address.as_str().unwrap_or_default(), out);
        }
    }
}

fn service(obj: &Value, out: &mut Vec<String>) {
    if !unset(at(obj, &["metadata", "annotations", "service.kubernetes.io/topology-aware-hints"])) {
        out.push(
            "annotation service.kubernetes.io/topology-aware-hints is deprecated, \
             please use service.kubernetes.io/topology-mode instead"
                .to_owned(),
        );
    }
    let Some(spec) = obj.get("spec") else { return };
    let kind = text(spec, &["type"]);
    let headless = kind == "ClusterIP" && text(spec, &["clusterIP"]) == "None";
    if !headless && kind != "ExternalName" {
        for (i, address) in list(spec, &["clusterIPs"]).iter().enumerate() {
            ip(&format!("spec.clusterIPs[{i}]"), address.as_str().unwrap_or_default(), out);
        }
    }
    if headless {
        let affinity = text(spec, &["sessionAffinity"]) != "None";
        for (field, set) in [
            ("loadBalancerIP", !blank(spec.get("loadBalancerIP"))),
            ("externalIPs", !blank(spec.get("externalIPs"))),
            ("SessionAffinity", affinity),
        ] {
            if set {
                out.push(format!("spec.{field} is ignored for headless services"));
            }
        }
    }
    let external = list(spec, &["externalIPs"]);
    for (i, address) in external.iter().enumerate() {
        ip(&format!("spec.externalIPs[{i}]"), address.as_str().unwrap_or_default(), out);
    }
    if !external.is_empty() && !headless && kind != "ExternalName" {
        out.push("spec.externalIPs is deprecated and may no longer be implemented in some clusters".to_owned());
    }
    if !blank(spec.get("loadBalancerIP")) {
        ip("spec.loadBalancerIP", text(spec, &["loadBalancerIP"]), out);
    }
    for (i, range) in list(spec, &["loadBalancerSourceRanges"]).iter().enumerate() {
        cidr(&format!("spec.loadBalancerSourceRanges[{i}]"), range.as_str().unwrap_or_default(), out);
    }
    if kind == "ExternalName" && !external.is_empty() {
        out.push("spec.externalIPs is ignored when spec.type is \"ExternalName\"".to_owned());
    }
    if kind != "ExternalName" && !blank(spec.get("externalName")) {
        out.push("spec.externalName is ignored when spec.type is not \"ExternalName\"".to_owned());
    }
    if text(spec, &["trafficDistribution"]) == "PreferClose" {
        out.push("spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"".to_owned());
    }
}

fn node(obj: &Value, out: &mut Vec<String>) {
    if !unset(at(obj, &["spec", "configSource"])) {
        out.push("spec.configSource: the feature is removed".to_owned());
    }
    if !text(obj, &["spec", "externalID"]).is_empty() {
        out.push("spec.externalID: this field is deprecated, and is unused by Kubernetes".to_owned());
    }
    for (i, range) in list(obj, &["spec", "podCIDRs"]).iter().enumerate() {
        cidr(&format!("spec.podCIDRs[{i}]"), range.as_str().unwrap_or_default(), out);
    }
}

/// A quota that allows more to be asked for than to be used.
fn quota(obj: &Value, out: &mut Vec<String>) {
    let hard =
        |name: &str| at(obj, &["spec", "hard", name]).and_then(Quantity::of).map(|amount| (name.to_owned(), amount));
    for name in ["cpu", "memory", "storage", "ephemeral-storage"] {
        let plain = || hard(name).filter(|_| matches!(name, "cpu" | "memory"));
        let requests = hard(&format!("requests.{name}")).or_else(plain);
        let limits = hard(&format!("limits.{name}"));
        if let (Some((request, asked)), Some((limit, allowed))) = (requests, limits)
            && asked > allowed
        {
            out.push(format!("ResourceQuota {request} ({asked}) should be less than {limit} ({allowed})"));
        }
    }
}

fn service_account(obj: &Value, old: Option<&Value>, out: &mut Vec<String>) {
    const PATH: [&str; 3] = ["metadata", "annotations", "kubernetes.io/enforce-mountable-secrets"];
    if !unset(at(obj, &PATH)) && old.is_none_or(|old| unset(at(old, &PATH))) {
        out.push(
            "metadata.annotations[kubernetes.io/enforce-mountable-secrets]: deprecated in v1.32+; \
             prefer separate namespaces to isolate access to mounted secrets"
                .to_owned(),
        );
    }
}

fn ingress(obj: &Value, out: &mut Vec<String>) {
    const CLASS: &str = "kubernetes.io/ingress.class";
    if !unset(at(obj, &["metadata", "annotations", CLASS])) && unset(at(obj, &["spec", "ingressClassName"])) {
        out.push(format!("annotation \"{CLASS}\" is deprecated, please use 'spec.ingressClassName' instead"));
    }
}

fn network_policy(obj: &Value, out: &mut Vec<String>) {
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        for (i, rule) in list(obj, &["spec", direction]).iter().enumerate() {
            for (j, peer) in list(rule, &[peers]).iter().enumerate() {
                let Some(block) = peer.get("ipBlock").filter(|b| b.is_object()) else { continue };
                let path = format!("spec.{direction}[{i}].{peers}[{j}].ipBlock");
                cidr(&format!("{path}.cidr"), text(block, &["cidr"]), out);
                for (k, except) in list(block, &["except"]).iter().enumerate() {
                    cidr(&format!("{path}.except[{k}]"), except.as_str().unwrap_or_default(), out);
                }
            }
        }
    }
}

fn many_indexes(path: &[&str], obj: &Value, out: &mut Vec<String>) {
    let Some(spec) = at(obj, path) else { return };
    let number = |key: &str| spec.get(key).and_then(Value::as_i64).unwrap_or_default();
    if text(spec, &["completionMode"]) == "Indexed" && number("completions") > 100_000 && number("parallelism") > 10_000
    {
        out.push(format!(
            "{}: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, \
             Kubernetes might not be able to track completedIndexes when a big number of indexes fail",
            path.join(".")
        ));
    }
}

fn storage_capacity(obj: &Value, out: &mut Vec<String>) {
    for (i, expression) in list(obj, &["nodeTopology", "matchExpressions"]).iter().enumerate() {
        let key = text(expression, &["key"]);
        out.extend(deprecated_label(key).map(|why| format!("nodeTopology.matchExpressions[{i}].key: {key} is {why}")));
    }
    let labels = at(obj, &["nodeTopology", "matchLabels"]).and_then(Value::as_object);
    for (key, _) in labels.into_iter().flatten() {
        out.extend(deprecated_label(key).map(|why| format!("nodeTopology.matchLabels.{key}: {why}")));
    }
}

fn csi_driver(obj: &Value, old: Option<&Value>, out: &mut Vec<String>) {
    let requests = |obj: &Value| list(obj, &["spec", "tokenRequests"]).to_vec();
    if !requests(obj).is_empty()
        && unset(at(obj, &["spec", "serviceAccountTokenInSecrets"]))
        && old.is_none_or(|old| requests(old) != requests(obj))
    {
        out.push(
            "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent \
             possible logging of tokens in volume attributes"
                .to_owned(),
        );
    }
}

fn storage_class(obj: &Value, out: &mut Vec<String>) {
    for (i, topology) in list(obj, &["allowedTopologies"]).iter().enumerate() {
        for (j, expression) in list(topology, &["matchLabelExpressions"]).iter().enumerate() {
            if let Some(why) = deprecated_label(text(expression, &["key"])) {
                out.push(format!("allowedTopologies[{i}].matchLabelExpressions[{j}].key: {why}"));
            }
        }
    }
}
