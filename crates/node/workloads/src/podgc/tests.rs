use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::decide::{Missing, QUARANTINE, Why, decide};
use crate::world::{Case, parse};

pub const CASES: &[Case] = &[
    ("podgc/node-gone", node_gone),
    ("podgc/node-comes-back", node_comes_back),
    ("podgc/ended", ended),
    ("podgc/never-scheduled", never_scheduled),
    ("podgc/out-of-service", out_of_service),
    ("podgc/finalizers", finalizers),
];

pub fn pod(name: &str, node: &str, phase: &str) -> Pod {
    parse(
        json!({"metadata": {"name": name, "namespace": "ns", "uid": name}, "spec": {"nodeName": node, "containers": []},
        "status": {"phase": phase}}),
    )
}

fn going(mut pod: Pod, grace: i64) -> Pod {
    pod.metadata.deletion_timestamp = parse(json!("2026-01-01T00:00:00Z"));
    pod.metadata.deletion_grace_period_seconds = Some(grace);
    pod
}

pub fn node(name: &str, ready: &str, taints: Value) -> Node {
    parse(
        json!({"metadata": {"name": name}, "spec": {"taints": taints}, "status": {"conditions": [{"type": "Ready", "status": ready}]}}),
    )
}

/// Who goes, and after how long to look again.
fn look(
    pods: &[Pod],
    nodes: &[Node],
    missing: &mut Missing,
    kept: usize,
    now: Instant,
) -> (Vec<(String, Why)>, Option<Duration>) {
    let pods: Vec<Arc<Pod>> = pods.iter().cloned().map(Arc::new).collect();
    let nodes: Vec<Arc<Node>> = nodes.iter().cloned().map(Arc::new).collect();
    let plan = decide(&pods, &nodes, missing, kept, now);
    let delete = plan.delete.iter().map(|(pod, why)| (pod.metadata.name.clone().unwrap(), *why));
    (delete.collect(), plan.again)
}

fn names(all: &[(&str, Why)]) -> Vec<(String, Why)> {
    all.iter().map(|(name, why)| ((*name).to_owned(), *why)).collect()
}

fn node_gone() {
    let pods = [
        pod("1", "gone", "Running"),
        pod("2", "n", "Running"),
        pod("3", "gone", "Succeeded"),
        going(pod("4", "gone", "Running"), 30),
    ];
    let nodes = [node("n", "True", json!([]))];
    let (mut missing, now) = (Missing::new(), Instant::now());
    assert_eq!(look(&pods, &nodes, &mut missing, 0, now), (vec![], Some(QUARANTINE)));
    let second = Duration::from_secs(1);
    assert_eq!(look(&pods, &nodes, &mut missing, 0, now + QUARANTINE - second), (vec![], Some(second)));
    let all = [("1", Why::NodeGone), ("3", Why::NodeGone), ("4", Why::NodeGone)];
    assert_eq!(look(&pods, &nodes, &mut missing, 0, now + QUARANTINE), (names(&all), None));
    assert_eq!(look(&pods[1..2], &nodes, &mut missing, 0, now + QUARANTINE), (vec![], None));
    assert!(missing.is_empty(), "nobody is there any more");
}

fn node_comes_back() {
    let pods = [pod("1", "n", "Running")];
    let (mut missing, now) = (Missing::new(), Instant::now());
    look(&pods, &[], &mut missing, 0, now);
    look(&pods, &[node("n", "Unknown", json!([]))], &mut missing, 0, now + QUARANTINE / 2);
    // It begins anew.
    assert_eq!(look(&pods, &[], &mut missing, 0, now + QUARANTINE), (vec![], Some(QUARANTINE)));
}

fn ended() {
    let at = |name: &str, phase: &str, second: u32| {
        let mut pod = pod(name, "n", phase);
        pod.metadata.creation_timestamp = parse(json!(format!("2026-01-01T00:00:{second:02}Z")));
        pod
    };
    let mut evicted = at("evicted", "Failed", 9);
    evicted.status.as_mut().unwrap().reason = Some("Evicted".into());
    let pods = [
        at("new", "Succeeded", 5),
        at("old", "Failed", 1),
        at("runs", "Running", 0),
        evicted,
        at("middle", "Succeeded", 3),
    ];
    let nodes = [node("n", "True", json!([]))];
    let (mut missing, now) = (Missing::new(), Instant::now());
    let mut kept = |kept: usize| look(&pods, &nodes, &mut missing, kept, now).0;
    assert_eq!(kept(4), []);
    assert_eq!(kept(2), names(&[("evicted", Why::Ended), ("old", Why::Ended)]));
    assert_eq!(kept(1), names(&[("evicted", Why::Ended), ("old", Why::Ended), ("middle", Why::Ended)]));
    assert_eq!(kept(0), [], "all are kept");
}

fn never_scheduled() {
    let pods = [going(pod("1", "", "Pending"), 0), pod("2", "", "Pending"), going(pod("3", "n", "Running"), 0)];
    let nodes = [node("n", "True", json!([]))];
    let got = look(&pods, &nodes, &mut Missing::new(), 0, Instant::now());
    assert_eq!(got, (names(&[("1", Why::NeverScheduled)]), None));
}

fn out_of_service() {
    let taint = json!([{"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}]);
    let pods = [going(pod("1", "n", "Running"), 30), pod("2", "n", "Running")];
    for (ready, taints, goes) in
        [("False", &taint, true), ("Unknown", &taint, true), ("True", &taint, false), ("False", &json!([]), false)]
    {
        let got = look(&pods, &[node("n", ready, taints.clone())], &mut Missing::new(), 0, Instant::now()).0;
        let expected = if goes { names(&[("1", Why::OutOfService)]) } else { vec![] };
        assert_eq!(got, expected, "{ready} {taints}");
    }
}

fn finalizers() {
    // What somebody else's finalizer keeps is not deleted again and again.
    let pods = [going(pod("1", "", "Failed"), 0), going(pod("2", "gone", "Succeeded"), 0)];
    let (mut missing, now) = (Missing::new(), Instant::now());
    look(&pods, &[], &mut missing, 0, now);
    assert_eq!(look(&pods, &[], &mut missing, 0, now + QUARANTINE).0, []);
}
