//! `GET /clusters/<workspace>/fleet`: how the edges of a workspace are at this moment. Live, from the sessions: whether an edge is in sync
//! changes with every change, and is written nowhere.

use std::{
    collections::BTreeMap,
    fmt::Write,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use flow::body::Body;
use futures::future::BoxFuture;
use http::{Response, header::CONTENT_TYPE};
use identity::Attributes;
use schema::status::Result;
use serde::Serialize;
use server::{Mount, Mounted, Server};

use crate::{Fleet, edges::Edge};

pub struct View(pub Arc<Fleet>);

impl Mount for View {
    fn takes(&self, _cluster: &str, path: &str) -> bool {
        path == "/fleet"
    }

    fn metrics(&self, out: &mut String) {
        let fleet = &self.0;
        let (mut connected, mut in_sync, mut pending, mut held, mut refused) = (0u64, 0u64, 0u64, 0u64, 0u64);
        let edges = fleet.edges.list(None);
        for live in edges.iter().filter_map(|edge| edge.session()) {
            let facts = live.facts();
            connected += u64::from(facts.connected);
            in_sync += u64::from(facts.in_sync);
            pending += live.waiting.load(Relaxed) + live.in_flight.load(Relaxed);
            held += facts.held.map_or(0, |(pending, _)| pending);
            refused += facts.refused_count();
        }
        for (name, help, value) in [
            ("selvedge_edges", "SyncTargets that are known.", edges.len() as u64),
            ("selvedge_edges_connected", "Edges that are connected to this center.", connected),
            ("selvedge_edges_in_sync", "Connected edges that hold what they should.", in_sync),
            ("selvedge_edge_objects_pending", "Objects on their way to connected edges.", pending),
            ("selvedge_edge_deletions_held", "Deletions that wait to be confirmed.", held),
            ("selvedge_edge_objects_refused", "Objects that connected edges could not take.", refused),
        ] {
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}");
        }
        fleet.accounts.metrics(out);
        let (begun, busy) = fleet.doorkeeping();
        for (name, help, value) in [
            ("selvedge_edge_sessions", "Sessions that edges began.", begun),
            ("selvedge_edge_sessions_busy", "Sessions that were put off because too many came at once.", busy),
        ] {
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} counter\n{name}_total {value}");
        }
        let (name, help) = ("selvedge_edge_reports_refused", "Reports of edges that were not kept, by reason.");
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} counter");
        for (reason, count) in fleet.reports_refused.by_reason() {
            let _ = writeln!(out, "{name}_total{{reason=\"{reason}\"}} {count}");
        }
        let name = "selvedge_edge_events_dropped";
        let dropped = fleet.told.dropped();
        let help = "Events about what edges did that were not made because there were too many.";
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} counter\n{name}_total {dropped}");
    }

    fn serve(&self, server: Arc<Server>, asked: Mounted) -> BoxFuture<'static, Result<Response<Body>>> {
        let fleet = self.0.clone();
        Box::pin(async move {
            let attributes = Attributes {
                verb: "list".to_owned(),
                group: "workload.kcp.io".to_owned(),
                version: "v1alpha1".to_owned(),
                resource: "synctargets".to_owned(),
                ..Attributes::default()
            };
            server.allow(asked.user, &asked.request, &asked.cluster, &attributes)?;
            let edges = fleet.edges.list(Some(&asked.cluster));
            let edges: Vec<Shown> = edges.iter().map(|edge| show(&fleet, &server, edge)).collect();
            let text = serde_json::to_vec(&serde_json::json!({"edges": edges})).unwrap_or_default();
            let mut response = Response::new(Body::from(text));
            response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
            Ok(response)
        })
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown {
    name: String,
    connected: bool,
    cut: bool,
    /// Since when it is connected, or not.
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<String>,
    in_sync: bool,
    /// It was connected when the last center ended, and has not come back yet.
    returning: bool,
    /// Objects that wait to be sent, and that were sent and are not acknowledged. Of one that is offline: how many changes there were
    /// since it was in sync, if this center knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pending: Option<u64>,
    in_flight: u64,
    /// How many deletions wait to be confirmed.
    held_deletions: u64,
    /// While deletions are held: how many objects the edge has.
    #[serde(skip_serializing_if = "Option::is_none")]
    held_of: Option<u64>,
    /// The same by placement, as far as that is known.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    held_placements: BTreeMap<String, u64>,
    rolled_back: bool,
    refused: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    stalled: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_heard: Option<String>,
    /// Of this session, as it went over the wire.
    sent_bytes: u64,
    received_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    workspace: Option<String>,
    /// How many objects it shall hold, if somebody had a use for that already.
    #[serde(skip_serializing_if = "Option::is_none")]
    objects: Option<usize>,
}

fn show(fleet: &Fleet, server: &Arc<Server>, edge: &Edge) -> Shown {
    let target = edge.target();
    let mut shown = Shown {
        name: edge.id.name.clone(),
        connected: false,
        cut: target.cut,
        since: None,
        in_sync: false,
        returning: false,
        pending: None,
        in_flight: 0,
        held_deletions: 0,
        held_of: None,
        held_placements: BTreeMap::new(),
        rolled_back: false,
        refused: 0,
        stalled: None,
        last_heard: None,
        sent_bytes: 0,
        received_bytes: 0,
        workspace: target.workspace.as_deref().map(str::to_owned),
        objects: fleet.placing.peek(&edge.id).map(|set| set.len()),
    };
    let live = edge.session().filter(|live| live.facts().connected);
    if let Some(live) = live {
        let facts = live.facts();
        let (waiting, in_flight) = (live.waiting.load(Relaxed), live.in_flight.load(Relaxed));
        let (sent, received) = live.sender.traffic();
        shown.connected = true;
        shown.since = Some(clock::at(live.since));
        shown.in_sync = facts.in_sync;
        shown.pending = Some(waiting + in_flight);
        shown.in_flight = in_flight;
        shown.held_deletions = facts.held.map_or(0, |(pending, _)| pending);
        shown.held_of = facts.held.map(|(_, of)| of);
        shown.held_placements = facts.held_by.iter().map(|(id, count)| (id.to_string(), *count)).collect();
        shown.rolled_back = facts.rolled_back.is_some();
        shown.refused = facts.refused_count();
        shown.stalled = facts.stalled.clone();
        shown.last_heard = Some(clock::at(live.heard.load(Relaxed) as i64));
        (shown.sent_bytes, shown.received_bytes) = (sent, received);
    } else if let Some(lost) = edge.lost() {
        shown.since = Some(clock::at(lost.at));
        shown.last_heard = Some(clock::at(lost.heard));
        if let (Some((set, at)), Some(history)) = (lost.in_sync_at, fleet.history())
            && let Some(current) = fleet.placing.peek(&edge.id).filter(|current| current.id == set)
        {
            shown.pending = Some(current.view(history, 0).head().saturating_sub(at));
        }
    } else {
        // Not seen by this center; its status says what is known.
        let key = format!("{}//{}", edge.id.workspace, edge.id.name);
        let status = server.cache.get(crate::target::COLLECTION, &key).map(|object| object.value());
        let text = |value: Option<&serde_json::Value>| value.and_then(|v| v.as_str()).map(str::to_owned);
        let ready = status.as_ref().and_then(|value| crate::target::condition(value, "Ready"));
        let is_ready = ready.is_some_and(|condition| condition["status"] == "True");
        let center = status.as_ref().and_then(|value| value.pointer("/status/center")?.as_str());
        let elsewhere = center.filter(|center| is_ready && fleet.center().is_some_and(|me| me != *center));
        shown.last_heard = text(status.as_ref().and_then(|value| value.pointer("/status/lastSyncerHeartbeatTime")));
        if let Some(told) = elsewhere.and_then(|center| fleet.others.of(center, &edge.id)) {
            (shown.connected, shown.in_sync) = (true, told.in_sync);
            shown.since = text(ready.and_then(|condition| condition.get("lastTransitionTime")));
        } else if is_ready {
            // It was connected when the center before this one ended, which nobody could write down. When it was last
            // heard is not known.
            shown.since = Some(clock::at(fleet.started_at()));
            (shown.last_heard, shown.returning) = (None, true);
        } else {
            shown.since = text(ready.and_then(|condition| condition.get("lastTransitionTime")));
        }
    }
    shown
}
