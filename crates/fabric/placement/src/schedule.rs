//! EdgePlacement × Location × SyncTarget: which placement reaches which edge, by which Location. Kept incrementally; pure.
//!
//! A Location stands for the SyncTargets of its own workspace that it selects. Where several Locations of a placement lead to one
//! SyncTarget, the first by name lends the parameters. An unschedulable SyncTarget keeps what it has and gets nothing new; when
//! `evictAfter` has passed it is left by all.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use crate::{
    Id,
    facts::{Instance, Location, Placement, Selectors},
    join::Join,
    names::Names,
};

/// Where a placement goes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Destination {
    pub target: Id,
    pub uid: Box<str>,
    pub location: Id,
}

/// What edits came to, until somebody takes it.
#[derive(Debug, Default, PartialEq)]
pub struct Moves {
    /// Placements whose destinations changed, with the SyncTargets in question.
    pub placements: BTreeMap<Id, BTreeSet<Id>>,
    /// Edges that are reached by others than before, or by a Location that says something else.
    pub edges: BTreeSet<Id>,
    /// Locations of which other SyncTargets, or how many are there for it, are to be told.
    pub locations: BTreeSet<Id>,
}

#[derive(Default)]
pub struct Schedule {
    placements: Names,
    locations: Names,
    targets: Names,
    wanted: HashMap<u32, Wanted>,
    offers: HashMap<u32, Arc<Location>>,
    instances: HashMap<u32, Reached>,
    by_label: Join<u32, u32>,
    /// Of each workspace, which Location stands for which SyncTarget.
    by_instance: HashMap<Arc<str>, Join<u32, u32>>,
    /// Workspaces that are inventory for those around them.
    inventories: HashSet<Box<str>>,
    /// What unschedulable SyncTargets had before this life, by uid.
    recalled: HashMap<Box<str>, BTreeSet<Id>>,
    evictions: BTreeSet<(i64, u32)>,
    now: i64,
    moves: Moves,
}

struct Wanted {
    /// The same object, not only the same name.
    uid: Box<str>,
    selectors: Selectors,
    /// SyncTargets and the Location by which each is reached.
    destinations: BTreeMap<u32, u32>,
}

struct Reached {
    instance: Instance,
    /// Placements and the Location by which each comes.
    by: BTreeMap<u32, u32>,
    /// Nothing else may come: those that were there when it was closed.
    closed: Option<BTreeSet<u32>>,
}

/// Whether what is placed in `workspace` may go to a Location of `home`. Inventory serves the workspace that it lies in and all inside
/// it; any other workspace only itself and what is inside it. So whoever owns a workspace cannot draw their neighbours' objects to
/// edges of their own by giving a Location the right labels.
pub fn is_offered(home: &str, is_inventory: bool, workspace: &str) -> bool {
    let base = match home.rsplit_once(':') {
        Some((parent, _)) if is_inventory => parent,
        _ => home,
    };
    workspace.strip_prefix(base).is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
}

impl Schedule {
    pub fn set_placement(&mut self, id: &Id, placement: Option<&Placement>) {
        let Some(placement) = placement else {
            if let Some(p) = self.placements.find(id) {
                self.by_label.set_selectors(&p, None);
                self.route(p, BTreeMap::new());
                self.wanted.remove(&p);
                self.placements.forget(p);
            }
            return;
        };
        let p = self.placements.of(id);
        if self.wanted.get(&p).is_some_and(|before| before.uid != placement.uid) {
            // Another one of the same name.
            self.by_label.set_selectors(&p, None);
            self.route(p, BTreeMap::new());
            self.wanted.remove(&p);
        }
        let uid = placement.uid.clone();
        let new = Wanted { uid, selectors: Selectors::default(), destinations: BTreeMap::new() };
        let wanted = self.wanted.entry(p).or_insert(new);
        if wanted.selectors == placement.locations {
            return;
        }
        wanted.selectors = placement.locations.clone();
        self.by_label.set_selectors(&p, Some(&placement.locations));
        let mut routes: BTreeMap<u32, u32> = BTreeMap::new();
        for l in self.by_label.selected_by(&p) {
            let home = &self.locations.get(l).workspace;
            if !is_offered(home, self.inventories.contains(&**home), &id.workspace) {
                continue;
            }
            for t in self.by_instance.get(home).map(|join| join.selected_by(&l)).unwrap_or_default() {
                let best = routes.entry(t).or_insert(l);
                if self.locations.get(l).name < self.locations.get(*best).name {
                    *best = l;
                }
            }
        }
        self.route(p, routes);
    }

    pub fn set_location(&mut self, id: &Id, location: Option<Location>) {
        let known = self.locations.find(id);
        if known.is_none() && location.is_none() {
            return;
        }
        let l = self.locations.of(id);
        if known.and_then(|l| self.offers.get(&l)).map(|l| &**l) == location.as_ref() {
            return;
        }
        let join = self.by_instance.entry(id.workspace.clone()).or_default();
        let mut affected = join.selected_by(&l);
        join.set_selectors(&l, location.as_ref().map(|location| &location.instances));
        affected.extend(join.selected_by(&l));
        self.by_label.set_labels(&l, location.as_ref().map(|location| &location.labels));
        match location {
            Some(location) => drop(self.offers.insert(l, Arc::new(location))),
            None => drop(self.offers.remove(&l)),
        }
        self.moves.locations.insert(id.clone());
        for t in affected {
            // What it says may matter to what is placed by it, even if nobody comes or goes.
            if self.instances.get(&t).is_some_and(|reached| reached.by.values().any(|by| *by == l)) {
                self.moves.edges.insert(self.targets.get(t).clone());
            }
            self.route_to(t);
        }
        if !self.offers.contains_key(&l) {
            self.locations.forget(l);
        }
    }

    pub fn set_target(&mut self, id: &Id, instance: Option<Instance>) {
        if let Some(t) = self.targets.find(id)
            && let Some(reached) = self.instances.get(&t)
        {
            if instance.as_ref() == Some(&reached.instance) {
                return;
            }
            // Another one of the same name: the placements that reach it reach another edge.
            if instance.as_ref().is_none_or(|instance| instance.uid != reached.instance.uid) {
                self.leave(id, t);
            }
        }
        let Some(instance) = instance else { return };
        let t = self.targets.of(id);
        // Both the Locations that selected its old labels and those that select the new ones count it anew.
        self.tell_locations(id, t);
        self.by_instance.entry(id.workspace.clone()).or_default().set_labels(&t, Some(&instance.labels));
        self.tell_locations(id, t);
        let recalled = self.recalled.remove(&instance.uid);
        let reached = self.instances.entry(t).or_insert_with(|| {
            let by_id = |id: &Id| self.placements.find(id);
            let recalled = recalled.unwrap_or_default().iter().filter_map(by_id).collect();
            Reached { instance: Instance::default(), by: BTreeMap::new(), closed: Some(recalled) }
        });
        match (instance.unschedulable, &reached.closed) {
            (false, _) => reached.closed = None,
            (true, Some(_)) => {}
            (true, None) => reached.closed = Some(reached.by.keys().copied().collect()),
        }
        if let Some(at) = reached.instance.evict_after {
            self.evictions.remove(&(at, t));
        }
        if let Some(at) = instance.evict_after {
            self.evictions.insert((at, t));
        }
        if reached.instance.workspace != instance.workspace {
            self.moves.edges.insert(id.clone());
        }
        reached.instance = instance;
        self.route_to(t);
    }

    /// A workspace is inventory for those around it, or is not any more.
    pub fn set_inventory(&mut self, workspace: &str, is_inventory: bool) {
        let changed = match is_inventory {
            true => self.inventories.insert(workspace.into()),
            false => self.inventories.remove(workspace),
        };
        if changed {
            let at_home = |t: &u32| &*self.targets.get(*t).workspace == workspace;
            let affected: Vec<u32> = self.instances.keys().copied().filter(at_home).collect();
            affected.into_iter().for_each(|t| self.route_to(t));
        }
    }

    /// Before SyncTargets are told of for the first time: what an unschedulable one held in a former life of the center.
    pub fn recall(&mut self, target_uid: &str, placement: Id) {
        self.recalled.entry(target_uid.into()).or_default().insert(placement);
    }

    /// It is that late.
    pub fn tick(&mut self, now: i64) {
        self.now = now;
        while let Some((at, t)) = self.evictions.first().copied().filter(|(at, _)| *at <= now) {
            self.evictions.remove(&(at, t));
            self.route_to(t);
        }
    }

    /// When something happens by itself.
    pub fn next_tick(&self) -> Option<i64> {
        self.evictions.first().map(|(at, _)| *at)
    }

    pub fn take_moves(&mut self) -> Moves {
        std::mem::take(&mut self.moves)
    }

    /// Where a placement goes, in order of the SyncTargets' names.
    pub fn destinations(&self, placement: &Id) -> Vec<Destination> {
        let routes = self.placements.find(placement).and_then(|p| self.wanted.get(&p));
        let mut all: Vec<_> = routes
            .iter()
            .flat_map(|wanted| &wanted.destinations)
            .filter_map(|(t, l)| self.destination(*t, *l))
            .collect();
        all.sort();
        all
    }

    /// The same as names, in no order: SyncTargets, and the Location by which each is reached.
    pub fn routes(&self, placement: &Id) -> impl Iterator<Item = (&Id, &Id)> {
        let routes = self.placements.find(placement).and_then(|p| self.wanted.get(&p));
        let name = |(t, l): (&u32, &u32)| (self.targets.get(*t), self.locations.get(*l));
        routes.into_iter().flat_map(|wanted| &wanted.destinations).map(name)
    }

    /// The one destination of a placement that is this edge, if it is one.
    pub fn destination_at(&self, placement: &Id, target: &Id) -> Option<Destination> {
        let (p, t) = (self.placements.find(placement)?, self.targets.find(target)?);
        self.destination(t, *self.wanted.get(&p)?.destinations.get(&t)?)
    }

    pub fn count(&self, placement: &Id) -> usize {
        let found = self.placements.find(placement).and_then(|p| self.wanted.get(&p));
        found.map_or(0, |wanted| wanted.destinations.len())
    }

    /// Whether two placements have an edge in common.
    pub fn meet(&self, one: &Id, other: &Id) -> bool {
        let routes = |id: &Id| self.placements.find(id).and_then(|p| self.wanted.get(&p)).map(|w| &w.destinations);
        let (Some(one), Some(other)) = (routes(one), routes(other)) else { return false };
        let (few, many) = if one.len() < other.len() { (one, other) } else { (other, one) };
        few.keys().any(|t| many.contains_key(t))
    }

    /// How many Locations a placement's selectors choose.
    pub fn location_count(&self, placement: &Id) -> usize {
        let Some(p) = self.placements.find(placement) else { return 0 };
        let offered = |l: &u32| {
            let home = &self.locations.get(*l).workspace;
            is_offered(home, self.inventories.contains(&**home), &placement.workspace)
        };
        self.by_label.selected_by(&p).iter().filter(|l| offered(l)).count()
    }

    /// Who reaches an edge, and by which Location.
    pub fn reaching(&self, target: &Id) -> Vec<(&Id, &Id)> {
        let reached = self.targets.find(target).and_then(|t| self.instances.get(&t));
        let name = |(p, l): (&u32, &u32)| (self.placements.get(*p), self.locations.get(*l));
        let mut all: Vec<_> = reached.iter().flat_map(|reached| &reached.by).map(name).collect();
        all.sort();
        all
    }

    /// Every placement on the edges that a Location stands for.
    pub fn placements_behind(&self, location: &Id) -> BTreeSet<Id> {
        let Some(l) = self.locations.find(location) else { return BTreeSet::new() };
        let targets = self.by_instance.get(&location.workspace).map(|join| join.selected_by(&l)).unwrap_or_default();
        let reached = targets.iter().filter_map(|t| self.instances.get(t));
        let numbers: BTreeSet<u32> = reached.flat_map(|reached| reached.by.keys().copied()).collect();
        numbers.into_iter().map(|p| self.placements.get(p).clone()).collect()
    }

    pub fn instance(&self, target: &Id) -> Option<&Instance> {
        self.targets.find(target).and_then(|t| self.instances.get(&t)).map(|reached| &reached.instance)
    }

    pub fn location(&self, id: &Id) -> Option<&Arc<Location>> {
        self.locations.find(id).and_then(|l| self.offers.get(&l))
    }

    /// How many SyncTargets a Location stands for, and how many of them are there to be used.
    pub fn instances(&self, location: &Id) -> (usize, usize) {
        let Some(l) = self.locations.find(location) else { return (0, 0) };
        let found = self.by_instance.get(&location.workspace).map(|join| join.selected_by(&l)).unwrap_or_default();
        let usable = |t: &&u32| {
            let instance = self.instances.get(t).map(|reached| &reached.instance);
            instance.is_some_and(|i| i.ready && !i.unschedulable && i.evict_after.is_none_or(|at| at > self.now))
        };
        (found.len(), found.iter().filter(usable).count())
    }

    fn destination(&self, t: u32, l: u32) -> Option<Destination> {
        let uid = self.instances.get(&t)?.instance.uid.clone();
        Some(Destination { target: self.targets.get(t).clone(), uid, location: self.locations.get(l).clone() })
    }

    fn tell_locations(&mut self, id: &Id, t: u32) {
        let Some(join) = self.by_instance.get(&id.workspace) else { return };
        let locations = join.selecting(&t);
        self.moves.locations.extend(locations.into_iter().map(|l| self.locations.get(l).clone()));
    }

    /// A SyncTarget is gone.
    fn leave(&mut self, id: &Id, t: u32) {
        self.tell_locations(id, t);
        let Some(reached) = self.instances.remove(&t) else { return };
        for p in reached.by.keys() {
            if let Some(wanted) = self.wanted.get_mut(p) {
                wanted.destinations.remove(&t);
            }
            self.moves.placements.entry(self.placements.get(*p).clone()).or_default().insert(id.clone());
        }
        self.moves.edges.insert(id.clone());
        if let Some(at) = reached.instance.evict_after {
            self.evictions.remove(&(at, t));
        }
        if let Some(join) = self.by_instance.get_mut(&id.workspace) {
            join.set_labels(&t, None);
            if join.is_empty() {
                self.by_instance.remove(&id.workspace);
            }
        }
        self.targets.forget(t);
    }

    /// Looks anew at everything that may come to one SyncTarget.
    fn route_to(&mut self, t: u32) {
        let Some(reached) = self.instances.get(&t) else { return };
        let home = self.targets.get(t).workspace.clone();
        let is_inventory = self.inventories.contains(&*home);
        let mut locations: Vec<u32> = Vec::new();
        if reached.instance.evict_after.is_none_or(|at| at > self.now) {
            locations.extend(self.by_instance.get(&home).map(|join| join.selecting(&t)).unwrap_or_default());
        }
        locations.sort_by(|a, b| self.locations.get(*a).name.cmp(&self.locations.get(*b).name));
        let mut routes: BTreeMap<u32, u32> = BTreeMap::new();
        for l in locations {
            for p in self.by_label.selecting(&l) {
                if is_offered(&home, is_inventory, &self.placements.get(p).workspace) {
                    routes.entry(p).or_insert(l);
                }
            }
        }
        let before: Vec<u32> = reached.by.keys().copied().collect();
        for p in before.into_iter().filter(|p| !routes.contains_key(p)).collect::<Vec<_>>() {
            self.connect(p, t, None);
        }
        for (p, l) in routes {
            self.connect(p, t, Some(l));
        }
        self.forget_closed(t);
    }

    /// Everywhere one placement goes.
    fn route(&mut self, p: u32, routes: BTreeMap<u32, u32>) {
        let before = self.wanted.get(&p).map(|wanted| wanted.destinations.keys().copied().collect::<Vec<u32>>());
        for t in before.unwrap_or_default().into_iter().filter(|t| !routes.contains_key(t)) {
            self.connect(p, t, None);
            self.forget_closed(t);
        }
        for (t, l) in routes {
            self.connect(p, t, Some(l));
        }
    }

    /// Makes a placement reach a SyncTarget by a Location, or not at all, as far as the SyncTarget lets it.
    fn connect(&mut self, p: u32, t: u32, by: Option<u32>) {
        let (Some(wanted), Some(reached)) = (self.wanted.get_mut(&p), self.instances.get_mut(&t)) else { return };
        let evicted = reached.instance.evict_after.is_some_and(|at| at <= self.now);
        let shut_out = reached.closed.as_ref().is_some_and(|closed| !closed.contains(&p));
        let by = by.filter(|_| !evicted && !shut_out);
        let before = match by {
            Some(l) => {
                reached.by.insert(p, l);
                wanted.destinations.insert(t, l)
            }
            None => {
                reached.by.remove(&p);
                wanted.destinations.remove(&t)
            }
        };
        if before != by {
            let target = self.targets.get(t);
            self.moves.edges.insert(target.clone());
            self.moves.placements.entry(self.placements.get(p).clone()).or_default().insert(target.clone());
        }
    }

    /// Who has left a closed SyncTarget does not come back.
    fn forget_closed(&mut self, t: u32) {
        if let Some(Reached { by, closed: Some(closed), .. }) = self.instances.get_mut(&t) {
            closed.retain(|p| by.contains_key(p));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::map;
    use serde_json::json;

    #[test]
    fn an_edit_costs_what_it_affects() {
        let mut schedule = Schedule::default();
        let (regions, sites, placements) = (100, 5_000, 500);
        for n in 0..placements {
            let selector = json!({"matchLabels": {"env": "prod", "region": format!("r{}", n % regions)}});
            let value = json!({"metadata": {"uid": "u"}, "spec": {"locationSelectors": [selector]}});
            schedule.set_placement(&Id::new("root:a", &format!("p{n}")), Placement::read(&value).as_ref());
        }
        let site = |schedule: &mut Schedule, n: usize, region: usize| {
            let labels = json!({"env": "prod", "region": format!("r{region}")});
            let value = json!({"metadata": {"labels": labels}, "spec": {"instanceSelector": {"matchLabels": {"id": n.to_string()}}}});
            schedule.set_location(&Id::new("root", &format!("s{n}")), Location::read(&value));
        };
        for n in 0..sites {
            let labels = map(&json!({"id": n.to_string()}));
            let instance = Instance { uid: n.to_string().into(), labels, ready: true, ..Instance::default() };
            schedule.set_target(&Id::new("root", &format!("s{n}")), Some(instance));
            site(&mut schedule, n, n % regions);
        }
        assert_eq!(schedule.destinations(&Id::new("root:a", "p7")).len(), sites / regions);
        schedule.take_moves();
        let looked = |schedule: &Schedule| {
            let of_instances: usize = schedule.by_instance.values().map(|join| join.looked.replace(0)).sum();
            of_instances + schedule.by_label.looked.replace(0)
        };
        looked(&schedule);
        site(&mut schedule, 7, 8);
        let moves = schedule.take_moves();
        assert_eq!(moves.placements.len(), 2 * placements / regions, "five go, five come");
        let (edges, cost) = (moves.edges.len(), looked(&schedule));
        assert!(edges == 1 && cost < 50, "{cost} were looked at to move one edge");
        let id = Id::new("root:a", "p7");
        let selector = json!({"matchLabels": {"env": "prod", "region": "r9"}});
        let value = json!({"metadata": {"uid": "u"}, "spec": {"locationSelectors": [selector]}});
        schedule.set_placement(&id, Placement::read(&value).as_ref());
        let (moved, cost) = (schedule.take_moves().edges.len(), looked(&schedule));
        assert!(
            moved == 2 * sites / regions - 1 && cost < 300,
            "{cost} were looked at to move one placement to {moved} edges"
        );
    }
}
