//! Heartbeats: a word at least every fifteen seconds, and a peer that is silent for three times that is gone.

use crate::types::Millis;

pub(crate) const HEARTBEAT: Millis = 15_000;
const DEAD: Millis = 3 * HEARTBEAT;

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
        now.saturating_sub(self.heard) > DEAD
    }

    pub fn due(&self, now: Millis) -> bool {
        now.saturating_sub(self.sent) >= HEARTBEAT
    }
}
