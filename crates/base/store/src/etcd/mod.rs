//! The store in an etcd cluster: several centers over one etcd are one center.
//!
//! How it keeps the contract
//! - A commit is one etcd transaction that compares modification revisions; its failure branch reads the compared keys,
//!   so a conflict tells what is there. etcd answers after a majority has synced it.
//! - `created` and `modified` are etcd's own. Its revision counts every transaction in the cluster, also those of
//!   others: revisions grow, but not by one.
//! - A watch is a stream of its own. It asks from the last revision it has seen, that one included and then left out,
//!   so that etcd refuses exactly when our contract does. When the stream breaks, the watch opens another one from
//!   there.
//! - A commit whose answer was lost is `Unknown`, unless the request surely never left.
//!
//! What it costs: one round trip and one etcd transaction per commit, at most etcd's own limits (128 keys and 1.5 MiB
//! per commit by default); a few round trips to find the oldest revision, which etcd does not tell.

mod client;
mod proto;
mod watcher;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream;
use tokio::sync::watch;
use tonic::Status;

use self::{
    client::{Client, Refused},
    watcher::Watcher,
};
use crate::{Commit, Entry, Error, Op, Outcome, Page, Range, Revision, Store, Watch};

#[derive(Clone, Debug)]
pub struct EtcdOptions {
    /// Such as `http://127.0.0.1:2379`; with several, calls go to any that answers.
    pub endpoints: Vec<String>,
    /// All our keys begin with it; others may use the rest of the cluster.
    pub prefix: String,
    pub tls: Option<EtcdTls>,
}

/// Everything in PEM.
#[derive(Clone)]
pub struct EtcdTls {
    pub ca: Vec<u8>,
    /// Client certificate and key.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// The name in etcd's certificate, if it is not the endpoint's.
    pub server_name: Option<String>,
}

pub struct EtcdStore {
    client: Client,
    keys: Keys,
    /// A lower bound of the oldest revision, exact when it was found.
    oldest: AtomicU64,
    closed: watch::Sender<bool>,
}

/// Between our keys and etcd's.
#[derive(Clone)]
struct Keys {
    prefix: Arc<str>,
}

/// Not a key of anybody's: written to make a watch reach the newest revision.
const MARK: &str = "\0";
/// Keys asked for at once: first few, because nothing is known of the values, then what makes about `PAGE_BYTES`.
const FIRST_PAGE: i64 = 100;
const PAGE_BYTES: usize = 4 << 20;
const MAX_PAGE: usize = 5000;

// === impl EtcdOptions ===

impl Default for EtcdOptions {
    fn default() -> Self {
        Self { endpoints: vec!["http://127.0.0.1:2379".into()], prefix: "/selvedge/".into(), tls: None }
    }
}

impl std::fmt::Debug for EtcdTls {
    /// The key stays out of logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EtcdTls").field("server_name", &self.server_name).finish_non_exhaustive()
    }
}

// === impl EtcdStore ===

impl EtcdStore {
    /// Returns when etcd has answered once.
    pub async fn connect(options: EtcdOptions) -> Result<Self, Error> {
        let store = Self {
            client: Client::new(&options)?,
            keys: Keys { prefix: options.prefix.into() },
            oldest: AtomicU64::new(0),
            closed: watch::Sender::new(false),
        };
        store.revision().await?;
        Ok(store)
    }

    fn check_open(&self) -> Result<(), Error> {
        if *self.closed.borrow() { Err(Error::Closed) } else { Ok(()) }
    }

    async fn refused(&self, status: Status, asked: Revision) -> Error {
        match client::reading(&status) {
            Refused::Compacted => match self.oldest().await {
                Ok(oldest) => Error::Compacted { asked, oldest },
                Err(error) => error,
            },
            Refused::Future => match self.revision().await {
                Ok(newest) => Error::Future { asked, newest },
                Err(error) => error,
            },
            Refused::Other(error) => error,
        }
    }

    /// Asks etcd to show this revision (0: now); answers with the newest one.
    async fn probe(&self, revision: Revision) -> Result<Revision, Status> {
        let key = self.keys.to_etcd("\0");
        let revision = revision.cast_signed();
        let request = proto::RangeRequest { key, limit: 1, keys_only: true, revision, ..Default::default() };
        let answer: proto::RangeResponse = self.client.call(proto::RANGE, request).await?;
        Ok(answer.header.unwrap_or_default().revision.cast_unsigned())
    }

    async fn shows(&self, revision: Revision) -> Result<bool, Error> {
        match self.probe(revision.max(1)).await {
            Ok(_) => Ok(true),
            Err(status) => match client::reading(&status) {
                Refused::Compacted => Ok(false),
                Refused::Future => Ok(true),
                Refused::Other(error) => Err(error),
            },
        }
    }

    async fn page(&self, range: &Range, limit: usize, at: Option<Revision>) -> Result<Page, Status> {
        // 0 would mean "now" to etcd; its revision 1 is as empty as our 0.
        let mut revision = at.map_or(0, |at| at.max(1).cast_signed());
        let mut page = Page { revision: at.unwrap_or(0), entries: Vec::new(), more: false };
        let (mut start, end) = self.keys.range(range);
        let mut fetch = FIRST_PAGE;
        loop {
            let left = if limit == 0 { usize::MAX } else { limit - page.entries.len() };
            let request = proto::RangeRequest {
                key: start,
                range_end: end.clone(),
                limit: fetch.min(i64::try_from(left).unwrap_or(i64::MAX)),
                revision,
                keys_only: false,
            };
            let answer: proto::RangeResponse = self.client.call(proto::RANGE, request).await?;
            if revision == 0 {
                // All further pages show what the first one showed.
                revision = answer.header.unwrap_or_default().revision;
                page.revision = revision.cast_unsigned();
            }
            let bytes: usize = answer.kvs.iter().map(|kv| kv.value.len() + kv.key.len()).sum();
            let count = answer.kvs.len();
            start = answer.kvs.last().map(|kv| [&kv.key[..], &[0]].concat().into()).unwrap_or_default();
            page.entries.extend(answer.kvs.into_iter().filter_map(|kv| self.keys.entry(kv)).filter(|e| e.key != MARK));
            page.more = answer.more;
            if !answer.more || count == 0 || (limit > 0 && page.entries.len() >= limit) {
                return Ok(page);
            }
            fetch = (PAGE_BYTES / (bytes / count).max(1)).clamp(16, MAX_PAGE) as i64;
        }
    }
}

#[async_trait]
impl Store for EtcdStore {
    async fn commit(&self, mut commit: Commit) -> Result<Outcome, Error> {
        self.check_open()?;
        let request = self.keys.txn(&mut commit);
        let answer: proto::TxnResponse =
            self.client.call(proto::TXN, request).await.map_err(|status| client::writing(&status))?;
        let newest = answer.header.unwrap_or_default().revision.cast_unsigned();
        if answer.succeeded {
            return Ok(Outcome::Committed(newest));
        }
        for (compare, response) in commit.compares.into_iter().zip(answer.responses) {
            let kv = response.range.and_then(|range| range.kvs.into_iter().next());
            let found = kv.map_or(0, |kv| kv.mod_revision.cast_unsigned());
            if found != compare.modified {
                return Ok(Outcome::Conflict { key: compare.key, found });
            }
        }
        Err(Error::Unavailable("etcd refused the commit but every compare holds".into()))
    }

    async fn range(&self, range: Range, limit: usize, at: Option<Revision>) -> Result<Page, Error> {
        self.check_open()?;
        if range.is_empty() {
            let newest = match self.probe(at.map_or(0, |at| at.max(1))).await {
                Ok(newest) => newest,
                Err(status) => return Err(self.refused(status, at.unwrap_or(0)).await),
            };
            let at = at.unwrap_or(newest);
            return Ok(Page { revision: at, entries: Vec::new(), more: false });
        }
        let mut attempts = 3;
        loop {
            match self.page(&range, limit, at).await {
                Ok(page) => return Ok(page),
                // Compacted between two of our pages: "now" has moved on, so begin again.
                Err(status)
                    if at.is_none() && attempts > 0 && matches!(client::reading(&status), Refused::Compacted) =>
                {
                    attempts -= 1;
                }
                Err(status) => return Err(self.refused(status, at.unwrap_or(0)).await),
            }
        }
    }

    async fn revision(&self) -> Result<Revision, Error> {
        self.check_open()?;
        match self.probe(0).await {
            Ok(newest) => Ok(newest),
            Err(status) => match client::reading(&status) {
                Refused::Other(error) => Err(error),
                Refused::Compacted | Refused::Future => Err(Error::Unavailable(status.message().to_owned())),
            },
        }
    }

    async fn watch(&self, range: Range, after: Revision) -> Result<Watch, Error> {
        self.check_open()?;
        // etcd would wait for the future to come, and tell of the past only later.
        if let Err(status) = self.probe(after.max(1)).await {
            return Err(self.refused(status, after).await);
        }
        let watcher = Watcher::new(self.client.clone(), self.keys.clone(), range, after, self.closed.subscribe());
        Ok(Box::pin(stream::unfold(Some(watcher), |watcher| async {
            let mut watcher = watcher?;
            match watcher.next().await {
                Ok(batch) => Some((Ok(batch), Some(watcher))),
                Err(error) => Some((Err(error), None)),
            }
        })))
    }

    async fn compact(&self, revision: Revision) -> Result<(), Error> {
        self.check_open()?;
        if revision == 0 {
            return Ok(());
        }
        let request = proto::CompactRequest { revision: revision.cast_signed() };
        match self.client.call::<_, proto::CompactResponse>(proto::COMPACT, request).await {
            Ok(_) => Ok(()),
            Err(status) => match self.refused(status, revision).await {
                Error::Compacted { .. } => Ok(()),
                error => Err(error),
            },
        }
    }

    /// etcd does not tell, so it is searched for: each probe halves what is left. Mostly the first one is enough,
    /// because what was the oldest last time still is.
    async fn oldest(&self) -> Result<Revision, Error> {
        self.check_open()?;
        let mut gone = self.oldest.load(Ordering::Acquire);
        if self.shows(gone).await? {
            return Ok(gone);
        }
        let mut kept = self.revision().await?;
        while kept - gone > 1 {
            let middle = gone + (kept - gone) / 2;
            if self.shows(middle).await? { kept = middle } else { gone = middle }
        }
        self.oldest.fetch_max(kept, Ordering::AcqRel);
        Ok(kept)
    }

    /// A write of our own comes through the watch behind everything that was there before it.
    async fn nudge(&self) -> Result<(), Error> {
        self.check_open()?;
        let put = proto::PutRequest { key: self.keys.to_etcd(MARK), value: Bytes::new() };
        let success = vec![proto::RequestOp { request: Some(proto::Request::Put(put)) }];
        let request = proto::TxnRequest { success, ..Default::default() };
        let _: proto::TxnResponse =
            self.client.call(proto::TXN, request).await.map_err(|status| client::writing(&status))?;
        Ok(())
    }

    async fn close(&self) {
        self.closed.send_replace(true);
    }
}

// === impl Keys ===

impl Keys {
    fn to_etcd(&self, key: &str) -> Bytes {
        format!("{}{key}", self.prefix).into()
    }

    /// `None`: not one of ours.
    fn ours(&self, key: &[u8]) -> Option<String> {
        let key = key.strip_prefix(self.prefix.as_bytes())?;
        Some(std::str::from_utf8(key).ok()?.to_owned())
    }

    fn range(&self, range: &Range) -> (Bytes, Bytes) {
        let end = if !range.end.is_empty() {
            self.to_etcd(&range.end)
        } else {
            // A zero byte is etcd's "no upper end".
            Some(Range::prefix(&self.prefix).end).filter(|end| !end.is_empty()).unwrap_or_else(|| "\0".into()).into()
        };
        // etcd knows no empty key; the smallest one is as good a start.
        let start = Some(self.to_etcd(&range.start)).filter(|start| !start.is_empty()).unwrap_or_else(|| "\0".into());
        (start, end)
    }

    fn entry(&self, kv: proto::KeyValue) -> Option<Entry> {
        Some(Entry {
            key: self.ours(&kv.key)?,
            value: kv.value,
            created: kv.create_revision.cast_unsigned(),
            modified: kv.mod_revision.cast_unsigned(),
        })
    }

    fn txn(&self, commit: &mut Commit) -> proto::TxnRequest {
        let mut txn = proto::TxnRequest::default();
        for compare in &commit.compares {
            let key = self.to_etcd(&compare.key);
            txn.compare.push(proto::Compare {
                result: proto::RESULT_EQUAL,
                target: proto::TARGET_MOD,
                key: key.clone(),
                with: Some(proto::CompareWith::ModRevision(compare.modified.cast_signed())),
            });
            let read = proto::RangeRequest { key, limit: 1, keys_only: true, ..Default::default() };
            txn.failure.push(proto::RequestOp { request: Some(proto::Request::Range(read)) });
        }
        txn.success = commit
            .sorted_ops()
            .into_iter()
            .map(|op| match op {
                Op::Put { key, value } => proto::Request::Put(proto::PutRequest { key: self.to_etcd(&key), value }),
                Op::Delete { key } => proto::Request::Delete(proto::DeleteRequest { key: self.to_etcd(&key) }),
            })
            .map(|request| proto::RequestOp { request: Some(request) })
            .collect();
        txn
    }
}
