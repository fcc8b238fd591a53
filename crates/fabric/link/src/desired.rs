//! The storage behind the state machines: at the center what an edge should hold, at the edge what it holds.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use crate::message::Report;
use crate::queue::DeliveryOrder;
use crate::tree::{HashTree, Tree};
use crate::types::{Key, Position, Version};

/// The set of objects that one edge should hold. Many sessions share one by reference; a session keeps no content.
///
/// The driver passes every change to the session as [`crate::CenterInput::Changed`], beginning before the session
/// handles its first message, so that no change is lost between the digest and the first notification.
pub trait Desired: Tree {
    /// False while the set is incomplete. An incomplete set must not delete anything.
    fn ready(&self) -> bool;
    fn get(&self, key: &str) -> Option<Bytes>;
    /// The content of this key is not known at present. An edge that has the object keeps it unchanged.
    fn is_held(&self, _key: &str) -> bool {
        false
    }
    /// The owner of the object has stated that its removal is intended, so the deletion fuse permits it.
    fn is_intended(&self, _key: &str) -> bool {
        false
    }
    /// The object belongs to no user and only describes the others. It is deleted with the last of them and does not
    /// count.
    fn is_incidental(&self, _key: &str) -> bool {
        false
    }
    /// The order of delivery among keys that wait.
    fn delivery_order(&self, _key: &str) -> DeliveryOrder {
        DeliveryOrder::default()
    }
    /// The position of this set in the center's history, by a consistent read.
    fn position(&self) -> Position;
    /// The last revision of an incarnation of this center; `None` if it never had that incarnation. A center that was
    /// restored from a backup is detected by this, as it does not know later revisions.
    fn through(&self, incarnation: u64) -> Option<u64>;
}

/// The objects that an edge holds, as committed. Every call reads the current state.
pub trait Holding: Tree {
    /// The furthest position of the center that durable data here depends on: that of the last batch or acked report.
    fn seen(&self) -> Option<Position>;
    /// Reports below this version are void: they are of an earlier data directory, or were all made again.
    fn floor(&self) -> Version;
    /// The report in the outbox for this key; `None` once it is acked.
    fn report(&self, key: &str) -> Option<Report>;
}

/// A desired set in memory, for tests and small uses.
#[derive(Clone, Debug)]
pub struct MemoryDesired {
    objects: BTreeMap<Key, Bytes>,
    tree: HashTree,
    position: Position,
    /// The incarnations before this one, each with its last revision.
    past: Vec<Position>,
    pub ready: bool,
    /// Keys that their owners intend to remove.
    pub intended: BTreeSet<Key>,
}

impl MemoryDesired {
    pub fn new(incarnation: u64) -> Self {
        let position = Position { incarnation, revision: 0 };
        let (objects, tree, past) = (BTreeMap::new(), HashTree::default(), Vec::new());
        Self { objects, tree, position, past, ready: true, intended: BTreeSet::new() }
    }

    pub fn put(&mut self, key: &Key, content: Bytes) {
        self.position.revision += 1;
        self.tree.insert(key, &content);
        self.objects.insert(key.clone(), content);
    }

    pub fn delete(&mut self, key: &Key) {
        self.position.revision += 1;
        self.tree.remove(key);
        self.objects.remove(key);
    }

    pub fn objects(&self) -> &BTreeMap<Key, Bytes> {
        &self.objects
    }

    /// Something outside the set was written to the store: the revision grows.
    pub fn touch(&mut self) -> Position {
        self.position.revision += 1;
        self.position
    }

    /// The center restarted.
    pub fn restart(&mut self, incarnation: u64) {
        self.past.push(self.position);
        self.position.incarnation = incarnation;
    }
}

impl AsRef<HashTree> for MemoryDesired {
    fn as_ref(&self) -> &HashTree {
        &self.tree
    }
}

impl Desired for MemoryDesired {
    fn ready(&self) -> bool {
        self.ready
    }

    fn get(&self, key: &str) -> Option<Bytes> {
        self.objects.get(key).cloned()
    }

    fn is_intended(&self, key: &str) -> bool {
        self.intended.contains(key)
    }

    fn is_incidental(&self, key: &str) -> bool {
        key == "config"
    }

    fn position(&self) -> Position {
        self.position
    }

    fn through(&self, incarnation: u64) -> Option<u64> {
        if incarnation == self.position.incarnation {
            return Some(self.position.revision);
        }
        self.past.iter().find(|past| past.incarnation == incarnation).map(|past| past.revision)
    }
}
