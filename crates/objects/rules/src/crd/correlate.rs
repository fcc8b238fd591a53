//! Which part of an old object a part of the new one came from: what transition rules and ratcheting compare with.

use std::collections::HashMap;

use schema::json_schema::Node;
use serde_json::Value;

/// The elements of an old list by their keys, if the list is one whose elements have keys.
pub(crate) struct Elements<'n, 'a> {
    keys: &'n [Box<str>],
    old: HashMap<Vec<Option<&'a Value>>, &'a Value>,
}

impl<'n, 'a> Elements<'n, 'a> {
    /// The new element and the old one that has the same keys.
    pub(crate) fn pair(&self, new: &'a Value) -> Pair<'a> {
        let keys = new.as_object().map(|new| self.keys.iter().map(|key| new.get(&**key)).collect::<Vec<_>>());
        Pair { new, old: keys.and_then(|keys| self.old.get(&keys).copied()) }
    }
}

/// A value of the new object and, where there is one, the value it was before.
#[derive(Clone, Copy)]
pub(crate) struct Pair<'a> {
    pub(crate) new: &'a Value,
    /// `None` when there is no old value, or none that can be known to be the same thing.
    pub(crate) old: Option<&'a Value>,
}

impl<'a> Pair<'a> {
    pub(crate) fn created(new: &'a Value) -> Self {
        Self { new, old: None }
    }

    pub(crate) fn unchanged(&self) -> bool {
        self.old == Some(self.new)
    }

    pub(crate) fn key(&self, key: &str, new: &'a Value) -> Self {
        Self { new, old: self.old.and_then(|old| old.get(key)) }
    }

    /// What to find the old elements of a list with.
    pub(crate) fn elements<'n>(&self, node: &'n Node) -> Elements<'n, 'a> {
        let keys = if node.list_is("map") { node.list_map_keys.as_slice() } else { &[] };
        let mut elements = Elements { keys, old: HashMap::new() };
        if keys.is_empty() {
            return elements;
        }
        for element in self.old.and_then(Value::as_array).into_iter().flatten() {
            let Some(map) = element.as_object() else { continue };
            let place = keys.iter().map(|key| map.get(&**key)).collect();
            // The first of several with the same keys counts.
            elements.old.entry(place).or_insert(element);
        }
        elements
    }
}
