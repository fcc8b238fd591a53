//! Exponential backoff: how long to wait before something that failed is tried again. Nothing here sleeps or reads a
//! clock.
//!
//! - [`Schedule`] is the rule: first wait, longest wait, factor, jitter. It is `Copy` and can be a constant.
//! - [`Backoff`] follows a schedule for one thing that is retried in a loop: a watch, a connection, a first request.
//! - [`Retries`] follows a schedule for many keys at once and says which are due: a work queue, failed writes.
//!
//! With jitter, which is the default, a wait is between the half and the whole of what the schedule says, so that
//! clients that failed together do not come back together. Use [`Schedule::exact`] where nobody else waits for the
//! same thing.
//!
//! ```
//! use std::time::Duration;
//! use selvedge_backoff::{Backoff, Schedule};
//!
//! const RECONNECT: Schedule = Schedule::new(Duration::from_millis(500), Duration::from_secs(30));
//!
//! let mut backoff = Backoff::following(RECONNECT);
//! // In a loop: `tokio::time::sleep(backoff.next()).await` after a failure, `backoff.reset()` after a success.
//! let (first, second) = (backoff.next(), backoff.next());
//! assert!(first >= Duration::from_millis(250) && first <= Duration::from_millis(500));
//! assert!(second >= Duration::from_millis(500) && second <= Duration::from_secs(1));
//! backoff.reset();
//! assert!(backoff.next() <= Duration::from_millis(500));
//! ```

mod retries;
mod schedule;

use std::time::Duration;

pub use retries::{Retries, Time};
pub use schedule::Schedule;

/// The waits of one thing that is tried again and again.
#[derive(Clone, Debug)]
pub struct Backoff {
    schedule: Schedule,
    failures: u32,
}

impl Backoff {
    /// Doubles from `first` to `max`, with jitter.
    pub const fn new(first: Duration, max: Duration) -> Self {
        Self::following(Schedule::new(first, max))
    }

    pub const fn following(schedule: Schedule) -> Self {
        Self { schedule, failures: 0 }
    }

    /// Counts a failure and returns how long to wait after it.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Duration {
        self.next_with(rand::random())
    }

    /// The same with a random number from 0 to 1 that the caller has drawn.
    pub fn next_with(&mut self, random: f64) -> Duration {
        let wait = self.schedule.wait_with(self.failures, random);
        self.failures = self.failures.saturating_add(1);
        wait
    }

    /// After a success the next failure waits as the first one did.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// Failures since the last success.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_cap_and_begin_anew_after_a_success() {
        let second = Duration::from_secs(1);
        let mut backoff = Backoff::following(Schedule::new(second, second * 10).exact());
        let waits: Vec<u64> = (0..6).map(|_| backoff.next().as_secs()).collect();
        assert_eq!((waits, backoff.failures()), (vec![1, 2, 4, 8, 10, 10], 6));
        backoff.reset();
        assert_eq!((backoff.next(), backoff.failures()), (second, 1));
    }

    #[test]
    fn jitter_takes_up_to_half_of_a_wait() {
        let second = Duration::from_secs(1);
        let mut backoff = Backoff::new(second, second * 10);
        assert_eq!(backoff.next_with(0.0), second / 2);
        assert_eq!(backoff.next_with(1.0), second * 2);
        assert_eq!(backoff.next_with(0.5), second * 3);
        let drawn: std::collections::BTreeSet<Duration> =
            (0..50).map(|_| Backoff::new(second, second).next()).collect();
        assert!(drawn.len() > 10, "the waits do not differ: {drawn:?}");
        assert!(drawn.iter().all(|wait| (second / 2..=second).contains(wait)), "{drawn:?}");
    }
}
