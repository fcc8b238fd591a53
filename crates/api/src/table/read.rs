//! Reading objects the way printers need it: what is absent or of a wrong type reads as empty.

use serde_json::Value;

use crate::selector::LabelSelector;

pub(super) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The text, or something else if it is absent or empty.
pub(super) fn text_or<'a>(value: &'a Value, pointer: &str, empty: &'a str) -> &'a str {
    match text(value, pointer) {
        "" => empty,
        text => text,
    }
}

pub(super) fn int(value: &Value, pointer: &str) -> i64 {
    value.pointer(pointer).and_then(Value::as_i64).unwrap_or_default()
}

pub(super) fn flag(value: &Value, pointer: &str) -> bool {
    value.pointer(pointer).and_then(Value::as_bool).unwrap_or_default()
}

pub(super) fn items<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

pub(super) fn has(value: &Value, pointer: &str) -> bool {
    value.pointer(pointer).is_some_and(|v| !v.is_null())
}

/// How many elements or members there are.
pub(super) fn count(value: &Value, pointer: &str) -> usize {
    match value.pointer(pointer) {
        Some(Value::Array(items)) => items.len(),
        Some(Value::Object(members)) => members.len(),
        _ => 0,
    }
}

/// A string or a number, as text (`intstr`, quantities).
pub(super) fn scalar(value: &Value, pointer: &str) -> Option<String> {
    match value.pointer(pointer)? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

pub(super) fn strings(value: &Value, pointer: &str) -> Vec<String> {
    items(value, pointer).iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

pub(super) fn name(object: &Value) -> Value {
    text(object, "/metadata/name").into()
}

/// The condition of a type.
pub(super) fn condition<'a>(conditions: &'a [Value], kind: &str) -> Option<&'a Value> {
    conditions.iter().find(|c| text(c, "/type") == kind)
}

pub(super) fn is_true(conditions: &[Value], kind: &str) -> bool {
    condition(conditions, kind).is_some_and(|c| text(c, "/status") == "True")
}

/// `a=b,c=d`, or `<none>`.
pub(super) fn labels(value: &Value, pointer: &str) -> Value {
    let pairs = value.pointer(pointer).and_then(Value::as_object).into_iter().flatten();
    let pairs: Vec<_> = pairs.map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or_default())).collect();
    if pairs.is_empty() { "<none>".into() } else { pairs.join(",").into() }
}

/// A label selector object as text, or `<none>`.
pub(super) fn selector(value: &Value, pointer: &str) -> Value {
    match LabelSelector::from_value(value.pointer(pointer).unwrap_or(&Value::Null)) {
        Ok(selector) => match selector.to_string() {
            text if text.is_empty() => "<none>".into(),
            text => text.into(),
        },
        Err(_) => "<error>".into(),
    }
}

/// Names and images of the containers of a pod spec.
pub(super) fn containers(value: &Value, pointer: &str) -> [Value; 2] {
    let join = |field: &str| {
        let texts: Vec<_> = items(value, pointer).iter().map(|c| text(c, field)).collect();
        Value::from(texts.join(","))
    };
    [join("/name"), join("/image")]
}

/// The first few of a list, and how many more there are.
pub(super) fn first_of(mut list: Vec<String>, most: usize, separator: &str) -> String {
    let more = list.len().saturating_sub(most);
    list.truncate(most);
    let shown = list.join(separator);
    if more > 0 { format!("{shown} + {more} more...") } else { shown }
}
