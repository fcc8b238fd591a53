//! What the edges of a class hold, from what the engine knows now.

use std::collections::{BTreeMap, BTreeSet};

use kinds::{ObjectKey, names};
use serde_json::Value;

use super::{Content, Engine, spaces::Owners};
use crate::{
    Fault, Id, Key, Parameters,
    class::{Class, Member, is_plain, plain},
    config::{CONFIG, Config},
    customize, projection,
    workspace::{Item, NAMESPACES, Take},
};

/// At most this many edges of a placement are asked for what is wrong there.
pub(super) const LOOKED_AT: usize = 10_000;

impl Engine {
    /// The class of an edge. An edge that nothing reaches is of the class that is empty.
    pub fn class_of(&self, edge: &Id) -> Class {
        let Some(instance) = self.schedule.instance(edge) else { return Class::from([]) };
        let reaching = self.schedule.reaching(edge).into_iter();
        let mut members: Vec<Member> =
            reaching.map(|(placement, location)| self.member(placement, location, &instance.uid)).collect();
        if let Some(workspace) = &instance.workspace {
            // The SyncTarget's owner asked for it.
            let (parameters, placement) = (Parameters::default(), plain(workspace));
            members.push(Member { placement, revision: 0, parameters, trusted: true, fresh: false });
        }
        members.sort();
        members.into()
    }

    /// What a placement is to an edge that it reaches by this Location.
    fn member(&self, placement: &Id, location: &Id, uid: &str) -> Member {
        let revision = self.assigned.get(placement).map_or(0, |assign| assign(uid));
        let saved = self.saved.get(placement).and_then(|all| all.get(&revision)).filter(|_| revision != 0);
        // One that was not saved cannot be had; what is declared now can.
        let revision = if saved.is_some() { revision } else { 0 };
        let used = saved.map_or_else(|| self.used.get(placement), |saved| Some(&saved.parameters));
        let trusted = self.trusts(location, &placement.workspace);
        let fresh = self.is_fresh(placement, location);
        let location = self.schedule.location(location);
        let value = |key: &String| Some((key.clone(), location?.parameter(key)?.to_owned()));
        let labels = used.into_iter().flatten().filter_map(value).collect();
        let parameters = Parameters { labels, annotations: BTreeMap::new() };
        Member { placement: placement.clone(), revision, parameters, trusted, fresh }
    }

    /// Everything that the edges of a class shall hold.
    pub fn contents(&self, class: &Class) -> BTreeMap<Key, Content> {
        self.contents_of(class).into_iter().map(|(key, (content, _))| (key, content)).collect()
    }

    /// The same, each with the placement that it is from; an edge's configuration is from none.
    pub fn contents_of(&self, class: &Class) -> BTreeMap<Key, (Content, Option<Id>)> {
        let mut keys: BTreeSet<Key> = class.iter().flat_map(|member| self.taken(member).into_keys()).collect();
        keys.insert(Key::from(CONFIG));
        let mut owners = Owners::of(class);
        keys.into_iter().filter_map(|key| Some((key.clone(), self.render_by(&mut owners, class, &key)?))).collect()
    }

    /// What the edges of a class shall hold under a key.
    pub fn render(&self, class: &Class, key: &str) -> Option<Content> {
        self.render_of(class, key).map(|(content, _)| content)
    }

    /// The same, with the placement that it is from.
    pub fn render_of(&self, class: &Class, key: &str) -> Option<(Content, Option<Id>)> {
        self.render_by(&mut Owners::of(class), class, key)
    }

    fn render_by(&self, owners: &mut Owners<'_>, class: &Class, key: &str) -> Option<(Content, Option<Id>)> {
        if key == CONFIG {
            return self.config(owners, class).map(|content| (content, None));
        }
        let (member, item) = self.winner(owners, class, key)?;
        Some((self.make(member, key, item), Some(member.placement.clone())))
    }

    /// The same if the object were this.
    pub fn render_as(&self, class: &Class, key: &ObjectKey<'_>, value: Value) -> Option<Content> {
        let text = key.to_string();
        let (member, mut item) = self.winner(&mut Owners::of(class), class, &text)?;
        if !item.bare {
            item.content = projection::project(key, value, &member.placement.workspace)?;
        }
        Some(self.make(member, &text, item))
    }

    /// Whose object it is that the edges of a class hold under a key.
    pub fn source(&self, class: &Class, key: &str) -> Option<Id> {
        self.winner(&mut Owners::of(class), class, key).map(|(member, _)| member.placement.clone())
    }

    /// Everything that a placement selects now.
    pub fn items(&self, placement: &Id) -> BTreeMap<Key, Item> {
        let (Some(found), Some(home)) = (self.placements.get(placement), self.workspaces.get(&placement.workspace))
        else {
            return BTreeMap::new();
        };
        let taken = home.objects.taken(found).into_keys();
        taken.filter_map(|key| Some((key.clone(), home.objects.item(found, &key)?))).collect()
    }

    /// The keys of it.
    pub fn objects(&self, placement: &Id) -> Vec<Key> {
        let (placement, parameters) = (placement.clone(), Parameters::default());
        let member = Member { placement, revision: 0, parameters, trusted: false, fresh: false };
        self.taken(&member).into_keys().collect()
    }

    /// The placements that take an object of a workspace.
    pub fn takers(&self, workspace: &str, key: &str) -> Vec<Id> {
        let Some(home) = self.workspaces.get(workspace) else { return Vec::new() };
        let takes = |id: &&Id| self.placements.get(id).is_some_and(|p| home.objects.takes(p, key).is_some());
        home.placements.iter().filter(takes).cloned().collect()
    }

    /// What keeps objects of a placement from being sent, on up to so many Locations that differ. The rest is like one of them, or is
    /// found when its edge is there.
    pub fn faults(&self, placement: &Id, most: usize) -> Vec<Fault> {
        let (Some(found), Some(home)) = (self.placements.get(placement), self.workspaces.get(&placement.workspace))
        else {
            return Vec::new();
        };
        let tailored: Vec<(&Key, Item)> = home
            .objects
            .tailored()
            .iter()
            .filter_map(|key| Some((key, home.objects.item(found, key)?)))
            .filter(|(_, item)| !item.bare)
            .collect();
        if tailored.is_empty() {
            return Vec::new();
        }
        let (mut faults, mut seen) = (Vec::new(), BTreeSet::new());
        for (target, location) in self.schedule.routes(placement).take(LOOKED_AT) {
            let uid = self.schedule.instance(target).map_or("", |instance| &instance.uid);
            let member = self.member(placement, location, uid);
            if seen.len() >= most {
                break;
            }
            if !seen.insert(member.clone()) {
                continue;
            }
            for (key, item) in &tailored {
                if let Content::Held(fault) = self.make(&member, key, item.clone()) {
                    faults.push(Fault { location: Some(location.clone()), ..fault });
                }
            }
        }
        faults.sort();
        faults
    }

    fn taken(&self, member: &Member) -> BTreeMap<Key, Take> {
        let id = &member.placement;
        if member.revision != 0 {
            let saved = self.saved.get(id).and_then(|all| all.get(&member.revision));
            let take = |item: &Item| if item.bare { Take::Bare } else { Take::Whole };
            return saved.iter().flat_map(|saved| &saved.items).map(|(key, item)| (key.clone(), take(item))).collect();
        }
        match (self.placements.get(id), self.workspaces.get(&id.workspace)) {
            (Some(placement), Some(home)) => home.objects.taken(placement),
            _ => BTreeMap::new(),
        }
    }

    fn item(&self, member: &Member, key: &str) -> Option<Item> {
        let id = &member.placement;
        if member.revision != 0 {
            return self.saved.get(id)?.get(&member.revision)?.items.get(key).cloned();
        }
        self.workspaces.get(&id.workspace)?.objects.item(self.placements.get(id)?, key)
    }

    /// The oldest placement that has it and may place it; one that has all of it before one that only wants it to exist.
    fn winner<'a>(&self, owners: &mut Owners<'_>, class: &'a Class, key: &str) -> Option<(&'a Member, Item)> {
        let parsed = ObjectKey::parse(key)?;
        let having = class.iter().filter_map(|member| {
            let item = self.item(member, key)?;
            owners.permit(self, member, &parsed).then_some((member, item))
        });
        having.min_by(|(a, one), (b, other)| {
            let created = |member: &Member| self.placements.get(&member.placement).map(|p| p.created.clone());
            let rank = |member: &Member, item: &Item| (item.bare, created(member));
            rank(a, one).cmp(&rank(b, other)).then_with(|| a.placement.cmp(&b.placement))
        })
    }

    /// Makes an object what it shall be on the edges of a class.
    fn make(&self, member: &Member, key: &str, item: Item) -> Content {
        let held = |why: Fault| Content::Held(Fault { object: key.to_owned(), ..why });
        let unwritten = || held(Fault::new("", "it cannot be written as JSON"));
        let source = &member.placement.workspace;
        // A workspace that is not trusted takes over no namespace of the edge's own either.
        let exclusive = !member.trusted && key.starts_with(NAMESPACES);
        if item.bare {
            let name = ObjectKey::parse(key).map_or("", |key| key.name);
            let mut value = projection::bare_namespace(name, source);
            if exclusive {
                projection::annotate(&mut value, names::EXCLUSIVE, "true");
            }
            return projection::encode(&value).map_or_else(unwritten, Content::Whole);
        }
        let placement = self.placements.get(&member.placement);
        let (create_only, orphan, everything) =
            placement.map_or((false, false, false), |p| (p.create_only, p.orphan, p.everything));
        let is_tailored = item.is_tailored && !everything;
        if !is_tailored && !create_only && !orphan && !exclusive {
            return Content::Whole(item.content);
        }
        let mut value: Value = serde_json::from_slice(&item.content).unwrap_or_default();
        if is_tailored {
            if item.tailor.is_none()
                && let Some((namespace, name)) = customize::customizer_of(&value)
            {
                return held(customize::missing_customizer(&namespace, &name));
            }
            let customizer = item.tailor.as_ref().map(|tailor| &tailor.customizer);
            value = match customize::customize(value, customizer, &member.parameters) {
                Ok(value) => value,
                Err(why) => return held(why),
            };
            // Where it comes from is the center's word, whatever a replacement says.
            projection::mark(&mut value, source);
        }
        for (wanted, annotation) in
            [(create_only, names::CREATE_ONLY), (orphan, names::ORPHAN), (exclusive, names::EXCLUSIVE)]
        {
            if wanted {
                projection::annotate(&mut value, annotation, "true");
            }
        }
        projection::encode(&value).map_or_else(unwritten, Content::Whole)
    }

    fn config(&self, owners: &mut Owners<'_>, class: &Class) -> Option<Content> {
        let mut config = Config::default();
        let mut any = false;
        for member in class.iter().filter(|member| !is_plain(&member.placement)) {
            let Some(placement) = self.placements.get(&member.placement) else { continue };
            any = true;
            let taken: Vec<(Key, Take, Box<str>)> = self
                .taken(member)
                .into_iter()
                .filter(|(key, _)| ObjectKey::parse(key).is_some_and(|key| owners.permit(self, member, &key)))
                .filter_map(|(key, take)| {
                    let version = self.item(member, &key)?.version;
                    Some((key, take, version))
                })
                .collect();
            config.add(placement, taken.iter().map(|(key, take, version)| (key, *take, &**version)));
        }
        any.then(|| projection::encode(&config.object()).map(Content::Whole)).flatten()
    }
}
