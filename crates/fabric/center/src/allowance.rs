//! Which reports of an edge are kept. Pure.
//!
//! An edge reports how the objects fare that it shall hold, and what it was asked for, whole. An honest edge says
//! nothing else and keeps to the same bounds by itself; this holds for the others.

use kinds::upsync::{LARGEST, MOST};
use link::Report;

/// All that one edge reports has so many bytes at most.
pub const LARGEST_SUM: u64 = 64 << 20;
/// At most this many reports of objects that the edge shall not hold any more are kept until it withdraws them.
const LEFT_OVER: usize = MOST;
/// What an object is told whole begins with this.
const WHOLE: &[u8] = b"{\"object\":";

/// What is kept of an edge's reports.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ledger {
    /// Reports of how placed objects fare.
    pub fares: usize,
    /// Objects of the edge's own.
    pub whole: usize,
    pub bytes: u64,
}

/// What an edge has to do with an object.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Standing {
    /// It shall hold it, or was told a moment ago not to hold it any more.
    Held,
    AskedFor,
    Nothing,
}

/// Why a report is not kept.
#[derive(Clone, Debug, PartialEq)]
pub enum Refusal {
    NotHeld,
    TooLarge,
    TooMany,
    TooMuch,
    /// The workspace of the SyncTarget is full.
    NoRoom(String),
}

impl Refusal {
    pub const REASONS: [&'static str; 5] = ["NotHeld", "TooLarge", "TooMany", "TooMuch", "NoRoom"];

    /// Which of [`REASONS`](Self::REASONS).
    pub fn reason(&self) -> usize {
        match self {
            Self::NotHeld => 0,
            Self::TooLarge => 1,
            Self::TooMany => 2,
            Self::TooMuch => 3,
            Self::NoRoom(_) => 4,
        }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotHeld => write!(f, "it is neither placed on the edge nor asked for"),
            Self::TooLarge => write!(f, "the report is larger than {LARGEST} bytes"),
            Self::TooMany => {
                write!(f, "the edge reports too many objects: {MOST} of its own, and those that are placed")
            }
            Self::TooMuch => write!(f, "all reports of the edge are larger than {LARGEST_SUM} bytes"),
            Self::NoRoom(why) => write!(f, "{why}"),
        }
    }
}

/// What is to be done with a report.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    Keep,
    Delete,
    /// There is nothing to delete.
    Nothing,
    Refuse(Refusal),
}

impl Ledger {
    /// Counts a report that is kept.
    pub fn add(&mut self, state: &[u8]) {
        *self.count(state) += 1;
        self.bytes += state.len() as u64;
    }

    /// The same of one that is not kept any more.
    pub fn remove(&mut self, state: &[u8]) {
        let count = self.count(state);
        *count = count.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(state.len() as u64);
    }

    fn count(&mut self, state: &[u8]) -> &mut usize {
        if is_whole(state) { &mut self.whole } else { &mut self.fares }
    }

    /// What to do with a report of an object, of which this is kept so far. `held` is how many objects the edge shall
    /// hold.
    pub fn decide(&self, report: &Report, known: Option<&[u8]>, standing: Standing, held: usize) -> Decision {
        let Some(state) = &report.state else {
            return if known.is_some() { Decision::Delete } else { Decision::Nothing };
        };
        if state.len() > LARGEST {
            return Decision::Refuse(Refusal::TooLarge);
        }
        let form = is_whole(state);
        // What is kept already may change: the edge may not have heard yet that nobody asks for it any more.
        let same = known.is_some_and(|known| is_whole(known) == form);
        if !same && (standing == Standing::Nothing || (standing == Standing::AskedFor && !form)) {
            return Decision::Refuse(Refusal::NotHeld);
        }
        let full = if form { self.whole >= MOST } else { self.fares >= held + LEFT_OVER };
        if !same && full {
            return Decision::Refuse(Refusal::TooMany);
        }
        let more = (state.len() as u64).saturating_sub(known.map_or(0, |known| known.len() as u64));
        if more > 0 && self.bytes + more > LARGEST_SUM {
            return Decision::Refuse(Refusal::TooMuch);
        }
        Decision::Keep
    }
}

pub fn is_whole(state: &[u8]) -> bool {
    state.starts_with(WHOLE)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use link::Version;

    use super::*;

    fn report(state: Option<Vec<u8>>) -> Report {
        Report { key: "core/x/a/b".into(), version: Version { epoch: 1, counter: 1 }, state: state.map(Bytes::from) }
    }

    fn whole(size: usize) -> Vec<u8> {
        let mut state = WHOLE.to_vec();
        state.resize(size.max(WHOLE.len()), b' ');
        state
    }

    #[test]
    fn what_is_kept() {
        let fares = || b"{\"status\":{}}".to_vec();
        let empty = Ledger::default();
        let decide = |ledger: &Ledger, state: Option<Vec<u8>>, known: Option<&[u8]>, standing| {
            ledger.decide(&report(state), known, standing, 3)
        };
        let refuse = Decision::Refuse;
        for (state, standing, expected) in [
            (fares(), Standing::Held, Decision::Keep),
            (fares(), Standing::AskedFor, refuse(Refusal::NotHeld)),
            (fares(), Standing::Nothing, refuse(Refusal::NotHeld)),
            (whole(20), Standing::AskedFor, Decision::Keep),
            (whole(20), Standing::Nothing, refuse(Refusal::NotHeld)),
            (whole(LARGEST), Standing::AskedFor, Decision::Keep),
            (whole(LARGEST + 1), Standing::AskedFor, refuse(Refusal::TooLarge)),
        ] {
            assert_eq!(decide(&empty, Some(state), None, standing), expected, "{standing:?}");
        }
        let (old, own) = (fares(), whole(20));
        assert_eq!(
            decide(&empty, Some(fares()), Some(&old), Standing::Nothing),
            Decision::Keep,
            "what is kept may change"
        );
        assert_eq!(decide(&empty, Some(whole(20)), Some(&old), Standing::Nothing), refuse(Refusal::NotHeld));
        assert_eq!(decide(&empty, None, None, Standing::Nothing), Decision::Nothing);
        assert_eq!(decide(&empty, None, Some(&old), Standing::Nothing), Decision::Delete);
        let full = Ledger { fares: 3 + LEFT_OVER, whole: MOST, bytes: LARGEST_SUM };
        assert_eq!(decide(&full, Some(fares()), None, Standing::Held), refuse(Refusal::TooMany));
        assert_eq!(decide(&full, Some(whole(20)), None, Standing::AskedFor), refuse(Refusal::TooMany));
        assert_eq!(decide(&full, Some(whole(20)), Some(&own), Standing::AskedFor), Decision::Keep, "not larger");
        assert_eq!(decide(&full, Some(whole(21)), Some(&own), Standing::AskedFor), refuse(Refusal::TooMuch));
    }

    #[test]
    fn the_ledger_follows() {
        let mut ledger = Ledger::default();
        ledger.add(&whole(100));
        ledger.add(b"{}");
        assert_eq!(ledger, Ledger { fares: 1, whole: 1, bytes: 102 });
        ledger.remove(&whole(100));
        ledger.remove(b"{}");
        assert_eq!(ledger, Ledger::default());
    }
}
