//! A value and where it is: what every rule takes, so that a complaint knows its path.
//!
//! Paths are kept as links to the parent and only become text when something is wrong. Rules complain through the node,
//! in the order they run, which is the order a client reads.

use std::cell::{Cell, RefCell};
use std::fmt;

use schema::field::{FieldError, FieldErrorKind, FieldErrors};
use schema::names::Complaints;
use serde_json::{Map, Value};

static NULL: Value = Value::Null;

/// What one validation collects.
#[derive(Default)]
pub(crate) struct Ctx {
    steps: RefCell<Vec<(u32, Step)>>,
    errors: RefCell<FieldErrors>,
    /// Bytes of what has been told so far.
    told: Cell<usize>,
}

/// At most this many errors are collected, and so many bytes of them. A rule that shows a whole list for each of its items would
/// otherwise make gigabytes of a body of megabytes.
const MAX_ERRORS: usize = 2_000;
const MAX_TOLD: usize = 1 << 20;

enum Step {
    Root,
    Field(&'static str),
    Index(usize),
    Key(Box<str>),
}

impl Ctx {
    pub(crate) fn root<'a>(&'a self, value: &'a Value) -> Node<'a> {
        Node { ctx: self, at: self.step(0, Step::Root), value }
    }

    pub(crate) fn take(&self) -> FieldErrors {
        self.errors.take()
    }

    fn step(&self, parent: u32, step: Step) -> u32 {
        let mut steps = self.steps.borrow_mut();
        steps.push((parent, step));
        u32::try_from(steps.len() - 1).unwrap_or(0)
    }

    fn path(&self, mut at: u32) -> String {
        let steps = self.steps.borrow();
        let mut chain = Vec::new();
        while let Some((parent, step)) = steps.get(at as usize) {
            if matches!(step, Step::Root) {
                break;
            }
            chain.push(step);
            at = *parent;
        }
        let mut path = String::new();
        for step in chain.into_iter().rev() {
            match step {
                Step::Root => {}
                Step::Field(name) => {
                    if !path.is_empty() {
                        path.push('.');
                    }
                    path.push_str(name);
                }
                Step::Index(index) => path.push_str(&format!("[{index}]")),
                Step::Key(key) => path.push_str(&format!("[{key}]")),
            }
        }
        path
    }
}

/// A value at a path. An absent value is `null`, as is everything below it.
#[derive(Clone, Copy)]
pub(crate) struct Node<'a> {
    ctx: &'a Ctx,
    at: u32,
    pub(crate) value: &'a Value,
}

impl<'a> Node<'a> {
    pub(crate) fn get(self, name: &'static str) -> Node<'a> {
        let value = self.value.get(name).unwrap_or(&NULL);
        Node { at: self.ctx.step(self.at, Step::Field(name)), value, ..self }
    }

    pub(crate) fn index(self, index: usize) -> Node<'a> {
        let value = self.value.get(index).unwrap_or(&NULL);
        Node { at: self.ctx.step(self.at, Step::Index(index)), value, ..self }
    }

    pub(crate) fn key(self, key: &str) -> Node<'a> {
        let value = self.value.get(key).unwrap_or(&NULL);
        Node { at: self.ctx.step(self.at, Step::Key(key.into())), value, ..self }
    }

    /// The same path with another value, for rules that compare with the old object.
    pub(crate) fn with(self, value: &'a Value) -> Node<'a> {
        Node { value, ..self }
    }

    pub(crate) fn items(self) -> impl Iterator<Item = Node<'a>> {
        (0..self.len_of_array()).map(move |i| self.index(i))
    }

    pub(crate) fn array(self) -> &'a [Value] {
        self.value.as_array().map_or(&[], Vec::as_slice)
    }

    fn len_of_array(self) -> usize {
        self.array().len()
    }

    pub(crate) fn map(self) -> Option<&'a Map<String, Value>> {
        self.value.as_object()
    }

    pub(crate) fn entries(self) -> impl Iterator<Item = (&'a str, Node<'a>)> {
        self.map().into_iter().flatten().map(move |(key, _)| (key.as_str(), self.key(key)))
    }

    /// Items of a list or entries of a map.
    pub(crate) fn len(self) -> usize {
        match self.value {
            Value::Array(items) => items.len(),
            Value::Object(map) => map.len(),
            _ => 0,
        }
    }

    pub(crate) fn is_set(self) -> bool {
        !self.value.is_null()
    }

    /// Absent, or what Go would call the zero value.
    pub(crate) fn is_empty(self) -> bool {
        is_zero(self.value)
    }

    pub(crate) fn str(self) -> &'a str {
        self.value.as_str().unwrap_or("")
    }

    pub(crate) fn bool(self) -> bool {
        self.value.as_bool().unwrap_or(false)
    }

    pub(crate) fn int(self) -> Option<i64> {
        self.value.as_i64()
    }

    pub(crate) fn int_or_0(self) -> i64 {
        self.int().unwrap_or(0)
    }

    pub(crate) fn same(self, other: Node<'_>) -> bool {
        same(self.value, other.value)
    }

    pub(crate) fn path(self) -> String {
        self.ctx.path(self.at)
    }

    pub(crate) fn errors(self) -> usize {
        self.ctx.errors.borrow().len()
    }

    pub(crate) fn push(self, error: FieldError) {
        if self.is_enough() {
            return;
        }
        let mut errors = self.ctx.errors.borrow_mut();
        self.ctx.told.set(self.ctx.told.get() + error.message.len());
        errors.push(error);
    }

    /// Enough has been told: what else is wrong is not worth the memory.
    fn is_enough(self) -> bool {
        self.ctx.told.get() > MAX_TOLD || self.ctx.errors.borrow().len() >= MAX_ERRORS
    }

    pub(crate) fn required(self, detail: &str) {
        if self.is_enough() {
            return;
        }
        self.push(FieldError::required(self.path(), detail));
    }

    pub(crate) fn forbidden(self, detail: &str) {
        if self.is_enough() {
            return;
        }
        self.push(FieldError::forbidden(self.path(), detail));
    }

    /// Shows the value as it is.
    pub(crate) fn invalid(self, detail: &str) {
        self.shown(FieldErrorKind::Invalid, Go(self.value), detail);
    }

    /// Shows the value as a string, an absent one as the empty string.
    pub(crate) fn invalid_str(self, detail: &str) {
        self.shown(FieldErrorKind::Invalid, Quoted(self.str()), detail);
    }

    pub(crate) fn invalid_text(self, text: &str, detail: &str) {
        self.shown(FieldErrorKind::Invalid, Quoted(text), detail);
    }

    pub(crate) fn invalid_as(self, shown: impl fmt::Display, detail: &str) {
        self.shown(FieldErrorKind::Invalid, shown, detail);
    }

    /// Invalid, without showing what is there.
    pub(crate) fn wrong(self, detail: &str) {
        let message = format!("Invalid value: {detail}");
        self.push(FieldError { kind: FieldErrorKind::Invalid, path: self.path(), message });
    }

    pub(crate) fn duplicate(self) {
        self.shown(FieldErrorKind::Duplicate, Go(self.value), "");
    }

    pub(crate) fn duplicate_as(self, shown: impl fmt::Display) {
        self.shown(FieldErrorKind::Duplicate, shown, "");
    }

    pub(crate) fn not_found(self) {
        self.shown(FieldErrorKind::NotFound, Go(self.value), "");
    }

    pub(crate) fn not_supported(self, supported: &[&str]) {
        self.not_supported_as(Quoted(self.str()), supported);
    }

    pub(crate) fn not_supported_as(self, shown: impl fmt::Display, supported: &[&str]) {
        let list = supported.iter().map(|s| format!("\"{s}\"")).collect::<Vec<_>>().join(", ");
        let detail = if list.is_empty() { String::new() } else { format!("supported values: {list}") };
        self.shown(FieldErrorKind::NotSupported, shown, &detail);
    }

    pub(crate) fn too_long(self, max: usize) {
        self.push(FieldError::too_long(self.path(), max));
    }

    pub(crate) fn too_many(self, max: usize) {
        self.push(FieldError::too_many(self.path(), self.len(), max));
    }

    pub(crate) fn shown(self, kind: FieldErrorKind, shown: impl fmt::Display, detail: &str) {
        if self.is_enough() {
            return;
        }
        self.push(FieldError::shown(kind, self.path(), shown, detail));
    }

    /// One complaint each, about the string here.
    pub(crate) fn all(self, complaints: Complaints) {
        for complaint in complaints {
            self.invalid_str(&complaint);
        }
    }

    /// Checks the string here by a rule for names.
    pub(crate) fn check(self, rule: fn(&str) -> Complaints) {
        self.all(rule(self.str()));
    }

    /// Required, and then checked.
    pub(crate) fn required_and(self, rule: fn(&str) -> Complaints) {
        if self.str().is_empty() {
            self.required("");
        } else {
            self.check(rule);
        }
    }

    pub(crate) fn one_of(self, supported: &[&str]) {
        if !supported.contains(&self.str()) {
            self.not_supported(supported);
        }
    }

    /// As [`Node::one_of`], but an absent value is an error of its own.
    pub(crate) fn required_one_of(self, supported: &[&str]) {
        if self.str().is_empty() {
            self.required("");
        } else {
            self.one_of(supported);
        }
    }

    pub(crate) fn non_negative(self) {
        if self.int().is_some_and(|n| n < 0) {
            self.invalid("must be greater than or equal to 0");
        }
    }

    pub(crate) fn positive(self) {
        if self.int().is_some_and(|n| n <= 0) {
            self.invalid("must be greater than 0");
        }
    }

    pub(crate) fn immutable(self, old: Node<'_>) {
        if !self.same(old) {
            self.invalid("field is immutable");
        }
    }
}

/// What Go's semantic equality calls the same: absent and empty lists, maps and strings do not differ.
pub(crate) fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            a.iter().all(|(key, value)| same(value, b.get(key).unwrap_or(&NULL)))
                && b.iter().all(|(key, value)| a.contains_key(key) || same(&NULL, value))
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Null, other) | (other, Value::Null) => match other {
            Value::Null => true,
            Value::Array(items) => items.is_empty(),
            Value::Object(map) => map.is_empty(),
            Value::String(text) => text.is_empty(),
            _ => false,
        },
        _ => a == b,
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(b) => !b,
        Value::Number(n) => n.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

/// A string as Go's `%q` writes it.
pub(crate) struct Quoted<'a>(pub(crate) &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"")?;
        for c in self.0.chars() {
            match c {
                '"' => f.write_str("\\\"")?,
                '\\' => f.write_str("\\\\")?,
                '\n' => f.write_str("\\n")?,
                '\t' => f.write_str("\\t")?,
                '\r' => f.write_str("\\r")?,
                '\u{7}' => f.write_str("\\a")?,
                '\u{8}' => f.write_str("\\b")?,
                '\u{c}' => f.write_str("\\f")?,
                '\u{b}' => f.write_str("\\v")?,
                c if (c as u32) < 0x20 || c as u32 == 0x7f => write!(f, "\\x{:02x}", c as u32)?,
                c => write!(f, "{c}")?,
            }
        }
        f.write_str("\"")
    }
}

/// A value as Go shows bad values: strings quoted, everything else as JSON with `<`, `>` and `&` escaped.
pub(crate) struct Go<'a>(pub(crate) &'a Value);

impl fmt::Display for Go<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::String(text) => Quoted(text).fmt(f),
            other => f.write_str(&html_safe(&other.to_string())),
        }
    }
}

/// Go's JSON encoder escapes what could end a script tag.
pub(crate) fn html_safe(json: &str) -> String {
    if !json.contains(['<', '>', '&', '\u{2028}', '\u{2029}']) {
        return json.to_owned();
    }
    let mut safe = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => safe.push_str(&format!("\\u{:04x}", c as u32)),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_and_texts() {
        let object = json!({"spec": {"items": [{"a": "x\n<"}], "map": {"k.v": 1}}, "n": null});
        let ctx = Ctx::default();
        let root = ctx.root(&object);
        root.get("spec").get("items").index(0).get("a").invalid("bad");
        root.get("spec").get("map").key("k.v").invalid("bad");
        root.get("spec").get("map").invalid("");
        root.get("no").get("where").required("");
        root.invalid_as("{}", "all of it");
        let texts: Vec<String> = ctx.take().iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "spec.items[0].a: Invalid value: \"x\\n<\": bad",
                "spec.map[k.v]: Invalid value: 1: bad",
                "spec.map: Invalid value: {\"k.v\":1}",
                "no.where: Required value",
                "<nil>: Invalid value: {}: all of it",
            ]
        );
    }

    #[test]
    fn absent_and_empty_are_the_same() {
        assert!(same(&json!({"a": [], "b": {"c": ""}}), &json!({"b": {}})));
        assert!(!same(&json!({"a": 0}), &json!({})));
        assert!(!same(&json!({"a": [1]}), &json!({"a": [1, 2]})));
    }
}
