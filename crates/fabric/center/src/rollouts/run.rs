//! The task that takes rollouts on.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use placement::{
    Id, Key,
    engine::Saved,
    rollout::{Fact, Phase, Progress, RESUME, State, step},
};
use schema::status::Result;
use serde_json::Value;
use server::Server;
use server::internal::Internal;
use tokio::sync::broadcast::{Receiver, error::RecvError, error::TryRecvError};

use super::{
    Rollout, contents,
    facts::{self, Keys, Known},
    follow::follow,
};
use crate::{Fleet, accounts::lost, news::News, placing::Moved};

const MANAGER: &str = "selvedge-rollout";
/// What is said of a rollout is written no more often.
const PACE: Duration = Duration::from_millis(300);
/// After this time what went wrong is tried again.
const AGAIN: Duration = Duration::from_secs(2);
/// One that is complete is looked at so long after something happened.
const LAZY: Duration = Duration::from_secs(5);
/// Nothing happens for so long: somebody looks all the same.
const LONGEST: Duration = Duration::from_secs(60);

/// Takes rollouts on until the server stops.
pub async fn run(fleet: Arc<Fleet>, server: Arc<Server>) {
    let (mut moved, mut news) = (fleet.placing.subscribe(), fleet.news.subscribe());
    fleet.placing.wait().await;
    let mut shutdown = server.shutdown.clone();
    let mut led = false;
    // Where there are several centers, this one may come to lead.
    let longest = if fleet.center().is_some() { Duration::from_secs(1) } else { LONGEST };
    loop {
        let leads = fleet.lead.is_here();
        if leads && !led {
            take_over(&fleet).await;
        }
        led = leads;
        let next = fleet.rollouts.table().values().filter_map(Rollout::wanted).min();
        let wait = next.map_or(longest, |at| at.saturating_duration_since(Instant::now())).min(longest);
        tokio::select! {
            seen = moved.recv() => match seen {
                Ok(seen) => took(&fleet, &seen),
                Err(RecvError::Lagged(_)) => look_at_everything(&fleet),
                Err(RecvError::Closed) => return,
            },
            heard = news.recv() => match heard {
                Ok(heard) => hear(&fleet, &heard),
                Err(RecvError::Lagged(_)) => look_at_everything(&fleet),
                Err(RecvError::Closed) => return,
            },
            () = fleet.rollouts.wake.notified() => {}
            () = tokio::time::sleep(wait) => {}
            _ = shutdown.wait_for(|down| *down) => return,
        }
        drain(&mut moved, |seen| took(&fleet, &seen), || look_at_everything(&fleet));
        drain(&mut news, |heard| hear(&fleet, &heard), || look_at_everything(&fleet));
        for (id, uid) in fleet.rollouts.take_ended() {
            if leads {
                end(&fleet, &server, &id, &uid).await;
            }
        }
        let now = Instant::now();
        let is_due = |rollout: &Rollout| rollout.wanted().is_some_and(|at| at <= now);
        let due: Vec<Id> =
            fleet.rollouts.table().iter().filter(|(_, one)| is_due(one)).map(|(id, _)| id.clone()).collect();
        for id in due {
            let done =
                if fleet.lead.is_here() { advance(&fleet, &server, &id).await } else { follow(&fleet, &id).await };
            if let Err(error) = done {
                tracing::debug!(placement = %id, error = error.message, "a rollout could not go on; it is tried again");
                if let Some(rollout) = fleet.rollouts.table().get_mut(&id) {
                    rollout.due = Some(Instant::now() + AGAIN);
                }
            }
        }
    }
}

/// From now on this center decides: it begins where the one before it was.
async fn take_over(fleet: &Fleet) {
    let all: Vec<Id> = fleet.rollouts.table().keys().cloned().collect();
    for id in all {
        if let Err(error) = follow(fleet, &id).await {
            tracing::warn!(placement = %id, error = error.message, "a rollout is taken over as it was last seen");
        }
    }
    tidy(fleet).await;
    look_at_everything(fleet);
}

fn drain<T: Clone>(channel: &mut Receiver<T>, mut each: impl FnMut(T), lost: impl Fn()) {
    loop {
        match channel.try_recv() {
            Ok(one) => each(one),
            Err(TryRecvError::Lagged(_)) => lost(),
            Err(TryRecvError::Empty | TryRecvError::Closed) => return,
        }
    }
}

fn look_at_everything(fleet: &Fleet) {
    for rollout in fleet.rollouts.table().values_mut() {
        rollout.touch();
        (rollout.moved, rollout.due) = (true, Some(Instant::now() + PACE));
        rollout.stale = rollout.edges.keys().cloned().collect();
    }
}

/// Placements select something else, go elsewhere, or have other edges.
fn took(fleet: &Fleet, moved: &Moved) {
    let mut table = fleet.rollouts.table();
    for id in &moved.placements {
        if let Some(rollout) = table.get_mut(id) {
            rollout.touch();
            rollout.moved = true;
        }
    }
    if !moved.edges.is_empty() {
        for rollout in table.values_mut() {
            let concerned: Vec<Id> = moved.edges.iter().filter(|id| rollout.edges.contains_key(*id)).cloned().collect();
            rollout.hear(concerned);
        }
    }
}

fn hear(fleet: &Fleet, news: &News) {
    let (News::Edge(edge) | News::Reports(edge, _)) = news;
    let mut table = fleet.rollouts.table();
    if table.is_empty() {
        return;
    }
    let id = Id::new(&edge.workspace, &edge.name);
    for rollout in table.values_mut().filter(|rollout| rollout.edges.contains_key(&id)) {
        rollout.hear(vec![id.clone()]);
    }
}

impl Rollout {
    fn hear(&mut self, edges: Vec<Id>) {
        if edges.is_empty() {
            return;
        }
        self.stale.extend(edges);
        let at = Instant::now() + if self.state.is_complete() { LAZY } else { PACE };
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }
}

/// Deletes what is saved of placements that are gone, or have no rollout any more.
async fn tidy(fleet: &Fleet) {
    let owners = match contents::owners(fleet.store()).await {
        Ok(owners) => owners,
        Err(error) => return tracing::warn!(%error, "what is saved of rollouts could not be looked through"),
    };
    for uid in owners {
        let kept = {
            let table = fleet.rollouts.table();
            let rollout = table.values().find(|rollout| *rollout.uid == *uid);
            rollout.map(|rollout| rollout.state.revisions.iter().map(|one| one.number).collect()).unwrap_or_default()
        };
        forget_others(fleet, &uid, &kept).await;
    }
}

async fn forget_others(fleet: &Fleet, uid: &str, kept: &BTreeSet<u64>) {
    if let Err(error) = contents::keep_only(fleet.store(), uid, kept).await {
        tracing::warn!(%error, uid, "old revisions of a placement stay in the store until the next start");
    }
}

/// A placement has no rollout any more.
async fn end(fleet: &Fleet, server: &Arc<Server>, id: &Id, uid: &str) {
    forget_others(fleet, uid, &BTreeSet::new()).await;
    let hand = Internal::new(server, &id.workspace, MANAGER);
    let edit = |value: &mut Value| {
        if value["spec"]["rollout"].is_null()
            && let Some(status) = value.get_mut("status").and_then(Value::as_object_mut)
        {
            status.remove("rollout");
        }
    };
    let done = match hand.kind("edge.kcp.io", "v1alpha1", "edgeplacements") {
        Ok(kind) => hand.change(&kind, "", &id.name, "status", edit).await.map(drop),
        Err(error) => Err(error),
    };
    if let Err(error) = done {
        tracing::debug!(placement = %id, error = error.message, "the status of a rollout that ended stays");
    }
}

/// Takes one rollout as far as it can go now.
async fn advance(fleet: &Arc<Fleet>, server: &Arc<Server>, id: &Id) -> Result<()> {
    let unavailable = |error: store::Error| schema::status::Status::internal(error.to_string());
    let (uid, mut state, touched, moved, unsaved) = {
        let mut table = fleet.rollouts.table();
        let Some(rollout) = table.get_mut(id) else { return Ok(()) };
        let now = Instant::now();
        let touched = rollout.settled().is_some_and(|at| at <= now);
        if touched {
            rollout.touched = None;
        }
        (rollout.due, rollout.told) = (None, None);
        let moved = std::mem::take(&mut rollout.moved);
        (rollout.uid.clone(), rollout.state.clone(), touched, moved, rollout.unsaved)
    };
    if unsaved {
        let first = fleet.rollouts.table().get(id).and_then(|rollout| rollout.saved.get(&1).cloned());
        if let Some(first) = first {
            contents::save(fleet.store(), &uid, 1, first.items()).await.map_err(unavailable)?;
        }
    }
    if touched {
        let items = fleet.placing.read(|engine| engine.items(id));
        if let Some(number) = state.offer(&contents::digest(&items)) {
            contents::save(fleet.store(), &uid, number, &items).await.map_err(unavailable)?;
            let saved = Arc::new(Saved::new(items));
            if let Some(rollout) = fleet.rollouts.table().get_mut(id) {
                rollout.saved.insert(number, saved);
            }
        }
    }
    if moved {
        find_edges(fleet, id, &uid);
    }
    let known = look_at_edges(fleet, id, &uid, &state).await;
    let Some((state, progress, resumed)) = decide(fleet, id, state, &known) else { return Ok(()) };
    let status = state.write(&progress);
    let said = fleet.rollouts.table().get(id).and_then(|rollout| rollout.said.clone());
    if resumed || said.as_ref() != Some(&status) {
        write(server, id, &uid, &status, resumed).await?;
    }
    carry_out(fleet, id, &uid, state, status, &progress).await;
    Ok(())
}

/// Which edges the placement has now.
pub(super) fn find_edges(fleet: &Fleet, id: &Id, uid: &str) {
    let all = fleet.placing.read(|engine| engine.schedule().destinations(id));
    let mut table = fleet.rollouts.table();
    let Some(rollout) = table.get_mut(id) else { return };
    let mut before = std::mem::take(&mut rollout.edges);
    for one in all {
        let known = before.remove(&one.target).filter(|known| *known.uid == *one.uid);
        let known = known.unwrap_or_else(|| {
            rollout.stale.insert(one.target.clone());
            Known::new(uid, &one.target, (&*one.uid).into())
        });
        rollout.edges.insert(one.target, known);
    }
}

/// Looks at the edges of which something was heard, and says how all fare.
pub(super) async fn look_at_edges(fleet: &Fleet, id: &Id, uid: &str, state: &State) -> Vec<Fact> {
    let (stale, complete, newest) = {
        let mut table = fleet.rollouts.table();
        let Some(rollout) = table.get_mut(id) else { return Vec::new() };
        let stale: Vec<(Id, Known)> = std::mem::take(&mut rollout.stale)
            .into_iter()
            .filter_map(|edge| rollout.edges.get(&edge).cloned().map(|known| (edge, known)))
            .collect();
        (stale, state.is_complete(), rollout.saved.get(&state.newest()).cloned())
    };
    let newest = newest.unwrap_or_default();
    // When all is done, whether an edge fares well is others' business.
    let watched = if complete { Vec::new() } else { facts::watched(newest.items().keys()) };
    // What edges say under a key that is another workspace's there is not about this placement.
    let conflicts = fleet.placing.read(|engine| engine.conflicts(id));
    let lost = lost(&conflicts, &newest.items().keys().cloned().collect());
    let watched: Vec<Key> = watched.into_iter().filter(|key| !lost.contains(key)).collect();
    let has = |key: &str| newest.items().contains_key(key) && !lost.contains(key);
    let keys = Keys { placement: uid, has: &has, watched: &watched };
    for (edge, before) in stale {
        let revision = state.of(before.fact.order);
        let now = facts::look(fleet, &edge, &before, revision, &keys).await;
        let again = now.is_fresh(clock::unix());
        if let Some(rollout) = fleet.rollouts.table().get_mut(id) {
            if again && !complete {
                rollout.stale.insert(edge.clone());
                let at = Instant::now() + Duration::from_secs(1);
                rollout.due = Some(rollout.due.map_or(at, |due| due.min(at)));
            }
            rollout.edges.insert(edge, now);
        }
    }
    let table = fleet.rollouts.table();
    let fact = |known: &Known| {
        // What was seen of it may have been of another revision.
        match known.revision == state.of(known.fact.order) {
            true => known.fact.clone(),
            false => known.released(),
        }
    };
    table.get(id).map(|rollout| rollout.edges.values().map(fact).collect()).unwrap_or_default()
}

/// Where the rollout is to be, what is to be said of it, and whether somebody asked to go on.
fn decide(fleet: &Fleet, id: &Id, state: State, facts: &[Fact]) -> Option<(State, Progress, bool)> {
    let (spec, generation, resume) = {
        let table = fleet.rollouts.table();
        let rollout = table.get(id)?;
        (rollout.spec.clone(), rollout.generation, rollout.resume)
    };
    let now = clock::unix();
    Some(match spec {
        Ok(spec) => {
            let (state, progress) = step(&spec, state, facts, generation, resume, now);
            (state, progress, resume)
        }
        Err(why) => {
            let spec = placement::rollout::Spec { paused: true, ..Default::default() };
            let (state, progress) = step(&spec, state, facts, generation, false, now);
            (state, Progress { phase: Phase::Paused, message: why, ..progress }, false)
        }
    })
}

async fn write(server: &Arc<Server>, id: &Id, uid: &str, status: &Value, resumed: bool) -> Result<()> {
    let hand = Internal::new(server, &id.workspace, MANAGER);
    let kind = hand.kind("edge.kcp.io", "v1alpha1", "edgeplacements")?;
    let is_it = |value: &Value| value["metadata"]["uid"] == *uid && !value["spec"]["rollout"].is_null();
    let edit = |value: &mut Value| {
        if is_it(value) {
            value["status"]["rollout"] = status.clone();
        }
    };
    hand.change(&kind, "", &id.name, "status", edit).await?;
    if resumed {
        let edit = |value: &mut Value| {
            if let Some(all) = value.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
                all.remove(RESUME);
            }
        };
        hand.change(&kind, "", &id.name, "", edit).await?;
    }
    Ok(())
}

/// It is written down: now edges may hear of it.
async fn carry_out(fleet: &Fleet, id: &Id, uid: &str, state: State, status: Value, progress: &Progress) {
    let kept: BTreeSet<u64> = state.revisions.iter().map(|revision| revision.number).collect();
    // It may have another rollout by now, or none: the engine is not to hear of it then.
    let changed = fleet.placing.edit(|engine| {
        let mut table = fleet.rollouts.table();
        let Some(rollout) = table.get_mut(id).filter(|rollout| *rollout.uid == *uid) else { return false };
        let changed = state.revisions != rollout.state.revisions;
        for (edge, known) in &mut rollout.edges {
            let revision = state.of(known.fact.order);
            if known.revision != revision {
                (known.fact, known.revision, known.acked_at) = (known.released(), revision, None);
                rollout.stale.insert(edge.clone());
            }
        }
        rollout.saved.retain(|number, _| kept.contains(number));
        (rollout.state, rollout.said, rollout.unsaved) = (state, Some(status), false);
        let wait = progress.again.map(|at| Duration::from_secs((at - clock::unix()).max(0) as u64).max(PACE));
        if let Some(at) = wait.map(|wait| Instant::now() + wait) {
            rollout.due = Some(rollout.due.map_or(at, |due| due.min(at)));
        }
        if changed {
            engine.set_rollout(id, Some(rollout.assign()), rollout.contents());
        }
        changed
    });
    if changed {
        forget_others(fleet, uid, &kept).await;
    }
}
