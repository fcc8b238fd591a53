//! One placement's account.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use super::{Known, Source, numbers::Numbers};
use crate::{Fault, Id};

/// At most this many broken objects are named.
const NAMED: usize = 20;

/// How it stands between a placement and an edge: the first of these that is so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Offline,
    Failing,
    Behind,
    InSync,
}

#[derive(Debug)]
pub(super) struct Placed {
    pub location: Arc<str>,
    /// Since when, by the accounts' clock.
    pub since: u64,
    pub state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble<'a> {
    /// The edge could not take it.
    Refused(&'a Arc<str>),
    /// The edge took it, and it does not work there.
    Broken(&'a Arc<str>),
}

#[derive(Debug, Default)]
pub(super) struct Account {
    pub id: Option<Id>,
    pub locations: usize,
    pub edges: HashMap<u32, Placed>,
    /// Each with the time from which it was selected, and the same the other way round.
    pub objects: HashMap<Arc<str>, u64>,
    pub since: BTreeMap<u64, Vec<Arc<str>>>,
    pub faults: Vec<Fault>,
    pub conflicts: Vec<Told>,
    /// Objects that are another workspace's on some edge: what edges say of those may be about that workspace's.
    pub lost: BTreeSet<Arc<str>>,
    /// Locations at which faults hold something back; `None` if that is so at all of them.
    held_at: BTreeSet<Option<Arc<str>>>,
    counts: [usize; 4],
    failing: BTreeSet<u32>,
}

/// What there is to say about a placement.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Standing {
    pub locations: usize,
    /// Edges; each is one of the four that follow.
    pub matched: usize,
    pub in_sync: usize,
    pub behind: usize,
    pub offline: usize,
    pub failing: usize,
    /// Some of what is wrong.
    pub broken: Vec<Broken>,
    /// Whether some of it was refused by edges.
    pub refused: bool,
    pub faults: Vec<Fault>,
    pub conflicts: Vec<Told>,
}

/// A trouble as it is told: a reason for programs, and words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    pub reason: &'static str,
    pub message: String,
}

/// An object that is not well, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// Empty: nothing arrives there at all.
    pub object: Arc<str>,
    pub location: Arc<str>,
    pub edge: Arc<str>,
    pub reason: Arc<str>,
    pub refused: bool,
}

impl Account {
    pub fn workspace(&self) -> Arc<str> {
        self.id.as_ref().map_or_else(|| "".into(), |id| id.workspace.clone())
    }

    /// Whether what edges say of an object is about this placement's.
    fn has(&self, key: &Arc<str>) -> bool {
        self.objects.contains_key(key) && !self.lost.contains(key)
    }

    pub fn sources(&self) -> impl Iterator<Item = Source> {
        let workspace = self.workspace();
        self.objects.keys().map(move |key| (workspace.clone(), key.clone()))
    }

    pub fn enter(&mut self, edge: u32, placed: Placed) {
        self.counts[placed.state as usize] += 1;
        self.edges.insert(edge, placed);
    }

    pub fn leave(&mut self, edge: u32) {
        if let Some(placed) = self.edges.remove(&edge) {
            self.counts[placed.state as usize] -= 1;
            self.failing.remove(&edge);
        }
    }

    pub fn add_object(&mut self, key: &Arc<str>, now: u64) {
        self.objects.insert(key.clone(), now);
        self.since.entry(now).or_default().push(key.clone());
    }

    pub fn drop_object(&mut self, key: &Arc<str>) {
        let Some(at) = self.objects.remove(key) else { return };
        if let Some(keys) = self.since.get_mut(&at) {
            keys.retain(|one| one != key);
            if keys.is_empty() {
                self.since.remove(&at);
            }
        }
    }

    pub fn begin(&mut self, old: impl Fn(&str) -> bool) {
        self.edges.values_mut().for_each(|placed| placed.since = 0);
        let keys: Vec<Arc<str>> = self.objects.keys().filter(|key| old(key)).cloned().collect();
        for key in keys {
            self.drop_object(&key);
            self.add_object(&key, 0);
        }
    }

    pub fn held_back(&mut self) {
        let location = |fault: &Fault| fault.location.as_ref().map(|id| id.to_string().into());
        self.held_at = self.faults.iter().map(location).collect();
    }

    /// Puts an edge where it belongs by what is known of it now.
    pub fn judge(&mut self, edge: u32, known: &Known) {
        let Some(placed) = self.edges.get(&edge) else { return };
        let held = self.held_at.contains(&None) || self.held_at.contains(&Some(placed.location.clone()));
        let keeps = self.id.as_ref().is_some_and(|id| known.edge.held.contains_key(id));
        let failing = held || keeps || known.edge.stuck.is_some() || known.troubles().any(|(key, _)| self.has(key));
        let state = match (known.edge.connected, failing, known.edge.in_sync || known.edge.delivered) {
            (false, ..) => State::Offline,
            (_, true, _) => State::Failing,
            (.., false) => State::Behind,
            (.., true) => State::InSync,
        };
        // What an absent edge said last is still worth a look.
        if failing {
            self.failing.insert(edge)
        } else {
            self.failing.remove(&edge)
        };
        self.counts[placed.state as usize] -= 1;
        self.counts[state as usize] += 1;
        if let Some(placed) = self.edges.get_mut(&edge) {
            placed.state = state;
        }
    }

    pub fn standing(&self, edges: &Numbers<Known>) -> Standing {
        let count = |state: State| self.counts[state as usize];
        let mut standing = Standing {
            locations: self.locations,
            matched: self.edges.len(),
            in_sync: count(State::InSync),
            behind: count(State::Behind),
            offline: count(State::Offline),
            failing: count(State::Failing),
            faults: self.faults.clone(),
            conflicts: self.conflicts.clone(),
            ..Standing::default()
        };
        for fault in self.faults.iter().take(NAMED) {
            let location = fault.location.as_ref().map(|id| id.to_string()).unwrap_or_default();
            let path = if fault.path.is_empty() { String::new() } else { format!("{}: ", fault.path) };
            standing.broken.push(Broken {
                object: fault.object.as_str().into(),
                location: location.into(),
                edge: "".into(),
                reason: format!("{path}{}", fault.reason).into(),
                refused: false,
            });
        }
        for edge in &self.failing {
            if standing.broken.len() >= NAMED {
                break;
            }
            let (Some(known), Some(name), Some(placed)) = (edges.get(*edge), edges.name(*edge), self.edges.get(edge))
            else {
                continue;
            };
            let broken = |object: &Arc<str>, reason: &Arc<str>, refused| Broken {
                object: object.clone(),
                location: placed.location.clone(),
                edge: name.clone(),
                reason: reason.clone(),
                refused,
            };
            let kept = self.id.as_ref().and_then(|id| known.edge.held.get(id));
            let stuck = known.edge.stuck.as_ref().or(kept).map(|why| broken(&"".into(), why, false));
            let mine = known.troubles().filter(|(key, _)| self.has(key));
            let troubles = mine.map(|(key, trouble)| match trouble {
                Trouble::Refused(why) => broken(key, why, true),
                Trouble::Broken(why) => broken(key, why, false),
            });
            let room = NAMED - standing.broken.len();
            standing.broken.extend(stuck.into_iter().chain(troubles).take(room));
        }
        standing.refused = standing.broken.iter().any(|one| one.refused);
        standing
    }
}
