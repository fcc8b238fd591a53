//! The scheduler and the engine against slow, obviously right models: nested loops over everything, after every edit of a random sequence.

mod edits;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use kinds::{ObjectKey, names};
use proptest::prelude::*;
use serde_json::Value;

use edits::{Edit, KEYS, object, some_edit};

use crate::{
    Id, Key, Parameters,
    class::{Class, plain},
    config::CONFIG,
    customize::{self, Customizer},
    engine::{Content, Engine, Saved},
    facts::{Instance, Labels, Location, Placement, map, matches},
    projection,
    schedule::{Schedule, is_offered},
    tenure::{Rank, Tenure, is_reserved, needs_trust, space_of},
};

const WORKSPACES: [&str; 3] = ["root:a", "root:b", "root:a:c"];
/// Inventory for all, inventory for those in root:a only, and a workspace that is none.
const HOMES: [(&str, bool); 3] = [("root:inv", true), ("root:a:inv", true), ("root:b", false)];

/// Everything there is, as whoever wrote it sees it.
#[derive(Clone, Default)]
struct World {
    placements: BTreeMap<Id, Placement>,
    locations: BTreeMap<Id, Location>,
    targets: BTreeMap<Id, Instance>,
    objects: BTreeMap<(String, Key), Value>,
    /// Revision, for edges whose uid ends in an odd digit.
    saved: BTreeMap<Id, Arc<Saved>>,
    /// What is recorded of claims.
    tenures: BTreeMap<Id, Tenure>,
    /// Counts edits: the center's revision.
    clock: u64,
    now: i64,
    /// Which placement reaches which SyncTarget: unschedulable ones keep it.
    reach: BTreeMap<(Id, Id), Id>,
}

fn placement_id(workspace: usize, n: u8) -> Id {
    Id::new(WORKSPACES[workspace], &format!("p{n}"))
}

fn inventory_id(home: usize, n: u8) -> Id {
    Id::new(HOMES[home].0, &format!("i{n}"))
}

impl World {
    fn edit(&mut self, edit: &Edit) {
        fn put<K: Ord, V>(map: &mut BTreeMap<K, V>, key: K, value: Option<V>) {
            match value {
                Some(value) => drop(map.insert(key, value)),
                None => drop(map.remove(&key)),
            }
        }
        self.clock += 1;
        match edit {
            Edit::Placement(w, n, value) => {
                let (id, read) = (placement_id(*w, *n), value.as_ref().and_then(Placement::read));
                let another = self.placements.get(&id).map(|p| &p.uid) != read.as_ref().map(|p| &p.uid);
                if another {
                    self.reach.retain(|(p, _), _| *p != id);
                }
                if read.is_none() {
                    self.saved.remove(&id);
                }
                put(&mut self.placements, id, read);
            }
            Edit::Location(h, n, value) => {
                put(&mut self.locations, inventory_id(*h, *n), value.as_ref().and_then(Location::read));
            }
            Edit::Target(h, n, instance) => {
                let id = inventory_id(*h, *n);
                if self.targets.get(&id).map(|t| &t.uid) != instance.as_ref().map(|t| &t.uid) {
                    self.reach.retain(|(_, t), _| *t != id);
                }
                put(&mut self.targets, id, instance.clone());
            }
            Edit::Object(w, n, value) => {
                let value = value.as_ref().map(|value| object(*n, value));
                put(&mut self.objects, (WORKSPACES[*w].to_owned(), Key::from(KEYS[*n])), value);
            }
            Edit::Keep(w, n, keep) => {
                let id = placement_id(*w, *n);
                let saved =
                    self.placements.get(&id).filter(|_| *keep).map(|p| Arc::new(Saved::new(self.items(&id, p))));
                put(&mut self.saved, id, saved);
            }
            Edit::Record(w, n) => {
                let id = placement_id(*w, *n);
                let tenure = self.tenure(&id);
                put(&mut self.tenures, id, tenure);
            }
            Edit::Later => self.now += 10,
        }
        self.schedule();
    }

    /// Everything with everything.
    fn schedule(&mut self) {
        let mut reach = BTreeMap::new();
        for (p, placement) in &self.placements {
            for (t, instance) in &self.targets {
                let had = self.reach.contains_key(&(p.clone(), t.clone()));
                if instance.evict_after.is_some_and(|at| at <= self.now) || (instance.unschedulable && !had) {
                    continue;
                }
                for (l, location) in &self.locations {
                    let is_inventory = HOMES.iter().any(|(name, yes)| *name == &*l.workspace && *yes);
                    let chosen = placement.locations.iter().any(|s| matches(s, &location.labels));
                    let stands_for = location.instances.iter().any(|s| matches(s, &instance.labels));
                    if l.workspace == t.workspace
                        && chosen
                        && stands_for
                        && is_offered(&l.workspace, is_inventory, &p.workspace)
                    {
                        reach.entry((p.clone(), t.clone())).or_insert_with(|| l.clone());
                    }
                }
            }
        }
        self.reach = reach;
    }

    fn value(&self, workspace: &str, key: &str) -> Option<&Value> {
        self.objects.get(&(workspace.to_owned(), Key::from(key)))
    }

    /// How a placement takes an object: `Some(true)` if only its existence matters.
    fn takes(&self, id: &Id, placement: &Placement, key: &str) -> Option<bool> {
        let of = ObjectKey::parse(key)?;
        let value = self.value(&id.workspace, key)?;
        projection::project_value(&of, value.clone(), &id.workspace)?;
        let takes_namespace = |name: &str| {
            let namespace = self.value(&id.workspace, &format!("core/namespaces//{name}"));
            if namespace.is_some_and(|n| n["metadata"].get("deletionTimestamp").is_some()) {
                return false;
            }
            placement.takes_namespace(&namespace.map(|n| map(&n["metadata"]["labels"])).unwrap_or_default())
        };
        let other = placement.takes_other(of.collection, of.name, &map(&value["metadata"]["labels"]));
        if !of.namespace.is_empty() {
            return takes_namespace(of.namespace).then_some(false);
        }
        if of.collection == "core/namespaces" {
            let both = (takes_namespace(of.name), other);
            return (both.0 || both.1).then_some(both != (true, true));
        }
        let mut taken = other;
        if of.collection == "apiextensions.k8s.io/customresourcedefinitions" {
            let (resource, group) = of.name.split_once('.').unwrap();
            for (workspace, instance) in self.objects.keys() {
                let defined = instance.starts_with(&format!("{group}/{resource}/"));
                taken |= *workspace == *id.workspace && defined && self.takes(id, placement, instance).is_some();
            }
        }
        taken.then_some(false)
    }

    fn items(&self, id: &Id, placement: &Placement) -> BTreeMap<Key, crate::workspace::Item> {
        let mut items = BTreeMap::new();
        for (workspace, key) in self.objects.keys().filter(|(workspace, _)| **workspace == *id.workspace) {
            let Some(bare) = self.takes(id, placement, key) else { continue };
            let value = self.value(workspace, key).unwrap().clone();
            let of = ObjectKey::parse(key).unwrap();
            let value = projection::project_value(&of, value, workspace).unwrap();
            let asks = customize::customizer_of(&value);
            let customizer = asks
                .as_ref()
                .and_then(|(ns, name)| self.value(workspace, &format!("edge.kcp.io/customizers/{ns}/{name}")));
            let tailor = customizer.map(|c| Arc::new(crate::workspace::Tailor::new(Bytes::from(c.to_string()))));
            let expands = value["metadata"]["annotations"][customize::EXPAND] == "true";
            let version = value["apiVersion"].as_str().unwrap().rsplit('/').next().unwrap().into();
            let content = projection::encode(&value).unwrap();
            items.insert(
                key.clone(),
                crate::workspace::Item { content, version, tailor, is_tailored: asks.is_some() || expands, bare },
            );
        }
        items
    }

    fn trusts(&self, location: &Id, workspace: &str) -> bool {
        *location.workspace == *workspace || self.locations[location].trusts(workspace)
    }

    /// Every placement that has something for an edge, the plain set included: who, whether it is trusted there, how its claims rank.
    fn claimants(&self, edge: &Id, namespace: &str) -> Vec<(Rank, Box<str>, Id)> {
        let mut all = Vec::new();
        let Some(instance) = self.targets.get(edge) else { return all };
        if let Some(plain) = instance.workspace.as_ref().map(|workspace| plain(workspace)) {
            let inside = self.items(&plain, &Placement::everything()).into_keys();
            if inside.into_iter().any(|key| space_of(&ObjectKey::parse(&key).unwrap()) == namespace) {
                all.push((Rank::FIRST, "".into(), plain));
            }
        }
        for (id, placement) in &self.placements {
            let Some(location) = self.reach.get(&(id.clone(), edge.clone())) else { continue };
            if is_reserved(namespace) && !self.trusts(location, &id.workspace) {
                continue;
            }
            let items = self.items_at(id, placement, &instance.uid);
            if items.keys().any(|key| space_of(&ObjectKey::parse(key).unwrap()) == namespace) {
                let tenure = self.tenures.get(id).filter(|tenure| *tenure.uid == *placement.uid);
                let fresh = tenure.is_some_and(|tenure| {
                    let reached = Tenure::reached(&tenure.selectors(), &self.locations[location].labels);
                    *tenure.reach != *placement.reach && !reached
                });
                all.push((Tenure::rank(tenure, namespace, fresh), placement.created.clone(), id.clone()));
            }
        }
        all.sort();
        all
    }

    /// Whose a namespace is on an edge.
    fn owner(&self, edge: &Id, namespace: &str) -> Option<Arc<str>> {
        self.claimants(edge, namespace).first().map(|(_, _, id)| id.workspace.clone())
    }

    fn items_at(&self, id: &Id, placement: &Placement, uid: &str) -> BTreeMap<Key, crate::workspace::Item> {
        let old = self.saved.get(id).filter(|_| is_odd(uid));
        old.map_or_else(|| self.items(id, placement), |saved| saved.items().clone())
    }

    /// What is to be recorded of a placement.
    fn tenure(&self, id: &Id) -> Option<Tenure> {
        let placement = self.placements.get(id)?;
        let saved = self.saved.get(id).map(|saved| saved.items().clone()).unwrap_or_default();
        let keys: BTreeSet<Key> = self.items(id, placement).into_keys().chain(saved.into_keys()).collect();
        let spaces: BTreeSet<String> = keys
            .iter()
            .map(|key| space_of(&ObjectKey::parse(key).unwrap()).to_owned())
            .filter(|s| !s.is_empty())
            .collect();
        let lost = |space: &str| {
            self.targets.iter().any(|(edge, instance)| {
                let here = self.reach.contains_key(&(id.clone(), edge.clone()));
                let items = self.items_at(id, placement, &instance.uid);
                let claims = items.keys().any(|key| space_of(&ObjectKey::parse(key).unwrap()) == space);
                here && claims && self.owner(edge, space).is_some_and(|owner| owner != id.workspace)
            })
        };
        let claimed = spaces.into_iter().map(|space| {
            let lost = lost(&space);
            (space, lost)
        });
        Some(Tenure::next(self.tenures.get(id), &placement.uid, &placement.reach, claimed, self.clock))
    }

    /// What an edge shall hold, from nothing.
    fn holds(&self, edge: &Id) -> BTreeMap<Key, Option<Value>> {
        let mut holds: BTreeMap<Key, Option<Value>> = BTreeMap::new();
        let Some(instance) = self.targets.get(edge) else { return holds };
        let everything = Placement::everything();
        let mut all: Vec<(&Id, &Placement, Parameters, bool)> = Vec::new();
        let plain = instance.workspace.as_ref().map(|workspace| plain(workspace));
        if let Some(plain) = &plain {
            all.push((plain, &everything, Parameters::default(), true));
        }
        for (id, placement) in &self.placements {
            if let Some(location) = self.reach.get(&(id.clone(), edge.clone())) {
                let trusted = self.trusts(location, &id.workspace);
                let location = &self.locations[location];
                let all_of = |labels: &Labels| labels.iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
                let parameters =
                    Parameters { labels: all_of(&location.labels), annotations: all_of(&location.annotations) };
                all.push((id, placement, parameters, trusted));
            }
        }
        all.sort_by(|(a, one, ..), (b, other, ..)| (&one.created, a).cmp(&(&other.created, b)));
        for wants_bare in [false, true] {
            for (id, placement, parameters, trusted) in &all {
                let items = self.items_at(id, placement, &instance.uid);
                for (key, item) in items.into_iter().filter(|(_, item)| item.bare == wants_bare) {
                    let parsed = ObjectKey::parse(&key).unwrap();
                    let space = space_of(&parsed);
                    if needs_trust(&parsed) && !trusted
                        || !space.is_empty() && self.owner(edge, space).as_ref() != Some(&id.workspace)
                    {
                        continue;
                    }
                    let mut made = match item.bare {
                        true => Some(projection::bare_namespace(parsed.name, &id.workspace)),
                        false => make(placement, &item, parameters),
                    };
                    if let Some(made) = made.as_mut().filter(|_| parsed.collection == "core/namespaces" && !trusted) {
                        projection::annotate(made, names::EXCLUSIVE, "true");
                    }
                    holds.entry(key.clone()).or_insert(made);
                }
            }
        }
        holds
    }
}

fn is_odd(uid: &str) -> bool {
    uid.ends_with(['1', '3', '5', '7', '9'])
}

fn make(placement: &Placement, item: &crate::workspace::Item, parameters: &Parameters) -> Option<Value> {
    let mut value: Value = serde_json::from_slice(&item.content).unwrap();
    if !placement.everything {
        let customizer: Option<Customizer> = item.tailor.as_ref().map(|t| t.customizer.clone());
        if customize::customizer_of(&value).is_some() && customizer.is_none() {
            return None;
        }
        value = customize::customize(value, customizer.as_ref(), parameters).ok()?;
    }
    if placement.create_only {
        projection::annotate(&mut value, names::CREATE_ONLY, "true");
    }
    Some(value)
}

fn edges() -> impl Iterator<Item = Id> {
    (0..HOMES.len()).flat_map(|home| (0..2).map(move |n| inventory_id(home, n)))
}

/// What the center does with an engine.
struct Rim {
    engine: Engine,
    sets: HashMap<Class, BTreeMap<Key, Content>>,
    edges: BTreeMap<Id, Class>,
    revision: u64,
}

impl Rim {
    fn new() -> Self {
        let mut engine = Engine::default();
        for (home, is_inventory) in HOMES {
            engine.set_inventory(home, is_inventory);
        }
        let mut rim = Self { engine, sets: HashMap::new(), edges: BTreeMap::new(), revision: 0 };
        edges().for_each(|edge| rim.enter(edge));
        rim
    }

    fn enter(&mut self, edge: Id) {
        let class = self.engine.class_of(&edge);
        if !self.sets.contains_key(&class) {
            self.engine.hold(&class);
            self.sets.insert(class.clone(), self.engine.contents(&class));
        }
        self.edges.insert(edge, class);
    }

    /// `before` is the world without the edit, `world` with it.
    fn edit(&mut self, edit: &Edit, world: &World) {
        self.revision += 1;
        match edit {
            Edit::Placement(w, n, _) => {
                let id = placement_id(*w, *n);
                self.engine.set_placement(&id, world.placements.get(&id).cloned());
            }
            Edit::Location(h, n, _) => {
                let id = inventory_id(*h, *n);
                self.engine.set_location(&id, world.locations.get(&id).cloned());
            }
            Edit::Target(h, n, _) => {
                let id = inventory_id(*h, *n);
                self.engine.set_target(&id, world.targets.get(&id).cloned());
            }
            Edit::Object(w, n, _) => self.object(WORKSPACES[*w], KEYS[*n], world),
            Edit::Keep(w, n, _) => {
                let id = placement_id(*w, *n);
                let Some(saved) = world.saved.get(&id) else {
                    return self.engine.set_rollout(&id, None, BTreeMap::new());
                };
                let assign = |uid: &str| u64::from(is_odd(uid));
                self.engine.set_rollout(&id, Some(Arc::new(assign)), [(1, saved.clone())].into());
            }
            Edit::Record(w, n) => {
                let id = placement_id(*w, *n);
                self.engine.set_tenure(&id, world.tenures.get(&id).cloned());
            }
            Edit::Later => self.engine.tick(world.now),
        }
    }

    fn object(&mut self, workspace: &str, key: &str, world: &World) {
        let json = world.value(workspace, key).map(|value| Bytes::from(value.to_string()));
        self.engine.set_object(workspace, &ObjectKey::parse(key).unwrap(), json.as_ref(), self.revision);
    }

    /// Carries out what the engine says.
    fn flush(&mut self, world: &World) -> BTreeSet<Id> {
        let mut changes = self.engine.take_changes();
        for workspace in std::mem::take(&mut changes.wanted) {
            for (_, key) in world.objects.keys().filter(|(name, _)| **name == *workspace) {
                self.object(&workspace, key, world);
            }
            changes.join(self.engine.take_changes());
        }
        for class in &changes.dropped {
            self.sets.remove(class);
        }
        for (class, keys) in &changes.keys {
            let Some(set) = self.sets.get_mut(class) else { continue };
            for key in keys {
                match self.engine.render(class, key) {
                    Some(content) => drop(set.insert(key.clone(), content)),
                    None => drop(set.remove(key)),
                }
            }
        }
        changes.edges.into_iter().for_each(|edge| self.enter(edge));
        let used: BTreeSet<Class> = self.edges.values().cloned().collect();
        let unused: Vec<Class> = self.sets.keys().filter(|class| !used.contains(*class)).cloned().collect();
        for class in unused {
            self.engine.release(&class);
            self.sets.remove(&class);
        }
        changes.placements
    }
}

fn shown(content: &Content) -> Option<Value> {
    match content {
        Content::Whole(bytes) => Some(serde_json::from_slice(bytes).unwrap()),
        Content::Held(_) => None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn the_scheduler_is_what_trying_everything_comes_to(edits in proptest::collection::vec(some_edit(), 1..60)) {
        let (mut schedule, mut world) = (Schedule::default(), World::default());
        for (home, is_inventory) in HOMES {
            schedule.set_inventory(home, is_inventory);
        }
        for edit in edits {
            let before = world.reach.clone();
            let others = (world.placements.clone(), world.targets.clone());
            world.edit(&edit);
            match &edit {
                Edit::Placement(w, n, _) => {
                    let id = placement_id(*w, *n);
                    schedule.set_placement(&id, world.placements.get(&id));
                }
                Edit::Location(h, n, _) => {
                    let id = inventory_id(*h, *n);
                    schedule.set_location(&id, world.locations.get(&id).cloned());
                }
                Edit::Target(h, n, _) => {
                    let id = inventory_id(*h, *n);
                    schedule.set_target(&id, world.targets.get(&id).cloned());
                }
                Edit::Later => schedule.tick(world.now),
                _ => continue,
            }
            let moves = schedule.take_moves();
            for id in world.placements.keys() {
                let want: Vec<(Id, Id)> = world.reach.iter().filter(|((p, _), _)| p == id).map(|((_, t), l)| (t.clone(), l.clone())).collect();
                let got: Vec<(Id, Id)> = schedule.destinations(id).into_iter().map(|d| (d.target, d.location)).collect();
                prop_assert_eq!(got, want, "{} after {:?}", id, edit);
            }
            for edge in edges() {
                let want: Vec<(Id, Id)> = world.reach.iter().filter(|((_, t), _)| *t == edge).map(|((p, _), l)| (p.clone(), l.clone())).collect();
                let got: Vec<(Id, Id)> = schedule.reaching(&edge).into_iter().map(|(p, l)| (p.clone(), l.clone())).collect();
                prop_assert_eq!(got, want, "{} after {:?}", edge, edit);
            }
            for location in world.locations.keys() {
                let stands_for = |(t, i): &(&Id, &Instance)| t.workspace == location.workspace
                    && world.locations[location].instances.iter().any(|s| matches(s, &i.labels));
                let want = world.targets.iter().filter(stands_for).count();
                prop_assert_eq!(schedule.instances(location).0, want);
            }
            // What is said to have moved did, and nothing else; unless it is another object of the same name.
            let uids = |w: &(BTreeMap<Id, Placement>, BTreeMap<Id, Instance>), p: &Id, t: &Id| {
                (w.0.get(p).map(|p| p.uid.clone()), w.1.get(t).map(|t| t.uid.clone()))
            };
            let now = (world.placements.clone(), world.targets.clone());
            let pairs: BTreeSet<&(Id, Id)> = before.keys().chain(world.reach.keys()).collect();
            let mut moved: BTreeMap<Id, BTreeSet<Id>> = BTreeMap::new();
            for (p, t) in pairs {
                let pair = (p.clone(), t.clone());
                let another = uids(&others, p, t) != uids(&now, p, t);
                if before.get(&pair) != world.reach.get(&pair) || another {
                    moved.entry(p.clone()).or_default().insert(t.clone());
                }
            }
            prop_assert_eq!(moves.placements, moved, "after {:?}", edit);
        }
    }

    #[test]
    fn the_engine_is_what_nested_loops_come_to(edits in proptest::collection::vec(some_edit(), 1..50)) {
        let (mut rim, mut world) = (Rim::new(), World::default());
        for (n, edit) in edits.iter().enumerate() {
            world.edit(edit);
            rim.edit(edit, &world);
            // Some edits come together.
            if n % 4 == 3 {
                continue;
            }
            rim.flush(&world);
            for edge in edges() {
                let class = rim.engine.class_of(&edge);
                prop_assert_eq!(&rim.edges[&edge], &class, "nobody said that {} is of another class, after {:?}", edge, edit);
                let mut got: BTreeMap<Key, Option<Value>> =
                    rim.sets[&class].iter().map(|(key, content)| (key.clone(), shown(content))).collect();
                let config = got.remove(CONFIG);
                prop_assert_eq!(config.is_some(), world.reach.keys().any(|(_, t)| *t == edge));
                prop_assert_eq!(&got, &world.holds(&edge), "{} after {:?}", edge, edit);
                for id in world.placements.keys() {
                    let (want, now) = (world.tenure(id), rim.engine.tenure(id, world.clock));
                    prop_assert_eq!(now.as_ref().or(world.tenures.get(id)), want.as_ref(), "{} after {:?}", id, edit);
                }
                for key in got.keys() {
                    let source = rim.engine.source(&class, key).unwrap();
                    prop_assert!(world.value(&source.workspace, key).is_some() || world.saved.contains_key(&source));
                }
            }
        }
        rim.flush(&world);
        // From scratch it is the same, whatever came first; the short account of it too.
        let mut fresh = Rim::new();
        fresh.revision = rim.revision;
        fresh.engine.tick(world.now);
        for (id, location) in &world.locations {
            fresh.engine.set_location(id, Some(location.clone()));
        }
        for (id, placement) in &world.placements {
            fresh.engine.set_placement(id, Some(placement.clone()));
        }
        for (p, t) in world.reach.keys() {
            fresh.engine.recall(&world.targets[t].uid, p.clone());
        }
        // Uids are unique where there is no dice.
        let unique = world.targets.values().map(|t| &t.uid).collect::<BTreeSet<_>>().len() == world.targets.len();
        for (id, instance) in &world.targets {
            fresh.engine.set_target(id, Some(instance.clone()));
        }
        for (id, tenure) in &world.tenures {
            fresh.engine.set_tenure(id, Some(tenure.clone()));
        }
        for (n, id) in world.saved.keys().cloned().collect::<Vec<_>>().iter().enumerate() {
            let w = WORKSPACES.iter().position(|w| *w == &*id.workspace).unwrap();
            let number = if &*id.name == "p0" { 0 } else { 1 };
            fresh.edit(&Edit::Keep(w, number, n < 99), &world);
        }
        fresh.flush(&world);
        if unique {
            for edge in edges() {
                prop_assert_eq!(&fresh.sets[&fresh.edges[&edge]], &rim.sets[&rim.edges[&edge]], "{}", edge);
            }
        }
        // And nothing is left behind.
        for (id, _) in world.placements.clone() {
            rim.engine.set_placement(&id, None);
        }
        for (id, _) in world.targets.clone() {
            rim.engine.set_target(&id, None);
        }
        for id in world.tenures.keys() {
            rim.engine.set_tenure(id, None);
        }
        rim.flush(&World::default());
        prop_assert!(rim.engine.is_empty());
    }
}
