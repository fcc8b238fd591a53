//! Conversion of objects between the versions of a definition.

use schema::catalogue::api_version;
use serde_json::{Value, json};

use super::definition::Definition;

/// The `ConversionReview` to send to a conversion webhook.
pub fn conversion_review(uid: &str, review_version: &str, desired: &str, objects: &[Value]) -> Value {
    json!({
        "apiVersion": api_version("apiextensions.k8s.io", review_version), "kind": "ConversionReview",
        "request": { "uid": uid, "desiredAPIVersion": desired, "objects": objects },
    })
}

/// The objects of a webhook's answer, in the order they were asked for, or why they cannot be used.
pub fn converted(uid: &str, desired: &str, originals: &[Value], response: &Value) -> Result<Vec<Value>, String> {
    let answer = response.get("response").filter(|r| r.is_object()).ok_or("no response provided")?;
    let got = answer.get("uid").and_then(Value::as_str).unwrap_or("");
    let is_v1 = response.get("apiVersion").and_then(Value::as_str) == Some("apiextensions.k8s.io/v1");
    if is_v1 && got != uid {
        return Err(format!("expected response.uid=\"{uid}\", got \"{got}\""));
    }
    let text = |key: &str| answer.get("result").and_then(|r| r.get(key)).and_then(Value::as_str).unwrap_or("");
    if text("status") != "Success" {
        return Err(match text("message") {
            "" => format!("response.result.status was '{}', not 'Success'", text("status")),
            message => message.to_owned(),
        });
    }
    let objects = answer.get("convertedObjects").and_then(Value::as_array).cloned().unwrap_or_default();
    if objects.len() != originals.len() {
        return Err(format!("returned {} objects, expected {}", objects.len(), originals.len()));
    }
    originals.iter().zip(objects).enumerate().map(|(i, (from, to))| checked(i, desired, from, to)).collect()
}

/// A converted object keeps its identity; of its metadata a webhook may change labels and annotations only.
fn checked(index: usize, desired: &str, from: &Value, mut to: Value) -> Result<Value, String> {
    let text = |value: &Value, path: &str| value.pointer(path).and_then(Value::as_str).unwrap_or("").to_owned();
    let invalid = |why: String| Err(format!("returned invalid converted object at index {index}: {why}"));
    let version = text(&to, "/apiVersion");
    if version != desired {
        return invalid(format!("invalid groupVersion (expected {desired}, received {version})"));
    }
    for (what, path) in
        [("kind", "/kind"), ("name", "/metadata/name"), ("namespace", "/metadata/namespace"), ("UID", "/metadata/uid")]
    {
        let (before, after) = (text(from, path), text(&to, path));
        if before != after {
            return invalid(format!("must have the same {what}: {before} != {after}"));
        }
    }
    let Some(answered) = to.get("metadata").filter(|m| m.is_object()).cloned() else {
        return Err(format!(
            "returned invalid metadata in object at index {index}: missing metadata in converted object"
        ));
    };
    let mut metadata = from.get("metadata").cloned().unwrap_or_else(|| json!({}));
    for key in ["labels", "annotations"] {
        match (answered.get(key), metadata.as_object_mut()) {
            (Some(value), Some(map)) => {
                map.insert(key.to_owned(), value.clone());
            }
            (None, Some(map)) => {
                map.remove(key);
            }
            _ => {}
        }
    }
    to["metadata"] = metadata;
    Ok(to)
}

impl Definition {
    /// Strategy `None`: only `apiVersion` changes, and what the target version does not declare goes.
    ///
    /// Answers `false`, with the object untouched, when the definition has no such version.
    pub fn relabel(&self, object: &mut Value, version: &str) -> bool {
        let Some(target) = self.version(version) else { return false };
        let desired = api_version(&self.group, version);
        let Some(map) = object.as_object_mut() else { return true };
        if map.get("apiVersion").and_then(Value::as_str) != Some(&desired) {
            map.insert("apiVersion".to_owned(), desired.into());
            target.prune(object);
        }
        true
    }
}
