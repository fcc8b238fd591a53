use std::{sync::Arc, time::Duration};

use k8s_openapi::{
    api::{apps::v1::ReplicaSet, core::v1::Pod},
    apimachinery::pkg::apis::meta::v1::Time,
};
use serde_json::json;

use super::decide::{BURST, Change, Failure, manage, status};
use crate::{
    pod,
    world::Case,
    world::{at, parse, set_ready},
};
use controllers::cache::Key;

pub const CASES: &[Case] = &[
    ("replicaset/creates-missing", creates_missing),
    ("replicaset/deletes-surplus", deletes_surplus),
    ("replicaset/replaces-finished", replaces_finished),
    ("replicaset/ignores-terminating", ignores_terminating),
    ("replicaset/burst", at_most_a_burst),
    ("replicaset/least-useful-first", least_useful_first),
    ("replicaset/crowded-node-first", crowded_node_first),
    ("replicaset/pod-of-template", pod_of_template),
    ("replicaset/status-counts", status_counts),
    ("replicaset/min-ready-seconds", min_ready_seconds),
    ("replicaset/failure-condition", failure_condition),
];

pub fn set(replicas: i32) -> ReplicaSet {
    parse(json!({
        "metadata": {"name": "web", "namespace": "ns", "uid": "set", "generation": 4},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web", "tier": "front"}, "annotations": {"note": "n"}},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            },
        },
    }))
}

/// A Pod of the set, on a node, running; ready since a second if it is.
fn running(name: &str, node: &str, ready: Option<i64>) -> Pod {
    let mut pod = pod::from_template(set(1).spec.unwrap().template.as_ref().unwrap(), &set(1));
    pod.metadata.name = Some(name.into());
    pod.metadata.uid = Some(name.into());
    pod.spec.as_mut().unwrap().node_name = Some(node.into());
    let status = pod.status.get_or_insert_default();
    status.phase = Some("Running".into());
    if let Some(second) = ready {
        set_ready(status, true, at(second));
    }
    pod
}

fn ended(name: &str, phase: &str) -> Pod {
    let mut pod = running(name, "n", None);
    pod.status.as_mut().unwrap().phase = Some(phase.into());
    pod
}

fn terminating(name: &str) -> Pod {
    let mut pod = running(name, "n", Some(0));
    pod.metadata.deletion_timestamp = Some(Time(at(0)));
    pod
}

fn arcs(pods: Vec<Pod>) -> Vec<Arc<Pod>> {
    pods.into_iter().map(Arc::new).collect()
}

fn deleted(change: Change) -> Vec<String> {
    let Change::Delete(pods) = change else { panic!("{change:?} deletes nothing") };
    pods.iter().map(|pod| Key::of(&**pod).name).collect()
}

fn creates_missing() {
    let pods = arcs(vec![running("a", "n", None)]);
    assert_eq!(manage(&set(3), &pods, &pods, at(0)), Change::Create(2));
    assert_eq!(manage(&set(1), &pods, &pods, at(0)), Change::Nothing);
}

fn deletes_surplus() {
    let pods = arcs(vec![running("a", "n", None), running("b", "n", None), running("c", "n", None)]);
    assert_eq!(deleted(manage(&set(1), &pods, &pods, at(0))).len(), 2);
    assert_eq!(deleted(manage(&set(0), &pods, &pods, at(0))).len(), 3);
}

fn replaces_finished() {
    let pods = arcs(vec![running("a", "n", None), ended("b", "Failed"), ended("c", "Succeeded")]);
    assert_eq!(manage(&set(3), &pods, &pods, at(0)), Change::Create(2));
}

fn ignores_terminating() {
    let pods = arcs(vec![running("a", "n", None), terminating("b")]);
    assert_eq!(manage(&set(2), &pods, &pods, at(0)), Change::Create(1), "its successor does not wait for its end");
    assert_eq!(manage(&set(1), &pods, &pods, at(0)), Change::Nothing);
}

fn at_most_a_burst() {
    assert_eq!(manage(&set(100_000), &[], &[], at(0)), Change::Create(BURST));
}

fn least_useful_first() {
    let pods = arcs(vec![running("ready", "n", Some(0)), running("unready", "n", None)]);
    assert_eq!(deleted(manage(&set(1), &pods, &pods, at(0))), ["unready"]);
}

fn crowded_node_first() {
    let pods = arcs(vec![running("a", "alone", Some(0)), running("b", "crowded", Some(0))]);
    let mut related = pods.clone();
    related.extend(arcs(vec![running("x", "crowded", Some(0))]));
    assert_eq!(deleted(manage(&set(1), &pods, &related, at(0))), ["b"]);
}

fn pod_of_template() {
    let set = set(1);
    let pod = pod::from_template(set.spec.as_ref().unwrap().template.as_ref().unwrap(), &set);
    let value = serde_json::to_value(&pod).unwrap();
    assert_eq!(
        value["metadata"],
        json!({
            "generateName": "web-",
            "namespace": "ns",
            "labels": {"app": "web", "tier": "front"},
            "annotations": {"note": "n"},
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "set",
                "controller": true, "blockOwnerDeletion": true,
            }],
        })
    );
    assert_eq!(value["spec"]["containers"][0]["image"], "i");
}

fn status_counts() {
    let mut unlabeled = running("c", "n", Some(0));
    unlabeled.metadata.labels = Some([("app".to_owned(), "web".to_owned())].into());
    let pods = arcs(vec![
        running("a", "n", None),
        running("b", "n", Some(0)),
        unlabeled,
        ended("d", "Failed"),
        terminating("e"),
    ]);
    let (status, again) = status(&set(3), &pods, None, at(5));
    assert_eq!(
        serde_json::to_value(status).unwrap(),
        json!({
            "replicas": 3, "fullyLabeledReplicas": 2, "readyReplicas": 2, "availableReplicas": 2,
            "terminatingReplicas": 1, "observedGeneration": 4,
        })
    );
    assert_eq!(again, None);
}

fn min_ready_seconds() {
    let mut set = set(2);
    set.spec.as_mut().unwrap().min_ready_seconds = Some(10);
    let pods = arcs(vec![running("a", "n", Some(0)), running("b", "n", Some(4))]);
    for (now, ready_long, wait) in [(5, None, Some(5)), (10, Some(1), Some(4)), (14, Some(2), None)] {
        let (status, again) = status(&set, &pods, None, at(now));
        assert_eq!((status.ready_replicas, status.available_replicas), (Some(2), ready_long), "{now}");
        assert_eq!(again, wait.map(Duration::from_secs), "{now}");
    }
}

fn failure_condition() {
    let failure = |message: &str| Some(Failure { reason: "FailedCreate", message: message.into() });
    let mut set = set(2);
    let (first, _) = status(&set, &[], failure("quota"), at(1));
    let condition = &first.conditions.as_ref().unwrap()[0];
    assert_eq!((condition.type_.as_str(), condition.status.as_str()), ("ReplicaFailure", "True"));
    assert_eq!((condition.reason.as_deref(), condition.message.as_deref()), (Some("FailedCreate"), Some("quota")));
    set.status = Some(first.clone());
    let (second, _) = status(&set, &[], failure("another"), at(9));
    assert_eq!(second.conditions, first.conditions, "its time is that of the first");
    set.status = Some(second);
    assert_eq!(status(&set, &[], None, at(10)).0.conditions, None);
}
