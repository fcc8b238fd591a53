//! JSONPath, as far as customizers need it: `$`, `.name`, `.N`, `.*`, `['name']`, `["name"]`, `[N]`, `[*]`, `[a:b:c]`, several of
//! these in one bracket, and `..` before any of them. Filters and scripts are refused. Pure, and bounded in all that it does.

mod parse;

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// So many places can be replaced by one path.
const RESULTS: usize = 10_000;

/// How much may be done for one object.
#[derive(Debug)]
pub struct Budget {
    /// Values that may be looked at.
    pub visits: usize,
    /// Bytes that may be added.
    pub room: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Path(Vec<Segment>);

#[derive(Clone, Debug, PartialEq)]
struct Segment {
    /// `..`: of every value below, too.
    deep: bool,
    selectors: Vec<Selector>,
}

#[derive(Clone, Debug, PartialEq)]
enum Selector {
    Name(String),
    Index(i64),
    /// `.N`: an item of a list, or a member of an object that is called so.
    Number(i64, String),
    All,
    Slice {
        start: Option<i64>,
        end: Option<i64>,
        step: i64,
    },
}

/// One step down, in a value that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step<'a> {
    Item(usize),
    Member(&'a str),
}

#[derive(Clone)]
enum Owned {
    Item(usize),
    Member(String),
}

impl Path {
    /// Whether it names one place, whatever it is used on.
    pub fn is_definite(&self) -> bool {
        self.0.iter().all(Segment::is_definite)
    }

    /// How deep below the root a definite path leads.
    fn len(&self) -> usize {
        self.0.len()
    }

    /// Puts a value in every place that the path names. Along a definite path, what is missing is made.
    pub fn put(&self, root: &mut Value, value: &Value, budget: &mut Budget, deepest: usize) -> Result<(), String> {
        let (size, depth) = (value.to_string().len(), depth(value));
        let spend = |budget: &mut Budget, at: usize| {
            budget.room = budget.room.checked_sub(size).ok_or("the object would become too large")?;
            (at + depth <= deepest).then_some(()).ok_or_else(|| format!("nested deeper than {deepest} levels"))
        };
        if self.is_definite() {
            spend(budget, self.len())?;
            return self.make(root, value.clone());
        }
        for place in outermost(self.find(root, budget)?) {
            spend(budget, place.len())?;
            if let Some(found) = place.iter().try_fold(&mut *root, |value, step| match (value, step) {
                (Value::Array(items), Owned::Item(at)) => items.get_mut(*at),
                (Value::Object(members), Owned::Member(name)) => members.get_mut(name),
                _ => None,
            }) {
                *found = value.clone();
            }
        }
        Ok(())
    }

    fn make(&self, root: &mut Value, value: Value) -> Result<(), String> {
        let mut place = root;
        for (n, selector) in self.0.iter().filter_map(|segment| segment.selectors.first()).enumerate() {
            place = selector.make(place).map_err(|why| format!("{} {why}", self.written(n)))?;
        }
        *place = value;
        Ok(())
    }

    /// The first so many steps of a definite path.
    fn written(&self, steps: usize) -> String {
        let mut text = "$".to_owned();
        for selector in self.0.iter().take(steps).filter_map(|segment| segment.selectors.first()) {
            match selector {
                Selector::Number(_, name) => text.extend([".", name]),
                Selector::Index(at) => text.push_str(&format!("[{at}]")),
                Selector::Name(name) if parse::is_plain(name) => text.extend([".", name]),
                Selector::Name(name) => text.push_str(&format!("[{}]", Value::from(name.as_str()))),
                Selector::All | Selector::Slice { .. } => {}
            }
        }
        text
    }

    fn find<'a>(&self, root: &'a Value, budget: &mut Budget) -> Result<BTreeMap<Vec<Step<'a>>, &'a Value>, String> {
        let mut found = BTreeMap::from([(Vec::new(), root)]);
        for segment in &self.0 {
            let mut next = BTreeMap::new();
            for (place, value) in found {
                let mut open = vec![(place, value)];
                while let Some((place, value)) = open.pop() {
                    let below = |step: Step<'a>| [&place[..], &[step]].concat();
                    for (step, child) in children(value) {
                        budget.visits = budget.visits.checked_sub(1).ok_or("the path looks at too many values")?;
                        if segment.selectors.iter().any(|selector| selector.selects(step, value)) {
                            next.insert(below(step), child);
                        }
                        if segment.deep {
                            open.push((below(step), child));
                        }
                    }
                }
                if next.len() > RESULTS {
                    return Err(format!("the path names more than {RESULTS} places"));
                }
            }
            found = next;
        }
        Ok(found)
    }
}

impl Segment {
    fn is_definite(&self) -> bool {
        let one =
            |selector: &Selector| matches!(selector, Selector::Name(_) | Selector::Index(_) | Selector::Number(..));
        !self.deep && matches!(&self.selectors[..], [selector] if one(selector))
    }
}

impl Selector {
    /// Whether a child of a value is meant.
    fn selects(&self, step: Step<'_>, parent: &Value) -> bool {
        let len = parent.as_array().map_or(0, Vec::len);
        match (self, step) {
            (Self::All, _) => true,
            (Self::Name(name) | Self::Number(_, name), Step::Member(member)) => name == member,
            (Self::Index(at) | Self::Number(at, _), Step::Item(item)) => absolute(*at, len) == Some(item),
            (Self::Slice { start, end, step }, Step::Item(item)) => in_slice(item, len, *start, *end, *step),
            _ => false,
        }
    }

    /// The child that is meant, made if it is missing. Says why that cannot be.
    fn make<'a>(&self, parent: &'a mut Value) -> Result<&'a mut Value, String> {
        // Nothing and null are the same in Kubernetes.
        if parent.is_null() {
            *parent = if matches!(self, Self::Name(_)) { Value::Object(Map::new()) } else { Value::Array(Vec::new()) };
        }
        match (self, parent) {
            (Self::Name(name) | Self::Number(_, name), Value::Object(members)) => {
                Ok(members.entry(name.as_str()).or_insert(Value::Null))
            }
            (Self::Index(at) | Self::Number(at, _), Value::Array(items)) => {
                let len = items.len();
                if *at == len as i64 {
                    items.push(Value::Null);
                }
                let found = absolute(*at, items.len()).and_then(|at| items.get_mut(at));
                found.ok_or_else(|| format!("has {len} items, and no number {at}"))
            }
            (Self::Name(name), other) => Err(format!("is {}, and has no member {name:?}", what(other))),
            (_, other) => Err(format!("is {}, and has no items", what(other))),
        }
    }
}

fn what(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

fn children(value: &Value) -> Box<dyn Iterator<Item = (Step<'_>, &Value)> + '_> {
    match value {
        Value::Array(items) => Box::new(items.iter().enumerate().map(|(at, item)| (Step::Item(at), item))),
        Value::Object(members) => Box::new(members.iter().map(|(name, member)| (Step::Member(name), member))),
        _ => Box::new(std::iter::empty()),
    }
}

/// Where an item is in a list of so many, counted from the end if negative.
fn absolute(at: i64, len: usize) -> Option<usize> {
    let at = if at < 0 { at.checked_add(len as i64)? } else { at };
    usize::try_from(at).ok().filter(|at| *at < len)
}

/// As RFC 9535 has it: from `start` to before `end`, every `step`th; backwards if that is negative, and none if it is zero.
fn in_slice(item: usize, len: usize, start: Option<i64>, end: Option<i64>, step: i64) -> bool {
    let (item, len) = (item as i64, len as i64);
    let counted = |at: i64| if at < 0 { at.saturating_add(len) } else { at };
    if step > 0 {
        let from = counted(start.unwrap_or(0)).clamp(0, len);
        let to = counted(end.unwrap_or(len)).clamp(0, len);
        item >= from && item < to && (item - from) % step == 0
    } else if step < 0 {
        let from = counted(start.unwrap_or(len - 1)).clamp(-1, len - 1);
        let to = end.map_or(-1, |end| counted(end).clamp(-1, len - 1));
        item <= from && item > to && (from - item) % step.checked_neg().unwrap_or(i64::MAX) == 0
    } else {
        false
    }
}

/// The places that lie in no other: what is put there is not looked into.
fn outermost(found: BTreeMap<Vec<Step<'_>>, &Value>) -> Vec<Vec<Owned>> {
    let owned = |step: &Step<'_>| match step {
        Step::Item(at) => Owned::Item(*at),
        Step::Member(name) => Owned::Member((*name).to_owned()),
    };
    // In order, everything within a place comes right behind it.
    let (mut kept, mut last): (Vec<Vec<Owned>>, Option<Vec<Step<'_>>>) = (Vec::new(), None);
    for (place, _) in found {
        if last.as_ref().is_none_or(|last| !place.starts_with(last)) {
            kept.push(place.iter().map(owned).collect());
            last = Some(place);
        }
    }
    kept
}

/// How many levels of lists and objects there are.
fn depth(value: &Value) -> usize {
    let (mut deepest, mut open) = (0, vec![(1, value)]);
    while let Some((level, value)) = open.pop() {
        if value.is_array() || value.is_object() {
            deepest = deepest.max(level);
        }
        open.extend(children(value).map(|(_, child)| (level + 1, child)));
    }
    deepest
}

#[cfg(test)]
mod tests;
