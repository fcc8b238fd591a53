//! Reading objects the way printers need it: what is absent or of a wrong type reads as empty.

use std::borrow::Cow;

use schema::selector::LabelSelector;
use serde_json::Value;

use super::tree::Node;

pub(super) fn text<'a>(value: &Node<'a>, pointer: &str) -> Cow<'a, str> {
    value.pointer(pointer).and_then(|node| node.as_str()).unwrap_or_default()
}

/// The text, or something else if it is absent or empty.
pub(super) fn text_or<'a>(value: &Node<'a>, pointer: &str, empty: impl Into<Cow<'a, str>>) -> Cow<'a, str> {
    let text = text(value, pointer);
    if text.is_empty() { empty.into() } else { text }
}

pub(super) fn int(value: &Node<'_>, pointer: &str) -> i64 {
    value.pointer(pointer).and_then(|node| node.as_i64()).unwrap_or_default()
}

pub(super) fn flag(value: &Node<'_>, pointer: &str) -> bool {
    value.pointer(pointer).and_then(|node| node.as_bool()).unwrap_or_default()
}

pub(super) fn items<'a>(value: &Node<'a>, pointer: &str) -> Vec<Node<'a>> {
    value.pointer(pointer).into_iter().flat_map(|node| node.items()).collect()
}

pub(super) fn has(value: &Node<'_>, pointer: &str) -> bool {
    value.pointer(pointer).is_some_and(|node| !node.is_null())
}

/// How many elements or members there are.
pub(super) fn count(value: &Node<'_>, pointer: &str) -> usize {
    value.pointer(pointer).map_or(0, |node| node.count())
}

/// A string or a number, as text (`intstr`, quantities).
pub(super) fn scalar(value: &Node<'_>, pointer: &str) -> Option<String> {
    let node = value.pointer(pointer)?;
    node.as_str().map(Cow::into_owned).or_else(|| node.number().map(str::to_owned))
}

pub(super) fn strings(value: &Node<'_>, pointer: &str) -> Vec<String> {
    items(value, pointer).iter().filter_map(Node::as_str).map(Cow::into_owned).collect()
}

pub(super) fn name(object: &Node<'_>) -> Value {
    object.name().into()
}

/// The condition of a type.
pub(super) fn condition<'a>(conditions: &[Node<'a>], kind: &str) -> Option<Node<'a>> {
    conditions.iter().find(|c| text(c, "/type") == kind).copied()
}

pub(super) fn is_true(conditions: &[Node<'_>], kind: &str) -> bool {
    condition(conditions, kind).is_some_and(|c| text(&c, "/status") == "True")
}

/// `a=b,c=d`, or `<none>`.
pub(super) fn labels(value: &Node<'_>, pointer: &str) -> Value {
    let pairs = value.pointer(pointer).into_iter().flat_map(|node| node.members());
    let pairs: Vec<_> = pairs.map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or_default())).collect();
    if pairs.is_empty() { "<none>".into() } else { pairs.join(",").into() }
}

/// A label selector object as text, or `<none>`.
pub(super) fn selector(value: &Node<'_>, pointer: &str) -> Value {
    match LabelSelector::from_value(&value.pointer(pointer).map(|node| node.to_value()).unwrap_or_default()) {
        Ok(selector) => match selector.to_string() {
            text if text.is_empty() => "<none>".into(),
            text => text.into(),
        },
        Err(_) => "<error>".into(),
    }
}

/// Names and images of the containers of a pod spec.
pub(super) fn containers(value: &Node<'_>, pointer: &str) -> [Value; 2] {
    let containers = items(value, pointer);
    let join = |field: &str| {
        let texts: Vec<_> = containers.iter().map(|c| text(c, field)).collect();
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
