//! Which part of an old object a part of the new one came from: what transition rules and ratcheting compare with.

use serde_json::Value;

use super::node::Node;

/// The old element of a list that has the same keys as `element`, if the list is one whose elements have keys.
pub(crate) fn element<'a>(node: &Node, old: Option<&'a Value>, element: &Value) -> Option<&'a Value> {
    if !node.list_is("map") || node.list_map_keys.is_empty() {
        return None;
    }
    let map = element.as_object()?;
    old?.as_array()?.iter().find(|candidate| {
        candidate
            .as_object()
            .is_some_and(|candidate| node.list_map_keys.iter().all(|key| map.get(&**key) == candidate.get(&**key)))
    })
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

    pub(crate) fn index(&self, node: &Node, new: &'a Value) -> Self {
        Self { new, old: element(node, self.old, new) }
    }
}
