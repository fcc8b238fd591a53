//! The tree of value rules of one version, compiled from its `openAPIV3Schema`.
//!
//! Compiling is lenient: whatever is malformed is left out, because [`rules::crd::validate_definition`] has its say before
//! a definition is ever compiled for serving.

use std::collections::{BTreeMap, HashSet};

use regex::Regex;
use serde_json::{Map, Value};

/// At most this many values of an enumeration are looked through one by one.
const FEW: usize = 16;

/// Deeper schemas than this are cut: JSON of a request cannot nest far enough to get here.
pub const MAX_DEPTH: usize = 100;

/// Whether a field of a whole object is not for the schema.
pub fn is_meta(key: &str) -> bool {
    matches!(key, "apiVersion" | "kind" | "metadata")
}

#[derive(Debug, Default)]
pub struct Node {
    /// `object`, `array`, …; empty when none is given.
    pub ty: Box<str>,
    pub int_or_string: bool,
    pub nullable: bool,
    pub preserve_unknown: bool,
    pub embedded: bool,
    pub list_type: Option<Box<str>>,
    pub list_map_keys: Vec<Box<str>>,
    pub map_type: Option<Box<str>>,
    pub default: Option<Value>,
    pub properties: BTreeMap<Box<str>, Node>,
    pub additional: Option<Additional>,
    pub items: Option<Box<Node>>,
    pub required: Vec<Box<str>>,
    /// As the definition writes it; empty when the format is none that is checked.
    pub format: Box<str>,
    pub checks: Checks,
    /// `x-kubernetes-validations`, as written.
    pub rules: Vec<Rule>,
}

#[derive(Debug)]
pub enum Additional {
    Any,
    Schema(Box<Node>),
}

/// Value rules that do not shape the object.
#[derive(Debug, Default)]
pub struct Checks {
    pub allowed: Vec<Value>,
    /// The strings among them, if there are many.
    allowed_texts: HashSet<Box<str>>,
    pub pattern: Option<(Box<str>, Regex)>,
    pub min_length: Option<i64>,
    pub max_length: Option<i64>,
    pub minimum: Option<f64>,
    pub exclusive_minimum: bool,
    pub maximum: Option<f64>,
    pub exclusive_maximum: bool,
    pub multiple_of: Option<f64>,
    pub min_items: Option<i64>,
    pub max_items: Option<i64>,
    pub unique_items: bool,
    pub min_properties: Option<i64>,
    pub max_properties: Option<i64>,
    pub all_of: Vec<Node>,
    pub any_of: Vec<Node>,
    pub one_of: Vec<Node>,
    pub not: Option<Box<Node>>,
}

#[derive(Clone, Debug, Default)]
pub struct Rule {
    pub rule: String,
    pub message: String,
    pub message_expression: String,
    pub reason: Option<String>,
    pub field_path: String,
    pub optional_old_self: Option<bool>,
}

impl Node {
    pub fn compile(schema: &Value) -> Self {
        Self::at_depth(schema, 0)
    }

    fn at_depth(schema: &Value, depth: usize) -> Self {
        let Some(map) = schema.as_object().filter(|_| depth < MAX_DEPTH) else { return Self::default() };
        let child = |value: &Value| Self::at_depth(value, depth + 1);
        let flag = |key: &str| map.get(key).and_then(Value::as_bool).unwrap_or(false);
        let mut node = Self {
            ty: text(map, "type").into(),
            int_or_string: flag("x-kubernetes-int-or-string"),
            nullable: flag("nullable"),
            preserve_unknown: flag("x-kubernetes-preserve-unknown-fields"),
            embedded: flag("x-kubernetes-embedded-resource"),
            list_type: map.get("x-kubernetes-list-type").and_then(Value::as_str).map(Into::into),
            list_map_keys: strings(map.get("x-kubernetes-list-map-keys")),
            map_type: map.get("x-kubernetes-map-type").and_then(Value::as_str).map(Into::into),
            default: map.get("default").filter(|v| !v.is_null()).cloned(),
            required: strings(map.get("required")),
            checks: Checks::compile(map, &child),
            rules: Rule::all(map),
            ..Self::default()
        };
        node.format = node.checked_format(text(map, "format")).into();
        if let Some(properties) = map.get("properties").and_then(Value::as_object) {
            node.properties = properties.iter().map(|(name, schema)| (name.as_str().into(), child(schema))).collect();
        }
        node.additional = match map.get("additionalProperties") {
            Some(Value::Bool(true)) => Some(Additional::Any),
            Some(schema @ Value::Object(_)) => Some(Additional::Schema(Box::new(child(schema)))),
            _ => None,
        };
        node.items = map.get("items").filter(|i| i.is_object()).map(|schema| Box::new(child(schema)));
        node
    }

    /// Upstream ignores the formats it does not know, by type.
    fn checked_format<'a>(&self, format: &'a str) -> &'a str {
        let known = match (&*self.ty, self.int_or_string) {
            (_, true) => false,
            ("" | "string", _) => crate::formats::known(format),
            ("integer", _) => matches!(format, "int32" | "int64"),
            ("number", _) => matches!(format, "float" | "double"),
            _ => false,
        };
        if known { format } else { "" }
    }

    /// The node that describes the value of a key of an object.
    pub fn child(&self, key: &str) -> Option<&Node> {
        self.properties.get(key).or(match &self.additional {
            Some(Additional::Schema(node)) => Some(node),
            _ => None,
        })
    }

    pub fn list_is(&self, list_type: &str) -> bool {
        self.list_type.as_deref() == Some(list_type)
    }

    pub fn is_atomic_map(&self) -> bool {
        self.map_type.as_deref() == Some("atomic")
    }

    /// Whether there is a CEL rule here or anywhere below, in the places upstream evaluates them.
    pub fn has_rules(&self) -> bool {
        !self.rules.is_empty()
            || self.items.as_ref().is_some_and(|n| n.has_rules())
            || self.properties.values().any(Node::has_rules)
            || matches!(&self.additional, Some(Additional::Schema(n)) if n.has_rules())
    }
}

fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(x), Value::Number(y)) => x == y || x.as_f64() == y.as_f64(),
        _ => a == b,
    }
}

impl Checks {
    /// Whether an enumeration has the value.
    pub fn allows(&self, value: &Value) -> bool {
        match value {
            Value::String(text) if self.allowed.len() > FEW => self.allowed_texts.contains(text.as_str()),
            _ => self.allowed.iter().any(|allowed| same(allowed, value)),
        }
    }

    fn compile(map: &Map<String, Value>, child: &dyn Fn(&Value) -> Node) -> Self {
        let number = |key: &str| map.get(key).and_then(Value::as_f64);
        let count = |key: &str| map.get(key).and_then(Value::as_i64);
        let flag = |key: &str| map.get(key).and_then(Value::as_bool).unwrap_or(false);
        let nodes = |key: &str| -> Vec<Node> {
            map.get(key).and_then(Value::as_array).map(|list| list.iter().map(child).collect()).unwrap_or_default()
        };
        let allowed = map.get("enum").and_then(Value::as_array).cloned().unwrap_or_default();
        let many = if allowed.len() > FEW { allowed.as_slice() } else { &[] };
        Self {
            allowed_texts: many.iter().filter_map(Value::as_str).map(Into::into).collect(),
            allowed,
            pattern: compile_pattern(text(map, "pattern")).ok().flatten(),
            min_length: count("minLength"),
            max_length: count("maxLength"),
            minimum: number("minimum"),
            exclusive_minimum: flag("exclusiveMinimum"),
            maximum: number("maximum"),
            exclusive_maximum: flag("exclusiveMaximum"),
            multiple_of: number("multipleOf"),
            min_items: count("minItems"),
            max_items: count("maxItems"),
            unique_items: flag("uniqueItems"),
            min_properties: count("minProperties"),
            max_properties: count("maxProperties"),
            all_of: nodes("allOf"),
            any_of: nodes("anyOf"),
            one_of: nodes("oneOf"),
            not: map.get("not").filter(|n| n.is_object()).map(|n| Box::new(child(n))),
        }
    }
}

/// `None` for an empty pattern. The size limit keeps a hostile pattern from taking all memory.
pub fn compile_pattern(pattern: &str) -> Result<Option<(Box<str>, Regex)>, regex::Error> {
    if pattern.is_empty() {
        return Ok(None);
    }
    // In Go `\z` and `$` mean the same at the end of text, and `\Z` does not exist, as in this engine.
    let regex = regex::RegexBuilder::new(pattern).size_limit(4 << 20).build()?;
    Ok(Some((pattern.into(), regex)))
}

impl Rule {
    pub fn all(map: &Map<String, Value>) -> Vec<Self> {
        let rules = map.get("x-kubernetes-validations").and_then(Value::as_array);
        rules.into_iter().flatten().filter_map(Value::as_object).map(Self::read).collect()
    }

    fn read(map: &Map<String, Value>) -> Self {
        Self {
            rule: text(map, "rule").to_owned(),
            message: text(map, "message").to_owned(),
            message_expression: text(map, "messageExpression").to_owned(),
            reason: map.get("reason").and_then(Value::as_str).map(str::to_owned),
            field_path: text(map, "fieldPath").to_owned(),
            optional_old_self: map.get("optionalOldSelf").and_then(Value::as_bool),
        }
    }

    /// What stands for the rule in messages about it.
    pub fn title(&self) -> &str {
        if self.message.is_empty() { self.rule.trim() } else { self.message.trim() }
    }

    pub fn failure(&self) -> String {
        if self.message.is_empty() { format!("failed rule: {}", self.rule.trim()) } else { self.message.trim().into() }
    }
}

pub fn text<'a>(map: &'a Map<String, Value>, key: &str) -> &'a str {
    map.get(key).and_then(Value::as_str).unwrap_or("")
}

pub fn strings(list: Option<&Value>) -> Vec<Box<str>> {
    let list = list.and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).map(Into::into).collect()
}
