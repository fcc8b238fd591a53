//! When something is done that should not be done too often.

use std::{
    collections::HashMap,
    hash::Hash,
    time::{Duration, Instant},
};

/// The same is done at most once in this time.
const APART: Duration = Duration::from_secs(1);
/// From so many on it is worth to look who can be forgotten.
const MANY: usize = 256;

pub struct Pace<T> {
    due: HashMap<T, Instant>,
    done: HashMap<T, Instant>,
}

impl<T> Default for Pace<T> {
    fn default() -> Self {
        Self { due: HashMap::new(), done: HashMap::new() }
    }
}

impl<T: Clone + Eq + Hash> Pace<T> {
    /// It is to be done after a while, in which more may happen that is done with it.
    pub fn push(&mut self, what: T, after: Duration, now: Instant) {
        let earliest = self.done.get(&what).map_or(now, |done| *done + APART);
        let at = earliest.max(now + after);
        let due = self.due.entry(what).or_insert(at);
        *due = at.min(*due);
    }

    /// What is due.
    pub fn take(&mut self, now: Instant) -> Vec<T> {
        let ready: Vec<T> = self.due.iter().filter(|(_, at)| **at <= now).map(|(what, _)| what.clone()).collect();
        for what in &ready {
            self.due.remove(what);
            self.done.insert(what.clone(), now);
        }
        if self.done.len() > MANY {
            self.done.retain(|_, done| *done + APART > now);
        }
        ready
    }

    pub fn next(&self) -> Option<Instant> {
        self.due.values().min().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_together_is_done_once_and_not_too_often() {
        let (mut pace, start) = (Pace::default(), Instant::now());
        let at = |millis: u64| start + Duration::from_millis(millis);
        let wait = Duration::from_millis(100);
        pace.push("a", wait, at(0));
        pace.push("a", wait, at(50));
        assert_eq!((pace.take(at(90)), pace.next()), (vec![], Some(at(100))));
        assert_eq!(pace.take(at(110)), ["a"]);
        pace.push("a", wait, at(120));
        pace.push("b", wait, at(120));
        assert_eq!(pace.take(at(300)), ["b"]);
        assert_eq!((pace.take(at(1000)), pace.take(at(1110))), (vec![], vec!["a"]));
        assert_eq!(pace.next(), None);
    }
}
