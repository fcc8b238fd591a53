//! The one thread that writes: group commit, compaction, trimming.

use std::{
    collections::VecDeque,
    fs::File,
    sync::{
        Arc,
        atomic::Ordering,
        mpsc::{Receiver, RecvTimeoutError},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use rusqlite::{Connection, OptionalExtension};
use tokio::sync::oneshot;

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

pub(super) enum Job {
    /// The ops name each key once, and are sorted unless they are done apart.
    Commit(Task, Reply<Outcome>),
    Compact(Revision, Reply<()>),
    Scrub(Reply<()>),
    Stop,
}

type Reply<T> = oneshot::Sender<Result<T, Error>>;

/// A group that grows without end would keep its first callers waiting.
const MAX_GROUP: usize = 1024;
/// Rows that are trimmed along with a group, which costs no further sync; and alone, when there is nothing else to do.
const TRIM_ALONG: usize = 64;
const TRIM_IDLE: usize = 512;
/// How long a group waits for those who were there last time and are about to come again. Syncing takes longer than this,
/// and one sync for all is better than one for the first and one for the rest.
const GATHER: Duration = Duration::from_micros(200);
/// How often the age of history is looked at.
const SAMPLE: Duration = Duration::from_secs(5);

struct Writer {
    db: Connection,
    jobs: Receiver<Job>,
    /// Came while the last group was being synced.
    waiting: VecDeque<Job>,
    /// How many callers there seem to be: the last group's, and those who came meanwhile.
    crowd: usize,
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

pub(super) fn start(
    opened: Opened,
    options: SqliteOptions,
    shared: Arc<Shared>,
    jobs: Receiver<Job>,
) -> Result<JoinHandle<()>, Error> {
    let Opened { mut db, path, lock, newest, oldest, trimmed } = opened;
    let checkpoints = Checkpoints::start(&path, &mut db).map_err(|error| fault::explain(&error, During::Write))?;
    let samples = VecDeque::from([(Instant::now(), newest)]);
    let (waiting, crowd) = (VecDeque::new(), 1);
    let writer = Writer {
        db,
        jobs,
        waiting,
        crowd,
        shared,
        options,
        checkpoints,
        newest,
        oldest,
        trimmed,
        samples,
        at_rest: false,
        _lock: lock,
    };
    std::thread::Builder::new()
        .name("store-writer".into())
        .spawn(move || writer.run())
        .map_err(|error| Error::Unavailable(format!("cannot start the store's writer: {error}")))
}

// === impl Writer ===

impl Writer {
    fn run(mut self) {
        let mut stop = false;
        while !stop {
            let mut commits = Vec::new();
            let mut compacts = Vec::new();
            let mut scrubs = Vec::new();
            let wait = if self.trim_is_due() { Duration::from_millis(2) } else { SAMPLE };
            let mut next = match self.waiting.pop_front() {
                Some(job) => Ok(job),
                None => self.jobs.recv_timeout(wait),
            };
            let idle = next.is_err();
            let until = Instant::now() + GATHER;
            loop {
                match next {
                    Ok(Job::Commit(commit, reply)) => commits.push((commit, reply)),
                    Ok(Job::Compact(revision, reply)) => compacts.push((revision, reply)),
                    Ok(Job::Scrub(reply)) => scrubs.push(reply),
                    // Also when every sender is gone.
                    Ok(Job::Stop) | Err(RecvTimeoutError::Disconnected) => stop = true,
                    Err(RecvTimeoutError::Timeout) => break,
                }
                if commits.len() >= MAX_GROUP || stop {
                    break;
                }
                next = self.gather(commits.len(), until);
            }
            self.commit(commits);
            for (revision, reply) in compacts {
                // Nobody waits any more if this fails.
                let _ = reply.send(self.compact(revision));
            }
            if !scrubs.is_empty() {
                let scrubbed = self.scrub();
                for reply in scrubs {
                    let _ = reply.send(scrubbed.clone());
                }
            }
            if idle {
                self.trim_alone();
            }
            if idle && wait == SAMPLE {
                self.rest();
            }
            self.age();
            self.checkpoints.tend(&self.db);
        }
        self.shared.closed.store(true, Ordering::Release);
        self.shared.wake();
        self.shared.readers.close();
        self.checkpoints.finish(&self.db);
    }

    fn gather(&mut self, gathered: usize, until: Instant) -> Result<Job, RecvTimeoutError> {
        if let Some(job) = self.waiting.pop_front() {
            return Ok(job);
        }
        let left = if gathered < self.crowd { until.saturating_duration_since(Instant::now()) } else { Duration::ZERO };
        self.jobs.recv_timeout(left)
    }

    fn commit(&mut self, commits: Vec<(Task, Reply<Outcome>)>) {
        if commits.is_empty() {
            return;
        }
        self.at_rest = false;
        match self.write(&commits) {
            Ok(group) => {
                self.publish(group.batches);
                // Before the replies go out, those who wait now are others than those of this group.
                self.waiting.extend(self.jobs.try_iter());
                self.crowd = commits.len() + self.waiting.len();
                for ((_, reply), outcome) in commits.into_iter().zip(group.outcomes) {
                    let _ = reply.send(Ok(outcome));
                }
            }
            // One of them may be too large for the room that is left; the others shall not suffer for it.
            Err(Error::Full(_)) if commits.len() > 1 => {
                for commit in commits {
                    self.commit(vec![commit]);
                }
            }
            Err(error) => {
                tracing::error!(%error, commits = commits.len(), "a write to the store failed");
                for (_, reply) in commits {
                    let _ = reply.send(Err(error.clone()));
                }
            }
        }
    }

    /// Durable when this returns: `COMMIT` syncs the log.
    fn write(&mut self, commits: &[(Task, Reply<Outcome>)]) -> Result<Group, Error> {
        let mut trimmed = self.trimmed;
        let group = self.transaction(|writer| {
            let mut group = Group::default();
            let mut newest = writer.newest;
            for (commit, _) in commits {
                let outcome = apply(&writer.db, commit, &mut newest, &mut group.batches)?;
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
    fn compact(&mut self, revision: Revision) -> Result<(), Error> {
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

    fn trim_is_due(&self) -> bool {
        self.trimmed + 1 < schema::first_row(self.oldest + 1)
    }

    fn trim_alone(&mut self) {
        if !self.trim_is_due() {
            return;
        }
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
    fn scrub(&mut self) -> Result<(), Error> {
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
