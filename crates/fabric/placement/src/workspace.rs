//! The objects of one workspace that can go to edges, as the projection needs them. Pure.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use bytes::Bytes;
use kinds::ObjectKey;
use serde_json::Value;

use crate::{
    Key,
    customize::{self, Customizer},
    facts::{CUSTOMIZERS, Labels, Placement, map},
    projection,
};

pub const NAMESPACES: &str = "core/namespaces";
pub const DEFINITIONS: &str = "apiextensions.k8s.io/customresourcedefinitions";

/// An object on its way to edges, before it is made for one of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// As [`projection::project`] makes it.
    pub content: Bytes,
    /// The version of its kind: `v1`.
    pub version: Box<str>,
    /// The Customizer that it names, if that is there.
    pub tailor: Option<Arc<Tailor>>,
    /// Edges get it in different forms.
    pub is_tailored: bool,
    /// Only the existence of this Namespace matters.
    pub bare: bool,
}

/// A Customizer, with what it was read from.
#[derive(Debug, PartialEq)]
pub struct Tailor {
    pub json: Bytes,
    pub customizer: Customizer,
}

impl Tailor {
    pub fn new(json: Bytes) -> Self {
        let customizer = Customizer::read(&serde_json::from_slice(&json).unwrap_or_default());
        Self { json, customizer }
    }
}

/// How an object is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Take {
    Bare,
    Whole,
}

#[derive(Default)]
pub struct Workspace {
    name: Arc<str>,
    entries: BTreeMap<Key, Entry>,
    /// Of every Namespace, also of those that stay.
    namespaces: HashMap<Box<str>, Labels>,
    /// Those of them of which nothing goes: they say so, or are being deleted. All that is in one that is being deleted
    /// is withdrawn at once and counted together, not one object after the other as the center's controller deletes it.
    closed: HashSet<Box<str>>,
    /// What is in each Namespace; in none, what has none.
    inside: BTreeMap<Box<str>, BTreeSet<Key>>,
    /// Of each collection how many objects there are in which Namespace.
    kinds: BTreeMap<Box<str>, BTreeMap<Box<str>, usize>>,
    tailors: HashMap<Name, Arc<Tailor>>,
    asking: HashMap<Name, BTreeSet<Key>>,
    tailored: BTreeSet<Key>,
}

fn namespace_key(name: &str) -> String {
    format!("{NAMESPACES}//{name}")
}

/// A namespace and a name in it.
type Name = (String, String);

struct Entry {
    item: Item,
    /// Of those without a namespace.
    labels: Labels,
    asks: Option<Name>,
    /// The parameters that it names.
    keys: BTreeSet<String>,
    revision: u64,
}

/// What an edit touched.
#[derive(Debug, Default, PartialEq)]
pub struct Touched {
    /// Objects that may be another for edges, or may go to others.
    pub keys: BTreeSet<Key>,
    /// Some are there that were not, or the other way round.
    pub presence: bool,
    /// Other parameters may be in use.
    pub parameters: bool,
}

impl Workspace {
    pub fn new(name: Arc<str>) -> Self {
        Self { name, ..Self::default() }
    }

    /// An object became this, or is gone. One that is older than what is known says nothing.
    pub fn set(&mut self, of: &ObjectKey<'_>, json: Option<&Bytes>, revision: u64) -> Touched {
        if of.collection == CUSTOMIZERS {
            return self.set_customizer(of, json);
        }
        let mut touched = Touched::default();
        let value: Option<Value> = json.and_then(|json| serde_json::from_slice(json).ok());
        if of.collection == NAMESPACES {
            let labels = value.as_ref().map(|value| map(&value["metadata"]["labels"]));
            let closed = value.as_ref().is_some_and(projection::is_closed);
            self.set_namespace(of.name, labels, closed, &mut touched);
        }
        if !projection::may_belong(of) {
            return touched;
        }
        let text = of.to_string();
        let known = self.entries.get_key_value(&*text);
        if known.is_some_and(|(_, before)| before.revision > revision) {
            return touched;
        }
        let key = known.map_or_else(|| Key::from(text), |(key, _)| key.clone());
        let entry = value.and_then(|value| self.entry(of, value, revision));
        self.replace(of, &key, entry, &mut touched);
        // A definition that comes along may name some as well.
        let named = |key: &Key| self.entries.get(key).is_some_and(|entry| !entry.keys.is_empty());
        touched.parameters |= touched.keys.iter().any(named);
        touched
    }

    fn entry(&self, of: &ObjectKey<'_>, value: Value, revision: u64) -> Option<Entry> {
        let labels = if of.namespace.is_empty() { map(&value["metadata"]["labels"]) } else { Labels::default() };
        let value = projection::project_value(of, value, &self.name)?;
        let version = value["apiVersion"].as_str().unwrap_or_default().rsplit('/').next().unwrap_or_default().into();
        let asks = customize::customizer_of(&value);
        let tailor = asks.as_ref().and_then(|name| self.tailors.get(name)).cloned();
        let customizer = tailor.as_ref().map(|tailor| &tailor.customizer);
        let keys = customize::keys_in(&value, customizer);
        let is_tailored = asks.is_some() || value["metadata"]["annotations"][customize::EXPAND] == "true";
        let content = projection::encode(&value)?;
        let item = Item { content, version, tailor, is_tailored, bare: false };
        Some(Entry { item, labels, asks, keys, revision })
    }

    fn replace(&mut self, of: &ObjectKey<'_>, key: &Key, entry: Option<Entry>, touched: &mut Touched) {
        let before = match entry {
            Some(entry) => {
                touched.parameters |= !entry.keys.is_empty();
                if let Some(asks) = &entry.asks {
                    self.asking.entry(asks.clone()).or_default().insert(key.clone());
                }
                if entry.item.is_tailored {
                    self.tailored.insert(key.clone());
                } else {
                    self.tailored.remove(key);
                }
                let before = self.entries.insert(key.clone(), entry);
                if before.is_none() {
                    self.inside.entry(of.namespace.into()).or_default().insert(key.clone());
                    self.count(of, 1, touched);
                }
                before
            }
            None => {
                let Some(before) = self.entries.remove(key) else { return };
                self.tailored.remove(key);
                if let Some(inside) = self.inside.get_mut(of.namespace) {
                    inside.remove(key);
                    if inside.is_empty() {
                        self.inside.remove(of.namespace);
                    }
                }
                self.count(of, -1, touched);
                Some(before)
            }
        };
        touched.keys.insert(key.clone());
        // Labels decide whether objects without a namespace go, and with them their definition.
        if of.namespace.is_empty() {
            touched.keys.extend(self.definition_of(of.collection));
        }
        let Some(before) = before else { return };
        touched.parameters |= !before.keys.is_empty();
        let asks_still = self.entries.get(key).and_then(|entry| entry.asks.as_ref());
        if let Some(asked) = before.asks.filter(|asked| Some(asked) != asks_still)
            && let Some(all) = self.asking.get_mut(&asked)
        {
            all.remove(key);
            if all.is_empty() {
                self.asking.remove(&asked);
            }
        }
        if of.namespace.is_empty() && self.entries.get(key).is_some_and(|now| now.labels != before.labels) {
            touched.presence = true;
            touched.parameters = true;
        }
    }

    fn count(&mut self, of: &ObjectKey<'_>, step: isize, touched: &mut Touched) {
        touched.presence = true;
        let places = self.kinds.entry(of.collection.into()).or_default();
        let count = places.entry(of.namespace.into()).or_default();
        *count = count.saturating_add_signed(step);
        if *count <= 1 {
            // The first came, or the last went: the definition goes with them.
            if *count == 0 {
                places.remove(of.namespace);
                if places.is_empty() {
                    self.kinds.remove(of.collection);
                }
            }
            touched.keys.extend(self.definition_of(of.collection));
        }
    }

    fn set_namespace(&mut self, name: &str, labels: Option<Labels>, closed: bool, touched: &mut Touched) {
        if self.namespaces.get(name) == labels.as_ref() && self.closed.contains(name) == closed {
            return;
        }
        match closed {
            true => drop(self.closed.insert(name.into())),
            false => drop(self.closed.remove(name)),
        }
        match labels {
            Some(labels) => drop(self.namespaces.insert(name.into(), labels)),
            None => drop(self.namespaces.remove(name)),
        }
        (touched.presence, touched.parameters) = (true, true);
        for key in self.inside.get(name).into_iter().flatten() {
            touched.keys.insert(key.clone());
            touched.keys.extend(ObjectKey::parse(key).and_then(|key| self.definition_of(key.collection)));
        }
    }

    fn set_customizer(&mut self, of: &ObjectKey<'_>, json: Option<&Bytes>) -> Touched {
        let name = (of.namespace.to_owned(), of.name.to_owned());
        let tailor = json.map(|json| Arc::new(Tailor::new(json.clone())));
        match &tailor {
            Some(tailor) => drop(self.tailors.insert(name.clone(), tailor.clone())),
            None => drop(self.tailors.remove(&name)),
        }
        let keys = self.asking.get(&name).cloned().unwrap_or_default();
        for key in &keys {
            let Some(entry) = self.entries.get_mut(key) else { continue };
            let value = serde_json::from_slice(&entry.item.content).unwrap_or_default();
            entry.item.tailor = tailor.clone();
            entry.keys = customize::keys_in(&value, tailor.as_ref().map(|tailor| &tailor.customizer));
        }
        Touched { parameters: !keys.is_empty(), keys, presence: false }
    }

    /// The definition that objects of a collection need, if it is here.
    fn definition_of(&self, collection: &str) -> Option<Key> {
        let (group, resource) = collection.split_once('/')?;
        let text = format!("{DEFINITIONS}//{resource}.{group}");
        self.entries.get_key_value(&*text).map(|(key, _)| key.clone())
    }

    /// Whether a placement takes an object, and how.
    pub fn takes(&self, placement: &Placement, key: &str) -> Option<Take> {
        let entry = self.entries.get(key)?;
        let of = ObjectKey::parse(key)?;
        let whole = |yes: bool| yes.then_some(Take::Whole);
        if !of.namespace.is_empty() {
            return whole(self.takes_inside(placement, of.namespace));
        }
        let other = placement.takes_other(of.collection, of.name, &entry.labels);
        match of.collection {
            NAMESPACES => match (self.takes_inside(placement, of.name), other) {
                (true, true) => Some(Take::Whole),
                (false, false) => None,
                _ => Some(Take::Bare),
            },
            DEFINITIONS => whole(other || self.needs(placement, of.name)),
            _ => whole(other),
        }
    }

    fn takes_inside(&self, placement: &Placement, namespace: &str) -> bool {
        if self.closed.contains(namespace) {
            return false;
        }
        match self.namespaces.get(namespace) {
            Some(labels) => placement.takes_namespace(labels),
            None => placement.takes_namespace(&Labels::default()),
        }
    }

    /// Whether a placement takes an object that this definition defines.
    fn needs(&self, placement: &Placement, definition: &str) -> bool {
        let Some((resource, group)) = definition.split_once('.') else { return false };
        let collection = format!("{group}/{resource}");
        let Some(places) = self.kinds.get(&*collection) else { return false };
        places.keys().any(|namespace| match &**namespace {
            "" => self.entries_of(&collection).any(|key| self.takes(placement, key).is_some()),
            namespace => self.takes_inside(placement, namespace),
        })
    }

    fn entries_of<'a>(&'a self, collection: &str) -> impl Iterator<Item = &'a Key> {
        let prefix = format!("{collection}/");
        let from = Key::from(prefix.as_str());
        self.entries.range(from..).map(|(key, _)| key).take_while(move |key| key.starts_with(&prefix))
    }

    /// Everything that a placement takes.
    pub fn taken(&self, placement: &Placement) -> BTreeMap<Key, Take> {
        let mut taken = BTreeMap::new();
        for (namespace, keys) in &self.inside {
            if namespace.is_empty() {
                taken.extend(keys.iter().filter_map(|key| Some((key.clone(), self.takes(placement, key)?))));
            } else if self.takes_inside(placement, namespace) {
                taken.extend(keys.iter().map(|key| (key.clone(), Take::Whole)));
            }
        }
        taken
    }

    /// An object as a placement takes it.
    pub fn item(&self, placement: &Placement, key: &str) -> Option<Item> {
        let take = self.takes(placement, key)?;
        let mut item = self.entries.get(key)?.item.clone();
        item.bare = take == Take::Bare;
        Some(item)
    }

    /// The parameters that are named by what a placement takes.
    pub fn parameters(&self, placement: &Placement) -> BTreeSet<String> {
        let named = |key: &&Key| self.takes(placement, key) == Some(Take::Whole);
        let entries = self.tailored.iter().filter(named).filter_map(|key| self.entries.get(key));
        entries.flat_map(|entry| entry.keys.iter().cloned()).collect()
    }

    /// Objects that edges get in different forms.
    pub fn tailored(&self) -> &BTreeSet<Key> {
        &self.tailored
    }

    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.entries.keys()
    }

    pub fn has(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    /// Whether there is anything of a namespace here that can go to edges.
    pub fn has_space(&self, namespace: &str) -> bool {
        self.inside.contains_key(namespace) || self.has(&namespace_key(namespace))
    }

    /// Every namespace of which that is so. Some are told of twice.
    pub fn spaces(&self) -> impl Iterator<Item = &str> {
        let named = self.entries_of(NAMESPACES).filter_map(|key| ObjectKey::parse(key).map(|key| key.name));
        self.inside.keys().map(|name| &**name).filter(|name| !name.is_empty()).chain(named)
    }

    /// The keys of everything of a namespace.
    pub fn space(&self, namespace: &str) -> impl Iterator<Item = &Key> {
        let itself = self.entries.get_key_value(&*namespace_key(namespace)).map(|(key, _)| key);
        self.inside.get(namespace).into_iter().flatten().chain(itself)
    }

    /// Whether a placement takes anything of a namespace.
    pub fn claims(&self, placement: &Placement, namespace: &str) -> bool {
        self.inside.contains_key(namespace) && self.takes_inside(placement, namespace)
            || self.takes(placement, &namespace_key(namespace)).is_some()
    }
}
