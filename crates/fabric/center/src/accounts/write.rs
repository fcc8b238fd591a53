//! Writes what there is to say, if it is not said already.

use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use kinds::ObjectKey;
use placement::Id;
use schema::status::Result;
use serde_json::{Value, json};
use server::internal::Internal;

use super::{
    backlog::Backlog,
    keeper::{Desk, Due, Keeper},
    said,
};

const MANAGER: &str = "selvedge-accounts";
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
            // A center that comes to lead begins anew with all sources.
            self.backlog = Backlog::default();
            return;
        }
        let writes = self.in_turn(writes);
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

    /// Sources are refreshed when it is their turn, all else at once.
    fn in_turn(&mut self, due: Vec<Due>) -> Vec<Due> {
        let mut now = Vec::with_capacity(due.len());
        for due in due {
            match due {
                Due::Source(source) => self.backlog.push(source),
                other => now.push(other),
            }
        }
        let mut backlog = std::mem::take(&mut self.backlog);
        let taken = backlog.take(Instant::now(), |source| self.reports_to_read(source));
        self.backlog = backlog;
        now.extend(taken.into_iter().map(Due::Source));
        now
    }

    pub fn hand(&self, workspace: &str) -> Internal {
        Internal::new(&self.server, workspace, MANAGER)
    }

    async fn placement(&self, id: &Id) -> Result<()> {
        let Some(standing) = self.accounts.standing(id) else { return Ok(()) };
        self.fleet.accounts.board.placement(id, Some(&standing));
        let hand = self.hand(&id.workspace);
        let now = clock::now();
        let place = Place::of_ours("edge.kcp.io", "edgeplacements", &id.name);
        let other_kinds = standing.matched > 1 && self.has_other_kinds(&hand, id);
        change(&hand, &place, "status", |value| said::placement(value, &standing, other_kinds, &now)).await
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
}

/// Where an object is, for clients.
pub struct Place<'a> {
    pub group: &'a str,
    pub version: &'a str,
    pub resource: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
}

impl<'a> Place<'a> {
    fn of_ours(group: &'a str, resource: &'a str, name: &'a str) -> Self {
        Self { group, version: "v1alpha1", resource, namespace: "", name }
    }

    /// In the version in which it is stored.
    pub fn of_object(key: &ObjectKey<'a>, value: &'a Value) -> Option<Self> {
        let resource = key.collection.split_once('/')?.1;
        let version = value["apiVersion"].as_str()?;
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        Some(Self { group, version, resource, namespace: key.namespace, name: key.name })
    }
}

/// Changes an object if that makes a difference. `edit` says whether it does. One whose kind is not served there is let be.
pub async fn change(
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
