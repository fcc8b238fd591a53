//! What must hold for every history of requests: bounded, work-conserving, fair, and nobody starves.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use proptest::prelude::*;

use super::fair::{Fair, Full, Id, OVERDRAWN, Request, Room};

const SEATS: usize = 8;
const LENT: Duration = Duration::from_secs(1);

fn room() -> Room {
    Room { seats: SEATS, waiting: 24, waiting_of_one: 10, lent: LENT }
}

fn want<'a>(workspace: &'a str, user: &'a str, width: usize) -> Request<'a> {
    Request { workspace, user, level: "", shares: 1, width, limit: None }
}

/// The machine beside a plain account of what it said.
struct Model {
    fair: Fair<u64>,
    now: Instant,
    /// By a number of ours: the machine's id, workspace, width, and whether it sits.
    here: BTreeMap<u64, (Id, usize, usize, bool)>,
    count: u64,
}

impl Model {
    fn new() -> Self {
        Self { fair: Fair::new(room()), now: Instant::now(), here: BTreeMap::new(), count: 0 }
    }

    fn arrive(&mut self, workspace: usize, user: usize, width: usize, limit: Option<usize>) {
        let (name, user) = (format!("w{workspace}"), format!("u{user}"));
        // Each user has a level of its own kind, with other shares.
        let level = format!("l{}", user.len() + width);
        let user = format!("{level}/{user}");
        let request = Request { workspace: &name, user: &user, level: &level, shares: width as u32, width, limit };
        self.count += 1;
        if let Some(id) = self.fair.sit(request, self.now) {
            self.here.insert(self.count, (id, workspace, width, true));
            return;
        }
        if let Ok((id, gone)) = self.fair.wait(request, self.count) {
            if let Some(gone) = gone {
                let left = self.here.remove(&gone).expect("only who is here gives way");
                assert!(!left.3, "nobody who sits gives way");
            }
            self.here.insert(self.count, (id, workspace, width, false));
        }
    }

    fn wake(&mut self, woken: Vec<u64>) {
        for number in woken {
            let place = self.here.get_mut(&number).expect("only who is here is woken");
            assert!(!place.3, "woken once");
            place.3 = true;
        }
    }

    fn leave(&mut self, index: usize) {
        let Some((&number, &(id, ..))) = self.here.iter().nth(index % self.here.len().max(1)) else { return };
        self.here.remove(&number);
        let woken = self.fair.leave(id, self.now);
        self.wake(woken);
        assert!(self.fair.leave(id, self.now).is_empty(), "one leaves once");
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        let woken = self.fair.reclaim(self.now);
        self.wake(woken);
    }

    fn check(&self) {
        let waiting = self.here.values().filter(|place| !place.3).count();
        let seated: usize = self.here.values().filter(|p| p.3 && self.fair.is_seated(p.0)).map(|p| p.2).sum();
        let running: usize = self.here.values().filter(|place| place.3).map(|place| place.2).sum();
        assert_eq!((self.fair.waiting(), self.fair.taken()), (waiting, seated));
        let bounded = seated <= 2 * SEATS && waiting <= 24 && running <= (2 + OVERDRAWN) * SEATS;
        assert!(bounded, "seated {seated}, waiting {waiting}, running {running}");
    }
}

#[derive(Clone, Debug)]
enum Step {
    Arrive(usize, usize, usize, Option<usize>),
    Leave(usize),
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (0..4_usize, 0..3_usize, 1..3_usize, prop::option::of(1..5_usize)).prop_map(|(w, u, n, l)| Step::Arrive(w, u, n, l)),
        3 => any::<usize>().prop_map(Step::Leave),
        1 => (0..1500_u64).prop_map(Step::Pass),
    ]
}

proptest! {
    #[test]
    fn bounded_and_nobody_is_forgotten(steps in prop::collection::vec(step(), 0..300)) {
        let mut model = Model::new();
        for step in steps {
            match step {
                Step::Arrive(workspace, user, width, limit) => model.arrive(workspace, user, width, limit),
                Step::Leave(index) => model.leave(index),
                Step::Pass(millis) => model.pass(Duration::from_millis(millis)),
            }
            model.check();
        }
        // When those who run end one after another, everybody has had a turn, and then nothing is left behind.
        while let Some(index) = model.here.values().position(|place| place.3) {
            model.leave(index);
            model.check();
        }
        prop_assert!(model.here.is_empty(), "{} starve", model.here.len());
        prop_assert_eq!((model.fair.taken(), model.fair.waiting()), (0, 0));
    }

    /// With requests of one seat and no limits, nobody waits while a seat is free.
    #[test]
    fn work_conserving(steps in prop::collection::vec(step(), 0..300)) {
        let mut model = Model::new();
        for step in steps {
            match step {
                Step::Arrive(workspace, user, ..) => model.arrive(workspace, user, 1, None),
                Step::Leave(index) => model.leave(index),
                Step::Pass(millis) => model.pass(Duration::from_millis(millis)),
            }
            prop_assert!(model.fair.waiting() == 0 || model.fair.taken() >= SEATS);
        }
    }

    /// Workspaces that always want more get the same time on seats, whatever their requests take and however many come.
    #[test]
    fn fair_within_a_factor(costs in prop::collection::vec((1..6_u64, 1..40_usize), 2..5)) {
        let mut fair: Fair<usize> = Fair::new(Room { seats: SEATS, waiting: 1000, waiting_of_one: 200, lent: LENT });
        let now = Instant::now();
        let names: Vec<String> = (0..costs.len()).map(|n| format!("w{n}")).collect();
        let mut running: Vec<(u64, usize, Id)> = Vec::new();
        let mut waiting: Vec<(usize, Id)> = Vec::new();
        let mut served = vec![0_u64; costs.len()];
        for tick in 0..400_u64 {
            for (n, (_, crowd)) in costs.iter().enumerate() {
                // Each keeps its crowd waiting; a wake carries the workspace, and ids come back in order of waiting.
                while waiting.iter().filter(|(w, _)| *w == n).count() < crowd + SEATS {
                    match fair.sit(want(&names[n], "u", 1), now) {
                        Some(id) => running.push((tick + costs[n].0, n, id)),
                        None => waiting.push((n, fair.wait(want(&names[n], "u", 1), n).unwrap().0)),
                    }
                }
            }
            for (_, n, _) in &running {
                served[*n] += 1;
            }
            let (ended, rest): (Vec<_>, Vec<_>) = running.drain(..).partition(|(end, ..)| *end <= tick + 1);
            running = rest;
            for (_, _, id) in ended {
                for n in fair.leave(id, now) {
                    let first = waiting.iter().position(|(w, _)| *w == n).unwrap();
                    running.push((tick + 1 + costs[n].0, n, waiting.remove(first).1));
                }
            }
        }
        let (least, most) = (served.iter().min().unwrap(), served.iter().max().unwrap());
        prop_assert!(*most <= 2 * *least, "seat time {:?} for costs {:?}", served, costs);
    }
}

#[test]
fn a_quiet_tenant_gets_the_next_seat() {
    let now = Instant::now();
    let mut fair = Fair::new(room());
    let loud: Vec<Id> = (0..SEATS).map(|_| fair.sit(want("loud", "u", 1), now).unwrap()).collect();
    for n in 0..10 {
        assert!(fair.sit(want("loud", "u", 1), now).is_none());
        fair.wait(want("loud", "u", 1), n).unwrap();
    }
    assert_eq!(fair.wait(want("loud", "u", 1), 99), Err(Full { ahead: 10 }), "a user's queue is bounded");
    // One that holds nothing has a spare seat; with all of these taken, the next that is free.
    for n in 0..SEATS {
        assert!(fair.sit(want(&format!("quiet{n}"), "u", 1), now).is_some());
    }
    assert!(fair.sit(want("quiet0", "u", 1), now).is_none() && fair.sit(want("late", "u", 1), now).is_none());
    fair.wait(want("quiet0", "u", 1), 76).unwrap();
    fair.wait(want("late", "u", 1), 77).unwrap();
    assert_eq!(fair.leave(loud[0], now), [77]);
    assert_eq!(fair.leave(loud[7], now), [76], "then who holds one");
    // And inside a workspace, another user.
    fair.wait(want("loud", "other", 1), 78).unwrap();
    assert_eq!(fair.leave(loud[1], now), [78]);
    assert_eq!(fair.leave(loud[2], now), [0], "then in the order of coming");
}

#[test]
fn who_waits_with_most_others_gives_way() {
    let now = Instant::now();
    let mut fair = Fair::new(Room { waiting: 4, ..room() });
    for n in 0..2 * SEATS {
        assert!(fair.sit(want(if n < SEATS { "loud" } else { "quiet" }, "u", 1), now).is_some() || n > SEATS);
    }
    for n in 0..4 {
        fair.wait(want("loud", "u", 1), n).unwrap();
    }
    assert_eq!(fair.wait(want("quiet", "u", 1), 7).unwrap().1, Some(3), "the last of the loud one");
    assert_eq!(fair.wait(want("quiet", "v", 1), 8).unwrap().1, Some(2));
    assert_eq!(fair.wait(want("quiet", "w", 1), 9), Err(Full { ahead: 2 }), "not for its own advantage");
}

#[test]
fn a_seat_is_lent_for_a_time_only() {
    let now = Instant::now();
    let mut fair = Fair::new(room());
    let slow: Vec<Id> = (0..SEATS).map(|_| fair.sit(want("slow", "u", 1), now).unwrap()).collect();
    assert!(fair.reclaim(now + 2 * LENT).is_empty() && fair.is_seated(slow[0]), "nobody waits");
    assert!(fair.sit(want("quick", "u", 1), now).is_some());
    fair.wait(want("quick", "u", 1), 1).unwrap();
    assert!(fair.reclaim(now + LENT / 2).is_empty());
    assert_eq!(fair.reclaim(now + LENT), [1]);
    assert!(slow.iter().all(|id| !fair.is_seated(*id)));
    // The slow one still counts as holding: while all seats are taken again, it is served after the others.
    let taken: Vec<Id> = (0..SEATS - 1).map(|n| fair.sit(want(&format!("w{n}"), "u", 1), now).unwrap()).collect();
    fair.wait(want("slow", "u", 1), 2).unwrap();
    fair.wait(want("w0", "u", 1), 3).unwrap();
    assert_eq!(fair.leave(taken[1], now), [3]);
    assert_eq!(fair.leave(taken[2], now), [2]);
}

#[test]
fn a_workspace_stays_within_its_limit() {
    let now = Instant::now();
    let mut fair = Fair::new(room());
    let limited = |width| Request { workspace: "w", user: "u", level: "", shares: 1, width, limit: Some(2) };
    let first = fair.sit(limited(1), now).unwrap();
    assert!(fair.sit(limited(1), now).is_some());
    assert!(fair.sit(limited(1), now).is_none(), "though there are seats");
    fair.wait(limited(1), 1).unwrap();
    assert!(fair.sit(want("other", "u", 1), now).is_some(), "it keeps nobody else back");
    assert_eq!(fair.leave(first, now), [1]);
}

#[test]
fn a_wide_request_is_not_overtaken_for_ever() {
    let now = Instant::now();
    let mut fair = Fair::new(room());
    let narrow: Vec<Id> = (0..SEATS).map(|_| fair.sit(want("a", "u", 1), now).unwrap()).collect();
    assert!(fair.sit(want("b", "u", 1), now).is_some(), "a spare one");
    fair.wait(want("b", "u", 6), 6).unwrap();
    for (n, id) in narrow.into_iter().enumerate() {
        let woken = fair.leave(id, now);
        assert_eq!(woken, if n == 1 { vec![6] } else { vec![] }, "it takes a quarter of the seats at most");
        assert_eq!(fair.sit(want("a", "u", 1), now).is_some(), n > 1, "freed seats are kept for it");
    }
}

#[test]
fn levels_share_what_their_workspace_has() {
    let mut fair: Fair<&'static str> = Fair::new(room());
    let now = Instant::now();
    let request =
        |level: &'static str, shares| Request { workspace: "w", user: level, level, shares, width: 1, limit: None };
    let others = |user: &'static str| Request { workspace: "other", user, level: "", shares: 1, width: 1, limit: None };
    let mut first: Vec<Id> = (0..SEATS).map(|_| fair.sit(others("x"), now).unwrap()).collect();
    // The workspace has held nothing so far, and takes a spare seat.
    let spare = fair.sit(request("high", 3), now).unwrap();
    for _ in 0..10 {
        fair.wait(request("low", 1), "low").unwrap();
        fair.wait(request("high", 3), "high").unwrap();
    }
    let mut woken = Vec::new();
    while let Some(id) = first.pop() {
        woken.extend(fair.leave(id, now));
    }
    woken.extend(fair.leave(spare, now));
    let high = woken.iter().filter(|level| **level == "high").count();
    assert_eq!((woken.len(), high), (SEATS, SEATS * 3 / 4), "{woken:?}");
}
