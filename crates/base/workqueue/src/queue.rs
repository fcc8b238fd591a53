//! The queue, shared by those that add keys and those that work on them.

use std::{
    fmt,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use backoff::Schedule;
use tokio::{sync::Notify, time::Instant};

use crate::{
    numbers::{self, Counted, Numbers},
    state::{Again, GroupOf, MAX_DELAY, State},
};

/// A queue of keys. A clone is a handle to the same queue.
pub struct Queue<K>(Arc<Shared<K>>);

struct Shared<K> {
    name: &'static str,
    state: Mutex<State<K>>,
    /// Something became ready, or has to be waited for.
    changed: Notify,
}

impl<K> Clone for Queue<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K> fmt::Debug for Queue<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Queue").field(&self.0.name).finish()
    }
}

impl<K: Clone + Eq + Hash + Send + 'static> Queue<K> {
    /// A queue without groups. The name is the one of the controller: it is in spans, logs and metrics.
    pub fn new(name: &'static str, schedule: Schedule) -> Self {
        Self::make(name, schedule, |_| "", false)
    }

    /// A queue whose groups take turns.
    pub fn by_group(name: &'static str, schedule: Schedule, group_of: fn(&K) -> &str) -> Self {
        Self::make(name, schedule, group_of, false)
    }

    /// A queue whose groups take turns, and that gives out one key of a group at a time.
    pub fn one_per_group(name: &'static str, schedule: Schedule, group_of: fn(&K) -> &str) -> Self {
        Self::make(name, schedule, group_of, true)
    }

    fn make(name: &'static str, schedule: Schedule, group_of: GroupOf<K>, one_per_group: bool) -> Self {
        let state = Mutex::new(State::new(name, schedule, group_of, one_per_group));
        let shared = Arc::new(Shared { name, state, changed: Notify::new() });
        numbers::register(Arc::downgrade(&shared) as Weak<dyn Counted>);
        Self(shared)
    }

    pub fn name(&self) -> &'static str {
        self.0.name
    }

    /// Adds a key, unless it is there already. A wait of it ends.
    pub fn add(&self, key: K) {
        if self.0.state().add(key, Instant::now()) {
            self.0.changed.notify_one();
        }
    }

    /// Adds a key later. Of two times of a key the earlier counts, and [`Queue::add`] beats both.
    pub fn add_after(&self, key: K, wait: Duration) {
        self.0.state().add_at(key, Instant::now() + wait.min(MAX_DELAY));
        self.0.changed.notify_one();
    }

    /// The next key. It is not given out again, and with [`Queue::one_per_group`] no other one of its group, until
    /// [`Work::done`] is called. Dropping this future loses nothing.
    pub async fn next(&self) -> Work<K> {
        loop {
            let next = {
                let mut state = self.0.state();
                let next = state.take(Instant::now());
                if next.is_ok() && state.has_ready() {
                    // One notification may have been for several keys.
                    self.0.changed.notify_one();
                }
                next
            };
            match next {
                Ok(key) => return Work { queue: self.clone(), key, is_done: false },
                Err(None) => self.0.changed.notified().await,
                Err(Some(due)) => {
                    let _ = tokio::time::timeout_at(due, self.0.changed.notified()).await;
                }
            }
        }
    }

    pub fn numbers(&self) -> Numbers {
        self.0.numbers()
    }
}

impl<K: Clone + Eq + Hash> Queue<K> {
    fn done(&self, key: &K, again: Again) {
        self.0.state().done(key, again, Instant::now());
        self.0.changed.notify_one();
    }
}

impl<K> Shared<K> {
    fn state(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Clone + Eq + Hash + Send> Counted for Shared<K> {
    fn numbers(&self) -> Numbers {
        self.state().numbers(Instant::now())
    }
}

/// A key that is being worked on. If it is dropped without [`Work::done`], the key counts as failed.
#[derive(Debug)]
pub struct Work<K: Clone + Eq + Hash> {
    queue: Queue<K>,
    key: K,
    is_done: bool,
}

impl<K: Clone + Eq + Hash> Work<K> {
    pub fn key(&self) -> &K {
        &self.key
    }

    /// The name of the queue.
    pub fn controller(&self) -> &'static str {
        self.queue.0.name
    }

    pub fn done(mut self, again: Again) {
        self.is_done = true;
        self.queue.done(&self.key, again);
    }
}

impl<K: Clone + Eq + Hash> Drop for Work<K> {
    fn drop(&mut self) {
        if !self.is_done {
            self.queue.done(&self.key, Again::Failed);
        }
    }
}
