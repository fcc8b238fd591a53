//! What the machines ask of whoever holds the objects: at the center what an edge should hold, at the edge what it does.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use crate::message::Report;
use crate::queue::Turn;
use crate::tree::{HashTree, Tree};
use crate::types::{Key, Position, Version};

/// What one edge should hold. Many sessions share one, by reference: a session keeps no content.
///
/// Whoever implements it passes every later change to the session as [`crate::CenterInput::Changed`], from before the
/// session is given its first message, so that nothing lies between the digest and the changes.
pub trait Desired: Tree {
    /// False while the set is still being put together: nothing may be deleted by it.
    fn ready(&self) -> bool;
    fn get(&self, key: &str) -> Option<Bytes>;
    /// What a key should have cannot be said at present: an edge that has it keeps it as it is.
    fn is_held(&self, _key: &str) -> bool {
        false
    }
    /// The owner of the object has stated that its removal is intended: the deletion fuse lets it go.
    fn is_intended(&self, _key: &str) -> bool {
        false
    }
    /// It is no object of anybody's, but tells the edge about the others: it goes with the last of them and is not
    /// counted.
    fn is_incidental(&self, _key: &str) -> bool {
        false
    }
    /// When it goes, if others wait too.
    fn turn(&self, _key: &str) -> Turn {
        Turn::default()
    }
    /// How far into the center's history this set is, by a consistent read.
    fn position(&self) -> Position;
    /// The last revision that belongs to an incarnation of this center, `None` if it never had that incarnation. A
    /// center restored from a backup does not know what came after, and is found out by that.
    fn through(&self, incarnation: u64) -> Option<u64>;
}

/// What an edge holds, as committed; read again at every question.
pub trait Holding: Tree {
    /// The furthest position of the center that anything durable here depends on: the last batch, the last acked report.
    fn seen(&self) -> Option<Position>;
    /// Reports below this version are void: they are of a former life of this edge or were all made again.
    fn floor(&self) -> Version;
    /// What the outbox has for a key, `None` once it is acked.
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
    /// What its owners intend to remove.
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

    /// Something else was written to the store: the revision grows, the set stays.
    pub fn touch(&mut self) -> Position {
        self.position.revision += 1;
        self.position
    }

    /// The center started again.
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
