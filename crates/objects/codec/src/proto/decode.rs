//! Protobuf to JSON.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use schema::messages::{Entry, Message};
use schema::{Schema, SchemaOr, Shape, Struct, TypeId};
use serde_json::{Map, Value};

use super::wire::{Content, Reader};
use crate::decode::format_duration;

/// Deeper than any object, and far from what a stack holds.
const MAX_DEPTH: u32 = 128;
/// How many values a message may become: a few bytes of it can make a value that takes much more.
const MAX_VALUES: u32 = 2_000_000;

type Read<T = Value> = Result<T, String>;

/// The value of a message of this type, with all that the message says.
pub(super) fn message(schema: &Schema, ty: TypeId, bytes: &[u8]) -> Read {
    let mut decoder = Decoder { schema, messages: schema.messages(), values: MAX_VALUES };
    let mut map = Map::new();
    decoder.fields(ty, bytes, &mut map, 0)?;
    Ok(Value::Object(map))
}

struct Decoder<'a> {
    schema: &'a Schema,
    messages: &'a [Message],
    values: u32,
}

impl<'a> Decoder<'a> {
    fn fields(&mut self, ty: TypeId, bytes: &[u8], map: &mut Map<String, Value>, depth: u32) -> Read<()> {
        let Shape::Struct(s) = self.schema.shape(ty) else { return Ok(()) };
        let messages = self.messages;
        self.inline(s, &messages[ty.0 as usize], bytes, map, depth)
    }

    /// The fields of a message, or of one inside it that JSON shows inline.
    fn inline(
        &mut self,
        s: &'a Struct,
        message: &'a Message,
        bytes: &[u8],
        map: &mut Map<String, Value>,
        depth: u32,
    ) -> Read<()> {
        let mut reader = Reader::new(bytes);
        while let Some((number, content)) = reader.field()? {
            match message.get(number) {
                // A newer client's field, which JSON would have dropped as well.
                None => {}
                Some(Entry::Inline(inner)) => self.inline(s, inner, bytes_of(content)?, map, depth)?,
                Some(Entry::Field(index)) => {
                    let field = &s.fields[*index as usize];
                    // Most fields come once; those that repeat are put together.
                    let slot = match map.get_mut(&*field.name) {
                        Some(slot) => slot,
                        None => map.entry(&*field.name).or_insert(Value::Null),
                    };
                    self.merge(field.ty, content, slot, depth)?;
                }
            }
        }
        Ok(())
    }

    /// Adds one occurrence of a field to its value.
    fn merge(&mut self, ty: TypeId, content: Content<'_>, slot: &mut Value, depth: u32) -> Read<()> {
        if depth >= MAX_DEPTH {
            return Err("proto: exceeded max depth".to_owned());
        }
        self.values = self.values.checked_sub(1).ok_or("proto: the message has too many parts")?;
        let schema = self.schema;
        match schema.shape(ty) {
            Shape::Array { items, .. } => {
                let list = list_of(slot)?;
                match (schema.shape(*items), content) {
                    (Shape::Integer { .. }, Content::Bytes(packed)) => {
                        let mut reader = Reader::new(packed);
                        while !reader.is_empty() {
                            list.push(reader.varint()?.cast_signed().into());
                        }
                    }
                    _ => {
                        let mut item = Value::Null;
                        self.merge(*items, content, &mut item, depth + 1)?;
                        list.push(item);
                    }
                }
            }
            Shape::Map { values, .. } => {
                let (key, value) = self.entry(*values, bytes_of(content)?, depth + 1)?;
                map_of(slot)?.insert(key, value);
            }
            Shape::Struct(_) => self.fields(ty, bytes_of(content)?, map_of(slot)?, depth + 1)?,
            Shape::Any => *slot = self.any(ty, bytes_of(content)?, depth + 1)?,
            shape => *slot = scalar(shape, content)?,
        }
        Ok(())
    }

    fn entry(&mut self, values: TypeId, bytes: &[u8], depth: u32) -> Read<(String, Value)> {
        let mut key = String::new();
        let mut value = Value::Null;
        let mut reader = Reader::new(bytes);
        while let Some((number, content)) = reader.field()? {
            match (number, self.schema.shape(values)) {
                (1, _) => key = text_of(bytes_of(content)?)?.to_owned(),
                // A list in a map has a message of its own.
                (2, Shape::Array { .. }) => {
                    let mut items = Reader::new(bytes_of(content)?);
                    list_of(&mut value)?;
                    while let Some((_, item)) = items.field()? {
                        self.merge(values, item, &mut value, depth)?;
                    }
                }
                (2, _) => self.merge(values, content, &mut value, depth)?,
                _ => {}
            }
        }
        if value.is_null() && matches!(self.schema.shape(values), Shape::String | Shape::Bytes) {
            value = "".into();
        }
        Ok((key, value))
    }

    /// `RawExtension` and `JSON` hold text, or a whole object in protobuf; the rest are schemas or something else.
    fn any(&mut self, ty: TypeId, bytes: &[u8], depth: u32) -> Read {
        let Some((other, props)) = self.schema.schema_or(ty) else { return self.raw(bytes, depth) };
        let mut schema = Value::Null;
        let mut rest = Value::Null;
        let mut reader = Reader::new(bytes);
        while let Some((number, content)) = reader.field()? {
            match (other, number) {
                (SchemaOr::Bool, 1) => rest = matches!(content, Content::Varint(1..)).into(),
                (SchemaOr::Bool, 2) | (SchemaOr::Array | SchemaOr::StringArray, 1) => {
                    self.merge(props, content, &mut schema, depth)?;
                }
                (SchemaOr::Array, 2) => {
                    let mut item = Value::Null;
                    self.merge(props, content, &mut item, depth)?;
                    list_of(&mut rest)?.push(item);
                }
                (SchemaOr::StringArray, 2) => list_of(&mut rest)?.push(text_of(bytes_of(content)?)?.into()),
                _ => {}
            }
        }
        Ok(match other {
            _ if !schema.is_null() => schema,
            SchemaOr::Bool if rest.is_null() => false.into(),
            _ => rest,
        })
    }

    fn raw(&mut self, bytes: &[u8], depth: u32) -> Read {
        let mut reader = Reader::new(bytes);
        let mut raw: &[u8] = &[];
        while let Some((number, content)) = reader.field()? {
            if number == 1 {
                raw = bytes_of(content)?;
            }
        }
        if raw.is_empty() {
            return Ok(Value::Null);
        }
        if !super::is_protobuf(raw) {
            return serde_json::from_slice(raw).map_err(|e| format!("raw JSON: {e}"));
        }
        let unknown = super::unwrap(raw).map_err(|e| e.message)?;
        let (group, version) = schema::catalogue::split_api_version(&unknown.api_version);
        let ty = self.schema.of_kind(group, version, &unknown.kind);
        let ty = ty
            .ok_or_else(|| format!("no kind {:?} is registered for version {:?}", unknown.kind, unknown.api_version))?;
        let mut map = Map::new();
        self.merge_object(ty, unknown.raw, &mut map, depth)?;
        map.insert("apiVersion".to_owned(), unknown.api_version.into());
        map.insert("kind".to_owned(), unknown.kind.into());
        Ok(Value::Object(map))
    }

    fn merge_object(&mut self, ty: TypeId, raw: &[u8], map: &mut Map<String, Value>, depth: u32) -> Read<()> {
        if depth >= MAX_DEPTH {
            return Err("proto: exceeded max depth".to_owned());
        }
        self.fields(ty, raw, map, depth + 1)
    }
}

fn scalar(shape: &Shape, content: Content<'_>) -> Read {
    Ok(match (shape, content) {
        (Shape::Boolean, Content::Varint(n)) => (n != 0).into(),
        (Shape::Integer { bits: 32 }, Content::Varint(n)) => (n as i32).into(),
        (Shape::Integer { .. }, Content::Varint(n)) => n.cast_signed().into(),
        (Shape::Number, Content::Fixed64(bits)) => f64::from_bits(bits).into(),
        (Shape::String, Content::Bytes(bytes)) => text_of(bytes)?.into(),
        (Shape::Bytes, Content::Bytes(bytes)) => STANDARD.encode(bytes).into(),
        (Shape::Quantity, Content::Bytes(bytes)) => match only_text(bytes, 1)? {
            "" => Value::Null,
            text => text.into(),
        },
        (Shape::IntOrString, Content::Bytes(bytes)) => int_or_string(bytes)?,
        (Shape::Time, Content::Bytes(bytes)) => time(bytes, "%Y-%m-%dT%H:%M:%SZ")?,
        (Shape::MicroTime, Content::Bytes(bytes)) => time(bytes, "%Y-%m-%dT%H:%M:%S.%6fZ")?,
        (Shape::Duration, Content::Bytes(bytes)) => {
            let [nanos, _] = integers(bytes)?;
            format_duration(nanos).into()
        }
        (Shape::FieldsV1, Content::Bytes(bytes)) => {
            let raw = only_text(bytes, 1)?;
            if raw.is_empty() {
                Value::Null
            } else {
                serde_json::from_str(raw).map_err(|e| format!("fieldsV1: {e}"))?
            }
        }
        _ => return Err("proto: wrong wireType for field".to_owned()),
    })
}

fn int_or_string(bytes: &[u8]) -> Read {
    let [kind, number] = integers(bytes)?;
    Ok(if kind == 1 { only_text(bytes, 3)?.into() } else { (number as i32).into() })
}

/// An empty message is Go's zero time.
fn time(bytes: &[u8], format: &str) -> Read {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let [seconds, nanos] = integers(bytes)?;
    let nanos = i32::try_from(nanos).map_err(|_| "time out of range")?;
    let time = jiff::Timestamp::new(seconds, nanos).map_err(|_| "time out of range")?;
    // Kubernetes clients send the zero time as the seconds of year one, too.
    if seconds == -62_135_596_800 && nanos == 0 {
        return Ok(Value::Null);
    }
    Ok(time.strftime(format).to_string().into())
}

/// The integers with numbers 1 and 2.
fn integers(bytes: &[u8]) -> Read<[i64; 2]> {
    let mut found = [0; 2];
    let mut reader = Reader::new(bytes);
    while let Some((number, content)) = reader.field()? {
        if let (1 | 2, Content::Varint(n)) = (number, content) {
            found[number as usize - 1] = n.cast_signed();
        }
    }
    Ok(found)
}

fn only_text(bytes: &[u8], wanted: u32) -> Read<&str> {
    let mut text = "";
    let mut reader = Reader::new(bytes);
    while let Some((number, content)) = reader.field()? {
        if number == wanted {
            text = text_of(bytes_of(content)?)?;
        }
    }
    Ok(text)
}

pub(super) fn bytes_of(content: Content<'_>) -> Read<&[u8]> {
    match content {
        Content::Bytes(bytes) => Ok(bytes),
        _ => Err("proto: wrong wireType for field".to_owned()),
    }
}

pub(super) fn text_of(bytes: &[u8]) -> Read<&str> {
    std::str::from_utf8(bytes).map_err(|_| "proto: string field contains invalid UTF-8".to_owned())
}

/// The list in a slot, made if there is none yet.
fn list_of(slot: &mut Value) -> Read<&mut Vec<Value>> {
    if slot.is_null() {
        *slot = Value::Array(Vec::new());
    }
    slot.as_array_mut().ok_or_else(mixed)
}

/// The map in a slot, made if there is none yet.
fn map_of(slot: &mut Value) -> Read<&mut Map<String, Value>> {
    if slot.is_null() {
        *slot = Value::Object(Map::new());
    }
    slot.as_object_mut().ok_or_else(mixed)
}

fn mixed() -> String {
    "proto: a field has contents of two kinds".to_owned()
}
