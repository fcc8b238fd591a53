//! Which Pods nobody needs any more, or nobody but us can end. Pure.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::{
    api::core::v1::{Node, Pod},
    apimachinery::pkg::apis::meta::v1::Time,
};
use tokio::time::Instant;

use crate::{nodes::is_ready, pod, scheduler::fit};

/// A node has to be away for so long before its Pods are given up: it may only be renamed, restored or late in the cache.
pub const QUARANTINE: Duration = Duration::from_secs(40);
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It has ended, and there are too many of those.
    Ended,
    /// Its node is said to be out of service for good.
    OutOfService,
    NodeGone,
    /// It is to go, and never was on a node that could end it.
    NeverScheduled,
}

/// Nodes that Pods are on and that are not there, and since when.
pub type Missing = BTreeMap<String, Instant>;

#[derive(Debug, Default)]
pub struct Plan {
    pub delete: Vec<(Arc<Pod>, Why)>,
    /// When a node will have been away for long enough.
    pub again: Option<Duration>,
}

impl Plan {
    /// Nodes that are taken to be gone for good. Caches are late: they are asked for once more.
    pub fn gone(&self) -> BTreeSet<String> {
        let of_gone = self.delete.iter().filter(|(_, why)| *why == Why::NodeGone);
        of_gone.filter_map(|(pod, _)| pod::node(pod).map(str::to_owned)).collect()
    }
}

/// Of Pods that have ended, `kept` stay, or all if that is 0. `missing` is brought up to date.
pub fn decide(pods: &[Arc<Pod>], nodes: &[Arc<Node>], missing: &mut Missing, kept: usize, now: Instant) -> Plan {
    let by_name: BTreeMap<&str, &Arc<Node>> =
        nodes.iter().filter_map(|node| Some((node.metadata.name.as_deref()?, node))).collect();
    let away: HashSet<&str> =
        pods.iter().filter_map(|pod| pod::node(pod)).filter(|name| !by_name.contains_key(name)).collect();
    missing.retain(|name, _| away.contains(name.as_str()));
    for name in away {
        if !missing.contains_key(name) {
            missing.insert(name.to_owned(), now);
        }
    }
    let left = |name: &str| missing.get(name).map(|since| QUARANTINE.saturating_sub(now.duration_since(*since)));
    let mut plan = Plan {
        again: missing.keys().filter_map(|name| left(name)).filter(|left| !left.is_zero()).min(),
        ..Plan::default()
    };
    let mut ended: Vec<&Arc<Pod>> = Vec::new();
    for pod in pods.iter().filter(|pod| !is_done(pod)) {
        let why = match pod::node(pod) {
            Some(name) => match by_name.get(name) {
                None => left(name).filter(Duration::is_zero).map(|_| Why::NodeGone),
                Some(node) => (pod::is_deleting(pod) && is_out_of_service(node)).then_some(Why::OutOfService),
            },
            None => pod::is_deleting(pod).then_some(Why::NeverScheduled),
        };
        match why {
            Some(why) => plan.delete.push((pod.clone(), why)),
            None if pod::is_finished(pod) && !pod::is_deleting(pod) => ended.push(pod),
            None => {}
        }
    }
    if kept > 0 && ended.len() > kept {
        let surplus = ended.len() - kept;
        ended.sort_by_cached_key(|pod| order(pod));
        plan.delete.extend(ended.into_iter().take(surplus).map(|pod| (pod.clone(), Why::Ended)));
    }
    plan
}

/// Who goes first of those that have ended: who was evicted, as nobody counts those, then the oldest.
fn order(pod: &Pod) -> impl Ord + use<> {
    let is_evicted = pod.status.as_ref().is_some_and(|status| status.reason.as_deref() == Some("Evicted"));
    let created = pod.metadata.creation_timestamp.as_ref().map(|Time(time)| *time);
    (!is_evicted, created, pod.metadata.name.clone(), pod.metadata.namespace.clone())
}

/// All was done: only finalizers of others keep it.
fn is_done(pod: &Pod) -> bool {
    pod::is_deleting(pod) && pod::is_finished(pod) && pod.metadata.deletion_grace_period_seconds == Some(0)
}

fn is_out_of_service(node: &Node) -> bool {
    !is_ready(node) && fit::taints(node).iter().any(|taint| taint.key == OUT_OF_SERVICE)
}
