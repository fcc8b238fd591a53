//! Objects seen through their schema, as server-side apply sees them: maps, lists and leaves.
//!
//! Values of no declared type are typed by what they are: every field of a map on its own, a list as one leaf.

mod compare;
mod extract;
mod merge;
mod reconcile;
mod remove;
mod validate;

use std::borrow::Cow;

use schema::{ListType, Presence, Schema, Shape, Struct, TypeId};
use serde_json::{Map, Value};

use super::element::{Literal, PathElement};
use super::fieldset::FieldSet;

/// A type in some schema; no id means that it is deduced from the value.
#[derive(Clone, Copy)]
pub(crate) struct Ty<'s> {
    schema: &'s Schema,
    id: Option<TypeId>,
}

/// What differs between two objects.
#[derive(Debug, Default)]
pub(crate) struct Comparison<'v> {
    pub(crate) removed: FieldSet<'v>,
    pub(crate) modified: FieldSet<'v>,
    pub(crate) added: FieldSet<'v>,
}

/// How a type treats a value.
#[derive(Clone, Copy)]
enum Atom<'s> {
    Scalar(Scalar),
    /// A list with one owner.
    AtomicList(Ty<'s>),
    /// A list whose elements are told apart by value (no keys) or by keys.
    List(Ty<'s>, &'s [Box<str>]),
    Map(Fields<'s>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Scalar {
    Numeric,
    Text,
    Boolean,
    Untyped,
}

/// The fields of a struct or the values of a map.
#[derive(Clone, Copy)]
struct Fields<'s> {
    schema: &'s Schema,
    declared: Option<&'s Struct>,
    /// The type of what is not declared, if that is allowed.
    others: Option<Ty<'s>>,
    atomic: bool,
}

impl<'s> Ty<'s> {
    pub(crate) fn new(schema: &'s Schema, id: TypeId) -> Self {
        Self { schema, id: Some(id) }
    }

    fn deduced(schema: &'s Schema) -> Self {
        Self { schema, id: None }
    }

    fn shape(self) -> &'s Shape {
        self.id.map_or(&Shape::Any, |id| self.schema.shape(id))
    }

    /// How to treat a value: for a declared type always the same, otherwise by what the value is.
    fn atom(self, value: Option<&Value>) -> Atom<'s> {
        match self.shape() {
            Shape::Any | Shape::FieldsV1 => match value {
                Some(Value::Bool(_) | Value::Number(_) | Value::String(_)) => Atom::Scalar(Scalar::Untyped),
                Some(Value::Array(_)) => Atom::AtomicList(Ty::deduced(self.schema)),
                // An arbitrary JSON value, such as a default in a CustomResourceDefinition, has one owner.
                Some(Value::Object(_)) | Some(Value::Null) | None => Atom::Map(Fields {
                    schema: self.schema,
                    declared: None,
                    others: Some(Ty::deduced(self.schema)),
                    atomic: self.is_json(),
                }),
            },
            Shape::Boolean => Atom::Scalar(Scalar::Boolean),
            Shape::Integer { .. } | Shape::Number => Atom::Scalar(Scalar::Numeric),
            Shape::IntOrString | Shape::Quantity => Atom::Scalar(Scalar::Untyped),
            Shape::String | Shape::Bytes | Shape::Time | Shape::MicroTime | Shape::Duration => {
                Atom::Scalar(Scalar::Text)
            }
            Shape::Array { items, list } => {
                let items = Ty::new(self.schema, *items);
                match list {
                    ListType::Atomic => Atom::AtomicList(items),
                    ListType::Set => Atom::List(items, &[]),
                    ListType::Map(keys) => Atom::List(items, keys),
                }
            }
            Shape::Map { values, atomic } => Atom::Map(Fields {
                schema: self.schema,
                declared: None,
                others: Some(Ty::new(self.schema, *values)),
                atomic: *atomic,
            }),
            Shape::Struct(s) => Atom::Map(Fields {
                schema: self.schema,
                declared: Some(s),
                others: s.preserve_unknown.then(|| Ty::deduced(self.schema)),
                atomic: s.atomic,
            }),
        }
    }

    fn is_json(self) -> bool {
        self.id.is_some_and(|id| self.schema.get(id).name.ends_with(".JSON"))
    }

    /// Whether this is a struct that declares the field.
    pub(super) fn declares(self, element: &PathElement<'_>) -> bool {
        matches!((self.shape(), element), (Shape::Struct(s), PathElement::Field(name)) if s.field(name).is_some())
    }

    /// The type that a step leads to.
    pub(super) fn step(self, element: &PathElement<'_>) -> Option<Ty<'s>> {
        match (self.atom(None), element) {
            (Atom::Map(fields), PathElement::Field(name)) => fields.ty(name),
            (Atom::List(items, _), PathElement::Key(_)) => Some(items),
            _ => None,
        }
    }
}

impl<'s> Fields<'s> {
    fn declared_ty(&self, name: &str) -> Option<Ty<'s>> {
        self.declared.and_then(|s| s.field(name)).map(|field| Ty::new(self.schema, field.ty))
    }

    fn ty(&self, name: &str) -> Option<Ty<'s>> {
        self.declared_ty(name).or(self.others)
    }
}

impl Atom<'_> {
    fn same_kind(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

fn map_of(value: Option<&Value>) -> Option<&Map<String, Value>> {
    value.and_then(Value::as_object)
}

fn list_of(value: Option<&Value>) -> Option<&[Value]> {
    value.and_then(Value::as_array).map(Vec::as_slice)
}

/// What a key is that an element does not have: its default, or zero where the Go struct always has the field.
fn default_key<'s>(items: Ty<'s>, key: &str) -> Option<Literal<'s>> {
    let field = items.id.and_then(|id| items.schema.field(id, key))?;
    if let Some(default) = &field.default {
        return Some(Literal::of(default));
    }
    if field.presence != Presence::Always {
        return None;
    }
    match items.schema.shape(field.ty) {
        Shape::String => Some(Literal::Text(Cow::Borrowed(""))),
        Shape::Boolean => Some(Literal::Other(Cow::Owned(Value::from(false)))),
        Shape::Integer { .. } => Some(Literal::Other(Cow::Owned(Value::from(0)))),
        _ => None,
    }
}

/// The step to an element of a list that is not atomic. Keys that are missing take their declared default.
fn list_element<'v>(items: Ty<'v>, keys: &'v [Box<str>], element: &'v Value) -> Result<PathElement<'v>, String> {
    if keys.is_empty() {
        return match element {
            Value::Object(_) => Err("associative list without keys has an element that's a map type".to_owned()),
            Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
            Value::Null => Err("associative list without keys has an element that's an explicit null".to_owned()),
            scalar => Ok(PathElement::Value(Literal::of(scalar))),
        };
    }
    let map = match element {
        Value::Object(map) => map,
        Value::Null => return Err("associative list with keys may not have a null element".to_owned()),
        _ => return Err("associative list with keys may not have non-map elements".to_owned()),
    };
    let mut found: Vec<(Cow<'v, str>, Literal<'v>)> = Vec::with_capacity(keys.len());
    for key in keys {
        let value = map.get(&**key).map(Literal::of).or_else(|| default_key(items, key));
        found.extend(value.map(|value| (Cow::Borrowed(&**key), value)));
    }
    if found.is_empty() {
        let keys = keys.iter().map(|k| schema::go::quote(k)).collect::<Vec<_>>().join(" ");
        return Err(format!(
            "associative list with keys has an element that omits all key fields [{keys}] (and doesn't have default values for any key fields)"
        ));
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(PathElement::Key(found))
}
