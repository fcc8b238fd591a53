//! Panics on demand, for tests of supervision through the built program. Only debug builds have them.

use std::sync::{
    OnceLock,
    atomic::{AtomicU32, Ordering::Relaxed},
};

use crate::Kind;

/// In debug builds this variable names tasks that panic once: `name` at the task's first poll, `name:3` at the third
/// poll of tasks of that name. Several are separated by commas.
pub const PANIC_VARIABLE: &str = "SELVEDGE_PANIC_TASK";

/// Polls until a kind's injected panic. Zero: none is to come.
#[derive(Debug)]
pub(crate) struct Injected(AtomicU32);

impl Injected {
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Takes over what the environment asks for.
    pub(crate) fn arm(&self, name: &str) {
        if cfg!(debug_assertions)
            && let Some((_, polls)) = asked().iter().find(|(asked, _)| asked == name)
        {
            self.0.store(*polls, Relaxed);
        }
    }

    /// Costs one load when nothing is to be injected, and nothing in release builds.
    #[inline]
    pub(crate) fn poll(&self, name: &str) {
        if cfg!(debug_assertions) && self.0.load(Relaxed) != 0 {
            self.count_down(name);
        }
    }

    #[cold]
    #[allow(clippy::panic)]
    fn count_down(&self, name: &str) {
        let before = self.0.fetch_update(Relaxed, Relaxed, |polls| polls.checked_sub(1));
        if before == Ok(1) {
            panic!("a panic was injected into task {name} for a test");
        }
    }
}

fn asked() -> &'static [(String, u32)] {
    static ASKED: OnceLock<Vec<(String, u32)>> = OnceLock::new();
    ASKED.get_or_init(|| std::env::var(PANIC_VARIABLE).map(|text| parse(&text)).unwrap_or_default())
}

fn parse(text: &str) -> Vec<(String, u32)> {
    let one = |one: &str| match one.trim().rsplit_once(':') {
        Some((name, polls)) => (name.to_owned(), polls.parse().unwrap_or(1).max(1)),
        None => (one.trim().to_owned(), 1),
    };
    text.split(',').filter(|one| !one.trim().is_empty()).map(one).collect()
}

/// Makes the next task of this kind panic at this poll of it (1 is the first). For tests in the same process; release
/// builds ignore it.
#[doc(hidden)]
pub fn inject_panic(kind: impl Into<&'static Kind>, polls: u32) {
    kind.into().injected.0.store(polls, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_names_tasks_and_polls() {
        let of = |text: &str| parse(text);
        let one = |name: &str, polls: u32| (name.to_owned(), polls);
        assert_eq!(of("gc"), [one("gc", 1)]);
        assert_eq!(of("gc:3, session ,"), [one("gc", 3), one("session", 1)]);
        assert_eq!(of("gc:x,gc:0"), [one("gc", 1), one("gc", 1)]);
        assert_eq!(of(""), []);
    }

    #[test]
    fn the_panic_comes_once_at_the_poll_that_was_asked_for() {
        let injected = Injected::new();
        injected.0.store(3, Relaxed);
        let panics = || std::panic::catch_unwind(|| injected.poll("x")).is_err();
        assert_eq!([(); 5].map(|()| panics()), [false, false, true, false, false]);
    }
}
