//! This edge's own side: what the center sent is read here, and what became of it in the cluster is written here.

use std::sync::Arc;

use cache::object;
use kinds::ObjectKey;
use link::{Key, entry_hash};
use serde_json::Value;
use server::Server;
use store::{Commit, Compare, Op};

use super::{found::Record, outward, plan::Wanted};
use crate::{
    apply::{commit_and_see, delete_record, held, place_of, put_record},
    book::{APPLIED, CLUSTER},
    place,
};

/// Clients write to the same objects; that nobody does so for ever is enough.
const TRIES: usize = 30;

/// What is to be applied, but for the mark; nothing if the center did not send it, or took it away.
pub fn outward_of(server: &Arc<Server>, key: &Key) -> Option<(Value, Wanted)> {
    let parsed = ObjectKey::parse(key).filter(outward::is_for_clusters)?;
    let (held, _) = held(server, key)?;
    let object = place_of(server, &parsed).get()?;
    let value = outward::outward(&parsed, &held, &object.value());
    let text = |field: &str| value[field].as_str().unwrap_or_default().to_owned();
    let hash = entry_hash("", value.to_string().as_bytes());
    let exclusive = place::is_exclusive(&value);
    let wanted = Wanted { api_version: text("apiVersion"), kind: text("kind"), hash, exclusive };
    Some((value, wanted))
}

/// What was written down of objects in the cluster. A record that is damaged is left out, as nothing in the cluster is
/// deleted without one.
pub fn records(server: &Server) -> Vec<(Key, Record)> {
    let all = server.cache.snapshot(APPLIED);
    let read = |object: &Arc<object::Object>| match serde_json::from_slice(&object.json) {
        Ok(record) => Some((Key::from(&*object.key), record)),
        Err(error) => {
            tracing::error!(key = &*object.key, %error, "the record of an object in the cluster is damaged and not used");
            None
        }
    };
    all.items.range("", "").filter_map(read).collect()
}

pub async fn remember(server: &Server, key: &Key, record: &Record) -> Result<(), store::Error> {
    let mut commit = Commit::default();
    put_record(&mut commit, APPLIED, key, record);
    commit_and_see(server, commit).await.map(drop)
}

pub async fn forget(server: &Server, key: &Key) -> Result<(), store::Error> {
    let mut commit = Commit::default();
    delete_record(&mut commit, APPLIED, key);
    commit_and_see(server, commit).await.map(drop)
}

/// Changes an object of the center's here: its status, and notes on it. `change` says whether there is anything to change.
pub async fn change(server: &Arc<Server>, key: &Key, change: impl Fn(&mut Value) -> bool) -> Result<(), store::Error> {
    let Some(parsed) = ObjectKey::parse(key) else { return Ok(()) };
    for _ in 0..TRIES {
        let Some(old) = place_of(server, &parsed).get().filter(|_| held(server, key).is_some()) else { return Ok(()) };
        let mut value = old.value();
        if !change(&mut value) {
            return Ok(());
        }
        let key = parsed.in_store(CLUSTER);
        let mut commit = Commit::default();
        commit.compares.push(Compare { key: key.clone(), modified: old.revision });
        commit.ops.push(Op::Put { key, value: object::encode(&value) });
        if commit_and_see(server, commit).await? {
            return Ok(());
        }
    }
    Ok(())
}
