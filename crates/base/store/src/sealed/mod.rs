//! Encryption at rest: a store around a store, which seals what is written under chosen prefixes.
//!
//! Above it everything is plain; below it, in files, logs, backups and other processes, chosen values are sealed. What
//! is sealed is opened wherever it lies, so the choice may change at any time; what is plain is read as it is, so a
//! store from before can be used as it is. Keys of the store are never sealed.

mod envelope;
mod keyfile;
mod rotation;
#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError, RwLock, Weak,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
};

use async_trait::async_trait;
use aws_lc_rs::aead::LessSafeKey;
use bytes::Bytes;
use futures::StreamExt;

use self::{
    envelope::{DataKey, Envelope, KeyId, Wrapped, is_sealed},
    keyfile::Ring,
};
use crate::{Batch, Commit, Entry, Error, Event, Op, Outcome, Page, Range, Revision, Store, Watch};

pub use keyfile::{KeyFile, KeyStatus};
pub use rotation::Rotated;

/// After so many values a data key is replaced; `envelope` says why.
const USES: u32 = 1 << 20;
/// Unwrapped data keys that are remembered. There is one per start of a server, so this is seldom reached.
const REMEMBERED: usize = 256;

#[derive(Clone, Debug)]
pub struct Sealing {
    pub key_file: KeyFile,
    /// Values of keys that begin with one of these are sealed.
    pub prefixes: Vec<String>,
    /// Others write to the same store: they may still use an old key, so none is ever thrown away from here.
    pub shared: bool,
}

/// The store's values, sealed. Clones are the same store.
#[derive(Clone)]
pub struct SealedStore {
    inner: Arc<dyn Store>,
    seal: Arc<Seal>,
}

struct Seal {
    options: Sealing,
    ring: RwLock<Ring>,
    /// The data key in use, and how often it was used.
    current: Mutex<Option<Arc<(DataKey, AtomicU32)>>>,
    opened: Mutex<HashMap<(KeyId, Wrapped), Arc<LessSafeKey>>>,
    /// Held by writers; a rotation takes it alone for a moment, after which nothing sealed with the old key is under
    /// way.
    writers: tokio::sync::RwLock<()>,
    /// How far those have read who watch everything.
    readers: Mutex<Vec<Weak<AtomicU64>>>,
}

// === impl SealedStore ===

impl SealedStore {
    /// Reads the keys, and makes the first one where there is none, unless the store already needs one.
    pub async fn open(inner: Arc<dyn Store>, options: Sealing) -> Result<Self, Error> {
        let ring = match options.key_file.read()? {
            Some(ring) => ring,
            None => match rotation::first_sealed(&*inner).await? {
                None => options.key_file.create()?,
                Some((key, by)) => {
                    return Err(Error::Unusable(format!(
                        "the key file {} is missing, but the store holds values that are sealed with key {by} (one is {key}). \
                         Put the file back from its copy, or from another center of the same store, or name it with \
                         --secrets-key-file. Nothing was changed",
                        options.key_file.path().display()
                    )));
                }
            },
        };
        let seal = Seal {
            options,
            ring: RwLock::new(ring),
            current: Mutex::default(),
            opened: Mutex::default(),
            writers: tokio::sync::RwLock::default(),
            readers: Mutex::default(),
        };
        Ok(Self { inner, seal: Arc::new(seal) })
    }

    /// Seals what has to be. A rotation waits until the commit is done, for as long as what this returns is kept.
    async fn close_all(&self, commit: &mut Commit) -> Result<Option<tokio::sync::RwLockReadGuard<'_, ()>>, Error> {
        if !commit.ops.iter().any(|op| matches!(op, Op::Put { key, .. } if self.seal.wants(key))) {
            return Ok(None);
        }
        let writing = self.seal.writers.read().await;
        for op in &mut commit.ops {
            if let Op::Put { key, value } = op
                && self.seal.wants(key)
            {
                *value = self.seal.close(key, value)?;
            }
        }
        Ok(Some(writing))
    }
}

#[async_trait]
impl Store for SealedStore {
    async fn commit(&self, mut commit: Commit) -> Result<Outcome, Error> {
        let _writing = self.close_all(&mut commit).await?;
        self.inner.commit(commit).await
    }

    async fn commit_freeing(&self, mut commit: Commit) -> Result<Outcome, Error> {
        let _writing = self.close_all(&mut commit).await?;
        self.inner.commit_freeing(commit).await
    }

    async fn check(&self) -> Result<(), Error> {
        self.inner.check().await
    }

    async fn died(&self) -> String {
        self.inner.died().await
    }

    async fn commit_apart(&self, mut commit: Commit) -> Result<Outcome, Error> {
        let _writing = self.close_all(&mut commit).await?;
        self.inner.commit_apart(commit).await
    }

    async fn range(&self, range: Range, limit: usize, at: Option<Revision>) -> Result<Page, Error> {
        let mut page = self.inner.range(range, limit, at).await?;
        page.entries.iter_mut().try_for_each(|entry| self.seal.open_entry(entry))?;
        Ok(page)
    }

    async fn revision(&self) -> Result<Revision, Error> {
        self.inner.revision().await
    }

    async fn watch(&self, range: Range, after: Revision) -> Result<Watch, Error> {
        let seal = self.seal.clone();
        let everything = range == Range::all();
        let sealed = self.inner.watch(range, after).await?;
        let read = Arc::new(AtomicU64::new(after));
        if everything {
            seal.readers.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&read));
        }
        Ok(Box::pin(sealed.map(move |batch| {
            let batch = seal.open_batch(batch?)?;
            read.store(batch.revision, Ordering::Release);
            Ok(batch)
        })))
    }

    async fn compact(&self, revision: Revision) -> Result<(), Error> {
        self.inner.compact(revision).await
    }

    async fn oldest(&self) -> Result<Revision, Error> {
        self.inner.oldest().await
    }

    async fn nudge(&self) -> Result<(), Error> {
        self.inner.nudge().await
    }

    async fn scrub(&self) -> Result<(), Error> {
        self.inner.scrub().await
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}

// === impl Seal ===

impl Seal {
    fn wants(&self, key: &str) -> bool {
        self.options.prefixes.iter().any(|prefix| key.starts_with(prefix.as_str()))
    }

    fn ring(&self) -> Ring {
        self.ring.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn close(&self, key: &str, value: &[u8]) -> Result<Bytes, Error> {
        let failed = |fault| Error::Unavailable(format!("{key} could not be sealed: {fault}"));
        self.data_key().and_then(|data| data.0.seal(key, value)).map_err(failed)
    }

    fn data_key(&self) -> Result<Arc<(DataKey, AtomicU32)>, envelope::Fault> {
        let seals = self.ring.read().unwrap_or_else(PoisonError::into_inner).seals.clone();
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(data) = &*current
            && data.0.by == seals.id
            && data.1.fetch_add(1, Ordering::Relaxed) < USES
        {
            return Ok(data.clone());
        }
        let data = Arc::new((seals.data_key()?, AtomicU32::new(1)));
        *current = Some(data.clone());
        Ok(data)
    }

    fn open_batch(&self, mut batch: Batch) -> Result<Batch, Error> {
        for event in &mut batch.events {
            if let Event::Put(entry) = event {
                self.open_entry(entry)?;
            }
        }
        Ok(batch)
    }

    fn open_entry(&self, entry: &mut Entry) -> Result<(), Error> {
        if is_sealed(&entry.value) {
            entry.value = self.open(&entry.key, &entry.value)?;
        }
        Ok(())
    }

    fn open(&self, key: &str, value: &[u8]) -> Result<Bytes, Error> {
        let failed = |fault| {
            Error::Unusable(format!("the value of {key} cannot be opened: {fault}. Restore the store from a backup"))
        };
        let envelope = Envelope::parse(value).map_err(failed)?;
        let data = self.unwrapped(key, &envelope, failed)?;
        envelope.open(key, &data).map_err(failed)
    }

    fn unwrapped(
        &self,
        place: &str,
        envelope: &Envelope<'_>,
        failed: impl Fn(envelope::Fault) -> Error,
    ) -> Result<Arc<LessSafeKey>, Error> {
        let name = (envelope.by, envelope.wrapped);
        let opened = || self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = opened().get(&name) {
            return Ok(known.clone());
        }
        if self.ring().find(envelope.by).is_none() {
            // Another server of the same store may have begun a rotation: its key came into the file before it was
            // used.
            self.reload()?;
        }
        let ring = self.ring();
        let key = ring.find(envelope.by).ok_or_else(|| {
            Error::Unusable(format!(
                "the value of {place} is sealed with key {}, which is not in the key file {} (it has {}). \
                 Put that key's line back from a copy of the file. Nothing was changed",
                envelope.by,
                self.options.key_file.path().display(),
                ring.ids()
            ))
        })?;
        let data = Arc::new(key.unwrap_key(&envelope.wrapped).map_err(failed)?);
        let mut opened = opened();
        if opened.len() >= REMEMBERED {
            opened.clear();
        }
        opened.insert(name, data.clone());
        Ok(data)
    }

    /// Everybody who watches everything has read up to here.
    fn all_have_read(&self, revision: Revision) -> bool {
        let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        readers.retain(|reader| reader.strong_count() > 0);
        readers.iter().filter_map(Weak::upgrade).all(|read| read.load(Ordering::Acquire) >= revision)
    }

    /// Takes what the key file says now. A file that went away changes nothing.
    fn reload(&self) -> Result<(), Error> {
        if let Some(ring) = self.options.key_file.read()? {
            *self.ring.write().unwrap_or_else(PoisonError::into_inner) = ring;
        }
        Ok(())
    }
}
