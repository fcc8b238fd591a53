//! Rotation: everything is sealed anew with the key that the file says, and then the old keys are thrown away.
//!
//! The key file is the plan, so a rotation that is interrupted anywhere goes on at the next start: as long as the file
//! has a key that only opens, there may be something left to do, and doing it again does nothing.

use std::{os::unix::fs::MetadataExt, time::Duration};

use futures::{StreamExt, TryStreamExt, stream};

use super::{
    SealedStore,
    envelope::{Envelope, KeyId, is_sealed},
};
use crate::{Commit, Compare, Entry, Error, Op, Outcome, Range, Revision, Store};

const PAGE: usize = 500;
/// Commits under way at once: enough for the store to group them, few enough to leave room for others.
const ABREAST: usize = 16;
/// How often a running server looks whether somebody changed the key file, and how long it rests after a failure.
const LOOK: Duration = Duration::from_millis(500);
const REST: Duration = Duration::from_secs(10);
/// How long old history is kept for those who still read it.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a rotation has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rotated {
    /// Values that were written anew.
    pub values: usize,
    /// Keys that were thrown away.
    pub keys: usize,
}

/// The first sealed value of the store, and who sealed it.
pub(super) async fn first_sealed(store: &dyn Store) -> Result<Option<(String, String)>, Error> {
    let mut pages = Pages::new(store);
    while let Some(entries) = pages.next().await? {
        let mut sealed = entries.iter().filter(|entry| is_sealed(&entry.value));
        if let Some(entry) = sealed.next() {
            let by = Envelope::parse(&entry.value).map_or("unknown".into(), |envelope| envelope.by.to_string());
            return Ok(Some((entry.key.clone(), by)));
        }
    }
    Ok(None)
}

impl SealedStore {
    /// Some key only opens: a rotation has begun and not ended.
    pub fn is_rotating(&self) -> bool {
        !self.seal.ring().opens.is_empty()
    }

    /// Seals everything that should be sealed with the key that seals now, and unseals what should not be. With a store
    /// of its own it then makes sure that nothing old is left in files, and throws the old keys away.
    pub async fn rotate(&self) -> Result<Rotated, Error> {
        self.seal.reload()?;
        // Whoever sealed with an older key has written it when this is through; whoever comes after uses the new one.
        drop(self.seal.writers.write().await);
        let ring = self.seal.ring();
        let mut done = Rotated::default();
        let mut pages = Pages::new(&*self.inner);
        while let Some(entries) = pages.next().await? {
            let stale = entries.into_iter().filter(|entry| self.is_stale(entry, ring.seals.id));
            let renewed: Vec<bool> =
                stream::iter(stale).map(|entry| self.renew(entry)).buffer_unordered(ABREAST).try_collect().await?;
            done.values += renewed.into_iter().filter(|renewed| *renewed).count();
        }
        if self.seal.options.shared {
            return Ok(done);
        }
        // History would keep old values readable with the old key, and plain ones without any.
        let newest = self.inner.revision().await?;
        self.wait_for_readers(newest).await?;
        self.inner.compact(newest).await?;
        self.inner.scrub().await?;
        let old: Vec<KeyId> = ring.opens.iter().map(|key| key.id).collect();
        self.seal.options.key_file.forget(&old)?;
        self.seal.reload()?;
        done.keys = old.len();
        Ok(done)
    }

    /// Whoever has not yet read what is compacted would be cut off.
    async fn wait_for_readers(&self, revision: Revision) -> Result<(), Error> {
        let end = tokio::time::Instant::now() + PATIENCE;
        while !self.seal.all_have_read(revision) {
            if tokio::time::Instant::now() > end {
                return Err(Error::Unavailable("a reader is far behind, and would be cut off".into()));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    /// Rotates whenever the key file says so, until the store is closed.
    pub async fn follow_key_file(self) {
        let mut seen = None;
        loop {
            let now = std::fs::metadata(self.seal.options.key_file.path()).ok();
            let now = now.map(|file| (file.ino(), file.mtime(), file.mtime_nsec()));
            let mut pause = LOOK;
            if now != seen {
                match self.take_over().await {
                    Ok(()) => seen = now,
                    Err(Error::Closed) => return,
                    Err(error) => {
                        tracing::warn!(%error, "the keys of the store could not be rotated; trying again");
                        pause = REST;
                    }
                }
            }
            tokio::time::sleep(pause).await;
        }
    }

    async fn take_over(&self) -> Result<(), Error> {
        self.seal.reload()?;
        if self.is_rotating() {
            let begun = std::time::Instant::now();
            let done = self.rotate().await?;
            if done != Rotated::default() {
                let key = self.seal.ring().seals.id;
                tracing::info!(%key, values = done.values, old_keys = done.keys, took = ?begun.elapsed(), "everything is sealed with the new key");
            }
        }
        Ok(())
    }

    fn is_stale(&self, entry: &Entry, seals: KeyId) -> bool {
        match (self.seal.wants(&entry.key), is_sealed(&entry.value)) {
            (true, true) => Envelope::parse(&entry.value).is_ok_and(|envelope| envelope.by != seals),
            (true, false) | (false, true) => true,
            (false, false) => false,
        }
    }

    /// Writes one value anew, unless somebody else does.
    async fn renew(&self, mut entry: Entry) -> Result<bool, Error> {
        self.seal.open_entry(&mut entry)?;
        let Entry { key, value, modified, .. } = entry;
        let compares = vec![Compare { key: key.clone(), modified }];
        let outcome = self.commit(Commit { compares, ops: vec![Op::Put { key, value }] }).await?;
        // Changed meanwhile is sealed meanwhile.
        Ok(matches!(outcome, Outcome::Committed(_)))
    }
}

/// Everything in the store, a page at a time, all as of one moment.
struct Pages<'a> {
    store: &'a dyn Store,
    range: Option<Range>,
    at: Option<Revision>,
}

impl<'a> Pages<'a> {
    fn new(store: &'a dyn Store) -> Self {
        Self { store, range: Some(Range::all()), at: None }
    }

    async fn next(&mut self) -> Result<Option<Vec<Entry>>, Error> {
        let Some(mut range) = self.range.take() else { return Ok(None) };
        let page = match self.store.range(range.clone(), PAGE, self.at).await {
            // What was changed since is new anyway.
            Err(Error::Compacted { .. }) => self.store.range(range.clone(), PAGE, None).await?,
            page => page?,
        };
        self.at = Some(page.revision);
        if page.more
            && let Some(last) = page.entries.last()
        {
            range.start = format!("{}\0", last.key);
            self.range = Some(range);
        }
        Ok(Some(page.entries))
    }
}
