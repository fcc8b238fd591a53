//! Conditions as kcp's kinds carry them.

use serde_json::{Value, json};

/// How it stands with one thing.
pub enum State<'a> {
    Good,
    /// Reason and message.
    Bad(&'a str, String),
}

/// Writes a condition into a list. The time of a condition that stays is kept.
pub fn set(conditions: &mut Vec<Value>, ty: &str, state: &State<'_>, now: &str) {
    let status = if matches!(state, State::Good) { "True" } else { "False" };
    let at = conditions.iter().position(|c| c["type"] == ty);
    let since = at.map(|at| &conditions[at]).filter(|c| c["status"] == status);
    let since = since.and_then(|c| c["lastTransitionTime"].as_str()).unwrap_or(now).to_owned();
    let mut fresh = json!({"type": ty, "status": status, "lastTransitionTime": since});
    if let State::Bad(reason, message) = state {
        fresh["severity"] = "Error".into();
        fresh["reason"] = (*reason).into();
        fresh["message"] = message.as_str().into();
    }
    match at {
        Some(at) => conditions[at] = fresh,
        None => conditions.push(fresh),
    }
}

/// The conditions that an object has.
pub fn of(object: &Value) -> Vec<Value> {
    object["status"]["conditions"].as_array().cloned().unwrap_or_default()
}
