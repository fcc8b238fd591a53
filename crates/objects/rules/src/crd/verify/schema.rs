//! The schema of a version: what OpenAPI allows and Kubernetes does not, list and map types, defaults, CEL rules.

use std::collections::HashSet;

use cel::cost::Bound;
use schema::field::{FieldError, FieldErrors};
use schema::formats;
use schema::json_schema::{Node, Rule, strings, text};
use serde_json::{Map, Value, json};

use super::rules::{self, Ruled, Total};
use super::{show, structural};
use crate::crd::correlate::Pair;
use crate::crd::metadata::{self, Malformed};
use crate::crd::rules::Rules;
use crate::crd::{prune, values};

const TYPES: &[&str] = &["array", "boolean", "integer", "number", "object", "string"];
const AT_ROOT: &[&str] = &[
    "Description",
    "Type",
    "Format",
    "Title",
    "Maximum",
    "ExclusiveMaximum",
    "Minimum",
    "ExclusiveMinimum",
    "MaxLength",
    "MinLength",
    "Pattern",
    "MaxItems",
    "MinItems",
    "UniqueItems",
    "MultipleOf",
    "Required",
    "Items",
    "Properties",
    "ExternalDocs",
    "Example",
    "XPreserveUnknownFields",
    "XValidations",
];

/// Validates the `schema` of a version, or of all versions.
pub(super) fn validate(schema: Option<&Value>, status: bool, path: &str, errors: &mut FieldErrors) {
    let Some(raw) = schema.and_then(|s| s.get("openAPIV3Schema")) else { return };
    let Some(map) = raw.as_object() else { return };
    let path = format!("{path}.openAPIV3Schema");
    if status {
        root_with_status(raw, map, &path, errors);
    }
    if map.get("nullable") == Some(&json!(true)) {
        errors.push(FieldError::forbidden(format!("{path}.nullable"), "nullable cannot be true at the root"));
    }
    // What has no structural form at all is refused below, in plainer words.
    let structural = if expressible(raw, 0) { Some(structural::validate(map, &path)) } else { None };
    let mut sound = structural.as_ref().is_some_and(Vec::is_empty);
    errors.extend(structural.into_iter().flatten());
    let root = Node::compile(raw);
    if sound {
        let before = errors.len();
        defaults(&root, true, &path, errors);
        sound = errors.len() == before;
    }
    let mut found = Found::default();
    let place = Place { root: true, defaults: Defaults::Allowed, inside_meta: false, uncorrelatable: None };
    let bound = if sound && root.has_rules() { Bound::of(&root, true) } else { None };
    let ruled = sound.then_some(Ruled { node: &root, bound: bound.as_ref(), times: Some(1) });
    openapi(map, &path, &place, ruled, &mut found);
    errors.extend(found.schema);
    errors.extend(found.cel);
    found.total.judge(&path, errors);
}

/// Whether a schema can be made structural: it has none of the keywords that structural schemas have no place for.
fn expressible(schema: &Value, depth: usize) -> bool {
    let Some(map) = schema.as_object().filter(|_| depth < 200) else { return true };
    let none = ["$ref", "definitions", "dependencies", "patternProperties", "additionalItems"];
    let given =
        |key: &str| map.get(key).is_some_and(|v| !matches!(v, Value::Null) && *v != json!({}) && *v != json!(""));
    if none.iter().any(|key| given(key)) || map.get("items").is_some_and(Value::is_array) {
        return false;
    }
    let one = ["items", "not", "additionalProperties"].iter().filter_map(|key| map.get(*key));
    let many = ["allOf", "anyOf", "oneOf"].iter().filter_map(|key| map.get(*key)?.as_array()).flatten();
    let named = map.get("properties").and_then(Value::as_object).into_iter().flat_map(|p| p.values());
    one.chain(many).chain(named).all(|below| expressible(below, depth + 1))
}

fn root_with_status(raw: &Value, map: &Map<String, Value>, path: &str, errors: &mut FieldErrors) {
    for name in show::set_fields(map) {
        if name == "Type" {
            if text(map, "type") != "object" {
                let why = "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
                errors.push(FieldError::invalid(format!("{path}.type"), &json!(text(map, "type")), why));
                return;
            }
        } else if !AT_ROOT.contains(&name) {
            let why = format!(
                "only [{}] fields are allowed at the root of the schema if the status subresource is enabled",
                AT_ROOT.join(" ")
            );
            errors.push(show::invalid(path.to_owned(), &show::schema(raw, 0), &why));
            return;
        }
    }
}

/// Defaults must be what an object may hold.
fn defaults(node: &Node, resource: bool, path: &str, errors: &mut FieldErrors) {
    if let Some(default) = &node.default {
        let place = format!("{path}.default");
        let mut pruned = default.clone();
        prune::prune(&mut pruned, Some(node), node.embedded, &mut Vec::new());
        if pruned != *default {
            errors.push(FieldError::invalid(place.clone(), default, "must not have unknown fields"));
        }
        let mut wrong = FieldErrors::new();
        if let Err(error) = metadata::coerce_embedded(&mut pruned, node, &place, Malformed::Refuse, &mut Vec::new()) {
            wrong.push(error);
        }
        if wrong.is_empty() {
            metadata::validate_embedded(default, node, &place, &mut wrong);
        }
        if wrong.is_empty() {
            wrong.extend(values::validate(node, Pair::created(default), &place));
        }
        if wrong.is_empty()
            && let Some(rules) = Rules::compile(node, resource)
        {
            wrong.extend(rules.validate(node, Pair { new: default, old: Some(&Value::Null) }, &place));
        }
        errors.extend(wrong);
    }
    if let Some(items) = &node.items {
        defaults(items, false, &format!("{path}.items"), errors);
    }
    for (key, property) in &node.properties {
        defaults(property, false, &format!("{path}.properties[{key}]"), errors);
    }
}

#[derive(Default)]
struct Found {
    schema: FieldErrors,
    cel: FieldErrors,
    total: Total,
}

#[derive(Clone)]
enum Defaults {
    Allowed,
    Forbidden(String),
}

#[derive(Clone)]
struct Place {
    root: bool,
    defaults: Defaults,
    inside_meta: bool,
    /// The closest list or map around whose elements have no identity: no rule within may look at the old object.
    uncorrelatable: Option<String>,
}

impl Place {
    fn below(&self) -> Self {
        Self { root: false, ..self.clone() }
    }

    fn uncorrelatable(mut self, path: &str) -> Self {
        self.uncorrelatable.get_or_insert_with(|| path.to_owned());
        self
    }
}

/// `node` is there while the schema is sound enough for CEL rules to be compiled.
fn openapi(map: &Map<String, Value>, path: &str, place: &Place, node: Option<Ruled<'_>>, found: &mut Found) {
    let schema_errors_before = found.schema.len();
    standard(map, path, place, &mut found.schema);
    let flag = |key: &str| map.get(key).and_then(Value::as_bool).unwrap_or(false);
    if flag("uniqueItems") {
        let why = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        found.schema.push(FieldError::forbidden(format!("{path}.uniqueItems"), why));
    }
    let declared = map.get("properties").and_then(Value::as_object).filter(|p| !p.is_empty());
    if let Some(additional @ (Value::Bool(_) | Value::Object(_))) = map.get("additionalProperties") {
        if declared.is_some() && *additional != json!(true) {
            let why = "additionalProperties and properties are mutual exclusive";
            found.schema.push(FieldError::forbidden(format!("{path}.additionalProperties"), why));
        }
        if let Some(values) = additional.as_object() {
            let mut below = place.below();
            if place.inside_meta {
                let reason = "inside additionalProperties applying to object metadata";
                below.defaults = Defaults::Forbidden(reason.to_owned());
            }
            let node = node.and_then(Ruled::value);
            openapi(values, &format!("{path}.additionalProperties"), &below, node, found);
        }
    }
    let embedded = flag("x-kubernetes-embedded-resource");
    for (key, property) in declared.into_iter().flatten() {
        let Some(property) = property.as_object() else { continue };
        let mut below = place.below();
        if text(map, "x-kubernetes-map-type") == "atomic" {
            below = below.uncorrelatable(path);
        }
        if (place.root || embedded) && ::schema::json_schema::is_meta(key) {
            below.inside_meta = true;
            if place.root {
                below.defaults = Defaults::Forbidden(format!("in top-level {key}"));
            }
        }
        let node = node.and_then(|n| n.property(key));
        openapi(property, &format!("{path}.properties[{key}]"), &below, node, found);
    }
    if let Some(branch) = map.get("not").and_then(Value::as_object) {
        openapi(branch, &format!("{path}.not"), &place.below(), None, found);
    }
    for key in ["allOf", "oneOf", "anyOf"] {
        for (index, branch) in map.get(key).and_then(Value::as_array).into_iter().flatten().enumerate() {
            if let Some(branch) = branch.as_object() {
                openapi(branch, &format!("{path}.{key}[{index}]"), &place.below(), None, found);
            }
        }
    }
    if let Some(items) = map.get("items").and_then(Value::as_object) {
        let mut below = place.below();
        if text(map, "x-kubernetes-list-type") != "map" {
            below = below.uncorrelatable(path);
        }
        openapi(items, &format!("{path}.items"), &below, node.and_then(Ruled::items), found);
    }
    extensions(map, path, &mut found.schema);
    let rules = Rule::all(map);
    rules::fields(&rules, map, path, &mut found.schema);
    if found.schema.len() == schema_errors_before
        && let Some(node) = node.filter(|_| !rules.is_empty())
    {
        let (root, uncorrelatable) = (place.root, place.uncorrelatable.as_deref());
        rules::compile(&rules, node, path, (root, uncorrelatable), &mut found.total, &mut found.cel);
    }
}

/// What OpenAPI has and Kubernetes does not.
fn standard(map: &Map<String, Value>, path: &str, place: &Place, errors: &mut FieldErrors) {
    let ty = text(map, "type");
    if !ty.is_empty() && !TYPES.contains(&ty) {
        errors.push(FieldError::not_supported(format!("{path}.type"), &json!(ty), TYPES));
    }
    if let (Some(_), Defaults::Forbidden(reason)) = (map.get("default").filter(|d| !d.is_null()), &place.defaults) {
        errors.push(FieldError::forbidden(format!("{path}.default"), &format!("must not be set {reason}")));
    }
    for key in ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"] {
        let set = match map.get(key) {
            None | Some(Value::Null) => false,
            Some(Value::String(text)) => !text.is_empty(),
            Some(Value::Object(entries)) => !entries.is_empty(),
            Some(_) => true,
        };
        if set {
            errors.push(FieldError::forbidden(format!("{path}.{key}"), &format!("{key} is not supported")));
        }
    }
    if ty == "null" {
        let why = "type cannot be set to null, use nullable as an alternative";
        errors.push(FieldError::forbidden(format!("{path}.type"), why));
    }
    if map.get("items").is_some_and(Value::is_array) {
        let why = "items must be a schema object and not an array";
        errors.push(FieldError::forbidden(format!("{path}.items"), why));
    }
    if place.inside_meta && map.get("x-kubernetes-embedded-resource") == Some(&json!(true)) {
        let why = "must not be used inside of resource meta";
        errors.push(FieldError::forbidden(format!("{path}.x-kubernetes-embedded-resource"), why));
    }
}

/// `x-kubernetes-*` that shape lists and maps.
fn extensions(map: &Map<String, Value>, path: &str, errors: &mut FieldErrors) {
    if map.get("x-kubernetes-preserve-unknown-fields") == Some(&json!(false)) {
        let place = format!("{path}.x-kubernetes-preserve-unknown-fields");
        errors.push(FieldError::invalid(place, &json!(false), "must be true or undefined"));
    }
    let ty = text(map, "type");
    let must_be = |wanted: &str, by: &str| {
        let why = format!("must be {wanted} if {by} is specified");
        match ty {
            "" => FieldError::required(format!("{path}.type"), &why),
            ty => FieldError::invalid(format!("{path}.type"), &json!(ty), &why),
        }
    };
    let map_type = map.get("x-kubernetes-map-type").and_then(Value::as_str);
    if map_type.is_some() && ty != "object" {
        errors.push(must_be("object", "x-kubernetes-map-type"));
    }
    if let Some(other) = map_type.filter(|t| !matches!(*t, "atomic" | "granular")) {
        let place = format!("{path}.x-kubernetes-map-type");
        errors.push(FieldError::not_supported(place, &json!(other), &["atomic", "granular"]));
    }
    let list_type = map.get("x-kubernetes-list-type").and_then(Value::as_str);
    let items = map.get("items").and_then(Value::as_object);
    if list_type.is_some() && ty != "array" {
        errors.push(must_be("array", "x-kubernetes-list-type"));
    } else if let (Some("set"), Some(items)) = (list_type, items) {
        let why = "must be atomic as item of a list with x-kubernetes-list-type=set";
        let nested = items.get("x-kubernetes-list-type");
        match text(items, "type") {
            "array" if nested.is_some_and(|t| t.as_str() != Some("atomic")) => {
                let place = format!("{path}.items.x-kubernetes-list-type");
                errors.push(FieldError::invalid(place, nested.unwrap_or(&Value::Null), why));
            }
            "object" if text(items, "x-kubernetes-map-type") != "atomic" => {
                let place = format!("{path}.items.x-kubernetes-map-type");
                errors.push(FieldError::invalid(place, nested.unwrap_or(&Value::Null), why));
            }
            _ => {}
        }
    }
    if let Some(other) = list_type.filter(|t| !matches!(*t, "atomic" | "set" | "map")) {
        let place = format!("{path}.x-kubernetes-list-type");
        errors.push(FieldError::not_supported(place, &json!(other), &["atomic", "set", "map"]));
    }
    list_map(map, list_type, items, path, errors);
}

fn list_map(
    map: &Map<String, Value>,
    list_type: Option<&str>,
    items: Option<&Map<String, Value>>,
    path: &str,
    errors: &mut FieldErrors,
) {
    let keys = strings(map.get("x-kubernetes-list-map-keys"));
    let why = "must be map if x-kubernetes-list-map-keys is non-empty";
    match list_type {
        None if !keys.is_empty() => errors.push(FieldError::required(format!("{path}.x-kubernetes-list-type"), why)),
        Some(other) if !keys.is_empty() && other != "map" => {
            errors.push(FieldError::invalid(format!("{path}.x-kubernetes-list-type"), &json!(other), why));
        }
        _ => {}
    }
    let keys_path = format!("{path}.x-kubernetes-list-map-keys");
    if list_type == Some("map") {
        if keys.is_empty() {
            let why = "must not be empty if x-kubernetes-list-type is map";
            errors.push(FieldError::required(keys_path.clone(), why));
        }
        match items {
            None => {
                let why = "must have a schema if x-kubernetes-list-type is map";
                errors.push(FieldError::required(format!("{path}.items"), why));
            }
            Some(items) if text(items, "type") != "object" => {
                let why = "must be object if parent array's x-kubernetes-list-type is map";
                let place = format!("{path}.items.type");
                errors.push(FieldError::invalid(place, &json!(text(items, "type")), why));
            }
            Some(items) => {
                let mut seen = HashSet::new();
                for key in &keys {
                    let property = items.get("properties").and_then(|p| p.get(&**key)).and_then(Value::as_object);
                    match property {
                        Some(p) if matches!(text(p, "type"), "array" | "object") => {
                            let why = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                            let place = format!("{path}.items.properties[{key}].type");
                            errors.push(FieldError::invalid(place, &json!("object"), why));
                        }
                        Some(_) => {}
                        None => {
                            let why = "entries must all be names of item properties";
                            errors.push(FieldError::invalid(keys_path.clone(), &json!(keys), why));
                        }
                    }
                    if !seen.insert(key) {
                        let why = "must not contain duplicate entries";
                        errors.push(FieldError::invalid(keys_path.clone(), &json!(keys), why));
                    }
                }
            }
        }
    }
    let (Some(list_type @ ("set" | "map")), Some(items)) = (list_type, items) else { return };
    let is_nullable = |map: &Map<String, Value>| map.get("nullable") == Some(&json!(true));
    if is_nullable(items) {
        let why = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
        errors.push(FieldError::forbidden(format!("{path}.items.nullable"), &why));
    }
    if list_type == "map" {
        let required: HashSet<Box<str>> = strings(items.get("required")).into_iter().collect();
        for key in &keys {
            let property = items.get("properties").and_then(|p| p.get(&**key)).and_then(Value::as_object);
            let Some(property) = property else { continue };
            let place = format!("{path}.items.properties[{key}]");
            if !required.contains(key) && property.get("default").is_none_or(Value::is_null) {
                let why = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
                errors.push(FieldError::required(format!("{place}.default"), why));
            }
            if is_nullable(property) {
                let why = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
                errors.push(FieldError::forbidden(format!("{place}.nullable"), why));
            }
        }
    }
}

/// Formats that nothing checks.
pub(super) fn warnings(crd: &Value, warnings: &mut Vec<String>) {
    let versions = crd.pointer("/spec/versions").and_then(Value::as_array);
    let mut seen: HashSet<&Value> = HashSet::new();
    for schema in versions.into_iter().flatten().filter_map(|v| v.pointer("/schema/openAPIV3Schema")) {
        if seen.insert(schema) {
            warn(schema, 0, warnings);
        }
    }
}

fn warn(schema: &Value, depth: usize, warnings: &mut Vec<String>) {
    let Some(map) = schema.as_object().filter(|_| depth < 200) else { return };
    let format = text(map, "format");
    let known = match text(map, "type") {
        "" | "string" => formats::known(format),
        "integer" => matches!(format, "int32" | "int64"),
        "number" => matches!(format, "float" | "double"),
        _ => false,
    };
    if !format.is_empty() && !known {
        warnings.push(format!("unrecognized format \"{format}\""));
    }
    for key in ["items", "not", "additionalProperties"] {
        map.get(key).into_iter().for_each(|s| warn(s, depth + 1, warnings));
    }
    for key in ["allOf", "anyOf", "oneOf"] {
        let branches = map.get(key).and_then(Value::as_array);
        branches.into_iter().flatten().for_each(|s| warn(s, depth + 1, warnings));
    }
    let properties = map.get("properties").and_then(Value::as_object);
    properties.into_iter().flatten().for_each(|(_, s)| warn(s, depth + 1, warnings));
}
