//! Damage to the journal, power cuts while it is written, and what is done about a full disk or a panic.

use std::{fs, path::Path, time::Duration};

use futures::StreamExt;

use super::{
    group_commit::Job,
    journal,
    tests::{crashed, hurry, keys, open, put, twenty, unusable},
    *,
};
use crate::{Batch, Entry, Event, Op};

const JOURNAL: &str = "store.journal";
const SECTOR: usize = 512;

fn copy(from: &Path, to: &Path) {
    for file in fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
}

/// What a crash leaves before and after one more group was written to the journal.
async fn before_and_after(bytes: usize) -> (tempfile::TempDir, tempfile::TempDir, Revision) {
    loop {
        let dir = tempfile::tempdir().unwrap();
        let store = twenty(dir.path()).await;
        let newest = hurry(&store).await;
        let before = crashed(&store, dir.path());
        put(&store, "last", bytes).await.unwrap();
        let after = crashed(&store, dir.path());
        let same =
            |file: &str| fs::read(before.path().join(file)).unwrap() == fs::read(after.path().join(file)).unwrap();
        // On a slow machine the group may have gone to the file itself.
        if same("store.db") && same("store.db-wal") && !same(JOURNAL) {
            return (before, after, newest);
        }
    }
}

#[tokio::test]
async fn a_power_cut_while_the_journal_is_written_starts_and_loses_nothing() {
    let (before, after, newest) = before_and_after(2500).await;
    let (old, new) = (fs::read(before.path().join(JOURNAL)).unwrap(), fs::read(after.path().join(JOURNAL)).unwrap());
    let changed: Vec<usize> = (0..old.len() / SECTOR)
        .filter(|at| old[at * SECTOR..(at + 1) * SECTOR] != new[at * SECTOR..(at + 1) * SECTOR])
        .collect();
    assert!((5..9).contains(&changed.len()), "{changed:?}");
    for which in 0..1_usize << changed.len() {
        let mut torn = old.clone();
        for (_, at) in changed.iter().enumerate().filter(|(index, _)| which & (1 << index) != 0) {
            torn[at * SECTOR..(at + 1) * SECTOR].copy_from_slice(&new[at * SECTOR..(at + 1) * SECTOR]);
        }
        let image = tempfile::tempdir().unwrap();
        copy(before.path(), image.path());
        fs::write(image.path().join(JOURNAL), torn).unwrap();
        let store = open(image.path()).unwrap();
        let whole = which + 1 == 1 << changed.len();
        assert_eq!(store.revision().await.unwrap(), newest + Revision::from(whole), "{which:b}");
        assert_eq!(keys(&store).await.len(), 21 + usize::from(whole));
    }
}

#[tokio::test]
async fn a_damaged_journal_is_refused_and_left_alone() {
    let (_before, after, _) = before_and_after(2500).await;
    let whole = fs::read(after.path().join(JOURNAL)).unwrap();
    let last = (0..whole.len() / SECTOR).rfind(|at| whole[at * SECTOR..].starts_with(&whole[1024..1032])).unwrap();
    type Damage = Box<dyn Fn(&mut Vec<u8>)>;
    let mut cases: Vec<(String, Damage)> = vec![
        ("emptied".into(), Box::new(|file| file.clear())),
        ("cut".into(), Box::new(move |file| file.truncate(last * SECTOR))),
        ("cut in the last sector".into(), Box::new(|file| file.truncate(file.len() - 1))),
        ("longer".into(), Box::new(|file| file.push(0))),
        ("all zeros".into(), Box::new(|file| file.fill(0))),
    ];
    for at in (0..=last).chain([last + 1]) {
        cases.push((format!("a bit in sector {at}"), Box::new(move |file| file[at * SECTOR + 100] ^= 4)));
        cases.push((format!("zeros in sector {at}"), Box::new(move |file| file[at * SECTOR..][..SECTOR].fill(0))));
    }
    for (name, damage) in cases {
        let image = tempfile::tempdir().unwrap();
        copy(after.path(), image.path());
        let mut file = whole.clone();
        damage(&mut file);
        fs::write(image.path().join(JOURNAL), &file).unwrap();
        let message = unusable(image.path());
        for part in [JOURNAL, "acknowledged", "Restore", "--accept-lost-writes"] {
            assert!(message.contains(part), "{name}: {message}");
        }
        for file in ["store.db", "store.db-wal"] {
            let (is, was) = (fs::read(image.path().join(file)).unwrap(), fs::read(after.path().join(file)).unwrap());
            assert_eq!(is, was, "{name}: {file} was touched");
        }
        assert_eq!(fs::read(image.path().join(JOURNAL)).unwrap(), file, "{name}: the journal was touched");
    }
    fs::remove_file(after.path().join(JOURNAL)).unwrap();
    let message = unusable(after.path());
    assert!(message.contains("is missing") && message.contains("--accept-lost-writes"), "{message}");
}

#[tokio::test]
async fn a_log_that_has_lost_commits_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = twenty(dir.path()).await;
    // Written to the file itself, without the journal.
    tokio::time::sleep(writer::QUIET_PERIOD * 3).await;
    put(&store, "alone", 100).await.unwrap();
    let image = crashed(&store, dir.path());
    fs::write(image.path().join("store.db-wal"), "").unwrap();
    let message = unusable(image.path());
    assert!(message.contains("acknowledged") && message.contains("ends at revision"), "{message}");
}

#[tokio::test]
async fn lost_writes_can_be_accepted_and_no_revision_is_used_twice() {
    let (_before, after, newest) = before_and_after(100).await;
    let path = after.path().join(JOURNAL);
    let mut bytes = fs::read(&path).unwrap();
    let last = (0..bytes.len() / SECTOR).rfind(|at| bytes[at * SECTOR..].starts_with(&bytes[1024..1032])).unwrap();
    bytes[last * SECTOR + 50] ^= 1;
    fs::write(&path, bytes).unwrap();
    unusable(after.path());
    let options = SqliteOptions { accept_lost_writes: true, ..SqliteOptions::default() };
    let store = SqliteStore::open(after.path(), options).unwrap();
    assert_eq!(keys(&store).await.len(), 21, "what is whole is there");
    let begins = store.revision().await.unwrap();
    assert!(begins > newest + 1000, "{begins}");
    // A client that has seen the lost ones is told to begin anew.
    assert!(matches!(store.watch(Range::all(), newest + 1).await, Err(Error::Compacted { .. })));
    let mut watch = store.watch(Range::all(), begins).await.unwrap();
    assert_eq!(put(&store, "next", 1).await.unwrap(), begins + 1);
    assert_eq!(watch.next().await.unwrap().unwrap().revision, begins + 1);
    hurry(&store).await;
    let image = crashed(&store, after.path());
    assert_eq!(keys(&open(image.path()).unwrap()).await.len(), 22);
    drop(store);
    assert_eq!(keys(&open(after.path()).unwrap()).await.len(), 22);
}

#[tokio::test]
async fn a_backup_without_the_journal_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let store = twenty(dir.path()).await;
    hurry(&store).await;
    for _ in 0..100 {
        if store.shared.recent().unsettled().is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let restored = tempfile::tempdir().unwrap();
    let backup = restored.path().join("store.db");
    let db = rusqlite::Connection::open(dir.path().join("store.db")).unwrap();
    db.execute("VACUUM INTO ?1", [backup.to_str().unwrap()]).unwrap();
    let again = open(restored.path()).unwrap();
    assert_eq!(keys(&again).await, keys(&store).await);
    hurry(&again).await;
    // Beside a journal that it does not belong to, it is refused.
    let mixed = tempfile::tempdir().unwrap();
    db.execute("VACUUM INTO ?1", [mixed.path().join("store.db").to_str().unwrap()]).unwrap();
    tokio::time::sleep(writer::QUIET_PERIOD * 2).await;
    put(&store, "later", 1).await.unwrap();
    hurry(&store).await;
    fs::copy(dir.path().join(JOURNAL), mixed.path().join(JOURNAL)).unwrap();
    let message = unusable(mixed.path());
    assert!(message.contains("ends at revision"), "{message}");
}

#[tokio::test]
async fn a_store_that_was_closed_in_order_needs_no_journal() {
    let dir = tempfile::tempdir().unwrap();
    let store = twenty(dir.path()).await;
    hurry(&store).await;
    store.close().await;
    fs::remove_file(dir.path().join(JOURNAL)).unwrap();
    assert_eq!(keys(&open(dir.path()).unwrap()).await.len(), 21);
}

#[tokio::test]
async fn what_an_older_version_left_in_its_journal_is_applied() {
    let dir = tempfile::tempdir().unwrap();
    let store = twenty(dir.path()).await;
    store.close().await;
    drop(store);
    let db = rusqlite::Connection::open(dir.path().join("store.db")).unwrap();
    db.execute_batch("DELETE FROM meta WHERE name = 'journal'; PRAGMA user_version = 2").unwrap();
    drop(db);
    let batch = |revision| Batch {
        revision,
        events: vec![Event::Put(Entry {
            key: format!("n{revision}"),
            value: "v".into(),
            created: revision,
            modified: revision,
        })],
    };
    fs::write(dir.path().join(JOURNAL), journal::write_first([3; 16], &[batch(20), batch(21), batch(22)])).unwrap();
    let store = open(dir.path()).unwrap();
    assert_eq!(store.revision().await.unwrap(), 22);
    assert_eq!(keys(&store).await.len(), 22);
    hurry(&store).await;
    assert_eq!(keys(&open(crashed(&store, dir.path()).path()).unwrap()).await.len(), 23);
}

/// On a disk that is full, what was kept for it is used for deletions, and for nothing else; and trimming makes room
/// again.
#[tokio::test]
async fn deletions_have_room_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let reserve = dir.path().join("store.reserve");
    let store = open(dir.path()).unwrap();
    assert_eq!(fs::metadata(&reserve).unwrap().len(), 4 << 20);
    put(&store, "a", 1).await.unwrap();
    drop(store);
    // A start on a disk that was full.
    fs::OpenOptions::new().write(true).open(&reserve).unwrap().set_len(1 << 20).unwrap();
    let store = open(dir.path()).unwrap();
    let commit = Commit { compares: vec![], ops: vec![Op::Delete { key: "a".into() }] };
    assert!(matches!(store.commit_freeing(commit).await.unwrap(), Outcome::Committed(2)));
    assert_eq!(fs::metadata(&reserve).unwrap().len(), 4 << 20, "it is restored where there is room");
}

/// The state of a writer that was broken off is not known: nothing more is written, and whoever runs the store is told.
#[tokio::test]
async fn a_panic_of_the_writer_ends_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(twenty(dir.path()).await);
    store.check().await.unwrap();
    let waits = Arc::clone(&store);
    let died = tokio::spawn(async move { waits.died().await });
    let mut watch = store.watch(Range::all(), store.revision().await.unwrap()).await.unwrap();
    store.jobs.send(Job::Panic).unwrap();
    let why = tokio::time::timeout(Duration::from_secs(10), died).await.unwrap().unwrap();
    assert!(why.contains("panic"), "{why}");
    assert!(matches!(put(&store, "a", 1).await, Err(Error::Closed)));
    assert!(matches!(watch.next().await, Some(Err(Error::Closed))));
    assert!(store.check().await.is_err());
    drop(watch);
    drop(store);
    assert_eq!(keys(&open(dir.path()).unwrap()).await.len(), 20);
}

#[tokio::test]
async fn a_check_says_when_writes_fail_and_when_they_work_again() {
    let dir = tempfile::tempdir().unwrap();
    let store = twenty(dir.path()).await;
    store.check().await.unwrap();
    store.committer.writer().as_mut().unwrap().fail_commits(true);
    tokio::time::sleep(writer::QUIET_PERIOD * 3).await;
    assert!(put(&store, "refused", 1).await.is_err());
    for _ in 0..2 {
        assert!(store.check().await.is_err());
    }
    store.committer.writer().as_mut().unwrap().fail_commits(false);
    store.check().await.unwrap();
    assert_eq!(keys(&store).await.len(), 20);
}
