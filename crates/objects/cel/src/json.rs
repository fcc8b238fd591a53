//! From JSON to the values that rules see, by the types of a schema.

use std::cell::Cell;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use schema::formats;
use schema::json_schema::is_meta;
use schema::json_schema::{Additional, Node};
use serde_json::Value as Json;

use super::functions::{standard, time};
use super::value::{Key, Map, Opaque, Value};

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

/// How many values a JSON document may be made of: a value that contains another many times is larger than it looks.
const MAX_JSON_VALUES: usize = 1 << 22;

/// A value as JSON; `None` for what has no JSON form.
pub fn to_json(value: &Value) -> Option<Json> {
    document(value, &Cell::new(MAX_JSON_VALUES))
}

fn document(value: &Value, left: &Cell<usize>) -> Option<Json> {
    left.set(left.get().checked_sub(1)?);
    Some(match value {
        Value::Null => Json::Null,
        // What is not there is null; what is there is what it is.
        Value::Optional(inner) => return inner.as_ref().map_or(Some(Json::Null), |inner| document(inner, left)),
        Value::Bool(flag) => (*flag).into(),
        Value::Int(n) => (*n).into(),
        Value::UInt(n) => (*n).into(),
        Value::Float(f) => (*f).into(),
        Value::String(text) => (**text).into(),
        Value::Bytes(bytes) => STANDARD.encode(bytes).into(),
        Value::List(list) => list.iter().map(|item| document(item, left)).collect::<Option<Vec<_>>>()?.into(),
        Value::Map(map) => {
            let entry = |(key, value): (&Key, &Value)| match key {
                Key::String(key) => Some((key.to_string(), document(value, left)?)),
                _ => None,
            };
            Json::Object(map.iter().map(entry).collect::<Option<_>>()?)
        }
        Value::Opaque(opaque) if !matches!(**opaque, Opaque::Ip(_) | Opaque::Cidr(..)) => return None,
        Value::Type(_) => return None,
        other => standard::text_of(other)?.into(),
    })
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
        Json::String(string) => string.as_str().into(),
        Json::Array(list) => Value::list(list.iter().map(untyped).collect()),
        Json::Object(entries) => {
            Value::Map(Map::new(entries.iter().map(|(k, v)| (Key::from(k.as_str()), untyped(v))).collect()))
        }
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
            Some(items) => Value::list(list.iter().map(|v| typed(v, items, items.embedded)).collect()),
            None => untyped(json),
        },
        Json::Object(entries) => {
            let resource = resource || node.embedded;
            let mut out = Vec::with_capacity(entries.len());
            for (key, value) in entries {
                if resource && is_meta(key) {
                    out.push((Key::from(key.as_str()), untyped(value)));
                } else if let Some(child) = node.properties.get(key.as_str()) {
                    // A declared field that is null reads as one that is absent.
                    if let Some(name) = escape(key).filter(|_| !value.is_null()) {
                        out.push((Key::from(name), typed(value, child, child.embedded)));
                    }
                } else if let Some(Additional::Schema(child)) = &node.additional {
                    out.push((Key::from(key.as_str()), typed(value, child, child.embedded)));
                } else {
                    out.push((Key::from(key.as_str()), untyped(value)));
                }
            }
            Value::Map(Map::new(out))
        }
        _ => untyped(json),
    }
}

fn formatted(string: &str, node: &Node) -> Value {
    if node.int_or_string || &*node.ty != "string" {
        return string.into();
    }
    let converted = match &*node.format {
        "byte" => STANDARD.decode(string).ok().map(|bytes| Value::Bytes(bytes.into())),
        "date-time" | "datetime" => time::parse_timestamp(string).ok().map(Value::Timestamp),
        "date" => time::parse_timestamp(&format!("{string}T00:00:00Z")).ok().map(Value::Timestamp),
        "duration" => formats::parse_duration(string).map(Value::Duration),
        _ => None,
    };
    converted.unwrap_or_else(|| string.into())
}
