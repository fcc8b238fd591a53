//! One row of a summary: an object at an edge, and what a collector makes of it.

use std::sync::Arc;

use cel::Value as Cel;
use serde_json::{Value, json};

use super::{
    collector::{Collector, Formula, Trouble},
    number::Number,
};

/// Words about what is wrong are cut here.
const LONGEST: usize = 256;

/// An object at an edge. Rows of one edge lie side by side.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowKey {
    /// `root:imw:florin`.
    pub edge: Arc<str>,
    /// `apps/deployments/shop/web`.
    pub object: Arc<str>,
}

/// How an edge stands with the center. Times are in seconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Link {
    pub connected: bool,
    pub in_sync: bool,
    /// Since when it is connected, or not.
    pub since: i64,
}

impl Link {
    /// When what it has said becomes old: never while it is connected.
    fn stale_at(&self, collector: &Collector) -> Option<i64> {
        (!self.connected).then(|| self.since.saturating_add(collector.stale_after))
    }
}

/// All that expressions about a row can read.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// As the edge shall hold it, with the status that the edge reported.
    pub object: &'a Value,
    /// `name`, `workspace`, `labels`.
    pub location: &'a Value,
    pub edge: &'a Value,
    pub link: Link,
    /// Whether the edge has said anything about the object.
    pub reported: bool,
}

/// What remains of a row: what it adds to its group, and what is shown of it alone.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Row {
    /// The values of `groupBy` as JSON text; `None` if the filter leaves the row out.
    pub group: Option<Arc<str>>,
    /// One for each combined field; `None` adds nothing.
    pub numbers: Box<[Option<Number>]>,
    /// The values of `select`, likewise.
    pub selected: Option<Box<str>>,
    /// Why it is broken.
    pub broken: Option<Box<str>>,
    pub error: Option<Box<str>>,
    pub location: Arc<str>,
    pub stale: bool,
    pub stale_at: Option<i64>,
}

impl Row {
    pub fn link(&mut self, collector: &Collector, link: &Link, now: i64) {
        self.stale_at = link.stale_at(collector);
        self.stale = self.stale_at.is_some_and(|at| at <= now);
    }

    pub fn of(collector: &Collector, input: &Input<'_>, location: &Arc<str>, now: i64) -> Self {
        let mut row = Self { location: location.clone(), ..Self::default() };
        row.link(collector, &input.link, now);
        let variables = variables(collector, input, row.stale);
        let mut evaluation = Evaluation { variables: &variables, budget: Collector::budget(), error: None };
        row.broken = collector.broken.as_ref().and_then(|formula| evaluation.broken(formula));
        if collector.filter.as_ref().is_none_or(|filter| evaluation.holds(filter)) {
            evaluation.fill(collector, &mut row);
        }
        row.error = evaluation.error;
        row
    }
}

fn variables(collector: &Collector, input: &Input<'_>, stale: bool) -> Vec<(&'static str, Cel)> {
    let (reads, link) = (collector.reads(), input.link);
    let mut variables = Vec::with_capacity(4);
    if reads.object {
        variables.push(("obj", cel::from_json(input.object)));
    }
    if reads.location {
        variables.push(("location", cel::from_json(input.location)));
    }
    if reads.edge {
        variables.push(("edge", cel::from_json(input.edge)));
    }
    if reads.sync {
        let sync = json!({"connected": link.connected, "inSync": link.in_sync, "reported": input.reported, "stale": stale,
            "since": link.since});
        variables.push(("sync", cel::from_json(&sync)));
    }
    variables
}

struct Evaluation<'a> {
    variables: &'a [(&'static str, Cel)],
    budget: u64,
    /// The first thing that went wrong.
    error: Option<Box<str>>,
}

impl Evaluation<'_> {
    fn wrong(&mut self, place: &str, why: &str) {
        if self.error.is_none() {
            self.error = Some(short(&format!("{place}: {why}")));
        }
    }

    /// A row of which that cannot be said is left out.
    fn holds(&mut self, filter: &Formula) -> bool {
        match filter.value(self.variables, &mut self.budget) {
            Ok(Value::Bool(holds)) => return holds,
            Ok(other) => self.wrong("filter", &format!("{other} is neither true nor false")),
            Err(Trouble::Absent(why) | Trouble::Wrong(why)) => self.wrong("filter", &why),
        }
        false
    }

    /// Why a row counts as broken, if it does. True says no more than that; a text says why.
    fn broken(&mut self, formula: &Formula) -> Option<Box<str>> {
        match formula.value(self.variables, &mut self.budget) {
            Ok(Value::Bool(true)) => return Some("".into()),
            Ok(Value::Bool(false) | Value::Null) => {}
            Ok(Value::String(why)) => return (!why.is_empty()).then(|| short(&why)),
            Ok(other) => self.wrong("broken", &format!("{other} is neither true, false nor a text")),
            Err(Trouble::Absent(why) | Trouble::Wrong(why)) => self.wrong("broken", &why),
        }
        None
    }

    fn fill(&mut self, collector: &Collector, row: &mut Row) {
        let group = self.values(&collector.group_by, "groupBy");
        row.group = Some(group.as_str().into());
        if !collector.select.is_empty() {
            row.selected = Some(self.values(&collector.select, "select").into());
        }
        let number = |field: &super::collector::Combined| {
            let subject = field.subject.as_ref().map(|subject| subject.value_or_null(self.variables, &mut self.budget));
            let made = match subject {
                // Only that it is there counts.
                None => Ok(Some(Number::Exact(0))),
                Some(Ok(Value::Null | Value::Bool(false))) if field.kind == super::number::Kind::Count => Ok(None),
                Some(Ok(_)) if field.kind == super::number::Kind::Count => Ok(Some(Number::Exact(0))),
                Some(value) => value.and_then(|value| Number::of(&value)),
            };
            made.unwrap_or_else(|why| {
                self.wrong(&field.name, &why);
                None
            })
        };
        row.numbers = collector.combined.iter().map(number).collect();
    }

    /// As a JSON array. What cannot be said is null.
    fn values(&mut self, formulas: &[(Box<str>, Formula)], place: &str) -> String {
        let value = |(name, formula): &(Box<str>, Formula)| {
            formula.value_or_null(self.variables, &mut self.budget).unwrap_or_else(|why| {
                self.wrong(&format!("{place}.{name}"), &why);
                Value::Null
            })
        };
        Value::Array(formulas.iter().map(value).collect()).to_string()
    }
}

fn short(text: &str) -> Box<str> {
    let end = (0..=text.len().min(LONGEST)).rev().find(|at| text.is_char_boundary(*at));
    text[..end.unwrap_or(0)].into()
}
