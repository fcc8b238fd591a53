//! The v2 document in protobuf, as clients that read nothing else want it. Made from the JSON form.
//!
//! Definitions are whole; of paths there is what clients look for: operations, their names and their `x-` marks.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// Field numbers of the published message types.
mod number {
    pub(super) const SWAGGER: u32 = 1;
    pub(super) const INFO: u32 = 2;
    pub(super) const PATHS: u32 = 8;
    pub(super) const DEFINITIONS: u32 = 9;
    pub(super) const OPERATION_ID: u32 = 5;
    pub(super) const OPERATION_MARKS: u32 = 13;
    pub(super) const SCHEMA_MARKS: u32 = 31;
}

/// A whole document; `paths` are made by [`path_item`].
pub(super) fn document(
    swagger: &str,
    about: &Value,
    paths: &BTreeMap<String, Vec<u8>>,
    definitions: &Map<String, Value>,
) -> Vec<u8> {
    let mut out = Vec::new();
    bytes(&mut out, number::SWAGGER, swagger.as_bytes());
    let mut info = Vec::new();
    text(&mut info, 1, &about["title"]);
    text(&mut info, 2, &about["version"]);
    bytes(&mut out, number::INFO, &info);
    let mut all = Vec::new();
    for (path, item) in paths {
        named(&mut all, 2, path, item);
    }
    bytes(&mut out, number::PATHS, &all);
    let mut all = Vec::new();
    for (name, definition) in definitions {
        named(&mut all, 1, name, &schema(definition));
    }
    bytes(&mut out, number::DEFINITIONS, &all);
    out
}

pub(super) fn path_item(item: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    for (field, method) in
        [(2, "get"), (3, "put"), (4, "post"), (5, "delete"), (6, "options"), (7, "head"), (8, "patch")]
    {
        if let Some(operation) = item.get(method) {
            let mut message = Vec::new();
            text(&mut message, number::OPERATION_ID, &operation["operationId"]);
            marks(&mut message, number::OPERATION_MARKS, operation);
            bytes(&mut out, field, &message);
        }
    }
    out
}

fn schema(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    for (field, key) in [(1, "$ref"), (2, "format"), (3, "title"), (4, "description")] {
        text(&mut out, field, &value[key]);
    }
    if let Some(default) = value.get("default") {
        bytes(&mut out, 5, &any(default));
    }
    text(&mut out, 13, &value["pattern"]);
    for required in value["required"].as_array().into_iter().flatten() {
        text(&mut out, 19, required);
    }
    for choice in value["enum"].as_array().into_iter().flatten() {
        bytes(&mut out, 20, &any(choice));
    }
    match value.get("additionalProperties") {
        Some(Value::Bool(allowed)) => bytes(&mut out, 21, &[0x10, u8::from(*allowed)]),
        Some(values) => {
            let mut item = Vec::new();
            bytes(&mut item, 1, &schema(values));
            bytes(&mut out, 21, &item);
        }
        None => {}
    }
    if value["type"].is_string() {
        let mut kind = Vec::new();
        text(&mut kind, 1, &value["type"]);
        bytes(&mut out, 22, &kind);
    }
    if let Some(items) = value.get("items") {
        let mut item = Vec::new();
        bytes(&mut item, 1, &schema(items));
        bytes(&mut out, 23, &item);
    }
    for part in value["allOf"].as_array().into_iter().flatten() {
        bytes(&mut out, 24, &schema(part));
    }
    if value["properties"].is_object() {
        let mut properties = Vec::new();
        for (name, property) in entries(&value["properties"]) {
            named(&mut properties, 1, name, &schema(property));
        }
        bytes(&mut out, 25, &properties);
    }
    marks(&mut out, number::SCHEMA_MARKS, value);
    out
}

/// `x-kubernetes-…` as name and value.
fn marks(out: &mut Vec<u8>, field: u32, value: &Value) {
    for (name, mark) in entries(value).filter(|(name, _)| name.starts_with("x-")) {
        named(out, field, name, &any(mark));
    }
}

/// Values of any kind travel as YAML, and JSON is YAML.
fn any(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    bytes(&mut out, 2, value.to_string().as_bytes());
    out
}

fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter)
}

fn named(out: &mut Vec<u8>, field: u32, name: &str, value: &[u8]) {
    let mut entry = Vec::with_capacity(name.len() + value.len() + 8);
    bytes(&mut entry, 1, name.as_bytes());
    bytes(&mut entry, 2, value);
    bytes(out, field, &entry);
}

fn text(out: &mut Vec<u8>, field: u32, value: &Value) {
    if let Some(text) = value.as_str().filter(|text| !text.is_empty()) {
        bytes(out, field, text.as_bytes());
    }
}

fn bytes(out: &mut Vec<u8>, field: u32, bytes: &[u8]) {
    crate::proto::put_bytes(out, field, bytes);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_small_document() {
        let definitions = json!({"A": {"type": "object", "properties": {"b": {"$ref": "#/definitions/B"}}}});
        let reference = [&[0x0a, 15][..], b"#/definitions/B"].concat();
        let property = [&[0x0a, 1, b'b', 0x12, 17][..], &reference].concat();
        let properties = [&[0x0a, 22][..], &property].concat();
        let schema = [&[0xb2, 0x01, 8, 0x0a, 6][..], b"object", &[0xca, 0x01, 24], &properties].concat();
        let definition = [&[0x0a, 1, b'A', 0x12, 38][..], &schema].concat();
        let info = b"\x0a\x01T\x12\x011";
        let want = [&b"\x0a\x032.0\x12\x06"[..], info, b"\x42\x00\x4a\x2d\x0a\x2b", &definition].concat();
        let about = json!({"title": "T", "version": "1"});
        assert_eq!(document("2.0", &about, &BTreeMap::new(), definitions.as_object().unwrap()), want);
    }
}
