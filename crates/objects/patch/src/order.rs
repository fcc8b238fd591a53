//! The order of a list after a strategic merge patch.
//!
//! What the patch (or its `$setElementOrder`) lists comes in that order, what only the live list has keeps its own, and
//! the two are interleaved by the live list as far as it knows both.

use std::collections::HashMap;

use serde_json::Value;

/// Past this length, elements that an order does not know go to the front instead of being moved there one by one.
const CAREFUL: usize = 2_000;

/// Where the elements of a list stand: by merge key for objects, by themselves for scalars.
pub(super) struct Positions {
    at: HashMap<String, usize>,
}

impl Positions {
    /// The first of several equal elements counts. Elements without the key are never found.
    pub(super) fn of(list: &[Value], merge_key: Option<&str>) -> Self {
        let mut at = HashMap::with_capacity(list.len());
        for (i, item) in list.iter().enumerate() {
            if let Some(id) = identity(item, merge_key) {
                at.entry(id).or_insert(i);
            }
        }
        Self { at }
    }

    pub(super) fn find(&self, item: &Value, merge_key: Option<&str>) -> Option<usize> {
        self.at.get(&identity(item, merge_key)?).copied()
    }

    pub(super) fn insert(&mut self, item: &Value, merge_key: Option<&str>, position: usize) {
        if let Some(id) = identity(item, merge_key) {
            self.at.entry(id).or_insert(position);
        }
    }
}

/// Elements are the same if this is: the JSON text keeps numbers and strings apart.
fn identity(item: &Value, merge_key: Option<&str>) -> Option<String> {
    match merge_key {
        Some(key) => item.get(key).map(Value::to_string),
        None => Some(item.to_string()),
    }
}

/// Sorts `listed` by `order` and `others` by `live`, then interleaves them by `live`.
pub(super) fn arrange(
    listed: Vec<Value>,
    others: Vec<Value>,
    order: &[Value],
    live: &[Value],
    merge_key: Option<&str>,
) -> Vec<Value> {
    let live = Positions::of(live, merge_key);
    let listed = sort(listed, &Positions::of(order, merge_key), merge_key);
    let others = sort(others, &live, merge_key);
    let mut out = Vec::with_capacity(listed.len() + others.len());
    let (mut listed, mut others) = (listed.into_iter().peekable(), others.into_iter().peekable());
    while let (Some(left), Some(right)) = (others.peek(), listed.peek()) {
        let before = match (live.find(left, merge_key), live.find(right, merge_key)) {
            (Some(l), Some(r)) => l < r,
            _ => false,
        };
        out.extend(if before { others.next() } else { listed.next() });
    }
    out.extend(others);
    out.extend(listed);
    out
}

fn sort(list: Vec<Value>, order: &Positions, merge_key: Option<&str>) -> Vec<Value> {
    let mut keyed: Vec<(Option<usize>, Value)> =
        list.into_iter().map(|item| (order.find(&item, merge_key), item)).collect();
    if keyed.len() > CAREFUL || keyed.iter().all(|(at, _)| at.is_some()) {
        keyed.sort_by_key(|(at, _)| *at);
    } else {
        // Upstream's comparison says "before" of anything unknown, which is no order at all; moving elements one by one
        // as its insertion sort does gives its result.
        for i in 1..keyed.len() {
            let mut j = i;
            let before = |a: Option<usize>, b: Option<usize>| match (a, b) {
                (Some(a), Some(b)) => a < b,
                _ => true,
            };
            while j > 0 && before(keyed[j].0, keyed[j - 1].0) {
                keyed.swap(j, j - 1);
                j -= 1;
            }
        }
    }
    keyed.into_iter().map(|(_, item)| item).collect()
}
