//! What a controller has to look at: each key once, never twice at the same time, later again if it failed.

use std::{
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

use crate::cache::Key;

const FIRST_WAIT: Duration = Duration::from_millis(5);
/// Upstream waits up to a quarter of an hour; what failed on an edge is mostly its own disk, and that heals.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// Nothing is put off for longer: a time that an object asks for may be further away than any clock goes, and a clock that was set is noticed.
const LONGEST_AGAIN: Duration = Duration::from_secs(24 * 60 * 60);

/// The queue without waiting.
#[derive(Default)]
struct State {
    ready: VecDeque<Key>,
    /// Of those that are ready or run: who is to be looked at (once more).
    asked: HashSet<Key>,
    running: HashSet<Key>,
    later: BTreeSet<(Instant, Key)>,
    due: HashMap<Key, Instant>,
    failures: HashMap<Key, u32>,
}

impl State {
    fn add(&mut self, key: Key) {
        self.forget_later(&key);
        if self.asked.insert(key.clone()) && !self.running.contains(&key) {
            self.ready.push_back(key);
        }
    }

    fn add_at(&mut self, key: Key, at: Instant) {
        if self.due.get(&key).is_some_and(|due| *due <= at) {
            return;
        }
        self.forget_later(&key);
        self.later.insert((at, key.clone()));
        self.due.insert(key, at);
    }

    fn forget_later(&mut self, key: &Key) {
        if let Some(due) = self.due.remove(key) {
            self.later.remove(&(due, key.clone()));
        }
    }

    /// The next key, or when to ask again.
    fn next(&mut self, now: Instant) -> Result<Key, Option<Instant>> {
        while let Some((due, key)) = self.later.first().filter(|(due, _)| *due <= now).cloned() {
            self.later.remove(&(due, key.clone()));
            self.due.remove(&key);
            self.add(key);
        }
        let Some(key) = self.ready.pop_front() else { return Err(self.later.first().map(|(due, _)| *due)) };
        self.asked.remove(&key);
        self.running.insert(key.clone());
        Ok(key)
    }

    fn done(&mut self, key: &Key, again: Again, now: Instant) {
        self.running.remove(key);
        if self.asked.contains(key) {
            self.ready.push_back(key.clone());
        }
        match again {
            Again::No => {
                self.failures.remove(key);
            }
            Again::In(wait) => {
                self.failures.remove(key);
                self.add_at(key.clone(), now + wait.min(LONGEST_AGAIN));
            }
            Again::Failed => {
                let failures = self.failures.entry(key.clone()).or_default();
                let wait = FIRST_WAIT.saturating_mul(1 << (*failures).min(16)).min(LONGEST_WAIT);
                *failures += 1;
                self.add_at(key.clone(), now + wait);
            }
        }
    }
}

/// What comes after looking at a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// Something has to change first.
    No,
    In(Duration),
    /// After a while, which grows from failure to failure.
    Failed,
}

#[derive(Default)]
pub struct Queue {
    state: Mutex<State>,
    wake: Notify,
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn add(&self, key: Key) {
        self.state().add(key);
        self.wake.notify_one();
    }

    /// Whoever gets a key says [`Self::done`] of it.
    pub async fn next(&self) -> Key {
        loop {
            let next = self.state().next(Instant::now());
            match next {
                Ok(key) => {
                    // One notice may have been for several keys.
                    self.wake.notify_one();
                    return key;
                }
                Err(None) => self.wake.notified().await,
                Err(Some(due)) => {
                    let _ = tokio::time::timeout_at(due, self.wake.notified()).await;
                }
            }
        }
    }

    pub fn done(&self, key: &Key, again: Again) {
        self.state().done(key, again, Instant::now());
        self.wake.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key::new("ns", name)
    }

    #[test]
    fn a_key_is_there_once_and_again_if_asked_while_it_runs() {
        let now = Instant::now();
        let mut state = State::default();
        state.add(key("a"));
        state.add(key("a"));
        assert_eq!(state.next(now), Ok(key("a")));
        assert_eq!(state.next(now), Err(None));
        state.add(key("a"));
        assert_eq!(state.next(now), Err(None), "it runs already");
        state.done(&key("a"), Again::No, now);
        assert_eq!(state.next(now), Ok(key("a")));
        state.done(&key("a"), Again::No, now);
        assert_eq!(state.next(now), Err(None));
    }

    #[test]
    fn failures_wait_longer_each_time() {
        let mut now = Instant::now();
        let mut state = State::default();
        state.add(key("a"));
        let mut waits = Vec::new();
        for _ in 0..20 {
            assert_eq!(state.next(now), Ok(key("a")));
            state.done(&key("a"), Again::Failed, now);
            let Err(Some(due)) = state.next(now) else { panic!("it is not due yet") };
            waits.push(due - now);
            now = due;
        }
        assert_eq!(waits[..3], [FIRST_WAIT, FIRST_WAIT * 2, FIRST_WAIT * 4]);
        assert_eq!(waits[19], LONGEST_WAIT);
        assert_eq!(state.next(now), Ok(key("a")));
        state.done(&key("a"), Again::No, now);
        assert!(state.failures.is_empty() && state.later.is_empty() && state.due.is_empty());
    }

    #[test]
    fn no_time_is_too_far_away() {
        let now = Instant::now();
        let mut state = State::default();
        state.add(key("a"));
        assert_eq!(state.next(now), Ok(key("a")));
        state.done(&key("a"), Again::In(Duration::MAX), now);
        assert_eq!(state.next(now), Err(Some(now + LONGEST_AGAIN)));
    }

    #[test]
    fn the_earlier_of_two_times_counts_and_now_beats_later() {
        let now = Instant::now();
        let second = Duration::from_secs(1);
        let mut state = State::default();
        state.add_at(key("a"), now + second * 2);
        state.add_at(key("a"), now + second);
        state.add_at(key("a"), now + second * 3);
        assert_eq!(state.next(now), Err(Some(now + second)));
        state.add(key("a"));
        assert_eq!(state.next(now), Ok(key("a")));
        state.done(&key("a"), Again::No, now);
        assert_eq!(state.next(now + second * 4), Err(None));
    }
}
