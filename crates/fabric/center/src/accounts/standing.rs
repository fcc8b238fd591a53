//! How an edge stands with the center, as accounts and summaries are told.

use std::sync::Arc;

use kinds::EdgeId;
use placement::{account, summary::Link};
use serde_json::Value;
use server::Server;

use crate::{Fleet, target};

/// What is known of an edge, and whether it has ever been connected.
pub fn of(fleet: &Fleet, server: &Server, id: &EdgeId) -> (account::Edge, Link, bool) {
    let Some(edge) = fleet.edges.get(id) else { return Default::default() };
    let live = edge.session().filter(|live| live.facts().connected);
    if let Some(live) = live {
        let facts = live.facts();
        let held = facts.held_by.iter().filter(|_| facts.held.is_some()).map(|(placement, count)| {
            let why = format!(
                "{count} objects that it no longer places stay until their removal is confirmed: see the condition RemovalHeld"
            );
            (placement.clone(), why.into())
        });
        let back = facts.rolled_back.map(|_| {
            "it has seen another history of this center: see the SyncTarget's condition RolledBack".to_owned()
        });
        let stuck = facts.stalled.clone().or(back).map(Arc::from);
        let refused = facts.refused.iter().map(|(key, why)| (key.clone(), why.as_str().into())).collect();
        // Of objects that are refused beyond those, nobody knows the names.
        let delivered = facts.delivered && facts.refused_more == 0;
        let held = held.collect();
        let now = account::Edge { connected: true, in_sync: facts.in_sync, delivered, stuck, held, refused };
        let link = Link { connected: true, in_sync: facts.in_sync, since: live.since };
        return (now, link, true);
    }
    let key = format!("{}//{}", id.workspace, id.name);
    let target = server.cache.get(target::COLLECTION, &key).map(|object| object.value()).unwrap_or_default();
    let ready = target::condition(&target, "Ready");
    let is_ready = ready.is_some_and(|condition| condition["status"] == "True");
    let since = ready.and_then(|condition| time(&condition["lastTransitionTime"]));
    let seen = target.pointer("/status/lastSyncerHeartbeatTime").is_some();
    // Where several centers share a store, another one may have it: then that one says how it stands.
    let elsewhere = target.pointer("/status/center").and_then(Value::as_str);
    let told = elsewhere.filter(|_| is_ready && elsewhere != fleet.center());
    if let Some(told) = told.and_then(|center| fleet.others.of(center, id)) {
        let refused = told.refused.iter().map(|(key, why)| (key.as_str().into(), why.as_str().into())).collect();
        let stuck = told.stuck.as_deref().map(Arc::from);
        let (in_sync, delivered) = (told.in_sync, told.in_sync || told.delivered);
        let now = account::Edge { connected: true, in_sync, delivered, stuck, refused, ..account::Edge::default() };
        return (now, Link { connected: true, in_sync: told.in_sync, since: since.unwrap_or_default() }, true);
    }
    let lost = edge.lost().map(|lost| lost.at);
    let since = lost.or(since.filter(|_| !is_ready)).unwrap_or_else(|| fleet.started_at());
    (account::Edge::default(), Link { connected: false, in_sync: false, since }, seen)
}

fn time(value: &Value) -> Option<i64> {
    value.as_str()?.parse::<jiff::Timestamp>().ok().map(|at| at.as_second())
}
