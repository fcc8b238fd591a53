//! One timer for all sessions. They take turns, so that ten thousand of them do not wake in the same moment.

use std::time::Duration;

use tokio::sync::watch;

/// Every session is woken once in so many turns: often enough for heartbeats.
const TURNS: usize = 20;
const TURN: Duration = Duration::from_millis(250);

pub struct Ticks([watch::Sender<()>; TURNS]);

impl Default for Ticks {
    fn default() -> Self {
        Self(std::array::from_fn(|_| watch::Sender::new(())))
    }
}

impl Ticks {
    pub fn of(&self, session: u64) -> watch::Receiver<()> {
        self.0[session as usize % TURNS].subscribe()
    }

    pub async fn run(&self) {
        let mut timer = tokio::time::interval(TURN);
        timer.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        for turn in self.0.iter().cycle() {
            timer.tick().await;
            turn.send_replace(());
        }
    }
}
