//! An object without some of its fields.

use serde_json::{Map, Value};

use super::{Atom, Ty, list_element};
use crate::apply::element::PathElement;
use crate::apply::fieldset::FieldSet;

impl Ty<'_> {
    /// The value without the fields and elements in `gone`.
    pub(crate) fn without(self, value: &Value, gone: &FieldSet<'_>) -> Value {
        self.keep(value, gone).unwrap_or_else(|| Value::Object(Map::new()))
    }

    /// `None` when nothing is left.
    fn keep(self, value: &Value, gone: &FieldSet<'_>) -> Option<Value> {
        match (self.atom(Some(value)), value) {
            (Atom::Map(fields), Value::Object(map)) if !fields.atomic => {
                let mut out = Map::new();
                for (name, value) in map {
                    let element = PathElement::field(name);
                    if gone.has_member(&element) {
                        continue;
                    }
                    let kept = match gone.below(&element) {
                        Some(gone) => fields.ty(name).unwrap_or_else(|| Ty::deduced(fields.schema)).keep(value, gone),
                        None => Some(value.clone()),
                    };
                    if let Some(kept) = kept {
                        out.insert(name.clone(), kept);
                    }
                }
                (!out.is_empty()).then_some(Value::Object(out))
            }
            (Atom::List(items, keys), Value::Array(list)) => {
                let mut out = Vec::with_capacity(list.len());
                for value in list {
                    let Ok(element) = list_element(items, keys, value) else {
                        out.push(value.clone());
                        continue;
                    };
                    if gone.has_member(&element) {
                        continue;
                    }
                    match gone.below(&element) {
                        Some(gone) => out.extend(items.keep(value, gone)),
                        None => out.push(value.clone()),
                    }
                }
                (!out.is_empty()).then_some(Value::Array(out))
            }
            (Atom::Scalar(_), value) => Some(value.clone()),
            _ => None,
        }
    }
}
