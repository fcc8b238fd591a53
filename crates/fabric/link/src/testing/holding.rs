//! The durable storage of an edge, in memory.

use std::collections::{BTreeMap, BTreeSet};

use crate::desired::Holding;
use crate::message::{Batch, Report};
use crate::tree::HashTree;
use crate::types::{Key, Position, Version};
use bytes::Bytes;

/// What an edge holds and has to report. Everything in here survives a crash of the edge.
#[derive(Default)]
pub struct MemoryHolding {
    pub objects: BTreeMap<Key, Bytes>,
    pub seen: Option<Position>,
    /// The latest state of everything reported.
    pub states: BTreeMap<Key, (Version, Option<Bytes>)>,
    /// Keys whose report is not acked.
    pub outbox: BTreeSet<Key>,
    tree: HashTree,
    floor: Version,
    counter: u64,
}

impl MemoryHolding {
    /// Applies a batch as one transaction.
    pub fn commit(&mut self, batch: &Batch) {
        for (key, content) in &batch.changes {
            match content {
                Some(content) => {
                    self.tree.insert(key, content);
                    self.objects.insert(key.clone(), content.clone());
                }
                None => self.remove(key),
            }
        }
        self.see(batch.position);
        if batch.adopt {
            self.seen = Some(batch.position);
            self.floor = self.next();
            let states = std::mem::take(&mut self.states);
            for (key, (_, state)) in states.into_iter().filter(|(_, (_, state))| state.is_some()) {
                let version = self.next();
                self.outbox.insert(key.clone());
                self.states.insert(key, (version, state));
            }
            self.outbox.retain(|key| self.states.contains_key(key));
        }
    }

    /// Moves `seen` on. It never moves back within an incarnation: a report may be stored at the center after a batch
    /// was made, and acked before that batch is applied.
    fn see(&mut self, at: Position) {
        if self.seen.is_none_or(|seen| seen.incarnation != at.incarnation || seen.revision < at.revision) {
            self.seen = Some(at);
        }
    }

    pub fn remove(&mut self, key: &Key) {
        self.tree.remove(key);
        self.objects.remove(key);
    }

    fn next(&mut self) -> Version {
        self.counter += 1;
        Version { epoch: 1, counter: self.counter }
    }

    /// Puts a state of an object into the outbox; `None` if the object is gone.
    pub fn note(&mut self, key: &Key, state: Option<Bytes>) {
        let version = self.next();
        self.states.insert(key.clone(), (version, state));
        self.outbox.insert(key.clone());
    }

    /// Takes acked reports out of the outbox, unless there is a newer state.
    pub fn acked(&mut self, at: Position, reports: &[(Key, Version)]) {
        self.see(at);
        for (key, version) in reports {
            if self.states.get(key).is_some_and(|(current, _)| current == version) {
                self.outbox.remove(key);
            }
        }
    }
}

impl AsRef<HashTree> for MemoryHolding {
    fn as_ref(&self) -> &HashTree {
        &self.tree
    }
}

impl Holding for MemoryHolding {
    fn seen(&self) -> Option<Position> {
        self.seen
    }
    fn floor(&self) -> Version {
        self.floor
    }
    fn report(&self, key: &str) -> Option<Report> {
        if !self.outbox.contains(key) {
            return None;
        }
        let (key, (version, state)) = self.states.get_key_value(key)?;
        Some(Report { key: key.clone(), version: *version, state: state.clone() })
    }
}
