//! Amounts of resources, and the device claims of the resource group.

use schema::quantity::Quantity;
use serde_json::{Map, Value};

use super::fields::{add_missing, at, each, fill_blank, list, text, with, within};

/// Amounts finer than a thousandth are rounded up to one.
pub(super) fn round(amounts: &mut Value) {
    for amount in amounts.as_object_mut().into_iter().flat_map(Map::values_mut) {
        if let Some(mut quantity) = amount.as_str().and_then(|text| Quantity::parse(text).ok()) {
            let before = quantity.clone();
            quantity.round_up(-3);
            if quantity != before {
                *amount = quantity.to_string().into();
            }
        }
    }
}

pub(super) fn round_requirements(resources: &mut Value) {
    for key in ["limits", "requests"] {
        with(resources, key, round);
    }
}

/// A pod that is limited as a whole asks for what its containers ask for or, where they do not, for its limit.
pub(super) fn pod_level(spec: &mut Value) {
    let Some(limits) = at(spec, &["resources", "limits"]).and_then(Value::as_object).filter(|l| !l.is_empty()) else {
        return;
    };
    let whole = |name: &str| matches!(name, "cpu" | "memory") || name.starts_with("hugepages-");
    let mut requests: Map<String, Value> =
        limits.iter().filter(|(name, _)| whole(name)).map(|(name, limit)| (name.clone(), limit.clone())).collect();
    for name in ["cpu", "memory"] {
        if let Some(sum) = requested_by_containers(spec, name) {
            requests.insert(name.to_owned(), sum.to_string().into());
        }
    }
    with(spec, "resources", |resources| add_missing(resources, "requests", &requests));
}

/// What containers need at once: all that keep running together, or the neediest step of their start.
fn requested_by_containers(spec: &Value, name: &str) -> Option<Quantity> {
    let of = |container: &Value| Quantity::parse(text(container, &["resources", "requests", name])).ok();
    let mut found = false;
    let (mut running, mut sidecars, mut start) = (Quantity::zero(), Quantity::zero(), Quantity::zero());
    for container in list(spec, &["containers"]) {
        if let Some(amount) = of(container) {
            found = true;
            running.add(&amount);
        }
    }
    for container in list(spec, &["initContainers"]) {
        let Some(amount) = of(container) else { continue };
        found = true;
        let mut step = sidecars.clone();
        step.add(&amount);
        if text(container, &["restartPolicy"]) == "Always" {
            running.add(&amount);
            sidecars = step.clone();
        }
        start = start.max(step);
    }
    found.then(|| running.max(start))
}

pub(super) fn apply(kind: &str, obj: &mut Value) {
    match kind {
        "ResourceClaim" => {
            if let Some(spec) = within(obj, "spec") {
                claim(spec);
            }
        }
        "ResourceClaimTemplate" => {
            if let Some(spec) = within(obj, "spec")
                && let Some(inner) = within(spec, "spec")
            {
                claim(inner);
            }
        }
        _ => {}
    }
}

fn claim(spec: &mut Value) {
    with(spec, "devices", |devices| {
        each(devices, "requests", |request| {
            with(request, "exactly", device_request);
            each(request, "firstAvailable", device_request);
        });
    });
}

fn device_request(request: &mut Value) {
    fill_blank(request, "allocationMode", "ExactCount");
    if text(request, &["allocationMode"]) == "ExactCount" {
        fill_blank(request, "count", 1);
    }
    each(request, "tolerations", |toleration| fill_blank(toleration, "operator", "Equal"));
}
