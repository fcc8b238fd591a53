//! Writes what there is to say, if it is not said already.

use std::time::{Duration, Instant};

use api::status::Result;
use futures::{StreamExt, stream};
use placement::{Id, account::Source};
use serde_json::{Value, json};
use server::{clock, internal::Internal, object::Object};
use types::{EdgeId, ObjectKey, names};

use super::{
    keeper::{Desk, Due, Keeper},
    said,
};
use crate::{bound, reports, rollouts::facts};

const MANAGER: &str = "selvedge-accounts";
/// Who writes the status that an edge reported into the source object.
const SINGLETON: &str = "selvedge-singleton";
/// Writes under way at one time.
const AT_ONCE: usize = 8;

impl Keeper {
    pub async fn carry_out(&mut self, due: Vec<Due>) {
        let (looks, writes): (Vec<Due>, Vec<Due>) = due.into_iter().partition(|due| matches!(due, Due::Look(_)));
        for look in looks {
            if let Due::Look(id) = look {
                self.look(&id);
            }
        }
        // It is said by the center that leads.
        if !self.fleet.lead.is_here() {
            return;
        }
        let (later, writes): (Vec<Due>, Vec<Due>) = writes.into_iter().partition(|due| match due {
            Due::Combined(id) => self.desks.get(id).is_some_and(|desk| self.gathers(desk)),
            _ => false,
        });
        later.into_iter().for_each(|due| self.pace.push(due, Duration::ZERO, Instant::now()));
        let keeper = &*self;
        let write = |due: Due| async move {
            let done = match &due {
                Due::Look(_) => Ok(()),
                Due::Placement(id) => keeper.placement(id).await,
                Due::Combined(id) => keeper.combined(id).await,
                Due::Source(source) => keeper.source(source).await,
            };
            (due, done)
        };
        let done: Vec<_> = stream::iter(writes).map(write).buffer_unordered(AT_ONCE).collect().await;
        for (due, result) in done {
            let Err(error) = result else {
                self.retries.succeeded(&due);
                continue;
            };
            if *self.server.shutdown.borrow() {
                return;
            }
            let wait = self.retries.failed(due.clone(), Instant::now());
            tracing::warn!(what = ?due, ?wait, error = error.message, "could not write what edges report; trying again");
            self.pace.push(due, wait, Instant::now());
        }
    }

    fn hand(&self, workspace: &str) -> Internal {
        Internal::new(&self.server, workspace, MANAGER)
    }

    async fn placement(&self, id: &Id) -> Result<()> {
        let Some(standing) = self.accounts.standing(id) else { return Ok(()) };
        self.fleet.accounts.board.placement(id, Some(&standing));
        let hand = self.hand(&id.workspace);
        let now = clock::now();
        let place = Place::of_ours("edge.kcp.io", "edgeplacements", &id.name);
        change(&hand, &place, "status", |value| said::placement(value, &standing, &now)).await
    }

    async fn combined(&self, id: &Id) -> Result<()> {
        let Some(desk) = self.desks.get(id) else { return Ok(()) };
        let hand = self.hand(&id.workspace);
        let now = clock::now();
        let told = desk.summary.as_ref().map(|summary| summary.told());
        let told = told.as_ref().map_err(|wrong| wrong.as_slice());
        self.fleet.accounts.board.collector(id, desk.summary.as_ref().ok());
        let kind = hand.kind("edge.selvedge.dev", "v1alpha1", "combinedstatuses")?;
        if hand.get(&kind, "", &id.name).is_none() {
            let owner = json!({"apiVersion": "edge.selvedge.dev/v1alpha1", "kind": "StatusCollector", "name": &*id.name,
                "uid": desk.uid, "controller": true});
            let mut value = json!({"metadata": {"name": &*id.name, "ownerReferences": [owner]}});
            said::combined(&mut value, told, desk.generation, &now);
            hand.ensure(&kind, "", value).await?;
        } else {
            let place = Place::of_ours("edge.selvedge.dev", "combinedstatuses", &id.name);
            change(&hand, &place, "", |value| said::combined(value, told, desk.generation, &now)).await?;
        }
        self.question(&hand, id, desk, &now).await
    }

    /// A StatusCollector's own status says whether it can be answered.
    async fn question(&self, hand: &Internal, id: &Id, desk: &Desk, now: &str) -> Result<()> {
        let ready = match &desk.summary {
            Ok(_) => ("Ready", true, "Valid", format!("answered by combinedstatus {}", id.name)),
            Err(wrong) => ("Ready", false, "Invalid", said::short(&wrong.join("; "))),
        };
        let place = Place::of_ours("edge.selvedge.dev", "statuscollectors", &id.name);
        change(hand, &place, "status", |value| {
            let before = value.get("status").cloned().unwrap_or_default();
            let mut status = if before.is_object() { before.clone() } else { json!({}) };
            status["observedGeneration"] = desk.generation.into();
            said::settle(&mut status, std::slice::from_ref(&ready), &desk.generation.into(), now);
            let changed = status != before;
            value["status"] = status;
            changed
        })
        .await
    }

    /// How many edges hold an object, and what the only one of them says of it.
    async fn source(&self, source: &Source) -> Result<()> {
        let (workspace, text) = source;
        let Some(key) = ObjectKey::parse(text) else { return Ok(()) };
        let Some(object) = bound::source(&self.server, workspace, &key) else { return Ok(()) };
        let value = object.value();
        if value.pointer("/metadata/deletionTimestamp").is_some() {
            return Ok(());
        }
        let hand = self.hand(workspace);
        let Some(place) = Place::of_object(&key, &value) else { return Ok(()) };
        let (edges, held) = self.accounts.held(source);
        let count = self.accounts.any(source, |_| true).then(|| held.to_string());
        let edit = |value: &mut Value| annotate(value, count.as_deref());
        change(&hand, &place, "", edit).await?;
        let wants = |id: &Id| {
            let placement =
                self.server.cache.get(placement::facts::PLACEMENTS, &format!("{}//{}", id.workspace, id.name));
            placement.is_some_and(|object| object.value()["spec"]["wantSingletonReportedState"] == true)
        };
        let only = match edges.as_slice() {
            [only] if self.accounts.any(source, wants) => only.parse::<EdgeId>().ok(),
            _ => None,
        };
        // On an edge that several share, an object of that name may be another workspace's.
        let is_ours =
            |edge: &EdgeId| self.fleet.placing.source(edge, text).is_some_and(|of| of.workspace == *workspace);
        let only = only.filter(is_ours);
        self.singleton(source, &object, &place, only).await
    }

    async fn singleton(&self, source: &Source, object: &Object, place: &Place<'_>, only: Option<EdgeId>) -> Result<()> {
        let value = object.value();
        if only.is_none() && !is_ours(&value) {
            return Ok(());
        }
        let hand = Internal::new(&self.server, &source.0, SINGLETON).relaying_status();
        let Ok(kind) = hand.kind(place.group, place.version, place.resource) else { return Ok(()) };
        let has_status = match &kind.custom {
            Some(custom) => custom.version().is_some_and(|version| version.subresources.status),
            None => kind.resource.subresource("status").is_some(),
        };
        if !has_status {
            return Ok(());
        }
        let edge = only.as_ref().and_then(|edge| self.fleet.edges.get(edge));
        let report = match &edge {
            Some(edge) => reports::get(self.fleet.store(), &edge.target().uid, &source.1).await,
            None => Ok(None),
        };
        let report = report.map_err(|error| api::status::Status::internal(error.to_string()))?;
        let state =
            report.and_then(|report| report.state).and_then(|state| serde_json::from_slice::<Value>(&state).ok());
        let status = state.and_then(|mut state| {
            let (key, edge) = (ObjectKey::parse(&source.1)?, only.as_ref()?);
            let wanted = self.fleet.placing.made_of(edge, &key, value.clone());
            let is_current = wanted.is_some_and(|content| facts::is_current(&source.1, &content, &state) == Some(true));
            let mut status = state.get_mut("status").map(Value::take)?;
            translate(&mut status, value["metadata"]["generation"].as_i64(), is_current);
            Some(status)
        });
        if status.is_none() && !is_ours(&value) {
            return Ok(());
        }
        change(&hand, place, "status", |value| {
            let before = value.get("status").cloned();
            let nothing = || json!({});
            // A status that is empty is as good as none.
            if before.clone().unwrap_or_else(nothing) == status.clone().unwrap_or_else(nothing) {
                return false;
            }
            value["status"] = status.clone().unwrap_or_else(nothing);
            true
        })
        .await
    }
}

/// Generations count what was written on each side for itself. A status is about the source's generation if the edge holds what it
/// shall hold now and its controller has seen that; otherwise it is about an earlier one.
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

/// Whether the status was written by us.
fn is_ours(value: &Value) -> bool {
    let managers = value.pointer("/metadata/managedFields").and_then(Value::as_array);
    managers.is_some_and(|all| all.iter().any(|one| one["manager"] == SINGLETON && one["subresource"] == "status"))
}

/// Whether that is another annotation than before.
fn annotate(value: &mut Value, count: Option<&str>) -> bool {
    let before = value.pointer("/metadata/annotations").and_then(|all| all[names::EXECUTING_COUNT].as_str());
    if before == count {
        return false;
    }
    let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) else { return false };
    let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
    match (count, annotations.as_object_mut()) {
        (Some(count), Some(all)) => drop(all.insert(names::EXECUTING_COUNT.to_owned(), count.into())),
        (None, Some(all)) => drop(all.remove(names::EXECUTING_COUNT)),
        (_, None) => return false,
    }
    true
}

/// Where an object is, for clients.
struct Place<'a> {
    group: &'a str,
    version: &'a str,
    resource: &'a str,
    namespace: &'a str,
    name: &'a str,
}

impl<'a> Place<'a> {
    fn of_ours(group: &'a str, resource: &'a str, name: &'a str) -> Self {
        Self { group, version: "v1alpha1", resource, namespace: "", name }
    }

    /// In the version in which it is stored.
    fn of_object(key: &ObjectKey<'a>, value: &'a Value) -> Option<Self> {
        let resource = key.collection.split_once('/')?.1;
        let version = value["apiVersion"].as_str()?;
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        Some(Self { group, version, resource, namespace: key.namespace, name: key.name })
    }
}

/// Changes an object if that makes a difference. `edit` says whether it does. One whose kind is not served there is let be.
async fn change(
    hand: &Internal,
    place: &Place<'_>,
    subresource: &str,
    edit: impl Fn(&mut Value) -> bool,
) -> Result<()> {
    let Ok(kind) = hand.kind(place.group, place.version, place.resource) else { return Ok(()) };
    let Some(object) = hand.get(&kind, place.namespace, place.name) else { return Ok(()) };
    if !edit(&mut object.value()) {
        return Ok(());
    }
    let write = |value: &mut Value| {
        edit(value);
    };
    hand.change(&kind, place.namespace, place.name, subresource, write).await.map(drop)
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
    fn annotations_come_and_go() {
        let mut value = json!({"metadata": {"name": "a"}});
        assert!(!annotate(&mut value, None));
        assert!(annotate(&mut value, Some("2")));
        assert!(!annotate(&mut value, Some("2")));
        assert_eq!(value["metadata"]["annotations"], json!({"kubestellar.io/executing-count": "2"}));
        assert!(annotate(&mut value, None));
        assert_eq!(value["metadata"]["annotations"], json!({}));
    }
}
