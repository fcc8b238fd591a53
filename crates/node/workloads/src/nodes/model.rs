//! Nodes that fall silent, are ill, are cordoned and come back, with Pods that tolerate that or do not, and caches that are late.

use std::{collections::BTreeMap, time::Duration};

use jiff::SignedDuration;
use k8s_openapi::{
    api::core::v1::{Node, NodeCondition, Pod, Taint},
    apimachinery::pkg::apis::meta::v1::Time,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::decide::{PATIENCE, decide, is_ready, ready};
use crate::{
    pod,
    scheduler::fit,
    world::{Revision, Truth, at, parse},
};
use controllers::cache::{Key, Kind, revision_of};

const NAMES: [&str; 3] = ["n0", "n1", "n2"];

#[derive(Clone, Debug)]
enum Happens {
    Look(usize),
    Time(u64),
    Show(usize, usize),
    Relist,
    /// A node reports: whether it is ready, and whether it is short of memory.
    Reports(usize, bool, bool),
    Cordoned(usize, bool),
    Tainted(usize, bool),
    /// A Pod comes to a node, that tolerates everything, nothing, or everything for so many seconds.
    Comes(usize, Option<u64>),
    PodReady(usize),
    PodGone(usize),
}

fn happens() -> impl Strategy<Value = Happens> {
    let one = || 0..NAMES.len();
    prop_oneof![
        8 => one().prop_map(Happens::Look),
        4 => (1..40_u64).prop_map(Happens::Time),
        5 => (0..4_usize, 0..4_usize).prop_map(|(nodes, pods)| Happens::Show(nodes, pods)),
        1 => Just(Happens::Relist),
        5 => (one(), prop::bool::weighted(0.8), prop::bool::weighted(0.2)).prop_map(|(node, ready, memory)| Happens::Reports(node, ready, memory)),
        1 => (one(), any::<bool>()).prop_map(|(node, on)| Happens::Cordoned(node, on)),
        1 => (one(), any::<bool>()).prop_map(|(node, on)| Happens::Tainted(node, on)),
        3 => (one(), prop::sample::select(vec![None, Some(0), Some(30), Some(u64::MAX)])).prop_map(|(node, seconds)| Happens::Comes(node, seconds)),
        2 => any::<usize>().prop_map(Happens::PodReady),
        1 => any::<usize>().prop_map(Happens::PodGone),
    ]
}

fn key(name: &str) -> Key {
    Key::new("", name)
}

fn pod_on(number: usize, node: &str, tolerates: Option<u64>) -> Pod {
    let tolerations: Vec<Value> = match tolerates {
        None => vec![],
        Some(u64::MAX) => vec![json!({"operator": "Exists"})],
        Some(seconds) => vec![json!({"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds})],
    };
    parse(
        json!({"metadata": {"name": format!("p{number}"), "namespace": "ns"}, "spec": {"nodeName": node, "containers": [], "tolerations": tolerations}}),
    )
}

struct World {
    nodes: Truth<Node>,
    pods: Truth<Pod>,
    seconds: u64,
    /// When each node reported last, and when the controller heard that.
    reported: BTreeMap<&'static str, u64>,
    heard: BTreeMap<&'static str, (Option<Time>, u64)>,
}

fn set(node: &mut Node, kind: &str, value: bool, now: Time) {
    let conditions = node.status.get_or_insert_default().conditions.get_or_insert_default();
    conditions.retain(|condition| condition.type_ != kind);
    conditions.push(NodeCondition {
        type_: kind.into(),
        status: if value { "True" } else { "False" }.into(),
        last_heartbeat_time: Some(now),
        ..NodeCondition::default()
    });
}

/// Whether a write that was decided by what the cache shows is taken: as with a resourceVersion.
fn is_current<K: Kind>(truth: &Truth<K>, key: &Key, shown: &K) -> bool {
    truth.objects.get(key).is_some_and(|now| revision_of(now.meta()) == revision_of(shown.meta()))
}

impl World {
    fn now(&self) -> Time {
        Time(at(i64::try_from(self.seconds).unwrap()))
    }

    fn report(&mut self, name: &'static str, is_well: bool, memory: bool) {
        let now = self.now();
        self.nodes.change(&key(name), |node| {
            set(node, "Ready", is_well, now.clone());
            set(node, "MemoryPressure", memory, now.clone());
            set(node, "DiskPressure", false, now.clone());
            set(node, "PIDPressure", false, now.clone());
        });
        self.reported.insert(name, self.seconds);
    }

    /// As the rim does. After how long to look again.
    fn look(&mut self, name: &'static str) -> Option<Duration> {
        let shown = self.nodes.cache.get(&key(name))?;
        let beat = shown.status.as_ref().and_then(|status| {
            status.conditions.as_ref()?.iter().find(|one| one.type_ == "Ready")?.last_heartbeat_time.clone()
        });
        let heard = self.heard.entry(name).or_insert_with(|| (beat.clone(), self.seconds));
        if heard.0 != beat {
            *heard = (beat, self.seconds);
        }
        let silent_for = Duration::from_secs(self.seconds - heard.1);
        let evicts = self.nodes.cache.all().iter().any(|node| is_ready(node));
        let mut pods = self.pods.cache.all();
        pods.retain(|pod| pod::node(pod) == Some(name));
        let now = self.now();
        let plan = decide(&shown, &pods, silent_for, evicts, now.0);
        let may_write = is_current(&self.nodes, &key(name), &shown);
        if let Some(conditions) = plan.conditions {
            assert!(silent_for >= PATIENCE, "it was heard {silent_for:?} ago");
            // Conditions are written one by one: what the node said meanwhile is newer only where the cache is late.
            if may_write {
                self.nodes.change(&key(name), |node| node.status.get_or_insert_default().conditions = Some(conditions));
            }
        }
        if let Some(taints) = plan.taints
            && may_write
        {
            self.nodes.change(&key(name), |node| node.spec.get_or_insert_default().taints = Some(taints));
        }
        for pod in plan.mark {
            assert!(ready(&shown) == "Unknown", "somebody knows");
            self.pods.set_ready(&Key::of(&*pod), false, now.0);
        }
        for pod in plan.evict {
            let tolerations = pod.spec.as_ref().unwrap().tolerations.clone().unwrap_or_default();
            let hurts = fit::taints(&shown).iter().filter(|taint| taint.effect == "NoExecute");
            let is_over = |taint: &Taint| {
                let since = taint.time_added.as_ref().map_or(now.0, |Time(time)| *time);
                match tolerations.first() {
                    None => true,
                    Some(one) => one
                        .toleration_seconds
                        .is_some_and(|seconds| now.0.duration_since(since) >= SignedDuration::from_secs(seconds)),
                }
            };
            assert!(hurts.into_iter().any(is_over), "it could have stayed");
            self.pods.terminate(&Key::of(&*pod));
        }
        plan.again
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// In the end taints say what conditions say, nobody else's taints are touched, nobody is evicted who tolerates it, who does not goes, and then nothing is
    /// written any more.
    #[test]
    fn nodes_and_their_pods_settle(events in prop::collection::vec(happens(), 1..100)) {
        let revision = Revision::default();
        let mut world = World {
            nodes: Truth::new(&revision), pods: Truth::new(&revision), seconds: 1, reported: BTreeMap::new(), heard: BTreeMap::new(),
        };
        let mut foreign: BTreeMap<&str, bool> = BTreeMap::new();
        for name in NAMES {
            world.nodes.create(parse(json!({"metadata": {"name": name}, "spec": {}})));
            world.report(name, true, false);
        }
        for (number, event) in events.into_iter().enumerate() {
            match event {
                Happens::Look(n) => { world.look(NAMES[n]); }
                Happens::Time(seconds) => world.seconds += seconds,
                Happens::Show(nodes, pods) => {
                    world.nodes.show(nodes);
                    world.pods.show(pods);
                }
                Happens::Relist => {
                    world.nodes.relist();
                    world.pods.relist();
                }
                Happens::Reports(n, is_well, memory) => world.report(NAMES[n], is_well, memory),
                Happens::Cordoned(n, on) => {
                    world.nodes.change(&key(NAMES[n]), |node| node.spec.get_or_insert_default().unschedulable = Some(on));
                }
                Happens::Tainted(n, on) => {
                    foreign.insert(NAMES[n], on);
                    world.nodes.change(&key(NAMES[n]), |node| {
                        let taints = node.spec.get_or_insert_default().taints.get_or_insert_default();
                        taints.retain(|taint| taint.key != "mine");
                        if on {
                            taints.push(parse(json!({"key": "mine", "effect": "NoSchedule"})));
                        }
                    });
                }
                Happens::Comes(n, tolerates) => {
                    world.pods.create(pod_on(number, NAMES[n], tolerates));
                }
                Happens::PodReady(n) => if let Some(key) = world.pods.pick(n) {
                    let now = world.now().0;
                    world.pods.set_ready(&key, true, now);
                },
                Happens::PodGone(n) => if let Some(key) = world.pods.pick(n) { world.pods.remove(&key); },
            }
        }
        // One node goes on reporting, the others stay as they are; it is looked when something changed or it is time.
        for _ in 0..8 {
            world.report(NAMES[0], true, false);
            for _ in 0..6 {
                world.nodes.show_all();
                world.pods.show_all();
                for name in NAMES {
                    world.look(name);
                }
            }
            world.seconds += 20;
        }
        world.report(NAMES[0], true, false);
        world.nodes.show_all();
        world.look(NAMES[0]);
        let before = revision.get();
        for name in NAMES {
            let again = world.look(name);
            prop_assert!(again.is_none_or(|again| !again.is_zero()), "looks for ever");
        }
        prop_assert_eq!(revision.get(), before, "nothing is left to write");
        for name in NAMES {
            let node = &world.nodes.objects[&key(name)];
            let is_silent = world.seconds - world.reported[name] >= PATIENCE.as_secs();
            prop_assert_eq!(ready(node) == "Unknown", is_silent, "{}", name);
            let has = |taint: &str, effect: &str| fit::taints(node).iter().any(|one| one.key.ends_with(taint) && one.effect == effect);
            prop_assert_eq!(has("unreachable", "NoSchedule") && has("unreachable", "NoExecute"), is_silent);
            prop_assert_eq!(has("not-ready", "NoExecute"), ready(node) == "False");
            prop_assert_eq!(has("unschedulable", "NoSchedule"), node.spec.as_ref().unwrap().unschedulable == Some(true));
            prop_assert_eq!(has("mine", "NoSchedule"), foreign.get(name).copied().unwrap_or(false), "others' taints are theirs");
            let is_ill = fit::taints(node).iter().any(|taint| taint.effect == "NoExecute");
            for pod in world.pods.objects.values().filter(|pod| pod::node(pod) == Some(name)) {
                let tolerations = pod.spec.as_ref().unwrap().tolerations.clone().unwrap_or_default();
                let stays = tolerations.first().is_some_and(|one| one.toleration_seconds.is_none());
                prop_assert!(!is_ill || stays || pod::is_deleting(pod), "{:?} does not tolerate {}", pod.metadata.name, name);
                prop_assert!(!is_silent || !pod::is_ready(pod), "nobody knows whether it is");
            }
        }
    }
}
