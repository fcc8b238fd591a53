//! Keys that wait to be sent: first come first served, each once. What is sent is looked up when its turn comes, so the
//! latest content wins and waiting costs a key, not a content.

use std::collections::{HashSet, VecDeque};

use crate::types::Key;

#[derive(Debug, Default)]
pub(crate) struct KeyQueue {
    order: VecDeque<Key>,
    members: HashSet<Key>,
}

impl KeyQueue {
    pub fn push(&mut self, key: Key) {
        if self.members.insert(key.clone()) {
            self.order.push_back(key);
        }
    }

    pub fn pop(&mut self) -> Option<Key> {
        let key = self.order.pop_front()?;
        self.members.remove(&key);
        if self.order.is_empty() {
            // An idle session keeps no room for the burst that once passed through it.
            *self = Self::default();
        }
        Some(key)
    }

    /// Back to the front: it did not fit.
    pub fn put_back(&mut self, key: Key) {
        if self.members.insert(key.clone()) {
            self.order.push_front(key);
        }
    }

    pub fn len(&self) -> usize {
        self.order.len()
    }

    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Bytes held, roughly.
    pub fn memory(&self) -> usize {
        (self.order.capacity() + 2 * self.members.capacity()) * size_of::<Key>()
    }
}
