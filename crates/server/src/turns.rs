//! Giving others a turn: work that goes on for long does so every millisecond.

use std::time::{Duration, Instant};

/// How long a task may go on at once.
const SLICE: Duration = Duration::from_millis(1);
/// At most this many steps are made between two looks at the clock.
const STEPS: u32 = 2;

/// The time since others had their turn.
pub struct Turns {
    since: Instant,
    steps: u32,
}

impl Default for Turns {
    fn default() -> Self {
        Self { since: Instant::now(), steps: 0 }
    }
}

impl Turns {
    /// One more step of a long loop. Says whether this task has had the processor for long enough.
    pub fn is_over(&mut self) -> bool {
        self.steps += 1;
        if self.steps < STEPS {
            return false;
        }
        self.steps = 0;
        self.since.elapsed() >= SLICE
    }

    /// The same, and others have their turn here if it is time.
    pub async fn pass(&mut self) {
        if self.is_over() {
            tokio::task::yield_now().await;
            self.since = Instant::now();
        }
    }
}
