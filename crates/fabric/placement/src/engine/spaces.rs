//! Whose the namespaces of a class are, what of a placement stays at the center for that, and what is to be recorded of it.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use kinds::ObjectKey;

use super::{Conflict, Engine, render::LOOKED_AT};
use crate::{
    Id, Key,
    class::{Class, Member, is_plain},
    config::CONFIG,
    facts::Selectors,
    tenure::{Rank, Tenure, is_reserved, needs_trust, space_of},
};

/// A record, and the selectors that are in it.
pub(super) struct Recorded {
    pub tenure: Tenure,
    selectors: Selectors,
}

/// The owners of the namespaces of a class, looked up once each.
pub(super) struct Owners<'a> {
    class: &'a Class,
    /// All placements are of one workspace, so nothing is shared.
    alone: bool,
    known: HashMap<String, Option<Arc<str>>>,
}

impl<'a> Owners<'a> {
    pub fn of(class: &'a Class) -> Self {
        let first = class.first().map(|member| &member.placement.workspace);
        let alone = class.iter().all(|member| Some(&member.placement.workspace) == first);
        Self { class, alone, known: HashMap::new() }
    }

    /// Whether the edges of the class may get an object under this key from a member.
    pub fn permit(&mut self, engine: &Engine, member: &Member, key: &ObjectKey<'_>) -> bool {
        if !member.trusted && needs_trust(key) {
            return false;
        }
        let space = space_of(key);
        if self.alone || space.is_empty() {
            return true;
        }
        if let Some(owner) = self.known.get(space) {
            return owner.as_ref() == Some(&member.placement.workspace);
        }
        let owner = engine.owner(self.class, space).map(|owner| owner.placement.workspace.clone());
        let permitted = owner.as_ref() == Some(&member.placement.workspace);
        self.known.insert(space.to_owned(), owner);
        permitted
    }
}

impl Engine {
    /// What is recorded of a placement's claims, or that nothing is.
    pub fn set_tenure(&mut self, id: &Id, tenure: Option<Tenure>) {
        let before = self.tenures.get(id).map(|recorded| recorded.tenure.clone());
        if before == tenure {
            return;
        }
        match &tenure {
            Some(tenure) => {
                let recorded = Recorded { tenure: tenure.clone(), selectors: tenure.selectors() };
                self.tenures.insert(id.clone(), recorded);
            }
            None => drop(self.tenures.remove(id)),
        }
        let Some(uid) = self.placements.get(id).map(|placement| placement.uid.clone()) else { return };
        let valid = |tenure: &Option<Tenure>| tenure.as_ref().filter(|tenure| *tenure.uid == *uid).cloned();
        let (before, now) = (valid(&before), valid(&tenure));
        let reach = |tenure: &Option<Tenure>| tenure.as_ref().map(|tenure| tenure.reach.clone());
        if reach(&before) != reach(&now) {
            self.edges_of(id);
        }
        let names = before.iter().chain(&now).flat_map(|tenure| tenure.namespaces.keys());
        let names: BTreeSet<&String> = names.collect();
        let rank = |tenure: &Option<Tenure>, name: &str| Tenure::rank(tenure.as_ref(), name, false);
        for name in names.into_iter().filter(|name| rank(&before, name) != rank(&now, name)) {
            self.contest(name);
        }
    }

    /// What is recorded of a placement.
    pub fn recorded(&self, id: &Id) -> Option<&Tenure> {
        self.tenures.get(id).map(|recorded| &recorded.tenure)
    }

    /// Every placement of which something is recorded.
    pub fn all_recorded(&self) -> impl Iterator<Item = &Id> {
        self.tenures.keys()
    }

    /// What has to be recorded of a placement's claims. `None` if that is what is recorded.
    pub fn tenure(&self, id: &Id, now: u64) -> Option<Tenure> {
        let placement = self.placements.get(id).filter(|_| !is_plain(id))?;
        let claimed = self.claimed(id);
        let lost = self.lost(id, &claimed);
        let before = self.tenures.get(id).map(|recorded| &recorded.tenure);
        let claimed = claimed.into_iter().map(|name| {
            let lost = lost.contains_key(&name);
            (name, lost)
        });
        let next = Tenure::next(before, &placement.uid, &placement.reach, claimed, now);
        (before != Some(&next)).then_some(next)
    }

    /// Whether an edge behind this Location is one that a placement has come to since its claims were recorded.
    pub(super) fn is_fresh(&self, id: &Id, location: &Id) -> bool {
        let (Some(placement), Some(recorded)) = (self.placements.get(id), self.tenures.get(id)) else { return false };
        if *recorded.tenure.uid != *placement.uid || *recorded.tenure.reach == *placement.reach {
            return false;
        }
        let location = self.schedule.location(location);
        location.is_none_or(|location| !Tenure::reached(&recorded.selectors, &location.labels))
    }

    /// The member whose workspace has a namespace on the edges of a class.
    pub(super) fn owner<'a>(&self, class: &'a Class, namespace: &str) -> Option<&'a Member> {
        let claims = |member: &&Member| (member.trusted || !is_reserved(namespace)) && self.claims(member, namespace);
        class.iter().filter(claims).min_by_key(|member| {
            let placement = self.placements.get(&member.placement);
            let created = placement.map(|placement| placement.created.clone());
            (self.rank(member, namespace), created, &member.placement)
        })
    }

    /// The workspace that has a namespace on an edge.
    pub fn owner_of(&self, edge: &Id, namespace: &str) -> Option<Arc<str>> {
        self.owner(&self.class_of(edge), namespace).map(|member| member.placement.workspace.clone())
    }

    /// Whether a workspace places anything on an edge.
    pub fn reaches(&self, edge: &Id, workspace: &str) -> bool {
        self.schedule.reaching(edge).into_iter().any(|(placement, _)| *placement.workspace == *workspace)
    }

    /// The edges that placements of a workspace reach, so many at most, each with the namespaces that it has there.
    pub fn reached_by(&self, workspace: &str, most: usize) -> BTreeMap<Id, BTreeSet<String>> {
        let mut found: BTreeMap<Id, BTreeSet<String>> = BTreeMap::new();
        let Some(home) = self.workspaces.get(workspace) else { return found };
        for id in home.placements.iter().filter(|id| !is_plain(id)) {
            let claimed = self.claimed(id);
            let mut routes: Vec<&Id> = self.schedule.routes(id).take(LOOKED_AT).map(|(edge, _)| edge).collect();
            routes.sort();
            for edge in routes {
                if found.len() >= most && !found.contains_key(edge) {
                    break;
                }
                let class = self.class_of(edge);
                let has = |name: &&String| {
                    self.owner(&class, name).is_some_and(|owner| *owner.placement.workspace == *workspace)
                };
                found.entry(edge.clone()).or_default().extend(claimed.iter().filter(has).cloned());
            }
        }
        found
    }

    fn rank(&self, member: &Member, namespace: &str) -> Rank {
        let Some(placement) = self.placements.get(&member.placement) else { return Tenure::rank(None, "", false) };
        if placement.everything {
            return Rank::FIRST;
        }
        let recorded = self.tenures.get(&member.placement).map(|recorded| &recorded.tenure);
        Tenure::rank(recorded.filter(|tenure| *tenure.uid == *placement.uid), namespace, member.fresh)
    }

    fn claims(&self, member: &Member, namespace: &str) -> bool {
        let id = &member.placement;
        if member.revision != 0 {
            let saved = self.saved.get(id).and_then(|all| all.get(&member.revision));
            return saved.is_some_and(|saved| saved.namespaces.contains(namespace));
        }
        let Some((placement, home)) = self.placements.get(id).zip(self.workspaces.get(&id.workspace)) else {
            return false;
        };
        home.objects.claims(placement, namespace)
    }

    /// Every namespace of which a placement takes something, in any of its revisions.
    fn claimed(&self, id: &Id) -> BTreeSet<String> {
        let mut names: BTreeSet<String> =
            self.saved.get(id).into_iter().flatten().flat_map(|(_, saved)| saved.namespaces.iter().cloned()).collect();
        if let Some((placement, home)) = self.placements.get(id).zip(self.workspaces.get(&id.workspace)) {
            let takes = |name: &&str| home.objects.claims(placement, name);
            names.extend(home.objects.spaces().filter(takes).map(str::to_owned));
        }
        names
    }

    /// The classes of a placement's edges that differ, each with one edge of it and the Location by which that is reached.
    fn classes_of(&self, id: &Id) -> Vec<(Class, Id, Id)> {
        let (mut classes, mut seen) = (Vec::new(), BTreeSet::new());
        let mut routes: Vec<(&Id, &Id)> = self.schedule.routes(id).take(LOOKED_AT).collect();
        routes.sort();
        for (edge, location) in routes {
            let class = self.class_of(edge);
            if seen.insert(class.clone()) {
                classes.push((class, edge.clone(), location.clone()));
            }
        }
        classes
    }

    /// The workspaces that have something of a namespace, now or in a saved revision.
    fn sharing(&self, namespace: &str) -> impl Iterator<Item = &Arc<str>> {
        let kept = self.kept.get(namespace).into_iter().flatten().map(|id| &id.workspace);
        self.spaces.get(namespace).into_iter().flatten().chain(kept)
    }

    fn is_shared(&self, namespace: &str) -> bool {
        let mut sharing = self.sharing(namespace);
        let first = sharing.next();
        sharing.any(|other| Some(other) != first)
    }

    /// Those of the namespaces that belong to others, each with an edge where that is so and the Location that leads there.
    fn lost(&self, id: &Id, claimed: &BTreeSet<String>) -> BTreeMap<String, (Id, Id)> {
        let shared: Vec<&String> = claimed.iter().filter(|name| self.is_shared(name)).collect();
        let mut lost = BTreeMap::new();
        if shared.is_empty() {
            return lost;
        }
        for (class, edge, location) in self.classes_of(id) {
            for name in &shared {
                let owner = self.owner(&class, name);
                let mine = class.iter().any(|m| m.placement == *id && self.claims(m, name));
                if mine && owner.is_some_and(|owner| owner.placement.workspace != id.workspace) {
                    lost.entry((*name).clone()).or_insert_with(|| (edge.clone(), location.clone()));
                }
            }
        }
        lost
    }

    /// What of a placement is not sent somewhere: it is in a namespace that belongs to another workspace there, it concerns the whole
    /// edge and the owner of the edge does not trust its workspace, or an older placement of another workspace has an object of the same name.
    pub fn conflicts(&self, id: &Id) -> Vec<Conflict> {
        let (Some(placement), Some(home)) = (self.placements.get(id), self.workspaces.get(&id.workspace)) else {
            return Vec::new();
        };
        let mut conflicts = Vec::new();
        for (namespace, (edge, location)) in self.lost(id, &self.claimed(id)) {
            conflicts.push(Conflict::Namespace { namespace, edge, location });
        }
        let taken = home.objects.taken(placement);
        let (mut powerful, mut rivalled) = (Vec::new(), Vec::new());
        for key in taken.keys() {
            let Some(parsed) = ObjectKey::parse(key).filter(needs_trust) else { continue };
            powerful.push(key);
            if space_of(&parsed).is_empty() && self.holders.get(key).is_some_and(|all| all.len() > 1) {
                rivalled.push(key);
            }
        }
        if !powerful.is_empty() {
            let routes: BTreeSet<&Id> = self.schedule.routes(id).map(|(_, location)| location).collect();
            let refusing = routes.into_iter().find(|location| !self.trusts(location, &id.workspace));
            if let Some(location) = refusing {
                let objects: Vec<Key> = powerful.into_iter().cloned().collect();
                let trusts_others = self.schedule.location(location).is_some_and(|found| !found.trusted.is_empty());
                conflicts.push(Conflict::Untrusted { objects, location: location.clone(), trusts_others });
            }
        }
        if !rivalled.is_empty() {
            let classes = self.classes_of(id);
            for key in rivalled {
                let lost = classes.iter().find(|(class, ..)| {
                    let here = class.iter().any(|member| member.placement == *id && member.trusted);
                    here && self.source(class, key).is_some_and(|winner| winner.workspace != id.workspace)
                });
                if let Some((_, edge, location)) = lost {
                    let (edge, location) = (edge.clone(), location.clone());
                    conflicts.push(Conflict::Object { object: key.clone(), edge, location });
                }
            }
        }
        conflicts
    }

    /// Whether what a workspace places by a Location may concern the whole edge.
    pub(super) fn trusts(&self, location: &Id, workspace: &str) -> bool {
        *location.workspace == *workspace
            || self.schedule.location(location).is_some_and(|found| found.trusts(workspace))
    }

    /// Something about a claim to a namespace is another: whatever there is of it may go to others, if it is shared.
    pub(super) fn contest(&mut self, namespace: &str) {
        if !self.is_shared(namespace) {
            return;
        }
        let sharing: BTreeSet<Arc<str>> = self.sharing(namespace).cloned().collect();
        let (mut keys, mut classes): (BTreeSet<Key>, BTreeSet<Class>) = ([Key::from(CONFIG)].into(), BTreeSet::new());
        for home in sharing.iter().filter_map(|name| self.workspaces.get(name)) {
            keys.extend(home.objects.space(namespace).cloned());
            for id in &home.placements {
                classes.extend(self.made.get(id).into_iter().flatten().cloned());
                self.changes.placements.insert(id.clone());
                let saved = self.saved.get(id).into_iter().flatten().flat_map(|(_, saved)| saved.items.keys());
                let inside = |key: &&Key| ObjectKey::parse(key).is_some_and(|key| space_of(&key) == namespace);
                keys.extend(saved.filter(inside).cloned());
            }
        }
        for class in classes {
            self.changes.keys.entry(class).or_default().extend(keys.iter().cloned());
        }
    }

    /// A workspace has something of a namespace, or has not any more.
    pub(super) fn share_space(&mut self, workspace: &Arc<str>, namespace: &str, has: bool) {
        // Those that are left are told as well as those that come.
        if !has {
            self.contest(namespace);
        }
        let all = self.spaces.entry(namespace.into()).or_default();
        all.retain(|name| name != workspace);
        if has {
            all.push(workspace.clone());
        }
        if all.is_empty() {
            self.spaces.remove(namespace);
        }
        if has {
            self.contest(namespace);
        }
    }

    /// The saved revisions of a placement have something of these namespaces.
    pub(super) fn keep_spaces(&mut self, id: &Id) {
        self.kept.retain(|_, ids| {
            ids.remove(id);
            !ids.is_empty()
        });
        let saved = self.saved.get(id).into_iter().flatten().flat_map(|(_, saved)| saved.namespaces.iter().cloned());
        for name in saved.collect::<BTreeSet<_>>() {
            self.kept.entry(name).or_default().insert(id.clone());
        }
    }
}
