//! Pods.

use serde_json::{Map, Value, json};

use super::Now;
use super::metadata::{copy, copy_exactly, differ, raise_generation, reset_for_status};
use crate::defaults::fields::{at, blank, each, fill, fill_blank, list, put, take, text, unset, with, within};

pub(super) fn on_create(pod: &mut Value, now: Now<'_>) {
    let qos = crate::qos::qos_class(pod);
    if let Some(status) = within(pod, "status") {
        put(status, "qosClass", qos);
    }
    if !list(pod, &["spec", "schedulingGates"]).is_empty() {
        let condition = json!({
            "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
            "lastProbeTime": null, "lastTransitionTime": now.rfc3339,
        });
        with(pod, "status", |status| put(status, "conditions", vec![condition]));
    }
    merge_label_keys(pod);
}

pub(super) fn on_update(new: &mut Value, old: &Value) {
    if let (Some(spec), Some(before)) = (within(new, "spec"), old.get("spec")) {
        // What admission computed when the pod was made cannot be taken back by leaving it out.
        for key in ["priority", "preemptionPolicy", "resources"] {
            if let Some(value) = before.get(key).filter(|v| !v.is_null()) {
                fill(spec, key, value.clone());
            }
        }
    }
}

pub(super) fn on_status(new: &mut Value, old: &Value) {
    if let (Some(metadata), Some(before)) = (within(new, "metadata"), old.get("metadata")) {
        copy(metadata, before, "ownerReferences");
        copy(metadata, before, "deletionTimestamp");
    }
    let nothing = json!({});
    let before = old.get("status").unwrap_or(&nothing);
    let Some(status) = within(new, "status") else { return };
    for key in ["qosClass", "observedGeneration"] {
        if let Some(value) = before.get(key).filter(|v| !v.is_null()) {
            fill_blank(status, key, value.clone());
        }
    }
    for key in ["resourceClaimStatuses", "extendedResourceClaimStatus"] {
        if unset(status.get(key)) {
            copy(status, before, key);
        }
    }
    each(status, "conditions", |condition| {
        let same = list(before, &["conditions"]).iter().find(|b| b.get("type") == condition.get("type"));
        if let Some(generation) = same.and_then(|b| b.get("observedGeneration")).filter(|v| !v.is_null()) {
            fill_blank(condition, "observedGeneration", generation.clone());
        }
    });
}

pub(super) fn only_ephemeral_containers(new: &mut Value, old: &Value) {
    let containers = at(new, &["spec", "ephemeralContainers"]).cloned();
    restore(new, old);
    if let Some(spec) = within(new, "spec") {
        match containers {
            Some(containers) => put(spec, "ephemeralContainers", containers),
            None => {
                take(spec, "ephemeralContainers");
            }
        }
    }
    raise_if_changed(new, old);
}

/// Of what the resize subresource is sent, only the resources of containers count. Other containers than there were are left
/// for validation to refuse.
pub(super) fn only_resize(new: &mut Value, old: &Value) {
    let names = |pod: &Value, containers: &str| -> Vec<Option<Value>> {
        list(pod, &["spec", containers]).iter().map(|container| container.get("name").cloned()).collect()
    };
    if ["containers", "initContainers"].iter().any(|containers| names(new, containers) != names(old, containers)) {
        return;
    }
    let sent = new.clone();
    restore(new, old);
    let Some(spec) = within(new, "spec") else { return };
    for containers in ["containers", "initContainers"] {
        each(spec, containers, |container| {
            let wish = list(&sent, &["spec", containers]).iter().find(|c| c.get("name") == container.get("name"));
            if let Some(wish) = wish {
                for key in ["resources", "resizePolicy"] {
                    copy(container, wish, key);
                }
                fill(container, "resources", json!({}));
            }
        });
    }
    if let Some(resources) = at(&sent, &["spec", "resources"]).filter(|v| !v.is_null()) {
        put(spec, "resources", resources.clone());
    }
    raise_if_changed(new, old);
}

fn restore(new: &mut Value, old: &Value) {
    copy_exactly(new, old, "spec");
    copy_exactly(new, old, "status");
    reset_for_status(new, old);
}

fn raise_if_changed(new: &mut Value, old: &Value) {
    if differ(new.get("spec"), old.get("spec")) {
        raise_generation(new, old);
    }
}

/// Assigns a pod to a node, as the binding subresource does. Says why if it cannot be done.
pub fn bind(pod: &mut Value, binding: &Value, now: Now<'_>) -> Result<(), String> {
    let name = text(pod, &["metadata", "name"]).to_owned();
    let node = text(pod, &["spec", "nodeName"]);
    if !unset(at(pod, &["metadata", "deletionTimestamp"])) {
        return Err(format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    if !node.is_empty() {
        return Err(format!("pod {name} is already assigned to node \"{node}\""));
    }
    if !list(pod, &["spec", "schedulingGates"]).is_empty() {
        return Err(format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    if let Some(spec) = within(pod, "spec") {
        put(spec, "nodeName", text(binding, &["target", "name"]));
    }
    if let Some(metadata) = within(pod, "metadata") {
        for key in ["annotations", "labels"] {
            let sent = at(binding, &["metadata", key]).and_then(Value::as_object).filter(|map| !map.is_empty());
            if let (Some(sent), Some(map)) = (sent, within(metadata, key).and_then(Value::as_object_mut)) {
                map.extend(sent.clone());
            } else if blank(metadata.get(key)) {
                take(metadata, key);
            }
        }
    }
    if let Some(status) = within(pod, "status") {
        let condition = json!({
            "type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": now.rfc3339,
        });
        let mut conditions = list(status, &["conditions"]).to_vec();
        conditions.retain(|c| text(c, &["type"]) != "PodScheduled");
        conditions.push(condition);
        put(status, "conditions", conditions);
    }
    Ok(())
}

/// `matchLabelKeys` become part of the selector: from then on they mean the labels the pod had when it was made.
fn merge_label_keys(pod: &mut Value) {
    let labels = at(pod, &["metadata", "labels"]).and_then(Value::as_object).cloned().unwrap_or_default();
    let Some(spec) = pod.get_mut("spec") else { return };
    each(spec, "topologySpreadConstraints", |constraint| merge(constraint, "matchLabelKeys", "In", &labels));
    let Some(affinity) = spec.get_mut("affinity") else { return };
    for side in ["podAffinity", "podAntiAffinity"] {
        with(affinity, side, |terms| {
            let mut both = |term: &mut Value| {
                merge(term, "matchLabelKeys", "In", &labels);
                merge(term, "mismatchLabelKeys", "NotIn", &labels);
            };
            each(terms, "requiredDuringSchedulingIgnoredDuringExecution", &mut both);
            each(terms, "preferredDuringSchedulingIgnoredDuringExecution", |weighted| {
                with(weighted, "podAffinityTerm", both);
            });
        });
    }
}

fn merge(term: &mut Value, keys: &str, operator: &str, labels: &Map<String, Value>) {
    let keys: Vec<String> = list(term, &[keys]).iter().filter_map(Value::as_str).map(str::to_owned).collect();
    let Some(selector) = term.get_mut("labelSelector").filter(|s| s.is_object()) else { return };
    for key in keys {
        if let Some(value) = labels.get(&key) {
            fill(selector, "matchExpressions", json!([]));
            if let Some(expressions) = selector.get_mut("matchExpressions").and_then(Value::as_array_mut) {
                expressions.push(json!({"key": key, "operator": operator, "values": [value]}));
            }
        }
    }
}
