//! What the conditions of a node mean for its Pods: taints, and who has to go. Pure.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::core::v1::{Node, NodeCondition, Pod, Taint},
    apimachinery::pkg::apis::meta::v1::Time,
};

use crate::scheduler::fit;

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
        let left = SignedDuration::from_secs(seconds.max(0)) - now.duration_since(since);
        let left = Duration::try_from(left).unwrap_or_default();
        soonest = Some(soonest.map_or(left, |soonest| soonest.min(left)));
    }
    soonest
}
