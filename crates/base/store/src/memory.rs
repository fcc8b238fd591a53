//! The store in plain maps: for tests, and the model that the other backends are compared with.
//!
//! It keeps the contract by being obvious: one lock around every version of every key, and watchers that each carry a
//! cursor into one list of batches. It costs all the memory of all kept history, and nothing survives the process.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream;
use tokio::sync::watch;

use crate::{Batch, Commit, Entry, Error, Event, Op, Outcome, Page, Range, Revision, Store, Watch};

pub struct MemoryStore {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    /// Tells watchers that there is something to look at; what it is, they read from the state.
    changed: watch::Sender<()>,
}

#[derive(Default)]
struct State {
    newest: Revision,
    oldest: Revision,
    /// The next one is at least this.
    next: Revision,
    closed: bool,
    /// Every kept version of a key, oldest first.
    keys: BTreeMap<String, Vec<Version>>,
    log: BTreeMap<Revision, Vec<Event>>,
}

struct Version {
    modified: Revision,
    /// `None`: deleted here.
    live: Option<(Bytes, Revision)>,
}

// === impl MemoryStore ===

impl MemoryStore {
    pub fn new() -> Self {
        Self::beginning_at(0)
    }

    /// One that is empty at this revision, and remembers nothing from before it.
    pub fn beginning_at(revision: Revision) -> Self {
        let state = State { newest: revision, oldest: revision, ..State::default() };
        Self { shared: Arc::new(Shared { state: Mutex::new(state), changed: watch::Sender::new(()) }) }
    }

    /// The next commit that changes something takes at least this revision.
    pub fn next_is_at_least(&self, revision: Revision) {
        let mut state = self.shared.lock();
        state.next = state.next.max(revision);
    }

    /// The same as [`Store::close`], for who cannot wait.
    pub fn shut(&self) {
        self.shared.lock().closed = true;
        self.shared.changed.send_replace(());
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn commit(&self, commit: Commit) -> Result<Outcome, Error> {
        let outcome = self.shared.open()?.commit(commit, false);
        self.shared.changed.send_replace(());
        Ok(outcome)
    }

    async fn commit_apart(&self, commit: Commit) -> Result<Outcome, Error> {
        let outcome = self.shared.open()?.commit(commit, true);
        self.shared.changed.send_replace(());
        Ok(outcome)
    }

    async fn range(&self, range: Range, limit: usize, at: Option<Revision>) -> Result<Page, Error> {
        self.shared.open()?.range(&range, limit, at)
    }

    async fn revision(&self) -> Result<Revision, Error> {
        Ok(self.shared.open()?.newest)
    }

    async fn watch(&self, range: Range, after: Revision) -> Result<Watch, Error> {
        self.shared.open()?.check_kept(after)?;
        let changed = self.shared.changed.subscribe();
        let cursor = Cursor { shared: Arc::clone(&self.shared), changed, range, after };
        Ok(Box::pin(stream::unfold(Some(cursor), |cursor| async {
            let mut cursor = cursor?;
            match cursor.next().await {
                Ok(batch) => Some((Ok(batch), Some(cursor))),
                Err(error) => Some((Err(error), None)),
            }
        })))
    }

    async fn compact(&self, revision: Revision) -> Result<(), Error> {
        self.shared.open()?.compact(revision)?;
        self.shared.changed.send_replace(());
        Ok(())
    }

    async fn oldest(&self) -> Result<Revision, Error> {
        Ok(self.shared.open()?.oldest)
    }

    async fn close(&self) {
        self.shut();
    }
}

// === impl Shared ===

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self) -> Result<MutexGuard<'_, State>, Error> {
        let state = self.lock();
        if state.closed { Err(Error::Closed) } else { Ok(state) }
    }
}

// === impl State ===

impl State {
    fn commit(&mut self, mut commit: Commit, apart: bool) -> Outcome {
        for compare in &commit.compares {
            let found = self.live(&compare.key).map_or(0, |version| version.modified);
            if found != compare.modified {
                return Outcome::Conflict { key: compare.key.clone(), found };
            }
        }
        if apart {
            commit.distinct_ops().into_iter().for_each(|op| self.change(vec![op]));
        } else {
            self.change(commit.sorted_ops());
        }
        Outcome::Committed(self.newest)
    }

    /// At one new revision, if anything changes.
    fn change(&mut self, ops: Vec<Op>) {
        let revision = self.next.max(self.newest + 1);
        let mut events = Vec::new();
        for op in ops {
            let created = self.live(op.key()).and_then(|version| version.live.as_ref()).map(|(_, created)| *created);
            let (key, live) = match op {
                Op::Put { key, value } => (key, Some((value, created.unwrap_or(revision)))),
                Op::Delete { .. } if created.is_none() => continue,
                Op::Delete { key } => (key, None),
            };
            let version = Version { modified: revision, live };
            events.push(match version.entry(&key) {
                Some(entry) => Event::Put(entry),
                None => Event::Delete { key: key.clone(), revision },
            });
            self.keys.entry(key).or_default().push(version);
        }
        if !events.is_empty() {
            self.newest = revision;
            self.log.insert(revision, events);
        }
    }

    fn live(&self, key: &str) -> Option<&Version> {
        self.keys.get(key)?.last().filter(|version| version.live.is_some())
    }

    fn range(&self, range: &Range, limit: usize, at: Option<Revision>) -> Result<Page, Error> {
        let revision = at.unwrap_or(self.newest);
        self.check_kept(revision)?;
        let mut page = Page { revision, entries: Vec::new(), more: false };
        if range.is_empty() {
            return Ok(page);
        }
        for (key, versions) in self.keys.range::<str, _>(range.bounds()) {
            let seen = versions.iter().rev().find(|version| version.modified <= revision);
            let Some(entry) = seen.and_then(|version| version.entry(key)) else { continue };
            if limit > 0 && page.entries.len() == limit {
                page.more = true;
                break;
            }
            page.entries.push(entry);
        }
        Ok(page)
    }

    fn check_kept(&self, revision: Revision) -> Result<(), Error> {
        if revision < self.oldest {
            return Err(Error::Compacted { asked: revision, oldest: self.oldest });
        }
        if revision > self.newest {
            return Err(Error::Future { asked: revision, newest: self.newest });
        }
        Ok(())
    }

    fn compact(&mut self, revision: Revision) -> Result<(), Error> {
        if revision <= self.oldest {
            return Ok(());
        }
        self.check_kept(revision)?;
        self.oldest = revision;
        self.log = self.log.split_off(&(revision + 1));
        self.keys.retain(|_, versions| {
            let superseded = versions.iter().rposition(|version| version.modified <= revision).unwrap_or(0);
            versions.drain(..superseded);
            versions.len() > 1 || versions.iter().any(|version| version.live.is_some() || version.modified > revision)
        });
        Ok(())
    }
}

// === impl Version ===

impl Version {
    fn entry(&self, key: &str) -> Option<Entry> {
        let (value, created) = self.live.clone()?;
        Some(Entry { key: key.to_owned(), value, created, modified: self.modified })
    }
}

/// Where a watcher has got to.
struct Cursor {
    shared: Arc<Shared>,
    changed: watch::Receiver<()>,
    range: Range,
    after: Revision,
}

// === impl Cursor ===

impl Cursor {
    async fn next(&mut self) -> Result<Batch, Error> {
        loop {
            self.changed.borrow_and_update();
            if let Some(batch) = self.step()? {
                return Ok(batch);
            }
            self.changed.changed().await.map_err(|_| Error::Closed)?;
        }
    }

    fn step(&mut self) -> Result<Option<Batch>, Error> {
        let state = self.shared.open()?;
        state.check_kept(self.after)?;
        for (&revision, events) in state.log.range(self.after + 1..) {
            self.after = revision;
            let events: Vec<_> = events.iter().filter(|event| self.range.contains(event.key())).cloned().collect();
            if !events.is_empty() {
                return Ok(Some(Batch { revision, events }));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;

    use super::*;

    fn put(key: &str) -> Commit {
        Commit { ops: vec![Op::Put { key: key.into(), value: Bytes::from_static(b"x") }], ..Commit::default() }
    }

    #[tokio::test]
    async fn begins_where_it_is_told() {
        let store = MemoryStore::beginning_at(40);
        assert_eq!((store.revision().await.unwrap(), store.oldest().await.unwrap()), (40, 40));
        assert!(matches!(store.watch(Range::all(), 39).await, Err(Error::Compacted { asked: 39, oldest: 40 })));
        let mut feed = store.watch(Range::all(), 40).await.unwrap();
        assert_eq!(store.commit(put("a")).await.unwrap(), Outcome::Committed(41));
        store.next_is_at_least(50);
        assert_eq!(store.commit(Commit::default()).await.unwrap(), Outcome::Committed(41));
        assert_eq!(store.commit(put("b")).await.unwrap(), Outcome::Committed(50));
        store.next_is_at_least(7);
        assert_eq!(store.commit(put("c")).await.unwrap(), Outcome::Committed(51));
        for revision in [41, 50, 51] {
            assert_eq!(feed.next().await.unwrap().unwrap().revision, revision);
        }
        store.shut();
        assert!(matches!(feed.next().await, Some(Err(Error::Closed))));
    }
}
