//! ConfigMap, Secret and Namespace.

use base64::Engine;
use schema::names;
use serde_json::Value;

use super::meta;
use super::node::Node;

/// What a ConfigMap or a Secret may hold in all.
const MAX_SIZE: usize = 1024 * 1024;
const FROZEN: &str = "field is immutable when `immutable` is set";

pub(crate) fn config_map(root: Node<'_>) {
    let (data, binary) = (root.get("data"), root.get("binaryData"));
    let mut size = 0usize;
    for (key, value) in data.map().into_iter().flatten() {
        config_key(data, key);
        if binary.map().is_some_and(|map| map.contains_key(key)) {
            data.key(key).invalid_text(key, "duplicate of key present in binaryData");
        }
        size = size.saturating_add(value.as_str().map_or(0, str::len));
    }
    for (key, value) in binary.map().into_iter().flatten() {
        config_key(binary, key);
        size = size.saturating_add(decoded_length(value));
    }
    if size > MAX_SIZE {
        // Upstream's path for the whole object.
        root.key("").too_long(MAX_SIZE);
    }
}

pub(crate) fn config_map_update(new: Node<'_>, old: Node<'_>) {
    frozen(new, old, &["data", "binaryData"]);
}

fn frozen(new: Node<'_>, old: Node<'_>, fields: &[&'static str]) {
    if !old.get("immutable").bool() {
        return;
    }
    if !new.get("immutable").bool() {
        new.get("immutable").forbidden(FROZEN);
    }
    for field in fields {
        if !new.get(field).same(old.get(field)) {
            new.get(field).forbidden(FROZEN);
        }
    }
}

fn config_key(map: Node<'_>, key: &str) {
    let complaints = names::config_key(key);
    if !complaints.is_empty() {
        let at = map.key(key);
        for complaint in complaints {
            at.invalid_text(key, &complaint);
        }
    }
}

fn decoded_length(value: &Value) -> usize {
    let text = value.as_str().unwrap_or("").trim_end_matches('=');
    text.len() / 4 * 3 + (text.len() % 4 * 6) / 8
}

pub(crate) fn secret(root: Node<'_>) {
    let data = root.get("data");
    let mut size = 0usize;
    for (key, value) in data.map().into_iter().flatten() {
        config_key(data, key);
        size = size.saturating_add(decoded_length(value));
    }
    if size > MAX_SIZE {
        data.too_long(MAX_SIZE);
    }
    let has = |key: &str| data.map().is_some_and(|map| map.contains_key(key));
    match root.get("type").str() {
        "kubernetes.io/service-account-token" => {
            let name = root.get("metadata").get("annotations").key("kubernetes.io/service-account.name");
            if name.str().is_empty() {
                name.required("");
            }
        }
        "kubernetes.io/dockercfg" => json_object(data.key(".dockercfg")),
        "kubernetes.io/dockerconfigjson" => json_object(data.key(".dockerconfigjson")),
        "kubernetes.io/basic-auth" if !has("username") && !has("password") => {
            data.key("username").required("");
            data.key("password").required("");
        }
        "kubernetes.io/ssh-auth"
            if data.value.get("ssh-privatekey").and_then(Value::as_str).unwrap_or("").is_empty() =>
        {
            data.key("ssh-privatekey").required("");
        }
        "kubernetes.io/tls" => {
            for key in ["tls.crt", "tls.key"] {
                if !has(key) {
                    data.key(key).required("");
                }
            }
        }
        _ => {}
    }
}

fn json_object(entry: Node<'_>) {
    let Some(text) = entry.value.as_str() else { return entry.required("") };
    let bytes = base64::engine::general_purpose::STANDARD.decode(text).unwrap_or_default();
    let complaint = match serde_json::from_slice::<Value>(&bytes) {
        Ok(Value::Object(_) | Value::Null) => return,
        Ok(other) => {
            let what = match other {
                Value::Array(_) => "array",
                Value::String(_) => "string",
                Value::Bool(_) => "bool",
                _ => "number",
            };
            format!("json: cannot unmarshal {what} into Go value of type map[string]interface {{}}")
        }
        Err(_) => match bytes.iter().find(|b| !b.is_ascii_whitespace()) {
            Some(b) if !matches!(b, b'{' | b'[' | b'"' | b'-' | b'0'..=b'9' | b't' | b'f' | b'n') => {
                format!("invalid character '{}' looking for beginning of value", char::from(*b))
            }
            _ => "unexpected end of JSON input".to_owned(),
        },
    };
    entry.invalid_text("<secret contents redacted>", &complaint);
}

pub(crate) fn secret_update(new: Node<'_>, old: Node<'_>) {
    new.get("type").immutable(old.get("type"));
    frozen(new, old, &["data"]);
}

pub(crate) fn namespace(root: Node<'_>) {
    let finalizers = root.get("spec").get("finalizers");
    for finalizer in finalizers.array() {
        namespace_finalizer(finalizers.with(finalizer));
    }
}

fn namespace_finalizer(finalizer: Node<'_>) {
    finalizer.check(names::qualified_name);
    meta::standard_finalizer(finalizer);
}

pub(crate) fn namespace_finalize(root: Node<'_>) {
    root.get("spec").get("finalizers").items().for_each(namespace_finalizer);
}

pub(crate) fn namespace_status(new: Node<'_>, _old: Node<'_>) {
    let phase = new.get("status").get("phase");
    let at = new.get("status").get("Phase").with(phase.value);
    if new.get("metadata").get("deletionTimestamp").is_set() {
        if phase.str() != "Terminating" {
            at.invalid_str("may only be 'Terminating' if `deletionTimestamp` is not empty");
        }
    } else if phase.str() != "Active" {
        at.invalid_str("may only be 'Active' if `deletionTimestamp` is empty");
    }
}
