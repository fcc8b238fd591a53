//! How long to wait before something that failed is tried again: longer each time, and from the beginning after a long time without.

use std::time::Duration;

const FIRST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(300);
/// What went well for so long has nothing to do with the failures before.
const FORGOTTEN: Duration = Duration::from_secs(600);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backoff {
    /// How long the last wait was, and when it was decided on.
    last: Option<(Duration, Duration)>,
}

impl Backoff {
    /// When what ended or failed at `at` may be tried again. The first time that is at once.
    pub fn until(&self, at: Duration) -> Duration {
        match self.last {
            Some((wait, decided)) if !is_long_ago(decided, at) => at + wait,
            _ => at,
        }
    }

    /// How long the wait is, for people.
    pub fn wait(&self) -> Duration {
        self.last.map_or(Duration::ZERO, |(wait, _)| wait)
    }

    /// What ended or failed at `at` is tried again now: the next wait is longer.
    pub fn tried(&mut self, at: Duration, now: Duration) {
        let next = match self.last {
            Some((wait, decided)) if !is_long_ago(decided, at) => (wait * 2).min(LONGEST),
            _ => FIRST,
        };
        self.last = Some((next, now));
    }

    pub fn reset(&mut self) {
        self.last = None;
    }
}

fn is_long_ago(decided: Duration, at: Duration) -> bool {
    at.saturating_sub(decided) > FORGOTTEN
}

/// As people write it: `10s`, `1m20s`, `5m0s`.
pub fn in_words(wait: Duration) -> String {
    match (wait.as_secs() / 60, wait.as_secs() % 60) {
        (0, seconds) => format!("{seconds}s"),
        (minutes, seconds) => format!("{minutes}m{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_a_kubelets() {
        let mut backoff = Backoff::default();
        let mut now = Duration::ZERO;
        let mut waits = Vec::new();
        for _ in 0..8 {
            let again = backoff.until(now);
            waits.push((again - now).as_secs());
            now = again;
            backoff.tried(now, now);
            now += Duration::from_secs(1);
        }
        assert_eq!(waits, [0, 10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(in_words(backoff.wait()), "5m0s");
        // Ten minutes of running are a new beginning.
        now += Duration::from_secs(601);
        assert_eq!(backoff.until(now), now);
        backoff.tried(now, now);
        assert_eq!(in_words(backoff.wait()), "10s");
        assert_eq!(in_words(Duration::from_secs(80)), "1m20s");
    }
}
