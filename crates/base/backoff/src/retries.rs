//! Waits of many keys, each with a count of failures and a time of its own.

use std::{
    collections::{BTreeMap, HashMap},
    hash::Hash,
    ops::{Add, Sub},
    time::{Duration, Instant},
};

use crate::Schedule;

/// A point in time: `std::time::Instant`, `tokio::time::Instant`, or a `Duration` since some start.
pub trait Time: Copy + Ord + Add<Duration, Output = Self> + Sub<Self, Output = Duration> {}

impl<T: Copy + Ord + Add<Duration, Output = T> + Sub<T, Output = Duration>> Time for T {}

/// Keys that failed or wait for their time. A key that neither failed nor waits takes no memory.
///
/// ```
/// use std::time::{Duration, Instant};
/// use selvedge_backoff::{Retries, Schedule};
///
/// let mut retries = Retries::new(Schedule::new(Duration::from_millis(500), Duration::from_secs(60)).exact());
/// let now = Instant::now();
/// assert_eq!(retries.failed("a", now), Duration::from_millis(500));
/// assert_eq!(retries.next(), Some(now + Duration::from_millis(500)));
/// assert_eq!(retries.take(now + Duration::from_secs(1)), ["a"]);
/// retries.succeeded(&"a");
/// assert!(retries.is_empty());
/// ```
#[derive(Clone, Debug)]
pub struct Retries<K, T = Instant> {
    schedule: Schedule,
    entries: HashMap<K, Entry<T>>,
    /// The keys that wait, by time. The number tells keys with the same time apart and keeps their order.
    waiting: BTreeMap<(T, u64), K>,
    last_number: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry<T> {
    failures: u32,
    /// The key's place among those that wait.
    waits: Option<(T, u64)>,
    /// The end of the wait after the last failure, for [`Retries::remaining`] and [`Retries::forget_older`].
    until: Option<T>,
}

impl<K: Clone + Eq + Hash, T: Time> Retries<K, T> {
    pub fn new(schedule: Schedule) -> Self {
        Self { schedule, entries: HashMap::new(), waiting: BTreeMap::new(), last_number: 0 }
    }

    /// Counts a failure of a key. It is due after the wait that is returned, whatever was set before.
    pub fn failed(&mut self, key: K, now: T) -> Duration {
        let failures = self.failures(&key);
        let wait = self.schedule.wait_with(failures, rand::random());
        self.set(key.clone(), now + wait);
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.failures = failures.saturating_add(1);
            entry.until = Some(now + wait);
        }
        wait
    }

    /// Forgets the failures of a key and its wait.
    pub fn succeeded(&mut self, key: &K) {
        if let Some(Entry { waits: Some(place), .. }) = self.entries.remove(key) {
            self.waiting.remove(&place);
        }
    }

    /// Makes a key due at a time without counting a failure. Of two times of a key the earlier counts.
    pub fn at(&mut self, key: K, time: T) {
        let waits = self.entries.get(&key).and_then(|entry| entry.waits);
        if waits.is_none_or(|(before, _)| before > time) {
            self.set(key, time);
        }
    }

    /// Ends the wait of a key without making it due. Its failures still count.
    pub fn cancel(&mut self, key: &K) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        if let Some(place) = entry.waits.take() {
            self.waiting.remove(&place);
        }
        if entry.failures == 0 {
            self.entries.remove(key);
        }
    }

    /// One key that is due, the one that waited longest first. Its failures still count.
    pub fn pop(&mut self, now: T) -> Option<K> {
        let (time, _) = *self.waiting.first_key_value()?.0;
        if time > now {
            return None;
        }
        let (_, key) = self.waiting.pop_first()?;
        self.cancel_taken(&key);
        Some(key)
    }

    /// All keys that are due, those that waited longest first.
    pub fn take(&mut self, now: T) -> Vec<K> {
        std::iter::from_fn(|| self.pop(now)).collect()
    }

    /// The time at which the next key is due.
    pub fn next(&self) -> Option<T> {
        self.waiting.first_key_value().map(|((time, _), _)| *time)
    }

    /// What is left of the wait after the last failure of a key, whether or not the key was taken since.
    pub fn remaining(&self, key: &K, now: T) -> Option<Duration> {
        let until = self.entries.get(key)?.until?;
        (until > now).then(|| until - now)
    }

    /// Failures of a key since its last success.
    pub fn failures(&self, key: &K) -> u32 {
        self.entries.get(key).map_or(0, |entry| entry.failures)
    }

    /// Forgets the failures of keys whose last wait ended longer ago than this and that do not wait now: for callers
    /// that hear of failures only.
    pub fn forget_older(&mut self, age: Duration, now: T) {
        let is_old = |until: T| until < now && now - until > age;
        self.entries.retain(|_, entry| entry.waits.is_some() || entry.until.is_some_and(|until| !is_old(until)));
    }

    /// Forgets the keys for which this is false.
    pub fn retain(&mut self, mut keep: impl FnMut(&K) -> bool) {
        self.entries.retain(|key, _| keep(key));
        let entries = &self.entries;
        self.waiting.retain(|_, key| entries.contains_key(key));
    }

    /// The number of keys that failed or wait.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn set(&mut self, key: K, time: T) {
        self.last_number += 1;
        let place = (time, self.last_number);
        let entry = self.entries.entry(key.clone()).or_insert(Entry { failures: 0, waits: None, until: None });
        if let Some(former) = entry.waits.replace(place) {
            self.waiting.remove(&former);
        }
        self.waiting.insert(place, key);
    }

    fn cancel_taken(&mut self, key: &K) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.waits = None;
            if entry.failures == 0 {
                self.entries.remove(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FIRST: Duration = Duration::from_millis(500);
    const SCHEDULE: Schedule = Schedule::new(FIRST, Duration::from_secs(60)).exact();

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    #[test]
    fn every_key_has_a_wait_of_its_own() {
        let mut retries: Retries<_, Duration> = Retries::new(SCHEDULE);
        assert_eq!(retries.failed("a", seconds(0.0)), FIRST);
        assert_eq!((retries.take(seconds(0.4)), retries.next()), (vec![], Some(seconds(0.5))));
        assert_eq!((retries.take(seconds(0.5)), retries.next()), (vec!["a"], None));
        assert_eq!(retries.failed("a", seconds(0.5)), FIRST * 2);
        assert_eq!(retries.failed("b", seconds(0.5)), FIRST);
        assert_eq!((retries.take(seconds(1.2)), retries.next()), (vec!["b"], Some(seconds(1.5))));
        retries.succeeded(&"b");
        retries.succeeded(&"a");
        assert_eq!((retries.take(seconds(100.0)), retries.next()), (vec![], None));
        for _ in 0..20 {
            retries.failed("a", seconds(0.0));
        }
        assert_eq!(retries.failed("a", seconds(0.0)), SCHEDULE.max());
        assert_eq!((retries.len(), retries.waiting.len()), (1, 1), "a key waits once");
        retries.succeeded(&"a");
        assert_eq!(retries.failed("a", seconds(0.0)), FIRST, "a success starts anew");
    }

    #[test]
    fn the_earlier_of_two_times_counts_and_leaves_nothing_behind() {
        let mut retries: Retries<_, Duration> = Retries::new(SCHEDULE);
        retries.at("a", seconds(2.0));
        retries.at("a", seconds(1.0));
        retries.at("a", seconds(3.0));
        assert_eq!(retries.next(), Some(seconds(1.0)));
        retries.cancel(&"a");
        assert!(retries.is_empty() && retries.next().is_none());
        retries.at("b", seconds(1.0));
        assert_eq!(retries.pop(seconds(0.9)), None);
        assert_eq!(retries.pop(seconds(1.0)), Some("b"));
        assert!(retries.is_empty());
    }

    #[test]
    fn cancelling_keeps_the_failures() {
        let mut retries: Retries<_, Duration> = Retries::new(SCHEDULE);
        retries.failed("a", seconds(0.0));
        retries.cancel(&"a");
        assert_eq!((retries.next(), retries.failures(&"a")), (None, 1));
        assert_eq!(retries.failed("a", seconds(1.0)), FIRST * 2);
    }

    #[test]
    fn a_key_that_held_for_long_begins_anew() {
        let mut retries: Retries<_, Duration> = Retries::new(SCHEDULE);
        retries.failed("a", seconds(0.0));
        retries.failed("a", seconds(1.0));
        assert_eq!(retries.remaining(&"a", seconds(1.5)), Some(seconds(0.5)));
        assert_eq!(retries.take(seconds(2.0)), ["a"]);
        assert_eq!(retries.remaining(&"a", seconds(2.0)), None);
        retries.forget_older(seconds(60.0), seconds(61.0));
        assert_eq!(retries.failures(&"a"), 2);
        retries.forget_older(seconds(60.0), seconds(62.5));
        assert!(retries.is_empty());
    }

    #[test]
    fn keys_that_are_not_kept_do_not_wait() {
        let mut retries: Retries<_, Duration> = Retries::new(SCHEDULE);
        for key in 0..4 {
            retries.failed(key, seconds(0.0));
        }
        retries.retain(|key| key % 2 == 0);
        assert_eq!((retries.len(), retries.take(seconds(1.0))), (2, vec![0, 2]));
    }

    proptest! {
        #[test]
        fn the_two_maps_agree(steps in proptest::collection::vec((0..6u8, 0..4u8, 0..200u64), 0..60)) {
            let mut retries: Retries<u8, Duration> = Retries::new(SCHEDULE);
            for (step, key, time) in steps {
                let time = Duration::from_millis(time * 100);
                match step {
                    0 => { retries.failed(key, time); }
                    1 => retries.succeeded(&key),
                    2 => retries.at(key, time),
                    3 => retries.cancel(&key),
                    4 => retries.forget_older(FIRST, time),
                    _ => {
                        let due = retries.take(time);
                        let mut distinct = due.clone();
                        distinct.sort_unstable();
                        distinct.dedup();
                        prop_assert_eq!(due.len(), distinct.len());
                        prop_assert!(retries.next().is_none_or(|next| next > time));
                    }
                }
                for (place, key) in &retries.waiting {
                    prop_assert_eq!(retries.entries[key].waits, Some(*place));
                }
                let waits = retries.entries.values().filter(|entry| entry.waits.is_some()).count();
                prop_assert_eq!(waits, retries.waiting.len());
                prop_assert!(retries.entries.values().all(|entry| entry.waits.is_some() || entry.failures > 0));
            }
        }
    }
}
