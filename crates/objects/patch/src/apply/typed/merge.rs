//! A configuration merged into the live object.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::{Atom, Fields, Ty, list_element, list_of, map_of};
use crate::apply::element::PathElement;

impl<'s> Ty<'s> {
    /// Nothing is removed; where both have a leaf, the configuration's counts.
    pub(crate) fn merge(self, live: &Value, config: &Value) -> Value {
        self.merge_at(Some(live), Some(config)).unwrap_or_else(|| Value::Object(Map::new()))
    }

    fn merge_at(self, live: Option<&Value>, config: Option<&Value>) -> Option<Value> {
        let (Some(was), Some(new)) = (live, config) else { return config.or(live).cloned() };
        match self.atom(if new.is_null() { live } else { config }) {
            Atom::Map(fields) if !fields.atomic => {
                let (was, new) = (map_of(live), map_of(config));
                if was.is_none_or(Map::is_empty) && new.is_none_or(Map::is_empty) {
                    return config.cloned();
                }
                Some(merge_maps(fields, was, new))
            }
            Atom::List(items, keys) => {
                let (was, new) = (list_of(live).unwrap_or_default(), list_of(config).unwrap_or_default());
                if was.is_empty() && new.is_empty() {
                    return config.cloned();
                }
                let merged = merge_lists(items, keys, was, new);
                (!merged.is_empty()).then_some(Value::Array(merged))
            }
            _ => {
                let _ = was;
                Some(new.clone())
            }
        }
    }
}

impl Ty<'_> {
    /// Where in a value there are lists and maps that can only be replaced as a whole.
    pub(crate) fn atomic_parts(self, value: &Value) -> Vec<String> {
        let mut found = Vec::new();
        self.gather_atomic(value, &mut String::new(), &mut found);
        found
    }

    fn gather_atomic(self, value: &Value, path: &mut String, found: &mut Vec<String>) {
        match (self.atom(Some(value)), value) {
            (Atom::AtomicList(_), _) => found.push(path.clone()),
            (Atom::Map(fields), _) if fields.atomic => found.push(path.clone()),
            (Atom::Map(fields), Value::Object(map)) => {
                for (name, value) in map {
                    let Some(ty) = fields.ty(name) else { continue };
                    let length = path.len();
                    path.push('.');
                    path.push_str(name);
                    ty.gather_atomic(value, path, found);
                    path.truncate(length);
                }
            }
            (Atom::List(items, _), Value::Array(list)) => {
                for value in list {
                    items.gather_atomic(value, path, found);
                }
            }
            _ => {}
        }
    }
}

fn merge_maps(fields: Fields<'_>, live: Option<&Map<String, Value>>, config: Option<&Map<String, Value>>) -> Value {
    let mut out = live.cloned().unwrap_or_default();
    for (name, new) in config.into_iter().flatten() {
        let ty = fields.ty(name).unwrap_or_else(|| Ty::deduced(fields.schema));
        if let Some(merged) = ty.merge_at(live.and_then(|live| live.get(name)), Some(new)) {
            out.insert(name.clone(), merged);
        }
    }
    Value::Object(out)
}

/// A list's elements under their steps.
struct Index<'v> {
    /// In the order of the list, with the value at that place.
    order: Vec<(PathElement<'v>, &'v Value)>,
    /// The value to merge with; none for elements that are there several times.
    values: BTreeMap<PathElement<'v>, Option<&'v Value>>,
}

impl<'v> Index<'v> {
    fn of(items: Ty<'v>, keys: &'v [Box<str>], list: &'v [Value]) -> Self {
        let mut index = Self { order: Vec::with_capacity(list.len()), values: BTreeMap::new() };
        for value in list {
            let Ok(element) = list_element(items, keys, value) else { continue };
            index.values.entry(element.clone()).and_modify(|v| *v = None).or_insert(Some(value));
            index.order.push((element, value));
        }
        index
    }

    fn has(&self, element: &PathElement<'_>) -> bool {
        self.values.contains_key(element)
    }

    fn get(&self, element: &PathElement<'_>) -> Option<&'v Value> {
        self.values.get(element).copied().flatten()
    }
}

/// Elements that both lists have come in the configuration's order; the live ones around them keep their places.
fn merge_lists(items: Ty<'_>, keys: &[Box<str>], live: &[Value], config: &[Value]) -> Vec<Value> {
    let live = Index::of(items, keys, live);
    let config = Index::of(items, keys, config);
    let mut shared = config.order.iter().map(|(e, _)| e).filter(|e| live.has(e)).peekable();
    let mut done = BTreeSet::new();
    let mut out = Vec::with_capacity(live.order.len().max(config.order.len()));
    let (mut l, mut c) = (0, 0);
    while l < live.order.len() || c < config.order.len() {
        if let (Some((was, _)), Some((new, _))) = (live.order.get(l), config.order.get(c)) {
            if was == new {
                out.extend(items.merge_at(live.get(was), config.get(was)));
                done.insert(was);
                shared.next();
                l += 1;
                c += 1;
                continue;
            }
            if config.has(was) && shared.peek().is_some_and(|next| *next != was) {
                // It is in the configuration too, and comes later.
                l += 1;
                continue;
            }
        }
        if let Some((was, value)) = live.order.get(l) {
            if !config.has(was) {
                out.push((*value).clone());
                l += 1;
                continue;
            }
            if done.contains(was) {
                l += 1;
            }
        }
        if let Some((new, _)) = config.order.get(c) {
            out.extend(items.merge_at(live.get(new), config.get(new)));
            done.insert(new);
            c += 1;
            if shared.peek().is_some_and(|next| *next == new) {
                shared.next();
            }
        }
    }
    out
}
