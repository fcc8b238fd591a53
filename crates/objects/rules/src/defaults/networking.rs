//! Network policies, ingress classes and endpoint slices.

use serde_json::{Value, json};

use super::fields::{blank, each, fill, fill_blank, with, within};

pub(super) fn apply(kind: &str, obj: &mut Value) {
    match kind {
        "NetworkPolicy" => network_policy(obj),
        "IngressClass" => with(obj, "spec", |spec| with(spec, "parameters", |p| fill(p, "scope", "Cluster"))),
        _ => {}
    }
}

fn network_policy(obj: &mut Value) {
    let Some(spec) = within(obj, "spec") else { return };
    let types = if blank(spec.get("egress")) { json!(["Ingress"]) } else { json!(["Ingress", "Egress"]) };
    fill_blank(spec, "policyTypes", types);
    for direction in ["ingress", "egress"] {
        each(spec, direction, |rule| each(rule, "ports", |port| fill(port, "protocol", "TCP")));
    }
}

pub(super) fn endpoint_slice(obj: &mut Value) {
    each(obj, "ports", |port| {
        fill(port, "name", "");
        fill(port, "protocol", "TCP");
    });
}
