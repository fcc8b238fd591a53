//! The deletion fuse: what would take away most of an edge waits until somebody says that it is meant.

use crate::types::Millis;

/// Up to this many deletions are never held for being a large share.
pub const HANDFUL: u64 = 5;

/// Deletions that are this close together count as one.
const WINDOW: Millis = 60_000;

#[derive(Debug, Default)]
pub(crate) struct Fuse {
    since: Millis,
    /// The most objects that the edge held since the window began.
    baseline: u64,
    /// How many it held when it last said so.
    count: u64,
    spent: u64,
    /// How many more deletions somebody allowed.
    allowance: u64,
}

impl Fuse {
    pub fn allow(&mut self, deletions: u64) {
        self.allowance = deletions;
    }

    /// The edge says how many objects it holds.
    pub fn holds(&mut self, now: Millis, count: u64) {
        self.count = count;
        self.turn(now);
        self.baseline = self.baseline.max(count);
    }

    /// Time passes: what was deleted long ago does not count against what is to be deleted now.
    pub fn turn(&mut self, now: Millis) {
        if now.saturating_sub(self.since) > WINDOW {
            (self.since, self.spent, self.baseline) = (now, 0, self.count);
        }
    }

    /// Whether so many deletions may go out now, when so many objects are to stay.
    pub fn permits(&self, pending: u64, staying: u64) -> bool {
        if pending <= self.allowance {
            return true;
        }
        let total = self.spent + pending;
        staying > 0 && (total <= HANDFUL || total * 2 <= self.baseline)
    }

    pub fn spend(&mut self, deletions: u64) {
        self.spent += deletions;
        self.allowance = self.allowance.saturating_sub(deletions);
    }

    pub fn baseline(&self) -> u64 {
        self.baseline
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_passes_and_more_is_held() {
        for (held, pending, staying, permitted) in [
            (20, 10, 10, true),
            (20, 11, 9, false),
            (6, 5, 1, true),
            (8, 6, 2, false),
            (1, 1, 0, false),
            (0, 0, 0, true),
        ] {
            let mut fuse = Fuse::default();
            fuse.holds(0, held);
            assert_eq!(fuse.permits(pending, staying), permitted, "{pending} of {held}");
        }
    }

    #[test]
    fn many_small_ones_in_a_row_count_together() {
        let mut fuse = Fuse::default();
        fuse.holds(0, 20);
        for _ in 0..10 {
            assert!(fuse.permits(1, 5));
            fuse.spend(1);
        }
        assert!(!fuse.permits(1, 5));
        fuse.holds(WINDOW + 1, 10);
        assert!(fuse.permits(1, 5));
    }

    #[test]
    fn what_was_held_for_what_went_before_goes_when_that_is_long_ago() {
        let mut fuse = Fuse::default();
        fuse.holds(0, 20);
        fuse.spend(10);
        fuse.holds(1, 12);
        fuse.turn(WINDOW);
        assert!(!fuse.permits(1, 11));
        // Nothing is acked meanwhile, as nothing is sent.
        fuse.turn(WINDOW + 1);
        assert!(fuse.permits(6, 6) && !fuse.permits(7, 5));
    }

    #[test]
    fn an_allowance_is_spent() {
        let mut fuse = Fuse::default();
        fuse.holds(0, 20);
        fuse.allow(15);
        assert!(fuse.permits(15, 0) && !fuse.permits(16, 0));
        fuse.spend(15);
        assert!(!fuse.permits(1, 0));
    }
}
