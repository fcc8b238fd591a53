//! The queue without waiting and without a clock.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    hash::Hash,
    time::Duration,
};

use backoff::{Retries, Schedule};
use tokio::time::Instant;

use crate::numbers::Numbers;

/// Nothing is put off for longer. The time that a reconcile asks for may be further away than a clock can count, and
/// a clock that was set is noticed.
pub(crate) const MAX_DELAY: Duration = Duration::from_secs(24 * 60 * 60);

/// When a key has to be worked on again although nobody adds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// It is done.
    No,
    /// It is done for this long.
    In(Duration),
    /// It failed: after the wait of the queue's schedule, which grows from failure to failure.
    Failed,
}

impl From<Option<Duration>> for Again {
    fn from(wait: Option<Duration>) -> Self {
        wait.map_or(Self::No, Self::In)
    }
}

/// The group of a key.
pub(crate) type GroupOf<K> = fn(&K) -> &str;

pub(crate) struct State<K> {
    group_of: GroupOf<K>,
    one_per_group: bool,
    /// Groups with ready keys that may be given out, in the order of their turns.
    turns: VecDeque<Box<str>>,
    /// The ready keys of each group that has some.
    ready: HashMap<Box<str>, VecDeque<K>>,
    /// Keys that are to be worked on (once more), and since when. They are ready or running.
    added: HashMap<K, Instant>,
    running: HashMap<K, Instant>,
    /// Groups of running keys, if a group is worked on one key at a time.
    busy: HashSet<Box<str>>,
    /// Keys that are added later, and the failures of keys.
    retries: Retries<K, Instant>,
    numbers: Numbers,
}

impl<K: Clone + Eq + Hash> State<K> {
    pub fn new(name: &'static str, schedule: Schedule, group_of: GroupOf<K>, one_per_group: bool) -> Self {
        Self {
            group_of,
            one_per_group,
            turns: VecDeque::new(),
            ready: HashMap::new(),
            added: HashMap::new(),
            running: HashMap::new(),
            busy: HashSet::new(),
            retries: Retries::new(schedule),
            numbers: Numbers { name, ..Numbers::default() },
        }
    }

    /// Makes a key ready, also one that waits. Returns whether that changed anything.
    pub fn add(&mut self, key: K, now: Instant) -> bool {
        if self.added.contains_key(&key) {
            return false;
        }
        self.retries.cancel(&key);
        self.numbers.adds += 1;
        self.added.insert(key.clone(), now);
        if !self.running.contains_key(&key) {
            self.push(key);
        }
        true
    }

    /// Makes a key ready at a time. Of two times of a key the earlier counts.
    pub fn add_at(&mut self, key: K, at: Instant) {
        if !self.added.contains_key(&key) {
            self.retries.at(key, at);
        }
    }

    /// The next key, which is running from now on, or the time at which to ask again.
    pub fn take(&mut self, now: Instant) -> Result<K, Option<Instant>> {
        while let Some(key) = self.retries.pop(now) {
            self.add(key, now);
        }
        let Some(key) = self.pop() else { return Err(self.retries.next()) };
        if let Some(since) = self.added.remove(&key) {
            self.numbers.queue_duration.observe(now - since);
        }
        self.running.insert(key.clone(), now);
        Ok(key)
    }

    pub fn has_ready(&self) -> bool {
        !self.turns.is_empty()
    }

    /// The key is not running any more.
    pub fn done(&mut self, key: &K, again: Again, now: Instant) {
        let Some(since) = self.running.remove(key) else { return };
        self.numbers.work_duration.observe(now - since);
        if self.one_per_group {
            self.release((self.group_of)(key));
        }
        match again {
            Again::Failed => {
                self.numbers.retries += 1;
                self.retries.failed(key.clone(), now);
            }
            _ => self.retries.succeeded(key),
        }
        if self.added.contains_key(key) {
            // It is worked on at once, and that decides about the next time.
            self.retries.cancel(key);
            self.push(key.clone());
        } else if let Again::In(wait) = again {
            self.retries.at(key.clone(), now + wait.min(MAX_DELAY));
        }
    }

    pub fn numbers(&self, now: Instant) -> Numbers {
        let running = || self.running.values().map(|since| now - *since);
        Numbers {
            depth: self.ready.values().map(VecDeque::len).sum(),
            unfinished_work: running().sum(),
            longest_running: running().max().unwrap_or_default(),
            ..self.numbers.clone()
        }
    }

    fn push(&mut self, key: K) {
        let group = (self.group_of)(&key);
        if let Some(keys) = self.ready.get_mut(group) {
            keys.push_back(key);
            return;
        }
        let group: Box<str> = group.into();
        if !self.busy.contains(&group) {
            self.turns.push_back(group.clone());
        }
        self.ready.insert(group, VecDeque::from([key]));
    }

    fn pop(&mut self) -> Option<K> {
        let group = self.turns.pop_front()?;
        let keys = self.ready.get_mut(&group)?;
        let key = keys.pop_front()?;
        let has_more = !keys.is_empty();
        if !has_more {
            self.ready.remove(&group);
        }
        if self.one_per_group {
            self.busy.insert(group);
        } else if has_more {
            self.turns.push_back(group);
        }
        Some(key)
    }

    fn release(&mut self, group: &str) {
        self.busy.remove(group);
        if self.ready.contains_key(group) {
            self.turns.push_back(group.into());
        }
    }
}

#[cfg(test)]
mod tests;
