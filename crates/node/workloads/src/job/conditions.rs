//! How a Job ends, and what its conditions say. Pure.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{Job, JobCondition, JobSpec, JobStatus};

use super::{
    decide::{Count, Plan, at},
    indexes, pod,
};
use controllers::note::Note;

/// Success or failure that is decided, though Pods may still be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub(super) succeeds: bool,
    reason: String,
    message: String,
}

/// `Complete` or `Failed`, once there is nothing more to do.
pub fn finished(job: &Job) -> Option<&'static str> {
    let status = job.status.as_ref()?;
    ["Complete", "Failed"].into_iter().find(|kind| find(status, kind).is_some())
}

pub fn succeeded_at(job: &Job) -> Option<Timestamp> {
    let status = job.status.as_ref()?;
    find(status, "Complete")?;
    status.completion_time.as_ref().map(|time| time.0)
}

fn find<'a>(status: &'a JobStatus, kind: &str) -> Option<&'a JobCondition> {
    status.conditions.iter().flatten().find(|one| one.type_ == kind && one.status == "True")
}

impl Outcome {
    fn new(succeeds: bool, reason: &str, message: impl Into<String>) -> Option<Self> {
        Some(Self { succeeds, reason: reason.into(), message: message.into() })
    }

    pub(super) fn of(job: &Job, count: &Count<'_>, suspended: bool, now: Timestamp) -> Option<Self> {
        let status = job.status.as_ref();
        // What was decided once stays.
        for (kind, succeeds) in [("FailureTarget", false), ("SuccessCriteriaMet", true)] {
            if let Some(one) = status.and_then(|status| find(status, kind)) {
                let text = |text: &Option<String>| text.clone().unwrap_or_default();
                return Some(Self { succeeds, reason: text(&one.reason), message: text(&one.message) });
            }
        }
        Self::failure(count, suspended, status, now).or_else(|| Self::success(count))
    }

    fn failure(count: &Count<'_>, suspended: bool, status: Option<&JobStatus>, now: Timestamp) -> Option<Self> {
        let spec = count.spec;
        if let Some(why) = &count.fails_job {
            return Self::new(false, "PodFailurePolicy", why.clone());
        }
        let limit = spec.backoff_limit.unwrap_or(6);
        if count.failed > limit || too_many_restarts(count, limit) {
            return Self::new(false, "BackoffLimitExceeded", "Job has reached the specified backoff limit");
        }
        let started = status.and_then(|status| status.start_time.as_ref()).map(|time| time.0);
        if !suspended && left(spec, started, now).is_some_and(|left| left.is_zero()) {
            return Self::new(false, "DeadlineExceeded", "Job was active longer than specified deadline");
        }
        spec.backoff_limit_per_index?;
        let failed = count.failed_indexes.len();
        if spec.max_failed_indexes.is_some_and(|max| failed > usize::try_from(max).unwrap_or(0)) {
            return Self::new(
                false,
                "MaxFailedIndexesExceeded",
                "Job has exceeded the specified maximal number of failed indexes",
            );
        }
        let all = usize::try_from(count.indexed?).ok()?;
        if failed > 0 && failed + count.completed.len() >= all {
            return Self::new(false, "FailedIndexes", "Job has failed indexes");
        }
        None
    }

    fn success(count: &Count<'_>) -> Option<Self> {
        if let Some(policy) = &count.spec.success_policy
            && let Some(all) = count.indexed
        {
            for (at, rule) in policy.rules.iter().enumerate() {
                let of = rule.succeeded_indexes.as_ref().map(|text| indexes::parse(text, all));
                let done =
                    count.completed.iter().filter(|index| of.as_ref().is_none_or(|of| of.contains(index))).count();
                let enough = rule.succeeded_count.and_then(|n| usize::try_from(n).ok()).or(of.map(|of| of.len()));
                if enough.is_some_and(|enough| enough > 0 && done >= enough) {
                    return Self::new(true, "SuccessPolicy", format!("Matched rules at index {at}"));
                }
            }
        }
        let complete = match count.spec.completions {
            Some(completions) => count.succeeded >= completions,
            // A work queue: one that succeeds says that there is nothing left, and the others may finish.
            None => count.succeeded > 0 && count.active.is_empty(),
        };
        let message = "Reached expected number of succeeded pods";
        if complete { Self::new(true, "CompletionsReached", message) } else { None }
    }
}

/// Pods that are started again in place never fail: their restarts count instead.
fn too_many_restarts(count: &Count<'_>, limit: i32) -> bool {
    let policy = count.spec.template.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref());
    if policy != Some("OnFailure") {
        return false;
    }
    let restarts = count.active.iter().fold(0i32, |sum, pod| sum.saturating_add(pod::restarts(pod)));
    if limit == 0 { restarts > 0 } else { restarts >= limit }
}

fn left(spec: &JobSpec, started: Option<Timestamp>, now: Timestamp) -> Option<Duration> {
    let until = started?.checked_add(SignedDuration::from_secs(spec.active_deadline_seconds?)).ok()?;
    Some(Duration::try_from(until.duration_since(now)).unwrap_or_default())
}

pub(super) fn mind_deadline(spec: &JobSpec, now: Timestamp, plan: &mut Plan) {
    let started = plan.status.start_time.as_ref().map(|time| time.0);
    if let Some(left) = left(spec, started, now) {
        plan.look_again(left);
    }
}

/// The decision is written at once; that it is over, only when no Pod is left that could still do something.
pub(super) fn finish(outcome: &Outcome, settled: bool, now: Timestamp, plan: &mut Plan) {
    let (target, end) = if outcome.succeeds { ("SuccessCriteriaMet", "Complete") } else { ("FailureTarget", "Failed") };
    let (reason, message) = (outcome.reason.as_str(), outcome.message.as_str());
    set(&mut plan.status, target, true, reason, message, now);
    if !settled {
        return;
    }
    set(&mut plan.status, end, true, reason, message, now);
    if outcome.succeeds {
        plan.status.completion_time = at(now);
        plan.notes.push(Note::normal("Completed", "Job completed"));
    } else {
        let known = [
            "PodFailurePolicy",
            "BackoffLimitExceeded",
            "DeadlineExceeded",
            "MaxFailedIndexesExceeded",
            "FailedIndexes",
        ];
        let reason = known.into_iter().find(|known| *known == reason).unwrap_or("Failed");
        plan.notes.push(Note::warning(reason, message));
    }
}

pub(super) fn suspend(suspended: bool, job: &Job, now: Timestamp, plan: &mut Plan) {
    let was = job.status.as_ref().is_some_and(|status| find(status, "Suspended").is_some());
    if suspended && !was {
        set(&mut plan.status, "Suspended", true, "JobSuspended", "Job suspended", now);
        plan.notes.push(Note::normal("Suspended", "Job suspended"));
        plan.status.start_time = None;
    } else if !suspended && was {
        set(&mut plan.status, "Suspended", false, "JobResumed", "Job resumed", now);
        plan.notes.push(Note::normal("Resumed", "Job resumed"));
        plan.status.start_time = at(now);
    }
}

fn set(status: &mut JobStatus, kind: &str, holds: bool, reason: &str, message: &str, now: Timestamp) {
    let conditions = status.conditions.get_or_insert_default();
    let text = if holds { "True" } else { "False" };
    if conditions.iter().any(|one| one.type_ == kind && one.status == text) {
        return;
    }
    conditions.retain(|one| one.type_ != kind);
    conditions.push(JobCondition {
        type_: kind.into(),
        status: text.into(),
        reason: Some(reason.into()),
        message: Some(message.into()),
        last_probe_time: at(now),
        last_transition_time: at(now),
    });
}
