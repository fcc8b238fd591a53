//! Objects of custom kinds.

use serde_json::{Map, Value};

use super::metadata::{copy_exactly, keep, raise_generation, set_generation};
use crate::defaults::fields::{put, take};

/// Before the first write of a custom object. `has_status` says whether its version has a status subresource.
pub fn prepare_create_custom(has_status: bool, obj: &mut Value) {
    if has_status {
        take(obj, "status");
    }
    set_generation(obj, 1);
}

/// Before a custom object is written over. `subresource` is empty or `status`.
pub fn prepare_update_custom(has_status: bool, subresource: &str, new: &mut Value, old: &Value) {
    keep(new, old);
    if subresource == "status" {
        only_status(new, old);
        return;
    }
    if has_status {
        copy_exactly(new, old, "status");
    }
    // Anything but metadata counts, and the status only where it is part of the object.
    let counts = |key: &String| key != "metadata" && !(has_status && key == "status");
    if content(new, counts) != content(old, counts) {
        raise_generation(new, old);
    }
}

fn content(obj: &Value, counts: impl Fn(&String) -> bool) -> Vec<(&String, &Value)> {
    let nothing = obj.as_object().map(Map::iter);
    nothing.into_iter().flatten().filter(|(key, _)| counts(key)).collect()
}

fn only_status(new: &mut Value, old: &Value) {
    let status = take(new, "status");
    let managed = new.get_mut("metadata").and_then(|m| take(m, "managedFields"));
    // The version that the client wrote against stays, for the server to compare.
    let version = new.get_mut("metadata").and_then(|m| take(m, "resourceVersion"));
    *new = old.clone();
    match status {
        Some(status) => put(new, "status", status),
        None => {
            take(new, "status");
        }
    }
    if let Some(metadata) = new.get_mut("metadata") {
        take(metadata, "managedFields");
        for (key, value) in [("managedFields", managed), ("resourceVersion", version)] {
            if let Some(value) = value {
                put(metadata, key, value);
            }
        }
    }
}
