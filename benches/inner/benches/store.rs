//! What a durable commit costs, alone and in company, and a range of a thousand keys.
#![allow(clippy::expect_used, reason = "a measurement may fail")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use futures::future::join_all;
use store::{Commit, MemoryStore, Op, Range, SqliteOptions, SqliteStore, Store};

static NEXT: AtomicU64 = AtomicU64::new(0);

async fn put(store: &dyn Store) {
    let key = format!("/bench/{:012}", NEXT.fetch_add(1, Ordering::Relaxed));
    let ops = vec![Op::Put { key, value: Bytes::from(vec![b'x'; 1024]) }];
    store.commit(Commit { compares: Vec::new(), ops }).await.expect("the disk takes it");
}

fn backend(c: &mut Criterion, name: &str, store: Arc<dyn Store>) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let mut group = c.benchmark_group(name);
    group.sample_size(20);
    group.bench_function("one commit", |b| b.iter(|| runtime.block_on(put(&*store))));
    group.throughput(Throughput::Elements(64));
    group.bench_function("64 commits at once", |b| {
        b.iter(|| runtime.block_on(async { join_all((0..64).map(|_| put(&*store))).await }))
    });
    group.throughput(Throughput::Elements(1000));
    group.bench_function("range of 1000", |b| {
        let range = Range { start: "/bench/".into(), end: "/bench0".into() };
        b.iter(|| runtime.block_on(store.range(range.clone(), 1000, None)))
    });
    group.finish();
}

fn stores(c: &mut Criterion) {
    backend(c, "memory", Arc::new(MemoryStore::new()));
    let directory = tempfile::tempdir().expect("a directory");
    let store = SqliteStore::open(directory.path(), SqliteOptions::default()).expect("a store");
    backend(c, "sqlite", Arc::new(store));
}

criterion_group!(benches, stores);
criterion_main!(benches);
