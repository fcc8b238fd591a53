//! Says in the log that something happens again and again, without a line for each time.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// At most one line in this time.
pub const EVERY: Duration = Duration::from_secs(10);

/// Counts what is not said.
#[derive(Default)]
pub struct Rarely(Mutex<State>);

#[derive(Default)]
struct State {
    said: Option<Instant>,
    unsaid: u64,
}

impl Rarely {
    pub const fn new() -> Self {
        Self(Mutex::new(State { said: None, unsaid: 0 }))
    }

    /// How often it happened since it was last said, this time included; nothing if it was said a moment ago.
    pub fn due(&self) -> Option<u64> {
        self.due_at(Instant::now())
    }

    fn due_at(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.unsaid += 1;
        if state.said.is_some_and(|said| now.saturating_duration_since(said) < EVERY) {
            return None;
        }
        state.said = Some(now);
        Some(std::mem::take(&mut state.unsaid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_says_how_often() {
        let (rarely, start) = (Rarely::new(), Instant::now());
        assert_eq!(rarely.due_at(start), Some(1));
        for _ in 0..5 {
            assert_eq!(rarely.due_at(start + EVERY / 2), None);
        }
        assert_eq!(rarely.due_at(start + EVERY), Some(6));
    }
}
