//! How many durable creates of 1 KiB per second SQLite takes, with 1 and with 16 committers.
//!
//! `cargo run --release -p selvedge-store --example commits -- [directory] [seconds]`
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement prints and may fail")]

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use selvedge_store::{Commit, Compare, Op, Outcome, SqliteOptions, SqliteStore, Store};

#[tokio::main]
async fn main() {
    let mut args = std::env::args().skip(1);
    let base = args.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let seconds = args.next().map_or(3, |seconds| seconds.parse().unwrap());
    for committers in [1, 16, 64] {
        let dir = tempfile::tempdir_in(&base).unwrap();
        let store = Arc::new(SqliteStore::open(dir.path(), SqliteOptions::default()).unwrap());
        let began = Instant::now();
        let until = began + Duration::from_secs(seconds);
        let tasks: Vec<_> =
            (0..committers).map(|committer| tokio::spawn(create(store.clone(), committer, until))).collect();
        let mut waits = Vec::new();
        for task in tasks {
            waits.extend(task.await.unwrap());
        }
        let took = began.elapsed();
        let cpu = writer_cpu();
        store.close().await;
        waits.sort();
        let rate = waits.len() as f64 / took.as_secs_f64();
        let per = cpu.map_or(0.0, |cpu| cpu.as_secs_f64() * 1e6 / waits.len() as f64);
        println!(
            "{committers:3} committers: {rate:8.0} durable creates/s, p50 {:?}, p99 {:?}, writer thread {per:.0} µs of CPU each",
            waits[waits.len() / 2],
            waits[waits.len() * 99 / 100],
        );
    }
}

async fn create(store: Arc<SqliteStore>, committer: usize, until: Instant) -> Vec<Duration> {
    let value = Bytes::from(vec![b'x'; 1024]);
    let mut waits = Vec::new();
    for n in 0_u64.. {
        let began = Instant::now();
        if began >= until {
            break;
        }
        let key = format!("root/configmaps/namespace-{committer}/object-{n:08}");
        let compares = vec![Compare { key: key.clone(), modified: 0 }];
        let commit = Commit { compares, ops: vec![Op::Put { key, value: value.clone() }] };
        assert!(matches!(store.commit(commit).await.unwrap(), Outcome::Committed(_)));
        waits.push(began.elapsed());
    }
    waits
}

/// The time that the writer thread has used, as Linux tells it.
fn writer_cpu() -> Option<Duration> {
    for task in std::fs::read_dir("/proc/self/task").ok()?.flatten() {
        let stat = std::fs::read_to_string(task.path().join("stat")).ok()?;
        let (name, rest) = stat.split_once(") ")?;
        if name.ends_with("(store-writer") {
            let fields: Vec<&str> = rest.split(' ').collect();
            let ticks: u64 = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
            return Some(Duration::from_millis(ticks * 10));
        }
    }
    None
}
