//! The scheduler against a slow check of its rules, with Pods that come and go, make room for others, and a cache that is late.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use k8s_openapi::api::core::v1::{Node, Pod, PodCondition};
use proptest::prelude::*;
use serde_json::json;

use super::{
    decide::{Known, Scheduler, Verdict, by_priority, is_pending},
    nominated_of,
    preempt::priority,
    tests::{node, pod},
    uid,
};
use crate::{
    pod,
    world::{Revision, Truth},
};
use controllers::cache::Key;

#[derive(Clone, Debug)]
enum Happens {
    Pass,
    Show(usize),
    Relist,
    Comes(Wants),
    Ends(usize),
    Removed(usize),
    /// One that was told to go has gone.
    Gone(usize),
}

#[derive(Clone, Debug)]
struct Wants {
    /// In tenths.
    cpu: u32,
    port: Option<i32>,
    /// On its node.
    alone: bool,
    in_y: bool,
    priority: i32,
    polite: bool,
}

fn wants() -> impl Strategy<Value = Wants> {
    let rarely = || prop::bool::weighted(0.2);
    (1..15_u32, prop::option::weighted(0.2, 1..3_i32), rarely(), rarely(), 0..3_i32, rarely())
        .prop_map(|(cpu, port, alone, in_y, priority, polite)| Wants { cpu, port, alone, in_y, priority, polite })
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        4 => Just(Happens::Pass),
        3 => (1..5_usize).prop_map(Happens::Show),
        1 => Just(Happens::Relist),
        5 => wants().prop_map(Happens::Comes),
        1 => any::<usize>().prop_map(Happens::Ends),
        1 => any::<usize>().prop_map(Happens::Removed),
        2 => any::<usize>().prop_map(Happens::Gone),
    ]
}

fn nodes() -> Vec<Arc<Node>> {
    let make = |name: &str, zone: &str, cpu: &str| {
        let more = json!({
            "metadata": {"labels": {"zone": zone}}, "status": {"allocatable": {"cpu": cpu, "pods": "6"}},
        });
        Arc::new(node(name, more))
    };
    vec![make("a", "x", "2"), make("b", "x", "3"), make("c", "y", "1500m")]
}

fn comes(number: usize, wants: &Wants) -> Pod {
    let Wants { cpu, port, alone, in_y, priority, polite } = *wants;
    let ports: Vec<_> = port.iter().map(|port| json!({"containerPort": 1, "hostPort": port})).collect();
    let mut more = json!({
        "metadata": {"labels": {"alone": alone.to_string()}},
        "spec": {"priority": priority, "preemptionPolicy": if polite { "Never" } else { "PreemptLowerPriority" }, "containers": [{
            "name": "c", "image": "i", "ports": ports, "resources": {"requests": {"cpu": format!("{}m", cpu * 100)}},
        }]},
    });
    if alone {
        more["spec"]["affinity"] = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"alone": "true"}}, "topologyKey": "kubernetes.io/hostname"}
        ]}});
    }
    if in_y {
        more["spec"]["nodeSelector"] = json!({"zone": "y"});
    }
    pod(&format!("p{number}"), more)
}

/// What was asked for, read from how the model makes its Pods and not as the scheduler reads it.
fn asked(pod: &Pod) -> (u32, Option<i32>, bool, bool) {
    let spec = pod.spec.as_ref().unwrap();
    let container = &spec.containers[0];
    let cpu = &container.resources.as_ref().unwrap().requests.as_ref().unwrap()["cpu"].0;
    (
        cpu.trim_end_matches('m').parse().unwrap(),
        container.ports.as_ref().and_then(|ports| ports.first()?.host_port),
        pod.metadata.labels.as_ref().unwrap()["alone"] == "true",
        spec.node_selector.is_some(),
    )
}

/// Whether these can be together on a node.
fn is_allowed(name: &str, pods: &[&Pod]) -> bool {
    let limit = match name {
        "a" => 2000,
        "b" => 3000,
        _ => 1500,
    };
    let asked: Vec<_> = pods.iter().map(|pod| asked(pod)).collect();
    let mut ports: Vec<i32> = asked.iter().filter_map(|asked| asked.1).collect();
    let count = ports.len();
    ports.sort_unstable();
    ports.dedup();
    pods.len() <= 6
        && asked.iter().map(|asked| asked.0).sum::<u32>() <= limit
        && ports.len() == count
        && asked.iter().filter(|asked| asked.2).count() <= 1
        && (name == "c" || asked.iter().all(|asked| !asked.3))
}

fn on<'a>(pods: &'a Truth<Pod>, name: &str) -> Vec<&'a Pod> {
    pods.objects.values().filter(|pod| pod::node(pod) == Some(name) && !pod::is_finished(pod)).collect()
}

/// The rim without I/O.
#[derive(Default)]
struct Rim {
    assumed: HashMap<String, String>,
    nominated: HashMap<String, String>,
    going: HashSet<String>,
}

impl Rim {
    fn pass(&mut self, nodes: &[Arc<Node>], pods: &mut Truth<Pod>) {
        let shown = pods.cache.all();
        let find = |id: &str| shown.iter().find(|pod| uid(pod) == id);
        self.assumed.retain(|id, _| find(id).is_some_and(|pod| pod::node(pod).is_none()));
        self.nominated
            .retain(|id, node| find(id).is_some_and(|pod| is_pending(pod) && nominated_of(pod) != Some(node)));
        self.going.retain(|id| find(id).is_some_and(|pod| !pod::is_deleting(pod)));
        let mut waiting: Vec<Arc<Pod>> =
            shown.iter().filter(|pod| is_pending(pod) && !self.assumed.contains_key(uid(pod))).cloned().collect();
        waiting.sort_by(|a, b| by_priority(a, b));
        let placed = |pod: &Pod| pod::node(pod).map(str::to_owned).or_else(|| self.assumed.get(uid(pod)).cloned());
        let nominated = |pod: &Pod| self.nominated.get(uid(pod)).or(nominated_of(pod)).cloned();
        let known = Known::default();
        let mut scheduler = Scheduler::new(nodes, &shown, placed, nominated, self.going.clone(), &known);
        let verdicts: Vec<_> = waiting.into_iter().map(|pod| (pod.clone(), scheduler.schedule(&pod))).collect();
        for (pod, verdict) in verdicts {
            let key = Key::of(&*pod);
            match verdict {
                Verdict::Node(name) => {
                    let bound = pods.change(&key, |pod| pod.spec.as_mut().unwrap().node_name = Some(name.clone()));
                    if bound.is_some() {
                        self.assumed.insert(uid(&pod).to_owned(), name);
                    }
                }
                Verdict::Preempt { node, victims, .. } => {
                    assert!(pod.spec.as_ref().unwrap().preemption_policy.as_deref() != Some("Never"), "it is polite");
                    for victim in victims {
                        assert!(priority(&victim) < priority(&pod), "as important as who comes");
                        let target = PodCondition {
                            type_: "DisruptionTarget".into(),
                            status: "True".into(),
                            reason: Some("PreemptionByScheduler".into()),
                            ..PodCondition::default()
                        };
                        let victim = Key::of(&*victim);
                        pods.change(&victim, |pod| {
                            pod.status.get_or_insert_default().conditions.get_or_insert_default().push(target);
                        });
                        if pods.objects.contains_key(&victim) {
                            assert!(!pod::is_deleting(&pods.objects[&victim]), "it was told to go before");
                            pods.terminate(&victim);
                        }
                        self.going.insert(victim_uid(pods, &victim));
                    }
                    self.nominated.insert(uid(&pod).to_owned(), node.clone());
                    pods.change(&key, |pod| pod.status.get_or_insert_default().nominated_node_name = Some(node));
                }
                Verdict::None(_) => {
                    self.nominated.remove(uid(&pod));
                    if nominated_of(&pod).is_some() {
                        pods.change(&key, |pod| pod.status.get_or_insert_default().nominated_node_name = None);
                    }
                }
                Verdict::Waits(_) | Verdict::Volumes(..) => {}
            }
        }
    }
}

fn victim_uid(pods: &Truth<Pod>, key: &Key) -> String {
    pods.objects.get(key).map(|pod| uid(pod).to_owned()).unwrap_or_default()
}

fn going(pods: &Truth<Pod>) -> Vec<Key> {
    pods.objects.iter().filter(|(_, pod)| pod::is_deleting(pod)).map(|(key, _)| key.clone()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever comes and goes and however late the cache is: no node gets more than it has, no rule is broken, nobody goes for somebody who is not more
    /// important, and in the end only those wait that fit nowhere, even if all who are less important went.
    #[test]
    fn no_rule_is_broken_and_nobody_waits_without_a_reason(events in prop::collection::vec(happens(), 1..60)) {
        let nodes = nodes();
        let revision = Revision::default();
        let mut pods: Truth<Pod> = Truth::new(&revision);
        let mut rim = Rim::default();
        for (number, event) in events.into_iter().enumerate() {
            match event {
                Happens::Pass => rim.pass(&nodes, &mut pods),
                Happens::Show(events) => pods.show(events),
                Happens::Relist => pods.relist(),
                Happens::Comes(wants) => {
                    pods.create(comes(number, &wants));
                }
                Happens::Gone(n) => {
                    let going = going(&pods);
                    if !going.is_empty() {
                        pods.remove(&going[n % going.len()]);
                    }
                }
                Happens::Ends(n) | Happens::Removed(n) => {
                    if let Some(key) = pods.pick(n) {
                        if matches!(event, Happens::Ends(_)) && pod::node(&pods.objects[&key]).is_some() {
                            pods.end(&key, "Succeeded");
                        } else {
                            pods.remove(&key);
                        }
                    }
                }
            }
            for name in ["a", "b", "c"] {
                prop_assert!(is_allowed(name, &on(&pods, name)), "{name} has what it must not have");
            }
        }
        // Everybody who was told to go goes, and whatever is written is a reason to look again: who gives up waiting for room leaves it to others.
        for round in 0.. {
            pods.show_all();
            let before = revision.get();
            rim.pass(&nodes, &mut pods);
            going(&pods).iter().for_each(|key| { pods.remove(key); });
            if revision.get() == before {
                break;
            }
            prop_assert!(round < 200, "room is made for ever");
        }
        for pod in pods.objects.values().filter(|pod| is_pending(pod)) {
            let polite = pod.spec.as_ref().unwrap().preemption_policy.as_deref() == Some("Never");
            for name in ["a", "b", "c"] {
                let mut together = on(&pods, name);
                together.retain(|other| polite || priority(other) >= priority(pod));
                together.push(pod);
                prop_assert!(!is_allowed(name, &together), "{:?} waits, but fits on {name}", pod.metadata.name);
            }
        }
    }
}
