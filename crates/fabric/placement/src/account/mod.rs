//! How placements fare, counted from what is heard of their edges.
//!
//! Nothing is looked through again when something happens: an edge that comes, goes or acknowledges moves from one count to another in the
//! placements that reach it, and those whose status may say something new are remembered until somebody writes it.

mod numbers;
mod one;

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
};

pub use one::{Broken, Standing, Told};

use crate::{Fault, Id};
use numbers::Numbers;
use one::{Account, Placed, State, Trouble};

/// What is known of an edge, apart from single objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edge {
    pub connected: bool,
    /// It holds everything that it should, and nothing else of the center's.
    pub in_sync: bool,
    /// It has acknowledged everything but objects that it refused. Deletions that wait to be confirmed do not matter.
    pub delivered: bool,
    /// Why it takes nothing at all.
    pub stuck: Option<Arc<str>>,
    /// Placements of which it keeps objects whose removal has to be confirmed, and what there is to say about that.
    pub held: BTreeMap<Id, Arc<str>>,
    /// Objects that it could not take, and why.
    pub refused: BTreeMap<Arc<str>, Arc<str>>,
}

#[derive(Debug, Default)]
struct Known {
    edge: Edge,
    /// When it was last known to hold everything that it should, except what it refused: by the accounts' clock.
    synced: Option<u64>,
    /// When it was last known to hold those objects, too, that it refuses now.
    complete: Option<u64>,
    /// What it refused when it was last connected.
    refused: BTreeSet<Arc<str>>,
    /// Objects that it reports to be broken, and why.
    broken: BTreeMap<Arc<str>, Arc<str>>,
    /// The placements that reach it.
    placements: Vec<u32>,
}

impl Known {
    /// Since when, at the latest, it is known to hold an object.
    fn holds_since(&self, object: &str) -> Option<u64> {
        if self.refused.contains(object) { self.complete } else { self.synced }
    }

    /// What is wrong with objects there: refused ones first.
    fn troubles(&self) -> impl Iterator<Item = (&Arc<str>, Trouble<'_>)> {
        let refused = self.edge.refused.iter().map(|(key, why)| (key, Trouble::Refused(why)));
        refused.chain(self.broken.iter().map(|(key, why)| (key, Trouble::Broken(why))))
    }
}

/// An object that placements of a workspace select.
pub type Source = (Arc<str>, Arc<str>);

#[derive(Debug, Default)]
pub struct Accounts {
    /// Grows whenever something is placed that was not before.
    clock: u64,
    edges: Numbers<Known>,
    placements: Numbers<Account>,
    /// Which placements select an object.
    sources: HashMap<Source, Vec<u32>>,
    /// Edges with objects in trouble.
    troubled: BTreeSet<u32>,
    /// Placements of which there may be something new to say, and objects that edges took or let go of.
    changed: BTreeSet<u32>,
    counted: HashSet<Source>,
}

impl Accounts {
    /// A placement is there, and selects so many Locations.
    pub fn open(&mut self, placement: &Id, locations: usize) {
        let number = self.number(placement);
        if let Some(account) = self.placements.get_mut(number) {
            account.locations = locations;
            self.changed.insert(number);
        }
    }

    /// Whether a placement is known.
    pub fn knows(&self, placement: &Id) -> bool {
        self.placements.find(&name(placement)).is_some()
    }

    /// A placement reaches an edge, by this Location, or does not any more.
    pub fn reach(&mut self, placement: &Id, edge: &Arc<str>, by: Option<&Arc<str>>) {
        self.clock += 1;
        let number = self.number(placement);
        let at = match (self.edges.find(edge), by) {
            (Some(at), _) => at,
            (None, Some(_)) => self.edges.entry(edge),
            (None, None) => return,
        };
        let (Some(account), Some(known)) = (self.placements.get_mut(number), self.edges.get_mut(at)) else { return };
        let moved = match (by, account.edges.get_mut(&at)) {
            (Some(location), Some(placed)) => {
                placed.location = location.clone();
                false
            }
            (Some(location), None) => {
                known.placements.push(number);
                account.enter(at, Placed { location: location.clone(), since: self.clock, state: State::Offline });
                true
            }
            (None, Some(_)) => {
                known.placements.retain(|one| *one != number);
                account.leave(at);
                true
            }
            (None, None) => false,
        };
        account.judge(at, known);
        self.changed.insert(number);
        if moved {
            self.counted.extend(account.sources());
            self.forget(at);
        }
    }

    /// The edges that a placement reaches, all of them, each with the Location by which it is reached.
    pub fn place(&mut self, placement: &Id, destinations: &[(Arc<str>, Arc<str>)]) {
        let mut wanted = HashMap::with_capacity(destinations.len());
        for (edge, location) in destinations {
            wanted.entry(edge).or_insert(location);
        }
        let gone: Vec<Arc<str>> = self.edges_of(placement).filter(|edge| !wanted.contains_key(edge)).cloned().collect();
        gone.iter().for_each(|edge| self.reach(placement, edge, None));
        for (edge, _) in destinations {
            if let Some(location) = wanted.remove(edge) {
                self.reach(placement, edge, Some(location));
            }
        }
    }

    /// The objects that a placement selects, all of them. Which came and which went.
    pub fn select(&mut self, placement: &Id, objects: &BTreeSet<Arc<str>>) -> (Vec<Arc<str>>, Vec<Arc<str>>) {
        self.clock += 1;
        let number = self.number(placement);
        let Some(account) = self.placements.get_mut(number) else { return Default::default() };
        let gone: Vec<Arc<str>> = account.objects.keys().filter(|key| !objects.contains(*key)).cloned().collect();
        let new: Vec<Arc<str>> = objects.iter().filter(|key| !account.objects.contains_key(*key)).cloned().collect();
        if gone.is_empty() && new.is_empty() {
            return (new, gone);
        }
        for key in &gone {
            account.drop_object(key);
            let source = (placement.workspace.clone(), key.clone());
            if let Some(selecting) = self.sources.get_mut(&source) {
                selecting.retain(|one| *one != number);
                if selecting.is_empty() {
                    self.sources.remove(&source);
                }
            }
            self.counted.insert(source);
        }
        for key in &new {
            account.add_object(key, self.clock);
            let source = (placement.workspace.clone(), key.clone());
            self.sources.entry(source.clone()).or_default().push(number);
            self.counted.insert(source);
        }
        // What is wrong with an object matters to those who select it.
        for edge in &self.troubled {
            if let Some(known) = self.edges.get(*edge) {
                account.judge(*edge, known);
            }
        }
        self.changed.insert(number);
        (new, gone)
    }

    /// What holds objects of a placement back before they are sent, and which objects lose to another placement's.
    pub fn hold(&mut self, placement: &Id, faults: &[Fault], conflicts: &[Told], lost: &BTreeSet<Arc<str>>) {
        let number = self.number(placement);
        let Some(account) = self.placements.get_mut(number) else { return };
        if account.faults == faults && account.conflicts == conflicts && account.lost == *lost {
            return;
        }
        (account.faults, account.conflicts, account.lost) = (faults.to_vec(), conflicts.to_vec(), lost.clone());
        account.held_back();
        let edges: Vec<u32> = account.edges.keys().copied().collect();
        for edge in edges {
            if let Some(known) = self.edges.get(edge) {
                account.judge(edge, known);
            }
        }
        self.changed.insert(number);
    }

    /// A placement is gone.
    pub fn remove(&mut self, placement: &Id) {
        if !self.knows(placement) {
            return;
        }
        self.place(placement, &[]);
        self.select(placement, &BTreeSet::new());
        if let Some(number) = self.placements.find(&name(placement)) {
            self.changed.remove(&number);
            self.placements.remove(number);
        }
    }

    /// How an edge stands. `held`: it is known to have held everything before anybody counted.
    pub fn edge(&mut self, edge: &Arc<str>, now: Edge, held: bool) {
        let number = self.edges.entry(edge);
        let clock = self.clock;
        let Some(known) = self.edges.get_mut(number) else { return };
        let (before, complete) = (known.synced, known.complete);
        if now.connected && (now.in_sync || now.delivered) {
            known.synced = Some(clock);
        } else if held && before.is_none() {
            known.synced = Some(0);
        }
        if now.connected && now.in_sync {
            known.complete = Some(clock);
        } else if held && complete.is_none() {
            known.complete = Some(0);
        }
        let refused = if now.connected { now.refused.keys().cloned().collect() } else { known.refused.clone() };
        if refused != known.refused || (known.complete != complete && !refused.is_empty()) {
            for account in known.placements.iter().filter_map(|placement| self.placements.get(*placement)) {
                let of = refused.union(&known.refused).filter(|key| account.objects.contains_key(*key));
                self.counted.extend(of.map(|key| (account.workspace(), key.clone())));
            }
            known.refused = refused;
        }
        if known.synced != before {
            for placement in &known.placements {
                let Some(account) = self.placements.get(*placement) else { continue };
                let all = before.is_none_or(|at| account.edges.get(&number).is_some_and(|placed| at < placed.since));
                let from = if all { 0 } else { before.map_or(0, |at| at + 1) };
                let taken = account.since.range(from..=clock).flat_map(|(_, keys)| keys);
                self.counted.extend(taken.map(|key| (account.workspace(), key.clone())));
            }
        }
        let same = known.edge == now;
        known.edge = now;
        if !same {
            self.judge(number);
        }
    }

    /// What an edge reports of an object: that it is broken, or not.
    pub fn report(&mut self, edge: &Arc<str>, object: &Arc<str>, broken: Option<Arc<str>>) {
        let number = match (self.edges.find(edge), &broken) {
            (Some(number), _) => number,
            (None, Some(_)) => self.edges.entry(edge),
            (None, None) => return,
        };
        let Some(known) = self.edges.get_mut(number) else { return };
        let before = match broken {
            Some(why) => known.broken.insert(object.clone(), why.clone()) != Some(why),
            None => known.broken.remove(object).is_some(),
        };
        if before {
            self.judge(number);
        }
    }

    /// Nothing that an edge has reported counts any more.
    pub fn void(&mut self, edge: &Arc<str>) {
        let Some(number) = self.edges.find(edge) else { return };
        if let Some(known) = self.edges.get_mut(number)
            && !std::mem::take(&mut known.broken).is_empty()
        {
            self.judge(number);
        }
    }

    /// An edge is gone for good. Placements that reach it are told by [`Self::place`].
    pub fn drop_edge(&mut self, edge: &Arc<str>) {
        self.edge(edge, Edge::default(), false);
        self.void(edge);
        if let Some(number) = self.edges.find(edge) {
            if let Some(known) = self.edges.get_mut(number) {
                (known.synced, known.complete) = (None, None);
                known.refused.clear();
            }
            self.forget(number);
        }
    }

    fn judge(&mut self, edge: u32) {
        let Some(known) = self.edges.get(edge) else { return };
        if known.edge.refused.is_empty() && known.broken.is_empty() {
            self.troubled.remove(&edge);
        } else {
            self.troubled.insert(edge);
        }
        for placement in &known.placements {
            if let Some(account) = self.placements.get_mut(*placement) {
                account.judge(edge, known);
                self.changed.insert(*placement);
            }
        }
    }

    /// Nothing is kept of an edge of which nothing is known.
    fn forget(&mut self, edge: u32) {
        let empty = self.edges.get(edge).is_some_and(|known| {
            known.placements.is_empty()
                && known.broken.is_empty()
                && known.edge == Edge::default()
                && known.synced.is_none()
                && known.complete.is_none()
                && known.refused.is_empty()
        });
        if empty {
            self.edges.remove(edge);
        }
    }

    /// Placements of which there may be something new to say.
    pub fn take_changed(&mut self) -> Vec<Id> {
        let changed = std::mem::take(&mut self.changed);
        changed.iter().filter_map(|number| self.placements.get(*number)?.id.clone()).collect()
    }

    /// Objects that another number of edges may hold than before.
    pub fn take_counted(&mut self) -> Vec<Source> {
        std::mem::take(&mut self.counted).into_iter().collect()
    }

    /// What there is to say about a placement.
    pub fn standing(&self, placement: &Id) -> Option<Standing> {
        self.account(placement).map(|account| account.standing(&self.edges))
    }

    /// The edges that an object of a workspace is placed on, each once, and how many of them hold it.
    pub fn held(&self, source: &Source) -> (Vec<Arc<str>>, usize) {
        let selecting = self.sources.get(source).map_or(&[][..], Vec::as_slice);
        let (mut seen, mut edges, mut held) = (HashMap::new(), Vec::new(), 0);
        for account in selecting.iter().filter_map(|number| self.placements.get(*number)) {
            let Some(placed) = account.objects.get(&source.1) else { continue };
            for (edge, at) in &account.edges {
                let Some((known, edge_name)) = self.edges.get(*edge).zip(self.edges.name(*edge)) else { continue };
                let holds = known.holds_since(&source.1).is_some_and(|synced| synced >= at.since.max(*placed));
                let one = seen.entry(*edge).or_insert_with(|| {
                    edges.push(edge_name.clone());
                    false
                });
                if holds && !std::mem::replace(one, true) {
                    held += 1;
                }
            }
        }
        edges.sort();
        (edges, held)
    }

    /// Whether some placement that selects an object is such a one.
    pub fn any(&self, source: &Source, is: impl Fn(&Id) -> bool) -> bool {
        self.selecting(source).any(is)
    }

    /// Placements that select an object.
    pub fn selecting(&self, source: &Source) -> impl Iterator<Item = &Id> {
        let selecting = self.sources.get(source).into_iter().flatten();
        selecting.filter_map(|number| self.placements.get(*number)?.id.as_ref())
    }

    /// Which placements reach an edge, each by which Location.
    pub fn reaching(&self, edge: &str) -> Vec<(&Id, &Arc<str>)> {
        let Some(at) = self.edges.find(edge) else { return Vec::new() };
        let placements = self.edges.get(at).map_or(&[][..], |known| known.placements.as_slice());
        let of = |number: &u32| {
            let account = self.placements.get(*number)?;
            Some((account.id.as_ref()?, &account.edges.get(&at)?.location))
        };
        placements.iter().filter_map(of).collect()
    }

    pub fn edges_of(&self, placement: &Id) -> impl Iterator<Item = &Arc<str>> {
        let edges = self.account(placement).into_iter().flat_map(|account| account.edges.keys());
        edges.filter_map(|edge| self.edges.name(*edge))
    }

    /// How many edges a placement reaches.
    pub fn edge_count(&self, placement: &Id) -> usize {
        self.account(placement).map_or(0, |account| account.edges.len())
    }

    pub fn objects_of(&self, placement: &Id) -> impl Iterator<Item = &Arc<str>> {
        self.account(placement).into_iter().flat_map(|account| account.objects.keys())
    }

    pub fn selects(&self, placement: &Id, object: &str) -> bool {
        self.account(placement).is_some_and(|account| account.objects.contains_key(object))
    }

    /// Placements of a workspace that are known.
    pub fn placements_of(&self, workspace: &str) -> Vec<Id> {
        let ids = self.placements.all().filter_map(|account| account.id.as_ref());
        ids.filter(|id| &*id.workspace == workspace).cloned().collect()
    }

    /// Workspaces with placements.
    pub fn workspaces(&self) -> impl Iterator<Item = Arc<str>> {
        self.placements.all().map(Account::workspace)
    }

    /// A placement and its edges, and these of its objects, were there before anybody counted: edges that held everything then hold them.
    pub fn begin(&mut self, placement: &Id, old: impl Fn(&str) -> bool) {
        let number = self.number(placement);
        let Some(account) = self.placements.get_mut(number) else { return };
        account.begin(old);
        self.counted.extend(account.sources());
    }

    fn account(&self, placement: &Id) -> Option<&Account> {
        self.placements.get(self.placements.find(&name(placement))?)
    }

    fn number(&mut self, placement: &Id) -> u32 {
        let number = self.placements.entry(&name(placement));
        if let Some(account) = self.placements.get_mut(number)
            && account.id.is_none()
        {
            account.id = Some(placement.clone());
            self.changed.insert(number);
        }
        number
    }
}

fn name(placement: &Id) -> Arc<str> {
    placement.to_string().into()
}
