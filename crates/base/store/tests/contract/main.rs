//! One suite, every backend.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "a test may fail")]

mod etcd;
mod model;
mod suite;

use std::{any::Any, sync::Arc};

use selvedge_store::{KeyFile, MemoryStore, SealedStore, Sealing, SqliteOptions, SqliteStore};

/// A store, and what must live as long as it.
type Made = (suite::Any, Box<dyn Any>);

/// What a backend can do that others cannot.
#[derive(Clone, Copy)]
pub(crate) struct Capabilities {
    /// `commit_apart` gives every op a revision of its own.
    pub(crate) revision_per_op: bool,
}

const OWN: Capabilities = Capabilities { revision_per_op: true };
/// etcd has one revision for a transaction, whatever is in it.
const ETCD: Capabilities = Capabilities { revision_per_op: false };

async fn memory() -> Option<Made> {
    Some((Arc::new(MemoryStore::new()), Box::new(())))
}

async fn sqlite() -> Option<Made> {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path(), SqliteOptions::default()).unwrap();
    Some((Arc::new(store), Box::new(dir)))
}

/// Every value sealed, over the store that it usually lies over.
async fn sealed() -> Option<Made> {
    let dir = tempfile::tempdir().unwrap();
    let inner = SqliteStore::open(&dir.path().join("store"), SqliteOptions::default()).unwrap();
    let key_file = KeyFile::new(dir.path().join("secrets.key"));
    let options = Sealing { key_file, prefixes: vec![String::new()], shared: false };
    let store = SealedStore::open(Arc::new(inner), options).await.unwrap();
    Some((Arc::new(store), Box::new(dir)))
}

async fn real_etcd() -> Option<Made> {
    let (store, turn) = etcd::store().await?;
    Some((store, Box::new(turn)))
}

macro_rules! contract {
    ($($backend:ident: $can:ident),+ => $cases:tt) => { $( contract!(@backend $backend $can $cases); )+ };
    (@backend $backend:ident $can:ident { $($case:ident),+ $(,)? }) => {
        mod $backend {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    if let Some((store, _keep)) = super::$backend().await {
                        super::suite::$case(store).await;
                    }
                }
            )+

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn ops_apart() {
                if let Some((store, _keep)) = super::$backend().await {
                    super::suite::ops_apart(store, super::$can).await;
                }
            }

            #[test]
            fn agrees_with_the_model() {
                super::model::check(super::$backend);
            }
        }
    };
}

contract!(memory: OWN, sqlite: OWN, sealed: OWN, real_etcd: ETCD => {
    creates_updates_and_deletes,
    compares_all_or_nothing,
    a_commit_that_changes_nothing_takes_no_revision,
    of_two_ops_on_one_key_the_last_counts,
    ranges_in_key_order_with_limit,
    ranges_at_a_past_revision,
    watches_past_then_present,
    watches_see_each_commit_once,
    one_of_many_contenders_wins,
    compaction_forgets_only_the_past,
    large_values_and_many_keys,
    closed_is_closed,
});
