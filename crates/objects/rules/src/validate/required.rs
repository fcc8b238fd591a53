//! Fields that a schema calls required, for kinds without rules of their own.

use schema::field::{FieldError, FieldErrors};
use schema::{Schema, Shape, TypeId};
use serde_json::Value;

/// Deeper objects are refused when they are decoded.
const MAX_DEPTH: usize = 128;

/// Everything that should be there and is not. Fields below something absent are not missed.
pub fn required(schema: &Schema, ty: TypeId, obj: &Value) -> FieldErrors {
    let mut errors = Vec::new();
    walk(schema, ty, obj, &mut String::new(), 0, &mut errors);
    errors
}

fn walk(schema: &Schema, ty: TypeId, value: &Value, path: &mut String, depth: usize, errors: &mut FieldErrors) {
    if depth > MAX_DEPTH {
        return;
    }
    let length = path.len();
    match (schema.shape(ty), value) {
        (Shape::Struct(fields), Value::Object(map)) => {
            for field in &fields.fields {
                // Metadata has its own rules, which know the kind.
                if depth == 0 && matches!(&*field.name, "metadata" | "status") {
                    continue;
                }
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(&field.name);
                match map.get(&*field.name) {
                    Some(child) if !child.is_null() => walk(schema, field.ty, child, path, depth + 1, errors),
                    _ if field.required => errors.push(FieldError::required(path.as_str(), "")),
                    _ => {}
                }
                path.truncate(length);
            }
        }
        (Shape::Array { items, .. }, Value::Array(list)) => {
            for (i, item) in list.iter().enumerate() {
                path.push_str(&format!("[{i}]"));
                walk(schema, *items, item, path, depth + 1, errors);
                path.truncate(length);
            }
        }
        (Shape::Map { values, .. }, Value::Object(map)) => {
            for (key, item) in map {
                path.push_str(&format!("[{key}]"));
                walk(schema, *values, item, path, depth + 1, errors);
                path.truncate(length);
            }
        }
        _ => {}
    }
}
