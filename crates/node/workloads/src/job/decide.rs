//! What has to be done for a Job. Pure.
//!
//! No Pod is counted twice, and none is missed, whenever this program ends: a Pod keeps a finalizer until its uid is written into
//! `uncountedTerminatedPods`, and its uid stays there until the finalizer is gone. Only then a counter grows.

use std::{collections::BTreeSet, time::Duration};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::{
        batch::v1::{Job, JobSpec, JobStatus, UncountedTerminatedPods},
        core::v1::Pod,
    },
    apimachinery::pkg::apis::meta::v1::Time,
};

use super::{
    conditions::{self, Outcome, finished},
    failure::{Meaning, meaning},
    indexes::{self, Indexes},
    pod, wanted,
};
use controllers::note::Note;

/// So many Pods at a time: the rest follows when these are seen.
pub const AT_ONCE: usize = 500;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Written before anything else is done, if it is different.
    pub status: JobStatus,
    /// Names of Pods whose end is in the status by now: they lose the finalizer.
    pub release: Vec<String>,
    /// Names of Pods that end with the Job, and count as failed.
    pub delete: Vec<String>,
    /// Names of Pods that are too many: they lose the finalizer, so that they do not count, and go.
    pub drop: Vec<String>,
    pub create: Vec<Pod>,
    pub notes: Vec<Note>,
    /// Look again after this, if nothing happens before.
    pub again: Option<Duration>,
}

impl Plan {
    pub(super) fn look_again(&mut self, after: Duration) {
        self.again = Some(self.again.map_or(after, |before| before.min(after)));
    }
}

/// What is known of a Job's Pods.
pub(super) struct Count<'a> {
    pub spec: &'a JobSpec,
    /// Of indexed Jobs, how many indexes there are.
    pub indexed: Option<i32>,
    pub active: Vec<&'a Pod>,
    /// Being deleted, and not over yet.
    pub terminating: Vec<&'a Pod>,
    pub succeeded: i32,
    pub failed: i32,
    pub completed: Indexes,
    /// Those that will not be tried again.
    pub failed_indexes: Indexes,
    pub fails_job: Option<String>,
}

/// `pods` are those that the Job controls.
pub fn decide(job: &Job, pods: &[&Pod], now: Timestamp) -> Plan {
    let mut plan = Plan { status: job.status.clone().unwrap_or_default(), ..Plan::default() };
    let Some(spec) = &job.spec else { return plan };
    if spec.managed_by.as_deref().is_some_and(|by| by != "kubernetes.io/job-controller") {
        return plan;
    }
    if finished(job).is_some() {
        plan.release = pods.iter().filter(|pod| pod::is_tracked(pod)).map(|pod| name(pod)).collect();
        return plan;
    }
    let mut count = tally(spec, pods, &mut plan.status);
    let ready = count.active.iter().filter(|pod| pod::is_ready(pod)).count();
    let suspended = spec.suspend == Some(true);
    if !suspended && plan.status.start_time.is_none() {
        plan.status.start_time = at(now);
    }
    let outcome = Outcome::of(job, &count, suspended, now);
    release(&count, pods, outcome.is_some(), &mut plan);
    if let Some(outcome) = outcome {
        let rest: Vec<String> = count.active.iter().map(|pod| name(pod)).collect();
        let terminating = count.terminating.len() + rest.len();
        // Who is not needed any more has not failed.
        *(if outcome.succeeds { &mut plan.drop } else { &mut plan.delete }) = rest;
        count.active.clear();
        let settled = terminating == 0 && !pods.iter().any(|pod| pod::is_tracked(pod)) && is_settled(&plan.status);
        conditions::finish(&outcome, settled, now, &mut plan);
        return fill_in(plan, 0, 0, terminating);
    }
    conditions::suspend(suspended, job, now, &mut plan);
    conditions::mind_deadline(spec, now, &mut plan);
    if job.metadata.deletion_timestamp.is_none() {
        wanted::manage(job, &count, pods, suspended, now, &mut plan);
    }
    let active = count.active.len() - plan.drop.len() + plan.create.len();
    let terminating = count.terminating.len() + plan.drop.len();
    fill_in(plan, active, ready, terminating)
}

/// When a finished Job is to be deleted, if ever.
pub fn expires(job: &Job) -> Option<Timestamp> {
    let ttl = job.spec.as_ref()?.ttl_seconds_after_finished?;
    let how = finished(job)?;
    let conditions = job.status.as_ref()?.conditions.as_ref()?;
    let at = conditions.iter().find(|one| one.type_ == how)?.last_transition_time.as_ref()?.0;
    at.checked_add(SignedDuration::from_secs(i64::from(ttl))).ok()
}

pub(super) fn name(pod: &Pod) -> String {
    pod.metadata.name.clone().unwrap_or_default()
}

/// Counts Pods, and writes into the status which of them are to be counted.
fn tally<'a>(spec: &'a JobSpec, pods: &[&'a Pod], status: &mut JobStatus) -> Count<'a> {
    let is_indexed = spec.completion_mode.as_deref() == Some("Indexed");
    let indexed = is_indexed.then(|| spec.completions.unwrap_or(0));
    let waiting = status.uncounted_terminated_pods.take().unwrap_or_default();
    let tracked: BTreeSet<&str> = pods.iter().filter(|pod| pod::is_tracked(pod)).map(|pod| pod::uid(pod)).collect();
    let settle = |uids: Option<Vec<String>>, counter: &mut Option<i32>| -> Vec<String> {
        let (waiting, counted): (Vec<_>, Vec<_>) =
            uids.unwrap_or_default().into_iter().partition(|uid| tracked.contains(uid.as_str()));
        let more = i32::try_from(counted.len()).unwrap_or(i32::MAX);
        *counter = Some(counter.unwrap_or(0).saturating_add(more));
        waiting
    };
    let mut failed = settle(waiting.failed, &mut status.failed);
    let mut succeeded = settle(waiting.succeeded, &mut status.succeeded);
    let known = |text: &Option<String>| indexes::parse(text.as_deref().unwrap_or_default(), indexed.unwrap_or(0));
    let mut count = Count {
        spec,
        indexed,
        active: pods.iter().filter(|pod| pod::is_active(pod)).copied().collect(),
        terminating: pods.iter().filter(|pod| pod::is_terminating(pod) && !pod::is_over(pod)).copied().collect(),
        succeeded: 0,
        failed: 0,
        completed: known(&status.completed_indexes),
        failed_indexes: known(&status.failed_indexes),
        fails_job: None,
    };
    for one in pods.iter().filter(|pod| pod::is_tracked(pod)) {
        let uid = pod::uid(one).to_owned();
        let index = pod::index(one).filter(|index| indexed.is_some_and(|all| *index < all));
        if indexed.is_some() && index.is_none() {
            continue;
        }
        if pod::phase(one) == "Succeeded" && !failed.contains(&uid) {
            match index {
                Some(index) => drop(count.completed.insert(index)),
                None if !succeeded.contains(&uid) => succeeded.push(uid),
                None => {}
            }
        } else if has_failed(spec, one) {
            match meaning(spec, one) {
                Meaning::Ignored => continue,
                Meaning::Counts => {}
                Meaning::FailsIndex => count.failed_indexes.extend(index),
                Meaning::FailsJob(why) => count.fails_job = count.fails_job.or(Some(why)),
            }
            if spec.backoff_limit_per_index.is_some_and(|limit| pod::failures_before(one) >= limit) {
                count.failed_indexes.extend(index);
            }
            if !failed.contains(&uid) {
                failed.push(uid);
            }
        }
    }
    count.failed_indexes.retain(|index| !count.completed.contains(index));
    if is_indexed {
        status.completed_indexes = Some(indexes::write(&count.completed)).filter(|text| !text.is_empty());
        status.succeeded = i32::try_from(count.completed.len()).ok();
        if spec.backoff_limit_per_index.is_some() {
            status.failed_indexes = Some(indexes::write(&count.failed_indexes));
        }
    }
    let with = |counted: Option<i32>, more: usize| {
        counted.unwrap_or(0).saturating_add(i32::try_from(more).unwrap_or(i32::MAX))
    };
    count.succeeded = with(status.succeeded, succeeded.len());
    count.failed = with(status.failed, failed.len());
    let list = |uids: Vec<String>| Some(uids).filter(|uids| !uids.is_empty());
    status.uncounted_terminated_pods =
        Some(UncountedTerminatedPods { failed: list(failed), succeeded: list(succeeded) });
    count
}

/// Whether a Pod that is only being deleted is as good as failed depends on when it may be replaced.
pub(super) fn has_failed(spec: &JobSpec, one: &Pod) -> bool {
    match pod::phase(one) {
        "Failed" => true,
        "Succeeded" => false,
        _ => pod::is_terminating(one) && !replaces_only_failed(spec),
    }
}

pub(super) fn replaces_only_failed(spec: &JobSpec) -> bool {
    spec.pod_replacement_policy.as_deref() == Some("Failed") || spec.pod_failure_policy.is_some()
}

/// Pods that are in the status by now need not stay.
fn release(count: &Count<'_>, pods: &[&Pod], ends: bool, plan: &mut Plan) {
    for one in pods.iter().filter(|pod| pod::is_tracked(pod)) {
        let over = pod::phase(one) == "Succeeded" || has_failed(count.spec, one);
        if over && (ends || !remembers_failures(count, pods, one)) {
            plan.release.push(name(one));
        }
    }
}

/// The last failed Pod of an index is all that knows how often the index failed, until another follows.
fn remembers_failures(count: &Count<'_>, pods: &[&Pod], one: &Pod) -> bool {
    let Some(index) = pod::index(one).filter(|_| count.spec.backoff_limit_per_index.is_some()) else { return false };
    let goes_on = !count.completed.contains(&index) && !count.failed_indexes.contains(&index);
    let failures = pod::failures_before(one);
    let follows = |other: &&Pod| {
        let key = |pod: &Pod| (pod::failures_before(pod), pod.metadata.uid.clone());
        pod::index(other) == Some(index) && pod::is_tracked(other) && key(other) > key(one)
    };
    goes_on && has_failed(count.spec, one) && failures < i32::MAX && !pods.iter().any(follows)
}

fn is_settled(status: &JobStatus) -> bool {
    let waiting = status.uncounted_terminated_pods.as_ref();
    waiting.is_none_or(|waiting| waiting.failed.is_none() && waiting.succeeded.is_none())
}

fn fill_in(mut plan: Plan, active: usize, ready: usize, terminating: usize) -> Plan {
    let number = |n: usize| i32::try_from(n).ok();
    let status = &mut plan.status;
    let some = |n: Option<i32>| n.filter(|n| *n > 0);
    (status.active, status.succeeded, status.failed) =
        (some(number(active)), some(status.succeeded), some(status.failed));
    (status.ready, status.terminating) = (number(ready), number(terminating));
    plan
}

/// The status of a plan whose Pods could not all be made.
pub fn with_made(mut status: JobStatus, planned: usize, made: usize) -> JobStatus {
    let missing = i32::try_from(planned.saturating_sub(made)).unwrap_or(i32::MAX);
    status.active = status.active.map(|active| active.saturating_sub(missing)).filter(|active| *active > 0);
    status
}

/// As upstream has it: ten seconds, doubled with each failure since the last success, and never more than ten minutes.
pub(super) fn back_off<'a>(
    failed: impl Iterator<Item = &'a Pod>,
    since: Option<Timestamp>,
    now: Timestamp,
) -> Option<Duration> {
    let ends: Vec<Timestamp> =
        failed.filter_map(pod::ended_at).filter(|at| since.is_none_or(|since| *at > since)).collect();
    wait_after(ends.len(), *ends.iter().max()?, now)
}

pub(super) fn wait_after(failures: usize, last: Timestamp, now: Timestamp) -> Option<Duration> {
    let doubled = 10u64 << failures.saturating_sub(1).min(6);
    let until = last.checked_add(SignedDuration::from_secs(i64::try_from(doubled.min(600)).ok()?)).ok()?;
    Duration::try_from(until.duration_since(now)).ok().filter(|left| !left.is_zero())
}

pub(super) fn at(now: Timestamp) -> Option<Time> {
    // The API has whole seconds.
    Timestamp::from_second(now.as_second()).ok().map(Time)
}
