use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::{Value, json};

use super::{
    decide::Verdict,
    tests::{at, merge, node, on, pod, schedule, why, zoned},
};
use crate::world::Case;

pub const CASES: &[Case] = &[
    ("scheduler/spread", spread),
    ("scheduler/spread-who-counts", who_counts),
    ("scheduler/spread-missing-label", missing_label),
    ("scheduler/spread-min-domains", min_domains),
    ("scheduler/spread-match-label-keys", match_label_keys),
    ("scheduler/spread-node-policies", node_policies),
    ("scheduler/spread-rather", rather),
];

const NO: &str = "node(s) didn't match pod topology spread constraints";

/// A Pod of the application `web` that has to be spread.
fn web(name: &str, more: Value) -> Pod {
    let mut constraint = json!({
        "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    });
    merge(&mut constraint, more);
    pod(name, json!({"metadata": {"labels": {"app": "web"}}, "spec": {"topologySpreadConstraints": [constraint]}}))
}

fn zone(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Node(name) if name == "c" => "y",
        Verdict::Node(_) => "x",
        _ => "none",
    }
}

fn none(count: usize, reason: &str) -> Verdict {
    why(&format!("0/{count} nodes are available: {reason}."))
}

fn spread() {
    let pods: Vec<Pod> = (0..4).map(|number| web(&number.to_string(), json!({}))).collect();
    let verdicts = schedule(&zoned(), &[], &pods);
    let zones: Vec<&str> = verdicts.iter().map(zone).collect();
    assert_eq!(zones.iter().filter(|zone| **zone == "x").count(), 2, "{zones:?}");
    assert_eq!(zones.iter().filter(|zone| **zone == "y").count(), 2, "{zones:?}");
    // With the other zone closed it waits rather than crowd this one.
    let there = [on("a", web("1", json!({})))];
    let mut nodes = zoned();
    nodes[2].spec.as_mut().unwrap().unschedulable = Some(true);
    let expected = none(3, &format!("1 node(s) were unschedulable, 2 {NO}"));
    assert_eq!(schedule(&nodes, &there, &[web("2", json!({}))]), [expected]);
    assert_eq!(zone(&schedule(&nodes, &there, &[web("2", json!({"maxSkew": 2}))])[0]), "x");
}

fn who_counts() {
    // Terminating ones, those of other namespaces and those that are not selected do not.
    for other in [
        json!({"metadata": {"labels": {"app": "web"}, "deletionTimestamp": "2026-01-01T00:00:00Z"}}),
        json!({"metadata": {"labels": {"app": "web"}, "namespace": "other"}}),
        json!({"metadata": {"labels": {"app": "db"}}}),
    ] {
        let there = [on("a", pod("1", other.clone())), on("a", pod("2", other.clone()))];
        let only = &zoned()[..2];
        assert_eq!(zone(&schedule(only, &there, &[web("3", json!({}))])[0]), "x", "{other}");
    }
    // One that is not selected itself makes nothing worse.
    let there = [on("a", web("1", json!({})))];
    let db = web("db", json!({"labelSelector": {"matchLabels": {"app": "web"}}}));
    let mut db = db;
    db.metadata.labels = Some([("app".to_owned(), "db".to_owned())].into());
    db.spec.as_mut().unwrap().node_selector = Some([("zone".to_owned(), "x".to_owned())].into());
    assert_eq!(zone(&schedule(&zoned(), &there, &[db])[0]), "x");
}

fn missing_label() {
    let nodes = [node("a", json!({}))];
    let expected = none(1, &format!("1 {NO} (missing required label)"));
    assert_eq!(schedule(&nodes, &[], &[web("1", json!({}))]), [expected]);
}

fn min_domains() {
    let there = [on("a", web("1", json!({})))];
    let only = &zoned()[..2];
    assert_eq!(zone(&schedule(only, &there, &[web("2", json!({"minDomains": 1}))])[0]), "x");
    let expected = none(2, &format!("2 {NO}"));
    assert_eq!(schedule(only, &there, &[web("2", json!({"minDomains": 2}))]), [expected]);
}

fn match_label_keys() {
    let versioned = |name: &str, version: &str| {
        let mut pod = web(name, json!({"matchLabelKeys": ["version", "not-there"]}));
        pod.metadata.labels.as_mut().unwrap().insert("version".into(), version.into());
        pod
    };
    let mut nodes = zoned();
    nodes[2].spec.as_mut().unwrap().unschedulable = Some(true);
    let there = [on("a", versioned("1", "1"))];
    let expected = none(3, &format!("1 node(s) were unschedulable, 2 {NO}"));
    assert_eq!(schedule(&nodes, &there, &[versioned("2", "1")]), [expected]);
    assert_eq!(zone(&schedule(&nodes, &there, &[versioned("2", "2")])[0]), "x");
}

fn node_policies() {
    let there = [on("a", web("1", json!({})))];
    let in_x = |more: Value| {
        let mut pod = web("2", more);
        pod.spec.as_mut().unwrap().node_selector = Some([("zone".to_owned(), "x".to_owned())].into());
        pod
    };
    // A zone that it cannot go to does not count, unless it is said to.
    assert_eq!(zone(&schedule(&zoned(), &there, &[in_x(json!({}))])[0]), "x");
    let got = schedule(&zoned(), &there, &[in_x(json!({"nodeAffinityPolicy": "Ignore"}))]);
    assert_eq!(zone(&got[0]), "none");
    let mut nodes: [Node; 3] = zoned();
    nodes[2].spec.as_mut().unwrap().taints =
        Some(vec![crate::world::parse(json!({"key": "k", "effect": "NoSchedule"}))]);
    assert_eq!(zone(&schedule(&nodes, &there, &[web("2", json!({}))])[0]), "none");
    assert_eq!(zone(&schedule(&nodes, &there, &[web("2", json!({"nodeTaintsPolicy": "Honor"}))])[0]), "x");
}

fn rather() {
    let soft = |name: &str| web(name, json!({"whenUnsatisfiable": "ScheduleAnyway"}));
    let there = [on("a", soft("1")), on("b", soft("2"))];
    assert_eq!(schedule(&zoned(), &there, &[soft("3")]), [at("c")]);
    // And where there is no other, there.
    assert_eq!(zone(&schedule(&zoned()[..2], &there, &[soft("3")])[0]), "x");
    // A node without the label comes last.
    let nodes = [node("a", json!({})), node("b", json!({"metadata": {"labels": {"zone": "x"}}}))];
    assert_eq!(schedule(&nodes, &[], &[soft("3")]), [at("b")]);
}
