//! What a request leaves in the audit log.

use schema::status::Result;

use crate::{call::Call, reply::Reply, verbs};

/// What was sent and answered, and what admission noted, as far as the audit log wants it.
pub fn leave(trail: &audit::Trail, call: &Call, answer: &Result<Reply>) {
    let content_type = call.header("content-type");
    trail.sent(call.body.len(), || {
        if content_type.contains("protobuf") {
            return verbs::write::receive(call).ok().map(|received| received.value);
        }
        audit::json_of(content_type, &call.body)
    });
    match answer {
        Ok(Reply::Object { object, .. }) => trail.answered(object.json.len(), || Some(object.value())),
        Ok(Reply::Value { value, .. }) => trail.answered(1024, || Some(value.clone())),
        Ok(Reply::List(list)) => {
            let size = 256 + list.items.iter().map(|object| object.json.len()).sum::<usize>();
            trail.answered(size, || {
                let items: Vec<_> = list.items.iter().map(|object| object.value()).collect();
                let metadata = serde_json::json!({"resourceVersion": list.revision.to_string()});
                let (kind, version) = (call.kind.list_kind(), &call.kind.api_version);
                Some(serde_json::json!({"kind": kind, "apiVersion": version, "metadata": metadata, "items": items}))
            });
        }
        Ok(Reply::Watch(_)) | Err(_) => {}
    }
    trail.annotate(call.notes.annotations());
}
