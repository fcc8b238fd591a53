//! What becomes of a write that waited once it is decided: each in one commit with what it means for the object here.

use std::sync::Arc;

use kinds::{
    ObjectKey,
    forward::{self, Done, hexadecimal},
    names,
};
use schema::status::Status;
use serde_json::{Value, json};
use server::Server;
use server::internal::Internal;
use store::Commit;

use super::{
    part,
    queue::{self, FINALIZER, OfflineWrite, State},
};
use crate::{
    apply::{self, commit_and_see, place_of},
    book::CLUSTER,
};

/// The center has it.
pub async fn taken(server: &Arc<Server>, write: &OfflineWrite, done: &Done) -> Result<bool, store::Error> {
    let mut commit = Commit::default();
    write.delete(&mut commit);
    match later(server, write).first() {
        Some(next) => {
            let mut next = next.clone();
            next.spec.after = String::new();
            next.spec.write.precondition = done.hash.clone();
            next.spec.base = done.content.clone();
            next.write(&mut commit);
        }
        None => unmark(server, write, None, &mut commit),
    }
    commit_and_see(server, commit).await
}

/// The center does not take it: that stays readable, and the object goes back to what the center has.
pub async fn decided(
    server: &Arc<Server>,
    write: &OfflineWrite,
    state: State,
    status: &Status,
) -> Result<bool, store::Error> {
    let mut commit = Commit::default();
    let mut wanted = write.spec.base.clone();
    let mut told = Vec::new();
    for (n, one) in [write.clone()].into_iter().chain(later(server, write)).enumerate() {
        let mut one = one;
        wanted = result(wanted, &one.spec.write.change);
        one.status.wanted = wanted.clone();
        one.status.decided = clock::now();
        (one.status.state, one.status.code) = (state, Some(status.code));
        (one.status.reason, one.status.message) = (status.reason.to_owned(), status.message.clone());
        if n > 0 {
            one.status.state = State::Conflict;
            one.status.code = Some(409);
            one.status.reason = "Conflict".into();
            one.status.message = format!("it builds on {}, which the center did not take", write.name());
        }
        drop_finalizer(&mut one);
        one.write(&mut commit);
        told.push(one);
    }
    unmark(server, write, write.spec.base.as_ref(), &mut commit);
    let done = commit_and_see(server, commit).await?;
    if done {
        for one in &told {
            tell(server, one).await;
        }
    }
    Ok(done)
}

/// Somebody deletes a write that waits: it never was, and what builds on it has nothing to build on.
pub async fn take_back(server: &Arc<Server>, write: &OfflineWrite) -> Result<bool, store::Error> {
    let earlier = queue::waiting_for(server, &write.spec.write.key).into_iter();
    let earlier: Vec<_> = earlier.take_while(|one| one.name() < write.name()).collect();
    let mut commit = Commit::default();
    write.delete(&mut commit);
    for mut one in later(server, write) {
        one.status.state = State::Conflict;
        one.status.message = format!("it builds on {}, which was taken back", write.name());
        one.status.decided = clock::now();
        drop_finalizer(&mut one);
        one.write(&mut commit);
    }
    let base = earlier.first().unwrap_or(write).spec.base.clone();
    // What the earlier ones make of it stays.
    let base = earlier.iter().fold(base, |base, one| result(base, &one.spec.write.change));
    match earlier.last() {
        Some(last) => restore(server, write, base.as_ref(), Some(last.name()), &mut commit),
        None => unmark(server, write, base.as_ref(), &mut commit),
    }
    commit_and_see(server, commit).await
}

/// The writes to the same object that build on this one.
fn later(server: &Server, write: &OfflineWrite) -> Vec<OfflineWrite> {
    let mut all = queue::waiting_for(server, &write.spec.write.key);
    all.retain(|one| one.name() > write.name());
    all
}

fn drop_finalizer(write: &mut OfflineWrite) {
    if let Some(list) = write.metadata["finalizers"].as_array_mut() {
        list.retain(|name| name != FINALIZER);
    }
}

/// What a write makes of the center's part of an object.
fn result(base: Option<Value>, change: &forward::Change) -> Option<Value> {
    let mut value = base?;
    match change {
        forward::Change::Patch(patch) => patch::merge(&mut value, patch),
        forward::Change::Replicas(replicas) => value["spec"]["replicas"] = (*replicas).into(),
        forward::Change::Delete(_) => return None,
    }
    Some(value)
}

/// Nothing waits for the object any more.
fn unmark(server: &Arc<Server>, write: &OfflineWrite, base: Option<&Value>, commit: &mut Commit) {
    restore(server, write, base, None, commit);
}

/// Puts the center's part back, if the center has sent nothing since, and says what else waits.
fn restore(server: &Arc<Server>, write: &OfflineWrite, base: Option<&Value>, mark: Option<&str>, commit: &mut Commit) {
    let Some(key) = ObjectKey::parse(&write.spec.write.key) else { return };
    let place = place_of(server, &key);
    let Some(old) = place.get() else { return };
    let mut value = old.value();
    let held = apply::held(server, &write.spec.write.key);
    if let (Some(base), Some((held, _))) = (base, &held)
        && builds_on(server, write) == Some(hexadecimal(held.hash))
    {
        part::replace_center(key.collection, held, &mut value, base);
    }
    if let Some(annotations) = value["metadata"]["annotations"].as_object_mut() {
        match mark {
            Some(mark) => _ = annotations.insert(names::PENDING.into(), mark.into()),
            None => _ = annotations.remove(names::PENDING),
        }
        if annotations.is_empty()
            && let Some(metadata) = value["metadata"].as_object_mut()
        {
            metadata.remove("annotations");
        }
    }
    if let Err(status) = place.put(value, Some(&old), commit) {
        // The center sends it again when it changes; nothing else depends on this.
        tracing::warn!(object = %key, error = %status, "an object could not be put back to what the center has");
    }
}

/// What stands for the object on which the first of the writes to it builds.
fn builds_on(server: &Server, write: &OfflineWrite) -> Option<String> {
    if !write.spec.write.precondition.is_empty() {
        return Some(write.spec.write.precondition.clone());
    }
    queue::waiting_for(server, &write.spec.write.key).into_iter().next().map(|first| first.spec.write.precondition)
}

/// An Event on the object that was not written.
async fn tell(server: &Arc<Server>, write: &OfflineWrite) {
    let about = &write.spec.object;
    let namespace = if about.namespace.is_empty() { "default" } else { &about.namespace };
    let hand = Internal::new(server, CLUSTER, "selvedge");
    let Ok(kind) = hand.kind("", "v1", "events") else { return };
    let now = clock::now();
    // Names of roles have colons, and names may be as long as an Event's own.
    let short: String = about.name.chars().take(200).filter(|c| *c != ':').collect();
    let message = format!(
        "A write of {:?} that waited for the center as OfflineWrite {} was not taken: {}",
        write.spec.write.user.name,
        write.name(),
        write.status.message
    );
    let event = json!({
        "metadata": {"name": format!("{short}.{}", write.name()), "namespace": namespace},
        "involvedObject": {"apiVersion": about.api_version, "kind": about.kind, "name": about.name, "namespace": about.namespace},
        "reason": format!("OfflineWrite{:?}", write.status.state), "message": message.chars().take(1024).collect::<String>(),
        "type": "Warning", "count": 1, "firstTimestamp": now, "lastTimestamp": now,
        "source": {"component": "selvedge"}, "reportingComponent": "selvedge", "reportingInstance": "edge",
    });
    if let Err(error) = hand.ensure(&kind, namespace, event).await {
        tracing::warn!(%error, "an event could not be written");
    }
}
