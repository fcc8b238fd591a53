//! Rows of workloads and what belongs to them.

use schema::catalogue::split_api_version;
use schema::selector::LabelSelector;
use schema::status::qualified;
use serde_json::Value;

use crate::table::age::age;
use crate::table::read::{containers, flag, int, items, labels, name, scalar, selector, text};
use crate::table::tree::Node;

const CONTAINERS: &str = "/spec/template/spec/containers";

pub(super) fn replication_controller(o: &Node<'_>, now: i64) -> Vec<Value> {
    replicas(o, now, labels(o, "/spec/selector"))
}

pub(super) fn replica_set(o: &Node<'_>, now: i64) -> Vec<Value> {
    replicas(o, now, selector(o, "/spec/selector"))
}

fn replicas(o: &Node<'_>, now: i64, selector: Value) -> Vec<Value> {
    let [names, images] = containers(o, CONTAINERS);
    vec![
        name(o),
        int(o, "/spec/replicas").into(),
        int(o, "/status/replicas").into(),
        int(o, "/status/readyReplicas").into(),
        age(o, now),
        names,
        images,
        selector,
    ]
}

fn ready(o: &Node<'_>) -> Value {
    format!("{}/{}", int(o, "/status/readyReplicas"), int(o, "/spec/replicas")).into()
}

pub(super) fn deployment(o: &Node<'_>, now: i64) -> Vec<Value> {
    let selector =
        LabelSelector::from_value(&o.pointer("/spec/selector").map(|node| node.to_value()).unwrap_or_default());
    let [names, images] = containers(o, CONTAINERS);
    vec![
        name(o),
        ready(o),
        int(o, "/status/updatedReplicas").into(),
        int(o, "/status/availableReplicas").into(),
        age(o, now),
        names,
        images,
        selector.map_or_else(|_| "<invalid>".to_owned(), |s| s.to_string()).into(),
    ]
}

pub(super) fn stateful_set(o: &Node<'_>, now: i64) -> Vec<Value> {
    let [names, images] = containers(o, CONTAINERS);
    vec![name(o), ready(o), age(o, now), names, images]
}

pub(super) fn daemon_set(o: &Node<'_>, now: i64) -> Vec<Value> {
    let number = |field: &str| Value::from(int(o, &format!("/status/{field}")));
    let [names, images] = containers(o, CONTAINERS);
    vec![
        name(o),
        number("desiredNumberScheduled"),
        number("currentNumberScheduled"),
        number("numberReady"),
        number("updatedNumberScheduled"),
        number("numberAvailable"),
        labels(o, "/spec/template/spec/nodeSelector"),
        age(o, now),
        names,
        images,
        selector(o, "/spec/selector"),
    ]
}

pub(super) fn controller_revision(o: &Node<'_>, now: i64) -> Vec<Value> {
    let controller = items(o, "/metadata/ownerReferences").into_iter().find(|owner| flag(owner, "/controller"));
    let controller = controller.map_or_else(
        || "<none>".to_owned(),
        |owner| {
            let api_version = text(&owner, "/apiVersion");
            let (group, _) = split_api_version(&api_version);
            format!("{}/{}", qualified(group, &text(&owner, "/kind")).to_lowercase(), text(&owner, "/name"))
        },
    );
    vec![name(o), controller.into(), int(o, "/revision").into(), age(o, now)]
}

pub(super) fn disruption_budget(o: &Node<'_>, now: i64) -> Vec<Value> {
    let bound = |pointer| Value::from(scalar(o, pointer).unwrap_or_else(|| "N/A".to_owned()));
    vec![
        name(o),
        bound("/spec/minAvailable"),
        bound("/spec/maxUnavailable"),
        int(o, "/status/disruptionsAllowed").into(),
        age(o, now),
    ]
}
