//! `metadata` of custom resources and of the resources embedded in them: decoded as upstream's Go type would decode it.

use std::collections::HashSet;

use schema::field::{FieldError, FieldErrors};
use schema::json_schema::{Additional, Node};
use schema::names;
use serde_json::{Map, Value};

use super::prune::join;

/// What a field of `ObjectMeta` holds, with its Go type for messages.
#[derive(Clone, Copy)]
enum Kind {
    Text,
    Bool,
    Long,
    Time,
    TextMap,
    TextList,
    Raw,
    List(&'static [(&'static str, Kind)], &'static str),
}

const OWNER: &[(&str, Kind)] = &[
    ("apiVersion", Kind::Text),
    ("kind", Kind::Text),
    ("name", Kind::Text),
    ("uid", Kind::Text),
    ("controller", Kind::Bool),
    ("blockOwnerDeletion", Kind::Bool),
];

const MANAGED: &[(&str, Kind)] = &[
    ("manager", Kind::Text),
    ("operation", Kind::Text),
    ("apiVersion", Kind::Text),
    ("time", Kind::Time),
    ("fieldsType", Kind::Text),
    ("fieldsV1", Kind::Raw),
    ("subresource", Kind::Text),
];

const META: &[(&str, Kind)] = &[
    ("name", Kind::Text),
    ("generateName", Kind::Text),
    ("namespace", Kind::Text),
    ("selfLink", Kind::Text),
    ("uid", Kind::Text),
    ("resourceVersion", Kind::Text),
    ("generation", Kind::Long),
    ("creationTimestamp", Kind::Time),
    ("deletionTimestamp", Kind::Time),
    ("deletionGracePeriodSeconds", Kind::Long),
    ("labels", Kind::TextMap),
    ("annotations", Kind::TextMap),
    ("ownerReferences", Kind::List(OWNER, "OwnerReference")),
    ("finalizers", Kind::TextList),
    ("managedFields", Kind::List(MANAGED, "ManagedFieldsEntry")),
];

/// What is done with a field of the wrong type.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Malformed {
    Refuse,
    Drop,
}

/// Decodes the `metadata` of `object`, drops unknown and empty fields and answers the paths of the unknown ones.
pub(crate) fn coerce(object: &mut Map<String, Value>, path: &str, malformed: Malformed) -> Result<Vec<String>, String> {
    let Some(metadata) = object.get_mut("metadata") else { return Ok(Vec::new()) };
    let mut unknown = Vec::new();
    match metadata {
        Value::Object(map) => {
            let prefix = join(path, "metadata");
            coerce_struct(map, META, "ObjectMeta", &prefix, malformed, &mut unknown)?;
        }
        Value::Null => *metadata = Value::Object(Map::new()),
        _ if malformed == Malformed::Drop => *metadata = Value::Object(Map::new()),
        other => return Err(mismatch(other, "", "v1.ObjectMeta")),
    }
    unknown.sort();
    Ok(unknown)
}

fn coerce_struct(
    map: &mut Map<String, Value>,
    fields: &[(&str, Kind)],
    name: &str,
    path: &str,
    malformed: Malformed,
    unknown: &mut Vec<String>,
) -> Result<(), String> {
    let mut failure = None;
    map.retain(|key, value| {
        let Some((_, kind)) = fields.iter().find(|(field, _)| field == key) else {
            unknown.push(join(path, key));
            return false;
        };
        if value.is_null() {
            return false;
        }
        match coerce_field(value, *kind, &format!("{name}.{key}"), &join(path, key), malformed, unknown) {
            Ok(keep) => keep,
            Err(_) if malformed == Malformed::Drop => false,
            Err(error) => {
                failure.get_or_insert(error);
                false
            }
        }
    });
    failure.map_or(Ok(()), Err)
}

/// Answers whether the field is kept: Go leaves empty ones out.
fn coerce_field(
    value: &mut Value,
    kind: Kind,
    name: &str,
    path: &str,
    malformed: Malformed,
    unknown: &mut Vec<String>,
) -> Result<bool, String> {
    match (kind, value) {
        (Kind::Text, Value::String(text)) => Ok(!text.is_empty()),
        (Kind::Text, other) => Err(mismatch(other, name, "string")),
        (Kind::Bool, Value::Bool(_)) | (Kind::Raw, _) => Ok(true),
        (Kind::Bool, other) => Err(mismatch(other, name, "bool")),
        (Kind::Long, Value::Number(n)) if n.is_i64() => Ok(n.as_i64() != Some(0) || !name.ends_with("generation")),
        (Kind::Long, other) => Err(mismatch(other, name, "int64")),
        (Kind::Time, Value::String(text)) => match text.parse::<jiff::Timestamp>() {
            Ok(_) => Ok(true),
            Err(_) => Err(format!(
                "parsing time \"{text}\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"{text}\" as \"2006\""
            )),
        },
        (Kind::Time, other) => Err(mismatch(other, name, "string")),
        (Kind::TextMap, Value::Object(map)) => {
            match map.values().find(|v| !v.is_string() && !v.is_null()) {
                Some(wrong) => return Err(mismatch(wrong, name, "string")),
                None => map.values_mut().filter(|v| v.is_null()).for_each(|v| *v = Value::String(String::new())),
            }
            Ok(!map.is_empty())
        }
        (Kind::TextMap, other) => Err(mismatch(other, name, "map[string]string")),
        (Kind::TextList, Value::Array(list)) => match list.iter().find(|v| !v.is_string() && !v.is_null()) {
            Some(wrong) => Err(mismatch(wrong, name, "string")),
            None => Ok(!list.is_empty()),
        },
        (Kind::TextList, other) => Err(mismatch(other, name, "[]string")),
        (Kind::List(fields, element), Value::Array(list)) => {
            for (index, item) in list.iter_mut().enumerate() {
                match item {
                    Value::Object(map) => {
                        let (name, path) = (format!("{name}.{element}"), format!("{path}[{index}]"));
                        coerce_struct(map, fields, &name, &path, malformed, unknown)?;
                    }
                    Value::Null => *item = Value::Object(Map::new()),
                    other => return Err(mismatch(other, name, &format!("v1.{element}"))),
                }
            }
            Ok(!list.is_empty())
        }
        (Kind::List(_, element), other) => Err(mismatch(other, name, &format!("[]v1.{element}"))),
    }
}

fn mismatch(value: &Value, field: &str, go_type: &str) -> String {
    let got = match value {
        Value::Bool(_) => "bool".to_owned(),
        Value::Number(n) if n.is_f64() && go_type == "int64" => format!("number {n}"),
        Value::Number(_) => "number".to_owned(),
        Value::String(_) => "string".to_owned(),
        Value::Array(_) => "array".to_owned(),
        Value::Object(_) | Value::Null => "object".to_owned(),
    };
    if field.is_empty() {
        return format!("json: cannot unmarshal {got} into Go value of type {go_type}");
    }
    format!("json: cannot unmarshal {got} into Go struct field {field} of type {go_type}")
}

/// Decodes the metadata of the resources embedded in a value, as the root's is.
pub(crate) fn coerce_embedded(
    value: &mut Value,
    node: &Node,
    path: &str,
    malformed: Malformed,
    unknown: &mut Vec<String>,
) -> Result<(), FieldError> {
    match value {
        Value::Object(map) => {
            if node.embedded {
                coerce_resource(map, path, malformed, unknown)?;
            }
            for (key, child) in map.iter_mut() {
                if let Some(declared) = node.properties.get(key.as_str()) {
                    coerce_embedded(child, declared, &join(path, key), malformed, unknown)?;
                } else if let Some(Additional::Schema(node)) = &node.additional {
                    coerce_embedded(child, node, &format!("{path}[{key}]"), malformed, unknown)?;
                }
            }
        }
        Value::Array(list) => {
            if let Some(items) = &node.items {
                for (index, child) in list.iter_mut().enumerate() {
                    coerce_embedded(child, items, &format!("{path}[{index}]"), malformed, unknown)?;
                }
            }
        }
        _ => {}
    }
    Ok(())
}

fn coerce_resource(
    map: &mut Map<String, Value>,
    path: &str,
    malformed: Malformed,
    unknown: &mut Vec<String>,
) -> Result<(), FieldError> {
    for key in ["apiVersion", "kind"] {
        match map.get(key) {
            None | Some(Value::String(_)) => {}
            Some(_) if malformed == Malformed::Drop => {
                map.remove(key);
            }
            Some(other) => return Err(FieldError::invalid(join(path, key), other, "must be a string")),
        }
    }
    let before = map.get("metadata").cloned();
    match coerce(map, path, malformed) {
        Ok(paths) => unknown.extend(paths),
        Err(why) => {
            return Err(FieldError::invalid(join(path, "metadata"), &before.unwrap_or_default(), &why));
        }
    }
    Ok(())
}

/// What is wrong with the type and metadata of embedded resources.
pub(crate) fn validate_embedded(value: &Value, node: &Node, path: &str, errors: &mut FieldErrors) {
    match value {
        Value::Object(map) => {
            if node.embedded {
                validate_resource(map, path, errors);
            }
            for (key, child) in map {
                if let Some(declared) = node.properties.get(key.as_str()) {
                    validate_embedded(child, declared, &join(path, key), errors);
                } else if let Some(Additional::Schema(node)) = &node.additional {
                    validate_embedded(child, node, &format!("{path}[{key}]"), errors);
                }
            }
        }
        Value::Array(list) => {
            if let Some(items) = &node.items {
                for (index, child) in list.iter().enumerate() {
                    validate_embedded(child, items, &format!("{path}[{index}]"), errors);
                }
            }
        }
        _ => {}
    }
}

fn validate_resource(map: &Map<String, Value>, path: &str, errors: &mut FieldErrors) {
    for key in ["apiVersion", "kind"] {
        if !map.contains_key(key) {
            errors.push(FieldError::required(join(path, key), ""));
        }
    }
    if let Some(version) = map.get("apiVersion") {
        let path = join(path, "apiVersion");
        match version.as_str() {
            None => errors.push(FieldError::invalid(path, version, "must be a string")),
            Some("") => errors.push(FieldError::invalid(path, version, "must not be empty")),
            Some(text) if text.matches('/').count() > 1 => {
                let why = format!("unexpected GroupVersion string: {text}");
                errors.push(FieldError::invalid(path, version, &why));
            }
            Some(_) => {}
        }
    }
    if let Some(kind) = map.get("kind") {
        let path = join(path, "kind");
        match kind.as_str() {
            None => errors.push(FieldError::invalid(path, kind, "must be a string")),
            Some("") => errors.push(FieldError::invalid(path, kind, "must not be empty")),
            Some(text) => {
                let complaints = names::dns1035_label(&text.to_lowercase());
                if !complaints.is_empty() {
                    let why = format!("may have mixed case, but should otherwise match: {}", complaints.join(","));
                    errors.push(FieldError::invalid(path, kind, &why));
                }
            }
        }
    }
    if let Some(name) = map.get("metadata").and_then(|m| m.get("name")).filter(|n| n.is_string()) {
        let text = name.as_str().unwrap_or_default();
        let path = join(&join(path, "metadata"), "name");
        for complaint in names::path_segment(text) {
            errors.push(FieldError::invalid(path.clone(), name, &complaint));
        }
    }
}

/// What a client is warned of about the finalizers that a write adds to a custom resource.
pub fn finalizer_warnings(new: &Value, old: Option<&Value>) -> Vec<String> {
    let finalizers = |object: &Value| schema::json_schema::strings(object.pointer("/metadata/finalizers"));
    let before: HashSet<Box<str>> = old.map(finalizers).unwrap_or_default().into_iter().collect();
    let mut added: Vec<Box<str>> = finalizers(new).into_iter().filter(|f| !before.contains(f)).collect();
    added.sort();
    added.dedup();
    let mut warnings = Vec::new();
    for finalizer in added {
        let about = format!("metadata.finalizers: {}", schema::go::quoted(&finalizer));
        warnings.extend(names::qualified_name(&finalizer).iter().map(|why| format!("{about}: {why}")));
        if !finalizer.contains('/') && !matches!(&*finalizer, "orphan" | "foregroundDeletion" | "kubernetes") {
            let path = if finalizer.contains('.') { " including a path (/)" } else { "" };
            warnings.push(format!(
                "{about}: prefer a domain-qualified finalizer name{path} to avoid accidental conflicts with other \
                 finalizer writers"
            ));
        }
    }
    warnings
}
