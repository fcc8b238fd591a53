//! What a session knows about what is taken away from its edge: from which placement it is, and whether that is
//! intended.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use link::Key;
use placement::{Id, engine::Engine};

/// Of one edge.
#[derive(Default)]
pub struct Intent {
    /// What left the desired set since the edge was last in sync: from which placement it was, and whether that is
    /// intended.
    origins: HashMap<Key, (Id, bool)>,
    /// What placements took away while the edge was not connected, or before.
    removals: Vec<(Id, Arc<BTreeSet<Key>>, bool)>,
    /// Placements whose removals an operator has confirmed.
    confirmed: BTreeSet<Id>,
}

impl Intent {
    pub fn is_empty(&self) -> bool {
        self.origins.is_empty() && self.removals.is_empty()
    }

    /// These left the desired set.
    pub fn left(&mut self, origins: Vec<(Key, Id)>) {
        self.origins.extend(origins.into_iter().map(|(key, id)| (key, (id, false))));
    }

    /// Asks what owners intend now. Whether that may be another than before.
    pub fn look(&mut self, engine: &Engine, edge: &Id) -> bool {
        let confirmed = &self.confirmed;
        let intends = |id: &Id| confirmed.contains(id) || engine.intends(id, edge);
        let mut changed = false;
        for (id, intended) in self.origins.values_mut() {
            let now = intends(id);
            changed |= std::mem::replace(intended, now) != now;
        }
        let removals: Vec<_> =
            engine.removed(edge).map(|(id, removal)| (id.clone(), removal.keys.clone(), intends(id))).collect();
        changed |= removals.len() != self.removals.len()
            || removals.iter().zip(&self.removals).any(|(a, b)| (&a.0, a.2) != (&b.0, b.2));
        self.removals = removals;
        changed
    }

    /// An operator confirms what a placement took away, if it is not more than they saw. Whether that is so.
    pub fn confirm<'a>(&mut self, placement: &Id, up_to: u64, held: impl Iterator<Item = &'a Key>) -> bool {
        let count = self.by_placement(held).get(placement).copied().unwrap_or_default();
        let confirmed = (1..=up_to).contains(&count);
        if confirmed {
            self.confirmed.insert(placement.clone());
        }
        confirmed
    }

    /// The removal of an object is intended.
    pub fn covers(&self, key: &str) -> bool {
        match self.origins.get(key) {
            Some((_, intended)) => *intended,
            None => self.removals.iter().any(|(_, keys, intended)| *intended && keys.contains(key)),
        }
    }

    /// Of these objects, those that left the desired set in this session, by the placement that they were from.
    pub fn news<'a>(&self, keys: impl Iterator<Item = &'a Key>) -> BTreeMap<Id, Vec<Key>> {
        let mut found: BTreeMap<Id, Vec<Key>> = BTreeMap::new();
        for key in keys {
            if let Some((id, _)) = self.origins.get(key) {
                found.entry(id.clone()).or_default().push(key.clone());
            }
        }
        found
    }

    /// Objects by the placement that they are from. Those of which nothing is known are not counted.
    pub fn by_placement<'a>(&self, keys: impl Iterator<Item = &'a Key>) -> BTreeMap<Id, u64> {
        let mut counts = BTreeMap::new();
        for key in keys {
            let removed = || self.removals.iter().find(|(_, keys, _)| keys.contains(key)).map(|(id, ..)| id);
            if let Some(id) = self.origins.get(key).map(|(id, _)| id).or_else(removed) {
                *counts.entry(id.clone()).or_default() += 1;
            }
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_confirm_what_they_have_seen() {
        let (one, two) = (Id::new("root:a", "one"), Id::new("root:b", "two"));
        let keys = ["core/x//a", "core/x//b", "core/x//c"].map(Key::from);
        let [a, b, _] = keys.clone();
        let mut intent = Intent::default();
        intent.left(vec![(a.clone(), one.clone()), (b.clone(), two.clone())]);
        assert_eq!(intent.by_placement(keys.iter()), [(one.clone(), 1), (two.clone(), 1)].into());
        let (engine, edge) = (Engine::default(), Id::new("root:imw", "florin"));
        assert!(!intent.confirm(&one, 0, keys.iter()), "there is more than was seen");
        assert!(!intent.confirm(&edge, 9, keys.iter()), "nothing is known of it");
        assert!(intent.confirm(&one, 1, keys.iter()) && intent.look(&engine, &edge));
        assert!(intent.covers(&a) && !intent.covers(&b));
        assert!(intent.confirm(&two, 9, keys.iter()) && intent.look(&engine, &edge) && !intent.look(&engine, &edge));
        assert!(intent.covers(&b) && !intent.covers("core/x//c"));
    }
}
