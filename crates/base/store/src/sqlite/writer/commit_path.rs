//! How a group of commits becomes durable: in SQLite's transaction, then in the journal or by `COMMIT`.
//!
//! The transaction stays open as long as the journal has what is in it; [`CommitPath::settle`] ends it. A transaction
//! that breaks is begun again with what the journal has. [`State`] decides; this carries it out, on SQLite and on the
//! file system or on the simulation's models of them.

use std::{io, sync::Arc, time::Instant};

use super::{
    super::{
        Shared,
        fault::{self, During},
        journal::{self, Failed, Journal, JournalDir},
    },
    Task,
    database::Database,
    rows::{apply, replay},
    state::{Begin, Route, State},
};
use crate::{Batch, Error, Outcome, Revision};

/// Rows that are trimmed along with a group, which costs no further sync.
const TRIM_ROWS_PER_GROUP: usize = 64;

pub(super) struct CommitPath<D, F: JournalDir> {
    pub(super) db: D,
    dir: F,
    /// What follows the database's last revision in it is in `shared.recent`, too.
    journal: Option<Journal<F::File>>,
    /// The id of the journal that the database names, 0 if none. Only that one may have what the database lacks.
    named: u64,
    pub(super) state: State,
    shared: Arc<Shared>,
}

impl<D: Database, F: JournalDir> CommitPath<D, F> {
    /// Nothing is served before [`CommitPath::recover`].
    pub(super) fn new(
        db: D,
        dir: F,
        journal: Option<Journal<F::File>>,
        named: u64,
        state: State,
        shared: Arc<Shared>,
    ) -> Self {
        Self { db, dir, journal, named, state, shared }
    }

    /// Brings the database up to date after the store was opened.
    ///
    /// If that is not possible (on a full disk), the journal is synced again before its records are served. They may be
    /// in the page cache only: the process that wrote them ended before the sync, or the sync failed. Returns why the
    /// database could not be written, if so.
    pub(super) fn recover(&mut self) -> Result<Option<Error>, Error> {
        let Err(error) = self.settle() else {
            // One that was read is slower to write than a new one (`Journal::wipe`).
            self.journal = None;
            self.state.journal_dropped();
            return Ok(None);
        };
        #[cfg(test)]
        if self.state.mutant == Some(super::state::Mutant::ServeUnsynced) {
            return Ok(Some(error));
        }
        journal::sync_again(&self.dir).map_err(|unsynced| {
            Error::Unusable(format!(
                "{} has writes that are not in the database yet. The database cannot be written: {error}. \
                 The journal cannot be synced: {unsynced}. Nothing is lost. Check the disk, then start again",
                journal::FILE
            ))
        })?;
        self.settle_failed(&error);
        Ok(Some(error))
    }

    /// All of them or none, durable and published when this returns. `is_quiet`: the last write was a while ago.
    pub(super) fn write<'a>(
        &mut self,
        tasks: impl Iterator<Item = &'a Task>,
        is_quiet: bool,
        now: Instant,
    ) -> Result<Vec<Outcome>, Error> {
        let mut batches = Vec::new();
        let outcomes = self.transact(|path| {
            let mut newest = path.state.newest();
            let outcomes =
                tasks.map(|task| apply(&path.db, task, &mut newest, &mut batches)).collect::<Result<_, _>>()?;
            if path.state.is_trim_due() && !batches.is_empty() {
                path.trim(TRIM_ROWS_PER_GROUP + 2 * batches.len())?;
            }
            Ok(outcomes)
        })?;
        let Some(newest) = batches.last().map(|batch| batch.revision) else {
            if self.state.is_all_settled() {
                self.settle()?;
            }
            return Ok(outcomes);
        };
        self.prepare_journal(now);
        if self.state.route(is_quiet) == Route::Journal && self.append(&batches)? {
            self.state.journalled(newest);
            self.publish(newest, batches);
        } else {
            self.commit(Some(newest), now)?;
            self.publish(newest, batches);
            if let Some(journal) = &self.journal {
                journal.mark(newest);
            }
        }
        Ok(outcomes)
    }

    /// Does some work in the transaction that is open, or in a new one. All of it is undone if it fails.
    pub(super) fn transact<T>(&mut self, work: impl FnOnce(&mut Self) -> rusqlite::Result<T>) -> Result<T, Error> {
        self.begin().and_then(|()| work(self)).map_err(|error| self.undo(&error, During::Write))
    }

    fn begin(&mut self) -> rusqlite::Result<()> {
        if self.state.is_in_transaction() && !self.db.is_in_transaction() {
            // SQLite has ended it after an error, perhaps one of a statement that only reads.
            self.state.rolled_back();
        }
        let how = self.state.begin();
        if how == Begin::Continue {
            return Ok(());
        }
        self.db.begin()?;
        self.state.begun();
        if how == Begin::Replay {
            let batches = self.shared.recent().unsettled();
            batches.iter().try_for_each(|batch| replay(&self.db, batch))?;
        }
        Ok(())
    }

    /// Trims some rows within the transaction.
    pub(super) fn trim(&mut self, limit: usize) -> rusqlite::Result<()> {
        let row = self.db.trim(self.state.trimmed(), self.state.trim_end(), limit)?;
        self.db.set_meta("trimmed", row)?;
        self.state.trimmed_to(row);
        Ok(())
    }

    /// Commits the transaction, which syncs the WAL. The database has everything then. `newest` is the last revision of
    /// a group that is in the transaction and not acknowledged yet.
    fn commit(&mut self, newest: Option<Revision>, now: Instant) -> Result<(), Error> {
        let id = self.journal.as_ref().map_or(0, Journal::id);
        if self.state.must_name_journal() {
            self.db.set_meta("journal", id.cast_signed()).map_err(|error| self.undo(&error, During::Write))?;
        }
        self.state.committing();
        self.db.commit().map_err(|error| self.undo(&error, During::Commit))?;
        if self.state.must_name_journal() {
            self.named = id;
        }
        self.state.committed(newest, now);
        if !self.state.has_journal() {
            self.journal = None;
        }
        #[cfg(test)]
        if self.state.mutant == Some(super::state::Mutant::KeepJournalPlace) {
            return Ok(());
        }
        if let Some(journal) = &mut self.journal {
            journal.restart(self.state.newest());
        }
        Ok(())
    }

    /// Brings into the database what is only in the transaction and in the journal.
    pub(super) fn settle(&mut self) -> Result<(), Error> {
        if !self.state.needs_settling() {
            return Ok(());
        }
        self.transact(|_| Ok(()))?;
        self.commit(None, Instant::now())?;
        self.shared.recent().settle(self.state.newest());
        Ok(())
    }

    pub(super) fn settle_failed(&mut self, error: &Error) {
        self.state.background_failed();
        tracing::warn!(
            %error,
            "the store's database could not be brought up to date; the journal has what was written. Trying again later"
        );
    }

    /// The database has everything, and says so: the journal is not needed to open it again.
    pub(super) fn forget_journal(&mut self) {
        if self.named == 0 || !self.state.is_all_settled() {
            return;
        }
        let cleared = self.transact(|path| path.db.set_meta("journal", 0));
        match cleared.and_then(|()| self.commit(None, Instant::now())) {
            Ok(()) => self.named = 0,
            Err(error) => tracing::debug!(%error, "the journal is needed to open the store again"),
        }
    }

    /// Goes on at `next` after acknowledged writes were lost.
    pub(super) fn skip_to(&mut self, next: Revision) -> Result<(), Error> {
        self.transact(|path| {
            path.db.set_meta("oldest", next.cast_signed())?;
            path.db.set_meta("newest", next.cast_signed())?;
            path.db.set_meta("journal", 0)
        })?;
        self.commit(None, Instant::now())?;
        (self.named, self.journal) = (0, None);
        self.state.skipped_to(next);
        self.shared.recent().skip_to(next);
        Ok(())
    }

    /// Says from where on history counts; the rows go later, a few at a time.
    pub(super) fn compact(&mut self, revision: Revision) -> Result<(), Error> {
        self.transact(|path| {
            path.db.set_meta("oldest", revision.cast_signed())?;
            // Trimming may remove the row of the newest revision, which must not be given out again.
            path.db.set_meta("newest", path.state.newest().cast_signed())
        })?;
        // So that readers see it, too.
        self.settle()?;
        self.state.compacted(revision);
        Ok(())
    }

    pub(super) fn trim_some(&mut self, limit: usize) -> Result<(), Error> {
        self.transact(|path| path.trim(limit))?;
        self.settle()
    }

    /// A write that changes nothing, to see whether writes work.
    pub(super) fn probe(&mut self) -> Result<(), Error> {
        self.transact(|path| path.db.set_meta("newest", path.state.newest().cast_signed()))?;
        self.settle()?;
        let probed = self.journal.as_ref().map_or(Ok(()), |journal| journal.probe(self.state.settled()));
        probed.map_err(|error| {
            self.state.journal_sync_failed();
            Error::Unavailable(error.to_string())
        })
    }

    /// Leaves nothing in the journal of what was in it. The database must have everything.
    pub(super) fn wipe_journal(&mut self) -> io::Result<()> {
        if let Some(journal) = &self.journal {
            return journal.wipe(self.state.settled()).inspect_err(|_| self.state.journal_sync_failed());
        }
        // One that an earlier run has left.
        if !self.dir.exists()? {
            return Ok(());
        }
        let id = if self.named == 0 { journal::new_id()? } else { self.named };
        Journal::make(&self.dir, id, self.state.settled()).map(|_| ())
    }

    /// Gives back memory that only writing needs.
    pub(super) fn rest(&mut self) {
        self.state.rested();
        self.shared.recent().forget();
        self.journal.as_mut().map(Journal::rest);
    }

    /// Bytes that the journal has room for.
    pub(super) fn journal_room(&self) -> usize {
        self.journal.as_ref().map_or(0, Journal::room)
    }

    /// Makes the journal if there is none and it may be used.
    fn prepare_journal(&mut self, now: Instant) {
        if !self.state.wants_journal(now) {
            return;
        }
        let is_named = self.named != 0;
        let id = if is_named { Ok(self.named) } else { journal::new_id() };
        match id.and_then(|id| Journal::make(&self.dir, id, self.state.settled())) {
            Ok(journal) => {
                self.journal = Some(journal);
                self.state.journal_made(is_named);
            }
            Err(error) => {
                tracing::debug!(%error, "there is no journal");
                self.state.journal_not_made(now);
            }
        }
    }

    /// The journal has made the group durable. `false`: it has no room.
    fn append(&mut self, batches: &[Arc<Batch>]) -> Result<bool, Error> {
        let Some(journal) = &mut self.journal else { return Ok(false) };
        let failed = match journal.append(batches) {
            Ok(is_appended) => return Ok(is_appended),
            Err(failed) => failed,
        };
        if matches!(failed, Failed::Sync(_)) {
            self.state.journal_sync_failed();
            #[cfg(test)]
            if self.state.mutant == Some(super::state::Mutant::AcknowledgeFailedSync) {
                return Ok(true);
            }
        }
        self.undo_all();
        Err(failed.explain())
    }

    fn undo(&mut self, error: &rusqlite::Error, during: During) -> Error {
        self.undo_all();
        fault::explain(error, during)
    }

    pub(super) fn undo_all(&mut self) {
        // Some errors have rolled back already; then there is nothing to do here.
        if self.db.is_in_transaction() {
            let _ = self.db.rollback();
        }
        self.state.rolled_back();
    }

    /// The group is durable: readers and watchers may see it.
    fn publish(&self, newest: Revision, batches: Vec<Arc<Batch>>) {
        let mut recent = self.shared.recent();
        batches.into_iter().for_each(|batch| recent.push(batch));
        recent.settle(self.state.settled());
        drop(recent);
        self.shared.newest.send_replace(newest);
    }
}
