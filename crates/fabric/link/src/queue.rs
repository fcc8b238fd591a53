//! A queue of keys to be sent, each at most once, in order of arrival. The content is looked up when a key is sent, so
//! the latest content wins and a queued object costs a key only.

use std::collections::{HashSet, VecDeque};

use crate::types::Key;

/// The order of delivery. Objects that others depend on are sent before them, regardless of arrival.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeliveryOrder {
    First,
    #[default]
    Second,
    Last,
}

#[derive(Debug, Default)]
pub(crate) struct KeyQueue {
    queues: [VecDeque<Key>; 3],
    members: HashSet<Key>,
}

impl KeyQueue {
    pub fn push(&mut self, key: Key, order: DeliveryOrder) {
        if self.members.insert(key.clone()) {
            self.queues[order as usize].push_back(key);
        }
    }

    pub fn pop(&mut self) -> Option<Key> {
        let key = self.queues.iter_mut().find_map(VecDeque::pop_front)?;
        self.members.remove(&key);
        if self.members.is_empty() {
            // Releases the capacity that a burst left behind.
            *self = Self::default();
        }
        Some(key)
    }

    /// Returns a key that did not fit into the batch to the front of the queue.
    pub fn put_back(&mut self, key: Key, order: DeliveryOrder) {
        if self.members.insert(key.clone()) {
            self.queues[order as usize].push_front(key);
        }
    }

    pub fn contains(&self, key: &Key) -> bool {
        self.members.contains(key)
    }

    pub fn len(&self) -> usize {
        self.members.len()
    }

    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Approximate memory in bytes.
    pub fn memory(&self) -> usize {
        (self.queues.iter().map(VecDeque::capacity).sum::<usize>() + 2 * self.members.capacity()) * size_of::<Key>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_waits_for_its_turn_once() {
        let mut queue = KeyQueue::default();
        for (key, turn) in [
            ("pod", DeliveryOrder::Last),
            ("map", DeliveryOrder::Second),
            ("kind", DeliveryOrder::First),
            ("map", DeliveryOrder::Second),
            ("space", DeliveryOrder::First),
        ] {
            queue.push(key.into(), turn);
        }
        assert_eq!(queue.len(), 4);
        assert_eq!(queue.pop().as_deref(), Some("kind"));
        queue.put_back("kind".into(), DeliveryOrder::First);
        let all: Vec<Key> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(all.iter().map(|key| &**key).collect::<Vec<_>>(), ["kind", "space", "map", "pod"]);
        assert!(queue.is_empty());
    }
}
