//! What placements took away from edges, by an edit of theirs or by their end: whether that is intended, and which
//! edges have not done it yet. The deletion fuse lets go of what is intended; the owners of the rest are told that it
//! is held.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use kinds::ObjectKey;

use super::Engine;
use crate::{Id, Key, facts::Placement, workspace::NAMESPACES};

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
    /// The edges that the placement left, each with the uid of its SyncTarget.
    pub edges: BTreeMap<Id, Box<str>>,
    /// Edges that the placement still reaches and that hold objects which are gone from it, likewise.
    pub holding: BTreeMap<Id, Box<str>>,
}

impl Removal {
    pub fn concerns(&self, edge: &Id) -> bool {
        self.edges.contains_key(edge) || self.holding.contains_key(edge)
    }

    pub fn is_done(&self) -> bool {
        self.edges.is_empty() && self.holding.is_empty()
    }
}

impl Engine {
    /// What a placement has on edges before an edit, if the edit may lead it away from some of them.
    pub(super) fn before(&self, id: &Id, next: Option<&Placement>) -> Option<Removal> {
        let before = self.placements.get(id).filter(|before| !before.everything)?;
        if next.is_some_and(|next| (&next.uid, &next.reach) == (&before.uid, &before.reach)) {
            return None;
        }
        let edges: BTreeMap<Id, Box<str>> =
            self.schedule.routes(id).map(|(edge, _)| (edge.clone(), self.uid_of(edge))).collect();
        if edges.is_empty() {
            return None;
        }
        let saved = self.saved.get(id).into_iter().flatten().flat_map(|(_, saved)| saved.items().keys().cloned());
        let keys: BTreeSet<Key> = self.objects(id).into_iter().chain(saved).take(MOST_KEYS).collect();
        let allowed = next.map_or(before.allow_removal, |next| next.allow_removal);
        Some(Removal { uid: before.uid.clone(), allowed, keys: Arc::new(keys), edges, holding: BTreeMap::new() })
    }

    fn uid_of(&self, edge: &Id) -> Box<str> {
        self.schedule.instance(edge).map(|instance| instance.uid.clone()).unwrap_or_default()
    }

    /// The deletion fuse of an edge holds objects that are gone from a placement which still reaches the edge. It is
    /// remembered, so that the owner can state the intent after the edge has connected anew. Whether that is news.
    pub fn hold_back(&mut self, id: &Id, edge: &Id, keys: impl IntoIterator<Item = Key>) -> bool {
        let Some(placement) = self.placements.get(id).filter(|placement| !placement.everything) else { return false };
        let (uid, allowed) = (placement.uid.clone(), placement.allow_removal);
        let room = self.removals.len() < MOST || self.removals.contains_key(id);
        if !room || self.schedule.destination_at(id, edge).is_none() {
            return false;
        }
        let instance = self.uid_of(edge);
        let known = self.removals.entry(id.clone()).or_default();
        (known.uid, known.allowed) = (uid, allowed);
        let more: Vec<Key> = keys.into_iter().filter(|key| !known.keys.contains(key)).collect();
        let more_room = MOST_KEYS.saturating_sub(known.keys.len());
        let is_news = !more.is_empty() || !known.holding.contains_key(edge);
        if !more.is_empty() {
            Arc::make_mut(&mut known.keys).extend(more.into_iter().take(more_room));
        }
        known.holding.insert(edge.clone(), instance);
        is_news
    }

    /// Before an object is deleted, or a Namespace changes: what placements have of it on edges that are away.
    pub(super) fn taken_away(&self, workspace: &str, of: &ObjectKey<'_>, gone: bool) -> Vec<(Id, Vec<Key>)> {
        let of_namespace = of.collection == NAMESPACES;
        let home = self.workspaces.get(workspace).filter(|_| !self.away.is_empty() && (gone || of_namespace));
        let Some(home) = home else { return Vec::new() };
        let key = Key::from(of.to_string());
        let taken = |id: &Id| {
            let placement = self.placements.get(id).filter(|placement| !placement.everything)?;
            let takes = |key: &&Key| home.objects.takes(placement, key).is_some();
            let keys: Vec<Key> = match of_namespace {
                true => home.objects.space(of.name).filter(takes).cloned().collect(),
                false => Some(&key).into_iter().filter(takes).cloned().collect(),
            };
            let is_away = !keys.is_empty() && self.away_from(id).next().is_some();
            is_away.then(|| (id.clone(), keys))
        };
        home.placements.iter().filter_map(taken).collect()
    }

    /// Before an edit of a placement: what it has on edges that are away, if the edit may select something else.
    pub(super) fn selected_away(&self, id: &Id, next: Option<&Placement>) -> Vec<(Id, Vec<Key>)> {
        let before = self.placements.get(id).map(|placement| &**placement).filter(|before| !before.everything);
        let (Some(before), Some(next)) = (before, next) else { return Vec::new() };
        if before == next || before.uid != next.uid || self.away_from(id).next().is_none() {
            return Vec::new();
        }
        vec![(id.clone(), self.objects(id).into_iter().collect())]
    }

    /// Edges that a placement reaches and that are away.
    fn away_from<'a>(&'a self, id: &'a Id) -> impl Iterator<Item = &'a Id> {
        self.away.iter().filter(move |edge| self.schedule.destination_at(id, edge).is_some())
    }

    /// After the edit: what is gone of that is remembered for the edges that are away.
    pub(super) fn note_gone(&mut self, before: Vec<(Id, Vec<Key>)>) {
        for (id, keys) in before {
            let (Some(placement), Some(home)) = (self.placements.get(&id), self.workspaces.get(&id.workspace)) else {
                continue;
            };
            let is_gone = |key: &Key| home.objects.takes(placement, key).is_none();
            let gone: Vec<Key> = keys.into_iter().filter(is_gone).collect();
            if gone.is_empty() {
                continue;
            }
            let edges: Vec<Id> = self.away_from(&id).cloned().collect();
            for edge in edges {
                self.hold_back(&id, &edge, gone.iter().cloned());
            }
        }
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
                known.holding.retain(|edge, _| !left.edges.contains_key(edge));
                known.edges.extend(left.edges);
                self.changes.edges.extend(known.edges.keys().cloned());
            }
        }
        let Some(allowed) = self.placements.get(id).map(|placement| placement.allow_removal) else { return };
        let Some(known) = self.removals.get_mut(id) else { return };
        if known.allowed != allowed {
            known.allowed = allowed;
            self.changes.edges.extend(known.edges.keys().chain(known.holding.keys()).cloned());
        }
        let reached: Vec<Id> = self.schedule.routes(id).map(|(edge, _)| edge.clone()).collect();
        for edge in reached {
            known.edges.remove(&edge);
        }
        if known.is_done() {
            self.removals.remove(id);
        }
    }

    /// What is remembered from a former life of the center, or what another center remembered.
    pub fn set_removal(&mut self, id: &Id, removal: Option<Removal>) {
        match removal {
            Some(removal) if self.removals.len() < MOST => {
                self.changes.edges.extend(removal.edges.keys().chain(removal.holding.keys()).cloned());
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
            let left = removal.edges.remove(edge).is_some();
            if removal.holding.remove(edge).is_some() || left {
                news.push(id.clone());
            }
            !removal.is_done()
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
        self.removals.iter().filter(move |(_, removal)| removal.concerns(edge))
    }
}
