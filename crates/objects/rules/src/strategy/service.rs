//! Services: what was allocated is kept over an update, and given back when the type no longer needs it.
//!
//! Giving out addresses and ports is the server's; here is only what follows from the object itself.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::metadata::{copy, differ};
use crate::defaults::fields::{at, blank, each, fill_blank, flag, list, put, take, text, with};

pub(super) fn on_create(service: &mut Value) {
    with(service, "spec", |spec| {
        let address = text(spec, &["clusterIP"]).to_owned();
        if !address.is_empty() {
            fill_blank(spec, "clusterIPs", vec![address]);
        }
    });
}

pub(super) fn on_update(new: &mut Value, old: &Value) {
    let Some(before) = old.get("spec") else { return };
    with(new, "spec", |after| {
        keep_allocated(after, before);
        normalise_addresses(after, before);
        drop_unneeded(after, before);
    });
}

/// Whether a service of this spec has addresses in the cluster (`None` counts as one).
pub fn needs_cluster_ip(spec: &Value) -> bool {
    matches!(text(spec, &["type"]), "ClusterIP" | "NodePort" | "LoadBalancer")
}

/// Whether its ports have ports on every node.
pub fn needs_node_ports(spec: &Value) -> bool {
    match text(spec, &["type"]) {
        "NodePort" => true,
        "LoadBalancer" => {
            at(spec, &["allocateLoadBalancerNodePorts"]).is_none_or(Value::is_null)
                || flag(spec, &["allocateLoadBalancerNodePorts"])
        }
        _ => false,
    }
}

/// Whether a load balancer asks nodes on a port of its own whether they have endpoints.
pub fn needs_health_check_port(spec: &Value) -> bool {
    text(spec, &["type"]) == "LoadBalancer" && text(spec, &["externalTrafficPolicy"]) == "Local"
}

fn is_external(spec: &Value) -> bool {
    matches!(text(spec, &["type"]), "NodePort" | "LoadBalancer")
        || (text(spec, &["type"]) == "ClusterIP" && !list(spec, &["externalIPs"]).is_empty())
}

/// A client that leaves out what was allocated means to keep it.
fn keep_allocated(after: &mut Value, before: &Value) {
    if needs_cluster_ip(after) && needs_cluster_ip(before) {
        if blank(after.get("clusterIP")) {
            copy(after, before, "clusterIP");
        }
        if blank(after.get("clusterIPs")) && after.get("clusterIP") == before.get("clusterIP") {
            copy(after, before, "clusterIPs");
        }
        for key in ["ipFamilies", "ipFamilyPolicy"] {
            if blank(after.get(key)) {
                copy(after, before, key);
            }
        }
    }
    if needs_node_ports(after) && needs_node_ports(before) {
        let taken: HashSet<i64> =
            list(after, &["ports"]).iter().filter_map(|p| p.get("nodePort")?.as_i64()).filter(|p| *p != 0).collect();
        let mut was: HashMap<_, &Value> = HashMap::new();
        for port in list(before, &["ports"]) {
            was.entry((port.get("port"), port.get("protocol"))).or_insert(port);
        }
        if let Some(ports) = after.get_mut("ports").and_then(Value::as_array_mut) {
            for port in ports {
                let same = was.get(&(port.get("port"), port.get("protocol")));
                let known = same.and_then(|b| b.get("nodePort")?.as_i64());
                if let Some(number) = known.filter(|n| *n != 0 && !taken.contains(n)) {
                    fill_blank(port, "nodePort", number);
                }
            }
        }
    }
    if needs_health_check_port(after) && needs_health_check_port(before) && blank(after.get("healthCheckNodePort")) {
        copy(after, before, "healthCheckNodePort");
    }
}

/// The single address and the list are kept in step: whichever of them the client changed, counts.
fn normalise_addresses(after: &mut Value, before: &Value) {
    let single_changed = differ(after.get("clusterIP"), before.get("clusterIP"));
    let list_changed = differ(after.get("clusterIPs"), before.get("clusterIPs"));
    if !single_changed || list_changed {
        return;
    }
    let address = text(after, &["clusterIP"]).to_owned();
    if address.is_empty() {
        take(after, "clusterIPs");
    } else {
        put(after, "clusterIPs", vec![address]);
    }
}

/// A change of type gives back what only the old type needed, unless the client sets it to something new.
fn drop_unneeded(after: &mut Value, before: &Value) {
    if needs_cluster_ip(before) && !needs_cluster_ip(after) {
        for key in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"] {
            drop_if_same(after, before, key);
        }
    }
    if needs_node_ports(before) && !needs_node_ports(after) && same_node_ports(after, before) {
        each(after, "ports", |port| {
            take(port, "nodePort");
        });
    }
    if needs_health_check_port(before) && !needs_health_check_port(after) {
        drop_if_same(after, before, "healthCheckNodePort");
    }
    if text(before, &["type"]) == "LoadBalancer" && text(after, &["type"]) != "LoadBalancer" {
        drop_if_same(after, before, "allocateLoadBalancerNodePorts");
        drop_if_same(after, before, "loadBalancerClass");
    }
    if is_external(before) && !is_external(after) {
        drop_if_same(after, before, "externalTrafficPolicy");
    }
}

fn drop_if_same(after: &mut Value, before: &Value, key: &str) {
    if !differ(after.get(key), before.get(key)) {
        take(after, key);
    }
}

fn same_node_ports(after: &Value, before: &Value) -> bool {
    let ports = |spec: &Value| {
        let mut ports: Vec<i64> = list(spec, &["ports"]).iter().filter_map(|p| p.get("nodePort")?.as_i64()).collect();
        ports.sort_unstable();
        ports
    };
    ports(after) == ports(before)
}
