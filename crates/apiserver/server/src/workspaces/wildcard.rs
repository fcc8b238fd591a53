//! `/clusters/*`: what is seen across workspaces says where it is from.

use std::sync::Arc;

use bytes::Bytes;
use cache::Change;
use cache::object::{Object, write_json};
use schema::selector::scan;
use serde_json::Value;

pub const EVERYWHERE: &str = "*";
const ANNOTATION: &str = "kcp.io/cluster";

/// The object with the annotation that names its workspace. One that a user has written there does not count.
pub fn annotated(object: &Object) -> Arc<Object> {
    let json = annotate(&object.json, object.cluster());
    Arc::new(Object::new(object.key.clone(), json, object.created, object.revision))
}

pub fn annotated_change(change: &Change) -> Arc<Change> {
    Arc::new(Change {
        kind: change.kind,
        object: annotated(&change.object),
        previous: change.previous.as_deref().map(annotated),
        message: Default::default(),
    })
}

/// Takes the annotation away again.
pub fn bare(value: &mut Value) {
    let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) else { return };
    if annotations.remove(ANNOTATION).is_some() && annotations.is_empty() {
        metadata.remove("annotations");
    }
}

fn annotate(json: &Bytes, cluster: &str) -> Bytes {
    let mut entry = Vec::with_capacity(cluster.len() + 24);
    write_json(&mut entry, &ANNOTATION);
    entry.push(b':');
    write_json(&mut entry, &cluster);
    let Some(metadata) = scan::raw_at(json, &["metadata"]) else { return json.clone() };
    let offset = |part: &[u8]| part.as_ptr() as usize - json.as_ptr() as usize;
    let splice = |at: usize, end: usize, pieces: &[&[u8]]| {
        let mut out = Vec::with_capacity(json.len() + entry.len() + 32);
        out.extend_from_slice(&json[..at]);
        pieces.iter().for_each(|piece| out.extend_from_slice(piece));
        out.extend_from_slice(&json[end..]);
        Bytes::from(out)
    };
    match scan::raw_at(json, &["metadata", "annotations"]).filter(|raw| raw.starts_with(b"{")) {
        None => {
            // Last, as the first place belongs to the revision.
            let at = offset(metadata) + metadata.len() - 1;
            let comma: &[u8] = if metadata.len() > 2 { b"," } else { b"" };
            splice(at, at, &[comma, b"\"annotations\":{", &entry, b"}"])
        }
        Some(annotations) => {
            let mut kept = vec![b'{'];
            kept.extend_from_slice(&entry);
            for (key, value) in scan::members_at(json, &["metadata", "annotations"]) {
                if key != ANNOTATION {
                    kept.push(b',');
                    write_json(&mut kept, &key);
                    kept.push(b':');
                    kept.extend_from_slice(value);
                }
            }
            kept.push(b'}');
            let at = offset(annotations);
            splice(at, at + annotations.len(), &[&kept])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_say_where_they_are_from() {
        for (json, want) in [
            (
                r#"{"kind":"A","metadata":{"resourceVersion":"5","name":"x"},"data":{}}"#,
                r#"{"kcp.io/cluster":"root:a"}"#,
            ),
            (r#"{"metadata":{"resourceVersion":"5","annotations":{},"name":"x"}}"#, r#"{"kcp.io/cluster":"root:a"}"#),
            (r#"{"metadata":{"annotations":{"b":"c"}}}"#, r#"{"kcp.io/cluster":"root:a","b":"c"}"#),
            (
                r#"{"metadata":{"annotations":{"b":"c","kcp.io/cluster":"root:lie","d":"\"}"},"name":"x"}}"#,
                r#"{"kcp.io/cluster":"root:a","b":"c","d":"\"}"}"#,
            ),
            (r#"{"metadata":{}}"#, r#"{"kcp.io/cluster":"root:a"}"#),
        ] {
            let before: serde_json::Value = serde_json::from_str(json).unwrap();
            let out = annotate(&Bytes::from(json), "root:a");
            let mut after: serde_json::Value = serde_json::from_slice(&out).unwrap_or_else(|e| panic!("{json}: {e}"));
            assert_eq!(scan::raw_at(&out, &["metadata", "annotations"]).unwrap(), want.as_bytes(), "{json}");
            after["metadata"]["annotations"] = before["metadata"]["annotations"].clone();
            if before["metadata"]["annotations"].is_null() {
                after["metadata"].as_object_mut().unwrap().remove("annotations");
            }
            assert_eq!(before, after);
        }
    }
}
