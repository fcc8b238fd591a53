//! A summary that is kept up from changes: a row that is set or removed takes off what it added and adds what it adds now.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use kinds::ObjectKey;
use serde_json::{Map, Value, json};

use super::{
    collector::Collector,
    number::Tally,
    row::{Input, Link, Row, RowKey},
};

/// Values with their names, in order.
type Named<'a> = Vec<(&'a str, Value)>;

/// So many different errors are shown.
const ERRORS: usize = 5;
/// Lists end here, whatever their limit: the object has to fit into a store.
const LONGEST: usize = 512 << 10;

#[derive(Debug)]
pub struct Summary {
    collector: Collector,
    rows: BTreeMap<RowKey, Row>,
    groups: BTreeMap<Arc<str>, Group>,
    selected: usize,
    broken: BTreeSet<RowKey>,
    stale: usize,
    /// How many rows say so.
    errors: BTreeMap<Box<str>, usize>,
    failed: usize,
    /// When rows become stale.
    ageing: BTreeSet<(i64, RowKey)>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Group {
    rows: usize,
    tallies: Box<[Tally]>,
}

impl Summary {
    pub fn new(collector: Collector) -> Self {
        Self {
            collector,
            rows: BTreeMap::new(),
            groups: BTreeMap::new(),
            selected: 0,
            broken: BTreeSet::new(),
            stale: 0,
            errors: BTreeMap::new(),
            failed: 0,
            ageing: BTreeSet::new(),
        }
    }

    pub fn collector(&self) -> &Collector {
        &self.collector
    }

    /// What is known of a row, all of it. `location` names the Location by which the object came to the edge.
    pub fn set(&mut self, key: &RowKey, location: &Arc<str>, input: &Input<'_>, now: i64) {
        let row = Row::of(&self.collector, input, location, now);
        if self.rows.get(key) == Some(&row) {
            return;
        }
        self.remove(key);
        self.add(key, &row);
        self.rows.insert(key.clone(), row);
    }

    pub fn remove(&mut self, key: &RowKey) {
        let Some(row) = self.rows.remove(key) else { return };
        self.age(key, &row, false);
        if let Some(text) = &row.error {
            self.failed -= 1;
            count_down(&mut self.errors, text);
        }
        if row.broken.is_some() {
            self.broken.remove(key);
        }
        let Some(name) = &row.group else { return };
        self.selected -= 1;
        let Some(group) = self.groups.get_mut(name) else { return };
        for ((tally, field), number) in group.tallies.iter_mut().zip(&self.collector.combined).zip(&row.numbers) {
            if let Some(number) = number {
                tally.take(field.kind, *number);
            }
        }
        group.rows -= 1;
        if group.rows == 0 {
            self.groups.remove(name);
        }
    }

    fn add(&mut self, key: &RowKey, row: &Row) {
        self.age(key, row, true);
        if let Some(text) = &row.error {
            self.failed += 1;
            *self.errors.entry(text.clone()).or_default() += 1;
        }
        if row.broken.is_some() {
            self.broken.insert(key.clone());
        }
        let Some(name) = &row.group else { return };
        self.selected += 1;
        let fields = &self.collector.combined;
        let empty = || Group { rows: 0, tallies: vec![Tally::default(); fields.len()].into() };
        let group = self.groups.entry(name.clone()).or_insert_with(empty);
        group.rows += 1;
        for ((tally, field), number) in group.tallies.iter_mut().zip(fields).zip(&row.numbers) {
            if let Some(number) = number {
                tally.put(field.kind, *number);
            }
        }
    }

    /// Counts a row's age, or takes it out again.
    fn age(&mut self, key: &RowKey, row: &Row, there: bool) {
        match (row.stale, row.stale_at) {
            (true, _) if there => self.stale += 1,
            (true, _) => self.stale -= 1,
            (false, Some(at)) if there => drop(self.ageing.insert((at, key.clone()))),
            (false, Some(at)) => drop(self.ageing.remove(&(at, key.clone()))),
            (false, None) => {}
        }
    }

    /// An edge came or went, or is in sync or not any more. The rows that have to be set again: expressions read of it.
    pub fn relink(&mut self, edge: &Arc<str>, link: &Link, now: i64) -> Vec<RowKey> {
        let keys = self.rows_of(edge);
        if self.collector.reads_sync() {
            return keys;
        }
        for key in &keys {
            self.change(key, |row, collector| row.link(collector, link, now));
        }
        Vec::new()
    }

    /// Time has passed. The rows that became stale and have to be set again, as expressions read of it.
    pub fn tick(&mut self, now: i64) -> Vec<RowKey> {
        let mut again = Vec::new();
        while let Some((_, key)) = self.ageing.first().filter(|(at, _)| *at <= now).cloned() {
            self.change(&key, |row, _| row.stale = true);
            if self.collector.reads_sync() {
                again.push(key);
            }
        }
        again
    }

    /// When there is something to [`Self::tick`] for.
    pub fn next_tick(&self) -> Option<i64> {
        self.ageing.first().map(|(at, _)| *at)
    }

    /// Changes nothing but a row's age.
    fn change(&mut self, key: &RowKey, edit: impl FnOnce(&mut Row, &Collector)) {
        let Some(mut row) = self.rows.remove(key) else { return };
        self.age(key, &row, false);
        edit(&mut row, &self.collector);
        self.age(key, &row, true);
        self.rows.insert(key.clone(), row);
    }

    pub fn rows_of(&self, edge: &Arc<str>) -> Vec<RowKey> {
        let from = RowKey { edge: edge.clone(), object: "".into() };
        self.rows.range(from..).take_while(|(key, _)| key.edge == *edge).map(|(key, _)| key.clone()).collect()
    }

    pub fn contains(&self, key: &RowKey) -> bool {
        self.rows.contains_key(key)
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// What there is to say, without conditions: those have a history.
    pub fn told(&self) -> Value {
        let (results, all) = match self.collector.select.is_empty() {
            true => (self.combined(), self.groups.len()),
            false => (self.listed(), self.selected),
        };
        let broken = self.troubles();
        let (cut, broken_cut) = (all.saturating_sub(results.len()), self.broken.len().saturating_sub(broken.len()));
        let errors = self.errors.iter().take(ERRORS);
        json!({
            "results": results,
            "broken": broken,
            "errors": errors.map(|(text, rows)| json!({"message": text, "rows": rows})).collect::<Vec<_>>(),
            "summary": {
                "rows": self.rows.len(),
                "selected": self.selected,
                "groups": self.groups.len(),
                "stale": self.stale,
                "broken": self.broken.len(),
                "errors": self.failed,
                // What is not listed, as there is a limit.
                "cutOff": cut,
                "brokenCutOff": broken_cut,
            },
        })
    }

    /// Groups in the order of their values, as many as are asked for. Each as its values and fields, for whoever shows them another way.
    pub fn groups(&self) -> impl Iterator<Item = (Named<'_>, Named<'_>)> {
        let names = self.collector.group_by.iter().map(|(name, _)| &**name);
        let shown = if self.collector.select.is_empty() { self.collector.limit } else { 0 };
        self.groups.iter().take(shown).map(move |(values, group)| {
            let fields = self.collector.combined.iter().zip(&group.tallies);
            let fields = fields.map(|(field, tally)| (&*field.name, tally.json(field.kind))).collect();
            (names.clone().zip(array(values)).collect(), fields)
        })
    }

    fn combined(&self) -> Vec<Value> {
        let group = |(values, fields): (Named<'_>, Named<'_>)| json!({"groupBy": object(values), "combinedFields": object(fields)});
        within(self.groups().map(group))
    }

    fn listed(&self) -> Vec<Value> {
        let names = self.collector.select.iter().map(|(name, _)| &**name);
        let row = |(key, row): (&RowKey, &Row)| {
            let values = array(row.selected.as_ref()?);
            let mut told = place(key, row);
            told["columns"] = object(names.clone().zip(values));
            Some(told)
        };
        within(self.rows.iter().filter_map(row).take(self.collector.limit))
    }

    fn troubles(&self) -> Vec<Value> {
        let broken = |key: &RowKey| {
            let row = self.rows.get(key)?;
            let mut told = place(key, row);
            if let Some(why) = row.broken.as_ref().filter(|why| !why.is_empty()) {
                told["reason"] = (**why).into();
            }
            Some(told)
        };
        within(self.broken.iter().filter_map(broken).take(self.collector.limit))
    }
}

/// Which object, and where.
fn place(key: &RowKey, row: &Row) -> Value {
    let mut told = json!({"object": &*key.object, "edge": &*key.edge, "location": &*row.location});
    if let Some(parsed) = ObjectKey::parse(&key.object) {
        told["name"] = parsed.name.into();
        if !parsed.namespace.is_empty() {
            told["namespace"] = parsed.namespace.into();
        }
    }
    if row.stale {
        told["stale"] = true.into();
    }
    told
}

fn object<'a>(entries: impl IntoIterator<Item = (&'a str, Value)>) -> Value {
    Value::Object(entries.into_iter().map(|(name, value)| (name.to_owned(), value)).collect::<Map<_, _>>())
}

fn array(text: &str) -> Vec<Value> {
    serde_json::from_str(text).unwrap_or_default()
}

/// As many as fit.
fn within(values: impl Iterator<Item = Value>) -> Vec<Value> {
    let mut room = LONGEST;
    let fits = |value: &Value| {
        let length = value.to_string().len();
        room = room.saturating_sub(length);
        room > 0
    };
    values.take_while(fits).collect()
}

fn count_down(counts: &mut BTreeMap<Box<str>, usize>, what: &str) {
    if let Some(count) = counts.get_mut(what) {
        *count -= 1;
        if *count == 0 {
            counts.remove(what);
        }
    }
}
