//! How objects lie in the store and in memory: as final JSON bytes, in one fixed order.
//!
//! `{"kind":…,"apiVersion":…,"metadata":{"resourceVersion":"",…},…}`. What reads need comes first, so that a scan can
//! stop early; list items of built-in kinds are the same bytes without their first two fields; and the revision, which is
//! known only once the store has committed, is spliced into the one place where it belongs.

use std::{borrow::Cow, sync::OnceLock};

use bytes::{BufMut, Bytes, BytesMut};
use serde_json::Value;
use store::Revision;

use crate::message::Message;

const METADATA: &[u8] = b"\"metadata\":{";
const OWNERS: &str = "managedFields";
const REVISION: &[u8] = b"\"metadata\":{\"resourceVersion\":\"";

/// The annotation, with its value, of objects that are stored here only to be passed on. This server does not act on them.
pub const INERT: (&str, &str) = ("edge.selvedge.dev/only", "edge");

/// An object as reads serve it.
#[derive(Debug)]
pub struct Object {
    /// `cluster/namespace/name`, unique within its collection; the namespace is empty for cluster-scoped kinds.
    pub key: Box<str>,
    /// Final JSON, with kind, apiVersion and resourceVersion.
    pub json: Bytes,
    pub created: Revision,
    pub revision: Revision,
    /// Where the metadata lies within the JSON; nowhere if there is none.
    metadata: std::ops::Range<u32>,
    /// The object in protobuf, once somebody has read it so.
    message: OnceLock<Message>,
}

impl Object {
    pub fn new(key: Box<str>, json: Bytes, created: Revision, revision: Revision) -> Self {
        let metadata = find(&json, METADATA).map(|at| at + METADATA.len() - 1);
        let metadata = metadata.map_or(0..0, |start| start..start + object_length(&json[start..]));
        // No object is near four gigabytes.
        let metadata = metadata.start as u32..metadata.end as u32;
        Self { key, json, created, revision, metadata, message: OnceLock::new() }
    }

    /// The same object under a later revision: what a deletion shows.
    pub fn at_revision(&self, revision: Revision) -> Self {
        Self::new(self.key.clone(), with_revision(&self.json, revision), self.created, revision)
    }

    /// As printers read it.
    pub fn tree(&self) -> codec::table::Node<'_> {
        codec::table::Node::object(&self.json, self.metadata.start as usize..self.metadata.end as usize, self.name())
    }

    /// The object in protobuf, kept for the next reader while there is room. What `encode` makes must depend on nothing but the JSON.
    pub fn message(&self, encode: impl FnOnce(&[u8]) -> Vec<u8>) -> Cow<'_, [u8]> {
        if let Some(message) = self.kept_message() {
            return Cow::Borrowed(message);
        }
        match Message::keep(encode(&self.json)) {
            Ok(message) => Cow::Borrowed(self.message.get_or_init(|| message).bytes()),
            Err(bytes) => Cow::Owned(bytes),
        }
    }

    pub fn kept_message(&self) -> Option<&[u8]> {
        self.message.get().map(Message::bytes)
    }

    pub fn cluster(&self) -> &str {
        self.key.split('/').next().unwrap_or_default()
    }

    pub fn namespace(&self) -> &str {
        self.key.split('/').nth(1).unwrap_or_default()
    }

    pub fn name(&self) -> &str {
        // No name has a slash in it, and this is read for every row of a table.
        let slash = self.key.bytes().rposition(|b| b == b'/');
        slash.map_or("", |at| &self.key[at + 1..])
    }

    pub fn value(&self) -> Value {
        serde_json::from_slice(&self.json).unwrap_or_default()
    }

    /// Whether it means something to this server: not if it is here only to be passed on to others ([`INERT`]).
    pub fn acts_here(&self) -> bool {
        let only = schema::selector::scan::string_at(self.metadata(), &["annotations", INERT.0]);
        only.as_deref() != Some(INERT.1)
    }

    /// The bytes of a list item: without kind and apiVersion. The opening brace is not part of it.
    pub fn bare(&self) -> &[u8] {
        let start = (self.metadata.start as usize + 1).saturating_sub(METADATA.len()).max(1);
        self.json.get(start..).unwrap_or_default()
    }

    /// The `metadata` object's own bytes.
    pub fn metadata(&self) -> &[u8] {
        let range = self.metadata.start as usize..self.metadata.end as usize;
        self.json.get(range).filter(|metadata| !metadata.is_empty()).unwrap_or(b"{}")
    }
}

/// Lays a value out for the store. The revision's place is left empty.
pub fn encode(value: &Value) -> Bytes {
    let mut out = Vec::with_capacity(1024);
    out.push(b'{');
    let empty = serde_json::Map::new();
    let object = value.as_object().unwrap_or(&empty);
    for key in ["kind", "apiVersion"] {
        if let Some(v) = object.get(key) {
            write_entry(&mut out, key, v);
            out.push(b',');
        }
    }
    out.extend_from_slice(REVISION);
    out.push(b'"');
    if let Some(Value::Object(metadata)) = object.get("metadata") {
        let rest = metadata.iter().filter(|(key, _)| !matches!(key.as_str(), "resourceVersion" | OWNERS));
        // Who manages which fields comes last, as upstream has it: readers of the rest can stop there.
        for (key, v) in rest.chain(metadata.get_key_value(OWNERS)) {
            out.push(b',');
            write_entry(&mut out, key, v);
        }
    }
    out.push(b'}');
    for (key, v) in object {
        if !matches!(key.as_str(), "kind" | "apiVersion" | "metadata") {
            out.push(b',');
            write_entry(&mut out, key, v);
        }
    }
    out.push(b'}');
    out.into()
}

fn write_entry(out: &mut Vec<u8>, key: &str, value: &Value) {
    write_json(out, &key);
    out.push(b':');
    write_json(out, value);
}

/// Writing JSON into memory cannot fail: keys are strings and a `Vec` takes everything.
pub fn write_json(out: &mut Vec<u8>, value: &impl serde::Serialize) {
    if let Err(error) = serde_json::to_writer(out, value) {
        tracing::error!(%error, "a value could not be written as JSON");
    }
}

/// Puts the revision in its place.
pub fn with_revision(stored: &[u8], revision: Revision) -> Bytes {
    let Some(at) = find(stored, REVISION) else { return Bytes::copy_from_slice(stored) };
    let at = at + REVISION.len();
    let end = at + stored[at..].iter().position(|b| *b == b'"').unwrap_or(0);
    let mut digits = [0u8; 20];
    let digits = decimal(revision, &mut digits);
    let mut out = BytesMut::with_capacity(stored.len() + digits.len() - (end - at));
    out.put_slice(&stored[..at]);
    out.put_slice(digits);
    out.put_slice(&stored[end..]);
    out.freeze()
}

fn decimal(mut number: u64, room: &mut [u8; 20]) -> &[u8] {
    let mut at = room.len();
    loop {
        at -= 1;
        room[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &room[at..];
        }
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    // Kind and apiVersion are short, so what is looked for is within the first few hundred bytes or not there.
    let end = haystack.len().min(1024);
    haystack[..end].windows(needle.len()).position(|w| w == needle)
}

/// How long the JSON object is that begins here.
fn object_length(json: &[u8]) -> usize {
    schema::selector::scan::raw_at(json, &[]).map_or(json.len(), <[u8]>::len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(value: &Value, revision: u64) -> Object {
        Object::new("root/ns/a".into(), with_revision(&encode(value), revision), 1, revision)
    }

    #[test]
    fn revision_is_spliced_and_replaced() {
        let value = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "resourceVersion": "7"},
            "data": {"k": "\"metadata\":{\"resourceVersion\":\"9"}});
        let one = object(&value, 12);
        assert_eq!(one.value()["metadata"]["resourceVersion"], "12");
        assert_eq!(one.value()["data"], value["data"]);
        let again = with_revision(&one.json, 1234);
        assert_eq!(serde_json::from_slice::<Value>(&again).unwrap()["metadata"]["resourceVersion"], "1234");
    }

    #[test]
    fn parts_are_found() {
        let value = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "a", "annotations": {"x": "}\\\"{"}}, "data": {"k": "v"}});
        let one = object(&value, 3);
        let mut owned = value.clone();
        owned["metadata"]["managedFields"] = json!([{"manager": "x"}]);
        let owned = object(&owned, 3);
        assert!(owned.metadata().ends_with(br#","managedFields":[{"manager":"x"}]}"#));
        let tree = owned.tree();
        for (pointer, want) in [("/metadata/annotations/x", "}\\\"{"), ("/data/k", "v"), ("/kind", "ConfigMap")] {
            assert_eq!(tree.pointer(pointer).and_then(|x| x.as_str()).as_deref(), Some(want), "{pointer}");
        }
        let metadata: Value = serde_json::from_slice(one.metadata()).unwrap();
        assert_eq!(metadata["annotations"]["x"], "}\\\"{");
        let bare = [b"{", one.bare()].concat();
        let bare: Value = serde_json::from_slice(&bare).unwrap();
        assert_eq!(bare["data"]["k"], "v");
        assert!(bare.get("kind").is_none());
        assert_eq!((one.cluster(), one.namespace(), one.name()), ("root", "ns", "a"));
        assert!(one.acts_here());
        let elsewhere = json!({"metadata": {"annotations": {"edge.selvedge.dev/only": "edge"}}});
        assert!(!object(&elsewhere, 3).acts_here());
    }
}
