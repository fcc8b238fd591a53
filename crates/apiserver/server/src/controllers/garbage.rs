//! Garbage: objects whose owners are gone go too; owners that wait for their dependents, or let them go, are served.
//!
//! The only index is from an owner's uid to the objects that name it. Whether an owner exists is looked up where it would
//! be, so objects without owner references cost nothing here.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use cache::object::Object;
use cache::{Change, ChangeKind};
use schema::selector::scan;
use schema::status::Result;
use serde_json::Value;

use super::{Controllers, queue::Queue};
use crate::{
    Server,
    internal::{Internal, is_held},
    kinds::Kind,
    verbs::delete::Options,
};

const RETRY: Duration = Duration::from_secs(2);

#[derive(Default)]
pub struct Garbage {
    queue: Queue,
    /// Owner's uid → places of objects that name it.
    dependents: Mutex<HashMap<Box<str>, HashSet<Box<str>>>>,
}

impl Garbage {
    /// Notes who owns whom, and queues what may have become garbage.
    pub fn observe(&self, collection: &str, change: &Arc<Change>) {
        let owners = owner_uids(&change.object);
        let before = change.previous.as_deref().map(owner_uids).unwrap_or_default();
        let gone = change.kind == ChangeKind::Deleted;
        let place = || format!("{collection}/{}", change.object.key);
        if !owners.is_empty() || !before.is_empty() {
            let place = place();
            let mut dependents = self.dependents.lock().unwrap_or_else(PoisonError::into_inner);
            let kept: HashSet<&str> = owners.iter().map(|uid| &**uid).collect();
            for uid in before.iter().filter(|uid| gone || !kept.contains(&***uid)) {
                if let Some(places) = dependents.get_mut(uid) {
                    places.remove(place.as_str());
                    if places.is_empty() {
                        dependents.remove(uid);
                    }
                }
            }
            if !gone {
                for uid in &owners {
                    dependents.entry(uid.clone()).or_default().insert(place.as_str().into());
                }
            }
        }
        if gone {
            let uid = scan::string_at(&change.object.json, &["metadata", "uid"]).unwrap_or_default();
            for dependent in self.dependents_of(&uid) {
                self.queue.push(&dependent);
            }
            // An owner that waits for this one may go now.
            for owner in owner_places(&change.object) {
                self.queue.push(&owner);
            }
        } else if !owners.is_empty() || waits(&change.object) {
            self.queue.push(&place());
        }
        // An owner may go when this object does not block it any more.
        if let Some(previous) =
            change.previous.as_deref().filter(|previous| !gone && unblocks(previous, &change.object))
        {
            for owner in owner_places(previous) {
                self.queue.push(&owner);
            }
        }
    }

    fn dependents_of(&self, uid: &str) -> Vec<Box<str>> {
        let dependents = self.dependents.lock().unwrap_or_else(PoisonError::into_inner);
        dependents.get(uid).map(|places| places.iter().cloned().collect()).unwrap_or_default()
    }
}

fn owner_uids(object: &Object) -> Vec<Box<str>> {
    owners(object).iter().filter_map(|o| o["uid"].as_str().map(Into::into)).collect()
}

fn owners(object: &Object) -> Vec<Value> {
    match scan::rare_at(&object.json, &["metadata", "ownerReferences"]) {
        Some(raw) => serde_json::from_slice(raw).unwrap_or_default(),
        None => Vec::new(),
    }
}

/// The owners that were waited for on behalf of this object are not the same as before.
fn unblocks(previous: &Object, object: &Object) -> bool {
    let references =
        |object: &Object| scan::rare_at(&object.json, &["metadata", "ownerReferences"]).map(<[u8]>::to_vec);
    let before = references(previous);
    before.is_some() && before != references(object)
}

/// Owners as queue entries: `?` stands for a collection that has to be looked up by kind.
fn owner_places(object: &Object) -> Vec<String> {
    let place = |owner: Value| {
        let text = |field: &str| owner[field].as_str().unwrap_or_default().to_owned();
        format!("?{}|{}|{}|{}|{}", object.cluster(), object.namespace(), text("apiVersion"), text("kind"), text("name"))
    };
    owners(object).into_iter().map(place).collect()
}

/// It is being deleted and holds one of the collector's finalizers.
fn waits(object: &Object) -> bool {
    scan::rare_at(&object.json, &["metadata", "deletionTimestamp"]).is_some()
        && scan::raw_at(&object.json, &["metadata", "finalizers"]).is_some_and(|raw| {
            let text = String::from_utf8_lossy(raw);
            text.contains("\"orphan\"") || text.contains("\"foregroundDeletion\"")
        })
}

pub async fn run(controllers: Arc<Controllers>, server: Arc<Server>) {
    loop {
        let place = controllers.garbage.queue.pop().await;
        let Some((kind, object)) = find(&server, &place) else { continue };
        let collector = Collector {
            garbage: &controllers.garbage,
            hand: Internal::new(&server, object.cluster(), "kube-controller-manager"),
        };
        if let Err(status) = collector.look_at(&kind, &object).await {
            tracing::warn!(place = &*place, error = %status, "garbage could not be collected; trying again");
            let again = controllers.clone();
            controllers.garbage.queue.again(place, move |place| again.garbage.queue.push(place), RETRY);
        }
    }
}

/// `collection/cluster/namespace/name`, or an owner by kind.
fn find(server: &Server, place: &str) -> Option<(Arc<Kind>, Arc<Object>)> {
    if let Some(owner) = place.strip_prefix('?') {
        let [cluster, namespace, api_version, kind, name] = owner.split('|').collect::<Vec<_>>()[..] else {
            return None;
        };
        return find_owner(server, cluster, namespace, api_version, kind, name);
    }
    let mut parts = place.splitn(4, '/');
    let (group, resource, cluster, rest) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let object = server.cache.get(&format!("{group}/{resource}"), &format!("{cluster}/{rest}"))?;
    let group = if group == "core" { "" } else { group };
    Some((server.kinds.any_version(cluster, group, resource)?, object))
}

fn find_owner(
    server: &Server,
    cluster: &str,
    namespace: &str,
    api_version: &str,
    kind: &str,
    name: &str,
) -> Option<(Arc<Kind>, Arc<Object>)> {
    let kind = server.kinds.find_kind(cluster, api_version, kind)?;
    let namespace = if kind.resource.namespaced { namespace } else { "" };
    let object = server.cache.get(&kind.collection, &kind.key(cluster, namespace, name))?;
    Some((kind, object))
}

struct Collector<'a> {
    garbage: &'a Garbage,
    hand: Internal,
}

#[derive(PartialEq)]
enum Owner {
    /// It exists and stays.
    Solid,
    /// It exists and is being deleted, waiting for its dependents.
    Leaving,
    Gone,
    /// Its kind is not known here: nobody can say.
    Unknown,
}

impl Collector<'_> {
    async fn look_at(&self, kind: &Arc<Kind>, object: &Arc<Object>) -> Result<()> {
        if waits(object) {
            let value = object.value();
            if is_held(&value, "orphan") {
                return self.orphan(kind, object, &value).await;
            }
            if is_held(&value, "foregroundDeletion") {
                self.delete_dependents(kind, object, &value).await?;
            }
        }
        self.judge(kind, object).await
    }

    /// Takes the owner out of its dependents, then lets it go.
    async fn orphan(&self, kind: &Arc<Kind>, object: &Object, value: &Value) -> Result<()> {
        let uid = value["metadata"]["uid"].as_str().unwrap_or_default();
        for place in self.garbage.dependents_of(uid) {
            if let Some((dependent_kind, dependent)) = find(self.hand.server(), &place) {
                self.drop_owners(&dependent_kind, &dependent, &[uid.to_owned()]).await?;
            }
        }
        self.drop_finalizer(kind, object, "orphan").await
    }

    /// Deletes what the owner owns; lets the owner go when nothing that blocks it is left.
    async fn delete_dependents(&self, kind: &Arc<Kind>, object: &Object, value: &Value) -> Result<()> {
        let uid = value["metadata"]["uid"].as_str().unwrap_or_default();
        let mut blocked = false;
        for place in self.garbage.dependents_of(uid) {
            let Some((dependent_kind, dependent)) = find(self.hand.server(), &place) else { continue };
            let blocks = owners(&dependent).iter().any(|o| o["uid"] == uid && o["blockOwnerDeletion"] == true);
            blocked |= blocks;
            if scan::raw_at(&dependent.json, &["metadata", "deletionTimestamp"]).is_none() {
                self.judge(&dependent_kind, &dependent).await?;
            }
        }
        if blocked {
            // The deletion of the last one brings us back here.
            return Ok(());
        }
        self.drop_finalizer(kind, object, "foregroundDeletion").await
    }

    /// Deletes an object none of whose owners is left, and forgets owners that are gone.
    async fn judge(&self, kind: &Arc<Kind>, object: &Arc<Object>) -> Result<()> {
        let owners = owners(object);
        if owners.is_empty() || scan::raw_at(&object.json, &["metadata", "deletionTimestamp"]).is_some() {
            return Ok(());
        }
        let states: Vec<Owner> = owners.iter().map(|owner| self.state(object, owner)).collect();
        if states.contains(&Owner::Unknown) {
            return Ok(());
        }
        let uid = object.value()["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        let gone: Vec<String> = owners
            .iter()
            .zip(&states)
            .filter(|(_, state)| **state != Owner::Solid)
            .filter_map(|(owner, _)| owner["uid"].as_str().map(str::to_owned))
            .collect();
        if states.contains(&Owner::Solid) {
            return if gone.is_empty() { Ok(()) } else { self.drop_owners(kind, object, &gone).await };
        }
        // What itself has dependents that block goes in the foreground too, so that the whole tree is gone before the root.
        let foreground = states.contains(&Owner::Leaving) && !self.garbage.dependents_of(&uid).is_empty();
        if foreground && self.is_in_circle(&uid) {
            self.unblock_owners(kind, object).await?;
        }
        let options = if foreground { Options::foreground() } else { Options::background() };
        self.hand.delete(kind, object, &options.with_uid(&uid)).await
    }

    /// A dependent is itself waiting for its dependents. As upstream does, this is taken for a circle of owners, whose
    /// members would wait for each other.
    fn is_in_circle(&self, uid: &str) -> bool {
        let dependents = self.garbage.dependents_of(uid);
        let mut found = dependents.iter().filter_map(|place| find(self.hand.server(), place));
        found.any(|(_, dependent)| waits(&dependent) && is_held(&dependent.value(), "foregroundDeletion"))
    }

    /// The owners of this object no longer wait for it.
    async fn unblock_owners(&self, kind: &Arc<Kind>, object: &Object) -> Result<()> {
        let edit = |value: &mut Value| {
            for owner in value["metadata"]["ownerReferences"].as_array_mut().into_iter().flatten() {
                owner["blockOwnerDeletion"] = false.into();
            }
        };
        self.hand.change(kind, object.namespace(), object.name(), "", edit).await.map(drop)
    }

    fn state(&self, object: &Object, owner: &Value) -> Owner {
        let text = |field: &str| owner[field].as_str().unwrap_or_default();
        let server = self.hand.server();
        if server.kinds.find_kind(object.cluster(), text("apiVersion"), text("kind")).is_none() {
            return Owner::Unknown;
        }
        let found =
            find_owner(server, object.cluster(), object.namespace(), text("apiVersion"), text("kind"), text("name"));
        match found {
            Some((_, found))
                if scan::string_at(&found.json, &["metadata", "uid"]).unwrap_or_default() == text("uid") =>
            {
                let foreground = scan::raw_at(&found.json, &["metadata", "finalizers"])
                    .is_some_and(|raw| String::from_utf8_lossy(raw).contains("\"foregroundDeletion\""));
                let deleted = scan::raw_at(&found.json, &["metadata", "deletionTimestamp"]).is_some();
                if deleted && foreground { Owner::Leaving } else { Owner::Solid }
            }
            _ => Owner::Gone,
        }
    }

    async fn drop_owners(&self, kind: &Arc<Kind>, object: &Object, uids: &[String]) -> Result<()> {
        let edit = |value: &mut Value| {
            let Some(metadata) = value["metadata"].as_object_mut() else { return };
            if let Some(list) = metadata.get_mut("ownerReferences").and_then(Value::as_array_mut) {
                list.retain(|o| !uids.iter().any(|uid| o["uid"] == uid.as_str()));
                if list.is_empty() {
                    metadata.remove("ownerReferences");
                }
            }
        };
        self.hand.change(kind, object.namespace(), object.name(), "", edit).await.map(drop)
    }

    async fn drop_finalizer(&self, kind: &Arc<Kind>, object: &Object, name: &str) -> Result<()> {
        let edit = |value: &mut Value| {
            let Some(metadata) = value["metadata"].as_object_mut() else { return };
            if let Some(list) = metadata.get_mut("finalizers").and_then(Value::as_array_mut) {
                list.retain(|f| f != name);
                if list.is_empty() {
                    metadata.remove("finalizers");
                }
            }
        };
        self.hand.change(kind, object.namespace(), object.name(), "", edit).await.map(drop)
    }
}
