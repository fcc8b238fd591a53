//! The time.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use crate::machine::Now;

#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Far enough back that times before the start can be told, of containers that ran before.
    zero: Instant,
    ahead: Duration,
}

impl Clock {
    pub fn new() -> Self {
        Self { zero: Instant::now(), ahead: Duration::from_secs(1 << 20) }
    }

    pub fn mono(&self) -> Duration {
        self.zero.elapsed() + self.ahead
    }

    pub fn now(&self) -> Now {
        Now { mono: self.mono(), wall: Timestamp::now() }
    }

    pub fn instant(&self, mono: Duration) -> Instant {
        self.zero + mono.saturating_sub(self.ahead)
    }
}
