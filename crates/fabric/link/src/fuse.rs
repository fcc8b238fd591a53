//! The deletion fuse: deletions that would remove most of an edge's objects wait for confirmation.
//!
//! Two sets are held: deletions that go out together and are more than half of what the edge holds, and deletions that
//! leave it with less than half of what it held at the beginning of the last minute. An object that is replaced by
//! another is no loss. A deletion that was confirmed, or that its owner stated to be intended, does not count against
//! later ones.
//!
//! All waiting deletions are decided together. Permitted deletions are spent as a whole, so that later ones cannot hold
//! the rest of them.

use crate::types::Millis;

/// Limit of deletions that are never held for being a large share.
pub const MAX_UNHELD_DELETIONS: u64 = 5;

/// Length of the window in which deletions count together.
const LOSS_WINDOW: Millis = 60_000;

#[derive(Debug, Default)]
pub(crate) struct Fuse {
    since: Millis,
    /// The most objects that the edge held since the window began, without those whose deletion was confirmed.
    baseline: u64,
    /// Number of objects that the edge held at its last message.
    count: u64,
    /// Deletions that were sent and are not in that count yet.
    outstanding: u64,
    /// Confirmed deletions that were not spent yet.
    allowance: u64,
}

impl Fuse {
    /// An operator confirms deletions.
    pub fn confirm(&mut self, deletions: u64) {
        self.allowance = deletions;
    }

    /// The edge reports its number of objects.
    pub fn holds(&mut self, now: Millis, count: u64) {
        self.count = count;
        self.roll_window(now);
        self.baseline = self.baseline.max(count);
    }

    /// Begins a new window if the last one is over: older deletions do not count any more.
    pub fn roll_window(&mut self, now: Millis) {
        if now.saturating_sub(self.since) > LOSS_WINDOW {
            (self.since, self.baseline) = (now, self.count);
        }
    }

    /// Whether `pending` deletions may go out now if `staying` objects remain desired.
    pub fn permits(&self, pending: u64, staying: u64) -> bool {
        let is_small = |deletions: u64| deletions <= MAX_UNHELD_DELETIONS || deletions * 2 <= self.baseline;
        let left = self.count.saturating_sub(self.outstanding + pending);
        let lost = self.baseline.saturating_sub(left);
        pending <= self.allowance || (staying > 0 && is_small(pending) && is_small(lost))
    }

    /// Deletions are decided and go out.
    pub fn spend(&mut self, deletions: u64) {
        if deletions <= self.allowance {
            self.allowance -= deletions;
            self.baseline = self.baseline.saturating_sub(deletions);
        }
        self.outstanding += deletions;
    }

    /// Deletions that the owner of the objects stated to be intended go out.
    pub fn spend_intended(&mut self, deletions: u64) {
        self.baseline = self.baseline.saturating_sub(deletions);
        self.outstanding += deletions;
    }

    /// The edge has applied these deletions and its next count is without them, or they are withdrawn.
    pub fn done(&mut self, deletions: u64) {
        self.outstanding = self.outstanding.saturating_sub(deletions);
    }

    /// Number of objects that the edge holds, without those whose deletion was sent.
    pub fn count(&self) -> u64 {
        self.count.saturating_sub(self.outstanding)
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
            (20, 11, 20, false),
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
        for deleted in 1..=10 {
            assert!(fuse.permits(1, 20));
            fuse.spend(1);
            if deleted % 2 == 0 {
                fuse.done(2);
                fuse.holds(deleted, 20 - deleted);
            }
        }
        assert!(!fuse.permits(1, 20));
        fuse.roll_window(LOSS_WINDOW + 1);
        assert!(fuse.permits(1, 20), "what was deleted a minute ago does not count");
    }

    #[test]
    fn replacing_objects_is_no_loss() {
        let mut fuse = Fuse::default();
        fuse.holds(0, 15);
        for second in 0..60 {
            assert!(fuse.permits(1, 15), "after {second} replacements");
            fuse.spend(1);
            fuse.done(1);
            fuse.holds(second, 15);
        }
    }

    #[test]
    fn a_set_that_was_permitted_counts_from_then_on() {
        let mut fuse = Fuse::default();
        fuse.holds(0, 1_000);
        assert!(fuse.permits(500, 500));
        fuse.spend(500);
        assert_eq!(fuse.count(), 500);
        assert!(!fuse.permits(6, 494), "they count before they are done");
        fuse.done(500);
        fuse.holds(1, 500);
        assert!(!fuse.permits(6, 494), "and afterwards");
    }

    #[test]
    fn what_is_intended_does_not_count() {
        let mut fuse = Fuse::default();
        fuse.holds(0, 100);
        fuse.spend_intended(90);
        assert!(fuse.permits(5, 5) && !fuse.permits(6, 4));
        fuse.done(90);
        fuse.holds(1, 10);
        assert!(fuse.permits(5, 5) && !fuse.permits(6, 4));
    }

    #[test]
    fn an_allowance_is_spent_and_does_not_count_afterwards() {
        let mut fuse = Fuse::default();
        fuse.holds(0, 28);
        fuse.confirm(20);
        assert!(fuse.permits(20, 0) && !fuse.permits(21, 0));
        fuse.spend(20);
        fuse.done(20);
        fuse.holds(1, 8);
        assert!(!fuse.permits(1, 0), "nothing is left of the allowance");
        assert!(fuse.permits(1, 7), "one of eight, whatever was confirmed before");
        assert!(fuse.permits(4, 4) && !fuse.permits(6, 2));
        assert_eq!(fuse.count(), 8);
    }
}
