//! The objects of one resource over all clusters, with their recent history.

use std::{
    collections::VecDeque,
    sync::{Arc, OnceLock, PoisonError, RwLock},
};

use store::{Event, Revision};
use tokio::sync::watch;

use super::{Ordered, told::Audiences};
use crate::object::Object;

/// History is bounded by number, by size and by age: whoever reads more slowly than that starts over.
const HISTORY_CHANGES: usize = 10_000;
/// So much stays whatever its age, for clients that were away while little happened.
const AGED_BYTES: usize = 256 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    Added,
    Modified,
    Deleted,
}

/// One object's step from one revision to the next.
#[derive(Debug)]
pub struct Change {
    pub kind: ChangeKind,
    /// The new state; of a deletion the last state, under the deletion's revision.
    pub object: Arc<Object>,
    pub previous: Option<Arc<Object>>,
    /// The object in protobuf, encoded once for whoever watches in it. It goes with the history, whatever room there is.
    pub message: OnceLock<Box<[u8]>>,
}

/// The revision asked for is older than the history that is kept.
#[derive(Debug)]
pub struct TooOld {
    pub oldest: Revision,
}

pub struct Snapshot {
    pub items: Ordered,
    pub revision: Revision,
}

pub struct Collection {
    state: RwLock<State>,
    changed: watch::Sender<()>,
    pub audiences: Audiences,
}

struct State {
    items: Ordered,
    history: VecDeque<Arc<Change>>,
    history_bytes: usize,
    /// What may be in the history; nothing where nobody can watch.
    most_bytes: usize,
    /// Every change after this revision is in the history.
    complete_after: Revision,
}

impl Change {
    pub fn new(kind: ChangeKind, object: Arc<Object>, previous: Option<Arc<Object>>) -> Self {
        Self { kind, object, previous, message: OnceLock::new() }
    }

    pub fn revision(&self) -> Revision {
        self.object.revision
    }
}

impl Collection {
    /// With so many bytes of history. What nobody can watch needs none.
    pub(super) fn new(complete_after: Revision, most_bytes: usize) -> Self {
        let items = Ordered::default();
        let state = State { items, history: VecDeque::new(), history_bytes: 0, most_bytes, complete_after };
        Self { state: RwLock::new(state), changed: watch::channel(()).0, audiences: Audiences::default() }
    }

    pub(super) fn load(&self, object: Arc<Object>) {
        self.write().items.insert(object);
    }

    /// Applies one commit's events at once, so that nobody sees half of a revision.
    pub(super) fn apply<'a>(&self, events: &'a [Event], local: impl Fn(&'a str) -> &'a str) -> Vec<Arc<Change>> {
        let mut state = self.write();
        let mut changes = Vec::with_capacity(events.len());
        for event in events {
            if let Some(change) = Change::of(event, local(event.key()), &mut state.items) {
                let change = Arc::new(change);
                state.remember(change.clone());
                changes.push(change);
            }
        }
        drop(state);
        self.changed.send_replace(());
        changes
    }

    /// Drops the history up to a revision.
    pub(super) fn forget(&self, up_to: Revision) {
        let mut state = self.write();
        state.history.clear();
        state.history_bytes = 0;
        state.complete_after = state.complete_after.max(up_to);
    }

    /// Gives up history that has grown old.
    pub(super) fn age(&self, up_to: Revision) {
        let mut state = self.write();
        while state.history_bytes > AGED_BYTES && state.history.front().is_some_and(|old| old.revision() <= up_to) {
            state.forget_one();
        }
        let len = state.history.len();
        state.history.shrink_to(2 * len);
    }

    pub fn get(&self, key: &str) -> Option<Arc<Object>> {
        self.read().items.get(key).cloned()
    }

    pub fn snapshot(&self, at_least: Revision) -> Snapshot {
        let state = self.read();
        let newest = state.history.back().map_or(state.complete_after, |c| c.revision());
        Snapshot { items: state.items.clone(), revision: newest.max(at_least) }
    }

    /// Wakes when something was applied.
    pub fn subscribe(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// How many wait to be woken.
    pub fn watchers(&self) -> usize {
        self.changed.receiver_count()
    }

    /// What came after a revision, in order, at most `max` of it (a revision is never torn apart).
    pub fn since(&self, after: Revision, max: usize) -> Result<Vec<Arc<Change>>, TooOld> {
        let state = self.read();
        if after < state.complete_after {
            return Err(TooOld { oldest: state.complete_after });
        }
        let from = state.history.partition_point(|c| c.revision() <= after);
        let mut changes: Vec<Arc<Change>> = Vec::new();
        for change in state.history.range(from..) {
            if changes.len() >= max && changes.last().is_some_and(|last| last.revision() != change.revision()) {
                break;
            }
            changes.push(change.clone());
        }
        Ok(changes)
    }

    /// The objects as they were at a past revision: today's with everything since then undone.
    pub fn at(&self, revision: Revision) -> Result<Ordered, TooOld> {
        let state = self.read();
        if revision < state.complete_after {
            return Err(TooOld { oldest: state.complete_after });
        }
        let mut items = state.items.clone();
        for change in state.history.iter().rev().take_while(|c| c.revision() > revision) {
            match &change.previous {
                Some(previous) => drop(items.insert(previous.clone())),
                None => drop(items.remove(&change.object.key)),
            }
        }
        Ok(items)
    }

    /// How many objects there are.
    pub fn count(&self) -> usize {
        self.read().items.len()
    }

    /// The revision of the last change.
    pub fn newest(&self) -> Revision {
        self.read().history.back().map_or(0, |change| change.revision())
    }

    /// The oldest revision from which a watch can start.
    pub fn oldest(&self) -> Revision {
        self.read().complete_after
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn remember(&mut self, change: Arc<Change>) {
        if self.most_bytes == 0 {
            self.complete_after = change.revision();
            return;
        }
        self.history_bytes += change.object.json.len();
        self.history.push_back(change);
        while self.history.len() > HISTORY_CHANGES || (self.history_bytes > self.most_bytes && self.history.len() > 100)
        {
            self.forget_one();
        }
    }

    fn forget_one(&mut self) {
        if let Some(old) = self.history.pop_front() {
            self.history_bytes -= old.object.json.len();
            self.complete_after = old.revision();
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use store::Entry;

    use super::*;

    #[test]
    fn old_history_is_given_up_unless_it_is_little() {
        let collection = Collection::new(0, 16 << 20);
        let write = |revision, size: usize| {
            let entry = Entry {
                key: "core/pods/a".into(),
                value: Bytes::from(vec![b' '; size]),
                created: 1,
                modified: revision,
            };
            collection.apply(&[Event::Put(entry)], |_| "root//a");
        };
        for revision in 1..=100 {
            write(revision, 1000);
        }
        collection.age(50);
        assert_eq!(collection.since(0, 1000).unwrap().len(), 100, "so little may stay");
        for revision in 101..=110 {
            write(revision, AGED_BYTES / 4);
        }
        collection.age(105);
        assert_eq!(collection.oldest(), 105);
        assert!(collection.since(104, 1000).is_err());
        assert_eq!(collection.since(105, 1000).unwrap().len(), 5);
        collection.age(110);
        assert_eq!(collection.oldest(), 106, "what stays is not more than may stay");
        assert_eq!(collection.snapshot(0).items.len(), 1);
    }
}
