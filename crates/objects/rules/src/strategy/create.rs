//! Before the first write.

use schema::catalogue::{Resource, split_api_version};
use serde_json::{Value, json};

use super::metadata::set_generation;
use super::{Now, job, pod, service};
use crate::defaults::fields::{blank, each, fill, flag, list, put, take, text, unset, with, within};

pub(super) fn prepare(resource: &Resource, obj: &mut Value, now: Now<'_>) {
    let (group, kind) = (&*resource.group, &*resource.kind);
    // The object may already be in the version it is stored in.
    let version = split_api_version(text(obj, &["apiVersion"])).1;
    let version = if version.is_empty() { &resource.version } else { version };
    if let Some(status) = fresh_status(group, version, kind) {
        put(obj, "status", status);
    }
    if starts_with_generation(group, kind) {
        set_generation(obj, 1);
    }
    match (group, kind) {
        ("", "Pod") => pod::on_create(obj, now),
        ("", "Service") => service::on_create(obj),
        ("", "Namespace") => namespace(obj),
        ("", "ServiceAccount") => secret_references(obj),
        ("", "PersistentVolume") => with(obj, "status", |s| put(s, "lastPhaseTransitionTime", now.rfc3339)),
        ("", "PersistentVolumeClaim") => with(obj, "spec", |spec| {
            drop_unknown_source(spec, false);
            claim_source(spec);
        }),
        ("apps", "DaemonSet") => template_generation(obj),
        ("batch", "Job") => job::on_create(obj),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => custom_resource_definition(obj),
        ("apiregistration.k8s.io", "APIService") => api_service(obj, now),
        ("resource.k8s.io", "ResourceSlice") => device_taints(obj, now),
        ("certificates.k8s.io", "CertificateSigningRequest") => with(obj, "spec", |spec| {
            // Who asks is the server's to say.
            if let Some(spec) = spec.as_object_mut() {
                spec.retain(|key, _| !matches!(key.as_str(), "username" | "uid" | "groups" | "extra"));
            }
        }),
        _ => {}
    }
}

/// The status an object starts with, where a client's is dropped. Go writes plain counters even when they are zero.
fn fresh_status(group: &str, version: &str, kind: &str) -> Option<Value> {
    Some(match (group, kind) {
        ("", "Pod" | "PersistentVolume" | "PersistentVolumeClaim") => json!({"phase": "Pending"}),
        ("", "Namespace") => json!({"phase": "Active"}),
        ("", "Service") | ("networking.k8s.io", "Ingress") => json!({"loadBalancer": {}}),
        ("", "ReplicationController") | ("apps", "ReplicaSet") => json!({"replicas": 0}),
        ("apps", "StatefulSet") => json!({"replicas": 0, "availableReplicas": 0}),
        ("apps", "DaemonSet") => json!({
            "currentNumberScheduled": 0, "desiredNumberScheduled": 0, "numberMisscheduled": 0, "numberReady": 0,
        }),
        ("autoscaling", _) if version == "v1" => json!({"currentReplicas": 0, "desiredReplicas": 0}),
        ("autoscaling", _) => json!({"desiredReplicas": 0, "currentMetrics": null}),
        ("policy", "PodDisruptionBudget") => json!({
            "currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0,
        }),
        ("storage.k8s.io", "VolumeAttachment") => json!({"attached": false}),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => json!({
            "acceptedNames": {"kind": "", "plural": ""}, "conditions": null, "storedVersions": null,
        }),
        ("", "ResourceQuota")
        | ("apps", "Deployment")
        | ("batch", "Job" | "CronJob")
        | ("certificates.k8s.io", "CertificateSigningRequest")
        | ("networking.k8s.io", "ServiceCIDR")
        | ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy")
        | ("flowcontrol.apiserver.k8s.io", "FlowSchema" | "PriorityLevelConfiguration")
        | ("apiregistration.k8s.io", "APIService")
        | ("resource.k8s.io", "ResourceClaim") => json!({}),
        _ => return None,
    })
}

fn starts_with_generation(group: &str, kind: &str) -> bool {
    match group {
        "" => matches!(kind, "Pod" | "PodTemplate" | "ReplicationController"),
        "apps" => matches!(kind, "Deployment" | "DaemonSet" | "ReplicaSet" | "StatefulSet"),
        "networking.k8s.io" => matches!(kind, "Ingress" | "IngressClass" | "NetworkPolicy"),
        "resource.k8s.io" => matches!(kind, "DeviceClass" | "ResourceSlice"),
        "policy" => kind == "PodDisruptionBudget",
        "discovery.k8s.io" => kind == "EndpointSlice",
        "scheduling.k8s.io" => kind == "PriorityClass",
        "apiextensions.k8s.io" => kind == "CustomResourceDefinition",
        "batch" | "admissionregistration.k8s.io" | "flowcontrol.apiserver.k8s.io" => true,
        _ => false,
    }
}

/// Of the secrets an account names, only the names count.
pub(super) fn secret_references(account: &mut Value) {
    each(account, "secrets", |secret| {
        if let Some(secret) = secret.as_object_mut() {
            secret.retain(|key, _| key == "name");
        }
    });
}

fn namespace(obj: &mut Value) {
    let name = text(obj, &["metadata", "name"]).to_owned();
    if let Some(metadata) = within(obj, "metadata")
        && let Some(labels) = within(metadata, "labels")
        && !name.is_empty()
    {
        // Again, as defaulting could not do it for a generated name.
        put(labels, "kubernetes.io/metadata.name", name);
    }
    if let Some(spec) = within(obj, "spec") {
        fill(spec, "finalizers", json!([]));
        if let Some(finalizers) = spec.get_mut("finalizers").and_then(Value::as_array_mut)
            && !finalizers.iter().any(|f| f == "kubernetes")
        {
            finalizers.push("kubernetes".into());
        }
    }
}

/// By the older field, only claims and snapshots were ever taken; anything else is as if nothing was asked for.
pub(super) fn drop_unknown_source(spec: &mut Value, had_source: bool) {
    if had_source || !unset(spec.get("dataSourceRef")) {
        return;
    }
    let (group, kind) = (text(spec, &["dataSource", "apiGroup"]), text(spec, &["dataSource", "kind"]));
    let known = matches!((group, kind), ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot"));
    if !known {
        take(spec, "dataSource");
    }
}

/// The older and the newer field for where a volume's content comes from are kept in step.
pub(super) fn claim_source(spec: &mut Value) {
    let source = spec.get("dataSource").filter(|v| !v.is_null()).cloned();
    let reference = spec.get("dataSourceRef").filter(|v| !v.is_null()).cloned();
    match (source, reference) {
        (Some(source), None) => put(spec, "dataSourceRef", source),
        (None, Some(reference)) if text(&reference, &["namespace"]).is_empty() => put(spec, "dataSource", reference),
        _ => {}
    }
}

/// Where upstream still shows the field that templateGeneration was.
pub(super) const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

fn template_generation(obj: &mut Value) {
    if let Some(metadata) = within(obj, "metadata")
        && let Some(annotations) = within(metadata, "annotations")
    {
        let valid = text(annotations, &[TEMPLATE_GENERATION]).parse::<i64>().is_ok_and(|n| n >= 1);
        if !valid {
            put(annotations, TEMPLATE_GENERATION, "1");
        }
    }
}

fn custom_resource_definition(obj: &mut Value) {
    let stored: Vec<Value> = list(obj, &["spec", "versions"])
        .iter()
        .filter(|version| flag(version, &["storage"]))
        .filter_map(|version| version.get("name").cloned())
        .collect();
    if !stored.is_empty() {
        with(obj, "status", |status| put(status, "storedVersions", stored));
    }
}

/// An API that this server serves itself is there as soon as it is declared.
fn api_service(obj: &mut Value, now: Now<'_>) {
    if blank(obj.get("spec").and_then(|spec| spec.get("service"))) {
        let condition = json!({
            "type": "Available", "status": "True", "reason": "Local",
            "message": "Local APIServices are always available", "lastTransitionTime": now.rfc3339,
        });
        with(obj, "status", |status| put(status, "conditions", vec![condition]));
    }
}

pub(super) fn device_taints(obj: &mut Value, now: Now<'_>) {
    with(obj, "spec", |spec| {
        each(spec, "devices", |device| each(device, "taints", |taint| fill(taint, "timeAdded", now.rfc3339)));
    });
}
