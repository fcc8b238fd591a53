//! Objects of the edge's own that the center asks for: reported whole.
//!
//! That something is going to be reported is written down before it is ([`TOLD`]): whatever happens then, the edge knows that the center
//! may have it, and takes it back when it is gone or no longer asked for.

use std::{collections::BTreeSet, sync::Arc};

use bytes::Bytes;
use cache::object::Object;
use kinds::{
    ObjectKey,
    // What is left out is said in the SyncerConfig's status.
    upsync::{ASSOCIATED, LARGEST, MOST, THE_ONE},
};
use link::Key;
use serde_json::Value;
use server::Server;
use server::internal::Internal;
use store::Commit;

use crate::{
    apply::{commit_and_see, place_of, put_record},
    book::{Book, CLUSTER, TOLD},
    held::Reported,
};

/// A Pod of a Job of a CronJob, and one more.
const GENERATIONS: usize = 4;

/// All of an object but what no other server needs. `None` if it is too large.
pub fn state(object: &Object) -> Option<Bytes> {
    let mut value = object.value();
    if let Some(metadata) = value["metadata"].as_object_mut() {
        for field in ["managedFields", "resourceVersion", "selfLink"] {
            metadata.remove(field);
        }
    }
    let state = serde_json::to_vec(&serde_json::json!({"object": value})).unwrap_or_default();
    (state.len() <= LARGEST).then(|| state.into())
}

/// Whether the center asks for an object of the edge's own.
pub fn is_wanted(server: &Arc<Server>, book: &Book, key: &ObjectKey<'_>, object: &Object) -> bool {
    let wanted = book.wanted();
    wanted.asks_for(key) || wanted.may_be_associated(key) && is_associated(server, book, object)
}

/// Whether the object is there because of one that the center sent.
fn is_associated(server: &Arc<Server>, book: &Book, object: &Object) -> bool {
    let mut value = object.value();
    for _ in 0..GENERATIONS {
        let owners = value["metadata"]["ownerReferences"].as_array();
        let Some(owner) = owners.and_then(|all| all.iter().find(|owner| owner["controller"] == true)) else {
            return false;
        };
        let text = |field: &str| owner[field].as_str().unwrap_or_default();
        let Some(kind) = server.kinds.find_kind(CLUSTER, text("apiVersion"), text("kind")) else { return false };
        let namespace = if kind.resource.namespaced { object.namespace() } else { "" };
        let key = ObjectKey { collection: &kind.collection, namespace, name: text("name") };
        let Some(found) = place_of(server, &key).get() else { return false };
        let found = found.value();
        if found["metadata"]["uid"] != owner["uid"] {
            return false;
        }
        if book.holds(&key.to_string().into()) {
            return true;
        }
        if !ASSOCIATED.contains(&key.collection) {
            return false;
        }
        value = found;
    }
    false
}

/// Everything that may be asked for, or was reported before: after a start, and when the center asks for something else.
pub fn candidates(server: &Server, book: &Book) -> BTreeSet<Key> {
    let wanted = book.wanted();
    let told = server.cache.snapshot(TOLD);
    let mut keys: BTreeSet<Key> = told.items.range("", "").map(|record| Key::from(&*record.key)).collect();
    if wanted.is_nothing() {
        return keys;
    }
    let prefix = format!("{CLUSTER}/");
    for collection in server.cache.names().iter().filter(|collection| wanted.concerns(collection)) {
        for object in server.cache.snapshot(collection).items.range(&prefix, "") {
            let key = ObjectKey { collection, namespace: object.namespace(), name: object.name() };
            if wanted.may_be_associated(&key) || wanted.asks_for(&key) {
                keys.insert(key.to_string().into());
            }
        }
    }
    keys
}

/// Writes down that these are going to be reported, as far as there is room.
pub async fn promise(server: &Server, book: &Book, keys: &[Key]) -> Result<(), store::Error> {
    let mut room = MOST.saturating_sub(server.cache.snapshot(TOLD).items.len());
    let mut commit = Commit::default();
    for key in keys.iter().filter(|key| server.cache.get(TOLD, key).is_none()) {
        match room.checked_sub(1) {
            Some(left) => {
                room = left;
                put_record(&mut commit, TOLD, key, &Reported::default());
            }
            None => book.leave_out(key, "there are too many"),
        }
    }
    if commit.ops.is_empty() {
        return Ok(());
    }
    commit_and_see(server, commit).await.map(drop)
}

/// Says in the SyncerConfig's status what is not reported although it is asked for.
pub async fn say_left_out(server: &Arc<Server>, left_out: &[String]) {
    let hand = Internal::new(server, CLUSTER, "selvedge");
    let Ok(kind) = hand.kind("edge.kcp.io", "v1alpha1", "syncerconfigs") else { return };
    let name = THE_ONE.rsplit('/').next().unwrap_or_default();
    let edit = |value: &mut Value| {
        if !left_out.is_empty() {
            value["status"]["leftOut"] = left_out.into();
        } else if let Some(status) = value["status"].as_object_mut() {
            status.remove("leftOut");
        }
    };
    if let Err(error) = hand.change(&kind, "", name, "status", edit).await {
        tracing::debug!(%error, "what is left out of the reports cannot be said");
    }
}
