//! How objects lie in the store and in memory: as final JSON bytes, in one fixed order.
//!
//! `{"kind":…,"apiVersion":…,"metadata":{"resourceVersion":"",…},…}`. What reads need comes first, so that a scan can
//! stop early; list items of built-in kinds are the same bytes without their first two fields; and the revision, which is
//! known only once the store has committed, is spliced into the one place where it belongs.

use bytes::{BufMut, Bytes, BytesMut};
use serde_json::Value;
use store::Revision;

const REVISION: &[u8] = b"\"metadata\":{\"resourceVersion\":\"";

/// An object as reads serve it.
#[derive(Debug)]
pub struct Object {
    /// `cluster/namespace/name`, unique within its collection; the namespace is empty for cluster-scoped kinds.
    pub key: Box<str>,
    /// Final JSON, with kind, apiVersion and resourceVersion.
    pub json: Bytes,
    pub created: Revision,
    pub revision: Revision,
}

impl Object {
    pub fn cluster(&self) -> &str {
        self.key.split('/').next().unwrap_or_default()
    }

    pub fn namespace(&self) -> &str {
        self.key.split('/').nth(1).unwrap_or_default()
    }

    pub fn name(&self) -> &str {
        self.key.splitn(3, '/').nth(2).unwrap_or_default()
    }

    pub fn value(&self) -> Value {
        serde_json::from_slice(&self.json).unwrap_or_default()
    }

    /// The value without `managedFields`, which are often the larger part of a small object.
    pub fn value_without_owners(&self) -> Value {
        type Parts<'a> = std::collections::BTreeMap<std::borrow::Cow<'a, str>, &'a serde_json::value::RawValue>;
        let parse = |raw: &serde_json::value::RawValue| serde_json::from_str(raw.get()).unwrap_or_default();
        let Ok(parts) = serde_json::from_slice::<Parts<'_>>(&self.json) else { return self.value() };
        let mut value = serde_json::Map::new();
        for (key, raw) in parts {
            let part = match &*key {
                "metadata" => match serde_json::from_str::<Parts<'_>>(raw.get()) {
                    Ok(fields) => {
                        let kept = fields.into_iter().filter(|(field, _)| field != "managedFields");
                        Value::Object(kept.map(|(field, raw)| (field.into_owned(), parse(raw))).collect())
                    }
                    Err(_) => parse(raw),
                },
                _ => parse(raw),
            };
            value.insert(key.into_owned(), part);
        }
        Value::Object(value)
    }

    /// The bytes of a list item: without kind and apiVersion. The opening brace is not part of it.
    pub fn bare(&self) -> &[u8] {
        find(&self.json, b"\"metadata\":{").map_or(&self.json[1..], |at| &self.json[at..])
    }

    /// The `metadata` object's own bytes.
    pub fn metadata(&self) -> &[u8] {
        let Some(at) = find(&self.json, b"\"metadata\":{") else { return b"{}" };
        let start = at + b"\"metadata\":".len();
        &self.json[start..start + object_length(&self.json[start..])]
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
        for (key, v) in metadata.iter().filter(|(key, _)| *key != "resourceVersion") {
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
    let (mut depth, mut in_string, mut escaped) = (0usize, false, false);
    for (i, byte) in json.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => depth += 1,
            b'}' | b']' if !in_string => {
                depth -= 1;
                if depth == 0 {
                    return i + 1;
                }
            }
            _ => {}
        }
    }
    json.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(value: &Value, revision: u64) -> Object {
        Object { key: "root/ns/a".into(), json: with_revision(&encode(value), revision), created: 1, revision }
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
        let mut without = object(&owned, 3).value_without_owners();
        assert_eq!(without["metadata"]["resourceVersion"].take(), "3");
        without["metadata"].as_object_mut().unwrap().remove("resourceVersion");
        assert_eq!(without, value);
        let metadata: Value = serde_json::from_slice(one.metadata()).unwrap();
        assert_eq!(metadata["annotations"]["x"], "}\\\"{");
        let bare = [b"{", one.bare()].concat();
        let bare: Value = serde_json::from_slice(&bare).unwrap();
        assert_eq!(bare["data"]["k"], "v");
        assert!(bare.get("kind").is_none());
        assert_eq!((one.cluster(), one.namespace(), one.name()), ("root", "ns", "a"));
    }
}
