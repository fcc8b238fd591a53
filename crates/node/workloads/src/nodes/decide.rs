//! What the conditions of a node mean for its Pods: taints, and who has to go. Pure.

use std::{sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::core::v1::{Node, NodeCondition, Pod, Taint},
    apimachinery::pkg::apis::meta::v1::Time,
};

use crate::{pod, scheduler::fit};

/// A node that says nothing for so long is unreachable.
pub const PATIENCE: Duration = Duration::from_secs(50);
const PREFIX: &str = "node.kubernetes.io/";
/// What a node says of itself, all unknown once it is silent.
const OWN: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

fn condition<'a>(node: &'a Node, kind: &str) -> Option<&'a NodeCondition> {
    node.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == kind)
}

/// `True`, `False` or `Unknown`, which is also what a node is that never said anything.
pub fn ready(node: &Node) -> &str {
    condition(node, "Ready").map_or("Unknown", |ready| ready.status.as_str())
}

pub fn is_ready(node: &Node) -> bool {
    ready(node) == "True"
}

/// What has to be written for one node now. What comes later in this list is not decided before the cache shows what came earlier.
#[derive(Debug, Default, PartialEq)]
pub struct Plan {
    /// It fell silent.
    pub conditions: Option<Vec<NodeCondition>>,
    pub taints: Option<Vec<Taint>>,
    /// Pods of which nobody knows whether they still answer.
    pub mark: Vec<Arc<Pod>>,
    pub evict: Vec<Arc<Pod>>,
    /// When to look again although nothing happened.
    pub again: Option<Duration>,
}

/// `pods` are those on the node; `silent_for` is since when nothing was heard from it; `evicts` as in [`taints`].
pub fn decide(node: &Node, pods: &[Arc<Pod>], silent_for: Duration, evicts: bool, now: Timestamp) -> Plan {
    let left = Some(PATIENCE.saturating_sub(silent_for)).filter(|left| !left.is_zero());
    if left.is_none()
        && let Some(conditions) = silent(node, now)
    {
        return Plan { conditions: Some(conditions), ..Plan::default() };
    }
    if let Some(taints) = taints(node, evicts, now) {
        return Plan { taints: Some(taints), again: left, ..Plan::default() };
    }
    let mut plan = Plan { again: left, ..Plan::default() };
    if left.is_none() && ready(node) == "Unknown" {
        plan.mark = pods.iter().filter(|pod| pod::is_ready(pod)).cloned().collect();
    }
    for pod in pods.iter().filter(|pod| !pod::is_deleting(pod)) {
        match goes_in(pod, fit::taints(node), now) {
            Some(Duration::ZERO) => plan.evict.push(pod.clone()),
            left => plan.again = [plan.again, left].into_iter().flatten().min(),
        }
    }
    plan
}

/// The taints as they have to be; nothing if they are. `evicts` is false while no node at all works: then nobody would be better off elsewhere.
pub fn taints(node: &Node, evicts: bool, now: Timestamp) -> Option<Vec<Taint>> {
    let is_true = |kind: &str| condition(node, kind).is_some_and(|condition| condition.status == "True");
    let unschedulable = node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false);
    let (is_not_ready, is_unreachable) = match condition(node, "Ready").map(|ready| ready.status.as_str()) {
        Some("True") => (false, false),
        Some("Unknown") => (false, true),
        _ => (true, false),
    };
    let wanted = [
        ("not-ready", "NoSchedule", is_not_ready),
        ("unreachable", "NoSchedule", is_unreachable),
        ("memory-pressure", "NoSchedule", is_true("MemoryPressure")),
        ("disk-pressure", "NoSchedule", is_true("DiskPressure")),
        ("pid-pressure", "NoSchedule", is_true("PIDPressure")),
        ("network-unavailable", "NoSchedule", is_true("NetworkUnavailable")),
        ("unschedulable", "NoSchedule", unschedulable),
        ("not-ready", "NoExecute", is_not_ready && evicts),
        ("unreachable", "NoExecute", is_unreachable && evicts),
    ];
    let current = fit::taints(node);
    let mut next = current.to_vec();
    for (name, effect, is_wanted) in wanted {
        let key = format!("{PREFIX}{name}");
        let is_it = |taint: &Taint| taint.key == key && taint.effect == effect;
        if !is_wanted {
            next.retain(|taint| !is_it(taint));
        } else if !next.iter().any(is_it) {
            next.push(Taint { key, effect: effect.into(), value: None, time_added: Some(Time(now)) });
        }
    }
    (next != current).then_some(next)
}

/// The conditions of a node that fell silent; nothing if they say so already.
pub fn silent(node: &Node, now: Timestamp) -> Option<Vec<NodeCondition>> {
    let never = condition(node, "Ready").is_none();
    let (reason, message) = match never {
        true => ("NodeStatusNeverUpdated", "Kubelet never posted node status."),
        false => ("NodeStatusUnknown", "Kubelet stopped posting node status."),
    };
    let mut conditions = node.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    let mut changed = false;
    for kind in OWN {
        let unknown = NodeCondition {
            type_: kind.into(),
            status: "Unknown".into(),
            reason: Some(reason.into()),
            message: Some(message.into()),
            last_transition_time: Some(Time(now)),
            last_heartbeat_time: None,
        };
        match conditions.iter_mut().find(|condition| condition.type_ == kind) {
            Some(condition) if condition.status == "Unknown" => {}
            Some(condition) => {
                let heartbeat = condition.last_heartbeat_time.take();
                *condition = NodeCondition { last_heartbeat_time: heartbeat, ..unknown };
                changed = true;
            }
            None => {
                conditions
                    .push(NodeCondition { last_heartbeat_time: node.metadata.creation_timestamp.clone(), ..unknown });
                changed = true;
            }
        }
    }
    changed.then_some(conditions)
}

/// When a Pod has to go because of its node's taints: zero is now, nothing is never.
pub fn goes_in(pod: &Pod, taints: &[Taint], now: Timestamp) -> Option<Duration> {
    let tolerations = pod.spec.as_ref().and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default();
    let mut soonest: Option<Duration> = None;
    for taint in taints.iter().filter(|taint| taint.effect == "NoExecute") {
        let mut tolerated = tolerations.iter().filter(|toleration| fit::tolerates(toleration, taint)).peekable();
        if tolerated.peek().is_none() {
            return Some(Duration::ZERO);
        }
        // Any that tolerates it for ever outweighs none of the others: the shortest counts.
        let Some(seconds) = tolerated.filter_map(|toleration| toleration.toleration_seconds).min() else { continue };
        let since = taint.time_added.as_ref().map_or(now, |Time(time)| *time);
        let left = SignedDuration::from_secs(seconds.max(0)).saturating_sub(now.duration_since(since));
        let left = Duration::try_from(left).unwrap_or_default();
        soonest = Some(soonest.map_or(left, |soonest| soonest.min(left)));
    }
    soonest
}
