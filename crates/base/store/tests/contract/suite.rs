//! What every backend must do. Each case gets an empty store, whose first revision need not be 0.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures::StreamExt;
use selvedge_store::{Batch, Commit, Compare, Entry, Error, Event, Op, Outcome, Range, Revision, Store, Watch};

use super::Capabilities;

pub(crate) type Any = Arc<dyn Store>;

pub(crate) fn put(key: &str, value: &str) -> Op {
    Op::Put { key: key.into(), value: Bytes::copy_from_slice(value.as_bytes()) }
}

pub(crate) fn delete(key: &str) -> Op {
    Op::Delete { key: key.into() }
}

pub(crate) fn compare(key: &str, modified: Revision) -> Compare {
    Compare { key: key.into(), modified }
}

async fn commit(store: &Any, compares: &[Compare], ops: &[Op]) -> Outcome {
    store.commit(Commit { compares: compares.to_vec(), ops: ops.to_vec() }).await.unwrap()
}

async fn done(store: &Any, ops: &[Op]) -> Revision {
    match commit(store, &[], ops).await {
        Outcome::Committed(revision) => revision,
        conflict => panic!("no compare was given, yet {conflict:?}"),
    }
}

async fn keys(store: &Any, range: Range, at: Option<Revision>) -> Vec<String> {
    let page = store.range(range, 0, at).await.unwrap();
    page.entries.iter().map(|entry| format!("{}={}", entry.key, String::from_utf8_lossy(&entry.value))).collect()
}

async fn next(watch: &mut Watch) -> Result<Batch, Error> {
    tokio::time::timeout(Duration::from_secs(20), watch.next()).await.expect("an event in time").expect("not the end")
}

async fn nothing(watch: &mut Watch) {
    let event = tokio::time::timeout(Duration::from_millis(50), watch.next()).await;
    assert!(event.is_err(), "unexpected {event:?}");
}

fn shown(batch: &Batch) -> String {
    let events = batch.events.iter().map(|event| match event {
        Event::Put(entry) => format!("{}={}", entry.key, String::from_utf8_lossy(&entry.value)),
        Event::Delete { key, .. } => format!("-{key}"),
    });
    events.collect::<Vec<_>>().join(" ")
}

pub(crate) async fn ops_apart(store: Any, can: Capabilities) {
    let base = done(&store, &[put("gone", "0"), put("kept", "0")]).await;
    let mut watch = store.watch(Range::all(), base).await.unwrap();
    let apart = |compares: &[Compare]| Commit {
        compares: compares.to_vec(),
        ops: vec![put("z", "1"), put("b", "0"), delete("gone"), delete("never"), put("b", "2"), put("kept", "3")],
    };
    let refused = store.commit_apart(apart(&[compare("kept", base), compare("z", 7)])).await.unwrap();
    assert_eq!(refused, Outcome::Conflict { key: "z".into(), found: 0 }, "wholly or not at all");
    let committed = store.commit_apart(apart(&[compare("kept", base), compare("gone", base)])).await.unwrap();
    assert_eq!(keys(&store, Range::all(), None).await, ["b=2", "kept=3", "z=1"]);
    let first = next(&mut watch).await.unwrap();
    if !can.revision_per_op {
        assert_eq!(committed, Outcome::Committed(first.revision));
        assert_eq!(shown(&first), "b=2 -gone kept=3 z=1");
        return;
    }
    assert_eq!(committed, Outcome::Committed(base + 4));
    let mut seen = vec![(first.revision, shown(&first))];
    for _ in 0..3 {
        let batch = next(&mut watch).await.unwrap();
        seen.push((batch.revision, shown(&batch)));
    }
    let expected = ["z=1", "-gone", "b=2", "kept=3"].iter().enumerate();
    let expected: Vec<_> = expected.map(|(at, text)| (base + 1 + at as Revision, (*text).to_owned())).collect();
    assert_eq!(seen, expected);
    // From the middle of it, and at that moment.
    let mut late = store.watch(Range::all(), base + 2).await.unwrap();
    assert_eq!(shown(&next(&mut late).await.unwrap()), "b=2");
    assert_eq!(keys(&store, Range::all(), Some(base + 2)).await, ["kept=0", "z=1"]);
}

pub(crate) async fn creates_updates_and_deletes(store: Any) {
    let base = store.revision().await.unwrap();
    assert!(store.get("a").await.unwrap().is_none());
    let one = done(&store, &[put("a", "1")]).await;
    assert!(one > base);
    let two = done(&store, &[put("a", "2")]).await;
    assert!(two > one);
    let expected = Entry { key: "a".into(), value: "2".into(), created: one, modified: two };
    assert_eq!(store.get("a").await.unwrap(), Some(expected));
    let three = done(&store, &[delete("a")]).await;
    assert!(three > two);
    assert!(store.get("a").await.unwrap().is_none());
    // Created anew, it begins anew.
    let four = done(&store, &[put("a", "")]).await;
    let expected = Entry { key: "a".into(), value: Bytes::new(), created: four, modified: four };
    assert_eq!(store.get("a").await.unwrap(), Some(expected));
    assert_eq!(store.revision().await.unwrap(), four);
}

pub(crate) async fn compares_all_or_nothing(store: Any) {
    let one = done(&store, &[put("a", "1"), put("b", "1")]).await;
    let outcome = commit(&store, &[compare("a", one), compare("b", one + 1)], &[put("a", "2"), put("c", "2")]).await;
    assert_eq!(outcome, Outcome::Conflict { key: "b".into(), found: one });
    assert_eq!(keys(&store, Range::all(), None).await, ["a=1", "b=1"]);
    assert_eq!(store.revision().await.unwrap(), one);
    // 0 is: must not exist.
    let outcome = commit(&store, &[compare("a", 0)], &[put("a", "2")]).await;
    assert_eq!(outcome, Outcome::Conflict { key: "a".into(), found: one });
    // The first that does not hold is told; a key that is not there was modified at 0.
    let outcome = commit(&store, &[compare("x", 7), compare("a", 0)], &[put("a", "2")]).await;
    assert_eq!(outcome, Outcome::Conflict { key: "x".into(), found: 0 });
    let outcome = commit(&store, &[compare("a", one), compare("c", 0)], &[put("a", "2"), put("c", "2")]).await;
    assert!(matches!(outcome, Outcome::Committed(two) if two > one));
    // A deleted key counts as not there.
    done(&store, &[delete("a")]).await;
    let outcome = commit(&store, &[compare("a", one)], &[put("a", "3")]).await;
    assert_eq!(outcome, Outcome::Conflict { key: "a".into(), found: 0 });
    assert!(matches!(commit(&store, &[compare("a", 0)], &[put("a", "3")]).await, Outcome::Committed(_)));
}

pub(crate) async fn a_commit_that_changes_nothing_takes_no_revision(store: Any) {
    let one = done(&store, &[put("a", "1")]).await;
    let mut watch = store.watch(Range::all(), one).await.unwrap();
    assert_eq!(done(&store, &[delete("b")]).await, one);
    assert_eq!(done(&store, &[]).await, one);
    assert_eq!(commit(&store, &[compare("a", one)], &[]).await, Outcome::Committed(one));
    nothing(&mut watch).await;
    let two = done(&store, &[delete("b"), put("c", "1")]).await;
    let batch = next(&mut watch).await.unwrap();
    assert_eq!((batch.revision, shown(&batch).as_str()), (two, "c=1"));
}

pub(crate) async fn of_two_ops_on_one_key_the_last_counts(store: Any) {
    done(&store, &[put("a", "1"), put("b", "1"), put("a", "2"), delete("b")]).await;
    assert_eq!(keys(&store, Range::all(), None).await, ["a=2"]);
}

pub(crate) async fn ranges_in_key_order_with_limit(store: Any) {
    for key in ["b/2", "a", "b/10", "b", "c", "b/1", "b0", "ä", "\u{10ffff}"] {
        done(&store, &[put(key, "")]).await;
    }
    let all = ["a=", "b=", "b/1=", "b/10=", "b/2=", "b0=", "c=", "ä=", "\u{10ffff}="];
    assert_eq!(keys(&store, Range::all(), None).await, all);
    assert_eq!(keys(&store, Range::prefix("b/"), None).await, ["b/1=", "b/10=", "b/2="]);
    assert_eq!(keys(&store, Range::prefix("ä"), None).await, ["ä="]);
    assert_eq!(keys(&store, Range::prefix("\u{10ffff}"), None).await, ["\u{10ffff}="]);
    assert_eq!(keys(&store, Range::one("b"), None).await, ["b="]);
    assert_eq!(keys(&store, Range { start: "c".into(), end: "a".into() }, None).await, [""; 0]);
    let page = store.range(Range::prefix("b/"), 2, None).await.unwrap();
    assert_eq!((page.entries.len(), page.more), (2, true));
    let page = store.range(Range { start: "b/10\0".into(), end: "b0".into() }, 2, None).await.unwrap();
    assert_eq!((page.entries.len(), page.more), (1, false));
    let page = store.range(Range::prefix("b/"), 3, None).await.unwrap();
    assert_eq!((page.entries.len(), page.more), (3, false));
}

pub(crate) async fn ranges_at_a_past_revision(store: Any) {
    let base = store.revision().await.unwrap();
    let one = done(&store, &[put("a", "1"), put("b", "1"), put("c", "1")]).await;
    let two = done(&store, &[put("a", "2"), delete("b"), put("d", "2")]).await;
    let three = done(&store, &[delete("a"), put("b", "3")]).await;
    let four = done(&store, &[put("a", "4")]).await;
    assert_eq!(keys(&store, Range::all(), Some(base)).await, [""; 0]);
    assert_eq!(keys(&store, Range::all(), Some(one)).await, ["a=1", "b=1", "c=1"]);
    assert_eq!(keys(&store, Range::all(), Some(two)).await, ["a=2", "c=1", "d=2"]);
    assert_eq!(keys(&store, Range::all(), Some(three)).await, ["b=3", "c=1", "d=2"]);
    assert_eq!(keys(&store, Range::all(), Some(four)).await, ["a=4", "b=3", "c=1", "d=2"]);
    assert_eq!(keys(&store, Range::one("a"), Some(two)).await, ["a=2"]);
    let page = store.range(Range::all(), 1, Some(two)).await.unwrap();
    assert_eq!((page.revision, page.more), (two, true));
    assert_eq!(page.entries, [Entry { key: "a".into(), value: "2".into(), created: one, modified: two }]);
    let error = store.range(Range::all(), 0, Some(four + 1)).await.unwrap_err();
    assert!(matches!(error, Error::Future { asked, newest } if asked == four + 1 && newest == four), "{error:?}");
}

pub(crate) async fn watches_past_then_present(store: Any) {
    let one = done(&store, &[put("a", "1"), put("x", "1")]).await;
    let two = done(&store, &[put("b", "2"), put("a", "2")]).await;
    done(&store, &[put("x", "3")]).await;
    let range = Range { start: "a".into(), end: "c".into() };
    let mut watch = store.watch(range.clone(), one).await.unwrap();
    let batch = next(&mut watch).await.unwrap();
    assert_eq!((batch.revision, shown(&batch).as_str()), (two, "a=2 b=2"));
    let Event::Put(entry) = &batch.events[0] else { panic!("{batch:?}") };
    assert_eq!((entry.created, entry.modified), (one, two));
    nothing(&mut watch).await;
    let four = done(&store, &[delete("b"), put("x", "4"), put("bb", "4")]).await;
    let batch = next(&mut watch).await.unwrap();
    assert_eq!((batch.revision, shown(&batch).as_str()), (four, "-b bb=4"));
    assert_eq!(batch.events[0], Event::Delete { key: "b".into(), revision: four });
    // From now on, and from a time that has not come.
    let mut fresh = store.watch(range.clone(), four).await.unwrap();
    nothing(&mut fresh).await;
    let error = store.watch(range, four + 1).await.err().unwrap();
    assert!(matches!(error, Error::Future { .. }), "{error:?}");
}

pub(crate) async fn watches_see_each_commit_once(store: Any) {
    const WRITERS: usize = 8;
    const EACH: usize = 60;
    let base = store.revision().await.unwrap();
    let total = WRITERS * EACH;
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let store = store.clone();
            tokio::spawn(async move {
                for n in 0..EACH {
                    done(&store, &[put(&format!("{writer}/{n}"), "v")]).await;
                }
            })
        })
        .collect();
    // Watchers come in while it runs, each at another moment, and some read slowly.
    let watchers: Vec<_> = (0..4_u64)
        .map(|watcher| {
            let store = store.clone();
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(15 * watcher)).await;
                let mut watch = store.watch(Range::all(), base).await.unwrap();
                let mut seen = Vec::new();
                while seen.len() < total {
                    let batch = next(&mut watch).await.unwrap();
                    seen.extend(batch.events.iter().map(|event| (batch.revision, event.key().to_owned())));
                    if watcher % 2 == 1 && seen.len() % 16 == 0 {
                        tokio::time::sleep(Duration::from_millis(2)).await;
                    }
                }
                nothing(&mut watch).await;
                seen
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let mut all = Vec::new();
    for watcher in watchers {
        all.push(watcher.await.unwrap());
    }
    let seen = &all[0];
    assert!(seen.is_sorted_by(|a, b| a.0 < b.0), "revisions grow");
    let mut distinct: Vec<_> = seen.iter().map(|(_, key)| key).collect();
    distinct.sort();
    distinct.dedup();
    assert_eq!(distinct.len(), total);
    assert!(all.iter().all(|other| other == seen), "every watcher sees the same");
}

pub(crate) async fn one_of_many_contenders_wins(store: Any) {
    for round in 0..10 {
        let key = format!("k{round}");
        let contenders: Vec<_> = (0..8)
            .map(|n| {
                let (store, key) = (store.clone(), key.clone());
                tokio::spawn(async move { commit(&store, &[compare(&key, 0)], &[put(&key, &n.to_string())]).await })
            })
            .collect();
        let mut won = Vec::new();
        let mut found = Vec::new();
        for contender in contenders {
            match contender.await.unwrap() {
                Outcome::Committed(revision) => won.push(revision),
                Outcome::Conflict { found: revision, .. } => found.push(revision),
            }
        }
        assert_eq!(won.len(), 1, "{won:?}");
        assert!(found.iter().all(|revision| *revision == won[0]), "{found:?} {won:?}");
    }
}

pub(crate) async fn compaction_forgets_only_the_past(store: Any) {
    let one = done(&store, &[put("a", "1"), put("b", "1"), put("c", "1")]).await;
    let mut slow = store.watch(Range::all(), one).await.unwrap();
    let two = done(&store, &[put("a", "2"), delete("b")]).await;
    let three = done(&store, &[put("a", "3"), put("d", "3")]).await;
    let four = done(&store, &[delete("d")]).await;
    assert!(matches!(next(&mut slow).await, Ok(batch) if batch.revision == two));
    store.compact(three).await.unwrap();
    assert_eq!(store.oldest().await.unwrap(), three);
    for gone in [one, two] {
        let error = store.range(Range::all(), 0, Some(gone)).await.unwrap_err();
        assert!(matches!(error, Error::Compacted { asked, oldest } if asked == gone && oldest == three), "{error:?}");
        let error = match store.watch(Range::all(), gone).await {
            Ok(mut watch) => next(&mut watch).await.unwrap_err(),
            Err(error) => error,
        };
        assert!(matches!(error, Error::Compacted { asked, oldest } if asked == gone && oldest == three), "{error:?}");
    }
    assert_eq!(keys(&store, Range::all(), Some(three)).await, ["a=3", "c=1", "d=3"]);
    assert_eq!(keys(&store, Range::all(), None).await, ["a=3", "c=1"]);
    let mut watch = store.watch(Range::all(), three).await.unwrap();
    let batch = next(&mut watch).await.unwrap();
    assert_eq!((batch.revision, shown(&batch).as_str()), (four, "-d"));
    // Again, earlier, later than now.
    store.compact(three).await.unwrap();
    store.compact(one).await.unwrap();
    assert_eq!(store.oldest().await.unwrap(), three);
    let error = store.compact(four + 1).await.unwrap_err();
    assert!(matches!(error, Error::Future { .. }), "{error:?}");
    // To the end: the newest row is a deletion, and its revision is not given out again.
    store.compact(four).await.unwrap();
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(store.revision().await.unwrap(), four);
    assert_eq!(keys(&store, Range::all(), Some(four)).await, ["a=3", "c=1"]);
    let five = done(&store, &[put("d", "5")]).await;
    assert!(five > four);
    let mut watch = store.watch(Range::all(), four).await.unwrap();
    assert_eq!(next(&mut watch).await.unwrap().revision, five);
}

pub(crate) async fn large_values_and_many_keys(store: Any) {
    let base = store.revision().await.unwrap();
    let big = "x".repeat(600 << 10);
    for n in 0..6 {
        done(&store, &[put(&format!("big/{n}"), &big)]).await;
    }
    let many: Vec<_> = (0..120).map(|n| put(&format!("many/{n:03}"), "v")).collect();
    let revision = done(&store, &many).await;
    let page = store.range(Range::all(), 0, None).await.unwrap();
    assert_eq!((page.entries.len(), page.more, page.revision), (126, false, revision));
    assert!(page.entries[..6].iter().all(|entry| entry.value.len() == big.len()));
    let mut watch = store.watch(Range::all(), base).await.unwrap();
    for _ in 0..6 {
        assert_eq!(next(&mut watch).await.unwrap().events.len(), 1);
    }
    assert_eq!(next(&mut watch).await.unwrap().events.len(), 120);
}

pub(crate) async fn closed_is_closed(store: Any) {
    let one = done(&store, &[put("a", "1")]).await;
    let mut watch = store.watch(Range::all(), one).await.unwrap();
    store.close().await;
    store.close().await;
    assert!(matches!(next(&mut watch).await, Err(Error::Closed)));
    assert!(watch.next().await.is_none());
    assert!(matches!(store.get("a").await, Err(Error::Closed)));
    assert!(matches!(store.revision().await, Err(Error::Closed)));
    assert!(matches!(store.oldest().await, Err(Error::Closed)));
    assert!(matches!(store.compact(one).await, Err(Error::Closed)));
    assert!(matches!(store.watch(Range::all(), one).await.err(), Some(Error::Closed)));
    let commit = Commit { compares: vec![], ops: vec![put("a", "2")] };
    assert!(matches!(store.commit(commit).await, Err(Error::Closed)));
}
