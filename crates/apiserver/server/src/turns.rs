//! Giving others a turn: work that goes on for long does so every millisecond.

use std::time::{Duration, Instant};

/// How long a task may go on at once.
const SLICE: Duration = Duration::from_millis(1);
/// At most this many steps are made between two looks at the clock. Reading it costs as much as a short step.
const MAX_STRIDE: u32 = 16;

/// The time since others had their turn.
pub struct Turns {
    since: Instant,
    looked: Instant,
    /// Steps since the last look at the clock.
    steps: u32,
    /// Steps until the next look: more while steps are short, fewer while they are long.
    stride: u32,
}

impl Default for Turns {
    fn default() -> Self {
        let now = Instant::now();
        Self { since: now, looked: now, steps: 0, stride: 2 }
    }
}

impl Turns {
    /// One more step of a long loop. Says whether this task has had the processor for long enough.
    pub fn is_over(&mut self) -> bool {
        self.steps += 1;
        self.steps >= self.stride && self.look(Instant::now())
    }

    fn look(&mut self, now: Instant) -> bool {
        let took = now.saturating_duration_since(self.looked);
        if took < SLICE / 16 {
            self.stride = (self.stride * 2).min(MAX_STRIDE);
        } else if took > SLICE / 4 {
            self.stride = (self.stride / 2).max(1);
        }
        (self.looked, self.steps) = (now, 0);
        now.saturating_duration_since(self.since) >= SLICE
    }

    /// The same, and others have their turn here if it is time.
    pub async fn pass(&mut self) {
        if self.is_over() {
            tokio::task::yield_now().await;
            let now = Instant::now();
            (self.since, self.looked) = (now, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_is_read_more_often_when_steps_are_long() {
        let mut turns = Turns::default();
        let mut now = turns.since;
        let mut after = |turns: &mut Turns, step: Duration| {
            now += step;
            turns.look(now)
        };
        for stride in [4, 8, 16, 16] {
            assert!(!after(&mut turns, SLICE / 100));
            assert_eq!(turns.stride, stride);
        }
        assert!(!after(&mut turns, SLICE / 8));
        assert_eq!(turns.stride, 16, "neither short nor long");
        for stride in [8, 4, 2, 1, 1] {
            assert!(after(&mut turns, SLICE), "a whole slice is over");
            assert_eq!(turns.stride, stride);
        }
    }
}
