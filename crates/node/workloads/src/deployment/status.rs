//! What a Deployment's status says, progress and its deadline included. Pure.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::apps::v1::{Deployment, DeploymentCondition, DeploymentStatus, ReplicaSet},
    apimachinery::pkg::apis::meta::v1::Time,
};

use super::{
    bounds::{min_available, replicas},
    sets,
};
use crate::replicaset::some;

pub const AVAILABLE: &str = "Available";
pub const PROGRESSING: &str = "Progressing";
const REPLICA_FAILURE: &str = "ReplicaFailure";

pub const NEW_AVAILABLE: &str = "NewReplicaSetAvailable";
pub const TIMED_OUT: &str = "ProgressDeadlineExceeded";
pub const PAUSED: &str = "DeploymentPaused";
pub const RESUMED: &str = "DeploymentResumed";

/// None: it may take as long as it likes.
pub fn deadline(deployment: &Deployment) -> Option<SignedDuration> {
    let seconds = deployment.spec.as_ref()?.progress_deadline_seconds.filter(|seconds| *seconds != i32::MAX)?;
    Some(SignedDuration::from_secs(seconds.into()))
}

pub fn condition<'a>(status: &'a DeploymentStatus, kind: &str) -> Option<&'a DeploymentCondition> {
    status.conditions.iter().flatten().find(|condition| condition.type_ == kind)
}

pub fn new_condition(
    kind: &str,
    value: &str,
    reason: &str,
    message: impl Into<String>,
    now: Timestamp,
) -> DeploymentCondition {
    DeploymentCondition {
        type_: kind.into(),
        status: value.into(),
        reason: Some(reason.into()),
        message: Some(message.into()),
        last_transition_time: Some(Time(now)),
        last_update_time: Some(Time(now)),
    }
}

/// The same value for the same reason is no news.
pub fn set_condition(status: &mut DeploymentStatus, mut new: DeploymentCondition) {
    if let Some(old) = condition(status, &new.type_) {
        if old.status == new.status && old.reason == new.reason {
            return;
        }
        if old.status == new.status {
            new.last_transition_time = old.last_transition_time.clone();
        }
    }
    remove_condition(status, &new.type_.clone());
    status.conditions.get_or_insert_default().push(new);
}

pub fn remove_condition(status: &mut DeploymentStatus, kind: &str) {
    if let Some(conditions) = &mut status.conditions {
        conditions.retain(|condition| condition.type_ != kind);
    }
    status.conditions = status.conditions.take().filter(|conditions| !conditions.is_empty());
}

/// The counts, and whether the least that is needed is available.
pub fn counted(
    deployment: &Deployment,
    all: &[ReplicaSet],
    new: Option<&ReplicaSet>,
    now: Timestamp,
) -> DeploymentStatus {
    let sum = |of: fn(&ReplicaSet) -> i32| all.iter().map(of).fold(0_i32, i32::saturating_add);
    let actual = |set: &ReplicaSet| set.status.as_ref().map_or(0, |status| status.replicas);
    let available = sum(sets::available);
    let before = deployment.status.clone().unwrap_or_default();
    let mut status = DeploymentStatus {
        observed_generation: deployment.metadata.generation,
        replicas: some(sum(actual)),
        updated_replicas: some(new.map_or(0, actual)),
        ready_replicas: some(sum(|set| set.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or(0))),
        available_replicas: some(available),
        unavailable_replicas: some(sum(sets::replicas).saturating_sub(available).max(0)),
        terminating_replicas: Some(sum(|set| {
            set.status.as_ref().and_then(|status| status.terminating_replicas).unwrap_or(0)
        })),
        collision_count: before.collision_count,
        conditions: before.conditions,
    };
    let condition = if available >= min_available(deployment) {
        let message = "Deployment has minimum availability.";
        new_condition(AVAILABLE, "True", "MinimumReplicasAvailable", message, now)
    } else {
        let message = "Deployment does not have minimum availability.";
        new_condition(AVAILABLE, "False", "MinimumReplicasUnavailable", message, now)
    };
    set_condition(&mut status, condition);
    status
}

pub fn is_complete(deployment: &Deployment, status: &DeploymentStatus) -> bool {
    let wanted = some(replicas(deployment));
    status.updated_replicas == wanted
        && status.replicas == wanted
        && status.available_replicas == wanted
        && status.observed_generation >= deployment.metadata.generation
}

fn is_progressing(before: &DeploymentStatus, now: &DeploymentStatus) -> bool {
    let count = |count: Option<i32>| count.unwrap_or(0);
    let old = |status: &DeploymentStatus| count(status.replicas) - count(status.updated_replicas);
    count(now.updated_replicas) > count(before.updated_replicas)
        || old(now) < old(before)
        || count(now.ready_replicas) > count(before.ready_replicas)
        || count(now.available_replicas) > count(before.available_replicas)
}

fn is_timed_out(deadline: SignedDuration, status: &DeploymentStatus, now: Timestamp) -> bool {
    let Some(progressing) = condition(status, PROGRESSING) else { return false };
    match progressing.reason.as_deref() {
        Some(NEW_AVAILABLE) => false,
        Some(TIMED_OUT) => true,
        _ => progressing.last_update_time.as_ref().is_some_and(|Time(since)| now.duration_since(*since) > deadline),
    }
}

/// The status of a rollout: the counts, how it progresses, and what its sets could not do.
pub fn rollout(
    deployment: &Deployment,
    all: &[ReplicaSet],
    new: Option<&ReplicaSet>,
    now: Timestamp,
) -> DeploymentStatus {
    let before = deployment.status.clone().unwrap_or_default();
    let mut status = counted(deployment, all, new, now);
    let current = condition(&before, PROGRESSING);
    let has_come = status.replicas == status.updated_replicas
        && current.is_some_and(|current| current.reason.as_deref() == Some(NEW_AVAILABLE));
    match deadline(deployment) {
        None => remove_condition(&mut status, PROGRESSING),
        Some(_) if has_come => {}
        Some(deadline) => {
            let name = deployment.metadata.name.as_deref().unwrap_or_default();
            let whose = new.map_or_else(
                || format!("Deployment {name:?}"),
                |new| format!("ReplicaSet {:?}", new.metadata.name.as_deref().unwrap_or_default()),
            );
            if is_complete(deployment, &status) {
                let message = format!("{whose} has successfully progressed.");
                set_condition(&mut status, new_condition(PROGRESSING, "True", NEW_AVAILABLE, message, now));
            } else if is_progressing(&before, &status) {
                let message = format!("{whose} is progressing.");
                let mut progressing = new_condition(PROGRESSING, "True", "ReplicaSetUpdated", message, now);
                if let Some(current) = current.filter(|current| current.status == "True") {
                    progressing.last_transition_time = current.last_transition_time.clone();
                }
                // Its time is the news.
                remove_condition(&mut status, PROGRESSING);
                set_condition(&mut status, progressing);
            } else if is_timed_out(deadline, &status, now) {
                let message = format!("{whose} has timed out progressing.");
                set_condition(&mut status, new_condition(PROGRESSING, "False", TIMED_OUT, message, now));
            }
        }
    }
    match failure(all, new) {
        Some(failure) => set_condition(&mut status, failure),
        None => remove_condition(&mut status, REPLICA_FAILURE),
    }
    status
}

/// What the new set could not do; if it could all, what another could not.
fn failure(all: &[ReplicaSet], new: Option<&ReplicaSet>) -> Option<DeploymentCondition> {
    let of = |set: &ReplicaSet| {
        let conditions = set.status.as_ref()?.conditions.as_ref()?;
        let failed = conditions.iter().find(|condition| condition.type_ == REPLICA_FAILURE)?;
        Some(DeploymentCondition {
            type_: REPLICA_FAILURE.into(),
            status: failed.status.clone(),
            reason: failed.reason.clone(),
            message: failed.message.clone(),
            last_transition_time: failed.last_transition_time.clone(),
            last_update_time: failed.last_transition_time.clone(),
        })
    };
    new.and_then(of).or_else(|| all.iter().find_map(of))
}

/// When to look whether the deadline is over.
pub fn look_again(deployment: &Deployment, status: &DeploymentStatus, now: Timestamp) -> Option<Duration> {
    let deadline = deadline(deployment)?;
    let progressing = condition(status, PROGRESSING)?;
    if is_complete(deployment, status) || matches!(progressing.reason.as_deref(), Some(TIMED_OUT | NEW_AVAILABLE)) {
        return None;
    }
    let Time(since) = progressing.last_update_time.as_ref()?;
    let left = deadline - now.duration_since(*since);
    Some(Duration::try_from(left).unwrap_or_default() + Duration::from_secs(1))
}

/// Time does not count while a Deployment is paused: what it says of its progress begins anew with each of both.
pub fn note_pause(deployment: &mut Deployment, now: Timestamp) {
    if deadline(deployment).is_none() {
        return;
    }
    let is_paused = deployment.spec.as_ref().and_then(|spec| spec.paused).unwrap_or(false);
    let status = deployment.status.get_or_insert_default();
    let reason = condition(status, PROGRESSING).and_then(|condition| condition.reason.as_deref());
    if reason == Some(TIMED_OUT) {
        return;
    }
    let was_paused = reason == Some(PAUSED);
    if is_paused && !was_paused {
        set_condition(status, new_condition(PROGRESSING, "Unknown", PAUSED, "Deployment is paused", now));
    } else if !is_paused && was_paused {
        set_condition(status, new_condition(PROGRESSING, "Unknown", RESUMED, "Deployment is resumed", now));
    }
}
