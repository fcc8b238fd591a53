//! What has to be done for a CronJob: start a Job or not, and which finished ones go. Pure.

use std::time::Duration;

use jiff::{
    SignedDuration, Timestamp,
    tz::{Offset, TimeZone},
};
use k8s_openapi::{
    api::{
        batch::v1::{CronJob, CronJobSpec, CronJobStatus, Job},
        core::v1::ObjectReference,
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};

use super::cron::Schedule;
use crate::job::{finished, succeeded_at};
use controllers::{note::Note, owner};

/// When the Job should have started, as it says itself.
pub const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";
/// More missed starts than this are worth a warning.
const MANY: usize = 100;
/// A last start that is further ahead than this was written by a clock that was wrong.
const AHEAD: SignedDuration = SignedDuration::from_mins(10);
/// After so many missed starts the way to the last one is shortened.
const STEPS: usize = 1000;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Names of Jobs that make way for the new one.
    pub replace: Vec<String>,
    pub create: Option<Box<Job>>,
    /// What the status becomes; the active list lacks the Job to create, whose uid nobody knows yet.
    pub status: CronJobStatus,
    /// Names of finished Jobs. They go when the status is written: until then they are all that says that they ran.
    pub delete: Vec<String>,
    pub notes: Vec<Note>,
    /// Look again after this, if nothing happens before.
    pub again: Option<Duration>,
}

impl Plan {
    fn note(&mut self, warning: bool, reason: &'static str, message: String) {
        self.notes.push(Note { warning, reason, message });
    }

    fn remove(&mut self, job: &Job, replaced: bool) {
        let (Some(name), uid) = (&job.metadata.name, &job.metadata.uid) else { return };
        self.note(false, "SuccessfulDelete", format!("Deleted job {name}"));
        let into = if replaced { &mut self.replace } else { &mut self.delete };
        into.push(name.clone());
        if let Some(active) = &mut self.status.active {
            active.retain(|one| one.uid != *uid);
        }
    }
}

/// `jobs` are those that the CronJob controls.
pub fn decide(cron: &CronJob, jobs: &[&Job], now: Timestamp) -> Plan {
    let mut plan = Plan { status: cron.status.clone().unwrap_or_default(), ..Plan::default() };
    let spec = &cron.spec;
    look_at_jobs(cron, jobs, &mut plan);
    if cron.metadata.deletion_timestamp.is_none() {
        start(cron, spec, jobs, now, &mut plan);
    }
    clean_up(spec, jobs, &mut plan);
    if plan.status.active.as_ref().is_some_and(Vec::is_empty) {
        plan.status.active = None;
    }
    plan
}

fn look_at_jobs(cron: &CronJob, jobs: &[&Job], plan: &mut Plan) {
    let mut active = plan.status.active.take().unwrap_or_default();
    for job in jobs {
        let (uid, name) = (&job.metadata.uid, job.metadata.name.as_deref().unwrap_or_default());
        let listed = active.iter().any(|one| one.uid == *uid);
        match finished(job) {
            None if !listed => {
                // The answer to its creation may not have come into the status: it is taken in now.
                if owns_by_schedule(cron, job) {
                    active.push(reference(job));
                } else {
                    plan.note(
                        true,
                        "UnexpectedJob",
                        format!("Saw a job that the controller did not create or forgot: {name}"),
                    );
                }
            }
            Some(how) if listed => {
                active.retain(|one| one.uid != *uid);
                plan.note(false, "SawCompletedJob", format!("Saw completed job: {name}, condition: {how}"));
            }
            _ => {}
        }
        if let Some(at) = succeeded_at(job)
            && plan.status.last_successful_time.as_ref().is_none_or(|last| last.0 < at)
        {
            plan.status.last_successful_time = Some(Time(at));
        }
    }
    active.retain(|one| {
        let there = jobs.iter().any(|job| job.metadata.uid == one.uid);
        if !there {
            let name = one.name.as_deref().unwrap_or_default();
            plan.notes.push(Note {
                warning: false,
                reason: "MissingJob",
                message: format!("Active job went missing: {name}"),
            });
        }
        there
    });
    plan.status.active = Some(active);
}

fn owns_by_schedule(cron: &CronJob, job: &Job) -> bool {
    let annotations = job.metadata.annotations.as_ref();
    let name = cron.metadata.name.as_deref().unwrap_or_default();
    annotations.is_some_and(|all| all.contains_key(SCHEDULED))
        && job.metadata.name.as_deref().and_then(|job| job.strip_prefix(name)).is_some_and(|rest| rest.starts_with('-'))
}

pub fn reference(job: &Job) -> ObjectReference {
    ObjectReference {
        api_version: Some("batch/v1".into()),
        kind: Some("Job".into()),
        name: job.metadata.name.clone(),
        namespace: job.metadata.namespace.clone(),
        uid: job.metadata.uid.clone(),
        resource_version: job.metadata.resource_version.clone(),
        ..ObjectReference::default()
    }
}

fn start(cron: &CronJob, spec: &CronJobSpec, jobs: &[&Job], now: Timestamp, plan: &mut Plan) {
    let zone = match &spec.time_zone {
        None => TimeZone::UTC,
        Some(name) => match TimeZone::get(name) {
            Ok(zone) => zone,
            Err(error) => {
                return plan.note(true, "UnknownTimeZone", format!("invalid timeZone: {name:?}: {error}"));
            }
        },
    };
    if spec.suspend == Some(true) {
        return;
    }
    let schedule = match Schedule::parse(&spec.schedule) {
        Ok(schedule) => schedule,
        Err(error) => {
            return plan.note(
                true,
                "UnparseableSchedule",
                format!("unparseable schedule: {:?}: {error}", spec.schedule),
            );
        }
    };
    // Upstream waits until that time comes once more. A machine without a clock of its own may have been in any year when it started.
    if plan.status.last_schedule_time.as_ref().is_some_and(|last| last.0.duration_since(now) > AHEAD) {
        plan.status.last_schedule_time = Some(Time(now));
    }
    let last = plan.status.last_schedule_time.as_ref().map(|time| time.0);
    let since = last.or(cron.metadata.creation_timestamp.as_ref().map(|time| time.0)).unwrap_or(now);
    let (due, missed) = latest(&schedule, &zone, since, spec.starting_deadline_seconds, now);
    if missed > MANY {
        plan.note(
            true,
            "TooManyMissedTimes",
            "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew".into(),
        );
    }
    let from = due.unwrap_or(now).max(now);
    plan.again = schedule.next(from, &zone).and_then(|next| Duration::try_from(next.duration_since(now)).ok());
    let Some(due) = due else { return };
    if let Some(deadline) = spec.starting_deadline_seconds
        && now.duration_since(due) > SignedDuration::from_secs(deadline)
    {
        return plan.note(true, "MissSchedule", format!("Missed scheduled time to start a job: {due}"));
    }
    let name = job_name(cron, due);
    let is_there = jobs.iter().any(|job| job.metadata.name.as_ref() == Some(&name));
    if is_there {
        plan.status.last_schedule_time = plan.status.last_schedule_time.take().max(Some(Time(due)));
    }
    if is_there || last == Some(due) {
        return;
    }
    let active = plan.status.active.clone().unwrap_or_default();
    match spec.concurrency_policy.as_deref() {
        Some("Forbid") if !active.is_empty() => {
            let message = "Not starting job because prior execution is running and concurrency policy is Forbid";
            return plan.note(false, "JobAlreadyActive", message.into());
        }
        Some("Replace") => {
            for job in jobs.iter().filter(|job| active.iter().any(|one| one.uid == job.metadata.uid)) {
                plan.remove(job, true);
            }
        }
        _ => {}
    }
    plan.note(false, "SuccessfulCreate", format!("Created job {name}"));
    plan.create = Some(Box::new(job_of(cron, spec, name, due, &zone)));
    plan.status.last_schedule_time = Some(Time(due));
}

/// The last time that is due, and how many there were.
fn latest(
    schedule: &Schedule,
    zone: &TimeZone,
    since: Timestamp,
    deadline: Option<i64>,
    now: Timestamp,
) -> (Option<Timestamp>, usize) {
    let earliest = deadline.and_then(|seconds| now.checked_sub(SignedDuration::from_secs(seconds)).ok());
    let mut at = earliest.map_or(since, |earliest| earliest.max(since));
    let (mut due, mut missed, mut step) = (None, 0, 0);
    while let Some(next) = schedule.next(at, zone).filter(|next| *next <= now) {
        (due, missed, step) = (Some(next), missed + 1, step + 1);
        at = next;
        if step >= STEPS {
            // Far behind, after a long time without power: half of the way at once, as long as one is due after that.
            step = 0;
            let half = now.duration_since(at).checked_div(2).unwrap_or_default();
            let jump =
                at.checked_add(half).ok().filter(|jump| schedule.next(*jump, zone).is_some_and(|next| next <= now));
            at = jump.unwrap_or(at);
        }
    }
    (due, missed)
}

fn job_name(cron: &CronJob, due: Timestamp) -> String {
    format!("{}-{}", cron.metadata.name.as_deref().unwrap_or_default(), due.as_second() / 60)
}

fn job_of(cron: &CronJob, spec: &CronJobSpec, name: String, due: Timestamp, zone: &TimeZone) -> Job {
    let template = spec.job_template.metadata.clone().unwrap_or_default();
    let mut annotations = template.annotations.unwrap_or_default();
    let local = due.to_zoned(zone.clone());
    annotations.insert(
        SCHEDULED.into(),
        local
            .strftime(if local.offset() == Offset::UTC { "%Y-%m-%dT%H:%M:%SZ" } else { "%Y-%m-%dT%H:%M:%S%:z" })
            .to_string(),
    );
    Job {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: cron.metadata.namespace.clone(),
            labels: template.labels,
            annotations: Some(annotations),
            owner_references: owner::reference(cron).map(|reference| vec![reference]),
            ..ObjectMeta::default()
        },
        spec: spec.job_template.spec.clone(),
        status: None,
    }
}

/// Of the finished ones, the newest stay.
fn clean_up(spec: &CronJobSpec, jobs: &[&Job], plan: &mut Plan) {
    for (how, limit) in [("Complete", spec.successful_jobs_history_limit), ("Failed", spec.failed_jobs_history_limit)] {
        let Some(limit) = limit.and_then(|limit| usize::try_from(limit).ok()) else { continue };
        let mut done: Vec<&Job> = jobs.iter().filter(|job| finished(job) == Some(how)).copied().collect();
        done.sort_by_key(|job| {
            let start = job.status.as_ref().and_then(|status| status.start_time.as_ref()).map(|time| time.0);
            (start.is_none(), start, job.metadata.name.clone())
        });
        for job in done.iter().take(done.len().saturating_sub(limit)) {
            plan.remove(job, false);
        }
    }
}
