//! What the edge remembers beside its objects: kept in the same store and the same commits, and read back from it.
//!
//! Nothing here is written twice. The store has the records; this follows it as every reader does, so the tree is what
//! is durable, at any moment, also of commits of which nobody knows whether they took place.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use cache::{Change, ChangeKind, Observer};
use kinds::{
    ObjectKey,
    upsync::{CONFIGS, THE_ONE, Wanted},
};
use link::{HashTree, Key, Position, Tree, Version};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::held::Held;

const NAMESPACES: &str = "core/namespaces//";
/// At most this many of those that are left out are remembered.
const LEFT_OUT: usize = 32;

/// The edge's objects are in this workspace of its own.
pub const CLUSTER: &str = "root";
/// One record for each object that the center sent, under the object's key. No resource has a name like that.
pub const HELD: &str = "edge.selvedge.dev/_held";
/// One for each object that is gone and of which the center may still have a report.
pub const GONE: &str = "edge.selvedge.dev/_gone";
/// One for each object of the edge's own that the center has, or may have, whole.
pub const TOLD: &str = "edge.selvedge.dev/_told";
/// One record with how far the edge has followed the center.
pub const LINK: &str = "edge.selvedge.dev/_link";

/// One record with the last starts of this program.
pub const STARTS: &str = "edge.selvedge.dev/_starts";

/// One for each object that this edge has applied to a cluster.
pub const APPLIED: &str = "edge.selvedge.dev/_applied";

/// How far this edge has followed the center.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Progress {
    /// The incarnation of the center, zero if none was seen, and its revision.
    pub incarnation: u64,
    pub revision: u64,
    /// Orders the reports of this edge's lives. Those of an earlier epoch are void.
    pub epoch: u64,
}

impl Progress {
    pub fn seen(&self) -> Option<Position> {
        (self.incarnation != 0).then_some(Position { incarnation: self.incarnation, revision: self.revision })
    }

    /// Never back within an incarnation, unless somebody said so.
    pub fn moved_to(mut self, at: Position, adopt: bool) -> Self {
        if adopt || self.incarnation != at.incarnation || self.revision < at.revision {
            (self.incarnation, self.revision) = (at.incarnation, at.revision);
        }
        if adopt {
            // Everything is reported anew: this center may never have heard it.
            self.epoch += 1;
        }
        self
    }

    pub fn floor(&self) -> Version {
        Version { epoch: self.epoch, counter: 0 }
    }
}

#[derive(Default)]
pub struct Book {
    inner: Mutex<Inner>,
    /// Something may have to be reported.
    pub changed: Notify,
}

#[derive(Default)]
struct Inner {
    tree: HashTree,
    progress: Progress,
    /// Objects that may have a new state.
    changed: BTreeSet<Key>,
    /// What was sent and not acked yet: of which version, and what state.
    sent: HashMap<Key, (Version, Sent)>,
    /// Objects that stand in the center's way until they are gone.
    in_the_way: BTreeSet<Key>,
    /// One of them is.
    freed: bool,
    /// What is to be reported of the edge's own.
    wanted: Arc<Wanted>,
    /// The center asks for something else than before, or there is room for what was left out.
    look_again: bool,
    /// What was reported of the edge's own.
    told: BTreeSet<Key>,
    /// What is asked for, and was never reported.
    promised: BTreeSet<Key>,
    /// What is asked for, and is not reported, and why.
    left_out: BTreeMap<Key, &'static str>,
    left_out_changed: bool,
    /// The starts of this program before, the last one first.
    starts: Vec<u64>,
}

/// What a report said, by its hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// How an object of the center's fares.
    Status(u128),
    /// An object of the edge's own.
    Whole(u128),
    /// Nothing: it is gone, or the center has no business with it any more.
    Gone,
}

impl Book {
    /// To be given to the server before it reads its store.
    pub fn observer(self: &Arc<Self>) -> Observer {
        let book = self.clone();
        Box::new(move |collection, change| book.observe(collection, change))
    }

    fn observe(&self, collection: &str, change: &Change) {
        let object = &change.object;
        let there = change.kind != ChangeKind::Deleted;
        match collection {
            HELD => {
                let key = Key::from(&*object.key);
                let mut inner = self.lock();
                match serde_json::from_slice::<Held>(&object.json) {
                    Ok(held) if there => {
                        inner.tree.insert_hash(&key, held.hash);
                        // What was refused because of whose the namespace is may be taken now.
                        if key.starts_with(NAMESPACES) && inner.in_the_way.remove(&key) {
                            inner.freed = true;
                        }
                    }
                    _ => {
                        inner.tree.remove(&key);
                        // What came to be because of it is nobody's business any more.
                        let told: Vec<Key> = inner.told.iter().cloned().collect();
                        inner.changed.extend(told);
                    }
                }
                inner.changed.insert(key);
            }
            TOLD => {
                let key = Key::from(&*object.key);
                let mut inner = self.lock();
                if there {
                    inner.told.insert(key.clone());
                } else {
                    inner.told.remove(&key);
                    inner.look_again |= !inner.left_out.is_empty();
                }
                inner.changed.insert(key);
            }
            GONE if there => drop(self.lock().changed.insert(Key::from(&*object.key))),
            STARTS if there => {
                match serde_json::from_slice(&object.json) {
                    Ok(starts) => self.lock().starts = starts,
                    Err(error) => tracing::error!(%error, "the record of earlier starts is damaged and not used"),
                }
                return;
            }
            LINK if there => {
                match serde_json::from_slice(&object.json) {
                    Ok(progress) => self.lock().progress = progress,
                    Err(error) => tracing::error!(%error, "the record of the progress is damaged and not used"),
                }
                return;
            }
            _ => {
                let Some(local) = object.key.strip_prefix(CLUSTER).and_then(|rest| rest.strip_prefix('/')) else {
                    return;
                };
                let key = Key::from(format!("{collection}/{local}"));
                let mut inner = self.lock();
                if collection == CONFIGS && &*object.key == THE_ONE {
                    inner.ask(if there { Wanted::read(&object.value()) } else { Wanted::default() });
                    self.changed.notify_one();
                }
                if !there && inner.in_the_way.remove(&key) {
                    inner.freed = true;
                } else if inner.tree.get(&key).is_none() && !inner.is_own_and_wanted(&key) {
                    return;
                } else {
                    inner.changed.insert(key);
                }
            }
        }
        self.changed.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn progress(&self) -> Progress {
        self.lock().progress
    }

    /// The starts of this program that are on record, the last one first.
    pub fn starts(&self) -> Vec<u64> {
        self.lock().starts.clone()
    }

    pub fn holds(&self, key: &Key) -> bool {
        self.lock().tree.get(key).is_some()
    }

    /// When this object is gone, what the center sent in its place can be taken.
    pub fn wait_for_end_of(&self, key: Key) {
        self.lock().in_the_way.insert(key);
    }

    pub fn take_freed(&self) -> bool {
        std::mem::take(&mut self.lock().freed)
    }

    pub fn take_changed(&self) -> Vec<Key> {
        std::mem::take(&mut self.lock().changed).into_iter().collect()
    }

    /// What the center asks for of the edge's own.
    pub fn wanted(&self) -> Arc<Wanted> {
        self.lock().wanted.clone()
    }

    /// Whether everything has to be looked at again: what is asked for may be something else.
    pub fn take_look_again(&self) -> bool {
        let mut inner = self.lock();
        let again = std::mem::take(&mut inner.look_again);
        if again && !inner.left_out.is_empty() {
            inner.left_out.clear();
            inner.left_out_changed = true;
        }
        again
    }

    /// An object of the edge's own is to be reported for the first time.
    pub fn promise(&self, key: &Key) {
        if self.lock().promised.insert(key.clone()) {
            self.changed.notify_one();
        }
    }

    pub fn take_promised(&self) -> Vec<Key> {
        std::mem::take(&mut self.lock().promised).into_iter().collect()
    }

    pub fn leave_out(&self, key: &Key, why: &'static str) {
        let mut inner = self.lock();
        if inner.left_out.len() < LEFT_OUT && inner.left_out.insert(key.clone(), why).is_none() {
            inner.left_out_changed = true;
            drop(inner);
            self.changed.notify_one();
        }
    }

    pub fn leave_in(&self, key: &Key) {
        let mut inner = self.lock();
        if inner.left_out.remove(key).is_some() {
            inner.left_out_changed = true;
            drop(inner);
            self.changed.notify_one();
        }
    }

    /// What is left out, if that is news.
    pub fn take_left_out(&self) -> Option<Vec<String>> {
        let mut inner = self.lock();
        if !std::mem::take(&mut inner.left_out_changed) {
            return None;
        }
        let mut said: Vec<String> = inner.left_out.iter().map(|(key, why)| format!("{key}: {why}")).collect();
        if said.len() == LEFT_OUT {
            said.push("and perhaps more".to_owned());
        }
        Some(said)
    }

    pub fn sent(&self, key: &Key, version: Version, what: Sent) {
        self.lock().sent.insert(key.clone(), (version, what));
    }

    /// What was sent under this version, if nothing was sent since.
    pub fn take_sent(&self, key: &Key, version: Version) -> Option<Sent> {
        let mut inner = self.lock();
        let (_, what) = inner.sent.get(key).copied().filter(|(sent, _)| *sent == version)?;
        inner.sent.remove(key);
        Some(what)
    }

    pub fn forget_sent(&self) {
        self.lock().sent = HashMap::new();
    }

    pub fn count(&self) -> u64 {
        self.lock().tree.count()
    }

    pub fn root(&self) -> u128 {
        self.lock().tree.root()
    }

    pub fn range(&self, from: u64, to: u64, visit: &mut dyn FnMut(u64, &Key, u128)) {
        self.lock().tree.range(from, to, visit);
    }
}

impl Inner {
    fn ask(&mut self, wanted: Wanted) {
        if *self.wanted != wanted {
            self.wanted = Arc::new(wanted);
            self.look_again = true;
        }
    }

    fn is_own_and_wanted(&self, name: &Key) -> bool {
        if self.wanted.is_nothing() && self.told.is_empty() {
            return false;
        }
        let asked = |key: ObjectKey<'_>| self.wanted.may_be_associated(&key) || self.wanted.asks_for(&key);
        self.told.contains(name) || ObjectKey::parse(name).is_some_and(asked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_goes_forward_only_unless_somebody_says_so() {
        let at = |incarnation, revision| Position { incarnation, revision };
        let start = Progress { epoch: 5, ..Progress::default() };
        assert_eq!(start.seen(), None);
        let one = start.moved_to(at(1, 10), false);
        assert_eq!((one.seen(), one.epoch), (Some(at(1, 10)), 5));
        assert_eq!(one.moved_to(at(1, 9), false), one);
        assert_eq!(one.moved_to(at(2, 3), false).seen(), Some(at(2, 3)));
        let adopted = one.moved_to(at(1, 9), true);
        assert_eq!((adopted.seen(), adopted.floor()), (Some(at(1, 9)), Version { epoch: 6, counter: 0 }));
    }
}
