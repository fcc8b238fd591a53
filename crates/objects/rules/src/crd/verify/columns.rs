//! What a version has besides its schema: subresources, printer columns, selectable fields; and webhooks.

use std::collections::HashSet;

use schema::field::{FieldError, FieldErrors};
use schema::json_schema::{Node, text};
use schema::names;
use serde_json::{Map, Value, json};

use crate::crd::fieldpath;

const COLUMN_TYPES: &[&str] = &["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: &[&str] = &["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];
const MAX_SELECTABLE: usize = 8;

fn simple_path(path: &str, place: &str, errors: &mut FieldErrors) -> bool {
    if path.starts_with('.') {
        return true;
    }
    errors.push(FieldError::invalid(place, &json!(path), "must be a simple json path starting with ."));
    false
}

pub(super) fn subresources(raw: Option<&Value>, path: &str, errors: &mut FieldErrors) {
    let Some(scale) = raw.and_then(|s| s.get("scale")).and_then(Value::as_object) else { return };
    for (key, under) in [("specReplicasPath", ".spec"), ("statusReplicasPath", ".status")] {
        let place = format!("{path}.scale.{key}");
        let value = text(scale, key);
        if value.is_empty() {
            errors.push(FieldError::required(place, ""));
        } else if simple_path(value, &place, errors) && !value.starts_with(&format!("{under}.")) {
            errors.push(FieldError::invalid(place, &json!(value), &format!("should be a json path under {under}")));
        }
    }
    let value = text(scale, "labelSelectorPath");
    let place = format!("{path}.scale.labelSelectorPath");
    if !value.is_empty()
        && simple_path(value, &place, errors)
        && !value.starts_with(".spec.")
        && !value.starts_with(".status.")
    {
        let why = "should be a json path under either .spec or .status";
        errors.push(FieldError::invalid(place, &json!(value), why));
    }
}

pub(super) fn printer_columns(raw: Option<&Value>, path: &str, errors: &mut FieldErrors) {
    let columns = raw.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_object);
    for (index, column) in columns.enumerate() {
        let at = |key: &str| format!("{path}[{index}].{key}");
        if text(column, "name").is_empty() {
            errors.push(FieldError::required(at("name"), ""));
        }
        let ty = text(column, "type");
        let types = format!("must be one of {}", COLUMN_TYPES.join(","));
        if ty.is_empty() {
            errors.push(FieldError::required(at("type"), &types));
        } else if !COLUMN_TYPES.contains(&ty) {
            errors.push(FieldError::invalid(at("type"), &json!(ty), &types));
        }
        let format = text(column, "format");
        if !format.is_empty() && !COLUMN_FORMATS.contains(&format) {
            let why = format!("must be one of {}", COLUMN_FORMATS.join(","));
            errors.push(FieldError::invalid(at("format"), &json!(format), &why));
        }
        let json_path = text(column, "jsonPath");
        if json_path.is_empty() {
            errors.push(FieldError::required(at("JSONPath"), ""));
        } else {
            simple_path(json_path, &at("JSONPath"), errors);
        }
    }
}

pub(super) fn selectable(raw: Option<&Value>, schema: Option<&Value>, path: &str, errors: &mut FieldErrors) {
    let Some(fields) = raw.and_then(Value::as_array).filter(|f| !f.is_empty()) else { return };
    let Some(schema) = schema.and_then(|s| s.get("openAPIV3Schema")) else {
        let why = "may only be set when `version.schema.openAPIV3Schema` is not included";
        errors.push(FieldError::invalid(path, &json!(""), why));
        return;
    };
    let root = Node::compile(schema);
    let mut seen: HashSet<String> = HashSet::new();
    for (index, field) in fields.iter().enumerate() {
        let place = format!("{path}[{index}].jsonPath");
        let json_path = field.get("jsonPath").and_then(Value::as_str).unwrap_or("");
        let shown = json!(json_path);
        if json_path.is_empty() {
            errors.push(FieldError::required(place, ""));
            continue;
        }
        let (found, node) = match fieldpath::resolve(json_path, &root, false) {
            Ok(found) => found,
            Err(why) => {
                errors.push(FieldError::invalid(place, &shown, &format!("is an invalid path: {why}")));
                continue;
            }
        };
        if found.split('.').next() == Some("metadata") {
            errors.push(FieldError::invalid(place.clone(), &shown, "must not point to fields in metadata"));
        }
        if !matches!(&*node.ty, "string" | "boolean" | "integer") {
            let why = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.";
            errors.push(FieldError::invalid(place.clone(), &shown, why));
        }
        if !seen.insert(found) {
            errors.push(FieldError::duplicate(place, &shown));
        }
    }
    if seen.len() > MAX_SELECTABLE {
        errors.push(FieldError::too_many(path, seen.len(), MAX_SELECTABLE));
    }
}

/// The client configuration of a conversion webhook.
pub(super) fn webhook_client(client: &Map<String, Value>, path: &str, errors: &mut FieldErrors) {
    let url = client.get("url").and_then(Value::as_str);
    let service = client.get("service").and_then(Value::as_object);
    match (url, service) {
        (Some(url), None) => webhook_url(url, &format!("{path}.url"), errors),
        (None, Some(service)) => webhook_service(service, &format!("{path}.service"), errors),
        _ => errors.push(FieldError::required(path, "exactly one of url or service is required")),
    }
}

fn webhook_url(url: &str, path: &str, errors: &mut FieldErrors) {
    const FORM: &str = "; desired format: https://host[/path]";
    let mut wrong = |value: &str, why: &str| errors.push(FieldError::invalid(path, &json!(value), why));
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    if scheme != "https" {
        wrong(scheme, &format!("'https' is the only allowed URL scheme{FORM}"));
    }
    let (rest, fragment) = rest.split_once('#').map_or((rest, ""), |(r, f)| (r, f));
    let (rest, query) = rest.split_once('?').map_or((rest, ""), |(r, q)| (r, q));
    let host = rest.split('/').next().unwrap_or("");
    if scheme.is_empty() || host.is_empty() {
        wrong(host, &format!("host must be specified{FORM}"));
    }
    if host.contains('@') {
        let user = host.split('@').next().unwrap_or("").to_owned();
        wrong(&user, "user information is not permitted in the URL");
    }
    if !fragment.is_empty() {
        wrong(fragment, "fragments are not permitted in the URL");
    }
    if !query.is_empty() {
        wrong(query, "query parameters are not permitted in the URL");
    }
}

fn webhook_service(service: &Map<String, Value>, path: &str, errors: &mut FieldErrors) {
    for key in ["name", "namespace"] {
        if text(service, key).is_empty() {
            errors.push(FieldError::required(format!("{path}.{key}"), &format!("service {key} is required")));
        }
    }
    if let Some(port) = service.get("port").and_then(Value::as_i64) {
        for complaint in names::port_number(port) {
            let why = format!("port is not valid: {complaint}");
            errors.push(FieldError::invalid(format!("{path}.port"), &json!(port), &why));
        }
    }
    let Some(url_path) = service.get("path").and_then(Value::as_str) else { return };
    let place = format!("{path}.path");
    let shown = json!(url_path);
    if !url_path.starts_with('/') {
        errors.push(FieldError::invalid(place.clone(), &shown, "must start with a '/'"));
    }
    let Some(steps) = url_path.strip_prefix('/').filter(|p| !p.is_empty()) else { return };
    let steps: Vec<&str> = steps.split('/').collect();
    for (index, step) in steps.iter().enumerate() {
        if step.is_empty() && index + 1 < steps.len() {
            errors.push(FieldError::invalid(place.clone(), &shown, &format!("segment[{index}] may not be empty")));
        }
        if !step.is_empty() {
            for complaint in names::dns1123_subdomain(step) {
                let why = format!("segment[{index}]: {complaint}");
                errors.push(FieldError::invalid(place.clone(), &shown, &why));
            }
        }
    }
}
