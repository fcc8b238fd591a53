//! What is written: commits, compaction, trimming.

use std::{
    collections::VecDeque,
    fs::File,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use rusqlite::{Connection, OptionalExtension};

use super::{
    Shared, SqliteOptions,
    checkpoint::Checkpoints,
    fault::{self, During},
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

pub(super) struct Writer {
    db: Connection,
    /// When was written last, and how long it took.
    last: (Instant, Duration),
    shared: Arc<Shared>,
    options: SqliteOptions,
    checkpoints: Checkpoints,
    newest: Revision,
    oldest: Revision,
    /// The log is trimmed up to this row.
    trimmed: i64,
    /// When which revision was the newest: how old history is.
    samples: VecDeque<(Instant, Revision)>,
    /// Nothing is kept in memory that only writing needs.
    at_rest: bool,
    /// Last, so that it is let go of after the connection is closed.
    _lock: File,
}

/// What a group has come to, before it is committed.
#[derive(Default)]
struct Group {
    outcomes: Vec<Outcome>,
    batches: Vec<Arc<Batch>>,
}

/// A key's newest row.
#[derive(Clone, Copy)]
struct Live {
    row: i64,
    created: Revision,
}

// === impl Writer ===

impl Writer {
    pub(super) fn new(opened: Opened, options: SqliteOptions, shared: Arc<Shared>) -> Result<Self, Error> {
        let Opened { mut db, path, lock, newest, oldest, trimmed } = opened;
        let checkpoints = Checkpoints::start(&path, &mut db).map_err(|error| fault::explain(&error, During::Write))?;
        Ok(Self {
            db,
            last: (Instant::now(), Duration::ZERO),
            shared,
            options,
            checkpoints,
            newest,
            oldest,
            trimmed,
            samples: VecDeque::from([(Instant::now(), newest)]),
            at_rest: false,
            _lock: lock,
        })
    }

    /// As far as can be known: the last time it did, and nothing has to be moved.
    pub(super) fn takes_at_most(&self, long: Duration) -> bool {
        self.last.1 <= long && !self.checkpoints.is_due()
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
        let begun = Instant::now();
        self.at_rest = false;
        let group = self.commit(tasks);
        self.last = (begun, begun.elapsed());
        let group = group?;
        self.publish(group.batches);
        Ok(group.outcomes)
    }

    /// When there is nothing else to do.
    pub(super) fn idle(&mut self) {
        if self.trim_is_due() {
            self.trim_alone();
        } else if self.last.0.elapsed() >= SAMPLE {
            self.rest();
        }
    }

    /// Between two groups.
    pub(super) fn tend(&mut self) {
        self.age();
        self.checkpoints.tend(&self.db);
    }

    pub(super) fn finish(self) {
        self.shared.closed.store(true, Ordering::Release);
        self.shared.wake();
        self.shared.readers.close();
        self.checkpoints.finish(&self.db);
    }

    /// Durable when this returns: `COMMIT` syncs the log.
    fn commit<'a>(&mut self, tasks: impl Iterator<Item = &'a Task>) -> Result<Group, Error> {
        let mut trimmed = self.trimmed;
        let group = self.transaction(|writer| {
            let mut group = Group::default();
            let mut newest = writer.newest;
            for task in tasks {
                let outcome = apply(&writer.db, task, &mut newest, &mut group.batches)?;
                group.outcomes.push(outcome);
            }
            if writer.trim_is_due() && !group.batches.is_empty() {
                trimmed = writer.trim(TRIM_ALONG + 2 * group.batches.len())?;
            }
            Ok(group)
        })?;
        self.trimmed = trimmed;
        Ok(group)
    }

    fn transaction<T>(&self, work: impl FnOnce(&Self) -> rusqlite::Result<T>) -> Result<T, Error> {
        let run = |sql| self.db.prepare_cached(sql).and_then(|mut statement| statement.execute([]));
        let failed = |error: rusqlite::Error, during| {
            let explained = fault::explain(&error, during);
            // Some errors have rolled back already; then there is nothing to do here.
            if !self.db.is_autocommit() {
                let _ = run("ROLLBACK");
            }
            explained
        };
        run("BEGIN IMMEDIATE").map_err(|error| failed(error, During::Write))?;
        let result = work(self).map_err(|error| failed(error, During::Write))?;
        run("COMMIT").map_err(|error| failed(error, During::Commit))?;
        Ok(result)
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
        self.transaction(|writer| {
            schema::set_meta(&writer.db, "oldest", revision.cast_signed())?;
            // Trimming may take away the row of the newest revision, which must not be given out again.
            schema::set_meta(&writer.db, "newest", writer.newest.cast_signed())
        })?;
        self.oldest = revision;
        self.shared.oldest.store(revision, Ordering::Release);
        self.shared.wake();
        Ok(())
    }

    pub(super) fn trim_is_due(&self) -> bool {
        self.trimmed + 1 < schema::first_row(self.oldest + 1)
    }

    fn trim_alone(&mut self) {
        match self.transaction(|writer| writer.trim(TRIM_IDLE)) {
            Ok(trimmed) => self.trimmed = trimmed,
            Err(error) => tracing::warn!(%error, "old history could not be trimmed; trying again later"),
        }
    }

    /// When nobody has written for a while: what was written last is read from the file if anybody still wants it, as pages of it are.
    fn rest(&mut self) {
        if std::mem::replace(&mut self.at_rest, true) {
            return;
        }
        self.shared.recent().forget();
        if let Err(error) = self.db.execute_batch("PRAGMA shrink_memory") {
            tracing::debug!(%error, "memory that is not needed stays");
        }
    }

    /// Trims all that is due, and writes the file anew so that no free page remembers what was there.
    pub(super) fn scrub(&mut self) -> Result<(), Error> {
        while self.trim_is_due() {
            self.trimmed = self.transaction(|writer| writer.trim(TRIM_IDLE))?;
        }
        self.db.execute_batch("VACUUM").map_err(|error| fault::explain(&error, During::Write))?;
        self.checkpoints.empty(&self.db)
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
    let mut log =
        db.prepare_cached("INSERT INTO log (row, previous, created, key, value) VALUES (?1, ?2, ?3, ?4, ?5)")?;
    match (op, live) {
        (Op::Put { key, value }, live) => {
            let created = live.map_or(revision, |live| live.created);
            let previous = live.map_or(0, |live| live.row);
            log.execute((row, previous, created.cast_signed(), key, &value[..]))?;
            if live.is_some() {
                db.prepare_cached("UPDATE live SET row = ?2 WHERE key = ?1")?.execute((key, row))?;
            } else {
                let mut insert = db.prepare_cached("INSERT INTO live (key, row, created) VALUES (?1, ?2, ?3)")?;
                insert.execute((key, row, created.cast_signed()))?;
            }
            Ok(Some(Event::Put(Entry { key: key.clone(), value: value.clone(), created, modified: revision })))
        }
        (Op::Delete { key }, Some(live)) => {
            log.execute((row, live.row, live.created.cast_signed(), key, None::<&[u8]>))?;
            db.prepare_cached("DELETE FROM live WHERE key = ?1")?.execute([key])?;
            Ok(Some(Event::Delete { key: key.clone(), revision }))
        }
        (Op::Delete { .. }, None) => Ok(None),
    }
}
