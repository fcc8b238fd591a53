//! Metadata that an update cannot change.

use serde_json::{Value, json};

use crate::defaults::fields::{at, fill, put, take, unset, within};

/// Fills in what a client may leave out and takes back what it may never change. What it may not even try to change
/// (another uid, another creation time) is left for validation to refuse.
pub(super) fn keep(new: &mut Value, old: &Value) {
    let Some(before) = old.get("metadata") else { return };
    let Some(after) = within(new, "metadata") else { return };
    for key in ["uid", "creationTimestamp", "deletionGracePeriodSeconds"] {
        if let Some(value) = before.get(key).filter(|v| !v.is_null()) {
            fill(after, key, value.clone());
        }
    }
    if let Some(time) = before.get("deletionTimestamp").filter(|v| !v.is_null()) {
        put(after, "deletionTimestamp", time.clone());
    }
    take(after, "selfLink");
    copy(after, before, "generation");
}

/// The status subresource of some kinds takes nothing of the metadata that a client sends.
pub(super) fn reset_for_status(new: &mut Value, old: &Value) {
    let nothing = json!({});
    let before = old.get("metadata").unwrap_or(&nothing);
    let Some(after) = within(new, "metadata") else { return };
    for key in ["deletionTimestamp", "generation", "labels", "annotations", "finalizers", "ownerReferences"] {
        copy(after, before, key);
    }
}

/// `key` becomes what it is in `from`, present or not.
pub(super) fn copy(to: &mut Value, from: &Value, key: &str) {
    match from.get(key).filter(|v| !v.is_null()) {
        Some(value) => put(to, key, value.clone()),
        None => {
            take(to, key);
        }
    }
}

/// As [`copy`], but null is a value of its own: what Go always writes stays written.
pub(super) fn copy_exactly(to: &mut Value, from: &Value, key: &str) {
    match from.get(key) {
        Some(value) => put(to, key, value.clone()),
        None => {
            take(to, key);
        }
    }
}

pub(super) fn generation(obj: &Value) -> i64 {
    at(obj, &["metadata", "generation"]).and_then(Value::as_i64).unwrap_or_default()
}

pub(super) fn set_generation(obj: &mut Value, generation: i64) {
    if let Some(metadata) = within(obj, "metadata") {
        put(metadata, "generation", generation);
    }
}

pub(super) fn raise_generation(new: &mut Value, old: &Value) {
    set_generation(new, generation(old).saturating_add(1));
}

/// Whether the fields differ; null is as good as absent.
pub(super) fn differ(new: Option<&Value>, old: Option<&Value>) -> bool {
    match (unset(new), unset(old)) {
        (true, true) => false,
        (false, false) => new != old,
        _ => true,
    }
}
