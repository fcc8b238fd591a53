//! The scheduler against a slow check of its rules, with Pods that come and go and a cache that is late.

use std::{collections::HashMap, sync::Arc};

use k8s_openapi::api::core::v1::{Node, Pod};
use proptest::prelude::*;
use serde_json::json;

use super::{
    affinity::Namespaces,
    decide::{Scheduler, Verdict, by_priority, is_pending},
    tests::{node, pod},
    uid,
};
use crate::{
    cache::Key,
    pod,
    world::{Revision, Truth},
};

#[derive(Clone, Debug)]
enum Happens {
    Pass,
    Show(usize),
    Relist,
    /// cpu in tenths, a port, whether it wants to be alone on its node, whether it must be in zone y.
    Comes(u32, Option<i32>, bool, bool),
    Ends(usize),
    Removed(usize),
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        4 => Just(Happens::Pass),
        3 => (1..5_usize).prop_map(Happens::Show),
        1 => Just(Happens::Relist),
        5 => (1..15_u32, prop::option::weighted(0.2, 1..3_i32), prop::bool::weighted(0.2), prop::bool::weighted(0.2))
            .prop_map(|(cpu, port, alone, zone)| Happens::Comes(cpu, port, alone, zone)),
        1 => any::<usize>().prop_map(Happens::Ends),
        1 => any::<usize>().prop_map(Happens::Removed),
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

fn comes(number: usize, cpu: u32, port: Option<i32>, alone: bool, in_y: bool) -> Pod {
    let ports: Vec<_> = port.iter().map(|port| json!({"containerPort": 1, "hostPort": port})).collect();
    let mut more = json!({
        "metadata": {"labels": {"alone": alone.to_string()}},
        "spec": {"containers": [{
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

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever comes and goes and however late the cache is: no node gets more than it has, no rule is broken, and in the end only those wait that
    /// fit nowhere.
    #[test]
    fn no_rule_is_broken_and_nobody_waits_without_a_reason(events in prop::collection::vec(happens(), 1..60)) {
        let nodes = nodes();
        let mut pods: Truth<Pod> = Truth::new(&Revision::default());
        let mut assumed: HashMap<String, String> = HashMap::new();
        let none = Namespaces::new();
        let mut pass = |pods: &mut Truth<Pod>| {
            let shown = pods.cache.all();
            assumed.retain(|id, _| shown.iter().any(|pod| uid(pod) == id && pod::node(pod).is_none()));
            let mut waiting: Vec<Arc<Pod>> =
                shown.iter().filter(|pod| is_pending(pod) && !assumed.contains_key(uid(pod))).cloned().collect();
            waiting.sort_by(|a, b| by_priority(a, b));
            let placed = |pod: &Pod| pod::node(pod).map(str::to_owned).or_else(|| assumed.get(uid(pod)).cloned());
            let mut scheduler = Scheduler::new(&nodes, &shown, placed, &none);
            let verdicts: Vec<_> = waiting.into_iter().map(|pod| (pod.clone(), scheduler.schedule(&pod))).collect();
            for (pod, verdict) in verdicts {
                if let Verdict::Node(name) = verdict {
                    let bound = pods.change(&Key::of(&*pod), |pod| pod.spec.as_mut().unwrap().node_name = Some(name.clone()));
                    if bound.is_some() {
                        assumed.insert(uid(&pod).to_owned(), name);
                    }
                }
            }
        };
        for (number, event) in events.into_iter().enumerate() {
            match event {
                Happens::Pass => pass(&mut pods),
                Happens::Show(events) => pods.show(events),
                Happens::Relist => pods.relist(),
                Happens::Comes(cpu, port, alone, in_y) => {
                    pods.create(comes(number, cpu, port, alone, in_y));
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
        for _ in 0..2 {
            pods.show_all();
            pass(&mut pods);
        }
        for pod in pods.objects.values().filter(|pod| is_pending(pod)) {
            for name in ["a", "b", "c"] {
                let mut together = on(&pods, name);
                together.push(pod);
                prop_assert!(!is_allowed(name, &together), "{:?} waits, but fits on {name}", pod.metadata.name);
            }
        }
    }
}
