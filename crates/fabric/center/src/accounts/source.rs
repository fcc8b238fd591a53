//! What a placed object shows at the center: how many edges hold it, and the status that they report.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use bytes::Bytes;
use cache::object::Object;
use kinds::{EdgeId, ObjectKey, names};
use placement::{
    Id,
    account::Source,
    aggregate::{self, Reported},
    health,
};
use schema::status::{Result, Status};
use serde_json::{Value, json};
use server::internal::Internal;

use super::{
    keeper::Keeper,
    wants::{SINGLETON, Showing, Wants, is_others, is_ours, is_shown},
    write::{Place, change},
};
use crate::{bound, reports, rollouts::facts};

/// Kinds that run once. What an edge reported before the source was made is about another object of the same name.
const RUN_ONCE: [&str; 2] = ["core/pods", "batch/jobs"];

/// What edges say of an object, as its source shows it.
struct Shown {
    status: Value,
    /// On how many of how many edges it is ready.
    edges: Option<String>,
}

/// What one edge shall hold, and what it said.
struct OfEdge {
    name: String,
    content: Option<Bytes>,
    object: Arc<Value>,
    state: Option<Value>,
}

impl Keeper {
    /// Brings a source object's annotations and status up to date.
    pub async fn source(&self, source: &Source) -> Result<()> {
        let (workspace, text) = source;
        let Some(key) = ObjectKey::parse(text) else { return Ok(()) };
        let Some(object) = bound::source(&self.server, workspace, &key) else { return Ok(()) };
        let value = object.value();
        if value.pointer("/metadata/deletionTimestamp").is_some() {
            return Ok(());
        }
        let Some(place) = Place::of_object(&key, &value) else { return Ok(()) };
        let hand = Internal::new(&self.server, workspace, SINGLETON).relaying_status();
        let (edges, held) = self.accounts.held(source);
        let count = self.accounts.any(source, |_| true).then(|| held.to_string());
        let reports = has_status(&hand, &place) && !aggregate::is_local(key.collection);
        let is_shown = reports && is_shown(self.showing(source, edges.len()), edges.len(), key.collection, &value);
        let shown = match is_shown {
            true => self.reported_by(source, &object, &edges).await?,
            false => None,
        };
        let ready = shown.as_ref().and_then(|shown| shown.edges.as_deref());
        let annotated = |value: &mut Value| {
            let counted = annotate(value, names::EXECUTING_COUNT, count.as_deref());
            annotate(value, names::EDGES, ready) || counted
        };
        let status = shown.as_ref().map(|shown| &shown.status);
        if reports && (status.is_some() || is_ours(&value) && !is_others(&value)) {
            // A write of a workload's status takes annotations along, so that both are one write.
            change(&hand, &place, "status", |value| {
                let before = value.get("status").cloned().unwrap_or_else(|| json!({}));
                let wanted = wanted(key.collection, status, &before);
                if before == wanted {
                    return false;
                }
                annotated(value);
                value["status"] = wanted;
                true
            })
            .await?;
        }
        change(&self.hand(workspace), &place, "", annotated).await
    }

    /// The answer of all placements that select an object; none if no placement does.
    fn showing(&self, source: &Source, edges: usize) -> Option<Showing> {
        self.accounts.selecting(source).filter_map(|id| self.wants.get(id)).map(|wants| wants.showing(edges)).max()
    }

    /// How many reports a refresh of a source reads, about.
    pub fn reports_to_read(&self, source: &Source) -> usize {
        let Some(key) = ObjectKey::parse(&source.1) else { return 0 };
        let edges = self.accounts.selecting(source).map(|id| self.accounts.edge_count(id)).sum();
        if is_shown(self.showing(source, edges), edges, key.collection, &Value::Null) { edges } else { 0 }
    }

    /// Whether a placement asks for statuses, and some of its objects have one but show none by default.
    pub fn has_other_kinds(&self, hand: &Internal, id: &Id) -> bool {
        let asks = |wants: &Wants| wants.one == Some(true) && wants.several.is_none();
        if !self.wants.get(id).is_some_and(asks) {
            return false;
        }
        let mut seen = BTreeSet::new();
        self.accounts.objects_of(id).filter_map(|text| ObjectKey::parse(text)).any(|key| {
            let is_other = !aggregate::is_workload(key.collection) && !aggregate::is_local(key.collection);
            if !is_other || !seen.insert(key.collection.to_owned()) {
                return false;
            }
            let value = bound::source(&self.server, &id.workspace, &key).map(|object| object.value());
            value.is_some_and(|value| Place::of_object(&key, &value).is_some_and(|place| has_status(hand, &place)))
        })
    }

    /// What the edges of an object say of it; nothing if none has said anything.
    async fn reported_by(&self, source: &Source, object: &Object, edges: &[Arc<str>]) -> Result<Option<Shown>> {
        let (workspace, text) = source;
        let Some(key) = ObjectKey::parse(text) else { return Ok(None) };
        let value = object.value();
        let edges: Vec<EdgeId> = edges.iter().filter_map(|edge| edge.parse().ok()).collect();
        // On an edge that several share, an object of that name may be another workspace's.
        let made = self.fleet.placing.made_for(&edges, workspace, &key, &value);
        let mut all = Vec::with_capacity(made.len());
        // Edges of one class share their content: it is read once.
        let mut objects: HashMap<Option<(usize, usize)>, Arc<Value>> = HashMap::new();
        for (edge, content) in made {
            let state = self.state_of(&edge, text, object).await?;
            let at = content.as_ref().map(|content| (content.as_ptr().addr(), content.len()));
            let read = || content.as_deref().and_then(|content| serde_json::from_slice(content).ok());
            let object = objects.entry(at).or_insert_with(|| Arc::new(read().unwrap_or_default()));
            all.push(OfEdge { name: edge.to_string(), object: object.clone(), content, state });
        }
        if all.iter().all(|one| one.state.is_none()) {
            return Ok(None);
        }
        Ok(shown(&key, &value, &all))
    }

    /// The last report of an edge, if it is about this object.
    async fn state_of(&self, edge: &EdgeId, key: &str, object: &Object) -> Result<Option<Value>> {
        let Some(edge) = self.fleet.edges.get(edge) else { return Ok(None) };
        let uid = edge.target().uid.clone();
        let found = reports::get_at(self.fleet.store(), &uid, key).await;
        let found = found.map_err(|error| Status::internal(error.to_string()))?;
        let runs_once = ObjectKey::parse(key).is_some_and(|key| RUN_ONCE.contains(&key.collection));
        let found = found.filter(|(_, at)| !runs_once || *at > object.created);
        Ok(found.and_then(|(report, _)| serde_json::from_slice(&report.state?).ok()))
    }
}

/// The status of one edge as it is, that of several as one.
fn shown(key: &ObjectKey<'_>, value: &Value, all: &[OfEdge]) -> Option<Shown> {
    let text = key.to_string();
    let report = |one: &OfEdge| {
        let current = match (&one.content, &one.state) {
            (Some(content), Some(state)) => facts::is_current(&text, content, state),
            _ => Some(false),
        };
        (one.state.as_ref().and_then(|state| state.get("status")).cloned(), current)
    };
    let said: Vec<(Option<Value>, Option<bool>)> = all.iter().map(report).collect();
    let is_current = said.iter().all(|(_, current)| *current == Some(true));
    let reported = all.iter().zip(&said).map(|(one, (status, current))| Reported {
        edge: &one.name,
        object: &one.object,
        status: status.as_ref(),
        current: *current,
    });
    let reported: Vec<Reported<'_>> = reported.collect();
    let (mut status, edges) = match reported.as_slice() {
        [] => return None,
        [only] => (only.status?.clone(), None),
        _ => {
            let ready = aggregate::ready(key.collection, &reported);
            let edges = health::is_watched(key.collection).then(|| format!("{ready} of {} ready", reported.len()));
            (aggregate::aggregate(key.collection, value, &reported), edges)
        }
    };
    translate(&mut status, value["metadata"]["generation"].as_i64(), is_current);
    Some(Shown { status, edges })
}

/// The status to write. One that is empty is as good as none; a Pod has a class of its own that nobody changes.
fn wanted(collection: &str, status: Option<&Value>, before: &Value) -> Value {
    let mut wanted = status.cloned().unwrap_or_else(|| json!({}));
    if collection == "core/pods" {
        if status.is_none() {
            wanted["phase"] = "Pending".into();
        }
        if let Some(class) = before.get("qosClass") {
            wanted["qosClass"] = class.clone();
        }
    }
    wanted
}

fn has_status(hand: &Internal, place: &Place<'_>) -> bool {
    let Ok(kind) = hand.kind(place.group, place.version, place.resource) else { return false };
    match &kind.custom {
        Some(custom) => custom.version().is_some_and(|version| version.subresources.status),
        None => kind.resource.subresource("status").is_some(),
    }
}

/// Generations count what was written on each side for itself. A status is about the source's generation if the edge
/// holds what it shall hold now and its controller has seen that; otherwise it is about an earlier one.
fn translate(status: &mut Value, generation: Option<i64>, is_current: bool) {
    let Some(generation) = generation else { return };
    let observed = if is_current { generation } else { (generation - 1).max(0) };
    let set = |value: &mut Value| {
        if let Some(field) = value.get_mut("observedGeneration").filter(|field| field.is_number()) {
            *field = observed.into();
        }
    };
    status.get_mut("conditions").and_then(Value::as_array_mut).into_iter().flatten().for_each(set);
    set(status);
}

/// Sets or removes an annotation. Whether that makes a difference.
fn annotate(value: &mut Value, name: &str, text: Option<&str>) -> bool {
    let before = value.pointer("/metadata/annotations").and_then(|all| all[name].as_str());
    if before == text {
        return false;
    }
    let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) else { return false };
    let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
    match (text, annotations.as_object_mut()) {
        (Some(text), Some(all)) => drop(all.insert(name.to_owned(), text.into())),
        (None, Some(all)) => drop(all.remove(name)),
        (_, None) => return false,
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_about_the_generation_of_its_source() {
        for (is_current, observed) in [(true, 5), (false, 4)] {
            let condition = json!({"type": "Ready", "observedGeneration": 2});
            let mut status = json!({"observedGeneration": 2, "conditions": [condition, {"type": "Other"}]});
            translate(&mut status, Some(5), is_current);
            assert_eq!(status["observedGeneration"], observed);
            assert_eq!(status["conditions"][0]["observedGeneration"], observed);
            assert_eq!(status["conditions"][1], json!({"type": "Other"}), "nothing is added");
        }
        let mut status = json!({"observedGeneration": 2});
        translate(&mut status, None, true);
        assert_eq!(status["observedGeneration"], 2, "a source that counts no generations says nothing of them");
    }

    #[test]
    fn a_pod_keeps_its_class_and_has_a_phase() {
        let before = json!({"phase": "Succeeded", "qosClass": "BestEffort"});
        let pending = json!({"phase": "Pending", "qosClass": "BestEffort"});
        assert_eq!(wanted("core/pods", None, &before), pending);
        let failed = json!({"phase": "Failed", "qosClass": "Guaranteed"});
        assert_eq!(wanted("core/pods", Some(&failed), &before), json!({"phase": "Failed", "qosClass": "BestEffort"}));
        assert_eq!(wanted("batch/jobs", None, &before), json!({}));
    }

    #[test]
    fn annotations_come_and_go() {
        let mut value = json!({"metadata": {"name": "a"}});
        let mut set = |text: Option<&str>| (annotate(&mut value, "x", text), value["metadata"]["annotations"].clone());
        assert_eq!(set(None), (false, Value::Null));
        assert_eq!(set(Some("2")), (true, json!({"x": "2"})));
        assert_eq!(set(Some("2")), (false, json!({"x": "2"})));
        assert_eq!(set(None), (true, json!({})));
    }

    #[test]
    fn several_edges_have_one_status_about_the_sources_generation() {
        let key = ObjectKey { collection: "apps/deployments", namespace: "site", name: "web" };
        let content = Bytes::from(json!({"spec": {"replicas": 1}}).to_string());
        let hash = format!("{:032x}", link::entry_hash(&key.to_string(), &content));
        let edge = |name: &str, of: Option<&str>| OfEdge {
            name: name.to_owned(),
            content: Some(content.clone()),
            object: Arc::new(serde_json::from_slice(&content).unwrap()),
            state: of.map(|of| {
                let status = json!({"replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1,
                    "observedGeneration": 7});
                json!({"status": status, "generation": 7, "of": of})
            }),
        };
        let value = json!({"metadata": {"generation": 3}, "spec": {"replicas": 1}});
        let say = |all: &[OfEdge]| {
            let shown = shown(&key, &value, all).unwrap();
            let of = |field: &str| shown.status[field].as_i64();
            (of("observedGeneration"), of("readyReplicas"), shown.edges)
        };
        let both = [edge("a", Some(&hash)), edge("b", Some(&hash))];
        assert_eq!(say(&both), (Some(3), Some(1), Some("2 of 2 ready".to_owned())));
        let late = [edge("a", Some(&hash)), edge("b", Some("other"))];
        assert_eq!(say(&late), (Some(2), Some(1), Some("1 of 2 ready".to_owned())));
        let silent = [edge("a", Some(&hash)), edge("b", None)];
        assert_eq!(say(&silent), (Some(2), None, Some("1 of 2 ready".to_owned())));
        assert_eq!(say(&[edge("a", Some(&hash))]), (Some(3), Some(1), None));
    }
}
