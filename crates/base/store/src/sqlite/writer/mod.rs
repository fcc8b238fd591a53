//! What is written.
//!
//! A transaction stays open as long as the journal has what is in it ([`Writer::settle`] ends it). Should it break, the next one begins
//! with that.

mod rows;
mod upkeep;

use std::{
    collections::VecDeque,
    fs::File,
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use rusqlite::Connection;

use self::rows::{apply, look_up, write_delete, write_put};
use super::{
    Shared, SqliteOptions,
    checkpoint::Checkpoints,
    fault::{self, During},
    journal::Journal,
    reserve::Reserve,
    schema::{self, Opened},
};
use crate::{Batch, Commit, Error, Event, Op, Outcome, Revision};

/// A commit, whether each of its ops takes a revision of its own, and whether it may use the room that is kept for deletions.
pub(super) struct Task {
    pub commit: Commit,
    pub apart: bool,
    pub frees: bool,
}

/// Rows that are trimmed along with a group, which costs no further sync.
const TRIM_ALONG: usize = 64;
/// How often the age of history is looked at.
pub(super) const SAMPLE: Duration = Duration::from_secs(5);
/// How often free room is looked for while the reserve is not whole.
const RESTORE_INTERVAL: Duration = Duration::from_secs(1);
/// Who writes less often than this writes to the file itself: the journal would be one sync more. And after so long without a write
/// the file gets what the journal has.
pub(super) const LULL: Duration = Duration::from_millis(100);

pub(super) struct Writer {
    db: Connection,
    /// Made when it is first needed. What follows the file's last revision in it is in `shared.recent`, too.
    journal: Option<Journal>,
    may_journal: bool,
    /// The id of the journal that the file names, 0 if none. Only that one may have what the file has not.
    noted: u64,
    /// When no journal could be made.
    no_journal: Option<Instant>,
    reserve: Reserve,
    /// When the WAL was last moved to make room.
    relieved: Option<Instant>,
    /// Why the last write failed, if it did.
    failed: Option<Error>,
    dir: PathBuf,
    /// When was written last, and how long it took.
    last: (Instant, Duration),
    shared: Arc<Shared>,
    options: SqliteOptions,
    checkpoints: Checkpoints,
    newest: Revision,
    oldest: Revision,
    /// The file has everything up to this revision.
    settled: Revision,
    /// The log is trimmed up to this row; and so it is in the file.
    trimmed: i64,
    trimmed_settled: i64,
    /// A transaction could not be committed. The WAL may hold it nevertheless, until the next one is there in its place: before that, nothing
    /// may be in the journal alone.
    must_settle: bool,
    /// When which revision was the newest: how old history is.
    samples: VecDeque<(Instant, Revision)>,
    /// Nothing is kept in memory that only writing needs.
    at_rest: bool,
    /// What was tried last without anybody asking for it has failed.
    is_stuck: bool,
    /// Last, so that it is let go of after the connection is closed.
    _lock: File,
}

impl Task {
    /// About what the journal needs for it, rather too much.
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
            noted,
            may_journal,
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
        let mut writer = Self {
            db,
            journal,
            may_journal,
            noted,
            no_journal: None,
            reserve,
            relieved: None,
            failed: None,
            dir,
            last: (now.checked_sub(LULL).unwrap_or(now), Duration::ZERO),
            shared,
            options,
            checkpoints,
            newest,
            oldest,
            settled,
            trimmed,
            trimmed_settled: trimmed,
            must_settle: false,
            samples: VecDeque::from([(now, newest)]),
            at_rest: false,
            is_stuck: false,
            _lock: lock,
        };
        if has_lost {
            writer.skip_lost()?;
        }
        writer.settle_or_warn();
        if writer.settled == writer.newest {
            // One that was read is slower to write than a new one (`Journal::wipe`).
            writer.journal = None;
        }
        Ok(writer)
    }

    /// As far as can be known: the last time it did, and nothing has to be moved.
    pub(super) fn takes_at_most(&self, long: Duration, task: &Task) -> bool {
        // The thread begins with the journal, so that it knows to end with it.
        let has_place = match &self.journal {
            Some(journal) if self.is_open() => !self.is_lull() && task.size() <= journal.room(),
            _ => self.is_lull(),
        };
        let has_journal = self.journal.is_some() || !self.may_make_journal();
        has_place && has_journal && self.last.1 <= long && !self.must_settle && !self.checkpoints.is_due()
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
        let is_lull = self.is_lull();
        let begun = Instant::now();
        self.at_rest = false;
        let frees = tasks.clone().all(|task| task.frees);
        let outcomes = if frees || self.has_room() {
            self.with_room(frees, |writer| writer.commit(tasks.clone(), is_lull))
        } else {
            Err(Error::Full("the room that is left is kept for deletions".into()))
        };
        self.last = (begun, begun.elapsed());
        self.failed = outcomes.as_ref().err().cloned();
        outcomes
    }

    /// When the thread has to look again if nobody asks for anything.
    pub(super) fn wait(&self) -> Duration {
        match self.is_open() {
            _ if self.is_stuck => SAMPLE,
            true => LULL,
            false if self.trim_is_due() => Duration::from_millis(2),
            false if self.reserve.is_spent() => RESTORE_INTERVAL,
            false => SAMPLE,
        }
    }

    /// When there is nothing else to do.
    pub(super) fn idle(&mut self) {
        if self.is_open() {
            if self.is_lull() {
                self.settle_or_warn();
            }
        } else if self.trim_is_due() {
            self.trim_alone();
        } else if self.last.0.elapsed() >= SAMPLE {
            self.rest();
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
        self.checkpoints.tend(&self.db);
    }

    pub(super) fn finish(mut self) {
        self.shared.closed.store(true, Ordering::Release);
        self.shared.wake();
        self.settle_or_warn();
        self.forget_journal();
        self.shared.readers.close();
        self.checkpoints.finish(&self.db);
        self.reserve.restore();
    }

    /// The file has everything, and says so: the journal is not needed to open it again.
    fn forget_journal(&mut self) {
        if self.noted == 0 || self.settled != self.newest {
            return;
        }
        let cleared = self.within(|writer| schema::set_meta(&writer.db, "journal", 0)).and_then(|()| self.end());
        match cleared {
            Ok(()) => self.noted = 0,
            Err(error) => tracing::debug!(%error, "the journal is needed to open the store again"),
        }
    }

    fn is_lull(&self) -> bool {
        self.last.0.elapsed() >= LULL
    }

    /// There is a transaction, or should be one: the journal has what the file does not have.
    fn is_open(&self) -> bool {
        self.settled < self.newest || !self.db.is_autocommit()
    }

    /// Durable and published when this returns.
    fn commit<'a>(&mut self, tasks: impl Iterator<Item = &'a Task>, is_lull: bool) -> Result<Vec<Outcome>, Error> {
        let mut batches = Vec::new();
        let outcomes = self.within(|writer| {
            let mut newest = writer.newest;
            let outcomes =
                tasks.map(|task| apply(&writer.db, task, &mut newest, &mut batches)).collect::<Result<_, _>>()?;
            if writer.trim_is_due() && !batches.is_empty() {
                writer.trimmed = writer.trim(TRIM_ALONG + 2 * batches.len())?;
            }
            Ok(outcomes)
        })?;
        if batches.is_empty() {
            if self.settled == self.newest {
                self.settle()?;
            }
        } else if self.prepare_journal()? && !is_lull && !self.must_settle && self.append(&batches)? {
            self.publish(batches);
        } else {
            self.end()?;
            self.noted = self.journal.as_ref().map_or(self.noted, Journal::id);
            self.publish(batches);
            self.settled();
            if let Some(journal) = &self.journal {
                journal.mark(self.settled);
            }
        }
        Ok(outcomes)
    }

    /// It would hold nothing that only an older one has, and it could be made.
    fn may_make_journal(&self) -> bool {
        let has_failed = self.no_journal.is_some_and(|at| at.elapsed() < SAMPLE);
        self.may_journal && self.settled == self.newest && !has_failed
    }

    /// Makes the journal if there is none. `false`: it cannot be used for this group, because the file does not name it. Then the
    /// group's transaction does, and has to be committed.
    fn prepare_journal(&mut self) -> Result<bool, Error> {
        if self.journal.is_none() && self.may_make_journal() {
            let id = if self.noted == 0 { Journal::new_id() } else { Ok(self.noted) };
            match id.and_then(|id| Journal::make(&self.dir, id, self.settled)) {
                Ok(journal) => self.journal = Some(journal),
                Err(error) => {
                    tracing::debug!(%error, "there is no journal");
                    self.no_journal = Some(Instant::now());
                }
            }
        }
        match self.journal.as_ref().map(Journal::id) {
            None => Ok(false),
            Some(id) if id == self.noted => Ok(true),
            Some(id) => {
                let noted = schema::set_meta(&self.db, "journal", id.cast_signed());
                noted.map(|()| false).map_err(|error| self.undo(&error, During::Write))
            }
        }
    }

    /// Does some work in the transaction that is open, or in a new one. All of it is undone if it fails.
    fn within<T>(&mut self, work: impl FnOnce(&mut Self) -> rusqlite::Result<T>) -> Result<T, Error> {
        self.begin().and_then(|()| work(self)).map_err(|error| self.undo(&error, During::Write))
    }

    /// A new transaction begins with what only the journal has: nothing, unless the last one broke.
    fn begin(&self) -> rusqlite::Result<()> {
        if !self.db.is_autocommit() {
            return Ok(());
        }
        self.run("BEGIN IMMEDIATE")?;
        let batches = if self.settled < self.newest { self.shared.recent().unsettled() } else { Vec::new() };
        for batch in batches {
            for (event, index) in batch.events.iter().zip(0..) {
                let live = look_up(&self.db, event.key())?;
                let row = schema::first_row(batch.revision) + index;
                match event {
                    Event::Put(entry) => write_put(&self.db, row, &entry.key, &entry.value, live).map(|_| ())?,
                    Event::Delete { key, .. } => write_delete(&self.db, row, key, live)?,
                }
            }
        }
        Ok(())
    }

    /// The journal has made the group durable. `false`: it has no room.
    fn append(&mut self, batches: &[Arc<Batch>]) -> Result<bool, Error> {
        let Some(journal) = &mut self.journal else { return Ok(false) };
        journal.append(batches).map_err(|failed| {
            self.undo_all();
            failed.explain()
        })
    }

    /// Commits the transaction, which syncs the log.
    fn end(&mut self) -> Result<(), Error> {
        self.must_settle = true;
        self.run("COMMIT").map_err(|error| self.undo(&error, During::Commit))?;
        self.must_settle = false;
        Ok(())
    }

    /// The file has everything now.
    fn settled(&mut self) {
        self.is_stuck = false;
        self.settled = self.newest;
        self.trimmed_settled = self.trimmed;
        self.shared.recent().settle(self.newest);
        if let Some(journal) = &mut self.journal {
            journal.restart(self.newest);
        }
    }

    /// Brings into the file what is only in the transaction and in the journal.
    fn settle(&mut self) -> Result<(), Error> {
        if !self.is_open() {
            return Ok(());
        }
        self.within(|_| Ok(()))?;
        self.end()?;
        self.settled();
        Ok(())
    }

    fn settle_or_warn(&mut self) {
        if let Err(error) = self.settle() {
            self.is_stuck = true;
            self.failed = Some(error.clone());
            tracing::warn!(%error, "the store's file could not be brought up to date; what was written is in the journal. Trying again later");
        }
    }

    fn run(&self, sql: &str) -> rusqlite::Result<()> {
        self.db.prepare_cached(sql).and_then(|mut statement| statement.execute([])).map(|_| ())
    }

    #[cfg(test)]
    pub(super) fn break_transaction(&mut self) {
        assert!(!self.db.is_autocommit(), "there is none");
        self.undo_all();
    }

    #[cfg(test)]
    pub(super) fn fail_commits(&mut self, fail: bool) {
        self.db.commit_hook(fail.then_some(|| true)).unwrap();
    }

    fn undo(&mut self, error: &rusqlite::Error, during: During) -> Error {
        self.undo_all();
        fault::explain(error, during)
    }

    fn undo_all(&mut self) {
        // Some errors have rolled back already; then there is nothing to do here.
        if !self.db.is_autocommit() {
            let _ = self.run("ROLLBACK");
        }
        self.trimmed = self.trimmed_settled;
    }

    fn publish(&mut self, batches: Vec<Arc<Batch>>) {
        let Some(newest) = batches.last().map(|batch| batch.revision) else { return };
        self.newest = newest;
        let mut recent = self.shared.recent();
        batches.into_iter().for_each(|batch| recent.push(batch));
        drop(recent);
        self.shared.newest.send_replace(newest);
    }
}
