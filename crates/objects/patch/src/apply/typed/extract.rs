//! The fields an applied configuration mentions.

use serde_json::Value;

use super::{Atom, Ty, list_element};
use crate::apply::element::PathElement;
use crate::apply::fieldset::FieldSet;

impl<'v> Ty<'v> {
    /// Every leaf, list element and map item of a value. Structs are owned by what is in them.
    pub(crate) fn fields(self, value: &'v Value) -> FieldSet<'v> {
        self.extract(value).1
    }

    /// Whether the value is a leaf, and what is below it.
    fn extract(self, value: &'v Value) -> (bool, FieldSet<'v>) {
        let mut below = FieldSet::new();
        match (self.atom(Some(value)), value) {
            (Atom::Scalar(_) | Atom::AtomicList(_), _) => return (true, below),
            (Atom::Map(fields), _) if fields.atomic => return (true, below),
            (Atom::Map(fields), Value::Object(map)) => {
                for (name, value) in map {
                    let declared = fields.declared_ty(name);
                    let Some(ty) = declared.or(fields.others) else {
                        below.push(PathElement::field(name), true, FieldSet::new());
                        continue;
                    };
                    let (leaf, inner) = ty.extract(value);
                    let empty = value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
                    below.push(PathElement::field(name), leaf || empty || declared.is_none(), inner);
                }
            }
            (Atom::List(items, keys), Value::Array(list)) => {
                let mut elements: Vec<_> =
                    list.iter().filter_map(|v| Some((list_element(items, keys, v).ok()?, v))).collect();
                elements.sort_by(|a, b| a.0.cmp(&b.0));
                let mut rest = elements.into_iter().peekable();
                while let Some((element, value)) = rest.next() {
                    let mut several = false;
                    while rest.next_if(|(next, _)| *next == element).is_some() {
                        several = true;
                    }
                    let inner = if several { FieldSet::new() } else { items.extract(value).1 };
                    below.push(element, true, inner);
                }
            }
            _ => {}
        }
        (false, below)
    }
}
