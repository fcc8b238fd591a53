//! Is a schema structural: does it say of every field, outside of alternatives, that it is there and of what type?

use schema::field::{FieldError, FieldErrors};
use schema::json_schema::{compile_pattern, text};
use serde_json::{Map, Value, json};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// The errors, sorted by their texts as upstream sorts them.
pub(super) fn validate(schema: &Map<String, Value>, path: &str) -> FieldErrors {
    let mut errors = FieldErrors::new();
    invariants(schema, Level::Root, path, &mut errors);
    complete(schema, path, &mut errors);
    errors.sort_by_key(ToString::to_string);
    errors
}

fn object<'a>(map: &'a Map<String, Value>, key: &str) -> Option<&'a Map<String, Value>> {
    map.get(key).and_then(Value::as_object)
}

fn flag(map: &Map<String, Value>, key: &str) -> bool {
    map.get(key).and_then(Value::as_bool).unwrap_or(false)
}

fn objects<'a>(map: &'a Map<String, Value>, key: &str) -> impl Iterator<Item = (usize, &'a Map<String, Value>)> {
    let list = map.get(key).and_then(Value::as_array).into_iter().flatten();
    list.enumerate().filter_map(|(i, v)| v.as_object().map(|v| (i, v)))
}

fn properties(map: &Map<String, Value>) -> impl Iterator<Item = (&String, &Map<String, Value>)> {
    object(map, "properties").into_iter().flatten().filter_map(|(k, v)| v.as_object().map(|v| (k, v)))
}

fn invariants(s: &Map<String, Value>, level: Level, path: &str, errors: &mut FieldErrors) {
    let ty = text(s, "type");
    if ty == "array" && object(s, "items").is_none() {
        errors.push(FieldError::required(format!("{path}.items"), "must be specified"));
    }
    if let Some(items) = object(s, "items") {
        invariants(items, Level::Item, &format!("{path}.items"), errors);
    }
    for (key, property) in properties(s) {
        invariants(property, Level::Field, &format!("{path}.properties[{key}]"), errors);
    }
    let additional = s.get("additionalProperties").filter(|a| !a.is_null() && **a != json!(false));
    if additional.is_some() {
        if level == Level::Root {
            errors.push(FieldError::forbidden(format!("{path}.additionalProperties"), "must not be used at the root"));
        }
        if let Some(values) = object(s, "additionalProperties") {
            invariants(values, Level::Field, &format!("{path}.additionalProperties"), errors);
        }
    }
    let int_or_string = flag(s, "x-kubernetes-int-or-string");
    let preserve = flag(s, "x-kubernetes-preserve-unknown-fields");
    let embedded = flag(s, "x-kubernetes-embedded-resource");
    for (set, key) in [(preserve, "x-kubernetes-preserve-unknown-fields"), (embedded, "x-kubernetes-embedded-resource")]
    {
        if int_or_string && set {
            let why = "must be false if x-kubernetes-int-or-string is true";
            errors.push(FieldError::invalid(format!("{path}.{key}"), &json!(true), why));
        }
    }
    let either = json!([{ "type": "integer" }, { "type": "string" }]);
    let skip_any = s.get("anyOf") == Some(&either);
    let skip_first = s.get("allOf").and_then(|all| all.pointer("/0/anyOf")) == Some(&either);
    value_validation(s, skip_any, skip_first, path, errors);
    type_of(s, level, path, errors);
    if embedded && additional.is_some() {
        let why = "must not be used if x-kubernetes-embedded-resource is set";
        errors.push(FieldError::forbidden(format!("{path}.additionalProperties"), why));
    }
    metadata(s, level, embedded, path, errors);
    if embedded && !preserve && object(s, "properties").is_none_or(Map::is_empty) {
        let why =
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        errors.push(FieldError::required(format!("{path}.properties"), why));
    }
}

fn type_of(s: &Map<String, Value>, level: Level, path: &str, errors: &mut FieldErrors) {
    let ty = text(s, "type");
    let place = format!("{path}.type");
    let open = flag(s, "x-kubernetes-int-or-string") || flag(s, "x-kubernetes-preserve-unknown-fields");
    if flag(s, "x-kubernetes-embedded-resource") && ty != "object" {
        let why = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(match ty {
            "" => FieldError::required(place.clone(), why),
            ty => FieldError::invalid(place.clone(), &json!(ty), why),
        });
    } else if ty.is_empty() && !open {
        let why = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        errors.push(FieldError::required(place.clone(), why));
    }
    if level == Level::Root && !ty.is_empty() && ty != "object" {
        errors.push(FieldError::invalid(place, &json!(ty), "must be object at the root"));
    }
}

/// What every object has is not for the schema to change.
fn metadata(s: &Map<String, Value>, level: Level, embedded: bool, path: &str, errors: &mut FieldErrors) {
    let resource = level == Level::Root || embedded;
    let Some(declared) = object(s, "properties").filter(|_| resource) else { return };
    let type_at = |key: &str| declared.get(key).and_then(Value::as_object).map(|p| text(p, "type"));
    for key in ["kind", "apiVersion"] {
        if let Some(ty) = type_at(key).filter(|ty| *ty != "string") {
            errors.push(FieldError::invalid(format!("{path}.properties[{key}].type"), &json!(ty), "must be string"));
        }
    }
    let place = format!("{path}.properties[metadata]");
    if let Some(ty) = type_at("metadata").filter(|ty| *ty != "object") {
        errors.push(FieldError::invalid(format!("{place}.type"), &json!(ty), "must be object"));
    }
    if let Some(meta) = declared.get("metadata").and_then(Value::as_object).filter(|_| level == Level::Root) {
        let names = |map: &Map<String, Value>| map.keys().all(|k| matches!(k.as_str(), "name" | "generateName"));
        let other = meta.iter().any(|(key, value)| match (key.as_str(), value) {
            ("type" | "default", _) => false,
            ("properties", Value::Object(map)) => !names(map),
            (_, Value::Null | Value::Bool(false)) => false,
            _ => true,
        });
        if other {
            let why =
                "must not specify anything other than name and generateName, but metadata is implicitly specified";
            errors.push(FieldError::forbidden(place, why));
        }
    }
}

fn value_validation(s: &Map<String, Value>, skip_any: bool, skip_first: bool, path: &str, errors: &mut FieldErrors) {
    if !skip_any {
        for (index, branch) in objects(s, "anyOf") {
            nested(branch, false, &format!("{path}.anyOf[{index}]"), errors);
        }
    }
    for (index, branch) in objects(s, "allOf") {
        nested(branch, skip_first && index == 0, &format!("{path}.allOf[{index}]"), errors);
    }
    for (index, branch) in objects(s, "oneOf") {
        nested(branch, false, &format!("{path}.oneOf[{index}]"), errors);
    }
    if let Some(branch) = object(s, "not") {
        nested(branch, false, &format!("{path}.not"), errors);
    }
    let pattern = text(s, "pattern");
    if let Err(why) = compile_pattern(pattern) {
        let why = format!("must be a valid regular expression, but isn't: {}", go_regex_error(pattern, &why));
        errors.push(FieldError::invalid(format!("{path}.pattern"), &json!(pattern), &why));
    }
}

/// The gist of what Go says of a bad pattern.
fn go_regex_error(pattern: &str, error: &regex::Error) -> String {
    let text = error.to_string();
    let what = match text.rsplit("error: ").next().unwrap_or("").trim() {
        t if t.starts_with("unclosed group") => format!("missing closing ): `{pattern}`"),
        t if t.starts_with("unopened group") => format!("unexpected ): `{pattern}`"),
        t if t.starts_with("unclosed character class") => {
            let from = pattern.rfind('[').unwrap_or(0);
            format!("missing closing ]: `{}`", &pattern[from..])
        }
        t if t.starts_with("repetition operator missing") => {
            let sign = pattern.chars().find(|c| "*+?".contains(*c)).unwrap_or('*');
            format!("missing argument to repetition operator: `{sign}`")
        }
        t if t.starts_with("look-around") => {
            let from = pattern.find("(?").unwrap_or(0);
            let until = pattern[from..].char_indices().nth(3).map_or(pattern.len(), |(at, _)| from + at);
            format!("invalid or unsupported Perl syntax: `{}`", &pattern[from..until])
        }
        t if t.starts_with("unrecognized escape") => {
            let from = pattern.find('\\').unwrap_or(0);
            let until = pattern[from..].char_indices().nth(2).map_or(pattern.len(), |(at, _)| from + at);
            format!("invalid escape sequence: `{}`", &pattern[from..until])
        }
        other => other.to_owned(),
    };
    format!("error parsing regexp: {what}")
}

/// A branch of an alternative may only narrow values, never declare them.
fn nested(v: &Map<String, Value>, skip_any: bool, path: &str, errors: &mut FieldErrors) {
    value_validation(v, skip_any, false, path, errors);
    if let Some(items) = object(v, "items") {
        nested(items, false, &format!("{path}.items"), errors);
    }
    for (key, property) in properties(v) {
        nested(property, false, &format!("{path}.properties[{key}]"), errors);
    }
    for (key, why) in [
        ("type", "must be empty to be structural"),
        ("additionalProperties", "must be undefined to be structural"),
        ("default", "must be undefined to be structural"),
        ("title", "must be empty to be structural"),
        ("description", "must be empty to be structural"),
        ("nullable", "must be false to be structural"),
        ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
        ("x-kubernetes-embedded-resource", "must be false to be structural"),
        ("x-kubernetes-int-or-string", "must be false to be structural"),
        ("x-kubernetes-list-map-keys", "must be empty to be structural"),
        ("x-kubernetes-list-type", "must be undefined to be structural"),
        ("x-kubernetes-map-type", "must be undefined to be structural"),
        ("x-kubernetes-validations", "must be empty to be structural"),
    ] {
        let set = match v.get(key) {
            None | Some(Value::Null | Value::Bool(false)) => false,
            Some(Value::String(text)) => !text.is_empty() || key == "default",
            Some(Value::Array(list)) => !list.is_empty(),
            Some(_) => true,
        };
        if set {
            errors.push(FieldError::forbidden(format!("{path}.{key}"), why));
        }
    }
    if object(v, "properties").is_some_and(|p| p.contains_key("metadata")) {
        let why = "must not be specified in a nested context";
        errors.push(FieldError::forbidden(format!("{path}.properties[metadata]"), why));
    }
}

/// What alternatives talk about must be declared outside of them.
fn complete(s: &Map<String, Value>, path: &str, errors: &mut FieldErrors) {
    complete_branches(s, s, path, path, errors);
    for (key, property) in properties(s) {
        complete(property, &format!("{path}.properties[{key}]"), errors);
    }
    if let Some(items) = object(s, "items") {
        complete(items, &format!("{path}.items"), errors);
    }
    if let Some(values) = object(s, "additionalProperties") {
        complete(values, &format!("{path}.additionalProperties"), errors);
    }
}

fn complete_branches(
    v: &Map<String, Value>,
    s: &Map<String, Value>,
    s_path: &str,
    v_path: &str,
    errors: &mut FieldErrors,
) {
    for key in ["allOf", "anyOf", "oneOf"] {
        for (index, branch) in objects(v, key) {
            complete_nested(branch, Some(s), s_path, &format!("{v_path}.{key}[{index}]"), errors);
        }
    }
    if let Some(branch) = object(v, "not") {
        complete_nested(branch, Some(s), s_path, &format!("{v_path}.not"), errors);
    }
}

fn complete_nested(
    v: &Map<String, Value>,
    s: Option<&Map<String, Value>>,
    s_path: &str,
    v_path: &str,
    errors: &mut FieldErrors,
) {
    let Some(s) = s else {
        errors.push(FieldError::required(s_path, &format!("because it is defined in {v_path}")));
        return;
    };
    complete_branches(v, s, s_path, v_path, errors);
    if let Some(items) = object(v, "items") {
        let (s_path, v_path) = (format!("{s_path}.items"), format!("{v_path}.items"));
        complete_nested(items, object(s, "items"), &s_path, &v_path, errors);
    }
    for (key, property) in properties(v) {
        let (s_path, v_path) = (format!("{s_path}.properties[{key}]"), format!("{v_path}.properties[{key}]"));
        let declared = object(s, "properties").and_then(|p| p.get(key)).and_then(Value::as_object);
        complete_nested(property, declared, &s_path, &v_path, errors);
    }
}
