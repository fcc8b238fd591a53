//! One probe of one container: when it is due, and what its results mean.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Probe};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProbeKind {
    Startup,
    Readiness,
    Liveness,
}

impl ProbeKind {
    pub const ALL: [Self; 3] = [Self::Startup, Self::Readiness, Self::Liveness];

    pub fn of(self, container: &Container) -> Option<&Probe> {
        match self {
            Self::Startup => container.startup_probe.as_ref(),
            Self::Readiness => container.readiness_probe.as_ref(),
            Self::Liveness => container.liveness_probe.as_ref(),
        }
    }

    /// As Events begin.
    pub fn name(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Readiness => "Readiness",
            Self::Liveness => "Liveness",
        }
    }
}

/// Why a probe did not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Miss {
    /// What was asked says no, or says nothing.
    Failed(String),
    /// It could not be asked at all, which tells nothing of the container.
    Errored(String),
}

/// A program needs a moment to listen, and a whole period is a long time to notice that it does: so often is asked again soon,
/// without counting it as a failure.
const EAGER: u32 = 6;
const EAGER_FIRST: Duration = Duration::from_millis(50);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Probing {
    /// What is known since the container started; nothing before enough results agree.
    pub known: Option<bool>,
    /// The last result, and how often it came in a row.
    row: Option<(bool, u32)>,
    next: Duration,
    asked: Option<Duration>,
    eager: u32,
}

/// What a result changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Too early to count.
    Uncounted,
    Counted,
}

impl Probing {
    /// Of a container that started at that time.
    pub fn new(probe: &Probe, started: Duration) -> Self {
        Self { next: started + seconds(probe.initial_delay_seconds, 0), ..Self::default() }
    }

    /// When it has to be asked next; nothing while it is being asked.
    pub fn due(&self) -> Option<Duration> {
        self.asked.is_none().then_some(self.next)
    }

    pub fn ask(&mut self, now: Duration) {
        self.asked = Some(now);
    }

    /// It was asked in vain: again in its time, and nothing is known that was not before.
    pub fn pass(&mut self, probe: &Probe, now: Duration) -> Duration {
        let asked = self.asked.take().unwrap_or(now);
        let period = seconds(probe.period_seconds, 10).max(Duration::from_secs(1));
        self.next = (asked + period).max(now);
        period
    }

    pub fn hear(&mut self, probe: &Probe, kind: ProbeKind, ok: bool, now: Duration) -> Heard {
        let period = self.pass(probe, now);
        let soon = EAGER_FIRST * 2_u32.pow(self.eager.min(EAGER));
        let may_be_early = kind != ProbeKind::Liveness && probe.exec.is_none() && self.known.is_none();
        if !ok && may_be_early && self.eager < EAGER && soon < period {
            self.eager += 1;
            self.next = now + soon;
            return Heard::Uncounted;
        }
        let times = match self.row {
            Some((last, times)) if last == ok => times.saturating_add(1),
            _ => 1,
        };
        self.row = Some((ok, times));
        let needed = if ok { probe.success_threshold.unwrap_or(1) } else { probe.failure_threshold.unwrap_or(3) };
        if i64::from(times) >= i64::from(needed.max(1)) {
            self.known = Some(ok);
        }
        Heard::Counted
    }
}

pub fn seconds(given: Option<i32>, default: u64) -> Duration {
    Duration::from_secs(given.map_or(default, |seconds| u64::try_from(seconds).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ExecAction;

    use super::*;

    fn probe(failures: i32, successes: i32) -> Probe {
        Probe {
            exec: Some(ExecAction::default()),
            failure_threshold: Some(failures),
            success_threshold: Some(successes),
            initial_delay_seconds: Some(5),
            period_seconds: Some(2),
            ..Probe::default()
        }
    }

    #[test]
    fn thresholds_count_results_in_a_row() {
        for (results, failures, successes, expected) in [
            (&[true][..], 3, 1, Some(true)),
            (&[true], 3, 2, None),
            (&[true, false, true], 3, 2, None),
            (&[true, true], 3, 2, Some(true)),
            (&[false, false], 3, 1, None),
            (&[false, false, false], 3, 1, Some(false)),
            (&[true, false, false, true, false], 3, 1, Some(true)),
            (&[true, false, false, false], 3, 1, Some(false)),
        ] {
            let probe = probe(failures, successes);
            let mut probing = Probing::new(&probe, Duration::ZERO);
            let mut now = probing.due().unwrap();
            assert_eq!(now, Duration::from_secs(5));
            for ok in results {
                probing.ask(now);
                assert_eq!(probing.due(), None);
                assert_eq!(probing.hear(&probe, ProbeKind::Readiness, *ok, now), Heard::Counted);
                assert_eq!(probing.due(), Some(now + Duration::from_secs(2)));
                now = probing.due().unwrap();
            }
            assert_eq!(probing.known, expected, "{results:?}");
        }
    }

    #[test]
    fn what_does_not_listen_yet_is_asked_again_soon() {
        let probe = Probe { period_seconds: Some(10), failure_threshold: Some(1), ..Probe::default() };
        let mut probing = Probing::new(&probe, Duration::ZERO);
        let mut now = Duration::ZERO;
        let mut counted = 0;
        while counted == 0 {
            probing.ask(now);
            if probing.hear(&probe, ProbeKind::Startup, false, now) == Heard::Counted {
                counted += 1;
            } else {
                assert_eq!(probing.known, None);
            }
            now = probing.due().unwrap();
        }
        assert_eq!(probing.known, Some(false));
        assert!(now < Duration::from_secs(14), "{now:?}");
        // The next ones come once in a period.
        probing.ask(now);
        probing.hear(&probe, ProbeKind::Startup, true, now);
        assert_eq!((probing.known, probing.due()), (Some(true), Some(now + Duration::from_secs(10))));
    }
}
