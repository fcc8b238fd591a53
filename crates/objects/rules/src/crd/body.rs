//! The schema of a version as it is used: made from its text when it is first needed, and given up again when too many
//! are in use.
//!
//! A compiled schema takes many times its text. All of them together stay within a budget; those that have not been
//! used for the longest time are dropped, and made again if they are needed after all.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};

use bytes::Bytes;
use schema::json_schema::Node;
use schema::{Schema, TypeId};
use serde_json::Value;

use super::rules::Rules;
use super::structure;

/// What compiled schemas of the whole process may take together, in bytes by estimate.
const BUDGET: usize = 64 << 20;
/// What one place of a schema takes, by estimate: its rules and its structure.
const PER_NODE: usize = 2 * size_of::<Node>() + 256;

#[derive(Debug)]
pub struct Body {
    pub schema: Schema,
    /// The root object in `schema`, metadata included.
    pub ty: TypeId,
    pub(crate) root: Node,
    pub(crate) rules: Option<Rules>,
}

impl Body {
    fn compile(source: &[u8], preserve_unknown: bool) -> Self {
        let raw: Value = serde_json::from_slice(source).unwrap_or_default();
        let mut root = Node::compile(&raw);
        drop(raw);
        root.preserve_unknown |= preserve_unknown;
        let (schema, ty) = structure::build(&root);
        let rules = Rules::compile(&root, true);
        Self { schema, ty, root, rules }
    }

    fn weight(&self) -> usize {
        self.schema.types.len() * PER_NODE
    }
}

/// The place of one version's compiled schema.
#[derive(Debug, Default)]
pub(super) struct Slot {
    body: Mutex<Option<Arc<Body>>>,
    /// It was used since the shelf last looked.
    used: AtomicBool,
}

impl Slot {
    pub(super) fn get(self: &Arc<Self>, source: &Bytes, preserve_unknown: bool) -> Arc<Body> {
        self.used.store(true, Relaxed);
        let mut body = lock(&self.body);
        if let Some(body) = &*body {
            return body.clone();
        }
        let made = Arc::new(Body::compile(source, preserve_unknown));
        *body = Some(made.clone());
        drop(body);
        lock(&SHELF).put(self, made.weight());
        made
    }

    pub(super) fn is_made(&self) -> bool {
        match self.body.try_lock() {
            Ok(body) => body.is_some(),
            Err(TryLockError::Poisoned(_) | TryLockError::WouldBlock) => false,
        }
    }
}

/// All compiled schemas, the one that was looked at longest ago first.
struct Shelf {
    slots: VecDeque<(Weak<Slot>, usize)>,
    budget: usize,
}

static SHELF: Mutex<Shelf> = Mutex::new(Shelf { slots: VecDeque::new(), budget: BUDGET });

impl Shelf {
    fn put(&mut self, slot: &Arc<Slot>, weight: usize) {
        self.slots.retain(|(slot, _)| slot.strong_count() > 0);
        self.slots.push_back((Arc::downgrade(slot), weight));
        let mut total: usize = self.slots.iter().map(|(_, weight)| weight).sum();
        // Everything gets a second chance, so each is looked at twice at most. The newest stays in any case.
        for _ in 0..2 * self.slots.len() {
            if total <= self.budget || self.slots.len() < 2 {
                return;
            }
            let Some((oldest, weight)) = self.slots.pop_front() else { return };
            let Some(found) = oldest.upgrade() else {
                total -= weight;
                continue;
            };
            let spared = Arc::ptr_eq(&found, slot) || found.used.swap(false, Relaxed);
            match found.body.try_lock() {
                Ok(mut body) if !spared => {
                    *body = None;
                    total -= weight;
                }
                _ => self.slots.push_back((oldest, weight)),
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_used_is_given_up() {
        let mut shelf = Shelf { slots: VecDeque::new(), budget: 100 };
        let made = || {
            let slot = Arc::new(Slot::default());
            *lock(&slot.body) = Some(Arc::new(Body::compile(b"{}", false)));
            slot
        };
        let slots: Vec<Arc<Slot>> = (0..5).map(|_| made()).collect();
        for slot in &slots[..3] {
            shelf.put(slot, 30);
        }
        assert!(slots[..3].iter().all(|slot| slot.is_made()));
        slots[0].used.store(true, Relaxed);
        shelf.put(&slots[3], 30);
        let made: Vec<bool> = slots[..4].iter().map(|slot| slot.is_made()).collect();
        assert_eq!(made, [true, false, true, true], "the oldest that was not used");
        shelf.put(&slots[4], 500);
        let made: Vec<bool> = slots.iter().map(|slot| slot.is_made()).collect();
        assert_eq!(made, [false, false, false, false, true], "a large one may stand alone");
    }
}
