//! What is written of placements and summaries, as objects. Pure.

use std::collections::BTreeSet;

use kinds::ObjectKey;
use placement::{
    Id, Key,
    account::{Standing, Told},
    engine::Conflict,
    tenure::space_of,
};
use serde_json::{Value, json};

use super::wants::Wants;

/// At most this many are named in a sentence, each in so many characters.
const NAMED: usize = 3;
const LONG: usize = 240;

/// What is in the way of a placement, where, and what to do about it. Whose is there instead is not said: it is another tenant.
pub fn conflict(placement: &Id, conflict: &Conflict) -> Told {
    let reason = match conflict {
        Conflict::Untrusted { .. } => "NotTrusted",
        Conflict::Namespace { .. } | Conflict::Object { .. } => "OlderPlacement",
    };
    let message = match conflict {
        Conflict::Namespace { namespace, edge, location } => format!(
            "the namespace {namespace} belongs to another workspace on the edge {} (Location {location}), which placed it there first: \
             nothing of it goes there. Use a namespace of another name, or other Locations",
            edge.name
        ),
        Conflict::Object { object, edge, location } => format!(
            "{} goes not to the edge {} (Location {location}): an older placement of another workspace has one of the same name there. \
             Use another name, or other Locations",
            shown(object),
            edge.name
        ),
        Conflict::Untrusted { objects, location, trusts_others } => {
            let named: Vec<String> = objects.iter().take(NAMED).map(|key| shown(key)).collect();
            let more = objects.len().saturating_sub(named.len());
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            // The command adds to the list: those that are trusted already stay so, and are not named to this tenant.
            let (path, value) = match trusts_others {
                true => ("/spec/trustedWorkspaces/-", json!(&*placement.workspace)),
                false => ("/spec/trustedWorkspaces", json!([&*placement.workspace])),
            };
            let patch = json!([{"op": "add", "path": path, "value": value}]);
            format!(
                "{}{more} would concern the whole edge, and the Location {location} does not trust {} with that. Its owner can allow it: \
                 selvedge ws {} && kubectl patch location {} --type=json -p '{patch}'",
                named.join(", "),
                placement.workspace,
                location.workspace,
                location.name
            )
        }
    };
    Told { reason, message }
}

/// An object's key as people write it: without an empty namespace.
pub fn shown(key: &str) -> String {
    key.replace("//", "/")
}

/// Those of a placement's objects that another workspace may have on some edge, or that are not sent there.
pub fn lost(conflicts: &[Conflict], objects: &BTreeSet<Key>) -> BTreeSet<Key> {
    let is_lost = |key: &&Key| {
        let space = ObjectKey::parse(key).map_or("", |key| space_of(&key));
        conflicts.iter().any(|conflict| match conflict {
            Conflict::Namespace { namespace, .. } => namespace == space,
            Conflict::Untrusted { objects, .. } => objects.binary_search(key).is_ok(),
            Conflict::Object { object, .. } => object == *key,
        })
    };
    if conflicts.is_empty() { BTreeSet::new() } else { objects.iter().filter(is_lost).cloned().collect() }
}

/// A condition: its type, whether it is so, a reason and words.
pub type Condition = (&'static str, bool, &'static str, String);

/// Brings an EdgePlacement's status up to date; what others say there stays. False if it says all that already.
/// `other_kinds`: see [`Wants::unmet`].
pub fn placement(value: &mut Value, standing: &Standing, other_kinds: bool, now: &str) -> bool {
    let generation = value["metadata"]["generation"].clone();
    let before = value.get("status").cloned().unwrap_or_default();
    let mut status = if before.is_object() { before.clone() } else { json!({}) };
    status["observedGeneration"] = generation.clone();
    status["specGeneration"] = generation.clone();
    for (field, count) in [
        ("matchingLocationCount", standing.locations),
        ("matched", standing.matched),
        ("inSync", standing.in_sync),
        ("behind", standing.behind),
        ("offline", standing.offline),
        ("failing", standing.failing),
    ] {
        status[field] = count.into();
    }
    let broken: Vec<Value> = standing.broken.iter().map(broken).collect();
    status["broken"] = broken.into();
    let mut wanted = wanted(standing);
    wanted.push(not_shown(&value["spec"], standing.matched, other_kinds));
    settle(&mut status, &wanted, &generation, now);
    let changed = status != before;
    value["status"] = status;
    changed
}

fn broken(one: &placement::account::Broken) -> Value {
    let mut told = json!({"object": &*one.object, "reason": short(&one.reason)});
    for (field, text) in [("location", &one.location), ("edge", &one.edge)] {
        if !text.is_empty() {
            told[field] = (**text).into();
        }
    }
    if let Some(key) = ObjectKey::parse(&one.object) {
        told["name"] = key.name.into();
        if !key.namespace.is_empty() {
            told["namespace"] = key.namespace.into();
        }
    }
    told
}

/// Whether a status that is asked for at the source cannot be shown there, and what to do about it.
fn not_shown(spec: &Value, edges: usize, other_kinds: bool) -> Condition {
    match Wants::read(spec).unmet(edges, other_kinds) {
        Some((reason, text)) => ("StatusNotShown", true, reason, text),
        None => ("StatusNotShown", false, "Settled", String::new()),
    }
}

fn wanted(standing: &Standing) -> Vec<Condition> {
    let Standing { matched, in_sync, behind, offline, failing, .. } = standing;
    let ready = match standing {
        Standing { matched: 0, .. } => (
            "Ready",
            false,
            "NothingMatches",
            "no Location with an edge is selected by spec.locationSelectors".to_owned(),
        ),
        Standing { failing: 1.., .. } => (
            "Ready",
            false,
            "Failing",
            format!("something is wrong on {failing} of {matched} edges: see status.broken"),
        ),
        Standing { behind: 1.., .. } => {
            ("Ready", false, "Behind", format!("{behind} of {matched} edges do not hold everything yet"))
        }
        Standing { conflicts, .. } if !conflicts.is_empty() => {
            ("Ready", false, "Conflict", "some objects do not go to all edges: see the condition Conflict".to_owned())
        }
        Standing { offline: 1.., .. } => {
            ("Ready", false, "Offline", format!("{offline} of {matched} edges are offline"))
        }
        _ => ("Ready", true, "InSync", format!("{in_sync} of {matched} edges hold everything")),
    };
    // They end with what to do, so they are not cut.
    let conflicts: Vec<String> = standing.conflicts.iter().map(|told| told.message.clone()).collect();
    let conflict = (!conflicts.is_empty()).then(|| listed(&conflicts, Clone::clone));
    let why = standing.conflicts.first().map_or("Settled", |told| told.reason);
    let faults: Vec<String> = standing
        .faults
        .iter()
        .map(|fault| {
            let location = fault.location.as_ref().map(|id| format!(" at {id}")).unwrap_or_default();
            let path = if fault.path.is_empty() { String::new() } else { format!(" at path {}", fault.path) };
            format!("{}{location} is held back:{path} {}", shown(&fault.object), fault.reason)
        })
        .collect();
    let refused = standing.broken.iter().filter(|one| one.refused);
    let refused: Vec<String> =
        refused.map(|one| format!("{} at {}: {}", shown(&one.object), one.location, one.reason)).collect();
    let trouble = |kind, reason, text: Option<String>| {
        let there = text.is_some();
        (kind, there, if there { reason } else { "Settled" }, text.unwrap_or_default())
    };
    vec![
        ready,
        trouble("Conflict", why, conflict),
        trouble("CustomizationFailed", "Held", (!faults.is_empty()).then(|| some(&faults))),
        trouble("Refused", "RefusedByEdges", (!refused.is_empty()).then(|| some(&refused))),
    ]
}

fn some(all: &[String]) -> String {
    listed(all, |text| short(text))
}

fn listed(all: &[String], show: impl Fn(&String) -> String) -> String {
    let named: Vec<String> = all.iter().take(NAMED).map(show).collect();
    let more = all.len().saturating_sub(named.len());
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    format!("{}{more}", named.join("; "))
}

/// Puts conditions in. Trouble that never was need not be said to be gone.
pub fn settle(status: &mut Value, wanted: &[Condition], generation: &Value, now: &str) {
    let mut all = status["conditions"].as_array().cloned().unwrap_or_default();
    for (kind, is, reason, message) in wanted {
        let state = if *is { "True" } else { "False" };
        let known = all.iter().position(|condition| condition["type"] == *kind);
        if known.is_none() && !is && *kind != "Ready" {
            continue;
        }
        let mut new = json!({"type": kind, "status": state, "reason": reason, "message": message,
            "observedGeneration": generation, "lastTransitionTime": now});
        match known.and_then(|at| all.get_mut(at)) {
            Some(old) => {
                if old["status"] == state {
                    new["lastTransitionTime"] = old["lastTransitionTime"].take();
                }
                *old = new;
            }
            None => all.push(new),
        }
    }
    status["conditions"] = all.into();
}

/// Brings a CombinedStatus up to date. `told` is what the summary says, or all that is wrong with its collector.
pub fn combined(value: &mut Value, told: Result<&Value, &[String]>, generation: i64, now: &str) -> bool {
    let before = value.clone();
    let nothing = json!({"results": [], "broken": [], "errors": [], "summary": {}});
    let parts = told.unwrap_or(&nothing);
    for part in ["results", "broken", "errors", "summary"] {
        value[part] = parts[part].clone();
    }
    value["summary"]["message"] = message(told).into();
    let ready = match told {
        Ok(told) if told["summary"]["errors"] != 0 => {
            let first = told["errors"][0]["message"].as_str().unwrap_or_default();
            (
                "Ready",
                false,
                "ExpressionFailed",
                format!("of {} rows something could not be said: {first}", told["summary"]["errors"]),
            )
        }
        Ok(_) => ("Ready", true, "Computed", String::new()),
        Err(wrong) => ("Ready", false, "Invalid", some(wrong)),
    };
    let mut status = value.get("status").filter(|status| status.is_object()).cloned().unwrap_or_else(|| json!({}));
    status["observedGeneration"] = generation.into();
    settle(&mut status, &[ready], &generation.into(), now);
    value["status"] = status;
    *value != before
}

fn message(told: Result<&Value, &[String]>) -> String {
    let Ok(told) = told else { return "the collector is not valid".to_owned() };
    let of = |field: &str| told["summary"][field].as_u64().unwrap_or_default();
    let mut text = format!("{} of {} rows", of("selected"), of("rows"));
    for (field, word) in [("groups", "groups"), ("stale", "stale"), ("broken", "broken"), ("errors", "not understood")]
    {
        if of(field) > 0 {
            text.push_str(&format!(", {} {word}", of(field)));
        }
    }
    let listed = |part: &str| told[part].as_array().map_or(0, |listed| listed.len() as u64);
    for (cut, part) in [("cutOff", "results"), ("brokenCutOff", "broken")] {
        if of(cut) > 0 {
            text.push_str(&format!(", {} of {} {part} not listed (spec.limit)", of(cut), of(cut) + listed(part)));
        }
    }
    text
}

pub fn short(text: &str) -> String {
    match text.char_indices().nth(LONG) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::condition;
    use placement::{Fault, Id};

    fn told(reason: &'static str) -> Told {
        Told { reason, message: "x".into() }
    }

    #[test]
    fn a_placement_says_how_it_stands_and_keeps_what_others_say() {
        let mut value = json!({"metadata": {"generation": 3}, "status": {"rollout": {"phase": "Done"}}});
        let standing = Standing { locations: 2, matched: 3, in_sync: 3, ..Standing::default() };
        assert!(placement(&mut value, &standing, false, "t1"));
        assert!(!placement(&mut value, &standing, false, "t2"), "nothing is new");
        assert_eq!((&value["status"]["specGeneration"], &value["status"]["inSync"]), (&json!(3), &json!(3)));
        assert_eq!(value["status"]["rollout"]["phase"], "Done");
        assert_eq!(condition(&value, "Ready").unwrap()["status"], "True");
        assert!(condition(&value, "Conflict").is_none());

        let fault = Fault {
            object: "apps/deployments/a/b".into(),
            location: Some(Id::new("root:imw", "florin")),
            path: "$.spec.x".into(),
            reason: "is no number".into(),
        };
        let standing = Standing {
            in_sync: 2,
            failing: 1,
            faults: vec![fault],
            conflicts: vec![told("OlderPlacement")],
            ..standing
        };
        assert!(placement(&mut value, &standing, false, "t3"));
        let held = condition(&value, "CustomizationFailed").unwrap();
        assert_eq!(
            held["message"],
            "apps/deployments/a/b at root:imw:florin is held back: at path $.spec.x is no number"
        );
        assert_eq!(
            (&held["status"], &condition(&value, "Ready").unwrap()["reason"]),
            (&json!("True"), &json!("Failing"))
        );

        let standing = Standing { matched: 0, ..Standing::default() };
        assert!(placement(&mut value, &standing, false, "t4"));
        assert_eq!(condition(&value, "CustomizationFailed").unwrap()["status"], "False");
        assert_eq!(condition(&value, "Ready").unwrap()["reason"], "NothingMatches");
        assert_eq!(condition(&value, "Ready").unwrap()["lastTransitionTime"], "t3", "it was not ready before");
    }

    #[test]
    fn the_command_for_trust_adds_to_what_is_trusted() {
        let (id, location) = (Id::new("root:shop", "web"), Id::new("root:imw", "florin"));
        let say = |trusts_others| {
            let objects = vec!["core/namespaces//x".into()];
            conflict(&id, &Conflict::Untrusted { objects, location: location.clone(), trusts_others })
        };
        let told = say(false);
        assert!(told.message.starts_with("core/namespaces/x would concern the whole edge"), "{}", told.message);
        let command = "selvedge ws root:imw && kubectl patch location florin --type=json -p";
        for (others, path, value) in [(false, "", r#"["root:shop"]"#), (true, "/-", r#""root:shop""#)] {
            let told = say(others);
            let patch = format!(r#"'[{{"op":"add","path":"/spec/trustedWorkspaces{path}","value":{value}}}]'"#);
            assert!(told.message.ends_with(&format!(": {command} {patch}")), "{}", told.message);
            assert_eq!(told.reason, "NotTrusted");
        }
    }

    #[test]
    fn a_placement_that_lost_a_conflict_is_not_ready() {
        let mut value = json!({"metadata": {"generation": 1}});
        let standing = Standing {
            locations: 1,
            matched: 1,
            in_sync: 1,
            conflicts: vec![told("OlderPlacement")],
            ..Standing::default()
        };
        placement(&mut value, &standing, false, "t1");
        let ready = condition(&value, "Ready").unwrap();
        assert_eq!((&ready["status"], &ready["reason"]), (&json!("False"), &json!("Conflict")));
    }

    #[test]
    fn a_status_that_cannot_be_shown_is_explained() {
        let say = |spec: Value, edges: usize| {
            let mut value = json!({"metadata": {"generation": 1}, "spec": spec});
            placement(&mut value, &Standing { matched: edges, in_sync: edges, ..Standing::default() }, true, "t1");
            condition(&value, "StatusNotShown").map(|one| one["reason"].as_str().unwrap().to_owned())
        };
        let (one, several) = (json!({"wantSingletonReportedState": true}), json!({"wantMultiWECReportedState": true}));
        assert_eq!((say(one.clone(), 1), say(several, 2), say(json!({}), 2)), (None, None, None));
        assert_eq!(say(one, 2).as_deref(), Some("SeveralEdges"));
    }

    #[test]
    fn an_answer_says_what_is_wrong_with_its_question() {
        let mut value = json!({"metadata": {"name": "c"}});
        let wrong = ["spec.filter: nonsense".to_owned()];
        assert!(combined(&mut value, Err(&wrong), 2, "t1"));
        assert!(!combined(&mut value, Err(&wrong), 2, "t2"));
        assert_eq!(condition(&value, "Ready").unwrap()["message"], "spec.filter: nonsense");
        let told = json!({"results": [{"x": 1}], "broken": [], "errors": [], "summary": {"rows": 4, "selected": 3, "groups": 1, "stale": 2, "broken": 0, "errors": 0}});
        assert!(combined(&mut value, Ok(&told), 3, "t3"));
        assert_eq!(value["summary"]["message"], "3 of 4 rows, 1 groups, 2 stale");
        let mut cut = told.clone();
        (cut["summary"]["cutOff"], cut["summary"]["brokenCutOff"]) = (2.into(), 7.into());
        let text = message(Ok(&cut));
        assert!(text.contains(", 2 of 3 results not listed (spec.limit)"), "{text}");
        assert!(text.ends_with(", 7 of 7 broken not listed (spec.limit)"), "{text}");
        assert_eq!((&value["results"], &value["status"]["observedGeneration"]), (&json!([{"x": 1}]), &json!(3)));
        assert_eq!(condition(&value, "Ready").unwrap()["status"], "True");
    }
}
