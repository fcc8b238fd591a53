//! The kinds of the core group that are not pods, and small kinds of other groups.

use serde_json::{Map, Value};

use super::fields::{add_missing, each, fill, fill_blank, list, put, take, text, unset, with, within};
use super::resource::round;
use super::{pod, storage};

pub(super) fn apply(kind: &str, obj: &mut Value) {
    match kind {
        "Pod" => pod::pod(obj),
        "PodTemplate" => pod::template(obj, "template"),
        "ReplicationController" => replication_controller(obj),
        "Service" => service(obj),
        "Secret" => secret(obj),
        "Namespace" => namespace(obj),
        "Node" => node(obj),
        "Endpoints" => each(obj, "subsets", |subset| each(subset, "ports", |port| fill_blank(port, "protocol", "TCP"))),
        "ResourceQuota" => {
            for (part, maps) in [("spec", &["hard"][..]), ("status", &["hard", "used"])] {
                with(obj, part, |part| maps.iter().for_each(|map| with(part, map, round)));
            }
        }
        "LimitRange" => with(obj, "spec", |spec| each(spec, "limits", limit)),
        "PersistentVolume" => storage::persistent_volume(obj),
        "PersistentVolumeClaim" => storage::persistent_volume_claim(obj),
        _ => {}
    }
}

fn replication_controller(obj: &mut Value) {
    let Some(spec) = within(obj, "spec") else { return };
    fill(spec, "replicas", 1);
    if !unset(spec.get("template")) {
        pod::template(spec, "template");
    }
    let labels = spec.get("template").and_then(|t| t.get("metadata")).and_then(|m| m.get("labels")).cloned();
    if let Some(labels) = labels.filter(Value::is_object) {
        fill_blank(spec, "selector", labels.clone());
        if let Some(metadata) = within(obj, "metadata") {
            fill_blank(metadata, "labels", labels);
        }
    }
}

fn service(obj: &mut Value) {
    let Some(spec) = within(obj, "spec") else { return };
    fill_blank(spec, "sessionAffinity", "None");
    match text(spec, &["sessionAffinity"]) {
        "None" => {
            take(spec, "sessionAffinityConfig");
        }
        "ClientIP" => {
            if let Some(config) = within(spec, "sessionAffinityConfig")
                && let Some(client) = within(config, "clientIP")
            {
                fill(client, "timeoutSeconds", 10800);
            }
        }
        _ => {}
    }
    fill_blank(spec, "type", "ClusterIP");
    each(spec, "ports", |port| {
        fill_blank(port, "protocol", "TCP");
        if let Some(number) = port.get("port").cloned() {
            fill_blank(port, "targetPort", number);
        }
    });
    let kind = text(spec, &["type"]).to_owned();
    let external = matches!(&*kind, "NodePort" | "LoadBalancer")
        || (kind == "ClusterIP" && !list(spec, &["externalIPs"]).is_empty());
    if external {
        fill_blank(spec, "externalTrafficPolicy", "Cluster");
    }
    if matches!(&*kind, "ClusterIP" | "NodePort" | "LoadBalancer") {
        fill(spec, "internalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        fill(spec, "allocateLoadBalancerNodePorts", true);
        with(obj, "status", |status| {
            with(status, "loadBalancer", |balancer| {
                each(balancer, "ingress", |ingress| {
                    if !text(ingress, &["ip"]).is_empty() {
                        fill(ingress, "ipMode", "VIP");
                    }
                });
            });
        });
    }
}

/// `stringData` is for writing only: its texts go into `data`, over what is there.
fn secret(obj: &mut Value) {
    use base64::Engine as _;
    if let Some(Value::Object(plain)) = take(obj, "stringData")
        && !plain.is_empty()
        && let Some(data) = within(obj, "data").and_then(Value::as_object_mut)
    {
        for (key, value) in plain {
            let bytes = value.as_str().unwrap_or_default();
            data.insert(key, base64::engine::general_purpose::STANDARD.encode(bytes).into());
        }
    }
    fill_blank(obj, "type", "Opaque");
}

fn namespace(obj: &mut Value) {
    let name = text(obj, &["metadata", "name"]).to_owned();
    if !name.is_empty()
        && let Some(metadata) = within(obj, "metadata")
        && let Some(labels) = within(metadata, "labels")
    {
        put(labels, "kubernetes.io/metadata.name", name);
    }
    if let Some(status) = within(obj, "status") {
        fill_blank(status, "phase", "Active");
    }
}

fn node(obj: &mut Value) {
    if let Some(spec) = obj.get_mut("spec") {
        // The two forms of the field are kept in step, as conversion does upstream.
        let cidr = text(spec, &["podCIDR"]).to_owned();
        let cidrs = list(spec, &["podCIDRs"]).first().cloned();
        match (cidr.is_empty(), cidrs) {
            (false, None) => put(spec, "podCIDRs", vec![cidr]),
            (true, Some(first)) => put(spec, "podCIDR", first),
            _ => {}
        }
    }
    with(obj, "status", |status| {
        with(status, "capacity", round);
        with(status, "allocatable", round);
        if unset(status.get("allocatable"))
            && let Some(capacity) = status.get("capacity").filter(|c| c.is_object()).cloned()
        {
            put(status, "allocatable", capacity);
        }
    });
}

fn limit(limit: &mut Value) {
    for map in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
        with(limit, map, round);
    }
    if text(limit, &["type"]) != "Container" {
        return;
    }
    let map = |limit: &Value, key: &str| limit.get(key).and_then(Value::as_object).cloned().unwrap_or_else(Map::new);
    add_missing(limit, "default", &map(limit, "max"));
    add_missing(limit, "defaultRequest", &map(limit, "default"));
    add_missing(limit, "defaultRequest", &map(limit, "min"));
}

pub(super) fn role_binding(obj: &mut Value) {
    const GROUP: &str = "rbac.authorization.k8s.io";
    if let Some(role) = within(obj, "roleRef") {
        fill_blank(role, "apiGroup", GROUP);
    }
    each(obj, "subjects", |subject| {
        if matches!(text(subject, &["kind"]), "User" | "Group") {
            fill_blank(subject, "apiGroup", GROUP);
        }
    });
}

pub(super) fn token_request(obj: &mut Value) {
    if let Some(spec) = within(obj, "spec") {
        fill(spec, "expirationSeconds", 3600);
    }
}
