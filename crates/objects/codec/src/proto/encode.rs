//! JSON to protobuf, in one pass over whatever can be deserialized: JSON text or a value.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use schema::{Field, Schema, SchemaOr, Shape, Struct, TypeId};
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::wire::{self, close, open, put_bytes, put_int, put_tag};

/// Writes the fields of one message.
pub(super) struct MessageSeed<'a> {
    pub(super) schema: &'a Schema,
    pub(super) ty: TypeId,
    pub(super) out: &'a mut Vec<u8>,
}

impl<'de> DeserializeSeed<'de> for MessageSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        let shape = self.schema.shape(self.ty);
        deserializer.deserialize_any(Writer {
            schema: self.schema,
            ty: self.ty,
            shape,
            number: Number::Body,
            out: self.out,
        })
    }
}

/// Where a value goes.
#[derive(Clone, Copy)]
enum Number<'a> {
    /// A field with this path of numbers; all but the last are messages that JSON shows inline.
    Path(&'a [u32]),
    /// The message is open already: only its fields are written.
    Body,
}

/// Writes one value. What does not fit its type is left out: it was checked long before it came here.
struct Writer<'a> {
    schema: &'a Schema,
    ty: TypeId,
    shape: &'a Shape,
    number: Number<'a>,
    out: &'a mut Vec<u8>,
}

impl<'a> Writer<'a> {
    fn new(schema: &'a Schema, ty: TypeId, path: &'a [u32], out: &'a mut Vec<u8>) -> Self {
        Writer { schema, ty, shape: schema.shape(ty), number: Number::Path(path), out }
    }

    /// Runs `write` with the number of the innermost message, between opening and closing those around it.
    fn at<T>(&mut self, write: impl FnOnce(&mut Self, u32) -> T) -> Option<T> {
        let Number::Path(path) = self.number else { return None };
        match path {
            [number] => Some(write(self, *number)),
            [outer, rest @ ..] if !rest.is_empty() => {
                let start = open(self.out, *outer);
                self.number = Number::Path(rest);
                let written = self.at(write);
                self.number = Number::Path(path);
                close(self.out, start);
                written
            }
            _ => None,
        }
    }

    /// A message around what `write` writes; the message itself may be open already.
    fn message<T>(&mut self, write: impl FnOnce(&mut Self) -> T) -> Option<T> {
        if matches!(self.number, Number::Body) {
            return Some(write(self));
        }
        self.at(|w, number| {
            let start = open(w.out, number);
            let written = write(w);
            close(w.out, start);
            written
        })
    }

    fn string(&mut self, text: &str) {
        match self.shape {
            Shape::String => drop(self.at(|w, n| put_bytes(w.out, n, text.as_bytes()))),
            Shape::Bytes => {
                if let Ok(bytes) = STANDARD.decode(text) {
                    self.at(|w, n| put_bytes(w.out, n, &bytes));
                }
            }
            Shape::Quantity => drop(self.message(|w| put_bytes(w.out, 1, text.as_bytes()))),
            Shape::IntOrString => {
                self.message(|w| {
                    put_int(w.out, 1, 1);
                    put_bytes(w.out, 3, text.as_bytes());
                });
            }
            Shape::Time | Shape::MicroTime => {
                if let Ok(time) = text.parse::<jiff::Timestamp>() {
                    self.message(|w| {
                        put_int(w.out, 1, time.as_second());
                        put_int(w.out, 2, time.subsec_nanosecond().into());
                    });
                }
            }
            Shape::Duration => {
                if let Some(nanos) = crate::decode::parse_duration(text) {
                    self.message(|w| put_int(w.out, 1, nanos));
                }
            }
            _ => {}
        }
    }

    fn integer(&mut self, value: i64) {
        match self.shape {
            Shape::Integer { .. } => drop(self.at(|w, n| put_int(w.out, n, value))),
            Shape::IntOrString => {
                self.message(|w| {
                    put_int(w.out, 1, 0);
                    put_int(w.out, 2, value);
                });
            }
            Shape::Number => self.double(value as f64),
            _ => {}
        }
    }

    fn double(&mut self, value: f64) {
        if matches!(self.shape, Shape::Number) {
            self.at(|w, n| {
                put_tag(w.out, n, wire::FIXED64);
                w.out.extend_from_slice(&value.to_bits().to_le_bytes());
            });
        }
    }
}

/// One value on its way to a [`Writer`]; values of any shape are taken as text.
impl<'de> DeserializeSeed<'de> for Writer<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(mut self, deserializer: D) -> Result<(), D::Error> {
        let raw = match self.shape {
            Shape::FieldsV1 => true,
            Shape::Any => self.schema.schema_or(self.ty).is_none(),
            _ => false,
        };
        if !raw {
            return deserializer.deserialize_any(self);
        }
        let text = Box::<RawValue>::deserialize(deserializer)?;
        if text.get() != "null" {
            self.message(|w| put_bytes(w.out, 1, text.get().as_bytes()));
        }
        Ok(())
    }
}

impl<'de> Visitor<'de> for Writer<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(mut self, value: bool) -> Result<(), E> {
        match self.shape {
            Shape::Boolean => drop(self.at(|w, n| put_int(w.out, n, value.into()))),
            Shape::Any => drop(self.message(|w| put_int(w.out, 1, value.into()))),
            _ => {}
        }
        Ok(())
    }

    fn visit_i64<E>(mut self, value: i64) -> Result<(), E> {
        self.integer(value);
        Ok(())
    }

    fn visit_u64<E>(mut self, value: u64) -> Result<(), E> {
        match i64::try_from(value) {
            Ok(value) => self.integer(value),
            Err(_) => self.double(value as f64),
        }
        Ok(())
    }

    fn visit_f64<E>(mut self, value: f64) -> Result<(), E> {
        self.double(value);
        Ok(())
    }

    fn visit_str<E>(mut self, text: &str) -> Result<(), E> {
        self.string(text);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut access: A) -> Result<(), A::Error> {
        let schema = self.schema;
        match (self.shape, self.number) {
            (Shape::Array { items, .. }, Number::Path(path)) => {
                while access.next_element_seed(Writer::new(schema, *items, path, self.out))?.is_some() {}
                return Ok(());
            }
            // A list in a place where protobuf has no repeated field is wrapped in a message.
            (Shape::Array { items, .. }, Number::Body) => {
                while access.next_element_seed(Writer::new(schema, *items, &[1], self.out))?.is_some() {}
                return Ok(());
            }
            (Shape::Any, Number::Path(_)) => {
                let items = match self.schema.schema_or(self.ty) {
                    Some((SchemaOr::Array, props)) => Some(props),
                    Some((SchemaOr::StringArray, props)) => string_type(schema, props),
                    _ => None,
                };
                if let Some(items) = items {
                    let written = self.message(|w| {
                        while access.next_element_seed(Writer::new(schema, items, &[2], w.out))?.is_some() {}
                        Ok(())
                    });
                    return written.unwrap_or(Ok(()));
                }
            }
            _ => {}
        }
        while access.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut access: A) -> Result<(), A::Error> {
        let schema = self.schema;
        match self.shape {
            Shape::Struct(s) => self.message(|w| write_fields(schema, s, &mut access, w.out)).unwrap_or(Ok(())),
            Shape::Map { values, .. } => {
                while let Some(key) = access.next_key::<std::borrow::Cow<'_, str>>()? {
                    let written = self.message(|w| {
                        put_bytes(w.out, 1, key.as_bytes());
                        access.next_value_seed(entry_value(schema, *values, w.out))
                    });
                    written.unwrap_or(Ok(()))?;
                }
                Ok(())
            }
            Shape::Any => match self.schema.schema_or(self.ty) {
                Some((variant, props)) => {
                    let written = self.message(|w| {
                        let number = if variant == SchemaOr::Bool { 2 } else { 1 };
                        if variant == SchemaOr::Bool {
                            put_int(w.out, 1, 1);
                        }
                        let start = open(w.out, number);
                        let Shape::Struct(s) = schema.shape(props) else { return Ok(()) };
                        let written = write_fields(schema, s, &mut access, w.out);
                        close(w.out, start);
                        written
                    });
                    written.unwrap_or(Ok(()))
                }
                None => skip(&mut access),
            },
            _ => skip(&mut access),
        }
    }
}

/// The value of a map's entry. Lists cannot repeat there, so they get a message of their own.
fn entry_value<'a>(schema: &'a Schema, ty: TypeId, out: &'a mut Vec<u8>) -> EntryValue<'a> {
    EntryValue { schema, ty, out }
}

struct EntryValue<'a> {
    schema: &'a Schema,
    ty: TypeId,
    out: &'a mut Vec<u8>,
}

impl<'de> DeserializeSeed<'de> for EntryValue<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        let Self { schema, ty, out } = self;
        let shape = schema.shape(ty);
        if !matches!(shape, Shape::Array { .. }) {
            return Writer::new(schema, ty, &[2], out).deserialize(deserializer);
        }
        let start = open(out, 2);
        let written = deserializer.deserialize_any(Writer { schema, ty, shape, number: Number::Body, out: &mut *out });
        close(out, start);
        written
    }
}

fn write_fields<'de, A: MapAccess<'de>>(
    schema: &Schema,
    s: &Struct,
    access: &mut A,
    out: &mut Vec<u8>,
) -> Result<(), A::Error> {
    // Objects are written with sorted keys, and fields are sorted too: the next one is rarely far.
    let mut next = 0;
    while let Some(found) = access.next_key_seed(FieldSeed { fields: &s.fields, next: &mut next })? {
        match found {
            Some(field) if !field.numbers.is_empty() => {
                access.next_value_seed(Writer::new(schema, field.ty, &field.numbers, out))?;
            }
            _ => drop(access.next_value::<IgnoredAny>()?),
        }
    }
    Ok(())
}

fn skip<'de, A: MapAccess<'de>>(access: &mut A) -> Result<(), A::Error> {
    while access.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
    Ok(())
}

/// The string type of a schema, taken from a field that has it.
fn string_type(schema: &Schema, props: TypeId) -> Option<TypeId> {
    schema.field(props, "type").map(|f| f.ty)
}

/// Finds the field a key names, without keeping the key.
struct FieldSeed<'a, 'n> {
    fields: &'a [Field],
    next: &'n mut usize,
}

impl<'de, 'a> DeserializeSeed<'de> for FieldSeed<'a, '_> {
    type Value = Option<&'a Field>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de, 'a> Visitor<'de> for FieldSeed<'a, '_> {
    type Value = Option<&'a Field>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<Self::Value, E> {
        let ahead = self.fields.get(*self.next..).unwrap_or_default();
        let skipped = ahead.iter().take(8).take_while(|f| &*f.name < key).count();
        let at = match ahead.get(skipped) {
            Some(field) if &*field.name == key => Ok(*self.next + skipped),
            _ => self.fields.binary_search_by(|f| (*f.name).cmp(key)),
        };
        Ok(at.ok().map(|at| {
            *self.next = at + 1;
            &self.fields[at]
        }))
    }
}
