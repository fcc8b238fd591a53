//! Events: one object with two sets of field names.

use serde_json::{Value, json};

use crate::defaults::fields::{blank, fill, put, take};

/// The names in the core group, and in `events.k8s.io`.
const NAMES: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

pub(super) fn to_core(event: &mut Value) {
    for (core, other) in NAMES {
        rename(event, other, core);
    }
    // What the core form always shows, given or not.
    for (key, zero) in [
        ("involvedObject", json!({})),
        ("source", json!({})),
        ("reportingComponent", "".into()),
        ("reportingInstance", "".into()),
    ] {
        fill(event, key, zero);
    }
    nulls(event, &["eventTime", "firstTimestamp", "lastTimestamp"]);
}

pub(super) fn from_core(event: &mut Value) {
    for (core, other) in NAMES {
        rename(event, core, other);
    }
    for key in ["reportingController", "reportingInstance"] {
        if blank(event.get(key)) {
            take(event, key);
        }
    }
    for key in ["regarding", "deprecatedSource"] {
        fill(event, key, json!({}));
    }
    nulls(event, &["eventTime", "deprecatedFirstTimestamp", "deprecatedLastTimestamp"]);
}

fn rename(event: &mut Value, from: &str, to: &str) {
    if let Some(value) = take(event, from) {
        put(event, to, value);
    }
}

fn nulls(event: &mut Value, keys: &[&str]) {
    for key in keys {
        fill(event, key, Value::Null);
    }
}
