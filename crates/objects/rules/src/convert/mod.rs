//! Between the versions of a built-in kind, and where its objects are stored.
//!
//! Only two kinds are served in more than one form: horizontal pod autoscalers (v1 and v2) and events (core and
//! `events.k8s.io`).

use schema::catalogue::api_version;
use serde_json::Value;

use crate::defaults::fields::put;

mod autoscaling;
mod event;
#[cfg(test)]
mod tests;
mod versions;

pub use versions::BuiltInVersions;

/// The group and version that objects of a resource are stored in, whichever they are written in.
pub fn storage<'a>(group: &'a str, resource: &str) -> (&'a str, &'static str) {
    match (group, resource) {
        ("events.k8s.io", "events") => ("", "v1"),
        ("autoscaling", "horizontalpodautoscalers") => (group, "v2"),
        _ => (group, "v1"),
    }
}

/// Turns an object of one group and version into the same object of another one. Both are given as (group, version).
pub fn convert(kind: &str, from: (&str, &str), to: (&str, &str), obj: &mut Value) -> Result<(), String> {
    match (kind, from, to) {
        _ if from == to => return Ok(()),
        ("HorizontalPodAutoscaler", ("autoscaling", "v1"), ("autoscaling", "v2")) => autoscaling::to_v2(obj),
        ("HorizontalPodAutoscaler", ("autoscaling", "v2"), ("autoscaling", "v1")) => autoscaling::to_v1(obj),
        ("Event", ("", "v1"), ("events.k8s.io", "v1")) => event::from_core(obj),
        ("Event", ("events.k8s.io", "v1"), ("", "v1")) => event::to_core(obj),
        _ => {
            let (from, to) = (api_version(from.0, from.1), api_version(to.0, to.1));
            return Err(format!("{kind} cannot be converted from {from} to {to}"));
        }
    }
    put(obj, "apiVersion", api_version(to.0, to.1));
    Ok(())
}
