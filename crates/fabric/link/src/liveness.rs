//! Heartbeats: each side sends something at least every fifteen seconds and gives up a peer after three times that.

use crate::types::Millis;

pub(crate) const HEARTBEAT_INTERVAL: Millis = 15_000;
const SILENCE_TIMEOUT: Millis = 3 * HEARTBEAT_INTERVAL;

#[derive(Debug)]
pub(crate) struct Liveness {
    sent: Millis,
    heard: Millis,
}

impl Liveness {
    pub fn new(now: Millis) -> Self {
        Self { sent: now, heard: now }
    }

    pub fn sent(&mut self, now: Millis) {
        self.sent = now;
    }

    pub fn heard(&mut self, now: Millis) {
        self.heard = now;
    }

    pub fn dead(&self, now: Millis) -> bool {
        now.saturating_sub(self.heard) > SILENCE_TIMEOUT
    }

    pub fn due(&self, now: Millis) -> bool {
        now.saturating_sub(self.sent) >= HEARTBEAT_INTERVAL
    }
}
