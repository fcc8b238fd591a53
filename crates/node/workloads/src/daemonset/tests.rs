use std::{sync::Arc, time::Duration};

use k8s_openapi::{
    api::{
        apps::v1::{ControllerRevision, DaemonSet},
        core::v1::{Node, Pod},
    },
    apimachinery::pkg::apis::meta::v1::Time,
};
use serde_json::{Value, json};

use super::{
    decide::{Plan, Seen, Why, nail, node_of, suits, template},
    revision::{self, HASH, Write},
};
use crate::{
    pod,
    world::Case,
    world::{at, parse, set_ready},
};

pub const CASES: &[Case] = &[
    ("daemonset/one-on-each-node", one_on_each_node),
    ("daemonset/nodes-that-suit", nodes_that_suit),
    ("daemonset/tolerations", tolerations),
    ("daemonset/nailed-to-its-node", nailed_to_its_node),
    ("daemonset/taint-that-comes", taint_that_comes),
    ("daemonset/surplus", surplus),
    ("daemonset/replaces-finished", replaces_finished),
    ("daemonset/waits-for-terminating", waits_for_terminating),
    ("daemonset/node-gone", node_gone),
    ("daemonset/rolling-update", rolling_update),
    ("daemonset/broken-first", broken_first),
    ("daemonset/surge", surge),
    ("daemonset/on-delete", on_delete),
    ("daemonset/revisions", revisions),
    ("daemonset/revision-history-limit", revision_history_limit),
    ("daemonset/status", status),
    ("daemonset/min-ready-seconds", min_ready_seconds),
];

pub fn set(image: &str, strategy: Value) -> DaemonSet {
    parse(json!({
        "metadata": {"name": "agent", "namespace": "ns", "uid": "d", "generation": 2},
        "spec": {
            "selector": {"matchLabels": {"app": "agent"}},
            "updateStrategy": strategy,
            "template": {"metadata": {"labels": {"app": "agent"}}, "spec": {"containers": [{"name": "c", "image": image}]}},
        },
    }))
}

pub fn rolling(surge: Value, unavailable: Value) -> Value {
    json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}})
}

pub fn node(name: &str, labels: Value, taints: Value) -> Node {
    parse(json!({"metadata": {"name": name, "labels": labels}, "spec": {"taints": taints}}))
}

fn nodes(count: usize) -> Vec<Arc<Node>> {
    (0..count).map(|n| Arc::new(node(&format!("n{n}"), json!({}), json!([])))).collect()
}

/// A Pod of a revision on a node; available if it is ready.
fn on(node: usize, hash: &str, ready: bool) -> Arc<Pod> {
    let set = set("v1", rolling(json!(0), json!(1)));
    let mut pod = pod::from_template(&template(&set, hash), &set);
    pod.metadata.name = Some(format!("p{node}-{hash}"));
    pod.metadata.uid = pod.metadata.name.clone();
    pod.spec.as_mut().unwrap().node_name = Some(format!("n{node}"));
    let status = pod.status.get_or_insert_default();
    status.phase = Some("Running".into());
    set_ready(status, ready, at(0));
    Arc::new(pod)
}

fn ended(node: usize, phase: &str) -> Arc<Pod> {
    let mut pod = (*on(node, "h", false)).clone();
    pod.status.as_mut().unwrap().phase = Some(phase.into());
    Arc::new(pod)
}

fn plan(set: &DaemonSet, nodes: &[Arc<Node>], pods: &[Arc<Pod>], hash: &str) -> Plan {
    Seen { set, nodes, pods, hash, back_off: &|_| None, now: at(0) }.plan()
}

fn deleted(plan: &Plan) -> Vec<String> {
    plan.delete.iter().map(|(pod, _)| pod.metadata.name.clone().unwrap()).collect()
}

fn one_on_each_node() {
    let set = set("v1", rolling(json!(0), json!(1)));
    let got = plan(&set, &nodes(3), &[on(1, "h", true)], "h");
    assert_eq!(got, Plan { create: vec!["n0".into(), "n2".into()], ..Plan::default() });
}

fn nodes_that_suit() {
    let mut set = set("v1", rolling(json!(0), json!(1)));
    let spec = set.spec.as_mut().unwrap().template.spec.as_mut().unwrap();
    spec.node_selector = Some([("disk".to_owned(), "ssd".to_owned())].into());
    let template = template(&set, "h");
    for (labels, taints, expected) in [
        (json!({"disk": "ssd"}), json!([]), (true, true)),
        (json!({"disk": "tape"}), json!([]), (false, false)),
        (json!({"disk": "ssd"}), json!([{"key": "k", "effect": "NoSchedule"}]), (false, true)),
        (json!({"disk": "ssd"}), json!([{"key": "k", "effect": "NoExecute"}]), (false, false)),
        (json!({"disk": "ssd"}), json!([{"key": "k", "effect": "PreferNoSchedule"}]), (true, true)),
        (
            json!({"disk": "ssd"}),
            json!([{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]),
            (true, true),
        ),
    ] {
        assert_eq!(suits(&template, &node("n", labels.clone(), taints.clone())), expected, "{labels} {taints}");
    }
}

fn tolerations() {
    let mut set = set("v1", rolling(json!(0), json!(1)));
    let keys = |set: &DaemonSet| -> Vec<String> {
        let tolerations = template(set, "h").spec.unwrap().tolerations.unwrap();
        tolerations
            .iter()
            .map(|one| format!("{}:{}", one.key.as_deref().unwrap(), one.effect.as_deref().unwrap()))
            .collect()
    };
    let expected = [
        "not-ready:NoExecute",
        "unreachable:NoExecute",
        "disk-pressure:NoSchedule",
        "memory-pressure:NoSchedule",
        "pid-pressure:NoSchedule",
        "unschedulable:NoSchedule",
    ]
    .map(|name| format!("node.kubernetes.io/{name}"));
    assert_eq!(keys(&set), expected);
    set.spec.as_mut().unwrap().template.spec.as_mut().unwrap().host_network = Some(true);
    assert_eq!(keys(&set).last().unwrap(), "node.kubernetes.io/network-unavailable:NoSchedule");
}

fn nailed_to_its_node() {
    let set = set("v1", rolling(json!(0), json!(1)));
    let mut pod = pod::from_template(&template(&set, "h"), &set);
    assert_eq!(node_of(&pod), None);
    nail(pod.spec.as_mut().unwrap(), "n7");
    assert_eq!(node_of(&pod), Some("n7"), "also while the scheduler has not bound it");
    assert_eq!(pod.metadata.labels.as_ref().unwrap()[HASH], "h");
    // So it is not made twice.
    let nodes = [Arc::new(node("n7", json!({}), json!([])))];
    assert_eq!(plan(&set, &nodes, &[Arc::new(pod)], "h"), Plan::default());
}

fn taint_that_comes() {
    let set = set("v1", rolling(json!(0), json!(1)));
    for (effect, goes) in [("NoSchedule", false), ("NoExecute", true)] {
        let nodes = [Arc::new(node("n0", json!({}), json!([{"key": "k", "effect": effect}])))];
        let got = plan(&set, &nodes, &[on(0, "h", true)], "h");
        assert_eq!((got.create.is_empty(), got.delete.len()), (true, usize::from(goes)), "{effect}");
        assert!(plan(&set, &nodes, &[], "h").create.is_empty());
    }
}

fn surplus() {
    let mut young = (*on(0, "h", true)).clone();
    young.metadata.name = Some("young".into());
    young.metadata.creation_timestamp = Some(Time(at(9)));
    let mut old = (*on(0, "h", true)).clone();
    old.metadata.creation_timestamp = Some(Time(at(1)));
    let set = set("v1", rolling(json!(0), json!(1)));
    assert_eq!(deleted(&plan(&set, &nodes(1), &[Arc::new(young), Arc::new(old)], "h")), ["young"]);
}

fn replaces_finished() {
    let set = set("v1", rolling(json!(0), json!(1)));
    let got = plan(&set, &nodes(2), &[ended(0, "Failed"), ended(1, "Succeeded")], "h");
    let why: Vec<Why> = got.delete.iter().map(|(_, why)| *why).collect();
    assert_eq!(why, [Why::Failed, Why::Succeeded]);
    // Who fails again and again waits.
    let wait = Duration::from_secs(8);
    let pods = [ended(0, "Failed")];
    let seen = Seen { set: &set, nodes: &nodes(1), pods: &pods, hash: "h", back_off: &|_| Some(wait), now: at(0) };
    assert_eq!(seen.plan(), Plan { again: Some(wait), ..Plan::default() });
}

fn waits_for_terminating() {
    let mut going = (*on(0, "h", true)).clone();
    going.metadata.deletion_timestamp = Some(Time(at(0)));
    let set = set("v1", rolling(json!(0), json!(1)));
    assert_eq!(plan(&set, &nodes(1), &[Arc::new(going)], "h"), Plan::default(), "two would fight over ports and files");
}

fn node_gone() {
    let set = set("v1", rolling(json!(0), json!(1)));
    let mut vain = pod::from_template(&template(&set, "h"), &set);
    vain.metadata.name = Some("vain".into());
    nail(vain.spec.as_mut().unwrap(), "gone");
    assert_eq!(deleted(&plan(&set, &nodes(0), &[Arc::new(vain)], "h")), ["vain"]);
}

fn rolling_update() {
    let pods =
        |ready: [bool; 2]| vec![on(0, "new", ready[0]), on(1, "old", true), on(2, "old", true), on(3, "old", ready[1])];
    let set = |unavailable: Value| set("v2", rolling(json!(0), unavailable));
    assert_eq!(deleted(&plan(&set(json!(1)), &nodes(4), &pods([true, true]), "new")), ["p1-old"]);
    assert_eq!(deleted(&plan(&set(json!(1)), &nodes(4), &pods([false, true]), "new")), [] as [&str; 0]);
    assert_eq!(deleted(&plan(&set(json!("50%")), &nodes(4), &pods([true, true]), "new")), ["p1-old", "p2-old"]);
    assert_eq!(deleted(&plan(&set(json!(2)), &nodes(4), &pods([false, true]), "new")), ["p1-old"]);
}

fn broken_first() {
    let pods = [on(0, "old", true), on(1, "old", false)];
    let set = set("v2", rolling(json!(0), json!(1)));
    assert_eq!(deleted(&plan(&set, &nodes(2), &pods, "new")), ["p1-old"]);
}

fn surge() {
    let set = set("v2", rolling(json!(1), json!(0)));
    let got = plan(&set, &nodes(2), &[on(0, "old", true), on(1, "old", true)], "new");
    assert_eq!((got.create.clone(), got.delete.len()), (vec!["n0".to_owned()], 0));
    let both = |ready: bool| [on(0, "old", true), on(0, "new", ready), on(1, "old", true)];
    assert_eq!(plan(&set, &nodes(2), &both(false), "new"), Plan::default());
    let got = plan(&set, &nodes(2), &both(true), "new");
    assert_eq!(deleted(&got), ["p0-old"]);
    assert_eq!(got.create, ["n1"]);
}

fn on_delete() {
    let set = set("v2", json!({"type": "OnDelete"}));
    assert_eq!(plan(&set, &nodes(1), &[on(0, "old", false)], "new"), Plan::default());
    assert_eq!(plan(&set, &nodes(1), &[], "new").create, ["n0"]);
}

fn made(set: &DaemonSet, known: &[ControllerRevision]) -> ControllerRevision {
    match revision::current(set, known) {
        Some((_, Write::Create(made))) => *made,
        other => panic!("{other:?}"),
    }
}

fn revisions() {
    let (one, two) = (set("v1", json!(null)), set("v2", json!(null)));
    let first = made(&one, &[]);
    assert_eq!(first.revision, 1);
    let mut counted = one.clone();
    counted.metadata.annotations = Some([("deprecated.daemonset.template.generation".into(), "3".into())].into());
    let labels = template(&counted, "h").metadata.unwrap().labels.unwrap();
    assert_eq!((labels[HASH].as_str(), labels["pod-template-generation"].as_str()), ("h", "3"));
    let value = serde_json::to_value(&first).unwrap();
    assert_eq!(value["data"]["spec"]["template"]["$patch"], "replace");
    assert_eq!(value["metadata"]["ownerReferences"][0]["kind"], "DaemonSet");
    let known = [first.clone(), made(&two, std::slice::from_ref(&first))];
    assert_eq!(known[1].revision, 2);
    let hash = known[1].metadata.labels.as_ref().unwrap()[HASH].clone();
    assert_eq!(revision::current(&two, &known), Some((hash, Write::Nothing)));
    // `kubectl rollout undo`.
    let Some((hash, Write::Renumber(again))) = revision::current(&one, &known) else { panic!("no rollback") };
    assert_eq!((again.revision, again.metadata.name.as_ref()), (3, first.metadata.name.as_ref()));
    assert_eq!(hash, first.metadata.labels.as_ref().unwrap()[HASH]);
    let mut collided = one.clone();
    collided.status = parse(
        json!({"collisionCount": 1, "currentNumberScheduled": 0, "desiredNumberScheduled": 0, "numberMisscheduled": 0, "numberReady": 0}),
    );
    assert_ne!(made(&collided, &[]).metadata.name, first.metadata.name);
}

fn revision_history_limit() {
    let mut known: Vec<ControllerRevision> = Vec::new();
    for n in 0..6 {
        known.push(made(&set(&format!("v{n}"), json!(null)), &known));
    }
    let hash = |n: usize| known[n].metadata.labels.as_ref().unwrap()[HASH].clone();
    let mut set = set("v5", json!(null));
    set.spec.as_mut().unwrap().revision_history_limit = Some(2);
    let gone = revision::forgotten(&set, &known, &hash(5), &[hash(0)]);
    let gone: Vec<i64> = gone.iter().map(|one| one.revision).collect();
    assert_eq!(gone, [2, 3], "the first is in use, two are remembered");
}

fn status() {
    let mut all = nodes(4);
    all.push(Arc::new(node("n4", json!({}), json!([{"key": "k", "effect": "NoSchedule"}]))));
    let pods = [on(0, "new", true), on(1, "old", true), on(2, "new", false), on(4, "old", true)];
    let set = set("v2", rolling(json!(0), json!(1)));
    let seen = Seen { set: &set, nodes: &all, pods: &pods, hash: "new", back_off: &|_| None, now: at(0) };
    assert_eq!(
        serde_json::to_value(seen.status().0).unwrap(),
        json!({
            "desiredNumberScheduled": 4, "currentNumberScheduled": 3, "numberMisscheduled": 1, "numberReady": 2,
            "numberAvailable": 2, "numberUnavailable": 2, "updatedNumberScheduled": 2, "observedGeneration": 2,
        })
    );
}

fn min_ready_seconds() {
    let mut set = set("v2", rolling(json!(0), json!(1)));
    set.spec.as_mut().unwrap().min_ready_seconds = Some(10);
    let pods = [on(0, "new", true), on(1, "old", true)];
    let at_second = |second| {
        let seen = Seen { set: &set, nodes: &nodes(2), pods: &pods, hash: "new", back_off: &|_| None, now: at(second) };
        (seen.plan().delete.len(), seen.status().1)
    };
    assert_eq!(at_second(4).1, Some(Duration::from_secs(6)));
    assert_eq!(at_second(10), (1, None));
    // With a surge it is the new one that is waited for, though the old one is long available.
    let mut set = set.clone();
    set.spec.as_mut().unwrap().update_strategy = parse(rolling(json!(1), json!(0)));
    let mut new = (*on(0, "new", false)).clone();
    new.metadata.creation_timestamp = Some(Time(at(20)));
    set_ready(new.status.get_or_insert_default(), true, at(20));
    let mut old = (*on(0, "old", true)).clone();
    old.metadata.creation_timestamp = Some(Time(at(0)));
    let pods = [Arc::new(old), Arc::new(new)];
    let at_second = |second| {
        let seen = Seen { set: &set, nodes: &nodes(1), pods: &pods, hash: "new", back_off: &|_| None, now: at(second) };
        let (status, again) = seen.status();
        assert_eq!(status.updated_number_scheduled, None, "there is still an old one");
        (seen.plan().delete.len(), again)
    };
    assert_eq!(at_second(24), (0, Some(Duration::from_secs(6))));
    assert_eq!(at_second(30), (1, None));
}
