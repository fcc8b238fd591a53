//! What a ReplicaSet needs next, and what its status says. Pure.

use std::{collections::HashMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetStatus},
        core::v1::Pod,
    },
    apimachinery::pkg::apis::meta::v1::Time,
};

use crate::pod::{self, Available};

/// At most so many Pods are made or deleted at once; the rest comes when these are seen.
pub const BURST: usize = 500;

#[derive(Debug, PartialEq)]
pub enum Change {
    Nothing,
    Create(usize),
    Delete(Vec<Arc<Pod>>),
}

pub fn wanted(set: &ReplicaSet) -> usize {
    let replicas = set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    usize::try_from(replicas).unwrap_or(0)
}

fn min_ready_seconds(set: &ReplicaSet) -> i32 {
    set.spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or(0)
}

/// `pods` are the set's own; `related` are those of all sets of the same Deployment: where several are on one node, one of them goes first.
pub fn manage(set: &ReplicaSet, pods: &[Arc<Pod>], related: &[Arc<Pod>], now: Timestamp) -> Change {
    let mut active: Vec<&Arc<Pod>> = pods.iter().filter(|pod| pod::is_active(pod)).collect();
    let wanted = wanted(set);
    if active.len() < wanted {
        return Change::Create((wanted - active.len()).min(BURST));
    }
    let surplus = (active.len() - wanted).min(BURST);
    if surplus == 0 {
        return Change::Nothing;
    }
    let mut on_node: HashMap<&str, usize> = HashMap::new();
    for pod in related.iter().filter(|pod| pod::is_active(pod)) {
        if let Some(node) = pod::node(pod) {
            *on_node.entry(node).or_default() += 1;
        }
    }
    let rank = |pod: &Pod| pod::node(pod).and_then(|node| on_node.get(node)).copied().unwrap_or(0);
    active.sort_by(|a, b| pod::goes_first((a, rank(a)), (b, rank(b)), now));
    Change::Delete(active.into_iter().take(surplus).cloned().collect())
}

/// What could not be done.
pub struct Failure {
    pub reason: &'static str,
    pub message: String,
}

/// The status, and after how long it changes although nothing happens.
pub fn status(
    set: &ReplicaSet,
    pods: &[Arc<Pod>],
    failure: Option<Failure>,
    now: Timestamp,
) -> (ReplicaSetStatus, Option<Duration>) {
    let template = set.spec.as_ref().and_then(|spec| spec.template.as_ref());
    let template = template.and_then(|template| template.metadata.as_ref()?.labels.as_ref());
    let (mut replicas, mut labeled, mut ready, mut ready_long) = (0, 0, 0, 0);
    let mut again: Option<Duration> = None;
    for pod in pods.iter().filter(|pod| pod::is_active(pod)) {
        replicas += 1;
        let has = |(name, value)| pod.metadata.labels.as_ref().and_then(|labels| labels.get(name)) == Some(value);
        labeled += i32::from(template.into_iter().flatten().all(has));
        ready += i32::from(pod::is_ready(pod));
        match pod::available(pod, min_ready_seconds(set), now) {
            Available::Yes => ready_long += 1,
            Available::In(left) => again = Some(again.map_or(left, |again| again.min(left))),
            Available::No => {}
        }
    }
    let terminating = pods.iter().filter(|pod| pod::is_deleting(pod) && !pod::is_finished(pod)).count();
    let status = ReplicaSetStatus {
        replicas,
        fully_labeled_replicas: some(labeled),
        ready_replicas: some(ready),
        available_replicas: some(ready_long),
        terminating_replicas: i32::try_from(terminating).ok(),
        observed_generation: set.metadata.generation,
        conditions: conditions(set, failure, now),
    };
    (status, again)
}

/// Upstream's zeros are not written.
pub fn some(count: i32) -> Option<i32> {
    (count != 0).then_some(count)
}

fn conditions(set: &ReplicaSet, failure: Option<Failure>, now: Timestamp) -> Option<Vec<ReplicaSetCondition>> {
    const FAILURE: &str = "ReplicaFailure";
    let mut conditions = set.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    match failure {
        None => conditions.retain(|condition| condition.type_ != FAILURE),
        // The first failure stays as it is until something works again.
        Some(_) if conditions.iter().any(|condition| condition.type_ == FAILURE) => {}
        Some(failure) => conditions.push(ReplicaSetCondition {
            type_: FAILURE.into(),
            status: "True".into(),
            reason: Some(failure.reason.into()),
            message: Some(failure.message),
            last_transition_time: Some(Time(now)),
        }),
    }
    (!conditions.is_empty()).then_some(conditions)
}
