//! Random commits, ranges, watches and compactions, compared step by step with the memory store.

use std::{collections::BTreeMap, time::Duration};

use futures::StreamExt;
use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};
use selvedge_store::{Commit, Compare, Entry, Error, Event, MemoryStore, Outcome, Range, Revision, Store};

use super::{
    Made,
    suite::{delete, put},
};

/// How long an event that must come may take, and how long a silence means that there is no more.
const EVENT_TIMEOUT: Duration = Duration::from_secs(10);
const QUIET_PERIOD: Duration = Duration::from_millis(20);

#[derive(Clone, Debug)]
enum Step {
    /// (key, compare with: 0 nothing, 1 what is true, 2 absent, 3 something wrong), and the ops.
    Commit(Vec<(u8, u8)>, Vec<(u8, Option<u8>)>),
    Range {
        from: u8,
        to: u8,
        limit: usize,
        back: Option<u8>,
    },
    Watch {
        from: u8,
        to: u8,
        back: u8,
    },
    Compact {
        back: u8,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = 0..6_u8;
    let commit = (
        prop::collection::vec((key.clone(), 0..4_u8), 0..3),
        prop::collection::vec((key.clone(), prop::option::weighted(0.7, any::<u8>())), 0..4),
    );
    let step = prop_oneof![
        6 => commit.prop_map(|(compares, ops)| Step::Commit(compares, ops)),
        3 => (key.clone(), key.clone(), 0..4_usize, prop::option::of(0..12_u8))
            .prop_map(|(from, to, limit, back)| Step::Range { from, to, limit, back }),
        1 => (key.clone(), key, 0..12_u8).prop_map(|(from, to, back)| Step::Watch { from, to, back }),
        1 => (0..12_u8).prop_map(|back| Step::Compact { back }),
    ];
    prop::collection::vec(step, 1..60)
}

/// `make` gives an empty store each time.
pub(crate) fn check<F, R>(make: F)
where
    F: Fn() -> R,
    R: Future<Output = Option<Made>>,
{
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let config = Config { cases: 24, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new(config);
    let result = runner.run(&steps(), |steps| {
        runtime.block_on(async {
            if let Some((store, _keep)) = make().await {
                run(&*store, steps).await;
            }
        });
        Ok(())
    });
    result.unwrap_or_else(|failure| panic!("{failure}"));
}

fn key(n: u8) -> String {
    // Two of them nest, so that prefixes matter.
    ["a", "a/b", "b", "c", "c\u{e4}", "d"][usize::from(n) % 6].to_owned()
}

fn range(from: u8, to: u8) -> Range {
    Range { start: key(from), end: if to == 0 { String::new() } else { key(to) } }
}

async fn run(store: &dyn Store, steps: Vec<Step>) {
    let model = MemoryStore::new();
    // The store's revisions need not be the model's; they must only stand in the same order.
    let mut theirs = BTreeMap::from([(0, store.revision().await.unwrap())]);
    for step in steps {
        let newest = model.revision().await.unwrap();
        let back = |back: u8| newest.saturating_sub(u64::from(back));
        match step {
            Step::Commit(compares, ops) => {
                let mut ours = Commit::default();
                for (n, kind) in compares {
                    let modified = model.get(&key(n)).await.unwrap().map_or(0, |entry| entry.modified);
                    let expected = match kind {
                        0 => continue,
                        1 => modified,
                        2 => 0,
                        _ => newest,
                    };
                    ours.compares.push(Compare { key: key(n), modified: expected });
                }
                for (n, value) in ops {
                    ours.ops.push(value.map_or_else(|| delete(&key(n)), |value| put(&key(n), &value.to_string())));
                }
                let mut other = ours.clone();
                other.compares.iter_mut().filter(|compare| compare.modified > 0).for_each(|compare| {
                    compare.modified = theirs[&compare.modified];
                });
                let (ours, other) = (model.commit(ours).await.unwrap(), store.commit(other).await.unwrap());
                match (ours, other) {
                    (Outcome::Committed(ours), Outcome::Committed(other)) => {
                        let known = theirs.insert(ours, other);
                        assert!(known.is_none_or(|known| known == other), "{known:?} {other}");
                        assert!(theirs.values().is_sorted());
                    }
                    (Outcome::Conflict { key, found }, other) => {
                        let found = if found == 0 { 0 } else { theirs[&found] };
                        assert_eq!(other, Outcome::Conflict { key, found });
                    }
                    (ours, other) => panic!("{ours:?} {other:?}"),
                }
            }
            Step::Range { from, to, limit, back: ago } => {
                let at = ago.map(back);
                let ours = model.range(range(from, to), limit, at).await;
                let other = store.range(range(from, to), limit, at.map(|at| theirs[&at])).await;
                match (ours, other) {
                    (Ok(ours), Ok(other)) => {
                        let entries: Vec<_> = ours.entries.into_iter().map(|entry| translate(entry, &theirs)).collect();
                        assert_eq!(
                            (entries, ours.more, theirs[&ours.revision]),
                            (other.entries, other.more, other.revision)
                        );
                    }
                    (Err(ours), Err(other)) => same_error(&ours, &other, &theirs),
                    (ours, other) => panic!("{ours:?} {other:?}"),
                }
            }
            Step::Watch { from, to, back: ago } => {
                let after = back(ago);
                let ours = collect(&model, range(from, to), after, Some(0)).await;
                let expected = ours.as_ref().ok().map(Vec::len);
                let other = collect(store, range(from, to), theirs[&after], expected).await;
                match (ours, other) {
                    (Ok(ours), Ok(other)) => {
                        let ours: Vec<_> = ours.into_iter().map(|event| translate_event(event, &theirs)).collect();
                        assert_eq!(ours, other);
                    }
                    (Err(ours), Err(other)) => same_error(&ours, &other, &theirs),
                    (ours, other) => panic!("{ours:?} {other:?}"),
                }
            }
            Step::Compact { back: ago } => {
                model.compact(back(ago)).await.unwrap();
                store.compact(theirs[&back(ago)]).await.unwrap();
            }
        }
    }
}

fn translate(entry: Entry, theirs: &BTreeMap<Revision, Revision>) -> Entry {
    Entry { created: theirs[&entry.created], modified: theirs[&entry.modified], ..entry }
}

fn translate_event(event: Event, theirs: &BTreeMap<Revision, Revision>) -> Event {
    match event {
        Event::Put(entry) => Event::Put(translate(entry, theirs)),
        Event::Delete { key, revision } => Event::Delete { key, revision: theirs[&revision] },
    }
}

fn same_error(ours: &Error, other: &Error, theirs: &BTreeMap<Revision, Revision>) {
    match (ours, other) {
        (Error::Compacted { asked, oldest }, Error::Compacted { asked: other_asked, oldest: other_oldest }) => {
            assert_eq!((theirs[asked], theirs[oldest]), (*other_asked, *other_oldest));
        }
        (ours, other) => panic!("{ours:?} {other:?}"),
    }
}

/// All events up to now: at least as many as `expected`, or an error if that is `None`.
async fn collect(
    store: &dyn Store,
    range: Range,
    after: Revision,
    expected: Option<usize>,
) -> Result<Vec<Event>, Error> {
    let mut watch = store.watch(range, after).await?;
    let mut events = Vec::new();
    loop {
        let wait = if expected.is_some_and(|expected| events.len() >= expected) { QUIET_PERIOD } else { EVENT_TIMEOUT };
        let Ok(Some(batch)) = tokio::time::timeout(wait, watch.next()).await else { return Ok(events) };
        let batch = batch?;
        assert!(batch.events.iter().all(|event| match event {
            Event::Put(entry) => entry.modified == batch.revision,
            Event::Delete { revision, .. } => *revision == batch.revision,
        }));
        events.extend(batch.events);
    }
}
