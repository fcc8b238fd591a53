//! The writer's state: which commits are durable where, and what may happen next. No I/O.
//!
//! An acknowledged commit is durable in one of two places: in the journal, while the SQLite transaction that holds it
//! stays open, or in the database, after `COMMIT`.
//!
//! ```text
//!            begin                        group synced in the journal
//! Settled ──────────▶ Open { settled } ◀──────────┐
//!    ▲                  │  │  │  ▲ └──────────────┘
//!    │ COMMIT succeeded │  │  │  │ begin, and replay what only the journal has
//!    ├──────────────────┘  │  │  │
//!    │ rolled back,        │  ▼  │
//!    │ journal not ahead   │ Interrupted { settled }   rolled back, journal ahead
//!    └─────────────────────┘
//! ```
//!
//! Two further enums qualify this. [`Tail`] says whether the end of the write-ahead log (WAL) is known: after a failed
//! `COMMIT` it is not, and until the next `COMMIT` succeeds nothing is acknowledged by the journal. [`JournalUse`] says
//! whether records in the journal would be found after a crash.

use std::time::{Duration, Instant};

use super::super::schema;
use crate::Revision;

/// How often the age of history is looked at, and how long a failed attempt in the background is not repeated.
pub(in super::super) const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);
/// After this time without a write the open transaction is committed. A write that comes later than this after the one
/// before goes to the database itself: the journal would cost one sync more.
pub(in super::super) const QUIET_PERIOD: Duration = Duration::from_millis(100);
/// The pause between two rounds of trimming when nothing else is to be done.
const TRIM_INTERVAL: Duration = Duration::from_millis(2);

/// Where the acknowledged commits are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The database has all of them, and no transaction is open.
    Settled,
    /// A transaction is open. It holds all of them, and perhaps a group that is not acknowledged yet. Those after
    /// `settled` are durable in the journal only.
    Open { settled: Revision },
    /// No transaction is open, and those after `settled` are in the journal only. The next transaction replays them.
    Interrupted { settled: Revision },
}

/// What is known about the end of the WAL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tail {
    Known,
    /// A `COMMIT` failed. A crash may bring its transaction back, until another one is in its place.
    InDoubt,
}

/// Whether the journal can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JournalUse {
    /// The database has a format without a journal, and could not be upgraded.
    Unsupported,
    /// There is none. One is made when it is first needed, but not before `not_before`.
    Absent { not_before: Option<Instant> },
    /// It was made, but the database does not name it yet: its records would not be found after a crash.
    Unnamed,
    /// The database names it: its records count.
    Ready,
    /// A sync of it failed, so it is not known what the disk has of it. It is not appended to again before it has been
    /// written anew as a whole, which needs a database that has everything.
    Suspect,
}

/// What happens besides writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Background {
    Active,
    /// The last attempt to do something that nobody asked for has failed.
    Stuck,
    /// Memory that only writing needs has been given back.
    Resting,
}

/// Where the next group becomes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    Journal,
    Database,
}

/// What to do when no job came in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IdleAction {
    Nothing,
    Settle,
    Trim,
    Rest,
}

/// How a transaction begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begin {
    /// One is open already.
    Continue,
    Empty,
    /// With the commits that only the journal has.
    Replay,
}

/// What the files say when the store is opened.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) newest: Revision,
    pub(super) settled: Revision,
    pub(super) oldest: Revision,
    pub(super) trimmed: i64,
    pub(super) has_journal: bool,
    pub(super) supports_journal: bool,
}

/// Faults that the simulation must find.
#[cfg(test)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mutant {
    /// A failed `COMMIT` leaves no doubt.
    ForgetDoubt,
    /// A journal is used before the database names it.
    UseUnnamedJournal,
    /// A failed sync of the journal counts as a success.
    AcknowledgeFailedSync,
    /// A journal is appended to after its sync failed.
    TrustSuspectJournal,
    /// A new transaction begins without what only the journal has.
    SkipReplay,
    /// A group that is in the journal counts as being in the database.
    SettleEarly,
    /// What recovery finds in the page cache is served without being synced.
    ServeUnsynced,
    /// The journal goes on behind its last record after a `COMMIT`.
    KeepJournalPlace,
    /// The journal is not synced at all.
    NeverSync,
    /// SQLite commits with `synchronous=NORMAL`.
    SynchronousNormal,
}

#[derive(Debug)]
pub(super) struct State {
    /// The newest acknowledged revision.
    newest: Revision,
    phase: Phase,
    tail: Tail,
    journal: JournalUse,
    background: Background,
    /// The oldest revision that ranges and watches may ask for.
    oldest: Revision,
    /// The log is trimmed up to this row, as the transaction sees it; and as the database has it.
    trimmed: i64,
    trimmed_settled: i64,
    #[cfg(test)]
    pub(super) mutant: Option<Mutant>,
}

// === impl State ===

impl State {
    pub(super) fn new(found: Found) -> Self {
        let Found { newest, settled, oldest, trimmed, has_journal, supports_journal } = found;
        Self {
            newest,
            phase: if settled == newest { Phase::Settled } else { Phase::Interrupted { settled } },
            tail: Tail::Known,
            journal: match (has_journal, supports_journal) {
                (true, _) => JournalUse::Ready,
                (false, true) => JournalUse::Absent { not_before: None },
                (false, false) => JournalUse::Unsupported,
            },
            background: Background::Active,
            oldest,
            trimmed,
            trimmed_settled: trimmed,
            #[cfg(test)]
            mutant: None,
        }
    }

    pub(super) fn newest(&self) -> Revision {
        self.newest
    }

    pub(super) fn oldest(&self) -> Revision {
        self.oldest
    }

    /// The database has everything up to this revision.
    pub(super) fn settled(&self) -> Revision {
        match self.phase {
            Phase::Settled => self.newest,
            Phase::Open { settled } | Phase::Interrupted { settled } => settled,
        }
    }

    /// The database has every acknowledged commit. A transaction may be open.
    pub(super) fn is_all_settled(&self) -> bool {
        self.settled() == self.newest
    }

    pub(super) fn is_in_transaction(&self) -> bool {
        matches!(self.phase, Phase::Open { .. })
    }

    /// A `COMMIT` is due sooner or later: a transaction is open, or the journal is ahead.
    pub(super) fn needs_settling(&self) -> bool {
        self.phase != Phase::Settled
    }

    // --- transactions ---

    pub(super) fn begin(&self) -> Begin {
        #[cfg(test)]
        if self.mutant == Some(Mutant::SkipReplay) && !self.is_in_transaction() {
            return Begin::Empty;
        }
        match self.phase {
            Phase::Settled => Begin::Empty,
            Phase::Open { .. } => Begin::Continue,
            Phase::Interrupted { .. } => Begin::Replay,
        }
    }

    /// A transaction was opened.
    pub(super) fn begun(&mut self) {
        self.phase = Phase::Open { settled: self.settled() };
    }

    /// The transaction is gone, and nothing of it was kept.
    pub(super) fn rolled_back(&mut self) {
        let settled = self.settled();
        self.phase = if settled == self.newest { Phase::Settled } else { Phase::Interrupted { settled } };
        self.trimmed = self.trimmed_settled;
    }

    /// `COMMIT` is about to be run. Until it has succeeded, the end of the WAL is not known.
    pub(super) fn committing(&mut self) {
        #[cfg(test)]
        if self.mutant == Some(Mutant::ForgetDoubt) {
            return;
        }
        self.tail = Tail::InDoubt;
    }

    /// `COMMIT` has succeeded. `newest` is the last revision of the group that became durable by it, if there was one.
    pub(super) fn committed(&mut self, newest: Option<Revision>, now: Instant) {
        self.newest = newest.unwrap_or(self.newest);
        self.phase = Phase::Settled;
        self.tail = Tail::Known;
        self.trimmed_settled = self.trimmed;
        if self.background == Background::Stuck {
            self.background = Background::Active;
        }
        self.journal = match self.journal {
            JournalUse::Unnamed => JournalUse::Ready,
            JournalUse::Suspect => JournalUse::Absent { not_before: Some(now + UPKEEP_INTERVAL) },
            other => other,
        };
    }

    /// The journal has a group durably.
    pub(super) fn journalled(&mut self, newest: Revision) {
        self.newest = newest;
        #[cfg(test)]
        if self.mutant == Some(Mutant::SettleEarly) {
            self.phase = Phase::Open { settled: newest };
        }
    }

    /// Acknowledged commits are lost, and that was accepted: revisions go on at `next`, and so does history. The
    /// database says so already.
    pub(super) fn skipped_to(&mut self, next: Revision) {
        (self.newest, self.oldest) = (next, next);
        (self.phase, self.tail) = (Phase::Settled, Tail::Known);
        self.journal_dropped();
    }

    // --- the journal ---

    /// Where a group that changes something becomes durable. `is_quiet`: the last write was a while ago.
    pub(super) fn route(&self, is_quiet: bool) -> Route {
        match (self.journal, self.tail) {
            (JournalUse::Ready, Tail::Known) if !is_quiet => Route::Journal,
            #[cfg(test)]
            (JournalUse::Unnamed, Tail::Known) if self.mutant == Some(Mutant::UseUnnamedJournal) => Route::Journal,
            _ => Route::Database,
        }
    }

    /// A journal is to be made before the next group. It would replace one that may have what the database lacks, so
    /// the database must have everything.
    pub(super) fn wants_journal(&self, now: Instant) -> bool {
        match self.journal {
            JournalUse::Absent { not_before } => {
                self.is_all_settled() && not_before.is_none_or(|not_before| now >= not_before)
            }
            _ => false,
        }
    }

    /// The next `COMMIT` has to name the journal.
    pub(super) fn must_name_journal(&self) -> bool {
        self.journal == JournalUse::Unnamed
    }

    pub(super) fn journal_made(&mut self, is_named: bool) {
        self.journal = if is_named { JournalUse::Ready } else { JournalUse::Unnamed };
    }

    pub(super) fn journal_not_made(&mut self, now: Instant) {
        self.journal = JournalUse::Absent { not_before: Some(now + UPKEEP_INTERVAL) };
    }

    /// The journal is not used again before it is made anew.
    pub(super) fn journal_dropped(&mut self) {
        if self.journal != JournalUse::Unsupported {
            self.journal = JournalUse::Absent { not_before: None };
        }
    }

    /// The journal was written, but not synced.
    pub(super) fn journal_sync_failed(&mut self) {
        #[cfg(test)]
        if self.mutant == Some(Mutant::TrustSuspectJournal) {
            return;
        }
        self.journal = JournalUse::Suspect;
    }

    /// The journal may be kept open.
    pub(super) fn has_journal(&self) -> bool {
        matches!(self.journal, JournalUse::Unnamed | JournalUse::Ready | JournalUse::Suspect)
    }

    /// The next group is a short write: no journal has to be made, no failed `COMMIT` has to be repeated, and where the
    /// group goes has room for it.
    pub(super) fn predicts_short_write(&self, now: Instant, is_quiet: bool, fits_journal: bool) -> bool {
        let place = match self.phase {
            Phase::Open { .. } | Phase::Interrupted { .. } => !is_quiet && fits_journal,
            // The writer thread begins to use the journal, so that it knows when to commit.
            Phase::Settled => is_quiet,
        };
        place && self.tail == Tail::Known && self.journal != JournalUse::Suspect && !self.wants_journal(now)
    }

    // --- history ---

    pub(super) fn trimmed(&self) -> i64 {
        self.trimmed
    }

    /// The first row that is not to be trimmed.
    pub(super) fn trim_end(&self) -> i64 {
        schema::first_row(self.oldest + 1)
    }

    pub(super) fn is_trim_due(&self) -> bool {
        self.trimmed + 1 < self.trim_end()
    }

    /// The transaction has trimmed up to this row.
    pub(super) fn trimmed_to(&mut self, row: i64) {
        self.trimmed = row;
    }

    /// The database says that history begins here.
    pub(super) fn compacted(&mut self, oldest: Revision) {
        self.oldest = oldest;
    }

    // --- the background ---

    pub(super) fn write_began(&mut self) {
        if self.background == Background::Resting {
            self.background = Background::Active;
        }
    }

    /// Something that nobody asked for has failed: it is tried again after a while.
    pub(super) fn background_failed(&mut self) {
        self.background = Background::Stuck;
    }

    /// Memory was given back.
    pub(super) fn rested(&mut self) {
        self.background = Background::Resting;
    }

    /// How long to wait for a job before [`State::idle_action`] is asked.
    pub(super) fn idle_timeout(&self) -> Duration {
        match self.phase {
            _ if self.background == Background::Stuck => UPKEEP_INTERVAL,
            Phase::Open { .. } | Phase::Interrupted { .. } => QUIET_PERIOD,
            Phase::Settled if self.is_trim_due() => TRIM_INTERVAL,
            Phase::Settled => UPKEEP_INTERVAL,
        }
    }

    /// What to do when nothing was written for this long.
    pub(super) fn idle_action(&self, quiet_for: Duration) -> IdleAction {
        match self.phase {
            Phase::Open { .. } | Phase::Interrupted { .. } if quiet_for >= QUIET_PERIOD => IdleAction::Settle,
            Phase::Open { .. } | Phase::Interrupted { .. } => IdleAction::Nothing,
            Phase::Settled if self.is_trim_due() => IdleAction::Trim,
            Phase::Settled if quiet_for >= UPKEEP_INTERVAL && self.background != Background::Resting => {
                IdleAction::Rest
            }
            Phase::Settled => IdleAction::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(settled: Revision, newest: Revision, has_journal: bool) -> State {
        State::new(Found { newest, settled, oldest: 0, trimmed: 0, has_journal, supports_journal: true })
    }

    #[test]
    fn a_group_goes_to_the_journal_only_when_its_record_would_be_found() {
        let now = Instant::now();
        let mut state = state(5, 5, false);
        assert!(state.wants_journal(now));
        assert_eq!(state.route(false), Route::Database);
        state.begun();
        state.journal_made(false);
        assert_eq!(state.route(false), Route::Database);
        assert!(state.must_name_journal());
        state.committing();
        state.committed(Some(6), now);
        assert_eq!((state.route(false), state.route(true)), (Route::Journal, Route::Database));
        assert_eq!((state.newest(), state.settled()), (6, 6));
    }

    #[test]
    fn a_failed_commit_is_in_doubt_until_one_succeeds() {
        let now = Instant::now();
        let mut state = state(5, 5, true);
        state.begun();
        state.journalled(6);
        assert_eq!((state.newest(), state.settled(), state.is_all_settled()), (6, 5, false));
        state.committing();
        state.rolled_back();
        assert_eq!((state.begin(), state.route(false)), (Begin::Replay, Route::Database));
        state.begun();
        assert_eq!((state.begin(), state.route(false)), (Begin::Continue, Route::Database));
        state.committing();
        state.committed(None, now);
        assert_eq!((state.begin(), state.route(false)), (Begin::Empty, Route::Journal));
    }

    #[test]
    fn a_journal_whose_sync_failed_is_made_anew_after_the_database_has_everything() {
        let now = Instant::now();
        let mut state = state(5, 7, true);
        state.begun();
        state.journal_sync_failed();
        state.rolled_back();
        assert_eq!(state.route(false), Route::Database);
        assert!(!state.wants_journal(now) && state.has_journal());
        state.begun();
        state.committing();
        state.committed(Some(8), now);
        assert!(!state.has_journal() && !state.wants_journal(now));
        assert!(state.wants_journal(now + UPKEEP_INTERVAL));
    }

    #[test]
    fn trimming_is_undone_with_its_transaction() {
        let mut state = state(5, 5, true);
        state.compacted(3);
        assert!(state.is_trim_due());
        state.begun();
        state.trimmed_to(state.trim_end() - 1);
        assert!(!state.is_trim_due());
        state.rolled_back();
        assert!(state.is_trim_due());
        state.begun();
        state.trimmed_to(state.trim_end() - 1);
        state.committed(None, Instant::now());
        state.rolled_back();
        assert!(!state.is_trim_due());
    }

    #[test]
    fn the_background_settles_trims_and_then_rests() {
        let mut state = state(5, 5, true);
        state.begun();
        assert_eq!(state.idle_timeout(), QUIET_PERIOD);
        assert_eq!(state.idle_action(Duration::ZERO), IdleAction::Nothing);
        assert_eq!(state.idle_action(QUIET_PERIOD), IdleAction::Settle);
        state.background_failed();
        assert_eq!(state.idle_timeout(), UPKEEP_INTERVAL);
        state.committed(None, Instant::now());
        state.compacted(2);
        assert_eq!((state.idle_timeout(), state.idle_action(Duration::ZERO)), (TRIM_INTERVAL, IdleAction::Trim));
        state.trimmed_to(state.trim_end() - 1);
        assert_eq!(state.idle_action(QUIET_PERIOD), IdleAction::Nothing);
        assert_eq!(state.idle_action(UPKEEP_INTERVAL), IdleAction::Rest);
        state.rested();
        assert_eq!(state.idle_action(UPKEEP_INTERVAL), IdleAction::Nothing);
        state.write_began();
        assert_eq!(state.idle_action(UPKEEP_INTERVAL), IdleAction::Rest);
    }
}
