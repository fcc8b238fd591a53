//! The rule by which waits grow.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    time::Duration,
};

const DEFAULT_FACTOR: u32 = 2;

/// How waits grow: from `first`, by `factor` with every failure, never above `max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    first: Duration,
    max: Duration,
    factor: u32,
    jitter: bool,
}

impl Schedule {
    /// Doubles from `first` to `max`, with jitter.
    pub const fn new(first: Duration, max: Duration) -> Self {
        Self { first, max, factor: DEFAULT_FACTOR, jitter: true }
    }

    /// Multiplies by this factor instead of doubling. With 1 all waits are `first`.
    pub const fn factor(self, factor: u32) -> Self {
        Self { factor, ..self }
    }

    /// Waits are exactly what the schedule says, without jitter.
    pub const fn exact(self) -> Self {
        Self { jitter: false, ..self }
    }

    /// The longest wait there is.
    pub const fn max(&self) -> Duration {
        self.max
    }

    /// The wait after this many earlier failures, without jitter.
    pub fn whole_wait(&self, failures: u32) -> Duration {
        self.first.saturating_mul(self.factor.max(1).saturating_pow(failures)).min(self.max)
    }

    /// The wait after this many earlier failures. `random` is between 0 and 1.
    pub fn wait_with(&self, failures: u32, random: f64) -> Duration {
        let whole = self.whole_wait(failures);
        if !self.jitter {
            return whole;
        }
        let random = if random.is_finite() { random.clamp(0.0, 1.0) } else { 1.0 };
        let half = whole / 2;
        half.saturating_add((whole - half).mul_f64(random)).min(whole)
    }

    /// The wait after this many earlier failures of this key. The jitter comes from the key instead of a random
    /// number, so the same question always has the same answer: for state machines that must be repeatable.
    pub fn wait_of(&self, failures: u32, key: impl Hash) -> Duration {
        let mut hasher = DefaultHasher::new();
        (key, failures).hash(&mut hasher);
        let random = hasher.finish() as f64 / u64::MAX as f64;
        self.wait_with(failures, random)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_factor_can_be_chosen() {
        let tenfold = Schedule::new(SECOND, SECOND * 500).factor(10);
        assert_eq!([0, 1, 2, 3].map(|failures| tenfold.whole_wait(failures).as_secs()), [1, 10, 100, 500]);
        let even = Schedule::new(SECOND, SECOND * 500).factor(1);
        assert_eq!([0, 1, 40].map(|failures| even.whole_wait(failures).as_secs()), [1, 1, 1]);
        assert_eq!(Schedule::new(SECOND, SECOND * 5).factor(0).whole_wait(3), SECOND, "no wait may vanish");
    }

    #[test]
    fn a_keys_wait_is_repeatable_and_differs_between_keys() {
        let schedule = Schedule::new(SECOND, SECOND * 60);
        assert_eq!(schedule.wait_of(3, "a"), schedule.wait_of(3, "a"));
        let waits: std::collections::BTreeSet<Duration> = (0..20).map(|key| schedule.wait_of(3, key)).collect();
        assert!(waits.len() > 15, "{waits:?}");
        assert!(waits.iter().all(|wait| (SECOND * 4..=SECOND * 8).contains(wait)), "{waits:?}");
    }

    proptest! {
        #[test]
        fn a_wait_is_between_the_half_and_the_whole_and_never_above_the_cap(
            first in 0..u64::MAX, max in 0..u64::MAX, factor: u32, failures: u32, random: f64,
        ) {
            let schedule = Schedule::new(Duration::from_nanos(first), Duration::from_nanos(max)).factor(factor);
            let (whole, wait) = (schedule.whole_wait(failures), schedule.wait_with(failures, random));
            prop_assert!(whole <= schedule.max());
            prop_assert!(wait >= whole / 2 && wait <= whole, "{wait:?} of {whole:?}");
            prop_assert!(schedule.whole_wait(failures.saturating_add(1)) >= whole);
            prop_assert_eq!(schedule.exact().wait_with(failures, random), whole);
        }
    }
}
