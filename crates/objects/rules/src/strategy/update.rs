//! Before an object is written over.

use schema::catalogue::Resource;
use serde_json::{Value, json};

use super::create::{self, TEMPLATE_GENERATION};
use super::metadata::{copy, copy_exactly, differ, raise_generation, reset_for_status};
use super::{Now, pod, service};
use crate::defaults::fields::{at, each, fill, flag, list, put, take, text, unset, with, within};

pub(super) fn prepare(resource: &Resource, subresource: &str, new: &mut Value, old: &Value, now: Now<'_>) {
    let (group, kind) = (&*resource.group, &*resource.kind);
    match (subresource, group, kind) {
        ("", ..) => object(resource, new, old, now),
        ("status", ..) => status(group, kind, new, old, now),
        ("finalize", "", "Namespace") => copy_exactly(new, old, "status"),
        ("approval", "certificates.k8s.io", _) => {
            stamp_conditions(new, old, now);
            let conditions = at(new, &["status", "conditions"]).cloned();
            copy_exactly(new, old, "spec");
            copy_exactly(new, old, "status");
            if let (Some(conditions), Some(status)) = (conditions, within(new, "status")) {
                put(status, "conditions", conditions);
            }
        }
        ("ephemeralcontainers", "", "Pod") => pod::only_ephemeral_containers(new, old),
        ("resize", "", "Pod") => pod::only_resize(new, old),
        // Any other subresource has already been turned into a change of the object itself.
        _ => object(resource, new, old, now),
    }
}

fn object(resource: &Resource, new: &mut Value, old: &Value, now: Now<'_>) {
    let (group, kind) = (&*resource.group, &*resource.kind);
    if resource.subresource("status").is_some() {
        copy_exactly(new, old, "status");
    }
    match (group, kind) {
        ("", "Pod") => pod::on_update(new, old),
        ("", "Service") => service::on_update(new, old),
        ("", "Namespace") => {
            if let (Some(spec), Some(before)) = (within(new, "spec"), old.get("spec")) {
                copy(spec, before, "finalizers");
            }
        }
        ("", "Secret") if text(new, &["type"]).is_empty() => copy(new, old, "type"),
        ("", "ServiceAccount") => create::secret_references(new),
        ("", "PersistentVolumeClaim") => {
            let had_source = ["dataSource", "dataSourceRef"].iter().any(|field| !unset(at(old, &["spec", field])));
            with(new, "spec", |spec| {
                create::drop_unknown_source(spec, had_source);
                create::claim_source(spec);
            });
        }
        ("certificates.k8s.io", "CertificateSigningRequest") => copy_exactly(new, old, "spec"),
        ("resource.k8s.io", "ResourceSlice") => create::device_taints(new, now),
        ("apps", "DaemonSet") => template_generation(new, old),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => stored_versions(new),
        _ => {}
    }
    if counted(group, kind).iter().any(|path| differs(new, old, path))
        || (group == "discovery.k8s.io" && content_differs(new, old))
    {
        raise_generation(new, old);
    }
}

/// The annotations in which a center counts the edges of an object. They say nothing about what is wanted, so they
/// raise no generation.
const COUNTED_BY_CENTER: [&str; 2] = ["kubestellar.io/executing-count", "edge.selvedge.dev/edges"];

fn differs(new: &Value, old: &Value, path: &[&str]) -> bool {
    let (new, old) = (at(new, path), at(old, path));
    if path != ["metadata", "annotations"] || !differ(new, old) {
        return differ(new, old);
    }
    let wanted = |annotations: Option<&Value>| {
        let mut annotations = annotations?.as_object()?.clone();
        for name in COUNTED_BY_CENTER {
            annotations.remove(name);
        }
        (!annotations.is_empty()).then_some(annotations)
    };
    wanted(new) != wanted(old)
}

/// The fields whose change raises the generation.
fn counted(group: &str, kind: &str) -> &'static [&'static [&'static str]] {
    match (group, kind) {
        ("apps", "Deployment") => &[&["spec"], &["metadata", "annotations"]],
        ("", "PodTemplate") => &[&["template"]],
        ("discovery.k8s.io", "EndpointSlice") => &[&["metadata", "labels"]],
        ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration") => {
            &[&["webhooks"]]
        }
        ("", "Pod" | "ReplicationController")
        | ("apps", "DaemonSet" | "ReplicaSet" | "StatefulSet")
        | ("batch" | "admissionregistration.k8s.io" | "flowcontrol.apiserver.k8s.io", _)
        | ("networking.k8s.io", "Ingress" | "IngressClass" | "NetworkPolicy")
        | ("resource.k8s.io", "DeviceClass" | "ResourceSlice")
        | ("policy", "PodDisruptionBudget")
        | ("storage.k8s.io", "CSIDriver")
        | ("apiextensions.k8s.io", "CustomResourceDefinition") => &[&["spec"]],
        _ => &[],
    }
}

/// Of an endpoint slice, everything beside the metadata counts.
fn content_differs(new: &Value, old: &Value) -> bool {
    ["addressType", "endpoints", "ports"].iter().any(|key| differ(new.get(*key), old.get(*key)))
}

fn status(group: &str, kind: &str, new: &mut Value, old: &Value, now: Now<'_>) {
    copy_exactly(new, old, "spec");
    match (group, kind) {
        ("", "Pod") => pod::on_status(new, old),
        ("", "PersistentVolume") => phase_time(new, old, now),
        ("apps", "DaemonSet") => template_generation(new, old),
        ("apps", "Deployment") => {
            if let (Some(metadata), Some(before)) = (within(new, "metadata"), old.get("metadata")) {
                copy(metadata, before, "labels");
            }
        }
        ("certificates.k8s.io", _) => {
            for condition in ["Approved", "Denied"] {
                keep_condition(new, old, condition);
            }
            stamp_conditions(new, old, now);
        }
        ("flowcontrol.apiserver.k8s.io", _) => {
            let sent = new.get("metadata").cloned().unwrap_or(json!({}));
            copy_exactly(new, old, "metadata");
            if let Some(metadata) = within(new, "metadata") {
                for key in ["managedFields", "resourceVersion"] {
                    copy(metadata, &sent, key);
                }
            }
        }
        ("admissionregistration.k8s.io" | "apiextensions.k8s.io" | "apiregistration.k8s.io", _)
        | ("networking.k8s.io", "ServiceCIDR")
        | ("storage.k8s.io", "VolumeAttachment")
        | ("resource.k8s.io", "ResourceClaim") => reset_for_status(new, old),
        _ => {}
    }
}

fn template_generation(new: &mut Value, old: &Value) {
    let before = text(old, &["metadata", "annotations", TEMPLATE_GENERATION]).parse::<i64>().unwrap_or(1);
    let changed = differ(at(new, &["spec", "template"]), at(old, &["spec", "template"]));
    if let Some(metadata) = within(new, "metadata")
        && let Some(annotations) = within(metadata, "annotations")
    {
        put(annotations, TEMPLATE_GENERATION, before.saturating_add(changed.into()).to_string());
    }
}

/// A version that becomes the one to store in joins those that objects may be stored in.
fn stored_versions(new: &mut Value) {
    let storage = list(new, &["spec", "versions"]).iter().find(|version| flag(version, &["storage"]));
    let Some(name) = storage.and_then(|version| version.get("name")).cloned() else { return };
    let Some(status) = within(new, "status") else { return };
    fill(status, "storedVersions", json!([]));
    if let Some(stored) = status.get_mut("storedVersions").and_then(Value::as_array_mut)
        && !stored.contains(&name)
    {
        stored.push(name);
    }
}

/// When a volume went into its phase, which a client may set but not forget.
fn phase_time(new: &mut Value, old: &Value, now: Now<'_>) {
    const FIELD: &str = "lastPhaseTransitionTime";
    let before = at(old, &["status", FIELD]).filter(|v| !v.is_null()).cloned();
    let same = text(new, &["status", "phase"]) == text(old, &["status", "phase"]);
    let Some(status) = within(new, "status") else { return };
    let after = status.get(FIELD).filter(|v| !v.is_null()).cloned();
    match (same, after) {
        (true, None) => {
            if let Some(before) = before {
                put(status, FIELD, before);
            }
        }
        (false, after) if after.is_none() || after == before => put(status, FIELD, now.rfc3339),
        _ => {}
    }
}

/// The status subresource neither adds nor takes away a verdict.
fn keep_condition(new: &mut Value, old: &Value, kind: &str) {
    let verdict = |c: &&Value| text(c, &["type"]) == kind;
    let before: Vec<Value> = list(old, &["status", "conditions"]).iter().filter(verdict).cloned().collect();
    let after: Vec<Value> = list(new, &["status", "conditions"]).iter().filter(verdict).cloned().collect();
    if before == after || (before.is_empty() && after.is_empty()) {
        return;
    }
    let Some(status) = within(new, "status") else { return };
    let mut conditions: Vec<Value> =
        list(status, &["conditions"]).iter().filter(|c| text(c, &["type"]) != kind).cloned().collect();
    conditions.splice(0..0, before);
    if conditions.is_empty() {
        take(status, "conditions");
    } else {
        put(status, "conditions", conditions);
    }
}

fn stamp_conditions(new: &mut Value, old: &Value, now: Now<'_>) {
    let before: Vec<Value> = list(old, &["status", "conditions"]).to_vec();
    with(new, "status", |status| {
        each(status, "conditions", |condition| {
            fill(condition, "lastUpdateTime", now.rfc3339);
            if unset(condition.get("lastTransitionTime")) {
                let same = before.iter().find(|b| b.get("type") == condition.get("type"));
                let time = same
                    .filter(|b| b.get("status") == condition.get("status"))
                    .and_then(|b| b.get("lastTransitionTime"))
                    .filter(|t| !t.is_null());
                put(condition, "lastTransitionTime", time.cloned().unwrap_or_else(|| now.rfc3339.into()));
            }
        });
    });
}
