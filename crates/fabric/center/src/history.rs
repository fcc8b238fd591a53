//! The lives of this center's store, so that one restored from a backup is found out.
//!
//! Every start of a center on a store of its own is an incarnation: a random number, recorded with the revision at which it began. What an
//! edge has seen of an earlier incarnation must lie before the next one began; a restored store has lost that, or never had it.
//! Centers that share a store share one incarnation: there the revision alone tells (see docs/reference/fleet.md).

use std::sync::Arc;

use bytes::Bytes;
use store::{Commit, Compare, Op, Outcome, Range, Store};

const RECORDS: &str = "~center/incarnations/";
const SHARED: &str = "~center/incarnation";
/// Edges that come back after more starts than this are asked to be adopted.
const KEPT: usize = 10_000;

pub struct History {
    current: u64,
    /// Earlier ones with the revision at which the next began, in order.
    past: Vec<(u64, u64)>,
}

/// Read before anything is written in the new life.
pub struct Opened {
    store: Arc<dyn Store>,
    shared: bool,
    /// Incarnation and the revision at which it began.
    records: Vec<(u64, u64)>,
    began: u64,
}

impl Opened {
    pub async fn read(store: Arc<dyn Store>, shared: bool) -> Result<Self, store::Error> {
        let began = store.revision().await?;
        let page = store.range(Range::prefix(RECORDS), 0, None).await?;
        let record = |entry: &store::Entry| {
            let began = entry.key.strip_prefix(RECORDS)?.parse().ok()?;
            Some((u64::from_str_radix(std::str::from_utf8(&entry.value).ok()?, 16).ok()?, began))
        };
        let records = page.entries.iter().filter_map(record).collect();
        Ok(Self { store, shared, records, began })
    }

    /// Makes the new life known. Only then may edges hear of it.
    pub async fn record(&self) -> Result<History, store::Error> {
        if self.shared {
            return self.join().await;
        }
        let current = random();
        let mut ops = vec![Op::Put { key: format!("{RECORDS}{:020}", self.began), value: text(current) }];
        let too_old = self.records.len().saturating_sub(KEPT);
        ops.extend(
            self.records[..too_old]
                .iter()
                .take(100)
                .map(|(_, began)| Op::Delete { key: format!("{RECORDS}{began:020}") }),
        );
        // A center starts on a full disk, too.
        self.store.commit_freeing(Commit { compares: Vec::new(), ops }).await?;
        let next = self.records.iter().skip(1).map(|(_, began)| *began).chain([self.began]);
        let past = self.records.iter().map(|(id, _)| *id).zip(next).collect();
        Ok(History { current, past })
    }

    /// The incarnation that all centers of this store have.
    async fn join(&self) -> Result<History, store::Error> {
        loop {
            if let Some(entry) = self.store.get(SHARED).await?
                && let Some(current) =
                    std::str::from_utf8(&entry.value).ok().and_then(|t| u64::from_str_radix(t, 16).ok())
            {
                return Ok(History { current, past: Vec::new() });
            }
            let current = random();
            let compares = vec![Compare { key: SHARED.to_owned(), modified: 0 }];
            let ops = vec![Op::Put { key: SHARED.to_owned(), value: text(current) }];
            if let Outcome::Committed(_) = self.store.commit(Commit { compares, ops }).await? {
                return Ok(History { current, past: Vec::new() });
            }
        }
    }
}

impl History {
    #[cfg(test)]
    pub fn fresh(current: u64) -> Self {
        Self { current, past: Vec::new() }
    }

    pub fn current(&self) -> u64 {
        self.current
    }

    /// How far an incarnation went, when the store is at `newest` now.
    pub fn through(&self, incarnation: u64, newest: u64) -> Option<u64> {
        if incarnation == self.current {
            return Some(newest);
        }
        self.past.iter().rev().find(|(id, _)| *id == incarnation).map(|(_, through)| *through)
    }
}

fn random() -> u64 {
    rand::random_range(1..=u64::MAX)
}

fn text(incarnation: u64) -> Bytes {
    format!("{incarnation:x}").into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::MemoryStore;

    async fn start(store: &Arc<dyn Store>, shared: bool) -> History {
        Opened::read(store.clone(), shared).await.unwrap().record().await.unwrap()
    }

    async fn write(store: &Arc<dyn Store>, times: usize) -> u64 {
        for n in 0..times {
            let ops = vec![Op::Put { key: "a".into(), value: n.to_string().into() }];
            store.commit(Commit { compares: vec![], ops }).await.unwrap();
        }
        store.revision().await.unwrap()
    }

    /// The same entries under the same revisions, as a backup has them.
    async fn restored(commits: u64, records: &[(u64, u64)]) -> Arc<dyn Store> {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        for n in 1..=commits {
            let record = records.iter().find(|(_, began)| began + 1 == n);
            let (key, value) = match record {
                Some((id, began)) => (format!("{RECORDS}{began:020}"), text(*id)),
                None => ("a".to_owned(), Bytes::from(n.to_string())),
            };
            store.commit(Commit { compares: vec![], ops: vec![Op::Put { key, value }] }).await.unwrap();
        }
        store
    }

    #[tokio::test]
    async fn restarts_are_known_and_backups_found_out() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let first = start(&store, false).await;
        let seen_first = write(&store, 10).await;
        assert_eq!(first.through(first.current(), seen_first), Some(seen_first));
        let second = start(&store, false).await;
        let seen_second = write(&store, 10).await;
        assert_eq!(second.through(first.current(), seen_second), Some(seen_first));
        let third = start(&store, false).await;
        let newest = write(&store, 10).await;
        assert_eq!(third.through(first.current(), newest), Some(seen_first));
        assert_eq!(third.through(second.current(), newest), Some(seen_second));
        assert_eq!(third.through(4711, newest), None);

        let records = [(first.current(), 0), (second.current(), seen_first)];
        // From the middle of the second life: what came later in it is not known, nor is the third.
        let old = restored(seen_second - 5, &records).await;
        let fourth = start(&old, false).await;
        let newest = write(&old, 100).await;
        assert!(fourth.through(second.current(), newest).unwrap() < seen_second);
        assert_eq!(fourth.through(third.current(), newest), None);
        assert_eq!(fourth.through(first.current(), newest), Some(seen_first), "that far it is the same history");
    }

    #[tokio::test]
    async fn centers_of_one_store_share_it() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let (one, two) = (start(&store, true).await, start(&store, true).await);
        assert_eq!(one.current(), two.current());
        assert_eq!(two.through(one.current(), 7), Some(7));
    }
}
