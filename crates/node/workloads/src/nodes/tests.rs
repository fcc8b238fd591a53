use std::{sync::Arc, time::Duration};

use k8s_openapi::{
    api::core::v1::{Node, Pod, Taint},
    apimachinery::pkg::apis::meta::v1::Time,
};
use serde_json::{Value, json};

use super::decide::{PATIENCE, decide, goes_in, ready, silent, taints};
use crate::{
    world::Case,
    world::{at, parse},
};

pub const CASES: &[Case] = &[
    ("node/taints-by-condition", taints_by_condition),
    ("node/cordon", cordon),
    ("node/keeps-foreign-taints", keeps_foreign_taints),
    ("node/no-eviction-without-an-alternative", no_eviction_without_an_alternative),
    ("node/silent", falls_silent),
    ("node/marks-pods", marks_pods),
    ("node/evicts", evicts),
    ("node/toleration-seconds", toleration_seconds),
];

fn node(conditions: &[(&str, &str)], spec: Value) -> Node {
    let conditions: Vec<Value> =
        conditions.iter().map(|(kind, value)| json!({"type": kind, "status": value})).collect();
    parse(json!({"metadata": {"name": "n"}, "spec": spec, "status": {"conditions": conditions}}))
}

fn names(taints: Option<Vec<Taint>>) -> Option<Vec<String>> {
    Some(
        taints?
            .iter()
            .map(|taint| format!("{}:{}", taint.key.trim_start_matches("node.kubernetes.io/"), taint.effect))
            .collect(),
    )
}

fn taints_by_condition() {
    for (conditions, expected) in [
        (vec![("Ready", "True")], None),
        (vec![("Ready", "False")], Some(vec!["not-ready:NoSchedule", "not-ready:NoExecute"])),
        (vec![("Ready", "Unknown")], Some(vec!["unreachable:NoSchedule", "unreachable:NoExecute"])),
        (vec![], Some(vec!["not-ready:NoSchedule", "not-ready:NoExecute"])),
        (vec![("Ready", "True"), ("MemoryPressure", "True")], Some(vec!["memory-pressure:NoSchedule"])),
        (vec![("Ready", "True"), ("DiskPressure", "True")], Some(vec!["disk-pressure:NoSchedule"])),
        (vec![("Ready", "True"), ("PIDPressure", "True")], Some(vec!["pid-pressure:NoSchedule"])),
        (vec![("Ready", "True"), ("NetworkUnavailable", "True")], Some(vec!["network-unavailable:NoSchedule"])),
        (vec![("Ready", "True"), ("MemoryPressure", "Unknown")], None),
    ] {
        let got = names(taints(&node(&conditions, json!({})), true, at(0)));
        let expected = expected.map(|names| names.into_iter().map(str::to_owned).collect());
        assert_eq!(got, expected, "{conditions:?}");
    }
    // The one that admission gives to every new node goes as soon as it is ready.
    let new = json!({"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]});
    assert_eq!(names(taints(&node(&[("Ready", "True")], new), true, at(0))), Some(vec![]));
}

fn cordon() {
    let cordoned = node(&[("Ready", "True")], json!({"unschedulable": true}));
    assert_eq!(names(taints(&cordoned, true, at(0))), Some(vec!["unschedulable:NoSchedule".to_owned()]));
}

fn keeps_foreign_taints() {
    let spec = json!({"taints": [{"key": "mine", "value": "v", "effect": "NoExecute"}, {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}]});
    assert_eq!(names(taints(&node(&[("Ready", "True")], spec), true, at(0))), Some(vec!["mine:NoExecute".to_owned()]));
}

fn no_eviction_without_an_alternative() {
    let gone = node(&[("Ready", "Unknown")], json!({}));
    assert_eq!(names(taints(&gone, false, at(0))), Some(vec!["unreachable:NoSchedule".to_owned()]));
}

fn falls_silent() {
    let conditions = silent(&node(&[("Ready", "True"), ("NetworkUnavailable", "False")], json!({})), at(7)).unwrap();
    let said: Vec<(&str, &str)> =
        conditions.iter().map(|condition| (condition.type_.as_str(), condition.status.as_str())).collect();
    assert_eq!(
        said,
        [
            ("Ready", "Unknown"),
            ("NetworkUnavailable", "False"),
            ("MemoryPressure", "Unknown"),
            ("DiskPressure", "Unknown"),
            ("PIDPressure", "Unknown"),
        ]
    );
    assert_eq!(conditions[0].reason.as_deref(), Some("NodeStatusUnknown"));
    let mut known = node(&[], json!({}));
    known.status.as_mut().unwrap().conditions = Some(conditions);
    assert_eq!((silent(&known, at(8)), ready(&known)), (None, "Unknown"));
    assert_eq!(silent(&node(&[], json!({})), at(0)).unwrap()[0].reason.as_deref(), Some("NodeStatusNeverUpdated"));
}

/// Until it is done: the write before may have failed half way.
fn marks_pods() {
    let on_it = |ready: &str| -> Arc<Pod> {
        Arc::new(parse(
            json!({"spec": {"containers": []}, "status": {"conditions": [{"type": "Ready", "status": ready}]}}),
        ))
    };
    let pods = [on_it("True"), on_it("False")];
    let spec = json!({"taints": [{"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}]});
    for (status, silent_for, count) in
        [("Unknown", PATIENCE, 1), ("Unknown", Duration::ZERO, 0), ("False", PATIENCE, 0), ("True", PATIENCE, 0)]
    {
        let kinds = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];
        let conditions: Vec<(&str, &str)> = kinds.iter().map(|kind| (*kind, status)).collect();
        let plan = decide(&node(&conditions, spec.clone()), &pods, silent_for, false, at(0));
        assert_eq!(plan.mark.len(), count, "{status} {silent_for:?}");
    }
}

fn pod(tolerations: Value) -> Pod {
    parse(json!({"spec": {"containers": [], "tolerations": tolerations}}))
}

fn taint(effect: &str) -> Taint {
    Taint { key: "k".into(), effect: effect.into(), value: None, time_added: Some(Time(at(0))) }
}

fn evicts() {
    for (tolerations, effect, expected) in [
        (json!([]), "NoExecute", Some(Duration::ZERO)),
        (json!([]), "NoSchedule", None),
        (json!([{"key": "k", "operator": "Exists"}]), "NoExecute", None),
        (json!([{"operator": "Exists"}]), "NoExecute", None),
        (json!([{"key": "k", "operator": "Exists", "effect": "NoSchedule"}]), "NoExecute", Some(Duration::ZERO)),
    ] {
        assert_eq!(goes_in(&pod(tolerations.clone()), &[taint(effect)], at(5)), expected, "{tolerations} {effect}");
    }
}

fn toleration_seconds() {
    let patient =
        |seconds: i64| json!({"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds});
    for (tolerations, now, expected) in [
        (json!([patient(300)]), 0, Some(300)),
        (json!([patient(300)]), 100, Some(200)),
        (json!([patient(300)]), 400, Some(0)),
        (json!([patient(300), patient(30)]), 0, Some(30)),
        (json!([patient(-5)]), 0, Some(0)),
    ] {
        let got = goes_in(&pod(tolerations.clone()), &[taint("NoExecute")], at(now));
        assert_eq!(got, expected.map(Duration::from_secs), "{tolerations} at {now}");
    }
    // Further away than any clock goes, with a clock that was set back.
    let left = goes_in(&pod(json!([patient(i64::MAX)])), &[taint("NoExecute")], at(-100));
    assert!(left.is_some_and(|left| left > Duration::from_secs(1 << 40)), "{left:?}");
}
