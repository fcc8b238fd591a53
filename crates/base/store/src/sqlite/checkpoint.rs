//! Moves what is in the WAL into the file, away from the path of commits.
//!
//! A thread with its own connection copies most of it while the writer goes on. What was written meanwhile is little;
//! the writer copies that itself between two groups, after which SQLite begins the WAL anew in the same place. So the
//! WAL stays small, and it is overwritten instead of grown, which makes syncing it cheaper.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI32, Ordering},
        mpsc::{SyncSender, sync_channel},
    },
    thread::JoinHandle,
};

use rusqlite::Connection;

use super::{
    fault::{self, During},
    schema,
};
use crate::Error;

/// A checkpoint is due when the WAL has this many pages (of 4 KiB).
const CHECKPOINT_PAGES: i32 = 2048;
/// The same when the disk is nearly full.
const CHECKPOINT_PAGES_LOW_DISK: i32 = 128;

pub(super) struct Checkpoints {
    /// How long the WAL is; SQLite tells after every commit.
    pages: Arc<AtomicI32>,
    /// The thread has copied its part; the rest is the writer's.
    copied: Arc<AtomicBool>,
    /// The number of pages from which on a checkpoint is due.
    due_at: i32,
    start: SyncSender<()>,
    thread: JoinHandle<()>,
}

impl Checkpoints {
    pub(super) fn start(path: &Path, writer: &mut Connection) -> rusqlite::Result<Self> {
        let pages = Arc::new(AtomicI32::new(0));
        let length = Arc::clone(&pages);
        writer.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, pages| {
            length.store(pages, Ordering::Relaxed);
            Ok(())
        }))?;
        let db = schema::connect(path)?;
        let copied = Arc::new(AtomicBool::new(false));
        let done = Arc::clone(&copied);
        let (start, starts) = sync_channel(1);
        let thread = std::thread::Builder::new()
            .name("store-checkpoint".into())
            .spawn(move || {
                while starts.recv().is_ok() {
                    copy(&db, "PASSIVE");
                    done.store(true, Ordering::Release);
                }
            })
            .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
        Ok(Self { pages, copied, due_at: CHECKPOINT_PAGES, start, thread })
    }

    /// Keeps the WAL short, or no longer.
    pub(super) fn hurry(&mut self, is_tight: bool) {
        self.due_at = if is_tight { CHECKPOINT_PAGES_LOW_DISK } else { CHECKPOINT_PAGES };
    }

    /// There is something to [`tend`](Self::tend) to.
    pub(super) fn is_due(&self) -> bool {
        self.copied.load(Ordering::Relaxed) || self.pages.load(Ordering::Relaxed) >= self.due_at
    }

    /// The rest is the writer's, which must have no transaction open.
    pub(super) fn awaits_writer(&self) -> bool {
        self.copied.load(Ordering::Relaxed)
    }

    /// To be called by the writer between two groups.
    pub(super) fn tend(&self, writer: &Connection) {
        if writer.is_autocommit() && self.copied.swap(false, Ordering::AcqRel) {
            copy(writer, "PASSIVE");
            self.pages.store(0, Ordering::Relaxed);
        } else if self.pages.load(Ordering::Relaxed) >= self.due_at {
            // One is already under way if this does not fit.
            let _ = self.start.try_send(());
        }
    }

    /// Moves as much as can be moved now, to make room in the WAL. False if the disk has no room for that.
    pub(super) fn relieve(&self, writer: &Connection) -> bool {
        if !writer.is_autocommit() {
            return true;
        }
        self.pages.store(0, Ordering::Relaxed);
        copy(writer, "PASSIVE")
    }

    /// Moves everything and cuts the WAL to nothing.
    pub(super) fn empty(&self, writer: &Connection) -> Result<(), Error> {
        let failed = |error| fault::explain(&error, During::Write);
        let busy = || writer.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0));
        // Readers come and go; SQLite waits for each of them a while.
        for _ in 0..5 {
            if busy().map_err(failed)? == 0 {
                self.pages.store(0, Ordering::Relaxed);
                return Ok(());
            }
        }
        Err(Error::Unavailable("the write-ahead log is still being read".into()))
    }

    /// The last one, when nothing is written any more.
    pub(super) fn finish(self, writer: &Connection) {
        drop(self.start);
        let _ = self.thread.join();
        copy(writer, "TRUNCATE");
    }
}

/// A failure (a full disk, say) costs nothing but space: the WAL is kept, and the next attempt moves it. False if the disk
/// is full.
fn copy(db: &Connection, mode: &str) -> bool {
    let result = db.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |_| Ok(()));
    let Err(error) = result else { return true };
    tracing::warn!(%error, "the write-ahead log could not be moved into the store; trying again later");
    !matches!(fault::explain(&error, During::Write), Error::Full(_))
}
