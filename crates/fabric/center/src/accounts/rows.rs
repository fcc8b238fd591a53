//! Feeds summaries: from what an edge shall hold and what it reported to the rows of those who ask.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use bytes::Bytes;
use kinds::{EdgeId, ObjectKey, names};
use link::{Key, Report};
use placement::{
    Id,
    account::Source,
    engine::Content,
    facts::LOCATIONS,
    summary::{Input, Link, RowKey, Summary},
};
use serde_json::{Map, Value, json};

use super::{
    keeper::{Keeper, Todo},
    standing,
};
use crate::{reports, target};

/// More than so many objects of an edge are read together.
const ONE_BY_ONE: usize = 3;
const PAGE: usize = 500;

impl Keeper {
    /// Looks at the rows of some edges.
    pub async fn work(&mut self, most: usize) {
        for _ in 0..most {
            let Some((edge, todo)) = self.todo.pop_first() else { return };
            let name = self.name(&edge);
            let reached = !self.accounts.reaching(&name).is_empty();
            // What nobody asks for is read once, for what is broken.
            let asked = todo.all || !(todo.keys.is_empty() && todo.said.is_empty());
            let said = match reached && asked {
                true => self.read(&edge, &todo).await,
                false => HashMap::new(),
            };
            if todo.all {
                for (key, state) in &said {
                    self.judge(&name, key, state.as_deref());
                }
            }
            self.feed(&edge, &name, &todo, &said);
        }
    }

    /// What an edge last said of the objects in question.
    async fn read(&self, edge: &EdgeId, todo: &Todo) -> HashMap<Key, Option<Bytes>> {
        let mut said: HashMap<Key, Option<Bytes>> = HashMap::new();
        let Some(known) = self.fleet.edges.get(edge) else { return said };
        let uid = known.target().uid.clone();
        let mut put = |report: Report| drop(said.insert(report.key, report.state));
        let missing: Vec<&Key> = todo.keys.iter().filter(|key| !todo.said.contains_key(*key)).collect();
        let mut failed = None;
        if todo.all || missing.len() > ONE_BY_ONE {
            let mut after = String::new();
            loop {
                match reports::list(self.fleet.store(), &uid, &after, PAGE).await {
                    Ok(page) => {
                        let last = (page.len() == PAGE).then(|| page.last().map(|report| report.key.to_string()));
                        page.into_iter().for_each(&mut put);
                        match last.flatten() {
                            Some(last) => after = last,
                            None => break,
                        }
                    }
                    Err(error) => {
                        failed = Some(error);
                        break;
                    }
                }
            }
        } else {
            for key in missing {
                match reports::get(self.fleet.store(), &uid, key).await {
                    Ok(found) => found.into_iter().for_each(&mut put),
                    Err(error) => failed = Some(error),
                }
            }
        }
        if let Some(error) = failed.filter(|error| !matches!(error, store::Error::Closed)) {
            tracing::warn!(%error, %edge, "what an edge reported could not be read; summaries may lack it");
        }
        // What it said just now is newer than what was read, or the same.
        said.extend(todo.said.iter().map(|(key, state)| (key.clone(), state.clone())));
        said
    }

    /// Sets and removes the rows of one edge.
    fn feed(&mut self, edge: &EdgeId, name: &Arc<str>, todo: &Todo, said: &HashMap<Key, Option<Bytes>>) {
        let reaching: Vec<(Id, Arc<str>)> =
            self.accounts.reaching(name).into_iter().map(|(id, location)| (id.clone(), location.clone())).collect();
        // Of each collector, the rows in question: by which Location an object comes, or that it does not.
        let mut wanted: BTreeMap<Id, BTreeMap<Key, Option<Arc<str>>>> = BTreeMap::new();
        let mut keys: BTreeSet<Key> = BTreeSet::new();
        for (id, desk) in &self.desks {
            let Ok(summary) = &desk.summary else { continue };
            let collector = summary.collector();
            let mut rows = BTreeMap::new();
            if todo.all {
                rows.extend(summary.rows_of(name).into_iter().map(|row| (row.object, None)));
            }
            rows.extend(todo.keys.iter().chain(todo.said.keys()).map(|key| (key.clone(), None)));
            let mine = reaching.iter().filter(|(placement, _)| {
                placement.workspace == id.workspace
                    && collector.placement.as_ref().is_none_or(|only| **only == *placement.name)
            });
            for (placement, location) in mine {
                let asked = |key: &&Key| ObjectKey::parse(key).is_some_and(|key| collector.names(&key));
                if todo.all {
                    let all = self.accounts.objects_of(placement).filter(asked);
                    all.for_each(|key| drop(rows.insert(key.clone(), Some(location.clone()))));
                } else {
                    let selected = |key: &Key| asked(&key) && self.accounts.selects(placement, key);
                    for (key, by) in rows.iter_mut().filter(|(key, by)| by.is_none() && selected(key)) {
                        keys.insert(key.clone());
                        *by = Some(location.clone());
                    }
                }
            }
            keys.extend(rows.iter().filter(|(_, by)| by.is_some()).map(|(key, _)| key.clone()));
            rows.retain(|key, by| {
                by.is_some() || summary.contains(&RowKey { edge: name.clone(), object: key.clone() })
            });
            if !rows.is_empty() {
                wanted.insert(id.clone(), rows);
            }
        }
        if wanted.is_empty() {
            return;
        }
        let known = self.known(edge, &keys, said);
        let (_, link, _) = standing::of(&self.fleet, &self.server, edge);
        let place = Place::of(self, edge, &wanted);
        for (id, rows) in wanted {
            let Some(Ok(summary)) = self.desks.get_mut(&id).map(|desk| desk.summary.as_mut()) else { continue };
            for (key, by) in rows {
                let row = RowKey { edge: name.clone(), object: key };
                let found = by.and_then(|by| Some((by, known.get(&row.object)?)));
                match found.filter(|(_, known)| known.workspace == id.workspace) {
                    Some((by, known)) => set(summary, &row, &by, known, &place, link),
                    None => summary.remove(&row),
                }
            }
            self.touch(id);
        }
    }

    /// The objects as the edge shall hold them, with what it said.
    fn known(&self, edge: &EdgeId, keys: &BTreeSet<Key>, said: &HashMap<Key, Option<Bytes>>) -> HashMap<Key, Known> {
        let id = Id::new(&edge.workspace, &edge.name);
        let contents: Vec<(Key, Arc<str>, Bytes)> = self.fleet.placing.read(|engine| {
            let class = engine.class_of(&id);
            let content = |key: &Key| match engine.render(&class, key)? {
                Content::Whole(content) => Some((key.clone(), engine.source(&class, key)?.workspace, content)),
                Content::Held(_) => None,
            };
            keys.iter().filter_map(content).collect()
        });
        let known = |(key, workspace, content): (Key, Arc<str>, Bytes)| {
            let mut object: Value = serde_json::from_slice(&content).ok()?;
            let state = said.get(&key).and_then(Option::as_deref);
            let state: Option<Value> = state.and_then(|state| serde_json::from_slice(state).ok());
            let reported = state.is_some();
            let status = state.and_then(|mut state| state.get_mut("status").map(Value::take));
            object["status"] = status.unwrap_or_else(|| Value::Object(Map::new()));
            Some((key, Known { workspace, object, reported }))
        };
        contents.into_iter().filter_map(known).collect()
    }

    /// Whether an object is another than when this was last asked, as far as edges and expressions see.
    pub fn is_another(&mut self, source: &Source) -> bool {
        let Some(key) = ObjectKey::parse(&source.1) else { return false };
        let Some(object) = crate::bound::source(&self.server, &source.0, &key) else {
            self.prints.remove(source);
            return true;
        };
        let mut value = object.value();
        if let Some(object) = value.as_object_mut() {
            object.remove("status");
        }
        if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
            metadata.remove("resourceVersion");
            if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
                annotations.remove(names::EXECUTING_COUNT);
                annotations.remove(names::EDGES);
                if annotations.is_empty() {
                    metadata.remove("annotations");
                }
            }
        }
        let mut hasher = DefaultHasher::new();
        value.to_string().hash(&mut hasher);
        let print = hasher.finish();
        self.prints.insert(source.clone(), print) != Some(print)
    }
}

/// An object at an edge.
struct Known {
    /// Whose it is there.
    workspace: Arc<str>,
    object: Value,
    reported: bool,
}

/// What Locations and the SyncTarget say of themselves.
struct Place {
    locations: HashMap<Arc<str>, Value>,
    edge: Value,
}

impl Place {
    fn of(keeper: &Keeper, edge: &EdgeId, wanted: &BTreeMap<Id, BTreeMap<Key, Option<Arc<str>>>>) -> Self {
        let reads = |id: &Id| {
            let desk = keeper.desks.get(id);
            desk.is_some_and(|desk| desk.summary.as_ref().is_ok_and(|summary| summary.collector().reads_place()))
        };
        if !wanted.keys().any(reads) {
            return Self { locations: HashMap::new(), edge: Value::Null };
        }
        let named: BTreeSet<&Arc<str>> = wanted.values().flat_map(|rows| rows.values().flatten()).collect();
        let labels_of = |collection: &str, workspace: &str, name: &str| {
            let found = keeper.server.cache.get(collection, &format!("{workspace}//{name}"));
            let labels = found.and_then(|object| object.value().pointer("/metadata/labels").cloned());
            labels.unwrap_or_else(|| json!({}))
        };
        let location = |name: &Arc<str>| {
            let (workspace, short) = name.rsplit_once(':').unwrap_or_default();
            let labels = labels_of(LOCATIONS, workspace, short);
            (name.clone(), json!({"name": short, "workspace": workspace, "labels": labels}))
        };
        let locations = named.into_iter().map(location).collect();
        let labels = labels_of(target::COLLECTION, &edge.workspace, &edge.name);
        Self { locations, edge: json!({"name": edge.name, "workspace": edge.workspace, "labels": labels}) }
    }
}

fn set(summary: &mut Summary, row: &RowKey, by: &Arc<str>, known: &Known, place: &Place, link: Link) {
    if summary.collector().has_labels() && !summary.collector().selects_labels(&known.object) {
        return summary.remove(row);
    }
    let location = place.locations.get(by).unwrap_or(&Value::Null);
    let input = Input { object: &known.object, location, edge: &place.edge, link, reported: known.reported };
    summary.set(row, by, &input, clock::unix());
}
