//! One status for an object that runs on several edges. Pure.
//!
//! The rules serve clients that wait. Where more is better, a count is the smallest of the edges' counts; where less is
//! better, it is the largest. So "available" means available on every edge, and `READY 1/2` means that the worst edge
//! has one of two. A kind that has no desired number in its spec (DaemonSet) shows sums. An edge that has not reported
//! counts as one that has nothing.

mod conditions;
mod merge;

#[cfg(test)]
mod tests;

use serde_json::{Map, Value, json};

use crate::health::{Health, healthy};

/// The status of an object that is on more edges than this is not aggregated.
pub const MOST_EDGES: usize = 500;
/// References that a CronJob's status lists.
const MOST_ACTIVE: usize = 100;

/// What one edge says of an object.
#[derive(Clone, Copy, Debug)]
pub struct Reported<'a> {
    pub edge: &'a str,
    /// The object as the edge shall hold it.
    pub object: &'a Value,
    pub status: Option<&'a Value>,
    /// Whether the status is about the object as it is now. `None`: the kind does not say.
    pub current: Option<bool>,
}

impl Reported<'_> {
    fn number(&self, field: &str) -> i64 {
        self.status.and_then(|status| status.get(field)).and_then(Value::as_i64).unwrap_or_default().max(0)
    }

    fn text(&self, field: &str) -> Option<&str> {
        self.status?.get(field)?.as_str().filter(|text| !text.is_empty())
    }

    /// Whether the edge runs the object as it is declared now.
    fn is_ready(&self, collection: &str) -> bool {
        self.current != Some(false) && healthy(collection, self.object, self.status) == Health::Healthy
    }
}

/// On how many edges the object is as it should be.
pub fn ready(collection: &str, all: &[Reported<'_>]) -> usize {
    all.iter().filter(|one| one.is_ready(collection)).count()
}

/// Kinds whose source shows the status that edges report if its placement says nothing about that.
pub fn is_workload(collection: &str) -> bool {
    matches!(
        collection,
        "apps/deployments"
            | "apps/statefulsets"
            | "apps/daemonsets"
            | "apps/replicasets"
            | "core/replicationcontrollers"
            | "batch/jobs"
            | "batch/cronjobs"
            | "core/pods"
    )
}

/// Kinds whose status at the center is the center's own affair, whatever edges say of theirs.
pub fn is_local(collection: &str) -> bool {
    matches!(
        collection,
        "core/namespaces"
            | "core/resourcequotas"
            | "apiextensions.k8s.io/customresourcedefinitions"
            | "apiregistration.k8s.io/apiservices"
            | "admissionregistration.k8s.io/validatingadmissionpolicies"
            | "certificates.k8s.io/certificatesigningrequests"
    )
}

/// The status that the source object shows. Generations in it are those of the edges: see the caller.
pub fn aggregate(collection: &str, source: &Value, all: &[Reported<'_>]) -> Value {
    let mut status = match collection {
        "apps/deployments" => deployment(source, all),
        "apps/replicasets" | "core/replicationcontrollers" => replica_set(source, all),
        "apps/statefulsets" => stateful_set(source, all),
        "apps/daemonsets" => daemon_set(all),
        "batch/jobs" => return job(source, all),
        "batch/cronjobs" => cron_job(all),
        "core/pods" => pod(all),
        "core/services" | "networking.k8s.io/ingresses" => balancer(all),
        "core/persistentvolumeclaims" => claim(all),
        _ => return merge::statuses(all),
    };
    if let Some(observed) = all.iter().filter_map(|one| one.status?.get("observedGeneration")?.as_i64()).min() {
        status.insert("observedGeneration".to_owned(), observed.into());
    }
    let conditions = conditions::all(all);
    if !conditions.is_empty() {
        status.insert("conditions".to_owned(), conditions.into());
    }
    Value::Object(status)
}

/// Fields that are not zero.
fn counts<const N: usize>(fields: [(&str, i64); N]) -> Map<String, Value> {
    fields.into_iter().filter(|(_, count)| *count > 0).map(|(field, count)| (field.to_owned(), count.into())).collect()
}

fn least(all: &[Reported<'_>], of: impl Fn(&Reported<'_>) -> i64) -> i64 {
    all.iter().map(of).min().unwrap_or_default()
}

fn most(all: &[Reported<'_>], of: impl Fn(&Reported<'_>) -> i64) -> i64 {
    all.iter().map(of).max().unwrap_or_default()
}

fn replicas(object: &Value) -> i64 {
    object.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(1).max(0)
}

/// A number of an edge's replicas in terms of the source's. A Customizer may give an edge another number of them: all
/// is all there too.
fn share(count: i64, there: i64, here: i64) -> i64 {
    if there == here {
        count
    } else if count >= there {
        here
    } else {
        (count.saturating_mul(here) / there.max(1)).min(here - 1).max(0)
    }
}

/// The smallest share of the edges' replicas that have this.
fn least_share(source: &Value, all: &[Reported<'_>], field: &str) -> i64 {
    let here = replicas(source);
    least(all, |one| share(one.number(field), replicas(one.object), here))
}

fn deployment(source: &Value, all: &[Reported<'_>]) -> Map<String, Value> {
    let updated = least_share(source, all, "updatedReplicas");
    // Those of an older template, which a rollout still has to end somewhere.
    let old = most(all, |one| one.number("replicas") - one.number("updatedReplicas")).max(0);
    let replicas = updated.saturating_add(old);
    let ready = least_share(source, all, "readyReplicas").min(replicas);
    counts([
        ("replicas", replicas),
        ("updatedReplicas", updated),
        ("readyReplicas", ready),
        ("availableReplicas", least_share(source, all, "availableReplicas").min(ready)),
        ("unavailableReplicas", most(all, |one| one.number("unavailableReplicas"))),
        ("terminatingReplicas", most(all, |one| one.number("terminatingReplicas"))),
    ])
}

fn replica_set(source: &Value, all: &[Reported<'_>]) -> Map<String, Value> {
    let of = |field| least_share(source, all, field);
    let mut status = counts([
        ("fullyLabeledReplicas", of("fullyLabeledReplicas")),
        ("readyReplicas", of("readyReplicas")),
        ("availableReplicas", of("availableReplicas")),
    ]);
    status.insert("replicas".to_owned(), of("replicas").into());
    status
}

fn stateful_set(source: &Value, all: &[Reported<'_>]) -> Map<String, Value> {
    let of = |field| least_share(source, all, field);
    let mut status = counts([
        ("readyReplicas", of("readyReplicas")),
        ("currentReplicas", of("currentReplicas")),
        ("updatedReplicas", of("updatedReplicas")),
        ("availableReplicas", of("availableReplicas")),
    ]);
    status.insert("replicas".to_owned(), of("replicas").into());
    // The revisions of an edge that is not done yet, so that they differ until all are.
    let is_done = |one: &&Reported<'_>| one.text("currentRevision") == one.text("updateRevision");
    let shown = all.iter().find(|one| !is_done(one)).or_else(|| all.iter().find(|one| one.status.is_some()));
    for field in ["currentRevision", "updateRevision"] {
        if let Some(revision) = shown.and_then(|one| one.text(field)) {
            status.insert(field.to_owned(), revision.into());
        }
    }
    status
}

/// Every edge has its own nodes, and there is no number in the spec to compare with: the sums are as true as each
/// edge's numbers.
fn daemon_set(all: &[Reported<'_>]) -> Map<String, Value> {
    let sum = |field: &str| all.iter().fold(0, |sum: i64, one| sum.saturating_add(one.number(field)));
    let sum = |field: &str| sum(field).min(i64::from(i32::MAX));
    let mut status = counts([
        ("updatedNumberScheduled", sum("updatedNumberScheduled")),
        ("numberAvailable", sum("numberAvailable")),
        ("numberUnavailable", sum("numberUnavailable")),
    ]);
    for field in ["currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady"] {
        status.insert(field.to_owned(), sum(field).into());
    }
    status
}

/// Complete when it is complete on all edges, failed when it failed on one.
fn job(source: &Value, all: &[Reported<'_>]) -> Value {
    let completions = |object: &Value| object.pointer("/spec/completions").and_then(Value::as_i64).unwrap_or(1).max(0);
    let (here, mut found) = (completions(source), Vec::new());
    for kind in ["FailureTarget", "Failed", "Suspended"] {
        found.extend(conditions::any(all, kind));
    }
    let failed = |kind: &str, found: &[Value]| found.iter().find(|one| one["type"] == kind).cloned();
    if let (Some(mut end), None) = (failed("Failed", &found), failed("FailureTarget", &found)) {
        end["type"] = "FailureTarget".into();
        found.insert(0, end);
    }
    if failed("FailureTarget", &found).is_none() {
        for kind in ["SuccessCriteriaMet", "Complete"] {
            found.extend(conditions::every(all, kind));
        }
    }
    let is = |kind: &str| found.iter().any(|one| one["type"] == kind);
    let (complete, finished) = (is("Complete"), is("Complete") || is("Failed"));
    let running = |field: &str| if finished { 0 } else { most(all, |one| one.number(field)) };
    let mut status = counts([
        ("active", running("active")),
        ("ready", running("ready")),
        ("terminating", running("terminating")),
        ("succeeded", least(all, |one| share(one.number("succeeded"), completions(one.object), here))),
        ("failed", most(all, |one| one.number("failed"))),
    ]);
    if let Some(start) = all.iter().filter_map(|one| one.text("startTime")).min() {
        status.insert("startTime".to_owned(), start.into());
    }
    let end = all.iter().filter_map(|one| one.text("completionTime")).max();
    if let Some(end) = end.filter(|_| complete) {
        status.insert("completionTime".to_owned(), end.into());
    }
    if !found.is_empty() {
        status.insert("conditions".to_owned(), found.into());
    }
    Value::Object(status)
}

fn cron_job(all: &[Reported<'_>]) -> Map<String, Value> {
    let mut status = Map::new();
    let active = all.iter().filter_map(|one| one.status?.get("active")?.as_array());
    let active: Vec<Value> = active.flatten().take(MOST_ACTIVE).cloned().collect();
    if !active.is_empty() {
        status.insert("active".to_owned(), active.into());
    }
    if let Some(last) = all.iter().filter_map(|one| one.text("lastScheduleTime")).max() {
        status.insert("lastScheduleTime".to_owned(), last.into());
    }
    // The time by which it had succeeded everywhere.
    let succeeded: Option<Vec<&str>> = all.iter().map(|one| one.text("lastSuccessfulTime")).collect();
    if let Some(first) = succeeded.and_then(|times| times.into_iter().min()) {
        status.insert("lastSuccessfulTime".to_owned(), first.into());
    }
    status
}

/// The Pod of the edge that is furthest from having succeeded, without what is true of that edge only.
fn pod(all: &[Reported<'_>]) -> Map<String, Value> {
    let is_ready = |status: &Value| {
        let conditions = status.get("conditions").and_then(Value::as_array).into_iter().flatten();
        conditions.into_iter().any(|one| one["type"] == "Ready" && one["status"] == "True")
    };
    let rank = |one: &&Reported<'_>| match (one.text("phase"), one.status) {
        (Some("Failed"), _) => 0,
        (Some("Running"), Some(status)) if is_ready(status) => 4,
        (Some("Running"), _) => 3,
        (Some("Succeeded"), _) => 5,
        (Some("Pending"), _) => 2,
        _ => 1,
    };
    let worst = all.iter().min_by_key(rank).and_then(|one| one.status).and_then(Value::as_object);
    let mut status = worst.cloned().unwrap_or_default();
    for field in ["podIP", "podIPs", "hostIP", "hostIPs", "nominatedNodeName", "observedGeneration", "conditions"] {
        status.remove(field);
    }
    status.entry("phase").or_insert_with(|| "Pending".into());
    if let Some(start) = all.iter().filter_map(|one| one.text("startTime")).min() {
        status.insert("startTime".to_owned(), start.into());
    }
    status
}

/// Addresses count once every edge has some.
fn balancer(all: &[Reported<'_>]) -> Map<String, Value> {
    let of = |status: &'_ Value| -> Vec<Value> {
        let found = status.pointer("/loadBalancer/ingress").and_then(Value::as_array);
        found.map(|found| found.iter().take(MOST_ACTIVE).cloned().collect()).unwrap_or_default()
    };
    let found: Vec<Vec<Value>> = all.iter().map(|one| one.status.map(of).unwrap_or_default()).collect();
    let found: Vec<Value> = match found.iter().all(|some| !some.is_empty()) {
        true => found.into_iter().flatten().take(MOST_ACTIVE).collect(),
        false => Vec::new(),
    };
    let balancer = if found.is_empty() { json!({}) } else { json!({"ingress": found}) };
    Map::from_iter([("loadBalancer".to_owned(), balancer)])
}

fn claim(all: &[Reported<'_>]) -> Map<String, Value> {
    let mut status = match merge::statuses(all) {
        Value::Object(status) => status,
        _ => Map::new(),
    };
    let is = |phase: &'static str| move |one: &Reported<'_>| one.text("phase") == Some(phase);
    let phase = match all {
        _ if all.iter().any(is("Lost")) => "Lost",
        _ if all.iter().all(is("Bound")) => "Bound",
        _ => "Pending",
    };
    status.insert("phase".to_owned(), phase.into());
    status
}
