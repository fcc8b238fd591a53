//! Reading and filling fields of JSON objects. Everything tolerates any shape: what is not there is simply not filled.
//!
//! Upstream tells two kinds of absence apart: a pointer that is nil ([`unset`]), and a plain value that is zero
//! ([`blank`]: an empty text is as good as none). Each default says which one it looks at.

use serde_json::{Map, Value};

/// Not given at all, or given as null.
pub(crate) fn unset(value: Option<&Value>) -> bool {
    matches!(value, None | Some(Value::Null))
}

/// Not given, or the zero value of its Go type.
pub(crate) fn blank(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::Bool(b)) => !b,
        Some(Value::Number(n)) => n.as_f64() == Some(0.0),
        Some(Value::String(s)) => s.is_empty(),
        Some(Value::Array(a)) => a.is_empty(),
        Some(Value::Object(o)) => o.is_empty(),
    }
}

/// Fills a pointer field that is nil.
pub(crate) fn fill(object: &mut Value, key: &str, default: impl Into<Value>) {
    if let Some(map) = object.as_object_mut()
        && unset(map.get(key))
    {
        map.insert(key.to_owned(), default.into());
    }
}

/// Fills a plain field that is zero.
pub(crate) fn fill_blank(object: &mut Value, key: &str, default: impl Into<Value>) {
    if let Some(map) = object.as_object_mut()
        && blank(map.get(key))
    {
        map.insert(key.to_owned(), default.into());
    }
}

pub(crate) fn put(object: &mut Value, key: &str, value: impl Into<Value>) {
    if let Some(map) = object.as_object_mut() {
        map.insert(key.to_owned(), value.into());
    }
}

pub(crate) fn take(object: &mut Value, key: &str) -> Option<Value> {
    object.as_object_mut()?.remove(key)
}

/// The object under `key`, made when it is not there. `None` when something else than an object is.
pub(crate) fn within<'a>(object: &'a mut Value, key: &str) -> Option<&'a mut Value> {
    let slot = object.as_object_mut()?.entry(key).or_insert(Value::Null);
    if slot.is_null() {
        *slot = Value::Object(Map::new());
    }
    slot.is_object().then_some(slot)
}

/// Follows `path` through objects, making none.
pub(crate) fn at<'a>(value: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(value, |v, key| v.get(*key))
}

/// The text at `path`, or the empty text.
pub(crate) fn text<'a>(value: &'a Value, path: &[&str]) -> &'a str {
    at(value, path).and_then(Value::as_str).unwrap_or_default()
}

pub(crate) fn flag(value: &Value, path: &[&str]) -> bool {
    at(value, path).and_then(Value::as_bool).unwrap_or_default()
}

/// The elements of the list at `path`; none when it is not a list.
pub(crate) fn list<'a>(value: &'a Value, path: &[&str]) -> &'a [Value] {
    at(value, path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Calls `f` on each element of the list under `key`.
pub(crate) fn each(object: &mut Value, key: &str, mut f: impl FnMut(&mut Value)) {
    if let Some(items) = object.get_mut(key).and_then(Value::as_array_mut) {
        items.iter_mut().for_each(&mut f);
    }
}

/// Calls `f` on the object under `key`, if there is one.
pub(crate) fn with(object: &mut Value, key: &str, f: impl FnOnce(&mut Value)) {
    if let Some(inner) = object.get_mut(key).filter(|v| v.is_object()) {
        f(inner);
    }
}

/// The map under `key` gets those entries of `from` that it lacks; it is made when there are any.
pub(crate) fn add_missing(object: &mut Value, key: &str, from: &Map<String, Value>) {
    if from.is_empty() {
        return;
    }
    if let Some(map) = within(object, key).and_then(Value::as_object_mut) {
        for (name, value) in from {
            if !map.contains_key(name) {
                map.insert(name.clone(), value.clone());
            }
        }
    }
}
