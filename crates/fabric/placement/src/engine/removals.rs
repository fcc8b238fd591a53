//! What placements took away from edges, by an edit of theirs or by their end: whether that is intended, and which
//! edges have not done it yet. The deletion fuse lets go of what is intended; the owners of the rest are told that it
//! is held.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::Engine;
use crate::{Id, Key, facts::Placement};

/// At most this many objects are remembered of a placement, and so many placements. What is beyond that is held as if
/// nothing was said.
const MOST_KEYS: usize = 20_000;
const MOST: usize = 4096;

/// What a placement took away from edges that have not been in sync since.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Removal {
    /// Of the placement.
    pub uid: Box<str>,
    /// Its owner has stated that the removal is intended.
    pub allowed: bool,
    pub keys: Arc<BTreeSet<Key>>,
    /// The edges, each with the uid of its SyncTarget.
    pub edges: BTreeMap<Id, Box<str>>,
}

impl Engine {
    /// What a placement has on edges before an edit, if the edit may lead it away from some of them.
    pub(super) fn before(&self, id: &Id, next: Option<&Placement>) -> Option<Removal> {
        let before = self.placements.get(id).filter(|before| !before.everything)?;
        if next.is_some_and(|next| (&next.uid, &next.reach) == (&before.uid, &before.reach)) {
            return None;
        }
        let uid_of = |edge: &Id| self.schedule.instance(edge).map(|instance| instance.uid.clone()).unwrap_or_default();
        let edges: BTreeMap<Id, Box<str>> =
            self.schedule.routes(id).map(|(edge, _)| (edge.clone(), uid_of(edge))).collect();
        if edges.is_empty() {
            return None;
        }
        let saved = self.saved.get(id).into_iter().flatten().flat_map(|(_, saved)| saved.items().keys().cloned());
        let keys: BTreeSet<Key> = self.objects(id).into_iter().chain(saved).take(MOST_KEYS).collect();
        let allowed = next.map_or(before.allow_removal, |next| next.allow_removal);
        Some(Removal { uid: before.uid.clone(), allowed, keys: Arc::new(keys), edges })
    }

    /// After the edit: remembers what the placement left, and what its owner says now of what it left before.
    pub(super) fn note_removal(&mut self, id: &Id, before: Option<Removal>) {
        if let Some(mut left) = before {
            for (edge, _) in self.schedule.routes(id) {
                left.edges.remove(edge);
            }
            let room = self.removals.len() < MOST || self.removals.contains_key(id);
            if !left.edges.is_empty() && room {
                let known = self.removals.entry(id.clone()).or_default();
                (known.uid, known.allowed) = (left.uid, left.allowed);
                Arc::make_mut(&mut known.keys).extend(left.keys.iter().cloned());
                known.edges.extend(left.edges);
                self.changes.edges.extend(known.edges.keys().cloned());
            }
        }
        let Some(allowed) = self.placements.get(id).map(|placement| placement.allow_removal) else { return };
        let Some(known) = self.removals.get_mut(id) else { return };
        if known.allowed != allowed {
            known.allowed = allowed;
            self.changes.edges.extend(known.edges.keys().cloned());
        }
        let reached: Vec<Id> = self.schedule.routes(id).map(|(edge, _)| edge.clone()).collect();
        for edge in reached {
            known.edges.remove(&edge);
        }
        if known.edges.is_empty() {
            self.removals.remove(id);
        }
    }

    /// What is remembered from a former life of the center, or what another center remembered.
    pub fn set_removal(&mut self, id: &Id, removal: Option<Removal>) {
        match removal {
            Some(removal) if self.removals.len() < MOST => {
                self.changes.edges.extend(removal.edges.keys().cloned());
                self.removals.insert(id.clone(), removal);
            }
            Some(_) => {}
            None => drop(self.removals.remove(id)),
        }
    }

    /// What a placement took away and is not done everywhere.
    pub fn removal(&self, id: &Id) -> Option<&Removal> {
        self.removals.get(id)
    }

    /// An edge holds nothing that it should not, or is gone. The placements of which that is news.
    pub fn settled(&mut self, edge: &Id) -> Vec<Id> {
        let mut news = Vec::new();
        self.removals.retain(|id, removal| {
            if removal.edges.remove(edge).is_some() {
                news.push(id.clone());
            }
            !removal.edges.is_empty()
        });
        news
    }

    /// Whether the owner of a placement intends that what it had on an edge goes. Where only the inventory changed,
    /// nobody said so.
    pub fn intends(&self, placement: &Id, edge: &Id) -> bool {
        let left = self.removals.get(placement).filter(|removal| removal.edges.contains_key(edge));
        match self.placements.get(placement) {
            Some(now) if !now.allow_removal => false,
            Some(_) => left.is_some() || self.schedule.destination_at(placement, edge).is_some(),
            None => left.is_some_and(|left| left.allowed),
        }
    }

    /// What placements took away from an edge, and which they are.
    pub fn removed(&self, edge: &Id) -> impl Iterator<Item = (&Id, &Removal)> {
        self.removals.iter().filter(move |(_, removal)| removal.edges.contains_key(edge))
    }
}
