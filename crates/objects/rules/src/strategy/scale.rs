//! The scale subresource of the built-in workloads: one small object for all of them.

use schema::catalogue::Resource;
use serde_json::{Map, Value, json};

use super::metadata::copy;
use crate::defaults::fields::{at, list, put, text, within};

/// The `autoscaling/v1` `Scale` of an object, or `None` if its kind has none.
pub fn get(resource: &Resource, obj: &Value) -> Option<Value> {
    let selector = match (&*resource.group, &*resource.resource) {
        ("apps", "deployments" | "replicasets" | "statefulsets") => {
            selector_text(at(obj, &["spec", "selector"]).unwrap_or(&Value::Null))
        }
        ("", "replicationcontrollers") => labels_text(at(obj, &["spec", "selector"]).and_then(Value::as_object)),
        _ => return None,
    };
    let mut metadata = json!({});
    for key in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        copy(&mut metadata, obj.get("metadata").unwrap_or(&Value::Null), key);
    }
    let replicas = |path: &[&str]| at(obj, path).and_then(Value::as_i64).unwrap_or_default();
    let mut spec = json!({});
    if replicas(&["spec", "replicas"]) != 0 {
        put(&mut spec, "replicas", replicas(&["spec", "replicas"]));
    }
    let mut status = json!({"replicas": replicas(&["status", "replicas"])});
    if !selector.is_empty() {
        put(&mut status, "selector", selector);
    }
    Some(json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": metadata, "spec": spec, "status": status}))
}

/// Puts the wished number of replicas into the object; the caller then writes it as an update of the object.
pub fn set(resource: &Resource, obj: &mut Value, scale: &Value) {
    if resource.subresource("scale").is_some()
        && let Some(spec) = within(obj, "spec")
    {
        put(spec, "replicas", at(scale, &["spec", "replicas"]).and_then(Value::as_i64).unwrap_or_default());
    }
}

fn labels_text(labels: Option<&Map<String, Value>>) -> String {
    let pairs =
        labels.into_iter().flatten().map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()));
    pairs.collect::<Vec<_>>().join(",")
}

/// A label selector in the form that list requests take, sorted by key.
fn selector_text(selector: &Value) -> String {
    let mut parts: Vec<(&str, String)> = Vec::new();
    for (key, value) in selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten() {
        parts.push((key, format!("{key}={}", value.as_str().unwrap_or_default())));
    }
    for expression in list(selector, &["matchExpressions"]) {
        let key = text(expression, &["key"]);
        let mut values: Vec<&str> = list(expression, &["values"]).iter().filter_map(Value::as_str).collect();
        values.sort_unstable();
        let values = values.join(",");
        parts.push((
            key,
            match text(expression, &["operator"]) {
                "In" => format!("{key} in ({values})"),
                "NotIn" => format!("{key} notin ({values})"),
                "Exists" => key.to_owned(),
                "DoesNotExist" => format!("!{key}"),
                _ => continue,
            },
        ));
    }
    parts.sort_by_key(|(key, _)| *key);
    parts.into_iter().map(|(_, part)| part).collect::<Vec<_>>().join(",")
}
