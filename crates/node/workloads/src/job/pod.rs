//! What a Job's controller reads from Pods, and the Pods that it makes. Pure.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::{
        batch::v1::{Job, JobSpec},
        core::v1::{ContainerStatus, EnvVar, EnvVarSource, ObjectFieldSelector, Pod},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

pub use crate::pod::{condition, is_active, is_deleting as is_terminating, is_finished as is_over, is_ready, phase};
use controllers::owner;

pub const FINALIZER: &str = "batch.kubernetes.io/job-tracking";
pub const INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// How often a Pod of this index failed before, which counts for `backoffLimitPerIndex`.
pub const INDEX_FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
const INDEX_VARIABLE: &str = "JOB_COMPLETION_INDEX";

pub fn has_condition(pod: &Pod, kind: &str, status: &str) -> bool {
    condition(pod, kind).is_some_and(|one| one.status == status)
}

pub fn is_tracked(pod: &Pod) -> bool {
    pod.metadata.finalizers.iter().flatten().any(|name| name == FINALIZER)
}

pub fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

pub fn index(pod: &Pod) -> Option<i32> {
    let text = pod.metadata.annotations.as_ref()?.get(INDEX)?;
    text.parse().ok().filter(|index| *index >= 0)
}

/// How often its index failed before it.
pub fn failures_before(pod: &Pod) -> i32 {
    let text = pod.metadata.annotations.as_ref().and_then(|all| all.get(INDEX_FAILURES));
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// How often its containers were started again.
pub fn restarts(pod: &Pod) -> i32 {
    let Some(status) = &pod.status else { return 0 };
    let all = status.container_statuses.iter().flatten().chain(status.init_container_statuses.iter().flatten());
    all.fold(0, |sum, one| sum.saturating_add(one.restart_count))
}

/// When the last of its containers ended; else since when it is not ready, when it was deleted, or made.
pub fn ended_at(pod: &Pod) -> Option<Timestamp> {
    let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
    let end = |one: &ContainerStatus| Some(one.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref()?.0);
    let ends = statuses.iter().map(end).collect::<Option<Vec<Timestamp>>>().unwrap_or_default();
    let not_ready = condition(pod, "Ready").filter(|ready| ready.status == "False");
    let not_ready = not_ready.and_then(|ready| ready.last_transition_time.as_ref()).map(|at| at.0);
    let grace = SignedDuration::from_secs(pod.metadata.deletion_grace_period_seconds.unwrap_or(0));
    let deleted = pod.metadata.deletion_timestamp.as_ref().and_then(|at| at.0.checked_sub(grace).ok());
    let created = pod.metadata.creation_timestamp.as_ref().map(|at| at.0);
    ends.into_iter().max().or(not_ready).or(deleted).or(created)
}

/// A new Pod. `index` is for indexed Jobs: which one, and how often it failed.
pub fn make(job: &Job, spec: &JobSpec, index: Option<(i32, i32)>) -> Pod {
    let template = spec.template.metadata.clone().unwrap_or_default();
    let name = job.metadata.name.as_deref().unwrap_or_default();
    let mut pod = Pod {
        metadata: ObjectMeta {
            generate_name: Some(prefix(name, index.map(|(index, _)| index))),
            namespace: job.metadata.namespace.clone(),
            labels: template.labels,
            annotations: template.annotations,
            finalizers: Some([template.finalizers.unwrap_or_default(), vec![FINALIZER.into()]].concat()),
            owner_references: owner::reference(job).map(|reference| vec![reference]),
            ..ObjectMeta::default()
        },
        spec: spec.template.spec.clone(),
        status: None,
    };
    if let Some((index, failures)) = index {
        let annotations = pod.metadata.annotations.get_or_insert_default();
        annotations.insert(INDEX.into(), index.to_string());
        if spec.backoff_limit_per_index.is_some() {
            annotations.insert(INDEX_FAILURES.into(), failures.to_string());
        }
        pod.metadata.labels.get_or_insert_default().insert(INDEX.into(), index.to_string());
        if let Some(inner) = &mut pod.spec {
            inner.hostname = Some(format!("{name}-{index}"));
            let containers = inner.containers.iter_mut().map(|one| &mut one.env);
            for env in containers.chain(inner.init_containers.iter_mut().flatten().map(|one| &mut one.env)) {
                let env = env.get_or_insert_default();
                if !env.iter().any(|one| one.name == INDEX_VARIABLE) {
                    env.push(index_variable());
                }
            }
        }
    }
    pod
}

/// A generated name has 5 characters after it, and 63 in all.
fn prefix(name: &str, index: Option<i32>) -> String {
    let suffix = index.map_or("-".to_owned(), |index| format!("-{index}-"));
    let room = 58usize.saturating_sub(suffix.len());
    format!("{}{suffix}", name.get(..room.min(name.len())).unwrap_or(name))
}

fn index_variable() -> EnvVar {
    let field = ObjectFieldSelector { field_path: format!("metadata.labels['{INDEX}']"), ..Default::default() };
    let from = EnvVarSource { field_ref: Some(field), ..Default::default() };
    EnvVar { name: INDEX_VARIABLE.into(), value_from: Some(from), ..Default::default() }
}
