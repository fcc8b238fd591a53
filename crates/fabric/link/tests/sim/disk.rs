//! The edge's disk: what is here survives a crash.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use selvedge_link::{Batch, HashTree, Holding, Key, Position, Report, Version};

#[derive(Default)]
pub struct Disk {
    pub objects: BTreeMap<Key, Bytes>,
    pub tree: HashTree,
    pub seen: Option<Position>,
    pub floor: Version,
    pub counter: u64,
    /// The latest state of everything reported, and which of them are not acked.
    pub states: BTreeMap<Key, (Version, Option<Bytes>)>,
    pub outbox: BTreeSet<Key>,
    pub committed: BTreeSet<(u64, u64)>,
}

impl Disk {
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

    /// A report may be stored at the center after a batch was made, and acked before that batch is applied.
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

    pub fn note(&mut self, key: &Key, state: Option<Bytes>) {
        let version = self.next();
        self.states.insert(key.clone(), (version, state));
        self.outbox.insert(key.clone());
    }

    pub fn acked(&mut self, at: Position, reports: &[(Key, Version)]) {
        self.see(at);
        for (key, version) in reports {
            if self.states.get(key).is_some_and(|(current, _)| current == version) {
                self.outbox.remove(key);
            }
        }
    }
}

impl AsRef<HashTree> for Disk {
    fn as_ref(&self) -> &HashTree {
        &self.tree
    }
}

impl Holding for Disk {
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
