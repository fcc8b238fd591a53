//! What is written: commits, compaction, trimming.
//!
//! A transaction stays open as long as the journal has what is in it ([`Writer::settle`] ends it). Should it break, the next one begins
//! with that.

use std::{
    collections::VecDeque,
    fs::File,
    io,
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use rusqlite::{Connection, OptionalExtension};

use super::{
    Shared, SqliteOptions,
    checkpoint::Checkpoints,
    fault::{self, During},
    journal::Journal,
    schema::{self, Opened},
};
use crate::{Batch, Commit, Entry, Error, Event, Op, Outcome, Revision};

/// A commit, and whether each of its ops takes a revision of its own.
pub(super) struct Task {
    pub commit: Commit,
    pub apart: bool,
}

/// Rows that are trimmed along with a group, which costs no further sync; and alone, when there is nothing else to do.
const TRIM_ALONG: usize = 64;
const TRIM_IDLE: usize = 512;
/// How often the age of history is looked at.
pub(super) const SAMPLE: Duration = Duration::from_secs(5);
/// Who writes less often than this writes to the file itself: the journal would be one sync more. And after so long without a write
/// the file gets what the journal has.
pub(super) const LULL: Duration = Duration::from_millis(100);

pub(super) struct Writer {
    db: Connection,
    /// Made when it is first needed. What follows the file's last revision in it is in `shared.recent`, too.
    journal: Option<Journal>,
    may_journal: bool,
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

/// A key's newest row.
#[derive(Clone, Copy)]
struct Live {
    row: i64,
    created: Revision,
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
        let Opened { mut db, dir, path, lock, journal, may_journal, newest, settled, oldest, trimmed, .. } = opened;
        let checkpoints = Checkpoints::start(&path, &mut db).map_err(|error| fault::explain(&error, During::Write))?;
        let now = Instant::now();
        let mut writer = Self {
            db,
            journal,
            may_journal,
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
        has_place && self.last.1 <= long && !self.must_settle && !self.checkpoints.is_due()
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
    pub(super) fn write<'a>(&mut self, tasks: impl Iterator<Item = &'a Task>) -> Result<Vec<Outcome>, Error> {
        let is_lull = self.is_lull();
        let begun = Instant::now();
        self.at_rest = false;
        let outcomes = self.commit(tasks, is_lull);
        self.last = (begun, begun.elapsed());
        outcomes
    }

    /// When the thread has to look again if nobody asks for anything.
    pub(super) fn wait(&self) -> Duration {
        match self.is_open() {
            _ if self.is_stuck => SAMPLE,
            true => LULL,
            false if self.trim_is_due() => Duration::from_millis(2),
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
        self.age();
        if self.checkpoints.awaits_writer() {
            self.settle_or_warn();
        }
        self.checkpoints.tend(&self.db);
    }

    pub(super) fn finish(mut self) {
        self.shared.closed.store(true, Ordering::Release);
        self.shared.wake();
        self.settle_or_warn();
        self.shared.readers.close();
        self.checkpoints.finish(&self.db);
        if let Some(journal) = self.journal.take_if(|_| self.settled == self.newest) {
            journal.finish();
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
        } else if !is_lull && !self.must_settle && self.append(&batches)? {
            self.publish(batches);
        } else {
            self.end()?;
            self.publish(batches);
            self.settled();
        }
        Ok(outcomes)
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
        if self.journal.is_none() && self.may_journal {
            match Journal::make(&self.dir) {
                Ok(journal) => self.journal = Some(journal),
                Err(error) => {
                    tracing::debug!(%error, "there is no journal");
                    return Ok(false);
                }
            }
        }
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
            journal.restart();
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

    /// Only says from where on history counts; the rows go later, a few at a time.
    pub(super) fn compact(&mut self, revision: Revision) -> Result<(), Error> {
        if revision <= self.oldest {
            return Ok(());
        }
        if revision > self.newest {
            return Err(Error::Future { asked: revision, newest: self.newest });
        }
        self.within(|writer| {
            schema::set_meta(&writer.db, "oldest", revision.cast_signed())?;
            // Trimming may take away the row of the newest revision, which must not be given out again.
            schema::set_meta(&writer.db, "newest", writer.newest.cast_signed())
        })?;
        // So that readers see it, too.
        self.settle()?;
        self.oldest = revision;
        self.shared.oldest.store(revision, Ordering::Release);
        self.shared.wake();
        Ok(())
    }

    pub(super) fn trim_is_due(&self) -> bool {
        self.trimmed + 1 < schema::first_row(self.oldest + 1)
    }

    fn trim_alone(&mut self) {
        if let Err(error) = self.trim_some() {
            self.is_stuck = true;
            tracing::warn!(%error, "old history could not be trimmed; trying again later");
        }
    }

    fn trim_some(&mut self) -> Result<(), Error> {
        self.trimmed = self.within(|writer| writer.trim(TRIM_IDLE))?;
        self.settle()
    }

    /// When nobody has written for a while: what was written last is read from the file if anybody still wants it, as pages of it are.
    fn rest(&mut self) {
        if std::mem::replace(&mut self.at_rest, true) {
            return;
        }
        self.shared.recent().forget();
        self.journal.as_mut().map(Journal::rest);
        if let Err(error) = self.db.execute_batch("PRAGMA shrink_memory") {
            tracing::debug!(%error, "memory that is not needed stays");
        }
    }

    /// Trims all that is due, and writes the file anew so that no free page remembers what was there.
    pub(super) fn scrub(&mut self) -> Result<(), Error> {
        while self.trim_is_due() {
            self.trim_some()?;
        }
        self.settle()?;
        self.db.execute_batch("VACUUM").map_err(|error| fault::explain(&error, During::Write))?;
        self.wipe_journal().map_err(|error| Error::Unavailable(format!("the journal could not be wiped: {error}")))?;
        self.checkpoints.empty(&self.db)
    }

    fn wipe_journal(&self) -> io::Result<()> {
        if let Some(journal) = &self.journal {
            return journal.wipe();
        }
        // One that an earlier run has left.
        Journal::open(&self.dir)?.map_or(Ok(()), |(journal, _)| journal.wipe())
    }

    /// Takes away what the next rows up to the oldest kept revision have replaced, and deletions, which have been told.
    /// Each row is looked at once, however many there are behind it.
    fn trim(&self, limit: usize) -> rusqlite::Result<i64> {
        let end = schema::first_row(self.oldest + 1);
        let mut rows = self.db.prepare_cached(
            "SELECT row, previous, value IS NULL FROM log WHERE row > ?1 AND row < ?2 ORDER BY row LIMIT ?3",
        )?;
        let mut remove = self.db.prepare_cached("DELETE FROM log WHERE row = ?1")?;
        let slice = rows
            .query_map((self.trimmed, end, limit.cast_signed() as i64), |row| {
                Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, bool>(2)?))
            })?
            .collect::<Result<Vec<_>, _>>()?;
        for &(row, previous, deletion) in &slice {
            if previous != 0 {
                remove.execute([previous])?;
            }
            if deletion {
                remove.execute([row])?;
            }
        }
        let trimmed = slice.last().filter(|_| slice.len() == limit).map_or(end - 1, |last| last.0);
        schema::set_meta(&self.db, "trimmed", trimmed)?;
        Ok(trimmed)
    }

    /// Compacts what is older than both limits of the options.
    fn age(&mut self) {
        let now = Instant::now();
        if self.samples.back().is_some_and(|(at, _)| now - *at < SAMPLE.min(self.options.keep_for)) {
            return;
        }
        self.samples.push_back((now, self.newest));
        let mut aged = 0;
        while let Some(&(at, revision)) = self.samples.front()
            && now - at >= self.options.keep_for
        {
            aged = revision;
            self.samples.pop_front();
        }
        let target = aged.min(self.newest.saturating_sub(self.options.keep_revisions));
        if target > self.oldest
            && let Err(error) = self.compact(target)
        {
            tracing::warn!(%error, "old history could not be compacted; trying again later");
        }
    }
}

/// One commit within the group's transaction. It sees what the commits before it in the group have done.
fn apply(
    db: &Connection,
    Task { commit, apart }: &Task,
    newest: &mut Revision,
    batches: &mut Vec<Arc<Batch>>,
) -> rusqlite::Result<Outcome> {
    let mut found = Vec::with_capacity(commit.compares.len());
    for compare in &commit.compares {
        let live = look_up(db, &compare.key)?;
        let modified = live.map_or(0, |live| schema::revision_of(live.row));
        if modified != compare.modified {
            return Ok(Outcome::Conflict { key: compare.key.clone(), found: modified });
        }
        found.push(live);
    }
    let at_once = if *apart { 1 } else { commit.ops.len().max(1) };
    for ops in commit.ops.chunks(at_once) {
        let revision = *newest + 1;
        let mut events = Vec::with_capacity(ops.len());
        for op in ops {
            // Nearly always the key was just compared; with many compares, asking again is quicker than searching them.
            let known = commit.compares.iter().take(16).position(|compare| compare.key == op.key());
            let live = match known.and_then(|position| found.get(position)) {
                Some(live) => *live,
                None => look_up(db, op.key())?,
            };
            let row = schema::first_row(revision) + events.len() as i64;
            if let Some(event) = write_row(db, op, row, live)? {
                events.push(event);
            }
        }
        if !events.is_empty() {
            *newest = revision;
            batches.push(Arc::new(Batch { revision, events }));
        }
    }
    Ok(Outcome::Committed(*newest))
}

fn look_up(db: &Connection, key: &str) -> rusqlite::Result<Option<Live>> {
    db.prepare_cached("SELECT row, created FROM live WHERE key = ?1")?
        .query_row([key], |row| Ok(Live { row: row.get(0)?, created: row.get::<_, i64>(1)?.cast_unsigned() }))
        .optional()
}

fn write_row(db: &Connection, op: &Op, row: i64, live: Option<Live>) -> rusqlite::Result<Option<Event>> {
    let revision = schema::revision_of(row);
    match (op, live) {
        (Op::Put { key, value }, live) => {
            let created = write_put(db, row, key, value, live)?;
            Ok(Some(Event::Put(Entry { key: key.clone(), value: value.clone(), created, modified: revision })))
        }
        (Op::Delete { key }, Some(_)) => {
            write_delete(db, row, key, live)?;
            Ok(Some(Event::Delete { key: key.clone(), revision }))
        }
        (Op::Delete { .. }, None) => Ok(None),
    }
}

/// Returns the revision in which the key was created.
fn write_put(db: &Connection, row: i64, key: &str, value: &[u8], live: Option<Live>) -> rusqlite::Result<Revision> {
    let created = live.map_or(schema::revision_of(row), |live| live.created);
    log(db, row, live, created, key, Some(value))?;
    if live.is_some() {
        db.prepare_cached("UPDATE live SET row = ?2 WHERE key = ?1")?.execute((key, row))?;
    } else {
        let mut insert = db.prepare_cached("INSERT INTO live (key, row, created) VALUES (?1, ?2, ?3)")?;
        insert.execute((key, row, created.cast_signed()))?;
    }
    Ok(created)
}

fn write_delete(db: &Connection, row: i64, key: &str, live: Option<Live>) -> rusqlite::Result<()> {
    log(db, row, live, live.map_or(0, |live| live.created), key, None)?;
    db.prepare_cached("DELETE FROM live WHERE key = ?1")?.execute([key])?;
    Ok(())
}

fn log(
    db: &Connection,
    row: i64,
    live: Option<Live>,
    created: Revision,
    key: &str,
    value: Option<&[u8]>,
) -> rusqlite::Result<()> {
    let mut log =
        db.prepare_cached("INSERT INTO log (row, previous, created, key, value) VALUES (?1, ?2, ?3, ?4, ?5)")?;
    log.execute((row, live.map_or(0, |live| live.row), created.cast_signed(), key, value))?;
    Ok(())
}
