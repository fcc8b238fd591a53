//! Which part of an object is the center's, and which the edge's. Pure.

use kinds::names;
use serde_json::{Map, Value, json};

use super::diff;
use crate::held::Held;

/// Kinds that describe what happens on the edge: they are its own even where a center sent one.
const EDGE_KINDS: [&str; 13] = [
    "core/nodes",
    "core/pods",
    "core/events",
    "core/endpoints",
    "events.k8s.io/events",
    "coordination.k8s.io/leases",
    "discovery.k8s.io/endpointslices",
    "storage.k8s.io/csinodes",
    "storage.k8s.io/volumeattachments",
    "networking.k8s.io/ipaddresses",
    "networking.k8s.io/servicecidrs",
    "certificates.k8s.io/certificatesigningrequests",
    "edge.selvedge.dev/offlinewrites",
];

/// Which address is whose, as network plugins keep it.
const ADDRESS_KINDS: [&str; 11] = [
    "crd.projectcalico.org/blockaffinities",
    "crd.projectcalico.org/ipamblocks",
    "crd.projectcalico.org/ipamconfigs",
    "crd.projectcalico.org/ipamhandles",
    "crd.projectcalico.org/clusterinformations",
    "cilium.io/ciliumnodes",
    "cilium.io/ciliumendpoints",
    "cilium.io/ciliumendpointslices",
    "cilium.io/ciliumidentities",
    "whereabouts.cni.cncf.io/ippools",
    "whereabouts.cni.cncf.io/overlappingrangeipreservations",
];

/// Said by the server that holds the object, of its own copy.
const SERVERS_OWN: [&str; 9] = [
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "selfLink",
    "ownerReferences",
    "managedFields",
];

/// Annotations that controllers keep their notes in: each of the edge's own, whatever the center's said.
const NOTES: [&str; 4] = [
    "deployment.kubernetes.io/",
    "pv.kubernetes.io/",
    "volume.kubernetes.io/selected-node",
    "endpoints.kubernetes.io/",
];

/// Fields that the edge's controllers fill in where the object is: which volume, who claims it, what still holds a namespace, and how many replicas
/// an autoscaler wants.
fn filled_in(collection: &str, held: &Held) -> Option<(&'static str, &'static str)> {
    match collection {
        _ if held.is_autoscaled => Some(("spec", "replicas")),
        "core/persistentvolumeclaims" => Some(("spec", "volumeName")),
        "core/persistentvolumes" => Some(("spec", "claimRef")),
        "core/namespaces" => Some(("spec", "finalizers")),
        "core/serviceaccounts" => Some(("", "secrets")),
        _ => None,
    }
}

pub fn is_edge_kind(collection: &str) -> bool {
    EDGE_KINDS.contains(&collection) || ADDRESS_KINDS.contains(&collection)
}

/// Every object of the center's has one label and one annotation that say so.
fn is_sent_label(held: &Held, name: &str) -> bool {
    name == names::PROJECTED || held.labels.contains(name)
}

fn is_sent_annotation(held: &Held, name: &str) -> bool {
    let is_note = NOTES.iter().any(|note| name.starts_with(note));
    name == names::SOURCE || held.annotations.contains(name) && !is_note
}

/// Whether the center decides on this change of an object that it sent. `new` is none for a deletion.
pub fn is_centers(collection: &str, subresource: &str, held: &Held, old: &Value, new: Option<&Value>) -> bool {
    if is_edge_kind(collection) {
        return false;
    }
    match (subresource, new) {
        (_, None) => true,
        ("" | "scale", Some(new)) => center_part(collection, held, old) != center_part(collection, held, new),
        // The others say what happened here: status, finalize, binding.
        _ => false,
    }
}

/// What the center wants of an object, and nothing that was added here.
pub fn center_part(collection: &str, held: &Held, value: &Value) -> Value {
    let mut part = value.clone();
    let Value::Object(fields) = &mut part else { return part };
    fields.remove("status");
    if let Some((parent, field)) = filled_in(collection, held) {
        let within = if parent.is_empty() { Some(&mut *fields) } else { object_at(fields, parent) };
        if let Some(within) = within {
            within.remove(field);
        }
    }
    if let Some(metadata) = object_at(fields, "metadata") {
        for field in SERVERS_OWN {
            metadata.remove(field);
        }
        keep_keys(metadata, "labels", |name| is_sent_label(held, name));
        keep_keys(metadata, "annotations", |name| is_sent_annotation(held, name));
        keep_finalizers(metadata, |name| held.finalizers.contains(name));
    }
    part
}

/// What is the edge's own, in a shape that merge patches work on: finalizers as keys.
pub fn edge_part(collection: &str, held: &Held, value: &Value) -> Value {
    let mut part = json!({"metadata": {}});
    let metadata = &value["metadata"];
    for (field, is_sent) in [("labels", is_sent_label as fn(&Held, &str) -> bool), ("annotations", is_sent_annotation)]
    {
        let own = metadata[field].as_object().into_iter().flatten().filter(|(name, _)| !is_sent(held, name));
        part["metadata"][field] = own.map(|(name, value)| (name.clone(), value.clone())).collect();
    }
    part["metadata"]["finalizers"] =
        finalizers(metadata).filter(|name| !held.finalizers.contains(*name)).map(|name| (name, true)).collect();
    for field in ["ownerReferences", "managedFields"] {
        if !metadata[field].is_null() {
            part["metadata"][field] = metadata[field].clone();
        }
    }
    if !value["status"].is_null() {
        part["status"] = value["status"].clone();
    }
    match filled_in(collection, held) {
        Some(("", field)) if !value[field].is_null() => part[field] = value[field].clone(),
        Some((parent, field)) if !parent.is_empty() && !value[parent][field].is_null() => {
            part[parent][field] = value[parent][field].clone();
        }
        _ => {}
    }
    part
}

/// A change, taken apart: merge patches of both parts.
#[derive(Debug, PartialEq)]
pub struct Split {
    pub center: Value,
    pub edge: Value,
}

/// `None` if a merge patch cannot say it.
pub fn split(collection: &str, held: &Held, old: &Value, new: &Value) -> Option<Split> {
    let center = diff::between(&center_part(collection, held, old), &center_part(collection, held, new))?;
    let edge = diff::between(&edge_part(collection, held, old), &edge_part(collection, held, new))?;
    Some(Split { center, edge })
}

/// Makes the edge's part of a change on an object as it is by now.
pub fn apply_edge(value: &mut Value, patch: &Value) {
    let have = std::mem::take(&mut value["metadata"]["finalizers"]);
    let names = have.as_array().into_iter().flatten().filter_map(Value::as_str);
    let names: Vec<String> = names.map(str::to_owned).collect();
    value["metadata"]["finalizers"] = names.iter().map(|name| (name.clone(), true)).collect();
    patch::merge(value, patch);
    let wanted = value["metadata"]["finalizers"].as_object().cloned().unwrap_or_default();
    let kept = names.iter().filter(|name| wanted.contains_key(*name)).cloned();
    let added = wanted.keys().filter(|name| !names.contains(name)).cloned();
    let all: Vec<String> = kept.chain(added).collect();
    value["metadata"]["finalizers"] = all.into();
    if let Some(metadata) = value["metadata"].as_object_mut() {
        drop_empty(metadata, "labels");
        drop_empty(metadata, "annotations");
        if metadata.get("finalizers").and_then(Value::as_array).is_some_and(Vec::is_empty) {
            metadata.remove("finalizers");
        }
    }
}

/// Puts another center's part into an object, and leaves the edge's as it is.
pub fn replace_center(collection: &str, held: &Held, value: &mut Value, part: &Value) {
    let own = edge_part(collection, held, value);
    let mut next = part.clone();
    for field in SERVERS_OWN {
        if !value["metadata"][field].is_null() {
            next["metadata"][field] = value["metadata"][field].clone();
        }
    }
    apply_edge(&mut next, &own);
    // The part may be of a time when an autoscaler had the number.
    if next["spec"].is_object() && next["spec"]["replicas"].is_null() && value["spec"]["replicas"].is_number() {
        next["spec"]["replicas"] = value["spec"]["replicas"].clone();
    }
    *value = next;
}

fn object_at<'a>(fields: &'a mut Map<String, Value>, name: &str) -> Option<&'a mut Map<String, Value>> {
    fields.get_mut(name).and_then(Value::as_object_mut)
}

fn finalizers(metadata: &Value) -> impl Iterator<Item = &str> {
    metadata["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str)
}

fn keep_keys(metadata: &mut Map<String, Value>, field: &str, keep: impl Fn(&str) -> bool) {
    if let Some(map) = object_at(metadata, field) {
        map.retain(|name, _| keep(name));
    }
    drop_empty(metadata, field);
}

fn keep_finalizers(metadata: &mut Map<String, Value>, keep: impl Fn(&str) -> bool) {
    if let Some(list) = metadata.get_mut("finalizers").and_then(Value::as_array_mut) {
        list.retain(|name| name.as_str().is_some_and(&keep));
        if list.is_empty() {
            metadata.remove("finalizers");
        }
    }
}

fn drop_empty(metadata: &mut Map<String, Value>, field: &str) {
    if metadata.get(field).and_then(Value::as_object).is_some_and(Map::is_empty) {
        metadata.remove(field);
    }
}

#[cfg(test)]
mod tests;
