//! Defaults of a version's schema.

use schema::json_schema::{Additional, Node};
use serde_json::Value;

fn is_refused_null(value: &Value, node: &Node) -> bool {
    value.is_null() && !node.nullable
}

/// Removes nulls where null is no value and there is no default to take its place.
pub(crate) fn remove_nulls(value: &mut Value, node: &Node) {
    match value {
        Value::Object(map) => {
            map.retain(|key, child| {
                let Some(node) = node.child(key) else { return true };
                if is_refused_null(child, node) && node.default.is_none() {
                    return false;
                }
                remove_nulls(child, node);
                true
            });
        }
        Value::Array(list) => {
            if let Some(items) = &node.items {
                list.iter_mut().for_each(|child| remove_nulls(child, items));
            }
        }
        _ => {}
    }
}

/// Fills in the defaults below `node`, also for nulls where null is no value.
pub(crate) fn fill(value: &mut Value, node: &Node) {
    match value {
        Value::Object(map) => {
            for (name, child) in &node.properties {
                let Some(default) = &child.default else { continue };
                if map.get(&**name).is_none_or(|v| is_refused_null(v, child)) {
                    map.insert(name.to_string(), default.clone());
                }
            }
            for (key, value) in map.iter_mut() {
                if let Some(child) = node.properties.get(key.as_str()) {
                    fill(value, child);
                } else if let Some(Additional::Schema(child)) = &node.additional {
                    fill_element(value, child);
                }
            }
        }
        Value::Array(list) => {
            if let Some(items) = &node.items {
                list.iter_mut().for_each(|value| fill_element(value, items));
            }
        }
        _ => {}
    }
}

fn fill_element(value: &mut Value, node: &Node) {
    if is_refused_null(value, node)
        && let Some(default) = &node.default
    {
        *value = default.clone();
    }
    fill(value, node);
}
