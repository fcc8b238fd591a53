//! Whether an applied configuration fits its schema, in upstream's words.

use std::collections::BTreeSet;

use schema::go;
use serde_json::Value;

use super::{Atom, Scalar, Ty, list_element};
use crate::apply::element::PathElement;

impl Ty<'_> {
    /// `.spec.replicas: expected numeric (int or float), got string`; several mistakes come one per line.
    pub(crate) fn validate(self, value: &Value) -> Result<(), String> {
        let mut errors = Vec::new();
        self.check(value, &mut String::new(), &mut errors);
        match errors.as_slice() {
            [] => Ok(()),
            [one] => Err(one.clone()),
            many => Err(format!("errors:\n  {}", many.join("\n  "))),
        }
    }

    fn check(self, value: &Value, path: &mut String, errors: &mut Vec<String>) {
        let error = |path: &str, text: String| if path.is_empty() { text } else { format!("{path}: {text}") };
        if value.is_null() {
            return;
        }
        match (self.atom(Some(value)), value) {
            (Atom::Map(fields), Value::Object(map)) => {
                for (name, value) in map {
                    let length = path.len();
                    path.push('.');
                    path.push_str(name);
                    let Some(ty) = fields.ty(name) else {
                        errors.push(error(path, "field not declared in schema".to_owned()));
                        path.truncate(length);
                        return;
                    };
                    ty.check(value, path, errors);
                    path.truncate(length);
                }
            }
            (Atom::Map(_), other) => errors.push(error(path, format!("expected map, got {}", wrapped(other)))),
            (Atom::AtomicList(items), Value::Array(list)) => {
                for (i, value) in list.iter().enumerate() {
                    let length = path.len();
                    path.push_str(&format!("[{i}]"));
                    items.check(value, path, errors);
                    path.truncate(length);
                }
            }
            (Atom::List(items, keys), Value::Array(list)) => {
                let mut seen: BTreeSet<PathElement<'_>> = BTreeSet::new();
                for (i, value) in list.iter().enumerate() {
                    let element = match list_element(items, keys, value) {
                        Ok(element) => element,
                        Err(why) => {
                            errors.push(error(path, format!("element {i}: {why}")));
                            return;
                        }
                    };
                    let step = element.to_string();
                    if !seen.insert(element) {
                        errors.push(error(path, format!("duplicate entries for key {step}")));
                    }
                    let length = path.len();
                    path.push_str(&step);
                    items.check(value, path, errors);
                    path.truncate(length);
                }
            }
            (Atom::List(..) | Atom::AtomicList(_), other) => {
                errors.push(error(path, format!("expected list, got {}", wrapped(other))));
            }
            (Atom::Scalar(scalar), value) => {
                if let Some(text) = scalar.mismatch(value) {
                    errors.push(error(path, text));
                }
            }
        }
    }
}

/// A value as Go prints the pointer to a struct that holds it.
fn wrapped(value: &Value) -> String {
    format!("&{{{}}}", go::plain(value))
}

impl Scalar {
    fn mismatch(self, value: &Value) -> Option<String> {
        match (self, value) {
            (Self::Numeric, Value::Number(_)) | (Self::Text, Value::String(_)) | (Self::Boolean, Value::Bool(_)) => {
                None
            }
            (Self::Untyped, Value::Number(_) | Value::String(_) | Value::Bool(_)) => None,
            (Self::Numeric, other) => Some(format!("expected numeric (int or float), got {}", go::type_name(other))),
            (Self::Text, other) => {
                Some(format!("expected string, got &value.valueUnstructured{{Value:{}}}", go::syntax(other)))
            }
            (Self::Boolean, other) => Some(format!("expected boolean, got {}", wrapped(other))),
            (Self::Untyped, other) => Some(format!("expected any scalar, got {}", wrapped(other))),
        }
    }
}
