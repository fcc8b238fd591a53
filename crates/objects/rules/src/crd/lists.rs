//! `x-kubernetes-list-type` `set` and `map`: no two elements alike.

use std::collections::HashMap;

use schema::field::{FieldError, FieldErrors};
use schema::json_schema::{Additional, Node};
use serde_json::{Map, Value};

use super::prune::join;

pub(crate) fn validate(value: &Value, node: &Node, path: &str, errors: &mut FieldErrors) {
    match value {
        Value::Object(map) => {
            if let Some(Additional::Schema(values)) = &node.additional {
                for (key, child) in map {
                    validate(child, values, &format!("{path}[{key}]"), errors);
                }
            }
            for (key, child) in map {
                if let Some(declared) = node.properties.get(key.as_str()) {
                    validate(child, declared, &join(path, key), errors);
                }
            }
        }
        Value::Array(list) => {
            if node.list_is("set") {
                for index in repeated(list.iter()) {
                    errors.push(FieldError::duplicate(format!("{path}[{index}]"), &list[index]));
                }
            } else if node.list_is("map") {
                validate_keys(list, node, path, errors);
            }
            if let Some(items) = &node.items {
                for (index, child) in list.iter().enumerate() {
                    validate(child, items, &format!("{path}[{index}]"), errors);
                }
            }
        }
        _ => {}
    }
}

fn validate_keys(list: &[Value], node: &Node, path: &str, errors: &mut FieldErrors) {
    if let Some(index) = list.iter().position(|item| !item.is_object() && !item.is_null()) {
        let why = "must be an object for an array of list-type map";
        errors.push(FieldError::invalid(format!("{path}[{index}]"), &list[index], why));
        return;
    }
    let keys: Vec<Value> = list
        .iter()
        .map(|item| {
            let keys = node.list_map_keys.iter();
            let keys = keys.filter_map(|name| item.get(&**name).map(|v| (name.to_string(), v.clone())));
            Value::Object(keys.collect::<Map<_, _>>())
        })
        .collect();
    for index in repeated(keys.iter()) {
        errors.push(FieldError::duplicate(format!("{path}[{index}]"), &keys[index]));
    }
}

/// Where an element is seen for the second time; a third and later time is not told again.
fn repeated<'a>(list: impl Iterator<Item = &'a Value>) -> Vec<usize> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut repeated = Vec::new();
    for (index, value) in list.enumerate() {
        let times = seen.entry(value.to_string()).or_default();
        *times += 1;
        if *times == 2 {
            repeated.push(index);
        }
    }
    repeated
}
