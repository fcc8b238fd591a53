//! A revisioned, watchable key-value store: ordered keys, byte values, one global revision.
//!
//! This crate knows nothing of Kubernetes. One trait, several backends, one suite of contract tests for all of them.

mod etcd;
mod memory;
mod sealed;
mod sqlite;

use std::{collections::HashMap, ops::Bound, pin::Pin};

use async_trait::async_trait;
use bytes::Bytes;
use futures::Stream;

pub use etcd::{EtcdOptions, EtcdStore, EtcdTls};
pub use memory::MemoryStore;
pub use sealed::{KeyFile, KeyStatus, Rotated, SealedStore, Sealing};
#[doc(hidden)]
pub use sqlite::check_journal_record;
pub use sqlite::{SqliteOptions, SqliteStore};

/// Grows by one with every commit. All keys of one commit share it (but see [`Store::commit_apart`]). 0 is before the
/// first commit.
pub type Revision = u64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub key: String,
    pub value: Bytes,
    pub created: Revision,
    pub modified: Revision,
}

/// A commit happens wholly or not at all: every compare must hold, then every op is done, at one new revision.
#[derive(Clone, Debug, Default)]
pub struct Commit {
    pub compares: Vec<Compare>,
    /// At most one op per key.
    pub ops: Vec<Op>,
}

/// The key's last modification must be exactly this revision; 0 means that the key must not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compare {
    pub key: String,
    pub modified: Revision,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    Put {
        key: String,
        value: Bytes,
    },
    /// Deleting what does not exist changes nothing and makes no event.
    Delete {
        key: String,
    },
}

/// What became of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Durable at this revision, and visible to every read and watch from now on.
    Committed(Revision),
    /// This compare did not hold; nothing was changed. `found` is the key's real last modification, 0 if it is not
    /// there.
    Conflict { key: String, found: Revision },
}

/// Keys from `start` (inclusive) to `end` (exclusive); an empty `end` means no upper end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    pub start: String,
    pub end: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The revision that this page shows: the one asked for, or the newest.
    pub revision: Revision,
    pub entries: Vec<Entry>,
    /// There are further keys in the range behind the last entry.
    pub more: bool,
}

/// All changes of one commit that fall into the watched range, in the order of their keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    pub revision: Revision,
    pub events: Vec<Event>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Put(Entry),
    Delete { key: String, revision: Revision },
}

pub type Watch = Pin<Box<dyn Stream<Item = Result<Batch, Error>> + Send>>;

#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    #[error("revision {asked} is no longer kept, the oldest is {oldest}")]
    Compacted { asked: Revision, oldest: Revision },
    #[error("revision {asked} is not there yet, the newest is {newest}")]
    Future { asked: Revision, newest: Revision },
    /// The disk is full. Reads still work; nothing that was acknowledged is lost.
    #[error("the disk is full: {0}. Free some space; writes work again as soon as there is room")]
    Full(String),
    /// Cannot be opened or is damaged: says what, where and what to do.
    #[error("{0}")]
    Unusable(String),
    /// The commit may or may not have happened (connection to etcd lost, disk error while syncing).
    #[error("it is not known whether the write took place: {0}")]
    Unknown(String),
    #[error("the store cannot be reached: {0}")]
    Unavailable(String),
    #[error("the store is closed")]
    Closed,
}

#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Compares and commits. `Committed` means durable: it survives `kill -9` and power loss.
    ///
    /// The first compare that does not hold is the conflict. A commit that changes nothing (no ops, or only deletes of
    /// what is not there) takes no new revision: it answers `Committed` with the newest one.
    async fn commit(&self, commit: Commit) -> Result<Outcome, Error>;

    /// As [`Store::commit`], for a commit that deletes something or leads to that: on a full disk it may use space that
    /// is reserved for it.
    async fn commit_freeing(&self, commit: Commit) -> Result<Outcome, Error> {
        self.commit(commit).await
    }

    /// As [`Store::commit`], wholly or not at all, but every op takes a revision of its own, in the order of the ops: a
    /// watch that is resumed from any of them misses none. `Committed` has the last. A store that cannot do this takes
    /// one for all.
    async fn commit_apart(&self, commit: Commit) -> Result<Outcome, Error> {
        self.commit(commit).await
    }

    /// Entries in key order, at most `limit` (0: all), as of `at` (`None`: now, after everything committed before this
    /// call). An `at` before the oldest kept revision is `Compacted`, one behind the newest is `Future`.
    async fn range(&self, range: Range, limit: usize, at: Option<Revision>) -> Result<Page, Error>;

    async fn get(&self, key: &str) -> Result<Option<Entry>, Error> {
        let page = self.range(Range::one(key), 1, None).await?;
        Ok(page.entries.into_iter().next())
    }

    /// The newest revision.
    async fn revision(&self) -> Result<Revision, Error>;

    /// Every commit after `after` that touches the range, in order, none missing and none twice, past ones first. Ends
    /// with `Compacted` when the reader asks for, or has fallen behind to, what is no longer kept: an `after` before
    /// the oldest kept revision. An `after` behind the newest is `Future`. Ends with `Closed` when the store is closed.
    async fn watch(&self, range: Range, after: Revision) -> Result<Watch, Error>;

    /// Forgets history before `revision`: ranges and watches from before it answer `Compacted`. Current values stay.
    /// Compacting again to the same or an earlier one does nothing; one behind the newest is `Future`.
    async fn compact(&self, revision: Revision) -> Result<(), Error>;

    /// The oldest revision that `range` can still show.
    async fn oldest(&self) -> Result<Revision, Error>;

    /// Whether the store can do its work, found out without changing anything. The caller limits how long it takes.
    async fn check(&self) -> Result<(), Error> {
        self.revision().await.map(|_| ())
    }

    /// Answers when the store has ended for a reason of its own and can only be opened anew, and says why: never,
    /// mostly.
    async fn died(&self) -> String {
        std::future::pending().await
    }

    /// Makes watches of everything reach the newest revision soon, if need be by an empty batch: where others may raise
    /// the revision too, the newest one need not be a change of ours.
    async fn nudge(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Leaves nothing in files of what was replaced, deleted or compacted, as far as that is in the store's hands.
    /// Writes may have to wait for it.
    async fn scrub(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Waits for running commits and closes files. Later calls answer `Closed`.
    async fn close(&self);
}

impl Commit {
    /// Takes the ops out, in the order in which they were given. Of several ops on one key, only the last one is kept.
    pub(crate) fn distinct_ops(&mut self) -> Vec<Op> {
        let ops = std::mem::take(&mut self.ops);
        let last: HashMap<String, usize> = ops.iter().enumerate().map(|(at, op)| (op.key().to_owned(), at)).collect();
        ops.into_iter().enumerate().filter(|(at, op)| last.get(op.key()) == Some(at)).map(|(_, op)| op).collect()
    }

    /// Takes the ops out, in the order of their keys, which is the order of a batch. Of several ops on one key, only
    /// the last one is kept.
    pub(crate) fn sorted_ops(&mut self) -> Vec<Op> {
        let mut ops = std::mem::take(&mut self.ops);
        ops.sort_by(|a, b| a.key().cmp(b.key()));
        ops.dedup_by(|later, kept| {
            let same = later.key() == kept.key();
            if same {
                std::mem::swap(later, kept);
            }
            same
        });
        ops
    }
}

impl Op {
    pub fn key(&self) -> &str {
        match self {
            Self::Put { key, .. } | Self::Delete { key } => key,
        }
    }
}

impl Range {
    pub fn one(key: &str) -> Self {
        Self { start: key.to_owned(), end: format!("{key}\0") }
    }

    /// All keys that begin with `prefix`.
    pub fn prefix(prefix: &str) -> Self {
        // The order of UTF-8 bytes is the order of code points, so the next character makes the next prefix.
        let mut end = prefix.to_owned();
        while let Some(last) = end.pop() {
            if let Some(next) = (last..=char::MAX).nth(1) {
                end.push(next);
                break;
            }
        }
        Self { start: prefix.to_owned(), end }
    }

    pub fn all() -> Self {
        Self { start: String::new(), end: String::new() }
    }

    /// No key can be in it.
    pub fn is_empty(&self) -> bool {
        !self.end.is_empty() && self.start >= self.end
    }

    pub fn contains(&self, key: &str) -> bool {
        self.start.as_str() <= key && (self.end.is_empty() || key < self.end.as_str())
    }

    pub fn bounds(&self) -> (Bound<&str>, Bound<&str>) {
        let end = if self.end.is_empty() { Bound::Unbounded } else { Bound::Excluded(self.end.as_str()) };
        (Bound::Included(self.start.as_str()), end)
    }
}

impl Event {
    pub fn key(&self) -> &str {
        match self {
            Self::Put(entry) => &entry.key,
            Self::Delete { key, .. } => key,
        }
    }
}
