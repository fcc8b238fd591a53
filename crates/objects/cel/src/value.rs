//! From JSON to the values that rules see, by the types of a schema.

use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube_cel::cel::Value;
use kube_cel::cel::objects::{Key, Map};
use schema::formats;
use schema::json_schema::is_meta;
use schema::json_schema::{Additional, Node};
use serde_json::Value as Json;

use super::call;

const RESERVED: &[&str] = &[
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// The name by which a rule reads a property; `None` if there is none that an expression could spell.
pub fn escape(name: &str) -> Option<String> {
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__"));
    }
    if !name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        return None;
    }
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        match c {
            '_' if rest.starts_with("__") => {
                out.push_str("__underscores__");
                rest = &rest[2..];
                continue;
            }
            '.' => out.push_str("__dot__"),
            '-' => out.push_str("__dash__"),
            '/' => out.push_str("__slash__"),
            c if c.is_ascii_alphanumeric() || c == '_' => out.push(c),
            _ => return None,
        }
        rest = &rest[c.len_utf8()..];
    }
    Some(out)
}

/// The property that an escaped name means.
pub fn unescape(name: &str) -> String {
    let inner = name.strip_prefix("__").and_then(|rest| rest.strip_suffix("__"));
    if let Some(word) = inner.filter(|word| RESERVED.contains(word)) {
        return word.to_owned();
    }
    let marks = [("__dot__", "."), ("__dash__", "-"), ("__slash__", "/"), ("__underscores__", "__")];
    marks.iter().fold(name.to_owned(), |name, (mark, sign)| name.replace(mark, sign))
}

/// A value as JSON; `None` for what has no JSON form.
pub fn to_json(value: &Value) -> Option<Json> {
    // What is not there is null; what is there is what it is.
    if let Some(inner) = super::eval::optional(value) {
        return inner.map_or(Some(Json::Null), |inner| to_json(&inner));
    }
    Some(match value {
        Value::Null => Json::Null,
        Value::Bool(flag) => (*flag).into(),
        Value::Int(n) => (*n).into(),
        Value::UInt(n) => (*n).into(),
        Value::Float(f) => (*f).into(),
        Value::String(text) => text.as_str().into(),
        Value::Bytes(bytes) => STANDARD.encode(bytes.as_slice()).into(),
        Value::List(list) => list.iter().map(to_json).collect::<Option<Vec<_>>>()?.into(),
        Value::Map(map) => {
            let entry = |(key, value): (&Key, &Value)| match key {
                Key::String(key) => Some((key.to_string(), to_json(value)?)),
                _ => None,
            };
            Json::Object(map.map.iter().map(entry).collect::<Option<_>>()?)
        }
        other => match super::functions::function("string", std::slice::from_ref(other)) {
            Ok(Value::String(text)) => text.as_str().into(),
            _ => return None,
        },
    })
}

fn text(text: &str) -> Value {
    Value::String(Arc::new(text.to_owned()))
}

fn map(entries: HashMap<Key, Value>) -> Value {
    Value::Map(Map { map: Arc::new(entries) })
}

/// A JSON value of no known type.
pub fn untyped(json: &Json) -> Value {
    match json {
        Json::Null => Value::Null,
        Json::Bool(flag) => Value::Bool(*flag),
        Json::Number(n) => match (n.as_i64(), n.as_u64()) {
            (Some(integer), _) => Value::Int(integer),
            (None, Some(unsigned)) => Value::UInt(unsigned),
            _ => Value::Float(n.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(string) => text(string),
        Json::Array(list) => Value::List(Arc::new(list.iter().map(untyped).collect())),
        Json::Object(entries) => map(entries.iter().map(|(k, v)| (Key::from(k.as_str()), untyped(v))).collect()),
    }
}

/// A JSON value that the schema describes. `resource` adds what every object has.
pub fn typed(json: &Json, node: &Node, resource: bool) -> Value {
    match json {
        Json::Number(n) if &*node.ty == "number" && !node.int_or_string => Value::Float(n.as_f64().unwrap_or(f64::NAN)),
        Json::Number(n) if &*node.ty == "integer" => match n.as_i64() {
            Some(integer) => Value::Int(integer),
            None => Value::Int(n.as_f64().unwrap_or(0.0) as i64),
        },
        Json::String(string) => formatted(string, node),
        Json::Array(list) => match &node.items {
            Some(items) => Value::List(Arc::new(list.iter().map(|v| typed(v, items, items.embedded)).collect())),
            None => untyped(json),
        },
        Json::Object(entries) => {
            let resource = resource || node.embedded;
            let mut out = HashMap::with_capacity(entries.len());
            for (key, value) in entries {
                if resource && is_meta(key) {
                    out.insert(Key::from(key.as_str()), untyped(value));
                } else if let Some(child) = node.properties.get(key.as_str()) {
                    // A declared field that is null reads as one that is absent.
                    if let Some(name) = escape(key).filter(|_| !value.is_null()) {
                        out.insert(Key::from(name), typed(value, child, child.embedded));
                    }
                } else if let Some(Additional::Schema(child)) = &node.additional {
                    out.insert(Key::from(key.as_str()), typed(value, child, child.embedded));
                } else {
                    out.insert(Key::from(key.as_str()), untyped(value));
                }
            }
            map(out)
        }
        _ => untyped(json),
    }
}

fn formatted(string: &str, node: &Node) -> Value {
    if node.int_or_string || &*node.ty != "string" {
        return text(string);
    }
    let converted = match &*node.format {
        "byte" => STANDARD.decode(string).ok().map(|bytes| Value::Bytes(Arc::new(bytes))),
        "date-time" | "datetime" => call::function("timestamp", &[text(string)]).ok(),
        "date" => call::function("timestamp", &[text(&format!("{string}T00:00:00Z"))]).ok(),
        "duration" => formats::parse_duration(string)
            .and_then(|nanos| call::function("duration", &[text(&format!("{nanos}ns"))]).ok()),
        _ => None,
    };
    converted.unwrap_or_else(|| text(string))
}
