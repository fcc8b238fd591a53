use super::*;
use crate::health::Health;
use proptest::prelude::*;

/// An edge of a made-up world.
#[derive(Clone, Debug)]
struct Edge {
    order: u64,
    online: bool,
    holds: u64,
    health: Health,
    since: i64,
}

#[derive(Clone, Debug)]
struct World {
    spec: Spec,
    state: State,
    edges: Vec<Edge>,
    generation: i64,
    now: i64,
}

impl World {
    fn new(spec: Spec, edges: usize) -> Self {
        let edges = (0..edges).map(|n| Edge {
            order: order("placement", &n.to_string()),
            online: true,
            holds: 0,
            health: Health::Healthy,
            since: 0,
        });
        let mut state = State::begin(None);
        assert_eq!(state.offer("a"), Some(1));
        Self { spec, state, edges: edges.collect(), generation: 1, now: 0 }
    }

    fn facts(&self) -> Vec<Fact> {
        let fact = |edge: &Edge| Fact {
            edge: "root:florin".into(),
            order: edge.order,
            online: edge.online,
            acked: edge.holds == self.state.of(edge.order),
            health: edge.health.clone(),
            since: edge.since,
        };
        self.edges.iter().map(fact).collect()
    }

    fn step(&mut self, resume: bool) -> Progress {
        let before = self.state.clone();
        let facts = self.facts();
        let (state, progress) = step(&self.spec, before.clone(), &facts, self.generation, resume, self.now);
        // A center that starts anew reads the same.
        let written = state.write(&progress);
        assert_eq!(State::read(&written), Some(state.clone()), "{written}");
        self.check(&before, &state, &progress);
        self.state = state;
        for edge in &mut self.edges {
            if edge.online && before.of(edge.order) != self.state.of(edge.order) {
                (edge.health, edge.since) = (Health::Progressing, self.now);
            }
        }
        progress
    }

    fn is_well(&self, edge: &Edge, state: &State) -> bool {
        edge.online && edge.holds == state.of(edge.order) && (!self.spec.health_gate || edge.health == Health::Healthy)
    }

    /// What has to hold of every step, counted the slow way.
    fn check(&self, before: &State, after: &State, progress: &Progress) {
        let total = self.edges.len();
        let newest = after.newest();
        assert_eq!(before.newest(), newest);
        let has = |state: &State, edge: &&Edge| state.of(edge.order) == newest;
        let is_gone = |edge: &&Edge| !edge.online && self.now - edge.since >= self.spec.deadline;
        let released: Vec<&Edge> =
            self.edges.iter().filter(|e| !is_gone(e) && has(after, e) && !has(before, e)).collect();
        let lost = self.edges.iter().any(|e| has(before, &e) && !has(after, &e));
        assert!(!lost, "no edge goes back");
        let is_ready = |e: &Edge| self.is_well(e, before) && self.now - e.since >= self.spec.min_ready;
        let busy = self.edges.iter().filter(|e| !is_gone(e) && has(before, e) && !is_ready(e)).count();
        let away = self.edges.iter().filter(|e| is_gone(e) || !e.online && !has(before, e)).count();
        let more = self.edges.iter().any(|e| has(after, &e) && !has(before, &e));
        assert!(!more || self.edges.iter().any(|e| e.online), "somebody has to try it");
        if !released.is_empty() {
            assert!(!self.spec.paused && matches!(progress.phase, Phase::Progressing | Phase::Complete));
            let most = self.spec.unavailable_of(total);
            let forgiven = after.tolerated.min(busy);
            assert!(
                busy + released.len() - forgiven <= most.saturating_sub(away).max(1),
                "{} released with {busy} busy and {away} away, of {most}",
                released.len()
            );
            assert!(released.len() <= self.spec.batch_of(total));
        }
        if progress.phase == Phase::Complete {
            assert!(after.revisions.len() == 1 && after.revisions[0].below == Bound::ALL);
        }
        assert!(progress.ready <= progress.updated && progress.updated <= progress.total);
        assert!(progress.failed <= progress.unavailable);
        assert_eq!(after.revisions.last().map(|last| last.below), Some(Bound::ALL));
    }

    /// Edges take what they shall have, and fare well.
    fn settle(&mut self) {
        for edge in self.edges.iter_mut().filter(|edge| edge.online) {
            let due = self.state.of(edge.order);
            if edge.holds != due || edge.health != Health::Healthy {
                (edge.holds, edge.health, edge.since) = (due, Health::Healthy, self.now);
            }
        }
    }

    fn has_newest(&self) -> usize {
        self.edges.iter().filter(|edge| edge.holds == self.state.newest()).count()
    }

    /// Steps until nothing happens any more: how many edges had it after each.
    fn run(&mut self) -> Vec<usize> {
        let mut seen = Vec::new();
        for _ in 0..1000 {
            self.now += 1;
            let progress = self.step(false);
            if progress.phase != Phase::Progressing {
                break;
            }
            self.settle();
            if seen.last() != Some(&self.has_newest()) {
                seen.push(self.has_newest());
            }
        }
        seen
    }
}

fn by(batch: Amount, max_unavailable: Option<Amount>) -> Spec {
    Spec { batch, max_unavailable, ..Spec::default() }
}

#[test]
fn batches_one_after_the_other() {
    for (spec, edges, want) in [
        (by(Amount::Count(3), None), 10, vec![3, 6, 9, 10]),
        (by(Amount::Percent(50), None), 5, vec![3, 5]),
        (by(Amount::Count(4), Some(Amount::Count(2))), 9, vec![2, 4, 6, 8, 9]),
        (by(Amount::Count(3), Some(Amount::Count(2))), 6, vec![2, 3, 5, 6]),
        (by(Amount::Count(100), None), 4, vec![4]),
        (by(Amount::Count(0), None), 2, vec![1, 2]),
        (by(Amount::Percent(10), None), 0, vec![0]),
    ] {
        let mut world = World::new(spec.clone(), edges);
        assert_eq!(world.run(), want, "{spec:?} on {edges}");
        assert!(world.state.is_complete());
        assert_eq!(world.state.revisions.len(), 1, "nothing has to be kept");
        assert_eq!(world.state.offer("a"), None);
        assert_eq!(world.state.offer("b"), Some(2));
        assert_eq!(world.run(), want, "again");
    }
}

#[test]
fn turned_on_where_everything_is_already() {
    let mut world = World::new(by(Amount::Count(1), None), 3);
    world.state = State::begin(Some("a"));
    world.edges.iter_mut().for_each(|edge| edge.holds = 1);
    assert_eq!(world.step(false).phase, Phase::Complete);
    assert!(world.edges.iter().all(|edge| world.state.of(edge.order) == 1));
    world.state.offer("b");
    assert_eq!(world.run(), [1, 2, 3]);
}

#[test]
fn a_new_change_overtakes() {
    let mut world = World::new(by(Amount::Count(2), None), 6);
    world.run();
    world.state.offer("b");
    world.step(false);
    world.settle();
    world.state.offer("c");
    world.step(false);
    world.settle();
    let mut held: Vec<u64> = world.edges.iter().map(|edge| edge.holds).collect();
    held.sort_unstable();
    assert_eq!(held, [1, 1, 1, 1, 3, 3], "those that had b have c now, and b is forgotten");
    assert_eq!(world.state.revisions.iter().map(|r| r.number).collect::<Vec<_>>(), [3, 1]);
    world.run();
    assert!(world.edges.iter().all(|edge| edge.holds == 3));
    for n in 0..100 {
        world.state.offer(&n.to_string());
    }
    assert_eq!(world.state.revisions.len(), 2, "what no edge had is not kept");
    for n in (1..40_u64).rev() {
        world.state.offer(&format!("x{n}"));
        world.state.revisions[0].below = Bound(Some(n << 50));
    }
    assert!(world.state.revisions.len() <= MOST);
    assert_eq!(world.state.revisions.last().map(|last| last.below), Some(Bound::ALL));
}

#[test]
fn a_paused_one_stays_where_it_is() {
    let mut world = World::new(by(Amount::Count(1), None), 3);
    world.step(false);
    world.settle();
    world.spec.paused = true;
    for _ in 0..5 {
        world.now += 100;
        let progress = world.step(false);
        assert_eq!((progress.phase, progress.updated, progress.ready), (Phase::Paused, 1, 1));
        world.settle();
    }
    world.spec.paused = false;
    assert_eq!(world.run(), [2, 3]);
}

#[test]
fn failures_stop_it() {
    let mut world = World::new(Spec { max_failures: Amount::Count(1), ..by(Amount::Count(3), None) }, 9);
    world.step(false);
    world.settle();
    let fail = |world: &mut World, n: usize| {
        let newest = world.state.newest();
        let mut first: Vec<&mut Edge> = world.edges.iter_mut().filter(|edge| edge.holds == newest).collect();
        first.sort_by_key(|edge| edge.order);
        for edge in first.into_iter().take(n) {
            (edge.health, edge.since) = (Health::Failed("no such image".into()), world.now);
        }
    };
    fail(&mut world, 1);
    let progress = world.step(false);
    assert_eq!((progress.phase, progress.failed), (Phase::Progressing, 1), "one is allowed");
    world.settle();
    fail(&mut world, 2);
    let stopped = world.step(false);
    assert_eq!((stopped.phase, stopped.failed), (Phase::Stopped, 2));
    assert!(stopped.message.contains("no such image"), "{}", stopped.message);
    let reached = world.state.revisions[0].below;
    world.now += 10_000;
    assert_eq!(world.step(false).phase, Phase::Stopped);
    assert_eq!(world.state.revisions[0].below, reached);

    // Any of these goes on, with what failed tolerated.
    let resumed = |how: &dyn Fn(&mut World) -> Progress| {
        let mut world = world.clone();
        let progress = how(&mut world);
        assert_eq!(progress.phase, Phase::Progressing, "{}", progress.message);
        assert!(world.state.revisions[0].below.includes(reached) && world.state.revisions[0].below != reached);
    };
    resumed(&|world| world.step(true));
    resumed(&|world| {
        world.generation += 1;
        world.step(false)
    });
    resumed(&|world| {
        world.spec.paused = true;
        world.step(false);
        world.spec.paused = false;
        world.step(false)
    });
    // A new change starts from the first batch.
    world.state.offer("better");
    let progress = world.step(false);
    assert_eq!((progress.phase, progress.updated), (Phase::Progressing, 0));
    world.run();
    assert!(world.state.is_complete());
    // What fails later is not the rollout's.
    fail(&mut world, 5);
    let progress = world.step(false);
    assert_eq!((progress.phase, progress.failed), (Phase::Complete, 5));
}

#[test]
fn who_is_away_holds_nobody_up() {
    let mut world = World::new(by(Amount::Count(2), None), 8);
    world.edges.iter_mut().step_by(2).for_each(|edge| (edge.online, edge.since) = (false, -600));
    assert_eq!(world.run(), [1, 2, 3, 4], "four away are more than may be, so one at a time");
    let progress = world.step(false);
    assert_eq!((progress.phase, progress.ready, progress.unavailable), (Phase::Complete, 4, 4));
    assert!(progress.message.contains("4 offline"), "{}", progress.message);
    world.edges.iter_mut().for_each(|edge| edge.online = true);
    world.settle();
    assert_eq!(world.step(false).ready, 8);
}

#[test]
fn who_was_here_a_moment_ago_is_waited_for() {
    let mut world = World::new(by(Amount::Count(2), None), 8);
    world.step(false);
    // As when the center's own network is down, or it has just started.
    world.edges.iter_mut().for_each(|edge| edge.online = false);
    for now in [1, 100, 599, 600, 100_000] {
        world.now = now;
        let progress = world.step(false);
        assert_eq!((progress.phase, progress.unavailable), (Phase::Progressing, 8));
        assert_eq!(world.edges.iter().filter(|edge| world.state.of(edge.order) == 1).count(), 2);
        assert_eq!(progress.again.is_some(), now < 600);
    }
    world.edges.iter_mut().for_each(|edge| (edge.online, edge.since) = (true, 100_000));
    world.settle();
    assert_eq!(world.run(), [4, 6, 8]);

    world.state.offer("b");
    world.edges.sort_by_key(|edge| edge.order);
    (world.edges[1].online, world.edges[1].since) = (false, world.now);
    world.step(false);
    world.settle();
    world.now += 599;
    assert_eq!(world.step(false).phase, Phase::Progressing);
    assert_eq!(world.has_newest(), 1, "the first batch is not complete");
    world.now += 1;
    assert_eq!(world.run(), [2, 3, 4, 5, 6, 7], "it is gone: one of two may be unavailable now");
}

#[test]
fn readiness_takes_its_time() {
    let mut world = World::new(Spec { min_ready: 10, deadline: 50, ..by(Amount::Count(1), None) }, 2);
    assert_eq!(world.step(false).again, Some(1));
    world.settle();
    let progress = world.step(false);
    assert_eq!((progress.updated, progress.ready, progress.again), (1, 0, Some(10)));
    world.now = 9;
    assert_eq!(world.step(false).ready, 0);
    world.now = 10;
    assert_eq!(world.step(false).ready, 1);
    // The second never becomes healthy.
    world.now = 59;
    assert_eq!(world.step(false).phase, Phase::Progressing);
    world.now = 60;
    let progress = world.step(false);
    assert_eq!((progress.phase, progress.failed), (Phase::Stopped, 1));
    assert!(progress.message.contains("not ready after 50 seconds"), "{}", progress.message);

    let mut gateless = World::new(Spec { health_gate: false, ..by(Amount::Count(1), None) }, 2);
    for _ in 0..4 {
        gateless.step(false);
        let state = gateless.state.clone();
        gateless.edges.iter_mut().for_each(|edge| edge.holds = state.of(edge.order));
        gateless.edges.iter_mut().for_each(|edge| edge.health = Health::Failed("nobody asks".into()));
    }
    assert!(gateless.state.is_complete());
}

#[test]
fn what_is_not_whole_is_not_read() {
    let mut world = World::new(Spec::default(), 3);
    let progress = world.step(false);
    let good = world.state.write(&progress);
    for (pointer, wrong) in [
        ("/revisions", json!([])),
        ("/revisions", json!(null)),
        ("/revisions/0/below", json!("x")),
        ("/revisions/0/revision", json!(0)),
        ("/revisions/1/below", json!("0000000000000001")),
    ] {
        let mut value = good.clone();
        *value.pointer_mut(pointer).unwrap() = wrong;
        assert_eq!(State::read(&value), None, "{pointer}");
    }
    assert_eq!(State::read(&json!(null)), None);
}

#[derive(Clone, Debug)]
enum Happens {
    Time(u8),
    Ack(u8),
    Heal(u8),
    Fail(u8),
    Away(u8),
    Back(u8),
    Join(u16),
    Leave(u8),
    Change(u8),
    Pause(bool),
    Resume,
    Edit,
}

fn any_happening() -> impl Strategy<Value = Happens> {
    use Happens::*;
    prop_oneof![
        2 => any::<u8>().prop_map(Time),
        6 => any::<u8>().prop_map(Ack),
        6 => any::<u8>().prop_map(Heal),
        1 => any::<u8>().prop_map(Fail),
        1 => any::<u8>().prop_map(Away),
        2 => any::<u8>().prop_map(Back),
        1 => any::<u16>().prop_map(Join),
        1 => any::<u8>().prop_map(Leave),
        1 => any::<u8>().prop_map(Change),
        1 => any::<bool>().prop_map(Pause),
        1 => Just(Resume),
        1 => Just(Edit),
    ]
}

fn any_amount() -> impl Strategy<Value = Amount> {
    prop_oneof![(0_u64..6).prop_map(Amount::Count), (0_u64..=100).prop_map(Amount::Percent)]
}

fn any_spec() -> impl Strategy<Value = Spec> {
    let flags = (any::<bool>(), 0_i64..5, 5_i64..60);
    (any_amount(), proptest::option::of(any_amount()), any_amount(), flags).prop_map(
        |(batch, max_unavailable, max_failures, (health_gate, min_ready, deadline))| Spec {
            batch,
            max_unavailable,
            paused: false,
            max_failures,
            health_gate,
            min_ready,
            deadline,
        },
    )
}

proptest! {
    /// Whatever happens, each step keeps its promises (see `check`); and once all is well again, everybody gets it.
    #[test]
    fn promises_are_kept(
        spec in any_spec(),
        edges in 0_usize..24,
        happenings in proptest::collection::vec(any_happening(), 0..80),
    ) {
        let mut world = World::new(spec, edges);
        for happening in happenings {
            let mut resume = false;
            let (now, count) = (world.now, world.edges.len().max(1));
            let pick = |n: u8| usize::from(n) % count;
            match happening {
                Happens::Time(seconds) => world.now += i64::from(seconds),
                Happens::Ack(n) => {
                    let state = world.state.clone();
                    if let Some(edge) = world.edges.get_mut(pick(n)).filter(|edge| edge.online) {
                        (edge.holds, edge.since) = (state.of(edge.order), now);
                    }
                }
                Happens::Heal(n) => {
                    if let Some(edge) = world.edges.get_mut(pick(n)).filter(|edge| edge.health != Health::Healthy) {
                        (edge.health, edge.since) = (Health::Healthy, now);
                    }
                }
                Happens::Fail(n) => {
                    if let Some(edge) = world.edges.get_mut(pick(n)) {
                        (edge.health, edge.since) = (Health::Failed("x".into()), now);
                    }
                }
                Happens::Away(n) => {
                    if let Some(edge) = world.edges.get_mut(pick(n)) {
                        (edge.online, edge.since) = (false, now);
                    }
                }
                Happens::Back(n) => {
                    if let Some(edge) = world.edges.get_mut(pick(n)) {
                        (edge.online, edge.since) = (true, now);
                    }
                }
                Happens::Join(n) => {
                    let order = order("placement", &format!("new {n}"));
                    if world.edges.iter().all(|edge| edge.order != order) {
                        world.edges.push(Edge { order, online: true, holds: 0, health: Health::Progressing, since: now });
                    }
                }
                Happens::Leave(n) => {
                    if !world.edges.is_empty() {
                        world.edges.remove(pick(n));
                    }
                }
                Happens::Change(n) => drop(world.state.offer(&n.to_string())),
                Happens::Pause(paused) => world.spec.paused = paused,
                Happens::Resume => resume = true,
                Happens::Edit => world.generation += 1,
            }
            world.step(resume);
        }
        world.spec.paused = false;
        world.edges.iter_mut().for_each(|edge| edge.online = true);
        world.settle();
        world.now += 100;
        world.step(true);
        world.settle();
        let limit = 40 + 8 * world.edges.len() * (world.spec.min_ready as usize + 2);
        for _ in 0..limit {
            world.now += 1;
            if world.step(false).phase == Phase::Complete {
                break;
            }
            world.settle();
        }
        prop_assert!(world.state.is_complete(), "{:?}", world);
        world.settle();
        prop_assert_eq!(world.has_newest(), world.edges.len());
    }
}

#[test]
fn the_order_is_everybodys_own() {
    assert_eq!(order("p", "t"), order("p", "t"));
    assert_ne!(order("p", "t"), order("q", "t"));
    assert_ne!(order("ab", "c"), order("a", "bc"));
    let bound = Bound::through(u64::MAX);
    assert_eq!(bound, Bound::ALL);
    assert!(!Bound::NONE.covers(0));
}
