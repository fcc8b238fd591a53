//! The store in one SQLite file: the default, at the center and on every edge.
//!
//! How it keeps the contract
//! - Every change is one row of an append-only log, keyed by `revision << 16 | index`; a small table of live keys
//!   points to each key's newest row. A row names the row that it replaces, so ranges in the past, watches and trimming
//!   all read the log by its primary key, and no other index has to be kept.
//! - One thread writes at a time: the writer thread, or the caller of a commit that finds no other one queued. It takes
//!   every commit that is waiting, compares and applies them one after another in one SQLite transaction, and answers and
//!   publishes only when that is durable: after `COMMIT` (WAL, `synchronous=FULL`), or, while writes come in quick
//!   succession, when the group is in the journal. Then the transaction stays open for more. One sync per group either way.
//! - What the journal has and the file lacks is in memory, too: a read takes the file, and then that.
//! - A watcher is a cursor: the last revision it has seen. What follows comes from a small ring of recent batches, or
//!   from the log when the ring no longer reaches back far enough. There is no moment of switching, hence no gap, no
//!   duplicate, and no queue that a slow watcher could fill.
//! - The newest revision is written down before the row that carries it can be trimmed: revisions are never used twice.
//!
//! What it costs: two b-tree inserts per change; its size in the journal and somewhat more in the WAL; one sync per
//! group of commits; memory for the page caches, the ring, and nothing per key.

mod checkpoint;
mod fault;
mod group_commit;
mod journal;
mod reader;
mod recent;
mod recovery;
mod reserve;
mod schema;
mod watcher;
mod writer;

#[cfg(test)]
mod damage_tests;
#[cfg(test)]
mod tests;

use std::{
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    thread::JoinHandle,
    time::Duration,
};

use async_trait::async_trait;
use futures::stream;
use rusqlite::{Connection, OpenFlags};
use tokio::sync::{oneshot, watch};

use self::{
    group_commit::{Committer, Job},
    reader::Readers,
    recent::Recent,
    watcher::Cursor,
    writer::{Task, Writer},
};
#[doc(hidden)]
pub use journal::check_journal_record;

use crate::{Commit, Error, Outcome, Page, Range, Revision, Store, Watch};

#[derive(Clone, Debug)]
pub struct SqliteOptions {
    /// History is trimmed by itself once it is older than both of these. `u64::MAX` keeps everything.
    pub keep_revisions: u64,
    pub keep_for: Duration,
    /// How many reads run at once; each has its own connection and page cache.
    pub readers: usize,
    /// The file may not grow beyond this; then writes answer `Full`. `None`: as far as the disk goes.
    pub max_bytes: Option<u64>,
    /// Opens a store although writes that were acknowledged are lost. Revisions then go on far behind the lost ones.
    pub accept_lost_writes: bool,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self {
            keep_revisions: 10_000,
            keep_for: Duration::from_secs(300),
            readers: 4,
            max_bytes: None,
            accept_lost_writes: false,
        }
    }
}

pub struct SqliteStore {
    shared: Arc<Shared>,
    committer: Arc<Committer>,
    jobs: mpsc::Sender<Job>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

const DIED: &str = "the thread that writes the store was ended by a panic";

/// What the writer thread, the readers and the watchers have in common.
struct Shared {
    readers: Readers,
    recent: Mutex<Recent>,
    /// The newest published revision; also what watchers wait for.
    newest: watch::Sender<Revision>,
    oldest: AtomicU64,
    closed: AtomicBool,
    /// The writer was ended by a panic.
    died: watch::Sender<bool>,
}

// === impl SqliteStore ===

impl SqliteStore {
    /// Opens the store in `dir`, making both when they are not there. Blocks: reads and perhaps repairs files.
    pub fn open(dir: &Path, options: SqliteOptions) -> Result<Self, Error> {
        let mut opened = schema::open(dir, &options)?;
        let mut recent = Recent::new(opened.settled);
        std::mem::take(&mut opened.unsettled).into_iter().for_each(|batch| recent.push(Arc::new(batch)));
        let shared = Arc::new(Shared {
            readers: Readers::new(opened.path.clone(), options.readers),
            recent: Mutex::new(recent),
            newest: watch::Sender::new(opened.newest),
            oldest: AtomicU64::new(opened.oldest),
            closed: AtomicBool::new(false),
            died: watch::Sender::new(false),
        });
        let (jobs, queue) = mpsc::channel();
        let writer = Writer::new(opened, options, Arc::clone(&shared))?;
        let (committer, thread) = group_commit::start(writer, queue, Arc::clone(&shared))?;
        Ok(Self { shared, committer, jobs, thread: Mutex::new(Some(thread)) })
    }

    /// Another process has this store open.
    pub fn is_in_use(dir: &Path) -> bool {
        schema::is_locked(dir)
    }

    /// Copies the store in `dir`, which may be in use, into a new file: all of it as of one revision. What was written
    /// in the last moment may be only in the journal, and missing in the copy.
    pub fn copy(dir: &Path, to: &Path) -> Result<(), Error> {
        let from = dir.join(schema::FILE);
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let copied = Connection::open_with_flags(&from, flags)
            .and_then(|db| db.execute("VACUUM INTO ?1", [to.to_string_lossy()]).map(|_| ()));
        copied.map_err(fault::reading)
    }

    async fn write(&self, task: Task) -> Result<Outcome, Error> {
        self.shared.check_open()?;
        match self.committer.try_inline(task) {
            Ok(written) => {
                // So that others have their turn between many of these.
                tokio::task::coop::consume_budget().await;
                written
            }
            Err(task) => self.ask(|reply| Job::Commit(task, reply)).await,
        }
    }

    async fn ask<T>(&self, job: impl FnOnce(oneshot::Sender<Result<T, Error>>) -> Job) -> Result<T, Error> {
        self.shared.check_open()?;
        let (reply, answer) = oneshot::channel();
        self.committer.job_queued();
        self.jobs.send(job(reply)).map_err(|_| Error::Closed)?;
        answer.await.map_err(|_| Error::Closed)?
    }

    fn stop(&self) -> Option<JoinHandle<()>> {
        // A closed channel means that the writer is gone already, which is what we want.
        let _ = self.jobs.send(Job::Stop);
        self.thread.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn commit(&self, mut commit: Commit) -> Result<Outcome, Error> {
        commit.ops = commit.sorted_ops();
        if commit.ops.len() > schema::MAX_OPS {
            return Err(Error::Unusable(format!("a commit changes at most {} keys", schema::MAX_OPS)));
        }
        self.write(Task { commit, apart: false, frees: false }).await
    }

    async fn commit_freeing(&self, mut commit: Commit) -> Result<Outcome, Error> {
        commit.ops = commit.sorted_ops();
        if commit.ops.len() > schema::MAX_OPS {
            return Err(Error::Unusable(format!("a commit changes at most {} keys", schema::MAX_OPS)));
        }
        self.write(Task { commit, apart: false, frees: true }).await
    }

    async fn commit_apart(&self, mut commit: Commit) -> Result<Outcome, Error> {
        commit.ops = commit.distinct_ops();
        self.write(Task { commit, apart: true, frees: false }).await
    }

    async fn range(&self, range: Range, limit: usize, at: Option<Revision>) -> Result<Page, Error> {
        self.shared.check_open()?;
        // Before the file is looked at, or something could be in neither.
        let unsettled = self.shared.recent().unsettled();
        let page = self.shared.readers.run(move |db| reader::range(db, &range, limit, at, &unsettled)).await?;
        self.shared.published(page.revision).await?;
        Ok(page)
    }

    async fn revision(&self) -> Result<Revision, Error> {
        self.shared.check_open()?;
        Ok(*self.shared.newest.borrow())
    }

    async fn watch(&self, range: Range, after: Revision) -> Result<Watch, Error> {
        self.shared.check_open()?;
        let newest = *self.shared.newest.borrow();
        if after > newest {
            return Err(Error::Future { asked: after, newest });
        }
        self.shared.check_kept(after)?;
        let cursor = Cursor::new(Arc::clone(&self.shared), range, after);
        Ok(Box::pin(stream::unfold(Some(cursor), |cursor| async {
            let mut cursor = cursor?;
            match cursor.next().await {
                Ok(batch) => Some((Ok(batch), Some(cursor))),
                Err(error) => Some((Err(error), None)),
            }
        })))
    }

    async fn compact(&self, revision: Revision) -> Result<(), Error> {
        self.ask(|reply| Job::Compact(revision, reply)).await
    }

    async fn oldest(&self) -> Result<Revision, Error> {
        self.shared.check_open()?;
        Ok(self.shared.oldest.load(Ordering::Acquire))
    }

    async fn scrub(&self) -> Result<(), Error> {
        self.ask(Job::Scrub).await
    }

    async fn check(&self) -> Result<(), Error> {
        if *self.shared.died.borrow() {
            return Err(Error::Unusable(DIED.into()));
        }
        self.ask(Job::Check).await
    }

    async fn died(&self) -> String {
        let mut died = self.shared.died.subscribe();
        // The sender lives as long as the store: this ends only when it says so.
        let _ = died.wait_for(|died| *died).await;
        DIED.into()
    }

    async fn close(&self) {
        if let Some(thread) = self.stop() {
            // Joining waits for the running commits and the last checkpoint. The thread has nothing to report.
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
    }
}

impl Drop for SqliteStore {
    /// Waits for the writer, so that the directory can be opened again right away.
    fn drop(&mut self) {
        if let Some(thread) = self.stop() {
            let _ = thread.join();
        }
    }
}

// === impl Shared ===

impl Shared {
    fn check_open(&self) -> Result<(), Error> {
        if self.closed.load(Ordering::Acquire) { Err(Error::Closed) } else { Ok(()) }
    }

    fn check_kept(&self, asked: Revision) -> Result<(), Error> {
        let oldest = self.oldest.load(Ordering::Acquire);
        if asked < oldest { Err(Error::Compacted { asked, oldest }) } else { Ok(()) }
    }

    /// A reader may see a commit in the file just before the writer publishes it. Waiting for that moment keeps
    /// `revision` and `watch` from looking older than a page that was already handed out.
    async fn published(&self, revision: Revision) -> Result<(), Error> {
        if *self.newest.borrow() >= revision {
            return Ok(());
        }
        let mut newest = self.newest.subscribe();
        newest.wait_for(|&newest| newest >= revision || self.check_open().is_err()).await.map_err(|_| Error::Closed)?;
        Ok(())
    }

    /// The writer's state is not known after a panic, so nothing more is written. What was acknowledged is durable; the
    /// process is to be ended and started anew.
    fn die(&self) {
        self.closed.store(true, Ordering::Release);
        self.died.send_replace(true);
        self.wake();
    }

    /// Wakes every watcher; they look for themselves at what has changed.
    fn wake(&self) {
        self.newest.send_modify(|_| ());
    }

    fn recent(&self) -> std::sync::MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
