//! The quality of service class of a Pod.

use schema::quantity::Quantity;
use serde_json::Value;

use crate::defaults::fields::{at, blank, list};

/// How well a pod is provided for: what it asks for and what it is limited to decide who is evicted first.
pub fn qos_class(pod: &Value) -> &'static str {
    let whole = at(pod, &["spec", "resources"]).filter(|r| !blank(r.get("requests")) || !blank(r.get("limits")));
    let parts: Vec<&Value> = match whole {
        Some(resources) => vec![resources],
        None => ["containers", "initContainers"]
            .iter()
            .flat_map(|key| list(pod, &["spec", key]))
            .filter_map(|container| container.get("resources"))
            .collect(),
    };
    let containers = ["containers", "initContainers"].iter().map(|key| list(pod, &["spec", key]).len()).sum::<usize>();
    let mut guaranteed = whole.is_some() || parts.len() == containers;
    // Per resource: the sums of what is asked for and what is allowed.
    let mut sums = ["cpu", "memory"].map(|_| (Quantity::zero(), Quantity::zero()));
    for resources in parts {
        for (sum, name) in sums.iter_mut().zip(["cpu", "memory"]) {
            let of = |key: &str| {
                at(resources, &[key, name])
                    .and_then(Quantity::of)
                    .filter(|amount| !amount.is_zero() && !amount.is_negative())
            };
            if let Some(requests) = of("requests") {
                sum.0.add(&requests);
            }
            match of("limits") {
                Some(limits) => sum.1.add(&limits),
                None => guaranteed = false,
            }
        }
    }
    if sums.iter().all(|(requests, limits)| requests.is_zero() && limits.is_zero()) {
        "BestEffort"
    } else if guaranteed && sums.iter().all(|(requests, limits)| requests == limits) {
        "Guaranteed"
    } else {
        "Burstable"
    }
}
