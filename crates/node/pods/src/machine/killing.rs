//! Ends one run: its preStop hook, the signal that asks it to end, and the one that does not ask.

use std::time::Duration;

pub const TERM: i32 = 15;
pub const KILL: i32 = 9;

/// Whoever is asked to end has at least so long before it is killed.
const AT_LEAST: Duration = Duration::from_secs(2);
/// A signal may be lost on the way to the runtime.
const AGAIN: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hook {
    Todo,
    Running,
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Killing {
    pub deadline: Duration,
    hook: Hook,
    /// When it was asked.
    asked: Option<Duration>,
    killed: Option<Duration>,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// With so much time.
    Hook(Duration),
    Ask,
    Kill,
    /// Nothing before that time, unless something happens.
    Wait(Duration),
}

impl Killing {
    pub fn new(now: Duration, grace: Duration, has_hook: bool) -> Self {
        let hook = if has_hook { Hook::Todo } else { Hook::Done };
        Self { deadline: now + grace, hook, asked: None, killed: None }
    }

    pub fn hook_ended(&mut self) {
        self.hook = Hook::Done;
    }

    /// `is_turn`: nobody has to end before it.
    pub fn next(&mut self, now: Duration, is_turn: bool) -> Deed {
        let is_late = now >= self.deadline;
        match (self.hook, self.asked) {
            (Hook::Todo, _) if !is_late => {
                self.hook = Hook::Running;
                Deed::Hook(self.deadline - now)
            }
            (Hook::Running, None) if !is_late => Deed::Wait(self.deadline),
            (_, None) if is_turn || is_late => {
                self.asked = Some(now);
                Deed::Ask
            }
            (_, None) => Deed::Wait(self.deadline),
            (_, Some(asked)) => {
                let at = self.killed.map_or_else(|| self.deadline.max(asked + AT_LEAST), |killed| killed + AGAIN);
                if now < at {
                    return Deed::Wait(at);
                }
                self.killed = Some(now);
                Deed::Kill
            }
        }
    }
}

/// A signal by the name that a container's `stopSignal` has.
pub fn signal_of(name: &str) -> Option<i32> {
    let number = match name.strip_prefix("SIG")? {
        "HUP" => 1,
        "INT" => 2,
        "QUIT" => 3,
        "ABRT" => 6,
        "KILL" => KILL,
        "USR1" => 10,
        "USR2" => 12,
        "ALRM" => 14,
        "TERM" => TERM,
        "CONT" => 18,
        "WINCH" => 28,
        _ => return None,
    };
    Some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn asks_before_it_kills() {
        let mut killing = Killing::new(at(100), at(30), false);
        assert_eq!(killing.next(at(100), false), Deed::Wait(at(130)));
        assert_eq!(killing.next(at(110), true), Deed::Ask);
        assert_eq!(killing.next(at(110), true), Deed::Wait(at(130)));
        assert_eq!(killing.next(at(130), true), Deed::Kill);
        assert_eq!(killing.next(at(131), true), Deed::Wait(at(135)));
        assert_eq!(killing.next(at(135), true), Deed::Kill);
    }

    #[test]
    fn a_hook_has_the_time_that_there_is() {
        let mut killing = Killing::new(at(0), at(10), true);
        assert_eq!(killing.next(at(1), true), Deed::Hook(at(9)));
        assert_eq!(killing.next(at(2), true), Deed::Wait(at(10)));
        killing.hook_ended();
        assert_eq!(killing.next(at(4), true), Deed::Ask);
        assert_eq!(killing.next(at(4), true), Deed::Wait(at(10)));
        // A hook that does not end: asked at the deadline, with two seconds left.
        let mut killing = Killing::new(at(0), at(10), true);
        killing.next(at(0), true);
        assert_eq!(killing.next(at(10), false), Deed::Ask);
        assert_eq!(killing.next(at(10), false), Deed::Wait(at(12)));
        assert_eq!(killing.next(at(12), false), Deed::Kill);
    }

    #[test]
    fn signals_have_names() {
        assert_eq!(signal_of("SIGUSR1"), Some(10));
        assert_eq!(signal_of("USR1"), None);
    }
}
