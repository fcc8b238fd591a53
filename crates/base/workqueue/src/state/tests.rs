use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

const FIRST: Duration = Duration::from_millis(5);
const MAX: Duration = Duration::from_secs(60);
const EXACT: Schedule = Schedule::new(FIRST, MAX).exact();

type Keys = State<&'static str>;

fn alone() -> Keys {
    State::new("test", EXACT, |_| "", false)
}

fn group_of<'a>(key: &'a &'static str) -> &'a str {
    key.split('/').next().unwrap_or_default()
}

fn grouped(one_per_group: bool) -> Keys {
    State::new("test", EXACT, group_of, one_per_group)
}

#[test]
fn a_key_is_there_once_and_again_if_it_is_added_while_it_runs() {
    let now = Instant::now();
    let mut state = alone();
    assert!(state.add("a", now));
    assert!(!state.add("a", now));
    assert_eq!(state.take(now), Ok("a"));
    assert_eq!(state.take(now), Err(None));
    assert!(state.add("a", now));
    assert_eq!(state.take(now), Err(None), "it runs already");
    state.done(&"a", Again::No, now);
    assert_eq!(state.take(now), Ok("a"));
    state.done(&"a", Again::No, now);
    assert_eq!(state.take(now), Err(None));
    let numbers = state.numbers(now);
    assert_eq!((numbers.adds, numbers.retries, numbers.depth), (2, 0, 0));
}

#[test]
fn failures_wait_longer_each_time() {
    let mut now = Instant::now();
    let mut state = alone();
    state.add("a", now);
    let mut waits = Vec::new();
    for _ in 0..20 {
        assert_eq!(state.take(now), Ok("a"));
        state.done(&"a", Again::Failed, now);
        let Err(Some(due)) = state.take(now) else { panic!("it is not due yet") };
        waits.push(due - now);
        now = due;
    }
    assert_eq!(waits[..3], [FIRST, FIRST * 2, FIRST * 4]);
    assert_eq!((waits[19], state.numbers(now).retries), (MAX, 20));
    assert_eq!(state.take(now), Ok("a"));
    state.done(&"a", Again::No, now);
    assert!(state.retries.is_empty() && state.added.is_empty() && state.running.is_empty());
}

#[test]
fn no_time_is_too_far_away() {
    let now = Instant::now();
    let mut state = alone();
    state.add("a", now);
    assert_eq!(state.take(now), Ok("a"));
    state.done(&"a", Again::In(Duration::MAX), now);
    assert_eq!(state.take(now), Err(Some(now + MAX_DELAY)));
}

#[test]
fn the_earlier_of_two_times_counts_and_now_beats_later() {
    let now = Instant::now();
    let second = Duration::from_secs(1);
    let mut state = alone();
    state.add_at("a", now + second * 2);
    state.add_at("a", now + second);
    state.add_at("a", now + second * 3);
    assert_eq!(state.take(now), Err(Some(now + second)));
    state.add("a", now);
    assert_eq!(state.take(now), Ok("a"));
    state.done(&"a", Again::No, now);
    assert_eq!(state.take(now + second * 4), Err(None));
}

#[test]
fn a_key_that_was_added_meanwhile_does_not_wait_for_its_failure() {
    let now = Instant::now();
    let mut state = alone();
    state.add("a", now);
    assert_eq!(state.take(now), Ok("a"));
    state.add("a", now);
    state.done(&"a", Again::Failed, now);
    assert_eq!(state.take(now), Ok("a"));
    state.done(&"a", Again::Failed, now);
    assert_eq!(state.take(now), Err(Some(now + FIRST * 2)), "both failures count");
}

#[test]
fn groups_take_turns() {
    let now = Instant::now();
    let mut state = grouped(false);
    for key in ["a/1", "a/2", "a/3", "a/1", "b/1", "c", "b/2"] {
        state.add(key, now);
    }
    let order: Vec<&str> = std::iter::from_fn(|| state.take(now).ok()).collect();
    assert_eq!(order, ["a/1", "b/1", "c", "a/2", "b/2", "a/3"]);
    assert_eq!(state.numbers(now).depth, 0);
}

#[test]
fn a_group_waits_for_its_own_key() {
    let now = Instant::now();
    let mut state = grouped(true);
    for key in ["a/1", "a/2", "b/1"] {
        state.add(key, now);
    }
    assert_eq!((state.take(now), state.take(now)), (Ok("a/1"), Ok("b/1")));
    state.add("b/2", now);
    state.add("a/1", now);
    assert_eq!(state.take(now), Err(None), "both groups are being worked on");
    state.done(&"a/1", Again::No, now);
    assert_eq!(state.take(now), Ok("a/2"));
    state.done(&"b/1", Again::Failed, now);
    assert_eq!(state.take(now), Ok("b/2"));
    state.done(&"a/2", Again::No, now);
    assert_eq!(state.take(now), Ok("a/1"));
    assert_eq!(state.take(now), Err(Some(now + FIRST)));
    assert_eq!(state.take(now + FIRST), Err(None), "b/2 is not done");
    state.done(&"b/2", Again::No, now);
    assert_eq!(state.take(now + FIRST), Ok("b/1"));
}

#[test]
fn times_are_counted() {
    let start = Instant::now();
    let at = |seconds: u64| start + Duration::from_secs(seconds);
    let mut state = alone();
    state.add("a", at(0));
    state.add("b", at(1));
    assert_eq!(state.numbers(at(2)).depth, 2);
    assert_eq!((state.take(at(3)), state.take(at(5))), (Ok("a"), Ok("b")));
    let numbers = state.numbers(at(6));
    assert_eq!((numbers.unfinished_work, numbers.longest_running), (Duration::from_secs(4), Duration::from_secs(3)));
    state.done(&"a", Again::No, at(7));
    let numbers = state.numbers(at(7));
    assert_eq!((numbers.queue_duration.seconds, numbers.queue_duration.count()), (7.0, 2));
    assert_eq!((numbers.work_duration.seconds, numbers.work_duration.count()), (4.0, 1));
}

#[derive(Clone, Debug)]
enum Step {
    Add(usize),
    AddLater(usize, u64),
    Take,
    Done(usize, Again),
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let again = prop_oneof![
        Just(Again::No),
        Just(Again::Failed),
        (0_u64..100).prop_map(|wait| Again::In(Duration::from_millis(wait)))
    ];
    let step = prop_oneof![
        (0_usize..6).prop_map(Step::Add),
        (0_usize..6, 0_u64..100).prop_map(|(key, wait)| Step::AddLater(key, wait)),
        Just(Step::Take),
        (0_usize..6, again).prop_map(|(key, again)| Step::Done(key, again)),
        (0_u64..50).prop_map(Step::Pass),
    ];
    prop::collection::vec(step, 0..200)
}

proptest! {
    /// Whatever happens: no key runs twice, no group runs twice if it must not, and each key that was added or failed
    /// is given out in the end.
    #[test]
    fn nothing_is_lost_and_nothing_runs_twice(steps in steps(), one_per_group: bool) {
        const KEYS: [&str; 6] = ["a/1", "a/2", "a/3", "b/1", "b/2", "c"];
        let mut now = Instant::now();
        let mut state = grouped(one_per_group);
        let mut running: BTreeSet<&str> = BTreeSet::new();
        let mut owed: BTreeSet<&str> = BTreeSet::new();
        let take = |state: &mut Keys, running: &mut BTreeSet<&'static str>, owed: &mut BTreeSet<&'static str>, now| {
            let Ok(key) = state.take(now) else { return false };
            owed.remove(key);
            let groups = running.iter().any(|other| group_of(other) == group_of(&key));
            assert!(!(one_per_group && groups), "{key} is given out although its group is worked on");
            assert!(running.insert(key), "{key} runs twice");
            true
        };
        for step in steps {
            match step {
                Step::Add(key) => {
                    state.add(KEYS[key], now);
                    owed.insert(KEYS[key]);
                }
                Step::AddLater(key, wait) => {
                    state.add_at(KEYS[key], now + Duration::from_millis(wait));
                    if !running.contains(KEYS[key]) {
                        owed.insert(KEYS[key]);
                    }
                }
                Step::Take => {
                    take(&mut state, &mut running, &mut owed, now);
                }
                Step::Done(key, again) => if running.remove(KEYS[key]) {
                    state.done(&KEYS[key], again, now);
                    if again != Again::No {
                        owed.insert(KEYS[key]);
                    }
                },
                Step::Pass(millis) => now += Duration::from_millis(millis),
            }
            let depth = state.numbers(now).depth;
            prop_assert_eq!(depth, state.added.keys().filter(|key| !running.contains(*key)).count());
        }
        for _ in 0..3 {
            now += MAX_DELAY;
            for key in std::mem::take(&mut running) {
                state.done(&key, Again::No, now);
            }
            while take(&mut state, &mut running, &mut owed, now) {}
        }
        for _ in 0..KEYS.len() {
            for key in std::mem::take(&mut running) {
                state.done(&key, Again::No, now);
            }
            while take(&mut state, &mut running, &mut owed, now) {}
        }
        prop_assert_eq!(owed, BTreeSet::new());
    }
}
