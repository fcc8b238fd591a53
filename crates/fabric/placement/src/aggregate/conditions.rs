//! Conditions of several edges as one list. A good condition holds if it holds on every edge, a bad one if it holds on
//! one.

use serde_json::{Value, json};

use super::Reported;

/// At most this many types of conditions are shown, each message in so many characters.
const MOST: usize = 64;
const LONGEST: usize = 1024;

/// Conditions that tell of trouble, or of something unfinished, when they are true.
fn is_bad(kind: &str) -> bool {
    matches!(kind, "Stalled" | "Degraded" | "Reconciling" | "FailureTarget" | "Suspended" | "DisruptionTarget")
        || ["Failure", "Failed", "Pressure", "Unavailable", "Error"].iter().any(|end| kind.ends_with(end))
}

fn of<'a>(one: &Reported<'a>, kind: &str) -> Option<&'a Value> {
    let all = one.status?.get("conditions")?.as_array()?;
    all.iter().find(|condition| condition["type"] == kind)
}

fn is(condition: Option<&Value>, status: &str) -> bool {
    condition.is_some_and(|condition| condition["status"] == status)
}

/// All types of conditions that edges report.
pub fn all(all: &[Reported<'_>]) -> Vec<Value> {
    let mut kinds: Vec<&str> = Vec::new();
    for one in all {
        let conditions = one.status.and_then(|status| status.get("conditions")?.as_array());
        for kind in conditions.into_iter().flatten().filter_map(|condition| condition["type"].as_str()) {
            if kinds.len() < MOST && !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
    }
    kinds.into_iter().filter_map(|kind| one(all, kind)).collect()
}

fn one(all: &[Reported<'_>], kind: &str) -> Option<Value> {
    let (worst, best) = if is_bad(kind) { ("True", "False") } else { ("False", "True") };
    let with = |status: &str| all.iter().find(|one| is(of(one, kind), status));
    if let Some(found) = with(worst) {
        return shown(all, kind, found, true);
    }
    if let Some(found) = with("Unknown") {
        return shown(all, kind, found, true);
    }
    let silent = all.iter().filter(|one| of(one, kind).is_none()).count();
    if silent > 0 && !is_bad(kind) {
        let known = all.iter().find(|one| of(one, kind).is_some())?;
        let mut condition = shown(all, kind, known, false)?;
        condition["status"] = "Unknown".into();
        condition["reason"] = "NotReported".into();
        condition["message"] = format!("{silent} of {} edges have not reported it", all.len()).into();
        return Some(condition);
    }
    // Of a Deployment that progresses everywhere, the edge that is not done yet is shown.
    let unfinished =
        |one: &&Reported<'_>| of(one, kind).is_some_and(|found| found["reason"] != "NewReplicaSetAvailable");
    let unfinished = all.iter().filter(|_| kind == "Progressing").find(unfinished);
    shown(all, kind, unfinished.or_else(|| with(best))?, false)
}

/// A condition if it is true on some edge.
pub fn any(all: &[Reported<'_>], kind: &str) -> Option<Value> {
    let found = all.iter().find(|one| is(of(one, kind), "True"))?;
    shown(all, kind, found, true)
}

/// A condition if it is true on every edge.
pub fn every(all: &[Reported<'_>], kind: &str) -> Option<Value> {
    let holds = all.iter().all(|one| is(of(one, kind), "True"));
    shown(all, kind, all.first().filter(|_| holds)?, false)
}

/// As one edge says it, with the latest times of all. `named`: the message says which edge it is.
fn shown(all: &[Reported<'_>], kind: &str, from: &Reported<'_>, named: bool) -> Option<Value> {
    let mut condition = of(from, kind)?.clone();
    for field in ["lastTransitionTime", "lastUpdateTime", "lastHeartbeatTime", "lastProbeTime"] {
        let latest = all.iter().filter_map(|one| of(one, kind)?.get(field)?.as_str()).max();
        if let Some(latest) = latest {
            condition[field] = latest.into();
        }
    }
    let message = condition["message"].as_str().unwrap_or_default();
    let message = if named { format!("on {}: {message}", from.edge) } else { message.to_owned() };
    if named || !message.is_empty() {
        condition["message"] = json!(message.chars().take(LONGEST).collect::<String>());
    }
    Some(condition)
}
