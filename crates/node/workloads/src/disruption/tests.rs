use std::{sync::Arc, time::Duration};

use k8s_openapi::{
    api::{core::v1::Pod, policy::v1::PodDisruptionBudget},
    apimachinery::pkg::apis::meta::v1::Time,
};
use serde_json::{Value, json};

use super::{
    decide::{Decision, Expected, decide, unmanaged},
    selects,
};
use crate::{
    world::Case,
    world::{at, parse, set_ready},
};

pub const CASES: &[Case] = &[
    ("disruption/min-available", min_available),
    ("disruption/max-unavailable", max_unavailable),
    ("disruption/unknown-size", unknown_size),
    ("disruption/healthy", healthy),
    ("disruption/disrupted-pods", disrupted_pods),
    ("disruption/condition", condition),
    ("disruption/selector", selector),
    ("disruption/unmanaged-pods", unmanaged_pods),
];

pub fn budget(spec: Value) -> PodDisruptionBudget {
    let mut spec = spec;
    if spec["selector"].is_null() {
        spec["selector"] = json!({"matchLabels": {"app": "web"}});
    }
    parse(json!({"metadata": {"name": "b", "namespace": "ns", "generation": 3}, "spec": spec}))
}

pub fn pods(ready: usize, unready: usize) -> Vec<Arc<Pod>> {
    let make = |n: usize| {
        let mut pod: Pod =
            parse(json!({"metadata": {"name": format!("p{n}"), "namespace": "ns", "labels": {"app": "web"}}}));
        set_ready(pod.status.get_or_insert_default(), n < ready, at(0));
        Arc::new(pod)
    };
    (0..ready + unready).map(make).collect()
}

fn counts(decision: &Decision) -> (i32, i32, i32, i32) {
    let status = &decision.status;
    (
        status.expected_pods.unwrap(),
        status.desired_healthy.unwrap(),
        status.current_healthy.unwrap(),
        status.disruptions_allowed.unwrap(),
    )
}

fn min_available() {
    for (least, ready, unready, expected, wanted) in [
        (json!(2), 3, 0, 3, (3, 2, 3, 1)),
        (json!(2), 2, 1, 3, (3, 2, 2, 0)),
        (json!(2), 1, 0, 3, (1, 2, 1, 0)),
        (json!("50%"), 5, 0, 5, (5, 3, 5, 2)),
        (json!("100%"), 3, 0, 3, (3, 3, 3, 0)),
        (json!("0%"), 3, 0, 3, (3, 0, 3, 3)),
        (json!(0), 0, 0, 0, (0, 0, 0, 0)),
    ] {
        let got =
            decide(&budget(json!({"minAvailable": least})), &pods(ready, unready), &Expected::Count(expected), at(0));
        assert_eq!(counts(&got), wanted, "{least} of {ready}+{unready}");
    }
}

fn max_unavailable() {
    for (most, ready, unready, expected, wanted) in [
        (json!(1), 3, 0, 3, (3, 2, 3, 1)),
        (json!(1), 2, 0, 3, (3, 2, 2, 0)),
        (json!(1), 4, 0, 3, (3, 2, 4, 2)),
        (json!("30%"), 10, 0, 10, (10, 7, 10, 3)),
        (json!("30%"), 3, 0, 3, (3, 2, 3, 1)),
        (json!(5), 3, 0, 3, (3, 0, 3, 3)),
        (json!(0), 3, 0, 3, (3, 3, 3, 0)),
    ] {
        let got =
            decide(&budget(json!({"maxUnavailable": most})), &pods(ready, unready), &Expected::Count(expected), at(0));
        assert_eq!(counts(&got), wanted, "{most} of {expected}");
    }
}

fn unknown_size() {
    let unknown = Expected::Unknown("whose".into());
    let got = decide(&budget(json!({"maxUnavailable": 1})), &pods(3, 0), &unknown, at(0));
    assert_eq!(got.status.disruptions_allowed, Some(0));
    let condition = &got.status.conditions.as_ref().unwrap()[0];
    assert_eq!((condition.reason.as_str(), condition.status.as_str()), ("SyncFailed", "False"));
    assert_eq!(got.failure.as_deref(), Some("whose"));
    // A number needs nobody's size.
    let got = decide(&budget(json!({"minAvailable": 1})), &pods(3, 0), &unknown, at(0));
    assert_eq!(counts(&got), (3, 1, 3, 2));
}

fn healthy() {
    let mut all = pods(3, 1);
    let mut going = (*all[0]).clone();
    going.metadata.deletion_timestamp = Some(Time(at(0)));
    all[0] = Arc::new(going);
    let got = decide(&budget(json!({"minAvailable": 1})), &all, &Expected::Count(4), at(0));
    assert_eq!(counts(&got), (4, 1, 2, 1), "neither who is not ready nor who is going");
}

fn disrupted_pods() {
    let mut budget = budget(json!({"minAvailable": 1}));
    budget.status = parse(json!({
        "disruptedPods": {"p0": Time(at(0)), "gone": Time(at(0))},
        "currentHealthy": 3, "desiredHealthy": 1, "disruptionsAllowed": 1, "expectedPods": 3,
    }));
    let got = decide(&budget, &pods(3, 0), &Expected::Count(3), at(30));
    assert_eq!(counts(&got), (3, 1, 2, 1), "who was evicted and is still shown does not count");
    let kept: Vec<&String> = got.status.disrupted_pods.as_ref().unwrap().keys().collect();
    assert_eq!(kept, ["p0"]);
    assert_eq!(got.again, Some(Duration::from_secs(90)));
    // Two minutes later it is still there: it was not evicted after all.
    let got = decide(&budget, &pods(3, 0), &Expected::Count(3), at(120));
    assert_eq!((counts(&got), got.stayed, got.again), ((3, 1, 3, 2), vec!["p0".to_owned()], None));
}

fn condition() {
    let mut budget = budget(json!({"minAvailable": 2}));
    let of = |decision: &Decision| {
        let condition = decision.status.conditions.as_ref().unwrap()[0].clone();
        (condition.status, condition.reason, condition.last_transition_time.0, condition.observed_generation)
    };
    let got = decide(&budget, &pods(3, 0), &Expected::Count(3), at(0));
    assert_eq!(of(&got), ("True".into(), "SufficientPods".into(), at(0), Some(3)));
    assert_eq!(got.status.observed_generation, Some(3));
    budget.status = Some(got.status);
    let got = decide(&budget, &pods(3, 0), &Expected::Count(3), at(50));
    assert_eq!(got.status, budget.status.clone().unwrap(), "nothing new");
    let got = decide(&budget, &pods(2, 0), &Expected::Count(3), at(60));
    assert_eq!(of(&got), ("False".into(), "InsufficientPods".into(), at(60), Some(3)));
}

fn selector() {
    let pod = &pods(1, 0)[0];
    assert!(selects(&budget(json!({})), pod));
    assert!(selects(&budget(json!({"selector": {}})), pod), "empty is all");
    assert!(!selects(&budget(json!({"selector": {"matchLabels": {"app": "other"}}})), pod));
    let mut none = budget(json!({}));
    none.spec.as_mut().unwrap().selector = None;
    assert!(!selects(&none, pod), "none is nobody");
}

fn unmanaged_pods() {
    let told = |spec: Value| unmanaged(&budget(spec), &pods(1, 0));
    assert_eq!(told(json!({"minAvailable": 1})), None);
    assert!(told(json!({"minAvailable": "50%"})).is_some());
    let message = told(json!({"maxUnavailable": 1})).unwrap();
    let selector =
        "&LabelSelector{MatchLabels:map[string]string{app: web,},MatchExpressions:[]LabelSelectorRequirement{},}";
    assert!(message.contains(&format!("(selector: {selector}) were found to be unmanaged")), "{message}");
    assert_eq!(unmanaged(&budget(json!({"maxUnavailable": 1})), &[]), None);
}
