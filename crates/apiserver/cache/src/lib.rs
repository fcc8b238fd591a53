//! All objects in memory, in order, fed by the store's own watch.
//!
//! One task follows the store. It alone changes collections; every read takes a snapshot. A write is answered only after
//! this task has seen it, so whoever wrote can read it. Watchers hold no buffers: each remembers the revision up to which it
//! has read and is woken when there is more; one that falls behind the kept history is cut.

mod collection;
mod message;
pub mod object;
mod ordered;
mod told;

use std::{
    collections::HashMap,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use futures::StreamExt;
use store::{Batch, Entry, Event, Range, Revision, Store};
use tokio::sync::watch;

pub use collection::{Change, ChangeKind, Collection, Snapshot, TooOld};
pub use ordered::Ordered;
pub use told::Audience;

use crate::object::Object;

/// How many revisions of history a restart brings back, so that clients can resume their watches.
const RESUME: Revision = 2000;
/// How long a revision may take to arrive before the store is asked to help it along.
const PATIENCE: Duration = Duration::from_millis(50);
/// Objects are loaded in pages of this many.
const PAGE: usize = 5000;

/// What keys begin with that are no objects: whoever else keeps something in the store reads it there. The cache passes them over.
pub const NO_OBJECT: &str = "~";

/// Sees every change, in order, before anybody is told of its revision. Must be quick.
pub type Observer = Box<dyn Fn(&str, &Arc<Change>) + Send + Sync>;

pub struct Cache {
    store: Arc<dyn Store>,
    collections: RwLock<HashMap<Box<str>, Arc<Collection>>>,
    observers: Vec<Observer>,
    /// Everything up to here is in the collections.
    revision: watch::Sender<Revision>,
    /// History is complete after this revision.
    start: AtomicU64,
    /// Bytes of history of each collection.
    history: usize,
    /// Lists of a revision before this one are too old to be made.
    compacted: AtomicU64,
    /// The newest revision of which somebody was given a part of a list.
    paged: AtomicU64,
}

impl Cache {
    /// Reads everything and then follows the store until it is closed. Answers when the past is loaded.
    pub async fn load(
        store: Arc<dyn Store>,
        observers: Vec<Observer>,
        history: usize,
    ) -> Result<Arc<Self>, store::Error> {
        let newest = store.revision().await?;
        let start = store.oldest().await?.max(newest.saturating_sub(RESUME)).min(newest);
        let cache = Arc::new(Self {
            store,
            collections: RwLock::default(),
            observers,
            revision: watch::channel(start).0,
            start: AtomicU64::new(start),
            history,
            compacted: AtomicU64::new(0),
            paged: AtomicU64::new(0),
        });
        cache.load_at(start).await?;
        let mut feed = cache.store.watch(Range::all(), start).await?;
        // Here, and not yet in the background: what is wrong with the store's past is an error of this start.
        while cache.revision() < newest {
            match tokio::time::timeout(PATIENCE, feed.next()).await {
                Ok(Some(batch)) => cache.apply(&batch?),
                Ok(None) => return Err(store::Error::Closed),
                Err(_) => cache.store.nudge().await?,
            }
        }
        tokio::spawn(follow(Arc::downgrade(&cache), feed));
        Ok(cache)
    }

    async fn load_at(&self, revision: Revision) -> Result<(), store::Error> {
        if revision == 0 {
            return Ok(());
        }
        // Behind that, and behind every object's key, lies what is none.
        let mut range = Range { start: String::new(), end: NO_OBJECT.to_owned() };
        loop {
            let page = self.store.range(range.clone(), PAGE, Some(revision)).await?;
            let next = page.entries.last().map(|e| format!("{}\0", e.key));
            for entry in page.entries {
                let (name, local) = split(&entry.key);
                let change = Change::put(local, &entry, None);
                self.collection(name).load(change.object.clone());
                self.observe(name, &Arc::new(change));
            }
            match next {
                Some(next) if page.more => range.start = next,
                _ => return Ok(()),
            }
        }
    }

    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The collection of that name (`core/pods`), empty if nothing was ever stored in it.
    pub fn collection(&self, name: &str) -> Arc<Collection> {
        if let Some(found) = self.collections.read().unwrap_or_else(PoisonError::into_inner).get(name) {
            return found.clone();
        }
        let mut collections = self.collections.write().unwrap_or_else(PoisonError::into_inner);
        let history = if name.contains("/_") { 0 } else { self.history };
        let made = || Arc::new(Collection::new(self.start.load(Relaxed), history));
        collections.entry(name.into()).or_insert_with(made).clone()
    }

    pub fn names(&self) -> Vec<Box<str>> {
        self.collections.read().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
    }

    /// Nobody was ever told of what came before now: watches cannot start there.
    pub fn begin_here(&self) {
        let now = self.revision();
        self.start.store(now, Relaxed);
        for collection in self.collections.read().unwrap_or_else(PoisonError::into_inner).values() {
            collection.forget(now);
        }
    }

    /// Gives up history that has grown old. Lists of a revision before this one are refused from now on.
    pub fn age(&self, up_to: Revision) {
        self.compacted.fetch_max(up_to, Relaxed);
        for collection in self.collections.read().unwrap_or_else(PoisonError::into_inner).values() {
            collection.age(up_to);
        }
    }

    /// The oldest revision that can be listed.
    pub fn compacted(&self) -> Revision {
        self.compacted.load(Relaxed)
    }

    /// Somebody has a part of a list of that revision, and will ask for the rest.
    pub fn note_page(&self, revision: Revision) {
        self.paged.fetch_max(revision, Relaxed);
    }

    /// Whether somebody may still ask for the rest of a list of the newest revision.
    pub fn is_paged(&self) -> bool {
        self.paged.load(Relaxed) >= self.revision()
    }

    pub fn revision(&self) -> Revision {
        *self.revision.borrow()
    }

    /// A consistent view of one collection: nothing older than what this cache had seen when it was called.
    pub fn snapshot(&self, name: &str) -> Snapshot {
        let seen = self.revision();
        self.collection(name).snapshot(seen)
    }

    pub fn get(&self, name: &str, key: &str) -> Option<Arc<Object>> {
        self.collection(name).get(key)
    }

    /// Waits until everything up to `revision` can be read here.
    pub async fn wait_for(&self, revision: Revision) {
        let mut seen = self.revision.subscribe();
        // An error means that the cache is going away, and then nobody is left to read.
        let _ = seen.wait_for(|seen| *seen >= revision).await;
    }

    /// The same for a revision that the store itself named: it need not be a change of ours, so the store is asked to help
    /// when nothing comes.
    pub async fn catch_up(&self, revision: Revision) -> Result<(), store::Error> {
        while tokio::time::timeout(PATIENCE, self.wait_for(revision)).await.is_err() {
            self.store.nudge().await?;
        }
        Ok(())
    }

    /// For whoever lost to another: waits until what that one did can be read here. `found` is the revision of the key that was not as
    /// expected; one that was deleted has none.
    pub async fn see_why(&self, found: Revision) -> Result<(), store::Error> {
        let revision = if found == 0 { self.store.revision().await? } else { found };
        self.catch_up(revision).await
    }

    fn apply(&self, batch: &Batch) {
        let objects = batch.events.partition_point(|event| event.key() < NO_OBJECT);
        let mut rest = &batch.events[..objects];
        while let Some(first) = rest.first() {
            let name = split(first.key()).0;
            let end = rest.iter().position(|e| split(e.key()).0 != name).unwrap_or(rest.len());
            let changes = self.collection(name).apply(&rest[..end], |key| split(key).1);
            for change in &changes {
                self.observe(name, change);
            }
            rest = &rest[end..];
        }
        self.revision.send_if_modified(|seen| {
            let newer = batch.revision > *seen;
            *seen = batch.revision.max(*seen);
            newer
        });
    }

    fn observe(&self, name: &str, change: &Arc<Change>) {
        for observer in &self.observers {
            observer(name, change);
        }
    }
}

async fn follow(cache: std::sync::Weak<Cache>, mut feed: store::Watch) {
    while let Some(batch) = feed.next().await {
        let Some(cache) = cache.upgrade() else { return };
        match batch {
            Ok(batch) => cache.apply(&batch),
            Err(store::Error::Closed) => return,
            Err(error) => {
                // Without its feed this server would serve the past for ever. The process ends and is started anew.
                tracing::error!(%error, "the store's event feed broke; this server can no longer follow it");
                std::process::abort();
            }
        }
    }
}

/// `apps/deployments/root/default/web` → `apps/deployments`, `root/default/web`.
fn split(key: &str) -> (&str, &str) {
    let mut slashes = key.match_indices('/');
    slashes.next();
    match slashes.next() {
        Some((at, _)) => (&key[..at], &key[at + 1..]),
        None => (key, ""),
    }
}

impl Change {
    fn put(local: &str, entry: &Entry, previous: Option<Arc<Object>>) -> Self {
        let json = object::with_revision(&entry.value, entry.modified);
        let object = Arc::new(Object::new(local.into(), json, entry.created, entry.modified));
        let kind = if previous.is_some() { ChangeKind::Modified } else { ChangeKind::Added };
        Self::new(kind, object, previous)
    }

    fn delete(old: Arc<Object>, revision: Revision) -> Self {
        let object = Arc::new(old.at_revision(revision));
        Self::new(ChangeKind::Deleted, object, Some(old))
    }

    fn of(event: &Event, local: &str, items: &mut Ordered) -> Option<Self> {
        match event {
            Event::Put(entry) => {
                let mut change = Self::put(local, entry, None);
                change.previous = items.insert(change.object.clone());
                // Deleted and made again within one revision is a new object; an entry made earlier was only changed.
                if change.previous.is_some() {
                    change.kind = ChangeKind::Modified;
                }
                Some(change)
            }
            Event::Delete { revision, .. } => items.remove(local).map(|old| Self::delete(old, *revision)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::{Commit, MemoryStore, Op};

    #[tokio::test]
    async fn what_is_no_object_is_passed_over_but_moves_the_revision() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let put = |key: &str| Op::Put { key: key.to_owned(), value: bytes::Bytes::from_static(b"\xff not JSON") };
        let object =
            Op::Put { key: "core/pods/root/a/b".into(), value: object::encode(&serde_json::json!({"kind": "Pod"})) };
        store.commit(Commit { compares: vec![], ops: vec![put("~reports/a/b"), object.clone()] }).await.unwrap();
        let cache = Cache::load(store.clone(), Vec::new(), 1 << 20).await.unwrap();
        assert_eq!(cache.names(), ["core/pods".into()]);
        store.commit(Commit { compares: vec![], ops: vec![put("~reports/a/c"), object] }).await.unwrap();
        let outcome = store.commit(Commit { compares: vec![], ops: vec![put("~reports/a/d")] }).await.unwrap();
        assert_eq!(outcome, store::Outcome::Committed(3));
        tokio::time::timeout(Duration::from_secs(5), cache.wait_for(3)).await.unwrap();
        assert_eq!(cache.names(), ["core/pods".into()]);
        assert_eq!(cache.get("core/pods", "root/a/b").unwrap().revision, 2);
    }
}
