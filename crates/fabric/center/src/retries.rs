//! When a write that failed is tried again: each one after a wait of its own, which doubles with every failure. Pure.

use std::{
    collections::HashMap,
    hash::Hash,
    time::{Duration, Instant},
};

const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Failed writes by what they are about.
pub struct Retries<T> {
    failed: HashMap<T, Failed>,
}

struct Failed {
    times: u32,
    /// `None` while it is being tried.
    at: Option<Instant>,
}

impl<T> Default for Retries<T> {
    fn default() -> Self {
        Self { failed: HashMap::new() }
    }
}

impl<T: Clone + Eq + Hash> Retries<T> {
    /// Notes a failure. Answers how long to wait.
    pub fn failed(&mut self, what: T, now: Instant) -> Duration {
        let failed = self.failed.entry(what).or_insert(Failed { times: 0, at: None });
        let wait = FIRST_WAIT.saturating_mul(1 << failed.times.min(16)).min(LONGEST_WAIT);
        failed.times += 1;
        failed.at = Some(now + wait);
        wait
    }

    pub fn succeeded(&mut self, what: &T) {
        self.failed.remove(what);
    }

    /// What is to be tried again now.
    pub fn take(&mut self, now: Instant) -> Vec<T> {
        let is_due = |failed: &Failed| failed.at.is_some_and(|at| at <= now);
        let due = self.failed.iter_mut().filter(|(_, failed)| is_due(failed));
        due.map(|(what, failed)| {
            failed.at = None;
            what.clone()
        })
        .collect()
    }

    /// When the next one is due.
    pub fn next(&self) -> Option<Instant> {
        self.failed.values().filter_map(|failed| failed.at).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_write_has_a_wait_of_its_own() {
        let (mut retries, start) = (Retries::default(), Instant::now());
        let at = |seconds: f64| start + Duration::from_secs_f64(seconds);
        assert_eq!(retries.failed("a", at(0.0)), FIRST_WAIT);
        assert_eq!((retries.take(at(0.4)), retries.next()), (vec![], Some(at(0.5))));
        assert_eq!((retries.take(at(0.5)), retries.next()), (vec!["a"], None));
        assert_eq!(retries.failed("a", at(0.5)), FIRST_WAIT * 2);
        assert_eq!(retries.failed("b", at(0.5)), FIRST_WAIT);
        assert_eq!((retries.take(at(1.2)), retries.next()), (vec!["b"], Some(at(1.5))));
        retries.succeeded(&"b");
        retries.succeeded(&"a");
        assert_eq!((retries.take(at(100.0)), retries.next()), (vec![], None));
        for _ in 0..20 {
            retries.failed("a", at(0.0));
        }
        assert_eq!(retries.failed("a", at(0.0)), LONGEST_WAIT);
        retries.succeeded(&"a");
        assert_eq!(retries.failed("a", at(0.0)), FIRST_WAIT, "a success starts anew");
    }
}
