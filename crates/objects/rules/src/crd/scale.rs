//! The scale subresource, by the JSON paths of the definition.

use schema::field::{FieldError, FieldErrors};
use schema::go::type_name;
use schema::status::Status;
use serde_json::{Map, Value, json};

use super::definition::{Scale, Version};

fn steps(path: &str) -> impl Iterator<Item = &str> {
    path.strip_prefix('.').unwrap_or(path).split('.')
}

/// A value as Go prints it.
fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| schema::go::plain(value), str::to_owned)
}

/// What a path leads to; `None` when a step of it is missing.
fn find<'a>(object: &'a Value, path: &str) -> Result<Option<&'a Value>, String> {
    let mut here = object;
    for step in steps(path) {
        let Value::Object(map) = here else {
            let got = type_name(here);
            return Err(format!(
                "{path} accessor error: {} is of the type {got}, expected map[string]interface{{}}",
                shown(here)
            ));
        };
        match map.get(step) {
            Some(next) => here = next,
            None => return Ok(None),
        }
    }
    Ok(Some(here))
}

fn find_integer(object: &Value, path: &str) -> Result<Option<i64>, String> {
    let Some(value) = find(object, path)? else { return Ok(None) };
    match value.as_i64() {
        Some(number) => Ok(Some(number)),
        None => {
            Err(format!("{path} accessor error: {} is of the type {}, expected int64", shown(value), type_name(value)))
        }
    }
}

fn find_text<'a>(object: &'a Value, path: &str) -> Result<Option<&'a str>, String> {
    let Some(value) = find(object, path)? else { return Ok(None) };
    match value.as_str() {
        Some(text) => Ok(Some(text)),
        None => {
            Err(format!("{path} accessor error: {} is of the type {}, expected string", shown(value), type_name(value)))
        }
    }
}

impl Scale {
    /// The errors of the fields that the scale reads; upstream names them by their path as the definition writes it.
    pub(crate) fn validate(&self, object: &Value, status_only: bool, errors: &mut FieldErrors) {
        let paths = [&self.spec_path, &self.status_path];
        for path in paths.iter().skip(usize::from(status_only)) {
            match find_integer(object, path) {
                Err(why) => errors.push(FieldError::invalid(path.to_string(), &json!(0), &why)),
                Ok(Some(n)) if n < 0 => {
                    errors.push(FieldError::invalid(path.to_string(), &json!(n), "should be a non-negative integer"));
                }
                Ok(Some(n)) if n > i64::from(i32::MAX) => {
                    let why = format!("should be less than or equal to {}", i32::MAX);
                    errors.push(FieldError::invalid(path.to_string(), &json!(n), &why));
                }
                Ok(_) => {}
            }
        }
        if let Some(path) = &self.selector_path
            && let Err(why) = find_text(object, path)
        {
            errors.push(FieldError::invalid(path.to_string(), &json!(""), &why));
        }
    }
}

impl Version {
    /// The `autoscaling/v1` `Scale` of an object; `None` when the version has no scale subresource.
    ///
    /// Upstream fails a read while `specReplicasPath` leads nowhere; [`Version::scale_of`] gives the scale to patch then.
    pub fn scale_get(&self, object: &Value) -> Option<Result<Value, Status>> {
        let paths = self.subresources.scale.as_ref()?;
        Some(self.scale_of(object)?.and_then(|(scale, found)| match found {
            true => Ok(scale),
            false => Err(Status::internal(format!("the spec replicas field \"{}\" does not exist", paths.spec_path))),
        }))
    }

    /// The scale of an object, and whether its `spec.replicas` was there; without it the scale says nothing of it.
    pub fn scale_of(&self, object: &Value) -> Option<Result<(Value, bool), Status>> {
        let paths = self.subresources.scale.as_ref()?;
        Some(read(paths, object).map_err(Status::internal))
    }

    /// Writes the replicas of a `Scale` into an object. Its resourceVersion is a precondition for the caller to keep.
    pub fn scale_set(&self, object: &mut Value, scale: &Value) -> Result<(), Status> {
        let Some(paths) = &self.subresources.scale else { return Err(Status::no_such_path()) };
        let replicas = match scale.get("spec").and_then(|s| s.get("replicas")) {
            None | Some(Value::Null) => 0,
            Some(value) => {
                let number = value.as_i64().and_then(|n| i32::try_from(n).ok());
                number.ok_or_else(|| Status::bad_request("spec.replicas of a Scale must be an int32"))?
            }
        };
        let mut here = object;
        let steps: Vec<&str> = steps(&paths.spec_path).collect();
        for (index, step) in steps.iter().enumerate() {
            let Value::Object(map) = here else {
                let path = steps[..index].join(".");
                return Err(Status::internal(format!(
                    "value cannot be set because .{path} is not a map[string]interface{{}}"
                )));
            };
            let slot = map.entry(step.to_string());
            here = if index + 1 == steps.len() {
                let place = slot.or_insert(Value::Null);
                *place = replicas.into();
                place
            } else {
                slot.or_insert_with(|| Value::Object(Map::new()))
            };
        }
        Ok(())
    }

    /// The values that field selectors of this version may ask for, by their name (`spec.colour`).
    pub fn selectable_values(&self, object: &Value) -> Vec<(String, String)> {
        let text = |path: &str| match find(object, path) {
            Ok(Some(Value::String(text))) => text.clone(),
            Ok(Some(Value::Number(number))) => schema::go::number(number),
            Ok(Some(Value::Bool(flag))) => flag.to_string(),
            _ => String::new(),
        };
        self.selectable_fields.iter().map(|path| (path.trim_start_matches('.').to_owned(), text(path))).collect()
    }
}

fn read(paths: &Scale, object: &Value) -> Result<(Value, bool), String> {
    let spec = find_integer(object, &paths.spec_path)?;
    let status = find_integer(object, &paths.status_path)?;
    let selector = match &paths.selector_path {
        Some(path) => find_text(object, path)?,
        None => None,
    };
    let mut metadata = Map::new();
    for key in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object.get("metadata").and_then(|m| m.get(key)) {
            metadata.insert(key.to_owned(), value.clone());
        }
    }
    let mut scale = json!({
        "apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": metadata,
        "spec": {}, "status": { "replicas": status.unwrap_or(0) as i32 },
    });
    if let Some(replicas) = spec.filter(|n| *n != 0) {
        scale["spec"]["replicas"] = (replicas as i32).into();
    }
    if let Some(selector) = selector.filter(|s| !s.is_empty()) {
        scale["status"]["selector"] = selector.into();
    }
    Ok((scale, spec.is_some()))
}
