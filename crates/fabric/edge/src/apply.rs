//! A batch becomes one commit, done wholly or not at all: the objects, what is remembered of them, and how far the edge has followed the center.

use std::sync::Arc;

use bytes::Bytes;
use kinds::ObjectKey;
use link::{ApplyFailure, Batch, Key, entry_hash};
use schema::selector::scan;
use serde_json::Value;
use server::{
    Server,
    replica::{Place, Put},
};
use store::{Commit, Compare, Op, Outcome};

use crate::{
    book::{Book, CLUSTER, GONE, HELD, LINK, Progress, TOLD},
    held::{Held, Reported},
    namespaces::{self, Kept},
    place, report, scale,
};

/// How often a batch is put together anew when local clients write to the same objects.
const TRIES: usize = 30;
pub const NAMESPACES: &str = "core/namespaces";
const DEFINITIONS: &str = "apiextensions.k8s.io/customresourcedefinitions";
/// Where the one record with the progress lies.
const PROGRESS: &str = "progress";

/// Where an object of the link lies on this edge.
pub fn place_of<'a>(server: &'a Arc<Server>, key: &ObjectKey<'a>) -> Place<'a> {
    Place { server, cluster: CLUSTER, collection: key.collection, namespace: key.namespace, name: key.name }
}

/// What is remembered of an object, and the revision at which it was written down.
pub fn held(server: &Server, key: &str) -> Option<(Held, store::Revision)> {
    let record = server.cache.get(HELD, key)?;
    let mut held = Held::read(key, &record.json);
    held.is_autoscaled = ObjectKey::parse(key).is_some_and(|key| scale::is_autoscaled(server, &key));
    Some((held, record.revision))
}

/// Why an object was not taken.
struct Refusal {
    reason: String,
    /// What has to be done here before it can be.
    first: Option<Commit>,
    /// What has to be gone before it can be.
    after: Vec<Key>,
}

impl<T: Into<String>> From<T> for Refusal {
    fn from(reason: T) -> Self {
        Self { reason: reason.into(), first: None, after: Vec::new() }
    }
}

/// Durable when it answers `Ok`, and visible to every reader of this edge.
pub async fn apply(server: &Arc<Server>, book: &Book, batch: &Batch) -> Result<(), ApplyFailure> {
    for _ in 0..TRIES {
        let mut commit = Commit::default();
        let (mut refused, mut kept) = (Vec::new(), Vec::new());
        // Definitions first: what they define may come with them. Namespaces go after what is in them.
        let turn = |(key, content): &&(Key, Option<Bytes>)| match content {
            Some(_) if key.starts_with(DEFINITIONS) => 0,
            None if key.starts_with(NAMESPACES) => 2,
            _ => 1,
        };
        let mut changes: Vec<&(Key, Option<Bytes>)> = batch.changes.iter().collect();
        changes.sort_by_key(turn);
        for (key, content) in changes {
            if let Err(Refusal { reason, first, after }) = change(server, key, content.as_ref(), &mut commit, &mut kept)
            {
                if let Some(first) = first {
                    // If it fails, the next attempt finds that out.
                    let _ = commit_and_see(server, first).await;
                }
                in_the_way(server, key).into_iter().chain(after).for_each(|key| book.wait_for_end_of(key));
                refused.push((key.clone(), reason));
            }
        }
        if !refused.is_empty() {
            return Err(ApplyFailure::Keys(refused));
        }
        write_progress(&mut commit, book.progress().moved_to(batch.position, batch.adopt));
        match commit_and_see(server, commit).await {
            Ok(true) => {
                kept.into_iter().for_each(|kept| drop(tokio::spawn(namespaces::tell(server.clone(), kept))));
                return Ok(());
            }
            Ok(false) => {}
            Err(error) => return Err(ApplyFailure::Whole(error.to_string())),
        }
    }
    Err(ApplyFailure::Whole("clients of this edge keep writing to the same objects".into()))
}

/// What is being deleted here and has to be gone before an object can be taken: its namesake, or its namespace.
fn in_the_way(server: &Arc<Server>, name: &Key) -> Option<Key> {
    let key = ObjectKey::parse(name)?;
    let home = ObjectKey { collection: "core/namespaces", namespace: "", name: key.namespace };
    let is_going = |key: &ObjectKey<'_>| {
        let object = place_of(server, key).get();
        object.is_some_and(|object| scan::raw_at(&object.json, &["metadata", "deletionTimestamp"]).is_some())
    };
    [key, home].iter().find(|key| is_going(key)).map(|key| key.to_string().into())
}

/// False: somebody else was faster. The cache has caught up with them then.
pub async fn commit_and_see(server: &Server, commit: Commit) -> Result<bool, store::Error> {
    let cache = &server.cache;
    // Every object has a version of its own: who watches, and comes again from one of them, misses none of the others.
    match cache.store().commit_apart(commit).await? {
        Outcome::Committed(revision) => {
            cache.wait_for(revision).await;
            Ok(true)
        }
        Outcome::Conflict { found, .. } => {
            cache.see_why(found).await?;
            Ok(false)
        }
    }
}

pub fn write_progress(commit: &mut Commit, progress: Progress) {
    put_record(commit, LINK, PROGRESS, &progress);
}

/// Puts a record of our own. Only the agent writes them, one commit after the other.
pub fn put_record(commit: &mut Commit, collection: &str, key: &str, record: &impl serde::Serialize) {
    let value = serde_json::to_vec(record).unwrap_or_default().into();
    commit.ops.push(Op::Put { key: format!("{collection}/{key}"), value });
}

pub fn delete_record(commit: &mut Commit, collection: &str, key: &str) {
    commit.ops.push(Op::Delete { key: format!("{collection}/{key}") });
}

fn change(
    server: &Arc<Server>,
    name: &Key,
    content: Option<&Bytes>,
    commit: &mut Commit,
    kept: &mut Vec<Kept>,
) -> Result<(), Refusal> {
    let key = ObjectKey::parse(name).ok_or("no key of an object")?;
    // An object in a place where nobody would look for it could never be taken away again.
    if key.collection.starts_with("edge.selvedge.dev/") || key.namespace.contains('/') {
        return Err("no key of an object".into());
    }
    match content {
        Some(content) => put(server, name, &key, content, commit),
        None if key.collection == NAMESPACES => {
            kept.extend(namespaces::remove(server, name, &key, commit)?);
            Ok(())
        }
        None => Ok(remove(server, name, &key, commit)?),
    }
}

fn put(
    server: &Arc<Server>,
    name: &Key,
    key: &ObjectKey<'_>,
    content: &Bytes,
    commit: &mut Commit,
) -> Result<(), Refusal> {
    let sent: Value = serde_json::from_slice(content).map_err(|error| format!("its content is no JSON: {error}"))?;
    if !sent.is_object() {
        return Err("its content is no object".into());
    }
    let place = place_of(server, key);
    let old = place.get();
    let existing = old.as_ref().map(|old| old.value());
    let before = held(server, name).map(|(held, _)| held);
    let source = place::source_of(&sent);
    in_its_own_namespace(server, name, key, (&source, before.as_ref()), commit)?;
    if let Some((old, existing)) = old.as_ref().zip(existing.as_ref()).filter(|_| key.collection == NAMESPACES)
        && let Some(mut record) = namespaces::is_there(key, &sent, existing, before.as_ref())
    {
        // It is this edge's own, and that it is there is all that was asked for.
        record.hash = entry_hash(name, content);
        put_record(commit, HELD, name, &record);
        commit.compares.push(Compare { key: key.in_store(CLUSTER), modified: old.revision });
        return Ok(());
    }
    let left =
        existing.as_ref().is_some_and(|existing| key.collection == NAMESPACES && place::was_left_by(existing, &source));
    let before = before.or_else(|| left.then(Held::default));
    if key.collection == NAMESPACES {
        let exclusive = place::is_exclusive(&sent);
        match (&existing, &before) {
            (Some(existing), None) if exclusive => place::may_adopt(key, existing)?,
            (_, Some(before)) if !before.source.is_empty() && before.source != source => {
                change_owner(server, name, key, before, (&source, exclusive))?;
            }
            _ => {}
        }
    }
    if let Some(old) = old.as_ref().filter(|_| place::is_create_only(&sent)) {
        // It is there, and that is all that was asked for. What of it came from the center is what came first.
        let mut after = before.unwrap_or_else(|| Held { adopted: true, ..Held::default() });
        after.hash = entry_hash(name, content);
        after.source = source;
        put_record(commit, HELD, name, &after);
        commit.compares.push(Compare { key: key.in_store(CLUSTER), modified: old.revision });
        return Ok(());
    }
    let is_edges = |before: &Held| before.adopted && key.collection == NAMESPACES;
    if let Some(existing) = existing.as_ref().filter(|_| before.as_ref().is_none_or(is_edges)) {
        place::may_adopt(key, existing)?;
    }
    let (value, mut after) = place::place(key, sent, existing.as_ref(), before.as_ref());
    after.hash = entry_hash(name, content);
    for former in [GONE, TOLD] {
        // The center has a report of a former object of that name: any state of this one is news.
        if server.cache.get(former, name).is_some() {
            after.reported = Some(Reported::default());
            delete_record(commit, former, name);
        }
    }
    // Before the object: at no revision is it anybody's but the center's.
    put_record(commit, HELD, name, &after);
    let put = place.put(value, old.as_deref(), commit).map_err(|status| status.message)?;
    match (put, &old, &before) {
        // It must still be so when this is durable.
        (Put::Same, Some(old), _) => {
            commit.compares.push(Compare { key: key.in_store(CLUSTER), modified: old.revision });
        }
        (Put::Replaced, Some(_), Some(before)) if !before.adopted => make_way(server, name, key)?,
        _ => {}
    }
    Ok(())
}

/// What a commit is going to remember of an object.
fn coming(commit: &Commit, name: &str) -> Option<Held> {
    let of = |op: &Op| match op {
        Op::Put { key, value } if key.strip_prefix(HELD)?.strip_prefix('/')? == name => {
            serde_json::from_slice(value).ok()
        }
        _ => None,
    };
    commit.ops.iter().rev().find_map(of)
}

/// A namespace is one workspace's, or the edge's own. Nothing of another comes into it, whatever the center says: what is in a namespace
/// can read all that is there.
fn in_its_own_namespace(
    server: &Arc<Server>,
    name: &Key,
    key: &ObjectKey<'_>,
    (source, before): (&str, Option<&Held>),
    commit: &Commit,
) -> Result<(), Refusal> {
    if key.namespace.is_empty() || place::is_everywhere(key.namespace) {
        return Ok(());
    }
    let home = ObjectKey { collection: NAMESPACES, namespace: "", name: key.namespace };
    let name_of_home = Key::from(home.to_string());
    let is_open = |home: &Held| !home.foreign && (home.source == source || home.source.is_empty());
    let known = held(server, &name_of_home).map(|(home, _)| home);
    if known.as_ref().is_some_and(is_open) {
        return Ok(());
    }
    // What the same commit says of the namespace counts.
    match coming(commit, &name_of_home).or(known) {
        Some(home) if home.foreign => {
            let reason = format!("the namespace {} was made on this edge and belongs to it", key.namespace);
            Err(Refusal { reason, first: None, after: vec![name_of_home] })
        }
        Some(home) if is_open(&home) => Ok(()),
        Some(_) => {
            let reason = format!("the namespace {} still belongs to another workspace on this edge", key.namespace);
            let mut refusal = Refusal { reason, first: None, after: vec![name_of_home, name.clone()] };
            if before.is_some_and(|before| before.source != source) {
                // The center has another workspace's in its place: the former one goes, and the namespace after it.
                let mut first = Commit::default();
                remove(server, name, key, &mut first)?;
                refusal.first = Some(first);
            }
            Err(refusal)
        }
        None => match place_of(server, &home).get() {
            Some(found) if !place::was_left_by(&found.value(), source) => {
                let reason = format!("the namespace {} was made on this edge and belongs to it", key.namespace);
                Err(Refusal { reason, first: None, after: vec![name_of_home] })
            }
            // It may come in the same commit.
            _ => Ok(()),
        },
    }
}

/// A namespace goes to another workspace empty. First the center has to take away what the former one has there; that may wait to be
/// confirmed. What is left then (claims, what controllers made, what was to stay behind) goes with the namespace.
fn change_owner(
    server: &Arc<Server>,
    name: &Key,
    key: &ObjectKey<'_>,
    before: &Held,
    (source, exclusive): (&str, bool),
) -> Result<(), Refusal> {
    if before.adopted {
        let refused = || format!("the namespace {} was made on this edge and belongs to it", key.name).into();
        return if exclusive { Err(refused()) } else { Ok(()) };
    }
    let is_inside = |record: &str| ObjectKey::parse(record).is_some_and(|inside| inside.namespace == key.name);
    let left = |record: &str| held(server, record).is_some_and(|(held, _)| held.source != source);
    let records = server.cache.snapshot(HELD);
    let inside = records.items.range("", "").map(|record| &record.key);
    let after: Vec<Key> = inside.filter(|key| is_inside(key) && left(key)).map(|key| Key::from(&**key)).collect();
    if !after.is_empty() {
        let reason = format!("the namespace {} still holds objects of another workspace on this edge", key.name);
        return Err(Refusal { reason, first: None, after });
    }
    make_way(server, name, key)
}

/// What another object takes the place of has to be gone: not while it ends gracefully or somebody's finalizer holds it.
fn make_way(server: &Arc<Server>, name: &Key, key: &ObjectKey<'_>) -> Result<(), Refusal> {
    let mut first = Commit::default();
    remove(server, name, key, &mut first)?;
    let goes = first.ops.iter().any(|op| matches!(op, Op::Delete { key: gone } if *gone == key.in_store(CLUSTER)));
    match goes {
        true => Ok(()),
        false => {
            let reason = format!("the former {} is being deleted here first", key.name);
            Err(Refusal { reason, first: Some(first), after: vec![name.clone()] })
        }
    }
}

pub fn remove(server: &Arc<Server>, name: &Key, key: &ObjectKey<'_>, commit: &mut Commit) -> Result<(), String> {
    // What this edge does not have from the center, the center cannot take away.
    let Some((held, _)) = held(server, name) else { return Ok(()) };
    delete_record(commit, HELD, name);
    let place = place_of(server, key);
    let old = place.get();
    let was_reported = held.reported.is_some();
    if was_reported || old.as_ref().is_some_and(|old| report::state(old, held.hash).is_some()) {
        put_record(commit, GONE, name, &serde_json::json!({}));
    }
    let Some(old) = old else { return Ok(()) };
    let value = old.value();
    let stays = place::is_orphaned(&value, &held);
    let done = match held.adopted {
        _ if stays => place.put(place::orphaned(value), Some(&old), commit).map(drop),
        true => place.put(place::let_go(value, &held), Some(&old), commit).map(drop),
        false => place.remove(&old, place::released(value, &held), commit).map(drop),
    };
    done.map_err(|status| status.message)
}
