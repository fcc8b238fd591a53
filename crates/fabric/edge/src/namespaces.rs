//! Namespaces that the center wants and this edge has already, and namespaces that the center takes away while this
//! edge's users have objects of their own in them.

use std::{collections::BTreeSet, sync::Arc};

use kinds::ObjectKey;
use link::Key;
use serde_json::{Value, json};
use server::{Server, internal::Internal};
use store::{Commit, Op};

use crate::{
    apply::{self, delete_record, held, place_of, put_record},
    book::{CLUSTER, GONE, HELD},
    held::Held,
    place, report,
};

/// At most this many objects are named.
const NAMED: usize = 5;

/// What to remember of a Namespace that was made on this edge and that the center only wants to exist. It stays as it
/// is. A workspace that may have it only alone gets nothing into it.
pub fn is_there(key: &ObjectKey<'_>, sent: &Value, existing: &Value, before: Option<&Held>) -> Option<Held> {
    let source = place::source_of(sent);
    let is_edges = before.map_or(!place::was_left_by(existing, &source), |before| before.adopted);
    let is_ending = existing["metadata"]["deletionTimestamp"].is_string();
    if !is_edges || is_ending || place::is_everywhere(key.name) || !place::only_has_to_exist(sent) {
        return None;
    }
    let reported = before.and_then(|before| before.reported);
    Some(Held { source, adopted: true, foreign: place::is_exclusive(sent), reported, ..Held::default() })
}

/// A Namespace that stays, and why: to be told once that is durable.
pub struct Kept {
    namespace: String,
    message: String,
}

/// Takes a Namespace away. It is refused while other objects of the center's are to stay in it, and it stays, as this
/// edge's own, while this edge's users have objects in it.
pub fn remove(
    server: &Arc<Server>,
    name: &Key,
    key: &ObjectKey<'_>,
    commit: &mut Commit,
) -> Result<Option<Kept>, String> {
    let (Some((record, _)), Some(old)) = (held(server, name), place_of(server, key).get()) else {
        return apply::remove(server, name, key, commit).map(|()| None);
    };
    if record.adopted || place::is_orphaned(&old.value(), &record) {
        return apply::remove(server, name, key, commit).map(|()| None);
    }
    let going: BTreeSet<&str> = commit
        .ops
        .iter()
        .filter_map(|op| match op {
            Op::Delete { key } => key.strip_prefix(HELD)?.strip_prefix('/'),
            Op::Put { .. } => None,
        })
        .collect();
    let records = server.cache.snapshot(HELD);
    let is_inside = |record: &str| ObjectKey::parse(record).is_some_and(|inside| inside.namespace == key.name);
    let sent: BTreeSet<&str> =
        records.items.range("", "").map(|record| &*record.key).filter(|record| is_inside(record)).collect();
    let staying = sent.iter().filter(|record| !going.contains(*record)).count();
    if staying > 0 {
        return Err(format!(
            "{staying} objects of the center's are still in the namespace {}: they go first",
            key.name
        ));
    }
    let own = users_own(server, key.name, &sent);
    if own.is_empty() {
        return apply::remove(server, name, key, commit).map(|()| None);
    }
    let listed = own.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = own.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let message = format!(
        "the center takes the namespace {} away, but users of this edge have {} objects of their own in it ({listed}{more}): it stays, with \
         these, and belongs to this edge from now on. Delete it here if it is not needed any more",
        key.name,
        own.len()
    );
    delete_record(commit, HELD, name);
    if record.reported.is_some() || report::state(&old, record.hash).is_some() {
        put_record(commit, GONE, name, &json!({}));
    }
    let value = place::left_behind(old.value(), &record);
    place_of(server, key).put(value, Some(&old), commit).map_err(|status| status.message)?;
    Ok(Some(Kept { namespace: key.name.to_owned(), message }))
}

/// Objects in a namespace that users of this edge made, as `configmaps/menu`.
fn users_own(server: &Arc<Server>, namespace: &str, sent: &BTreeSet<&str>) -> Vec<String> {
    let prefix = format!("{CLUSTER}/{namespace}/");
    let mut own = Vec::new();
    for collection in server.cache.names() {
        // Records of the agent are no objects.
        if collection.contains("/_") {
            continue;
        }
        for object in server.cache.snapshot(&collection).items.range(&prefix, "") {
            let Some(rest) = object.key.strip_prefix(&prefix) else { break };
            let key = ObjectKey { collection: &collection, namespace, name: rest };
            if !sent.contains(&*key.to_string()) && place::is_users_own(&key, &object.value()) {
                own.push(format!("{}/{rest}", collection.rsplit('/').next().unwrap_or_default()));
            }
        }
    }
    own
}

/// In the log, and by an Event in the namespace itself.
pub async fn tell(server: Arc<Server>, Kept { namespace, message }: Kept) {
    tracing::warn!("{message}");
    let hand = Internal::new(&server, CLUSTER, "selvedge-agent");
    let now = clock::now();
    let done = async {
        let kind = hand.kind("", "v1", "events")?;
        let uid = hand.kind("", "v1", "namespaces").ok().and_then(|kind| hand.get(&kind, "", &namespace));
        let uid = uid.map(|object| object.value()["metadata"]["uid"].clone()).unwrap_or_default();
        // An Event lies in the namespace that it says its object is in.
        let about =
            json!({"apiVersion": "v1", "kind": "Namespace", "name": namespace, "namespace": namespace, "uid": uid});
        let event = json!({"metadata": {"name": format!("{namespace}.kept"), "namespace": namespace}, "involvedObject": about,
            "type": "Warning", "reason": "NamespaceKept", "message": message, "source": {"component": "selvedge-agent"},
            "count": 1, "firstTimestamp": now, "lastTimestamp": now});
        hand.ensure(&kind, &namespace, event).await
    };
    if let Err(error) = done.await {
        tracing::debug!(namespace, error = error.message, "no Event could be made of a namespace that stays");
    }
}
