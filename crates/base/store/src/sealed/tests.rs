//! The sealed store over a plain one: what lies below, and what a rotation does to it.

use std::path::Path;

use super::*;
use crate::{Compare, MemoryStore, SqliteOptions, SqliteStore};

fn sealing(dir: &Path) -> Sealing {
    Sealing { key_file: KeyFile::new(dir.join("secrets.key")), prefixes: vec!["s/".into()], shared: false }
}

async fn put(store: &dyn Store, key: &str, value: &str) {
    let op = Op::Put { key: key.into(), value: value.to_owned().into() };
    store.commit(Commit { compares: vec![], ops: vec![op] }).await.unwrap();
}

async fn value(store: &dyn Store, key: &str) -> Bytes {
    store.get(key).await.unwrap().unwrap().value
}

async fn sealed(inner: &Arc<MemoryStore>, dir: &Path) -> SealedStore {
    SealedStore::open(inner.clone(), sealing(dir)).await.unwrap()
}

#[tokio::test]
async fn only_what_was_chosen_is_sealed_and_all_of_it_opens() {
    let (dir, inner) = (tempfile::tempdir().unwrap(), Arc::new(MemoryStore::new()));
    put(&*inner, "s/old", "plain from before").await;
    let store = sealed(&inner, dir.path()).await;
    put(&store, "s/a", "secret").await;
    put(&store, "c/a", "config").await;
    assert!(is_sealed(&value(&*inner, "s/a").await));
    assert_eq!(value(&*inner, "c/a").await, "config");
    for (key, expected) in [("s/old", "plain from before"), ("s/a", "secret"), ("c/a", "config")] {
        assert_eq!(value(&store, key).await, expected);
    }
    let seen: Vec<_> = store.watch(Range::all(), 1).await.unwrap().take(2).collect().await;
    let Event::Put(entry) = &seen[0].as_ref().unwrap().events[0] else { panic!("a put was expected") };
    assert_eq!(entry.value, "secret");

    // Another start has another data key and reads the same.
    let again = sealed(&inner, dir.path()).await;
    put(&again, "s/b", "later").await;
    assert_eq!((value(&again, "s/a").await, value(&store, "s/b").await), ("secret".into(), "later".into()));
    assert_eq!(store.seal.opened.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn a_value_opens_only_where_it_was_put() {
    let (dir, inner) = (tempfile::tempdir().unwrap(), Arc::new(MemoryStore::new()));
    let store = sealed(&inner, dir.path()).await;
    put(&store, "s/rich", "gold").await;
    let op = Op::Put { key: "s/poor".into(), value: value(&*inner, "s/rich").await };
    inner.commit(Commit { compares: vec![], ops: vec![op] }).await.unwrap();
    let said = store.get("s/poor").await.unwrap_err().to_string();
    assert!(said.contains("s/poor") && said.contains("moved here"), "{said}");
}

#[tokio::test]
async fn a_missing_or_wrong_key_file_is_refused_and_not_replaced() {
    let (dir, inner) = (tempfile::tempdir().unwrap(), Arc::new(MemoryStore::new()));
    put(&sealed(&inner, dir.path()).await, "s/a", "secret").await;
    let other = tempfile::tempdir().unwrap();
    let said = SealedStore::open(inner.clone(), sealing(other.path())).await.map(|_| ()).unwrap_err().to_string();
    assert!(said.contains("is missing") && said.contains("s/a") && said.contains("--secrets-key-file"), "{said}");
    assert!(!other.path().join("secrets.key").exists(), "a new key would hide the mistake");

    KeyFile::new(other.path().join("secrets.key")).create().unwrap();
    let store = sealed(&inner, other.path()).await;
    let said = store.get("s/a").await.unwrap_err().to_string();
    assert!(said.contains("which is not in the key file") && said.contains("Put that key's line back"), "{said}");
    assert_eq!(value(&sealed(&inner, dir.path()).await, "s/a").await, "secret", "nothing was lost");
}

#[tokio::test]
async fn a_rotation_renews_everything_while_others_write() {
    let (dir, inner) = (tempfile::tempdir().unwrap(), Arc::new(MemoryStore::new()));
    put(&*inner, "s/plain", "from before").await;
    let store = sealed(&inner, dir.path()).await;
    for n in 0..700 {
        put(&store, &format!("s/{n:03}"), &format!("secret {n}")).await;
    }
    put(&store, "c/a", "config").await;
    let before = store.seal.options.key_file.status().unwrap().unwrap();
    let writer = {
        let store = store.clone();
        tokio::spawn(async move {
            for n in 0..700 {
                put(&store, &format!("s/{n:03}"), &format!("newer {n}")).await;
                tokio::task::yield_now().await;
            }
        })
    };
    // A slow reader of everything is not cut off by it.
    let mut reader = store.watch(Range::all(), 0).await.unwrap();
    let reading = tokio::spawn(async move {
        let mut last = Bytes::new();
        while let Ok(Some(batch)) = tokio::time::timeout(std::time::Duration::from_millis(300), reader.next()).await {
            for event in batch.unwrap().events {
                let Event::Put(entry) = event else { continue };
                last = entry.value;
            }
            tokio::task::yield_now().await;
        }
        last
    });
    store.seal.options.key_file.rotate().unwrap();
    let done = store.rotate().await.unwrap();
    writer.await.unwrap();
    assert_eq!(reading.await.unwrap(), "newer 699");
    assert_eq!(done.keys, 1);
    let after = store.seal.options.key_file.status().unwrap().unwrap();
    assert!(after.seals != before.seals && after.opens.is_empty() && !store.is_rotating());
    for entry in inner.range(Range::prefix("s/"), 0, None).await.unwrap().entries {
        assert_eq!(Envelope::parse(&entry.value).unwrap().by.to_string(), after.seals, "{}", entry.key);
    }
    for n in 0..700 {
        assert_eq!(value(&store, &format!("s/{n:03}")).await, format!("newer {n}"));
    }
    assert_eq!(value(&store, "s/plain").await, "from before");
    assert_eq!(value(&*inner, "c/a").await, "config");
    let again = store.rotate().await.unwrap();
    assert_eq!(again.values, 0, "once is enough");
}

#[tokio::test]
async fn what_is_chosen_may_change() {
    let (dir, inner) = (tempfile::tempdir().unwrap(), Arc::new(MemoryStore::new()));
    put(&sealed(&inner, dir.path()).await, "s/a", "secret").await;
    put(&*inner, "c/a", "config").await;
    let options = Sealing { prefixes: vec!["c/".into()], ..sealing(dir.path()) };
    let store = SealedStore::open(inner.clone(), options).await.unwrap();
    assert_eq!(value(&store, "s/a").await, "secret");
    assert_eq!(store.rotate().await.unwrap().values, 2);
    assert_eq!(value(&*inner, "s/a").await, "secret");
    assert!(is_sealed(&value(&*inner, "c/a").await));
}

#[tokio::test]
async fn a_server_of_a_shared_store_learns_a_new_key_when_it_meets_it() {
    let (dir, inner) = (tempfile::tempdir().unwrap(), Arc::new(MemoryStore::new()));
    let shared = || Sealing { shared: true, ..sealing(dir.path()) };
    let one = SealedStore::open(inner.clone(), shared()).await.unwrap();
    let other = SealedStore::open(inner.clone(), shared()).await.unwrap();
    put(&one, "s/a", "first").await;
    shared().key_file.rotate().unwrap();
    assert_eq!(one.rotate().await.unwrap(), rotation::Rotated { values: 1, keys: 0 });
    put(&one, "s/b", "new").await;
    assert_eq!(value(&other, "s/b").await, "new");
    assert_eq!(shared().key_file.status().unwrap().unwrap().opens.len(), 1, "others may still use it");
}

#[tokio::test]
async fn nothing_plain_or_old_is_left_in_the_files() {
    let (dir, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let inner = Arc::new(SqliteStore::open(place.path(), SqliteOptions::default()).unwrap());
    let shows = |text: &str| {
        let files = std::fs::read_dir(place.path()).unwrap().map(|file| std::fs::read(file.unwrap().path()).unwrap());
        files.into_iter().any(|bytes| bytes.windows(text.len()).any(|window| window == text.as_bytes()))
    };
    for n in 0..50 {
        put(&*inner, &format!("s/{n}"), &format!("glaringly plain {n} {}", "x".repeat(3000))).await;
    }
    let gone = Op::Delete { key: "s/7".into() };
    inner.commit(Commit { compares: vec![Compare { key: "s/7".into(), modified: 8 }], ops: vec![gone] }).await.unwrap();
    assert!(shows("glaringly plain"));
    let store = SealedStore::open(inner.clone(), sealing(dir.path())).await.unwrap();
    let key = store.seal.options.key_file.rotate().unwrap();
    assert_eq!(store.rotate().await.unwrap(), rotation::Rotated { values: 49, keys: 1 });
    assert!(!shows("glaringly plain"), "in the file, its log or a free page");
    assert!(shows("SEAL1"));
    assert_eq!(store.seal.options.key_file.status().unwrap().unwrap().seals, key.seals);
    // It is a whole store still.
    let revision = store.revision().await.unwrap();
    store.close().await;
    drop((store, inner));
    let inner = Arc::new(SqliteStore::open(place.path(), SqliteOptions::default()).unwrap());
    let store = SealedStore::open(inner, sealing(dir.path())).await.unwrap();
    assert_eq!(store.revision().await.unwrap(), revision);
    assert!(value(&store, "s/49").await.starts_with(b"glaringly plain 49"));
}
