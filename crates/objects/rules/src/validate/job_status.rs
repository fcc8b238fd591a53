//! How a Job may fare: its counters, its indexes, and what may follow what.
//!
//! Whoever manages a Job writes its status, so what clients rely on is checked here. Most of it is only looked at when
//! the fields in question change: a change of the spec may leave a status behind that would be refused as a new one.

use std::collections::HashSet;

use serde_json::Value;

use super::internal;
use super::node::{Node, Quoted};

/// One of the two statuses that are compared, with the spec that it belongs to.
#[derive(Clone, Copy)]
struct Job<'a> {
    spec: Node<'a>,
    status: Node<'a>,
}

impl<'a> Job<'a> {
    fn of(root: Node<'a>) -> Self {
        Self { spec: root.get("spec"), status: root.get("status") }
    }

    fn is(self, condition: &str) -> bool {
        self.says(condition, "True")
    }

    fn says(self, condition: &str, status: &str) -> bool {
        let of = |c: &Value, field: &str| c.get(field).and_then(Value::as_str).unwrap_or("").to_owned();
        self.status.get("conditions").array().iter().any(|c| of(c, "type") == condition && of(c, "status") == status)
    }

    fn finished(self) -> bool {
        self.is("Complete") || self.is("Failed")
    }

    fn int(self, field: &'static str) -> i64 {
        self.status.get(field).int_or_0()
    }
}

pub(super) fn check(new: Node<'_>, old: Node<'_>) {
    let (job, was) = (Job::of(new), Job::of(old));
    counters(job);
    uncounted(job.status.get("uncountedTerminatedPods"));
    ends(job, was);
    rest_of_finished(job, was);
    indexes(job, was);
    pods(job, was);
    transitions(job, was);
}

fn counters(job: Job<'_>) {
    for field in ["active", "succeeded", "failed", "ready", "terminating"] {
        job.status.get(field).non_negative();
    }
}

fn uncounted(pods: Node<'_>) {
    let mut seen = HashSet::new();
    for list in ["succeeded", "failed"] {
        for pod in pods.get(list).items() {
            if pod.is_empty() {
                pod.invalid_str("must not be empty");
            } else if !seen.insert(pod.str()) {
                pod.duplicate();
            }
        }
    }
}

/// Conditions that end a job exclude each other, and need their reasons and times.
fn ends(job: Job<'_>, was: Job<'_>) {
    let changed = |condition: &str| job.is(condition) != was.is(condition);
    let moved = |field: &'static str| !job.status.get(field).same(was.status.get(field));
    let conditions = job.status.get("conditions");
    let (complete, failed) = (job.is("Complete"), job.is("Failed"));
    if complete && failed && (changed("Complete") || changed("Failed")) {
        conditions.wrong("cannot set Complete=True and Failed=true conditions");
    }
    if complete && job.is("FailureTarget") && (changed("Complete") || changed("FailureTarget")) {
        conditions.wrong("cannot set Complete=True and FailureTarget=true conditions");
    }
    let (start, end) = (job.status.get("startTime"), job.status.get("completionTime"));
    if changed("Complete") || moved("completionTime") {
        if end.is_set() && !complete {
            end.invalid("cannot set completionTime when there is no Complete=True condition");
        }
        if !end.is_set() && complete {
            end.required("completionTime is required for Complete jobs");
        }
    }
    // Times are kept in one form, so the text tells which is first.
    if (moved("startTime") || moved("completionTime")) && start.is_set() && end.is_set() && end.str() < start.str() {
        end.invalid("must be equal to or after `startTime`");
    }
    if failed && !job.is("FailureTarget") && (changed("Failed") || moved("failedIndexes")) {
        conditions.wrong("cannot set Failed=True condition without the FailureTarget=true condition");
    }
    if complete && !job.is("SuccessCriteriaMet") && (changed("Complete") || changed("SuccessCriteriaMet")) {
        conditions.wrong("cannot set Complete=True condition without the SuccessCriteriaMet=true condition");
    }
}

fn rest_of_finished(job: Job<'_>, was: Job<'_>) {
    if !job.finished() {
        return;
    }
    let ended = !was.finished();
    let moved = |field: &'static str| !job.status.get(field).same(was.status.get(field));
    let active = job.status.get("active");
    if job.int("active") > 0 && (ended || moved("active")) {
        active.invalid("active>0 is invalid for finished job");
    }
    let idle = job.spec.get("suspend").bool() && job.spec.get("completions").int() == Some(0);
    if !job.status.get("startTime").is_set() && (ended || moved("startTime")) && !idle {
        job.status.get("startTime").required("startTime is required for finished job");
    }
    let pods = job.status.get("uncountedTerminatedPods");
    if pods.get("failed").len() + pods.get("succeeded").len() > 0 && (ended || moved("uncountedTerminatedPods")) {
        let shown = internal::shown("UncountedTerminatedPods", pods.value);
        pods.invalid_as(shown, "must be empty for finished job");
    }
}

fn indexes(job: Job<'_>, was: Job<'_>) {
    let (completed, failed) = (job.status.get("completedIndexes"), job.status.get("failedIndexes"));
    let completed_moved = !completed.same(was.status.get("completedIndexes"));
    let failed_moved = failed.value != was.status.get("failedIndexes").value;
    let (completions, per_index) = (job.spec.get("completions"), job.spec.get("backoffLimitPerIndex"));
    let parse = |at: Node<'_>, name: &str| {
        if let Err(why) = count(at.str(), completions.int_or_0()) {
            at.invalid(&format!("error parsing {name}: {why}"));
        }
    };
    if completed_moved && completions.is_set() {
        parse(completed, "completedIndexes");
    }
    if failed_moved && completions.is_set() && per_index.is_set() && failed.is_set() {
        parse(failed, "failedIndexes");
    }
    if completed_moved && !completed.is_empty() && job.spec.get("completionMode").str() != "Indexed" {
        completed.invalid("cannot set non-empty completedIndexes when non-indexed completion mode");
    }
    if failed_moved && !per_index.is_set() && failed.is_set() {
        failed.invalid("cannot set non-null failedIndexes when backoffLimitPerIndex is null");
    }
    if (failed_moved || completed_moved) && completions.is_set() && failed.is_set() {
        let max = completions.int_or_0();
        if let (Ok(done), Ok(lost)) = (intervals(completed.str(), max), intervals(failed.str(), max))
            && let Some(index) = common(&done, &lost)
        {
            failed.invalid(&format!("failedIndexes and completedIndexes overlap at index: {index}"));
        }
    }
}

fn pods(job: Job<'_>, was: Job<'_>) {
    let moved = |field: &'static str| !job.status.get(field).same(was.status.get(field));
    let (ready, terminating) = (job.status.get("ready"), job.status.get("terminating"));
    if job.int("terminating") > 0 && job.finished() && (!was.finished() || moved("terminating")) {
        terminating.invalid("terminating>0 is invalid for finished job");
    }
    if ready.is_set() && job.int("ready") > job.int("active") && (moved("ready") || moved("active")) {
        ready.invalid("cannot set more ready pods than active");
    }
    let (conditions, met) = (job.status.get("conditions"), job.is("SuccessCriteriaMet"));
    for other in ["Failed", "FailureTarget"] {
        if met && job.is(other) {
            conditions.wrong(&format!("cannot set SuccessCriteriaMet=True and {other}=true conditions"));
        }
    }
    if job.spec.get("successPolicy").is_set() && !met && job.is("Complete") {
        conditions.wrong("cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True");
    }
}

fn transitions(job: Job<'_>, was: Job<'_>) {
    let conditions = job.status.get("conditions");
    for end in ["Failed", "Complete", "FailureTarget"] {
        if was.is(end) && !job.is(end) {
            conditions.wrong(&format!("cannot disable the terminal {end}=True condition"));
        }
    }
    // A job that is scaled by its completions may lose some that had succeeded.
    let scaled = job.spec.get("completionMode").str() == "Indexed"
        && job.spec.get("completions").same(job.spec.get("parallelism"));
    for field in ["failed", "succeeded"] {
        if job.int(field) < was.int(field) && (field == "failed" || !scaled) {
            job.status.get(field).invalid_as(job.int(field), &format!("cannot decrease the {field} counter"));
        }
    }
    let (end, old_end) = (job.status.get("completionTime"), was.status.get("completionTime"));
    if end.is_set() && old_end.is_set() && !end.same(old_end) {
        end.invalid("field is immutable");
    }
    let (start, old_start) = (job.status.get("startTime"), was.status.get("startTime"));
    let resuming = was.is("Suspended") && job.says("Suspended", "False");
    if old_start.is_set() && !start.same(old_start) && !resuming && !job.spec.get("suspend").bool() {
        start.invalid("field is immutable for unsuspended job once set");
    }
    let met = "SuccessCriteriaMet";
    if was.is(met) && !job.is(met) {
        conditions.wrong("cannot disable the SuccessCriteriaMet=True condition");
    }
    if was.is("Complete") && !was.is(met) && job.is(met) {
        conditions.wrong("cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions");
    }
}

/// How many indexes a text such as `0,2-4` names, all below `max` and in order.
pub(super) fn count(text: &str, max: i64) -> Result<i64, String> {
    Ok(intervals(text, max)?.iter().map(|(from, to)| to - from + 1).sum())
}

fn intervals(text: &str, max: i64) -> Result<Vec<(i64, i64)>, String> {
    let mut list: Vec<(i64, i64)> = Vec::new();
    for interval in text.split(',').filter(|_| !text.is_empty()) {
        let (from, to) = self::interval(interval, max)?;
        if let Some((_, last)) = list.last()
            && *last >= from
        {
            return Err(format!("non-increasing order, previous: {last}, current: {from}"));
        }
        list.push((from, to));
    }
    Ok(list)
}

fn interval(text: &str, max: i64) -> Result<(i64, i64), String> {
    let index = |part: &str| {
        let number =
            part.parse::<i64>().map_err(|_| format!("cannot convert string to integer for index: {}", Quoted(part)))?;
        if number >= max { Err(format!("too large index: {}", Quoted(part))) } else { Ok(number) }
    };
    match text.split('-').collect::<Vec<_>>()[..] {
        [one] => index(one).map(|one| (one, one)),
        [from, to] => {
            let (from, to) = (index(from)?, index(to)?);
            if from >= to {
                return Err(format!("non-increasing order, previous: {from}, current: {to}"));
            }
            Ok((from, to))
        }
        _ => Err(format!(
            "the fragment {} violates the requirement that an index interval can have at most two parts separated by '-'",
            Quoted(text)
        )),
    }
}

/// The first index that both have.
fn common(a: &[(i64, i64)], b: &[(i64, i64)]) -> Option<i64> {
    let overlaps = a.iter().flat_map(|x| b.iter().map(move |y| (x.0.max(y.0), x.1.min(y.1))));
    overlaps.filter(|(from, to)| from <= to).map(|(from, _)| from).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_counted() {
        assert_eq!(count("", 3), Ok(0));
        assert_eq!(count("0,2-4", 5), Ok(4));
        assert_eq!(count("1,1", 5), Err("non-increasing order, previous: 1, current: 1".to_owned()));
        assert_eq!(count("2-1", 5), Err("non-increasing order, previous: 2, current: 1".to_owned()));
        assert_eq!(count("5", 5), Err("too large index: \"5\"".to_owned()));
        assert_eq!(count("1-", 5), Err("cannot convert string to integer for index: \"\"".to_owned()));
        assert_eq!(common(&[(0, 3)], &[(5, 6), (2, 4)]), Some(2));
    }
}
