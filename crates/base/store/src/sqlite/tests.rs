//! What disks, operators and other processes do to a store.

use std::{fs, path::Path, time::Duration};

use bytes::Bytes;
use futures::{FutureExt, StreamExt};

use super::*;
use crate::{Event, Op};

pub(super) fn open(dir: &Path) -> Result<SqliteStore, Error> {
    SqliteStore::open(dir, SqliteOptions::default())
}

pub(super) async fn put(store: &SqliteStore, key: &str, bytes: usize) -> Result<Revision, Error> {
    let op = Op::Put { key: key.into(), value: Bytes::from(vec![b'x'; bytes]) };
    match store.commit(Commit { compares: vec![], ops: vec![op] }).await? {
        Outcome::Committed(revision) => Ok(revision),
        conflict => panic!("{conflict:?}"),
    }
}

async fn delete(store: &SqliteStore, key: &str) -> Revision {
    let commit = Commit { compares: vec![], ops: vec![Op::Delete { key: key.into() }] };
    match store.commit(commit).await.unwrap() {
        Outcome::Committed(revision) => revision,
        conflict => panic!("{conflict:?}"),
    }
}

pub(super) fn unusable(dir: &Path) -> String {
    match open(dir) {
        Err(Error::Unusable(message)) => message,
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("it was opened"),
    }
}

/// A store with some objects, closed properly.
async fn filled(dir: &Path) {
    let store = open(dir).unwrap();
    for n in 0..200 {
        put(&store, &format!("k{n}"), 1000).await.unwrap();
    }
    store.close().await;
}

/// Waking a thread and being woken takes longer than a quick sync; while one writes, others go to the thread and share
/// a sync.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn who_comes_alone_writes_at_once_and_a_crowd_together() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(open(dir.path()).unwrap());
    // The thread makes the journal, and takes over whenever a sync is slow.
    let mut first = 0;
    for _ in 0..50 {
        if put(&store, "first", 1).now_or_never().is_some() {
            first = store.revision().await.unwrap();
            break;
        }
        tokio::time::sleep(writer::QUIET_PERIOD * 2).await;
    }
    assert!(first > 1, "nobody ever wrote at once");
    let put = |n: u64| {
        let store = Arc::clone(&store);
        tokio::spawn(async move { put(&store, &format!("k{n}"), 100).await.unwrap() })
    };
    let mut revisions: Vec<Revision> =
        futures::future::join_all((0..500).map(put)).await.into_iter().map(|done| done.unwrap()).collect();
    revisions.sort_unstable();
    assert_eq!(revisions, (first + 1..=first + 500).collect::<Vec<_>>());
    assert_eq!(store.revision().await.unwrap(), first + 500);
    let seen: Vec<_> = store.watch(Range::all(), 0).await.unwrap().take(501).collect().await;
    assert!(seen.iter().zip(1..).all(|(batch, revision)| batch.as_ref().unwrap().revision == revision));
    store.close().await;
    assert!(matches!(store.commit(Commit { compares: vec![], ops: vec![] }).await, Err(Error::Closed)));
}

#[tokio::test]
async fn everything_is_there_after_reopening() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path()).await;
    let store = open(dir.path()).unwrap();
    assert_eq!(store.revision().await.unwrap(), 200);
    assert_eq!(store.range(Range::all(), 0, None).await.unwrap().entries.len(), 200);
    // History too.
    assert_eq!(store.range(Range::all(), 0, Some(7)).await.unwrap().entries.len(), 7);
    let seen: Vec<_> = store.watch(Range::all(), 150).await.unwrap().take(50).collect().await;
    assert_eq!(seen.last().unwrap().as_ref().unwrap().revision, 200);
    assert_eq!(put(&store, "k", 1).await.unwrap(), 201);
}

#[tokio::test]
async fn revisions_are_never_used_twice() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).unwrap();
    put(&store, "a", 1).await.unwrap();
    let last = delete(&store, "a").await;
    store.compact(last).await.unwrap();
    // Until even the deletion is trimmed: no row is left.
    let rows = || async {
        let count = |db: &rusqlite::Transaction<'_>| {
            db.query_row("SELECT count(*) FROM log", [], |row| row.get::<_, i64>(0)).map_err(fault::reading)
        };
        store.shared.readers.run(count).await.unwrap()
    };
    for _ in 0..100 {
        if rows().await == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(rows().await, 0);
    assert_eq!(store.range(Range::all(), 0, None).await.unwrap().revision, last);
    drop(store);
    let store = open(dir.path()).unwrap();
    assert_eq!(store.revision().await.unwrap(), last);
    assert_eq!(store.oldest().await.unwrap(), last);
    assert_eq!(put(&store, "a", 1).await.unwrap(), last + 1);
}

#[tokio::test]
async fn a_second_process_is_told_who_holds_the_directory() {
    let dir = tempfile::tempdir().unwrap();
    let first = open(dir.path()).unwrap();
    let message = unusable(dir.path());
    assert!(message.contains("another selvedge"), "{message}");
    assert!(message.contains(dir.path().to_str().unwrap()), "{message}");
    assert!(message.contains(&format!("process {}", std::process::id())), "{message}");
    put(&first, "a", 1).await.unwrap();
    drop(first);
    assert!(open(dir.path()).unwrap().get("a").await.unwrap().is_some());
}

#[test]
fn a_directory_without_the_right_to_write_is_named() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o500)).unwrap();
    // Root may write anywhere but in the kernel's own directories.
    let root = fs::write(dir.path().join("probe"), "").is_ok();
    let dir = if root { Path::new("/sys/kernel") } else { dir.path() };
    let message = unusable(dir);
    assert!(message.contains(dir.to_str().unwrap()) && message.contains("cannot write"), "{message}");
}

#[tokio::test]
async fn a_full_disk_stops_writes_but_not_reads_and_heals() {
    let dir = tempfile::tempdir().unwrap();
    let options = SqliteOptions { max_bytes: Some(256 << 10), ..SqliteOptions::default() };
    let store = SqliteStore::open(dir.path(), options).unwrap();
    let mut watch = store.watch(Range::all(), 0).await.unwrap();
    for _ in 0..20 {
        put(&store, "history", 4000).await.unwrap();
    }
    let mut stored = 20;
    let error = loop {
        match put(&store, &format!("k{stored:03}"), 4000).await {
            Ok(revision) => stored = revision,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::Full(_)), "{error:?}");
    assert!(stored > 40, "{stored}");
    assert_eq!(store.revision().await.unwrap(), stored);
    let page = store.range(Range::all(), 0, None).await.unwrap();
    assert_eq!((page.entries.len() as u64, page.revision), (stored - 19, stored));
    // One that is too large does no harm to small ones in the same group.
    let (large, small) = tokio::join!(put(&store, "large", 100_000), put(&store, "small", 1));
    assert!(matches!(large, Err(Error::Full(_))), "{large:?}");
    assert_eq!(small.unwrap(), stored + 1);
    // Forgetting history makes room again.
    store.compact(store.revision().await.unwrap()).await.unwrap();
    let mut healed = Err(Error::Closed);
    for _ in 0..200 {
        healed = put(&store, "again", 4000).await;
        if healed.is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    healed.unwrap();
    // Nothing of what failed was ever told to a watcher.
    watch = match watch.next().await {
        Some(Err(Error::Compacted { oldest, .. })) => store.watch(Range::all(), oldest).await.unwrap(),
        other => panic!("{other:?}"),
    };
    assert_eq!(watch.next().await.unwrap().unwrap().events[0].key(), "again");
}

#[tokio::test]
async fn a_damaged_file_is_refused_and_left_alone() {
    type Damage = fn(&mut Vec<u8>);
    let cases: [(&str, Damage); 5] = [
        ("empty", |file| file.clear()),
        ("cut in the header", |file| file.truncate(10)),
        ("cut in half", |file| file.truncate(file.len() / 2)),
        ("garbage in front", |file| file[..4096].fill(0x5a)),
        ("garbage in the middle", |file| file[4096..16 * 4096].fill(0x5a)),
    ];
    for (name, damage) in cases {
        let dir = tempfile::tempdir().unwrap();
        filled(dir.path()).await;
        let path = dir.path().join("store.db");
        let mut file = fs::read(&path).unwrap();
        damage(&mut file);
        fs::write(&path, &file).unwrap();
        let message = unusable(dir.path());
        assert!(message.contains("store.db") && message.contains("Restore"), "{name}: {message}");
        assert_eq!(fs::read(&path).unwrap(), file, "{name}: the file was touched");
    }
}

#[tokio::test]
async fn a_log_without_its_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path()).await;
    fs::rename(dir.path().join("store.db"), dir.path().join("store.db-wal")).unwrap();
    let message = unusable(dir.path());
    assert!(message.contains("store.db-wal") && message.contains("missing"), "{message}");
}

#[tokio::test]
async fn foreign_and_newer_files_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.db");
    rusqlite::Connection::open(&path).unwrap().execute_batch("CREATE TABLE other (x)").unwrap();
    let message = unusable(dir.path());
    assert!(message.contains("not a selvedge store"), "{message}");

    let dir = tempfile::tempdir().unwrap();
    filled(dir.path()).await;
    let path = dir.path().join("store.db");
    rusqlite::Connection::open(&path).unwrap().pragma_update(None, "user_version", 9).unwrap();
    let message = unusable(dir.path());
    assert!(message.contains("version 9") && message.contains("version 3"), "{message}");
}

#[tokio::test]
async fn an_unfinished_creation_is_begun_again() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("store.db.new"), "half").unwrap();
    put(&open(dir.path()).unwrap(), "a", 1).await.unwrap();
}

#[tokio::test]
async fn history_ages_out_by_itself_and_the_file_stays_small() {
    let dir = tempfile::tempdir().unwrap();
    let options = SqliteOptions { keep_revisions: 50, keep_for: Duration::from_millis(20), ..SqliteOptions::default() };
    let store = SqliteStore::open(dir.path(), options).unwrap();
    for _ in 0..3000 {
        put(&store, "same", 4000).await.unwrap();
    }
    let newest = store.revision().await.unwrap();
    let oldest = store.oldest().await.unwrap();
    assert!(oldest > newest / 2 && oldest <= newest - 50, "{oldest} {newest}");
    store.range(Range::all(), 0, Some(newest - 50)).await.unwrap();
    store.close().await;
    // 3,000 versions would be 12 MB.
    let size = fs::metadata(dir.path().join("store.db")).unwrap().len();
    assert!(size < 6 << 20, "{size}");
}

#[tokio::test]
async fn a_watcher_that_sleeps_reads_on_from_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).unwrap();
    let mut watch = store.watch(Range::prefix("a"), 0).await.unwrap();
    put(&store, "a", 1).await.unwrap();
    assert_eq!(watch.next().await.unwrap().unwrap().revision, 1);
    // More than the ring holds, in bytes.
    for n in 0..30 {
        put(&store, if n % 3 == 0 { "b" } else { "a" }, 200 << 10).await.unwrap();
    }
    assert!(store.shared.recent().after(1, 1).is_none(), "the ring is to be too short");
    for n in (0..30).filter(|n| n % 3 != 0) {
        let batch = watch.next().await.unwrap().unwrap();
        assert_eq!(batch.revision, n + 2);
        assert!(matches!(&batch.events[..], [Event::Put(entry)] if entry.key == "a"));
    }
}

#[tokio::test]
async fn the_write_ahead_log_stays_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).unwrap();
    for _ in 0..400 {
        put(&store, "k", 256 << 10).await.unwrap();
    }
    // 100 MB were written.
    let wal = fs::metadata(dir.path().join("store.db-wal")).unwrap().len();
    assert!(wal < 48 << 20, "{wal}");
}

/// What a crash would leave at this moment.
pub(super) fn crashed(store: &SqliteStore, dir: &Path) -> tempfile::TempDir {
    let image = tempfile::tempdir().unwrap();
    // Nobody writes meanwhile. What is in the log may move to the file: so the log is first.
    let _held = store.committer.writer();
    for file in ["store.journal", "store.db-wal", "store.db"] {
        if dir.join(file).exists() {
            fs::copy(dir.join(file), image.path().join(file)).unwrap();
        }
    }
    image
}

fn in_file(dir: &Path) -> i64 {
    let db = rusqlite::Connection::open(dir.join("store.db")).unwrap();
    db.query_row("SELECT count(*) FROM live", [], |row| row.get(0)).unwrap()
}

/// A store in which `k00` to `k19` were just written.
pub(super) async fn twenty(dir: &Path) -> SqliteStore {
    let store = open(dir).unwrap();
    for n in 0..20 {
        put(&store, &format!("k{n:02}"), 100).await.unwrap();
    }
    store
}

/// Writes until something is in the journal alone, however slow the machine is. Says what was written last.
pub(super) async fn hurry(store: &SqliteStore) -> Revision {
    loop {
        let revision = put(store, "hurry", 1).await.unwrap();
        if !store.shared.recent().unsettled().is_empty() {
            return revision;
        }
    }
}

pub(super) async fn keys(store: &SqliteStore) -> Vec<String> {
    store.range(Range::all(), 0, None).await.unwrap().entries.into_iter().map(|entry| entry.key).collect()
}

#[tokio::test]
async fn many_writes_are_in_the_journal_first_and_in_the_file_after_a_lull() {
    let dir = tempfile::tempdir().unwrap();
    let store = twenty(dir.path()).await;
    let last = delete(&store, "k07").await;
    let all = keys(&store).await;
    assert_eq!(all.len(), 19);
    // Pages and the past, too, are of the file and of what it does not have yet.
    let page = store.range(Range::all(), 7, None).await.unwrap();
    assert_eq!(page.entries.iter().map(|entry| &entry.key).collect::<Vec<_>>(), all.iter().take(7).collect::<Vec<_>>());
    assert!(page.more && page.revision == last);
    assert_eq!(store.range(Range::all(), 0, Some(10)).await.unwrap().entries.len(), 10);
    let rest = store.range(Range { start: "k15".into(), end: String::new() }, 5, None).await.unwrap();
    assert_eq!((rest.entries.len(), rest.more), (5, false));
    hurry(&store).await;
    let all = keys(&store).await;
    let image = crashed(&store, dir.path());
    assert_eq!(keys(&open(image.path()).unwrap()).await, all);
    for _ in 0..100 {
        if store.shared.recent().unsettled().is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(in_file(dir.path()), 20);
    assert_eq!(keys(&store).await, all);
    // Who writes now and then needs no journal.
    tokio::time::sleep(writer::QUIET_PERIOD * 2).await;
    put(&store, "alone", 1).await.unwrap();
    assert_eq!(in_file(dir.path()), 21);
}

/// At every moment of a long run: with the journal begun anew many times, and rows trimmed along the way.
#[tokio::test]
async fn a_crash_at_any_time_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let options =
        SqliteOptions { keep_revisions: 100, keep_for: Duration::from_millis(10), ..SqliteOptions::default() };
    let store = SqliteStore::open(dir.path(), options).unwrap();
    let mut model = std::collections::BTreeMap::new();
    let mut rounds = std::collections::BTreeSet::new();
    for n in 0..1200_usize {
        let key = format!("k{:03}", n * 37 % 311);
        if n % 7 == 3 {
            delete(&store, &key).await;
            model.remove(&key);
        } else {
            let bytes = n * 613 % 20_000;
            model.insert(key.clone(), (put(&store, &key, bytes).await.unwrap(), bytes));
        }
        if n % 97 == 0 {
            let image = crashed(&store, dir.path());
            // What the first record follows.
            rounds
                .extend(fs::read(image.path().join("store.journal")).ok().map(|journal| journal[1024..1032].to_vec()));
            let again = open(image.path()).unwrap();
            let page = again.range(Range::all(), 0, None).await.unwrap();
            assert_eq!(page.revision, store.revision().await.unwrap(), "after {n}");
            let found = page.entries.into_iter().map(|entry| (entry.key, (entry.modified, entry.value.len())));
            assert_eq!(found.collect::<std::collections::BTreeMap<_, _>>(), model, "after {n}");
            let next = put(&again, "next", 1).await.unwrap();
            assert_eq!(next, page.revision + 1);
        }
    }
    assert!(rounds.len() > 2, "the journal has begun anew {} times", rounds.len());
    store.close().await;
    let again = open(dir.path()).unwrap();
    assert_eq!(keys(&again).await, model.into_keys().collect::<Vec<_>>());
}

#[tokio::test]
async fn a_broken_transaction_begins_again_with_what_the_journal_has() {
    let dir = tempfile::tempdir().unwrap();
    let store = twenty(dir.path()).await;
    delete(&store, "k03").await;
    let newest = hurry(&store).await;
    let before = keys(&store).await;
    store.committer.writer().as_mut().unwrap().break_transaction();
    assert_eq!(keys(&store).await, before);
    // It sees what was there before.
    let commit = Commit { compares: vec![crate::Compare { key: "k05".into(), modified: 6 }], ops: vec![] };
    assert_eq!(store.commit(commit).await.unwrap(), Outcome::Committed(newest));
    let again = put(&store, "k03", 1).await.unwrap();
    assert_eq!(again, newest + 1);
    hurry(&store).await;
    store.committer.writer().as_mut().unwrap().break_transaction();
    let image = crashed(&store, dir.path());
    assert_eq!(keys(&open(image.path()).unwrap()).await.len(), 21);
    store.close().await;
    assert_eq!(in_file(dir.path()), 21);
    assert_eq!(open(dir.path()).unwrap().get("k03").await.unwrap().unwrap().created, again);
}

/// Then the file may have it or not; what is written afterwards must not depend on that.
#[tokio::test]
async fn when_the_file_cannot_be_written_nothing_is_lost_and_reads_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let store = twenty(dir.path()).await;
    let newest = hurry(&store).await;
    let before = keys(&store).await;
    store.committer.writer().as_mut().unwrap().fail_commits(true);
    tokio::time::sleep(writer::QUIET_PERIOD * 3).await;
    assert_eq!(keys(&store).await, before);
    for _ in 0..2 {
        let refused = put(&store, "refused", 1).await;
        assert!(matches!(refused, Err(Error::Unknown(_))), "{refused:?}");
        assert_eq!(keys(&store).await, before);
    }
    assert!(store.compact(10).await.is_err());
    let image = crashed(&store, dir.path());
    assert_eq!(keys(&open(image.path()).unwrap()).await, before);
    store.committer.writer().as_mut().unwrap().fail_commits(false);
    assert_eq!(put(&store, "k20", 1).await.unwrap(), newest + 1);
    assert_eq!(in_file(dir.path()), 22);
    // The journal is used again.
    hurry(&store).await;
    assert_eq!(keys(&store).await.len(), 22);
}

#[tokio::test]
async fn a_journal_of_another_store_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = twenty(dir.path()).await;
    hurry(&store).await;
    let image = crashed(&store, dir.path());
    drop(store);
    let other = tempfile::tempdir().unwrap();
    drop(open(other.path()).unwrap());
    fs::copy(image.path().join("store.journal"), other.path().join("store.journal")).unwrap();
    let message = unusable(other.path());
    assert!(message.contains("store.journal") && message.contains("does not belong"), "{message}");
    for file in ["store.db", "store.db-wal"] {
        let _ = fs::remove_file(other.path().join(file));
    }
    let message = unusable(other.path());
    assert!(message.contains("store.journal") && message.contains("missing"), "{message}");
}

#[tokio::test]
async fn an_older_store_gets_a_journal_and_is_out_of_reach_of_older_versions() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path()).await;
    fs::remove_file(dir.path().join("store.journal")).unwrap();
    let db = || rusqlite::Connection::open(dir.path().join("store.db")).unwrap();
    db().pragma_update(None, "user_version", 1).unwrap();
    let store = open(dir.path()).unwrap();
    assert_eq!(db().pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0)).unwrap(), 3);
    hurry(&store).await;
    assert!(dir.path().join("store.journal").exists());
    assert_eq!(keys(&store).await.len(), 201);
}

#[tokio::test]
async fn scrubbing_leaves_nothing_in_the_journal() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path()).unwrap();
    for n in 0..20 {
        let op = Op::Put { key: format!("k{n}"), value: "a secret".into() };
        store.commit(Commit { compares: vec![], ops: vec![op] }).await.unwrap();
        hurry(&store).await;
    }
    let has = || fs::read(dir.path().join("store.journal")).unwrap().windows(8).any(|bytes| bytes == b"a secret");
    // Also what is left of the last run.
    for again in [false, true] {
        if again {
            let op = Op::Put { key: "again".into(), value: "a secret".into() };
            hurry(&store).await;
            store.commit(Commit { compares: vec![], ops: vec![op] }).await.unwrap();
            hurry(&store).await;
            drop(store);
            store = open(dir.path()).unwrap();
        }
        assert!(has());
        store.scrub().await.unwrap();
        assert!(!has());
    }
    assert_eq!(keys(&store).await.len(), 22);
}
