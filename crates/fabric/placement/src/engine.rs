//! From edits to what each class of edges shall hold. Incremental; pure.
//!
//! Whoever drives it passes every change in order, asks for the class of an edge when somebody needs its contents, and takes what
//! changed after each edit. Nothing is remembered of a class but that it is in use: contents are rendered when they are needed.

mod removals;
mod render;
mod spaces;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use bytes::Bytes;
use kinds::ObjectKey;

use crate::{
    Fault, Id, Key,
    class::{Class, Member, is_plain, plain},
    config::CONFIG,
    customize,
    facts::{Instance, Location, Placement},
    schedule::{Moves, Schedule},
    tenure::space_of,
    workspace::{Item, NAMESPACES, Touched, Workspace},
};

pub use removals::Removal;

/// What an edge shall hold under a key.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    Whole(Bytes),
    /// It cannot be made for this class: an edge that has it keeps it as it is, and nobody gets it.
    Held(Fault),
}

/// The contents of a placement as they were when a revision of its rollout was made.
#[derive(Debug, Default, PartialEq)]
pub struct Saved {
    items: BTreeMap<Key, Item>,
    parameters: BTreeSet<String>,
    /// Of which there is something among the items.
    namespaces: BTreeSet<String>,
}

impl Saved {
    pub fn new(items: BTreeMap<Key, Item>) -> Self {
        let keys = |item: &Item| {
            let value = serde_json::from_slice(&item.content).unwrap_or_default();
            customize::keys_in(&value, item.tailor.as_ref().map(|tailor| &tailor.customizer))
        };
        let tailored = items.values().filter(|item| item.is_tailored && !item.bare);
        let spaces = items.keys().filter_map(|key| ObjectKey::parse(key)).map(|key| space_of(&key).to_owned());
        let namespaces = spaces.filter(|space| !space.is_empty()).collect();
        Self { parameters: tailored.flat_map(keys).collect(), items, namespaces }
    }

    pub fn items(&self) -> &BTreeMap<Key, Item> {
        &self.items
    }
}

/// Which revision an edge is to have, by the uid of its SyncTarget.
pub type Assign = Arc<dyn Fn(&str) -> u64 + Send + Sync>;

/// What of a placement is not sent, and an edge where that is so. Whose is there instead is not said: it is another tenant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Conflict {
    /// The namespace belongs to another workspace there.
    Namespace { namespace: String, edge: Id, location: Id },
    /// These concern the whole edge, and the Location does not trust the workspace. It may trust others.
    Untrusted { objects: Vec<Key>, location: Id, trusts_others: bool },
    /// An older placement of another workspace has an object of the same name.
    Object { object: Key, edge: Id, location: Id },
}

/// What edits came to, until somebody takes it.
#[derive(Debug, Default)]
pub struct Changes {
    /// In each class that is in use, the keys that may have other content.
    pub keys: HashMap<Class, BTreeSet<Key>>,
    /// No edge is of these any more; what they hold must not change.
    pub dropped: Vec<Class>,
    /// Edges whose class may be another.
    pub edges: BTreeSet<Id>,
    /// Placements of which something changed: what they select, where they go, what is wrong with them.
    pub placements: BTreeSet<Id>,
    /// Workspaces whose objects are needed from now on: to be passed, and then followed.
    pub wanted: BTreeSet<Arc<str>>,
    pub unwanted: BTreeSet<Arc<str>>,
    pub moves: Moves,
}

impl Changes {
    /// What happened after it belongs to it.
    pub fn join(&mut self, later: Self) {
        for (class, keys) in later.keys {
            self.keys.entry(class).or_default().extend(keys);
        }
        for class in later.dropped {
            self.keys.remove(&class);
            self.dropped.push(class);
        }
        self.edges.extend(later.edges);
        self.placements.extend(later.placements);
        self.wanted.extend(later.wanted);
        self.unwanted.extend(later.unwanted);
        self.moves.edges.extend(later.moves.edges);
        self.moves.locations.extend(later.moves.locations);
        for (id, targets) in later.moves.placements {
            self.moves.placements.entry(id).or_default().extend(targets);
        }
    }
}

#[derive(Default)]
pub struct Engine {
    schedule: Schedule,
    placements: HashMap<Id, Arc<Placement>>,
    workspaces: HashMap<Arc<str>, Home>,
    /// Parameters that are in use by a placement's objects.
    used: HashMap<Id, BTreeSet<String>>,
    assigned: HashMap<Id, Assign>,
    saved: HashMap<Id, BTreeMap<u64, Arc<Saved>>>,
    /// Classes that are in use, by each placement in them.
    made: HashMap<Id, BTreeSet<Class>>,
    /// The workspaces that have an object under a key.
    holders: HashMap<Key, Vec<Arc<str>>>,
    /// The workspaces that have something of a namespace.
    spaces: HashMap<Box<str>, Vec<Arc<str>>>,
    /// The placements that have something of a namespace in a saved revision.
    kept: HashMap<String, BTreeSet<Id>>,
    /// What is recorded of claims to namespaces.
    tenures: HashMap<Id, spaces::Recorded>,
    /// What placements took away from edges that have not done it yet.
    removals: HashMap<Id, Removal>,
    /// Edges that have joined and are not connected now.
    away: BTreeSet<Id>,
    changes: Changes,
}

/// A workspace with placements.
struct Home {
    objects: Workspace,
    placements: BTreeSet<Id>,
    /// How many SyncTargets ask for its plain set.
    asked: usize,
}

impl Engine {
    pub fn set_placement(&mut self, id: &Id, placement: Option<Placement>) {
        let before = self.before(id, placement.as_ref());
        let allows = |engine: &Self| engine.placements.get(id).is_some_and(|placement| placement.allow_removal);
        let allowed = allows(self);
        let selected = self.selected_away(id, placement.as_ref());
        self.schedule.set_placement(id, placement.as_ref());
        self.put_placement(id, placement);
        self.note_removal(id, before);
        self.note_gone(selected);
        if allowed != allows(self) {
            // Objects of it that are gone may be held where the placement stays.
            self.edges_of(id);
        }
    }

    /// A workspace is being deleted: what is placed there goes all at once, not one object after the other.
    pub fn end_workspace(&mut self, workspace: &str) {
        let placements = self.workspaces.get(workspace).map(|home| home.placements.clone()).unwrap_or_default();
        placements.iter().filter(|id| !is_plain(id)).for_each(|id| self.set_placement(id, None));
    }

    pub fn set_location(&mut self, id: &Id, location: Option<Location>) {
        let trusted = |engine: &Self| engine.schedule.location(id).map(|location| location.trusted.clone());
        let before = trusted(self);
        self.schedule.set_location(id, location);
        if before != trusted(self) {
            // What of them is not sent is another.
            self.changes.placements.extend(self.schedule.placements_behind(id));
        }
    }

    pub fn set_target(&mut self, id: &Id, instance: Option<Instance>) {
        let named = |instance: Option<&Instance>| instance.and_then(|instance| instance.workspace.clone());
        let (before, now) = (named(self.schedule.instance(id)), named(instance.as_ref()));
        if instance.is_none() {
            self.settled(id);
        }
        match instance.as_ref().is_some_and(|instance| instance.joined && !instance.ready) {
            true => drop(self.away.insert(id.clone())),
            false => drop(self.away.remove(id)),
        }
        self.schedule.set_target(id, instance);
        if before == now {
            return;
        }
        if let Some(now) = now {
            let plain = plain(&now);
            if !self.placements.contains_key(&plain) {
                self.put_placement(&plain, Some(Placement::everything()));
            }
            if let Some(home) = self.workspaces.get_mut(&*now) {
                home.asked += 1;
            }
        }
        if let Some(before) = before
            && let Some(home) = self.workspaces.get_mut(&*before)
        {
            home.asked -= 1;
            if home.asked == 0 {
                self.put_placement(&plain(&before), None);
            }
        }
    }

    pub fn set_inventory(&mut self, workspace: &str, is_inventory: bool) {
        self.schedule.set_inventory(workspace, is_inventory);
    }

    pub fn recall(&mut self, target_uid: &str, placement: Id) {
        self.schedule.recall(target_uid, placement);
    }

    pub fn tick(&mut self, now: i64) {
        self.schedule.tick(now);
    }

    /// An object of a workspace became this, or is gone. Those of workspaces that are not wanted say nothing.
    pub fn set_object(&mut self, workspace: &str, of: &ObjectKey<'_>, json: Option<&Bytes>, revision: u64) {
        let taken = self.taken_away(workspace, of, json.is_none());
        let Some((name, home)) =
            self.workspaces.get_key_value(workspace).map(|(name, _)| name.clone()).and_then(|name| {
                let home = self.workspaces.get_mut(workspace)?;
                Some((name, home))
            })
        else {
            return;
        };
        let text = of.to_string();
        let takers = |home: &Home, keys: &[&str]| -> BTreeSet<Id> {
            let takes = |id: &&Id| {
                let placement = self.placements.get(id);
                placement.is_some_and(|p| keys.iter().any(|key| home.objects.takes(p, key).is_some()))
            };
            home.placements.iter().filter(takes).cloned().collect()
        };
        let mut concerned = takers(home, &[&text]);
        let space = space_of(of);
        let had_space = !space.is_empty() && home.objects.has_space(space);
        let had = home.objects.has(&text);
        let touched = home.objects.set(of, json, revision);
        let has = home.objects.has(&text);
        let has_space = !space.is_empty() && home.objects.has_space(space);
        let relabelled = of.collection == NAMESPACES && touched.presence;
        // Of a Namespace with other labels, and of many objects at once, nobody asks one by one whom they concern.
        if touched.keys.len() > 8 || (of.collection == NAMESPACES && touched.parameters) {
            concerned.extend(home.placements.iter().cloned());
        } else {
            let keys: Vec<&str> = touched.keys.iter().map(|key| &**key).collect();
            concerned.extend(takers(home, &keys));
        }
        if had != has {
            self.share(&name, &Key::from(text.as_str()), has);
        }
        if had_space != has_space {
            self.share_space(&name, space, has_space);
        } else if relabelled {
            self.contest(space);
        }
        self.touch(touched, concerned);
        self.note_gone(taken);
    }

    /// Who gets which revision of a placement, and what was in those that are not 0.
    pub fn set_rollout(&mut self, id: &Id, assign: Option<Assign>, saved: BTreeMap<u64, Arc<Saved>>) {
        let assigned = match assign {
            Some(assign) => self.assigned.insert(id.clone(), assign),
            None => self.assigned.remove(id),
        };
        let before = match saved.is_empty() {
            true => self.saved.remove(id),
            false => self.saved.insert(id.clone(), saved),
        };
        // A revision that says something else than before is another one: what was made of it is void.
        let (was, is) = (before.unwrap_or_default(), self.saved.get(id));
        let same = |number: u64| match (was.get(&number), is.and_then(|all| all.get(&number))) {
            (Some(before), Some(now)) => Arc::ptr_eq(before, now) || before == now,
            (before, now) => before.is_none() && now.is_none(),
        };
        let differs = |member: &Member| member.placement == *id && member.revision != 0 && !same(member.revision);
        let void: Vec<Class> =
            self.made.get(id).into_iter().flatten().filter(|class| class.iter().any(differs)).cloned().collect();
        // Those that have the same revision as before are as they were.
        let now = self.assigned.get(id);
        let revision = |assign: Option<&Assign>, uid: &str| assign.map_or(0, |assign| assign(uid));
        let moved = |uid: &str| {
            let number = revision(now, uid);
            number != revision(assigned.as_ref(), uid) || !same(number)
        };
        let moved: Vec<Id> =
            self.schedule.destinations(id).into_iter().filter(|one| moved(&one.uid)).map(|one| one.target).collect();
        void.iter().for_each(|class| self.drop_class(class));
        self.changes.edges.extend(moved);
        self.changes.placements.insert(id.clone());
        self.keep_spaces(id);
    }

    /// A class is in use from now on: its keys are among the changes.
    pub fn hold(&mut self, class: &Class) {
        for member in class.iter() {
            self.made.entry(member.placement.clone()).or_default().insert(class.clone());
        }
    }

    /// Nobody needs a class any more.
    pub fn release(&mut self, class: &Class) {
        for member in class.iter() {
            if let Some(classes) = self.made.get_mut(&member.placement) {
                classes.remove(class);
                if classes.is_empty() {
                    self.made.remove(&member.placement);
                }
            }
        }
        self.changes.keys.remove(class);
    }

    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    pub fn placement(&self, id: &Id) -> Option<&Arc<Placement>> {
        self.placements.get(id)
    }

    /// What changed since this was last asked.
    pub fn take_changes(&mut self) -> Changes {
        let moves = self.schedule.take_moves();
        let mut changes = std::mem::take(&mut self.changes);
        changes.edges.extend(moves.edges.iter().cloned());
        for (id, edges) in &moves.placements {
            changes.placements.insert(id.clone());
            changes.placements.extend(self.rivals(id, edges.iter()));
        }
        changes.moves = moves;
        changes
    }

    /// Nothing is known, but for inventory that nobody uses.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.placements.is_empty()
            && self.workspaces.is_empty()
            && self.used.is_empty()
            && self.assigned.is_empty()
            && self.saved.is_empty()
            && self.made.is_empty()
            && self.holders.is_empty()
            && self.spaces.is_empty()
            && self.kept.is_empty()
            && self.tenures.is_empty()
    }

    /// Placements of other workspaces on these edges: they may win or lose objects by what happens to this one.
    fn rivals<'a>(&self, placement: &Id, edges: impl Iterator<Item = &'a Id>) -> BTreeSet<Id> {
        let there = edges.flat_map(|edge| self.schedule.reaching(edge)).map(|(id, _)| id);
        there.filter(|id| id.workspace != placement.workspace).cloned().collect()
    }

    fn put_placement(&mut self, id: &Id, placement: Option<Placement>) {
        let before = self.placements.get(id).cloned();
        if before.as_deref() == placement.as_ref() {
            return;
        }
        let taken = |engine: &Self| match engine.placements.contains_key(id) {
            true => engine.objects(id).into_iter().collect(),
            false => BTreeSet::new(),
        };
        let mut touched = taken(self);
        let is_same = |p: &Placement| before.as_deref().is_some_and(|b| (&b.uid, &b.created) == (&p.uid, &p.created));
        if !placement.as_ref().is_some_and(is_same) {
            // Another one, or none any more: its edges are of other classes now.
            let classes: Vec<Class> = self.made.get(id).into_iter().flatten().cloned().collect();
            classes.iter().for_each(|class| self.drop_class(class));
            self.edges_of(id);
        }
        let rivals = self.rivals(id, self.schedule.routes(id).map(|(edge, _)| edge));
        self.changes.placements.extend(rivals);
        self.changes.placements.insert(id.clone());
        match placement {
            Some(placement) => {
                self.placements.insert(id.clone(), Arc::new(placement));
                let wanted = &mut self.changes.wanted;
                let home = self.workspaces.entry(id.workspace.clone()).or_insert_with(|| {
                    wanted.insert(id.workspace.clone());
                    let objects = Workspace::new(id.workspace.clone());
                    Home { objects, placements: BTreeSet::new(), asked: 0 }
                });
                home.placements.insert(id.clone());
                self.changes.unwanted.remove(&id.workspace);
                touched.extend(taken(self));
                self.touch_keys(id, touched, true);
                self.reuse(id);
                let spaces = self.workspaces.get(&id.workspace).into_iter().flat_map(|home| home.objects.spaces());
                let spaces: BTreeSet<String> = spaces.map(str::to_owned).collect();
                spaces.iter().for_each(|space| self.contest(space));
            }
            None => {
                self.placements.remove(id);
                self.used.remove(id);
                self.assigned.remove(id);
                if self.saved.remove(id).is_some() {
                    self.keep_spaces(id);
                }
                let empty = self.workspaces.get_mut(&id.workspace).is_some_and(|home| {
                    home.placements.remove(id);
                    home.placements.is_empty()
                });
                if empty {
                    self.let_go(&id.workspace.clone());
                }
            }
        }
    }

    /// A workspace has no placements any more.
    fn let_go(&mut self, workspace: &Arc<str>) {
        if let Some(home) = self.workspaces.remove(workspace) {
            home.objects.keys().for_each(|key| self.share(workspace, key, false));
            let spaces: BTreeSet<&str> = home.objects.spaces().collect();
            spaces.into_iter().for_each(|space| self.share_space(workspace, space, false));
        }
        self.changes.wanted.remove(workspace);
        self.changes.unwanted.insert(workspace.clone());
    }

    /// A key is in this workspace, or not any more. Placements of others that have the same may win now, or not.
    fn share(&mut self, workspace: &Arc<str>, key: &Key, has: bool) {
        let holders = self.holders.entry(key.clone()).or_default();
        if has {
            holders.push(workspace.clone());
        } else {
            holders.retain(|name| name != workspace);
            if holders.is_empty() {
                self.holders.remove(key);
                return;
            }
        }
        for other in holders.iter().filter(|name| *name != workspace) {
            let Some(home) = self.workspaces.get(other) else { continue };
            let takes = |id: &&Id| self.placements.get(id).is_some_and(|p| home.objects.takes(p, key).is_some());
            self.changes.placements.extend(home.placements.iter().filter(takes).cloned());
        }
    }

    fn touch(&mut self, touched: Touched, concerned: BTreeSet<Id>) {
        let Touched { keys, presence, parameters } = touched;
        if keys.is_empty() && !presence {
            return;
        }
        for id in &concerned {
            self.touch_keys(id, keys.clone(), presence);
            if parameters {
                self.reuse(id);
            }
        }
        self.changes.placements.extend(concerned);
    }

    fn touch_keys(&mut self, id: &Id, mut keys: BTreeSet<Key>, presence: bool) {
        let Some(classes) = self.made.get(id) else { return };
        if presence {
            keys.insert(Key::from(CONFIG));
        }
        for class in classes {
            self.changes.keys.entry(class.clone()).or_default().extend(keys.iter().cloned());
        }
    }

    /// Looks which parameters a placement's objects name now.
    fn reuse(&mut self, id: &Id) {
        let (Some(placement), Some(home)) = (self.placements.get(id), self.workspaces.get(&id.workspace)) else {
            return;
        };
        let now = if placement.everything { BTreeSet::new() } else { home.objects.parameters(placement) };
        let before = self.used.get(id);
        if before.is_some_and(|before| *before == now) || (before.is_none() && now.is_empty()) {
            return;
        }
        self.used.insert(id.clone(), now);
        // Edges that were equal may not be so any more, or the other way round.
        let live = |class: &&Class| class.iter().any(|member| member.placement == *id && member.revision == 0);
        let classes: Vec<Class> = self.made.get(id).into_iter().flatten().filter(live).cloned().collect();
        classes.iter().for_each(|class| self.drop_class(class));
        self.edges_of(id);
    }

    fn drop_class(&mut self, class: &Class) {
        self.release(class);
        self.changes.dropped.push(class.clone());
    }

    fn edges_of(&mut self, id: &Id) {
        self.changes.edges.extend(self.schedule.routes(id).map(|(edge, _)| edge.clone()));
    }
}
