//! The collector in a world where Pods and nodes come and go and caches are late: nobody goes without a reason, and nobody stays who has one to go.

use std::time::Duration;

use k8s_openapi::{
    api::core::v1::{Node, Pod},
    apimachinery::pkg::apis::meta::v1::Time,
};
use proptest::prelude::*;
use serde_json::json;
use tokio::time::Instant;

use super::{
    decide::{Missing, QUARANTINE, Why, decide},
    tests::{node, pod},
};
use crate::{
    pod,
    world::{Revision, Truth, at},
};
use controllers::cache::Key;

const KEPT: usize = 3;
const NAMES: [&str; 3] = ["n0", "n1", "n2"];

#[derive(Clone, Debug)]
enum Happens {
    Pass,
    Time(u64),
    Show(usize, usize),
    Relist,
    /// On a node, or on none; made earlier or later than others.
    Comes(Option<usize>, i64),
    Ends(usize),
    /// With a finalizer, and so not gone at once.
    Deleted(usize),
    NodeComes(usize),
    NodeGoes(usize),
    NodeOutOfService(usize),
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        6 => Just(Happens::Pass),
        3 => (1..60_u64).prop_map(Happens::Time),
        4 => (0..4_usize, 0..4_usize).prop_map(|(pods, nodes)| Happens::Show(pods, nodes)),
        1 => Just(Happens::Relist),
        6 => (prop::option::of(0..3_usize), 0..9_i64).prop_map(|(node, age)| Happens::Comes(node, age)),
        4 => any::<usize>().prop_map(Happens::Ends),
        2 => any::<usize>().prop_map(Happens::Deleted),
        2 => (0..3_usize).prop_map(Happens::NodeComes),
        2 => (0..3_usize).prop_map(Happens::NodeGoes),
        1 => (0..3_usize).prop_map(Happens::NodeOutOfService),
    ]
}

struct World {
    pods: Truth<Pod>,
    nodes: Truth<Node>,
    missing: Missing,
    now: Instant,
}

fn counts(pods: &Truth<Pod>) -> usize {
    pods.objects.values().filter(|pod| pod::is_finished(pod) && !pod::is_deleting(pod)).count()
}

impl World {
    /// As the rim does: a node that is taken to be gone is asked for once more.
    fn pass(&mut self) -> Option<Duration> {
        let plan = decide(&self.pods.cache.all(), &self.nodes.cache.all(), &mut self.missing, KEPT, self.now);
        let shown = self.pods.cache.all().iter().filter(|pod| pod::is_finished(pod) && !pod::is_deleting(pod)).count();
        let of_ended = plan.delete.iter().filter(|(_, why)| *why == Why::Ended).count();
        assert!(of_ended <= shown.saturating_sub(KEPT), "{shown} have ended, and {of_ended} go");
        for (shown, why) in plan.delete {
            let key = Key::of(&*shown);
            let is_there = |name: &str| self.nodes.objects.contains_key(&Key::new("", name));
            if why == Why::NodeGone && pod::node(&shown).is_some_and(is_there) {
                continue;
            }
            let Some(pod) = self.pods.objects.get(&key).filter(|pod| pod.metadata.uid == shown.metadata.uid) else {
                continue;
            };
            match why {
                Why::Ended => assert!(pod::is_finished(pod), "it runs"),
                Why::NodeGone => assert!(!is_there(pod::node(pod).unwrap()), "its node is there"),
                Why::NeverScheduled => assert!(pod::is_deleting(pod) && pod::node(pod).is_none()),
                Why::OutOfService => assert!(pod::is_deleting(pod)),
            }
            self.pods.remove(&key);
        }
        plan.again
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn who_goes_has_a_reason_and_who_has_one_goes(events in prop::collection::vec(happens(), 1..80)) {
        let revision = Revision::default();
        let mut world = World {
            pods: Truth::new(&revision), nodes: Truth::new(&revision), missing: Missing::new(), now: Instant::now(),
        };
        for (number, event) in events.into_iter().enumerate() {
            match event {
                Happens::Pass => { world.pass(); }
                Happens::Time(seconds) => world.now += Duration::from_secs(seconds),
                Happens::Show(pods, nodes) => {
                    world.pods.show(pods);
                    world.nodes.show(nodes);
                }
                Happens::Relist => {
                    world.pods.relist();
                    world.nodes.relist();
                }
                Happens::Comes(on, age) => {
                    let on = on.map_or("", |on| NAMES[on]);
                    let made = world.pods.create(pod(&format!("p{number}"), on, if on.is_empty() { "Pending" } else { "Running" }));
                    world.pods.change(&Key::of(&made), |pod| pod.metadata.creation_timestamp = Some(Time(at(age))));
                }
                Happens::Ends(n) => if let Some(key) = world.pods.pick(n) { world.pods.end(&key, "Failed") },
                Happens::Deleted(n) => if let Some(key) = world.pods.pick(n) {
                    world.pods.change(&key, |pod| {
                        pod.metadata.deletion_timestamp.get_or_insert(Time(at(0)));
                        pod.metadata.deletion_grace_period_seconds.get_or_insert(30);
                    });
                },
                Happens::NodeComes(n) => {
                    if !world.nodes.objects.contains_key(&Key::new("", NAMES[n])) {
                        world.nodes.create(node(NAMES[n], "True", json!([])));
                    }
                }
                Happens::NodeGoes(n) => {
                    world.nodes.remove(&Key::new("", NAMES[n]));
                }
                Happens::NodeOutOfService(n) => {
                    let taints = json!([{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]);
                    let wanted = node(NAMES[n], "Unknown", taints);
                    world.nodes.change(&Key::new("", NAMES[n]), |node| {
                        node.spec = wanted.spec;
                        node.status = wanted.status;
                    });
                }
            }
        }
        // It looks again when it said it would, and not more often.
        world.pods.show_all();
        world.nodes.show_all();
        let mut looks = 0;
        loop {
            let again = world.pass();
            world.pods.show_all();
            let Some(again) = again else { break };
            world.now += again;
            looks += 1;
            prop_assert!(again <= QUARANTINE && looks <= 3, "three nodes can be away");
        }
        for (key, pod) in &world.pods.objects {
            match pod::node(pod) {
                None => prop_assert!(!pod::is_deleting(pod), "{} was never scheduled", key),
                Some(name) => {
                    let node = world.nodes.objects.get(&Key::new("", name));
                    prop_assert!(node.is_some(), "{} is on {}, which is gone", key, name);
                    let is_out = crate::scheduler::fit::taints(node.unwrap()).iter().any(|taint| taint.key.ends_with("out-of-service"));
                    prop_assert!(!is_out || !pod::is_deleting(pod), "{} goes, and nobody ends it", key);
                }
            }
        }
        prop_assert!(counts(&world.pods) <= KEPT);
    }
}
