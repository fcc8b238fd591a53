//! Writing: groups of commits, and the upkeep of the files between them.
//!
//! [`state`] decides, [`commit_path`] makes groups durable, [`upkeep`] does the rest.

mod commit_path;
mod database;
mod rows;
mod state;
mod upkeep;

#[cfg(test)]
mod simulation;

use std::{
    collections::VecDeque,
    fs::File,
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use rusqlite::Connection;

use self::{
    commit_path::CommitPath,
    state::{Found, IdleAction, State},
};
use super::{
    Shared, SqliteOptions,
    checkpoint::Checkpoints,
    fault::{self, During},
    reserve::Reserve,
    schema::{self, Opened},
};
use crate::{Commit, Error, Op, Outcome, Revision};

pub(super) use state::{QUIET_PERIOD, UPKEEP_INTERVAL};

/// A commit, whether each of its ops takes a revision of its own, and whether it may use the space that is reserved for
/// deletions.
pub(super) struct Task {
    pub commit: Commit,
    pub apart: bool,
    pub frees: bool,
}

/// How often free room is looked for while the reserve is not whole.
const RESTORE_INTERVAL: Duration = Duration::from_secs(1);

/// Start and duration of the last write.
#[derive(Clone, Copy)]
struct LastWrite {
    began: Instant,
    took: Duration,
}

pub(super) struct Writer {
    path: CommitPath<Connection, PathBuf>,
    reserve: Reserve,
    /// When the WAL was last moved to make room.
    relieved: Option<Instant>,
    /// Why the last write failed, if it did.
    failed: Option<Error>,
    last: LastWrite,
    shared: Arc<Shared>,
    options: SqliteOptions,
    checkpoints: Checkpoints,
    /// Which revision was the newest at which time: the age of history.
    samples: VecDeque<(Instant, Revision)>,
    /// The last field, so that the lock is released after the connection is closed.
    _lock: File,
}

impl Task {
    /// An upper estimate of what the journal needs for it.
    fn size(&self) -> usize {
        let of = |op: &Op| match op {
            Op::Put { key, value } => key.len() + value.len(),
            Op::Delete { key } => key.len(),
        };
        self.commit.ops.iter().map(|op| 64 + of(op)).sum()
    }
}

// === impl Writer ===

impl Writer {
    pub(super) fn new(opened: Opened, options: SqliteOptions, shared: Arc<Shared>) -> Result<Self, Error> {
        let Opened {
            mut db,
            dir,
            path,
            lock,
            journal,
            named,
            supports_journal,
            reserve,
            has_lost,
            newest,
            settled,
            oldest,
            trimmed,
            unsettled: _,
        } = opened;
        let checkpoints = Checkpoints::start(&path, &mut db).map_err(|error| fault::explain(&error, During::Write))?;
        let now = Instant::now();
        let state =
            State::new(Found { newest, settled, oldest, trimmed, has_journal: journal.is_some(), supports_journal });
        let mut writer = Self {
            path: CommitPath::new(db, dir, journal, named, state, Arc::clone(&shared)),
            reserve,
            relieved: None,
            failed: None,
            last: LastWrite { began: now.checked_sub(QUIET_PERIOD).unwrap_or(now), took: Duration::ZERO },
            shared,
            options,
            checkpoints,
            samples: VecDeque::from([(now, newest)]),
            _lock: lock,
        };
        if has_lost {
            writer.skip_lost()?;
        }
        writer.failed = writer.path.recover()?;
        Ok(writer)
    }

    /// Predicts whether a write is fast: the last one was, and no checkpoint, settling or new journal is due.
    pub(super) fn is_fast(&self, limit: Duration, task: &Task) -> bool {
        let fits_journal = task.size() <= self.path.journal_room();
        self.path.state.predicts_short_write(Instant::now(), self.is_quiet(), fits_journal)
            && self.last.took <= limit
            && !self.checkpoints.is_due()
    }

    pub(super) fn write_one(&mut self, task: &Task) -> Result<Outcome, Error> {
        let written = self.write(std::iter::once(task)).map(|mut outcomes| outcomes.pop());
        match written {
            Ok(Some(outcome)) => Ok(outcome),
            Ok(None) => Err(Error::Closed),
            Err(error) => {
                tracing::error!(%error, "a write to the store failed");
                Err(error)
            }
        }
    }

    /// All of them or none, durable and published when this returns.
    pub(super) fn write<'a>(&mut self, tasks: impl Iterator<Item = &'a Task> + Clone) -> Result<Vec<Outcome>, Error> {
        let is_quiet = self.is_quiet();
        let began = Instant::now();
        self.path.state.write_began();
        let frees = tasks.clone().all(|task| task.frees);
        let outcomes = if frees || self.has_room() {
            self.with_room(frees, |writer| writer.path.write(tasks.clone(), is_quiet, began))
        } else {
            Err(Error::Full("the room that is left is kept for deletions".into()))
        };
        self.last = LastWrite { began, took: began.elapsed() };
        self.failed = outcomes.as_ref().err().cloned();
        outcomes
    }

    /// How long the writer thread waits for a job before it calls [`Writer::idle`].
    pub(super) fn idle_timeout(&self) -> Duration {
        let timeout = self.path.state.idle_timeout();
        if self.reserve.is_spent() { timeout.min(RESTORE_INTERVAL) } else { timeout }
    }

    /// When there is nothing else to do.
    pub(super) fn idle(&mut self) {
        match self.path.state.idle_action(self.last.began.elapsed()) {
            IdleAction::Nothing => {}
            IdleAction::Settle => self.settle_or_warn(),
            IdleAction::Trim => self.trim_alone(),
            IdleAction::Rest => self.rest(),
        }
    }

    /// Between two groups.
    pub(super) fn tend(&mut self) {
        if self.reserve.is_spent() {
            self.reserve.restore();
        }
        self.age();
        self.checkpoints.hurry(self.reserve.is_tight());
        if self.checkpoints.awaits_writer() {
            self.settle_or_warn();
        }
        self.checkpoints.tend(&self.path.db);
    }

    pub(super) fn finish(mut self) {
        self.shared.closed.store(true, Ordering::Release);
        self.shared.wake();
        self.settle_or_warn();
        self.path.forget_journal();
        self.shared.readers.close();
        self.checkpoints.finish(&self.path.db);
        self.reserve.restore();
    }

    fn is_quiet(&self) -> bool {
        self.last.began.elapsed() >= QUIET_PERIOD
    }

    fn settle_or_warn(&mut self) {
        if let Err(error) = self.path.settle() {
            self.path.settle_failed(&error);
            self.failed = Some(error);
        }
    }

    #[cfg(test)]
    pub(super) fn break_transaction(&mut self) {
        assert!(!self.path.db.is_autocommit(), "there is none");
        self.path.undo_all();
    }

    #[cfg(test)]
    pub(super) fn fail_commits(&mut self, fail: bool) {
        self.path.db.commit_hook(fail.then_some(|| true)).unwrap();
    }
}
