//! Kubernetes protobuf, transcoded by the schema.
//!
//! Messages are written without the zero values that JSON leaves out: decoders read absence as zero. Fields come in the
//! order of JSON, and one that JSON shows inline opens its message anew each time; both are legal and cost a few bytes.

mod decode;
mod encode;
mod wire;

use schema::status::{Result, Status};
use schema::{Schema, TypeId};
use serde::de::DeserializeSeed;
use serde_json::Value;

use decode::{bytes_of, text_of};
pub(crate) use wire::put_bytes;
use wire::{close, open, put_tag, put_varint, varint_length};

/// What every protobuf body of Kubernetes begins with.
pub const MAGIC: &[u8; 4] = b"k8s\0";

/// `runtime.Unknown`: the envelope that says what a message is.
#[derive(Debug, PartialEq)]
pub struct Unknown<'a> {
    pub api_version: String,
    pub kind: String,
    /// The message of the object.
    pub raw: &'a [u8],
    pub content_encoding: String,
    pub content_type: String,
}

pub fn is_protobuf(body: &[u8]) -> bool {
    body.starts_with(MAGIC)
}

/// Opens a body's envelope.
pub fn unwrap(body: &[u8]) -> Result<Unknown<'_>> {
    let Some(envelope) = body.strip_prefix(MAGIC) else {
        let why = if body.is_empty() {
            "empty data"
        } else {
            "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"
        };
        return Err(Status::bad_request(why));
    };
    if envelope.is_empty() {
        return Err(Status::bad_request("empty body"));
    }
    read_unknown(envelope).map_err(Status::bad_request)
}

fn read_unknown(envelope: &[u8]) -> Result<Unknown<'_>, String> {
    let [mut api_version, mut kind, mut content_encoding, mut content_type] = [""; 4];
    let mut raw: &[u8] = &[];
    let mut reader = wire::Reader::new(envelope);
    while let Some((number, content)) = reader.field()? {
        match number {
            1 => {
                let mut type_meta = wire::Reader::new(bytes_of(content)?);
                while let Some((number, content)) = type_meta.field()? {
                    match number {
                        1 => api_version = text_of(bytes_of(content)?)?,
                        2 => kind = text_of(bytes_of(content)?)?,
                        _ => {}
                    }
                }
            }
            2 => raw = bytes_of(content)?,
            3 => content_encoding = text_of(bytes_of(content)?)?,
            4 => content_type = text_of(bytes_of(content)?)?,
            _ => {}
        }
    }
    Ok(Unknown {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        raw,
        content_encoding: content_encoding.to_owned(),
        content_type: content_type.to_owned(),
    })
}

/// The object of a message, as conforming JSON without `apiVersion` and `kind`.
pub fn decode(schema: &Schema, ty: TypeId, raw: &[u8]) -> Result<Value, String> {
    let mut value = decode::message(schema, ty, raw)?;
    crate::decode::conform(schema, ty, &mut value)?;
    Ok(value)
}

/// The message of an object. What does not fit its type is left out.
pub fn encode(schema: &Schema, ty: TypeId, value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    // A value in memory cannot fail to be read.
    let _ = encode::MessageSeed { schema, ty, out: &mut out }.deserialize(value);
    out
}

/// The message of an object, straight from its JSON text, appended to `out`.
pub fn encode_json(schema: &Schema, ty: TypeId, json: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    encode::MessageSeed { schema, ty, out }.deserialize(&mut deserializer).map_err(|e| e.to_string())
}

/// What comes before the items of a list's body, whose messages have these lengths. Items follow by [`put_item`], then
/// [`END`].
pub fn list_head(
    schema: &Schema,
    list: TypeId,
    api_version: &str,
    kind: &str,
    metadata: &Value,
    lengths: impl Iterator<Item = usize>,
) -> Vec<u8> {
    let mut inner = Vec::new();
    if let Some(field) = schema.field(list, "metadata") {
        put_bytes(&mut inner, 1, &encode(schema, field.ty, metadata));
    }
    let items: usize = lengths.map(|length| 1 + varint_length(length) + length).sum();
    let mut out = begin(api_version, kind);
    put_tag(&mut out, 2, wire::BYTES);
    put_varint(&mut out, (inner.len() + items) as u64);
    out.extend_from_slice(&inner);
    out
}

/// One item of a list. Every list of Kubernetes has its items in field 2.
pub fn put_item(out: &mut Vec<u8>, message: &[u8]) {
    put_bytes(out, 2, message);
}

/// Puts a message into its envelope.
pub fn wrap(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let mut out = begin(api_version, kind);
    put_bytes(&mut out, 2, raw);
    out.extend_from_slice(END);
    out
}

/// The envelope's last fields, content encoding and content type: both are written though empty, as upstream does.
pub const END: &[u8] = &[0x1a, 0, 0x22, 0];

fn begin(api_version: &str, kind: &str) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    let start = open(&mut out, 1);
    put_bytes(&mut out, 1, api_version.as_bytes());
    put_bytes(&mut out, 2, kind.as_bytes());
    close(&mut out, start);
    out
}

/// One event of a watch, with its length before it. The event itself has no envelope, its object has.
pub fn put_event(out: &mut Vec<u8>, event: &str, api_version: &str, kind: &str, message: &[u8]) {
    let frame = out.len();
    out.reserve(message.len() + 96);
    out.extend_from_slice(&[0; 4]);
    put_bytes(out, 1, event.as_bytes());
    let envelope = begin(api_version, kind);
    let object = envelope.len() + 1 + varint_length(message.len()) + message.len() + END.len();
    put_tag(out, 2, wire::BYTES);
    put_varint(out, (1 + varint_length(object) + object) as u64);
    put_tag(out, 1, wire::BYTES);
    put_varint(out, object as u64);
    out.extend_from_slice(&envelope);
    put_bytes(out, 2, message);
    out.extend_from_slice(END);
    let length = u32::try_from(out.len() - frame - 4).unwrap_or(u32::MAX);
    out[frame..frame + 4].copy_from_slice(&length.to_be_bytes());
}

#[cfg(test)]
mod tests;
