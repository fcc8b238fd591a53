use serde_json::{Value, json};

use super::*;

/// Edges `a`, `b`, … with these numbers of wanted replicas and these statuses.
fn edges(wanted: &[i64], statuses: &[Value]) -> Vec<(String, Value, Value)> {
    let name = |n: usize| format!("root:{}", char::from(b'a' + n as u8));
    let of = |(n, (wanted, status)): (usize, (&i64, &Value))| {
        (name(n), json!({"spec": {"replicas": wanted}}), status.clone())
    };
    wanted.iter().zip(statuses).enumerate().map(of).collect()
}

fn reported(edges: &[(String, Value, Value)]) -> Vec<Reported<'_>> {
    edges
        .iter()
        .map(|(edge, object, status)| {
            let status = Some(status).filter(|status| !status.is_null());
            Reported { edge, object, status, current: Some(true) }
        })
        .collect()
}

fn of(collection: &str, wanted: &[i64], statuses: &[Value]) -> Value {
    let edges = edges(wanted, statuses);
    aggregate(collection, &json!({"spec": {"replicas": 2}}), &reported(&edges))
}

fn condition<'a>(status: &'a Value, kind: &str) -> &'a Value {
    status["conditions"].as_array().unwrap().iter().find(|one| one["type"] == kind).unwrap_or(&Value::Null)
}

fn deployment(replicas: i64, updated: i64, available: i64) -> Value {
    json!({"replicas": replicas, "updatedReplicas": updated, "readyReplicas": available, "availableReplicas": available,
        "unavailableReplicas": replicas - available, "observedGeneration": 3})
}

/// As `kubectl rollout status` decides it.
fn is_rolled_out(status: &Value, wanted: i64) -> bool {
    let of = |field: &str| status[field].as_i64().unwrap_or_default();
    of("updatedReplicas") >= wanted
        && of("replicas") <= of("updatedReplicas")
        && of("availableReplicas") >= of("updatedReplicas")
}

#[test]
fn a_deployment_is_done_when_it_is_done_on_every_edge() {
    for (wanted, statuses, done) in [
        (vec![2, 2], vec![deployment(2, 2, 2), deployment(2, 2, 2)], true),
        (vec![2, 2], vec![deployment(2, 2, 2), deployment(2, 2, 1)], false),
        (vec![2, 2], vec![deployment(2, 2, 2), Value::Null], false),
        (vec![2, 2], vec![deployment(2, 2, 2), deployment(3, 2, 2)], false),
        (vec![2, 2], vec![deployment(2, 0, 2), deployment(2, 2, 2)], false),
        // Customized: each edge has what it wants.
        (vec![2, 5], vec![deployment(2, 2, 2), deployment(5, 5, 5)], true),
        (vec![2, 1], vec![deployment(2, 2, 2), deployment(1, 1, 1)], true),
        (vec![2, 0], vec![deployment(2, 2, 2), deployment(0, 0, 0)], true),
        (vec![2, 5], vec![deployment(2, 2, 2), deployment(5, 5, 4)], false),
        (vec![2, 5], vec![deployment(2, 2, 2), deployment(6, 5, 5)], false),
    ] {
        let status = of("apps/deployments", &wanted, &statuses);
        assert_eq!(is_rolled_out(&status, 2), done, "{wanted:?} {statuses:?} {status}");
        let number = |field: &str| status[field].as_i64().unwrap_or_default();
        assert!(number("availableReplicas") <= number("readyReplicas"), "{status}");
        assert!(number("readyReplicas") <= number("replicas"), "{status}");
    }
    let status = of("apps/deployments", &[2, 2], &[deployment(2, 2, 1), deployment(2, 2, 2)]);
    assert_eq!((&status["readyReplicas"], &status["unavailableReplicas"]), (&json!(1), &json!(1)));
    assert_eq!(status["observedGeneration"], 3);
}

#[test]
fn conditions_hold_if_they_hold_everywhere_and_troubles_if_they_hold_anywhere() {
    let with = |all: Value| json!({"conditions": all});
    let available = |status: &str, at: &str| {
        let (reason, message) = ("R", "m");
        json!({"type": "Available", "status": status, "reason": reason, "message": message, "lastTransitionTime": at})
    };
    let progressing = |reason: &str| json!({"type": "Progressing", "status": "True", "reason": reason});
    let failure = |status: &str| json!({"type": "ReplicaFailure", "status": status, "message": "no room"});
    let two = |a: Value, b: Value| of("apps/deployments", &[2, 2], &[a, b]);

    let both = two(with(json!([available("True", "t1")])), with(json!([available("True", "t2")])));
    assert_eq!(
        (&condition(&both, "Available")["status"], &condition(&both, "Available")["message"]),
        (&json!("True"), &json!("m"))
    );
    assert_eq!(condition(&both, "Available")["lastTransitionTime"], "t2");
    let one = two(with(json!([available("True", "t1")])), with(json!([available("False", "t0")])));
    assert_eq!(condition(&one, "Available")["status"], "False");
    assert_eq!(condition(&one, "Available")["message"], "on root:b: m");
    let silent = two(with(json!([available("True", "t1")])), Value::Null);
    assert_eq!(condition(&silent, "Available")["status"], "Unknown");
    assert_eq!(condition(&silent, "Available")["message"], "1 of 2 edges have not reported it");

    let under_way =
        two(with(json!([progressing("NewReplicaSetAvailable")])), with(json!([progressing("ReplicaSetUpdated")])));
    assert_eq!(condition(&under_way, "Progressing")["reason"], "ReplicaSetUpdated");
    let failed = two(with(json!([failure("True")])), with(json!([])));
    assert_eq!(condition(&failed, "ReplicaFailure")["message"], "on root:a: no room");
    let well = two(with(json!([failure("False")])), with(json!([])));
    assert_eq!(condition(&well, "ReplicaFailure")["status"], "False");
}

#[test]
fn a_job_completes_when_all_complete_and_fails_when_one_fails() {
    let done = |kind: &str, before: &str, at: &str| {
        json!({"startTime": "2026-01-01T00:00:01Z", "completionTime": at, "succeeded": 1, "conditions": [
            {"type": before, "status": "True", "lastTransitionTime": at},
            {"type": kind, "status": "True", "lastTransitionTime": at, "message": "because"}]})
    };
    let complete = |at: &str| done("Complete", "SuccessCriteriaMet", at);
    let running = json!({"active": 1, "ready": 1, "startTime": "2026-01-01T00:00:00Z"});
    let failed = json!({"startTime": "2026-01-01T00:00:01Z", "failed": 3, "conditions": [
        {"type": "FailureTarget", "status": "True"}, {"type": "Failed", "status": "True", "message": "because"}]});

    let both = of("batch/jobs", &[1, 1], &[complete("2026-01-01T00:00:05Z"), complete("2026-01-01T00:00:09Z")]);
    assert_eq!(condition(&both, "Complete")["status"], "True");
    assert_eq!((&both["completionTime"], &both["succeeded"]), (&json!("2026-01-01T00:00:09Z"), &json!(1)));
    let one = of("batch/jobs", &[1, 1], &[complete("2026-01-01T00:00:05Z"), running.clone()]);
    assert!(one.get("conditions").is_none() && one.get("completionTime").is_none(), "{one}");
    assert_eq!((&one["active"], one.get("succeeded")), (&json!(1), None));
    assert_eq!(one["startTime"], "2026-01-01T00:00:00Z");
    let silent = of("batch/jobs", &[1, 1], &[complete("2026-01-01T00:00:05Z"), Value::Null]);
    assert!(silent.get("conditions").is_none(), "{silent}");
    for other in [complete("2026-01-01T00:00:05Z"), running, Value::Null] {
        let status = of("batch/jobs", &[1, 1], &[other, failed.clone()]);
        assert_eq!(condition(&status, "Failed")["message"], "on root:b: because");
        assert_eq!(condition(&status, "FailureTarget")["status"], "True");
        assert!(condition(&status, "Complete").is_null() && condition(&status, "SuccessCriteriaMet").is_null());
        assert!(status.get("active").is_none(), "nothing is active in a finished Job: {status}");
    }
}

#[test]
fn a_pod_is_where_the_slowest_edge_is() {
    let pod = |phase: &str| json!({"phase": phase, "podIP": "10.0.0.1", "containerStatuses": [{"name": phase}]});
    for (phases, want) in [
        (["Succeeded", "Succeeded"], "Succeeded"),
        (["Succeeded", "Running"], "Running"),
        (["Running", "Pending"], "Pending"),
        (["Succeeded", "Failed"], "Failed"),
    ] {
        let status = of("core/pods", &[1, 1], &phases.map(pod));
        assert_eq!((&status["phase"], &status["containerStatuses"][0]["name"]), (&json!(want), &json!(want)));
        assert!(status.get("podIP").is_none(), "one edge's address is not the object's");
    }
    let silent = of("core/pods", &[1, 1], &[pod("Succeeded"), Value::Null]);
    assert_eq!(silent, json!({"phase": "Pending"}));
}

#[test]
fn sets_and_other_kinds() {
    let set = |ready: i64, current: &str, update: &str| {
        json!({"replicas": 2, "readyReplicas": ready, "updatedReplicas": ready, "currentReplicas": 2,
            "currentRevision": current, "updateRevision": update})
    };
    let status = of("apps/statefulsets", &[2, 2], &[set(2, "x", "x"), set(1, "x", "y")]);
    assert_eq!((&status["readyReplicas"], &status["updateRevision"]), (&json!(1), &json!("y")));
    assert_eq!(status["currentRevision"], "x");
    let status = of("apps/statefulsets", &[2, 2], &[set(2, "x", "x"), set(2, "z", "z")]);
    assert_eq!((&status["currentRevision"], &status["updateRevision"]), (&json!("x"), &json!("x")));

    let daemons = |desired: i64, ready: i64| json!({"desiredNumberScheduled": desired, "numberReady": ready});
    let status = of("apps/daemonsets", &[1, 1], &[daemons(3, 3), daemons(2, 1)]);
    assert_eq!((&status["desiredNumberScheduled"], &status["numberReady"]), (&json!(5), &json!(4)));

    let ingress = |ip: &str| json!({"loadBalancer": {"ingress": [{"ip": ip}]}});
    let status = of("core/services", &[1, 1], &[ingress("a"), ingress("b")]);
    assert_eq!(status["loadBalancer"]["ingress"], json!([{"ip": "a"}, {"ip": "b"}]));
    assert_eq!(of("core/services", &[1, 1], &[ingress("a"), Value::Null])["loadBalancer"], json!({}));
    let bound = |phase: &str| json!({"phase": phase, "capacity": {"storage": "1Gi"}});
    assert_eq!(of("core/persistentvolumeclaims", &[1, 1], &[bound("Bound"), bound("Bound")])["phase"], "Bound");
    assert_eq!(of("core/persistentvolumeclaims", &[1, 1], &[bound("Bound"), Value::Null])["phase"], "Pending");

    let gauge = |value: i64, on: bool, site: &str| json!({"value": value, "on": on, "site": site, "same": ["x"]});
    let status = of("example.com/gauges", &[1, 1], &[gauge(7, true, "a"), gauge(5, false, "b")]);
    assert_eq!(status, json!({"value": 5, "on": false, "same": ["x"]}));
    assert_eq!(of("example.com/gauges", &[1, 1], &[gauge(7, true, "a"), Value::Null]), json!({}));
    let times = |at: &str| json!({"lastScheduleTime": at, "lastSuccessfulTime": at, "active": [{"name": "j"}]});
    let status = of("batch/cronjobs", &[1, 1], &[times("t1"), times("t2")]);
    assert_eq!((&status["lastScheduleTime"], &status["lastSuccessfulTime"]), (&json!("t2"), &json!("t1")));
    assert_eq!(status["active"].as_array().map(Vec::len), Some(2));
}

#[test]
fn whatever_edges_say_is_borne() {
    let odd = [
        json!(7),
        json!([]),
        json!({"conditions": 7}),
        json!({"conditions": [1, {"type": 2}]}),
        json!({"replicas": -4}),
        json!({"replicas": i64::MAX, "updatedReplicas": i64::MAX, "desiredNumberScheduled": i64::MAX}),
    ];
    for collection in [
        "apps/deployments",
        "apps/statefulsets",
        "apps/daemonsets",
        "batch/jobs",
        "batch/cronjobs",
        "core/pods",
        "core/services",
        "core/persistentvolumeclaims",
        "example.com/gauges",
    ] {
        for one in &odd {
            for other in &odd {
                assert!(of(collection, &[i64::MAX, 0], &[one.clone(), other.clone()]).is_object());
            }
        }
    }
}

#[test]
fn edges_that_are_ready_are_counted() {
    let edges = edges(&[2, 2, 2], &[deployment(2, 2, 2), deployment(2, 2, 1), Value::Null]);
    let mut all = reported(&edges);
    assert_eq!(ready("apps/deployments", &all), 1);
    all[0].current = Some(false);
    assert_eq!(ready("apps/deployments", &all), 0, "it is about an earlier generation");
}
