//! What controllers want to know of a Pod.

use std::{cmp::Ordering, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Pod, PodCondition, PodTemplateSpec},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::Resource;

use controllers::owner;

/// Says which Pods of a set are worth less than others.
pub const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

pub fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Pending")
}

pub fn is_finished(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

pub fn is_deleting(pod: &Pod) -> bool {
    owner::is_deleting(&pod.metadata)
}

/// Runs, or will.
pub fn is_active(pod: &Pod) -> bool {
    !is_finished(pod) && !is_deleting(pod)
}

pub fn node(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
}

pub fn condition<'a>(pod: &'a Pod, kind: &str) -> Option<&'a PodCondition> {
    pod.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == kind)
}

pub fn is_ready(pod: &Pod) -> bool {
    condition(pod, "Ready").is_some_and(|ready| ready.status == "True")
}

fn ready_since(pod: &Pod) -> Option<Timestamp> {
    condition(pod, "Ready").filter(|ready| ready.status == "True")?.last_transition_time.as_ref().map(|time| time.0)
}

/// Whether a Pod has been ready for long enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Available {
    No,
    /// If it stays ready.
    In(Duration),
    Yes,
}

pub fn available(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> Available {
    if !is_ready(pod) {
        return Available::No;
    }
    let Ok(needed @ 1..) = u64::try_from(min_ready_seconds) else { return Available::Yes };
    let Some(since) = ready_since(pod) else { return Available::No };
    let been = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    match Duration::from_secs(needed).checked_sub(been) {
        None | Some(Duration::ZERO) => Available::Yes,
        Some(left) => Available::In(left),
    }
}

pub fn restarts(pod: &Pod) -> i32 {
    let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
    statuses.into_iter().flatten().map(|status| status.restart_count).max().unwrap_or(0)
}

fn deletion_cost(pod: &Pod) -> i32 {
    let annotation = pod.metadata.annotations.as_ref().and_then(|all| all.get(DELETION_COST));
    annotation.and_then(|cost| cost.parse().ok()).unwrap_or(0)
}

/// Which of two Pods of a set goes first, in upstream's order. `rank` is how many more of its set are on the Pod's node.
pub fn goes_first(a: (&Pod, usize), b: (&Pod, usize), now: Timestamp) -> Ordering {
    let ((a, rank_a), (b, rank_b)) = (a, b);
    let phase_order = |pod: &Pod| match phase(pod) {
        "Pending" => 0,
        "Unknown" => 1,
        _ => 2,
    };
    let both_ready = is_ready(a) && is_ready(b);
    let by_ready_time = || match both_ready {
        true => newer_first(ready_since(a), ready_since(b), now),
        false => Ordering::Equal,
    };
    let created = |pod: &Pod| pod.metadata.creation_timestamp.as_ref().map(|Time(time)| *time);
    node(a)
        .is_some()
        .cmp(&node(b).is_some())
        .then_with(|| phase_order(a).cmp(&phase_order(b)))
        .then_with(|| is_ready(a).cmp(&is_ready(b)))
        .then_with(|| deletion_cost(a).cmp(&deletion_cost(b)))
        .then_with(|| rank_b.cmp(&rank_a))
        .then_with(by_ready_time)
        .then_with(|| restarts(b).cmp(&restarts(a)))
        .then_with(|| newer_first(created(a), created(b), now))
        .then_with(|| a.metadata.uid.cmp(&b.metadata.uid))
}

/// Ages are compared by their magnitude: of two Pods that are about as old, either may go, so that not all of the youngest, which
/// may well share a zone, go together.
fn newer_first(a: Option<Timestamp>, b: Option<Timestamp>, now: Timestamp) -> Ordering {
    let (Some(a), Some(b)) = (a, b) else { return a.is_some().cmp(&b.is_some()) };
    let magnitude = |at: Timestamp| match u64::try_from(now.duration_since(at).as_secs()) {
        Ok(age @ 1..) => i64::from(age.ilog2()),
        _ => -1,
    };
    magnitude(a).cmp(&magnitude(b))
}

/// A Pod as its controller's template wants it. It has no name yet, only how its name begins.
pub fn from_template(template: &PodTemplateSpec, owner: &impl Resource<DynamicType = ()>) -> Pod {
    let meta = template.metadata.clone().unwrap_or_default();
    let name = owner.meta().name.as_deref().unwrap_or_default();
    Pod {
        metadata: ObjectMeta {
            generate_name: Some(format!("{name}-")),
            namespace: owner.meta().namespace.clone(),
            labels: meta.labels,
            annotations: meta.annotations,
            finalizers: meta.finalizers,
            owner_references: owner::reference(owner).map(|reference| vec![reference]),
            ..ObjectMeta::default()
        },
        spec: template.spec.clone(),
        status: None,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ContainerStatus, PodSpec, PodStatus};

    use super::*;

    const NOW: i64 = 1_000_000;

    fn now() -> Timestamp {
        Timestamp::from_second(NOW).unwrap()
    }

    /// `ready` is since how many seconds, if it is.
    fn pod(node: bool, phase: &str, ready: Option<i64>) -> Pod {
        let mut pod = Pod { spec: Some(PodSpec::default()), ..Pod::default() };
        pod.spec.as_mut().unwrap().node_name = node.then(|| "n".to_owned());
        let ready = PodCondition {
            type_: "Ready".into(),
            status: if ready.is_some() { "True" } else { "False" }.into(),
            last_transition_time: ready.map(|ago| Time(Timestamp::from_second(NOW - ago).unwrap())),
            ..PodCondition::default()
        };
        pod.status =
            Some(PodStatus { phase: Some(phase.into()), conditions: Some(vec![ready]), ..PodStatus::default() });
        pod
    }

    #[test]
    fn availability_needs_time() {
        for (ready, min, expected) in [
            (None, 0, Available::No),
            (Some(0), 0, Available::Yes),
            (Some(0), 10, Available::In(Duration::from_secs(10))),
            (Some(4), 10, Available::In(Duration::from_secs(6))),
            (Some(10), 10, Available::Yes),
            (Some(-5), 10, Available::In(Duration::from_secs(10))),
            (Some(0), -1, Available::Yes),
        ] {
            assert_eq!(available(&pod(true, "Running", ready), min, now()), expected, "{ready:?} {min}");
        }
    }

    #[test]
    fn the_least_useful_goes_first() {
        let cost = |mut pod: Pod, cost: &str| {
            pod.metadata.annotations = Some([(DELETION_COST.to_owned(), cost.to_owned())].into());
            pod
        };
        let restarted = |mut pod: Pod| {
            let status = ContainerStatus { restart_count: 3, ..ContainerStatus::default() };
            pod.status.as_mut().unwrap().container_statuses = Some(vec![status]);
            pod
        };
        let created = |mut pod: Pod, ago: i64| {
            pod.metadata.creation_timestamp = Some(Time(Timestamp::from_second(NOW - ago).unwrap()));
            pod
        };
        let running = || pod(true, "Running", Some(100));
        // In each pair the first goes first.
        let pairs = [
            ((pod(false, "Pending", None), 0), (pod(true, "Pending", None), 0)),
            ((pod(true, "Pending", None), 0), (pod(true, "Running", None), 0)),
            ((pod(true, "Running", None), 0), (running(), 0)),
            ((cost(running(), "-5"), 0), (running(), 5)),
            ((running(), 0), (cost(running(), "5"), 5)),
            ((running(), 2), (running(), 1)),
            ((pod(true, "Running", Some(10)), 0), (running(), 0)),
            ((restarted(running()), 0), (running(), 0)),
            ((created(running(), 5), 0), (created(running(), 500), 0)),
        ];
        for (n, ((a, rank_a), (b, rank_b))) in pairs.iter().enumerate() {
            assert_eq!(goes_first((a, *rank_a), (b, *rank_b), now()), Ordering::Less, "{n}");
            assert_eq!(goes_first((b, *rank_b), (a, *rank_a), now()), Ordering::Greater, "{n}");
        }
        let (a, b) = (created(running(), 500), created(running(), 400));
        assert_eq!(goes_first((&a, 0), (&b, 0), now()), Ordering::Equal, "about as old");
    }
}
