//! A DaemonSet in a world where nodes and Pods come and go in any order and its cache is late.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::core::v1::{Node, Pod};
use proptest::prelude::*;
use serde_json::json;

use super::{
    decide::{Seen, nail, node_of, template},
    tests::{node, rolling, set},
};
use crate::{
    pod,
    world::{Revision, Truth, at},
};
use controllers::{cache::Key, written::Written};

#[derive(Clone, Debug)]
enum Happens {
    Reconcile,
    Show(usize),
    Relist,
    Start(usize),
    Ready(usize),
    Fail(usize),
    Gone(usize),
    Template,
    /// A node gets the taint that nobody tolerates, or loses it.
    Taint(usize),
}

fn happens(quiet: bool) -> impl Strategy<Value = Happens> {
    let rude = u32::from(!quiet);
    prop_oneof![
        6 => Just(Happens::Reconcile),
        5 => (1..4_usize).prop_map(Happens::Show),
        1 => Just(Happens::Relist),
        4 => any::<usize>().prop_map(Happens::Start),
        4 => any::<usize>().prop_map(Happens::Ready),
        rude => any::<usize>().prop_map(Happens::Fail),
        4 => any::<usize>().prop_map(Happens::Gone),
        1 => Just(Happens::Template),
        rude => any::<usize>().prop_map(Happens::Taint),
    ]
}

struct World {
    set: k8s_openapi::api::apps::v1::DaemonSet,
    hash: usize,
    nodes: Vec<Arc<Node>>,
    pods: Truth<Pod>,
    written: Written,
    revision: Revision,
}

impl World {
    fn new(surge: i32, unavailable: i32) -> Self {
        let nodes = (0..4).map(|n| Arc::new(node(&format!("n{n}"), json!({}), json!([])))).collect();
        let revision = Revision::default();
        Self {
            set: set("v", rolling(json!(surge), json!(unavailable))),
            hash: 0,
            nodes,
            pods: Truth::new(&revision),
            written: Written::default(),
            revision,
        }
    }

    fn reconcile(&mut self) {
        let key = Key::of(&self.set);
        if !self.written.is_shown(&key) {
            return;
        }
        let hash = format!("h{}", self.hash);
        let shown = self.pods.cache.all();
        let seen =
            Seen { set: &self.set, nodes: &self.nodes, pods: &shown, hash: &hash, back_off: &|_| None, now: at(0) };
        let plan = seen.plan();
        for name in plan.create {
            let mut pod = pod::from_template(&template(&self.set, &hash), &self.set);
            nail(pod.spec.as_mut().unwrap(), &name);
            let made = self.pods.create(pod);
            self.written.wrote(&key, &self.pods.cache, &made);
        }
        for (pod, _) in plan.delete {
            self.pods.terminate(&Key::of(&*pod));
            self.written.deleted(&key, &self.pods.cache, &*pod);
        }
    }

    fn happen(&mut self, what: &Happens) {
        match *what {
            Happens::Reconcile => self.reconcile(),
            Happens::Show(events) => self.pods.show(events),
            Happens::Relist => self.pods.relist(),
            Happens::Template => self.hash += 1,
            Happens::Taint(n) => {
                let n = n % self.nodes.len();
                let tainted =
                    self.nodes[n].spec.as_ref().unwrap().taints.as_ref().is_some_and(|taints| !taints.is_empty());
                let taints = if tainted { json!([]) } else { json!([{"key": "k", "effect": "NoExecute"}]) };
                self.nodes[n] = Arc::new(node(&format!("n{n}"), json!({}), taints));
            }
            Happens::Start(n) | Happens::Ready(n) | Happens::Fail(n) | Happens::Gone(n) => {
                let Some(key) = self.pods.pick(n) else { return };
                let pod = self.pods.objects[&key].clone();
                match what {
                    Happens::Start(_) => self.pods.start(&key, node_of(&pod).unwrap()),
                    Happens::Ready(_) if pod::phase(&pod) == "Running" => self.pods.set_ready(&key, true, at(0)),
                    Happens::Fail(_) if pod::node(&pod).is_some() => self.pods.end(&key, "Failed"),
                    Happens::Gone(_) if pod::is_deleting(&pod) => {
                        self.pods.remove(&key);
                    }
                    _ => {}
                }
            }
        }
    }

    fn settle(&mut self) {
        for _ in 0..60 {
            let before = self.revision.get();
            self.pods.show_all();
            self.reconcile();
            for key in self.pods.objects.keys().cloned().collect::<Vec<_>>() {
                let pod = self.pods.objects[&key].clone();
                if pod::is_deleting(&pod) {
                    self.pods.remove(&key);
                } else if !pod::is_ready(&pod) && !pod::is_finished(&pod) {
                    self.pods.start(&key, node_of(&pod).unwrap());
                    self.pods.set_ready(&key, true, at(0));
                }
            }
            if self.revision.get() == before {
                break;
            }
        }
        self.pods.show_all();
    }

    /// Of each node: how many there are, and whether one is available.
    fn counts(&self) -> BTreeMap<String, (usize, bool)> {
        let mut counts: BTreeMap<String, (usize, bool)> = BTreeMap::new();
        for pod in self.pods.objects.values().filter(|pod| pod::is_active(pod)) {
            let count = counts.entry(node_of(pod).unwrap().to_owned()).or_default();
            *count = (count.0 + 1, count.1 || pod::is_ready(pod));
        }
        counts
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// Pods only become ready or are taken away by the controller: then no more nodes are without an available Pod than an update may leave so, and no
    /// more nodes have two Pods than its surge allows, however late the cache is.
    #[test]
    fn an_update_stays_within_its_bounds(
        (surge, unavailable) in prop_oneof![Just((0, 1)), Just((0, 2)), Just((1, 0)), Just((2, 0))],
        events in prop::collection::vec(happens(true), 0..150),
    ) {
        let mut world = World::new(surge, unavailable);
        world.settle();
        for event in &events {
            world.happen(event);
            let counts = world.counts();
            let available = counts.values().filter(|(_, available)| *available).count();
            let doubled = counts.values().filter(|(count, _)| *count > 1).count();
            prop_assert!(available + usize::try_from(unavailable).unwrap() >= 4, "{counts:?} after {event:?}");
            prop_assert!(doubled <= usize::try_from(surge).unwrap(), "{counts:?} after {event:?}");
            prop_assert!(counts.values().all(|(count, _)| *count <= 2));
        }
    }

    /// Whatever happens to nodes and Pods: in the end each node that suits has one, of the last template.
    #[test]
    fn in_the_end_each_node_has_one(
        (surge, unavailable) in prop_oneof![Just((0, 1)), Just((1, 0))],
        events in prop::collection::vec(happens(false), 0..150),
    ) {
        let mut world = World::new(surge, unavailable);
        for event in &events {
            world.happen(event);
            // Without a surge there are never two, not even one that is ending and one that begins.
            if surge == 0 {
                let mut on: Vec<&str> = world.pods.objects.values().filter_map(node_of).collect();
                let count = on.len();
                on.sort_unstable();
                on.dedup();
                prop_assert_eq!(on.len(), count, "after {:?}", event);
            }
        }
        world.settle();
        let wanted: Vec<String> = world
            .nodes
            .iter()
            .filter(|node| node.spec.as_ref().unwrap().taints.as_ref().is_none_or(Vec::is_empty))
            .filter_map(|node| node.metadata.name.clone())
            .collect();
        let there: Vec<String> = world.counts().into_iter().filter(|(_, count)| *count == (1, true)).map(|(name, _)| name).collect();
        prop_assert_eq!(there, wanted);
        let hash = format!("h{}", world.hash);
        prop_assert!(world.pods.objects.values().all(|pod| pod.metadata.labels.as_ref().unwrap()[super::revision::HASH] == hash));
    }
}
