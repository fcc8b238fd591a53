//! Writes SyncTargets' status: soon, once for what happens at the same time, and not at all when it says everything already.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use futures::{StreamExt, stream};
use kinds::EdgeId;
use server::Server;
use server::internal::Internal;
use tokio::sync::Notify;

use crate::{
    Fleet,
    conditions::{self, Link, Said},
    edges::Edge,
    placing::id_of,
    target,
};

/// What happens within this time is one write.
const PACE: Duration = Duration::from_millis(100);
/// Writes under way at one time: when thousands of edges come back, others write too.
const AT_ONCE: usize = 8;
const MANAGER: &str = "selvedge-fleet";

/// Edges whose status may have to be written, and not before when.
#[derive(Default)]
pub struct Queue {
    due: Mutex<HashMap<EdgeId, Instant>>,
    filled: Notify,
}

impl Queue {
    pub fn push(&self, edge: &EdgeId, after: Duration) {
        let at = Instant::now() + after;
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        match due.get_mut(edge) {
            Some(already) => *already = at.min(*already),
            None => drop(due.insert(edge.clone(), at)),
        }
        drop(due);
        self.filled.notify_one();
    }

    /// Those that are due. Waits until there is something to wait for.
    async fn take(&self) -> Vec<EdgeId> {
        loop {
            let filled = self.filled.notified();
            match self.take_due() {
                (ready, _) if !ready.is_empty() => return ready,
                (_, true) => tokio::time::sleep(PACE).await,
                (_, false) => filled.await,
            }
        }
    }

    /// Those that are due now, and whether others will be.
    fn take_due(&self) -> (Vec<EdgeId>, bool) {
        let now = Instant::now();
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        let ready: Vec<EdgeId> = due.iter().filter(|(_, at)| **at <= now).map(|(edge, _)| edge.clone()).collect();
        for edge in &ready {
            due.remove(edge);
        }
        if due.is_empty() {
            due.shrink_to_fit();
        }
        (ready, !due.is_empty())
    }
}

/// Writes until the server stops.
pub async fn run(fleet: Arc<Fleet>, server: Arc<Server>) {
    loop {
        let edges = fleet.statuses.take().await;
        let write = |id: EdgeId| {
            let (fleet, server) = (fleet.clone(), server.clone());
            async move {
                let Some(edge) = fleet.edges.get(&id) else { return };
                if let Err(error) = write(&fleet, &server, &edge).await {
                    tracing::warn!(edge = %id, error = error.message, "a SyncTarget's status could not be written; it is tried again");
                    fleet.statuses.push(&id, Duration::from_secs(5));
                }
            }
        };
        stream::iter(edges).for_each_concurrent(AT_ONCE, write).await;
        tokio::time::sleep(PACE).await;
    }
}

async fn write(fleet: &Fleet, server: &Arc<Server>, edge: &Edge) -> schema::status::Result<()> {
    if *server.shutdown.borrow() {
        return Ok(());
    }
    let hand = Internal::new(server, &edge.id.workspace, MANAGER);
    let kind = hand.kind("workload.kcp.io", "v1alpha1", "synctargets")?;
    let Some(object) = hand.get(&kind, "", &edge.id.name) else { return Ok(()) };
    let edit = |value: &mut serde_json::Value| say(fleet, edge, value);
    if !edit(&mut object.value()) {
        return Ok(());
    }
    hand.change(&kind, "", &edge.id.name, "status", |value| {
        edit(value);
    })
    .await
    .map(drop)
}

fn say(fleet: &Fleet, edge: &Edge, value: &mut serde_json::Value) -> bool {
    let target = edge.target();
    let session = edge.session();
    let facts = session.as_ref().map(|live| live.facts().clone()).filter(|facts| facts.connected);
    let now = clock::now();
    let (heard, since);
    let link = match (&session, &facts) {
        (Some(live), Some(facts)) => {
            heard = clock::at(live.heard.load(std::sync::atomic::Ordering::Relaxed) as i64);
            Link::Up { heard: &heard, facts }
        }
        // It is shaking hands.
        (Some(_), None) => return false,
        (None, _) => match edge.lost() {
            Some(lost) => {
                (heard, since) = (clock::at(lost.heard), clock::at(lost.at));
                Link::Down { since: &since, heard: Some(&heard) }
            }
            // Not seen since this center started; if it was connected before, all that is known is that it is not now.
            None if target::condition(value, "Ready").is_some_and(|c| c["status"] == "True") => {
                since = clock::at(fleet.started_at());
                Link::Down { since: &since, heard: None }
            }
            None => return false,
        },
    };
    let asked = fleet.server().and_then(|server| target.asks_for(server, &edge.id.workspace));
    let workspace = asked.map(|(name, allowed)| (&**name, allowed));
    let writes = edge.writes.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let (cut, center, writes) = (target.cut, fleet.center(), writes.as_ref());
    let shared = target.decision.as_deref();
    let placed = fleet.placing.read(|engine| !engine.schedule().reaching(&id_of(&edge.id)).is_empty());
    conditions::write(value, &Said { edge: &edge.id, link, workspace, placed, cut, center, writes, shared }, &now)
}

/// Takes an annotation off a SyncTarget that has been acted on, if it still says the same.
pub async fn consume(server: Arc<Server>, edge: EdgeId, annotation: &'static str, said: Option<String>) {
    let hand = Internal::new(&server, &edge.workspace, MANAGER);
    let edit = |value: &mut serde_json::Value| {
        if let Some(all) = value.pointer_mut("/metadata/annotations").and_then(|all| all.as_object_mut())
            && said
                .as_ref()
                .is_none_or(|said| all.get(annotation).and_then(|v| v.as_str()).is_some_and(|v| v.trim() == said))
        {
            all.remove(annotation);
        }
    };
    let done = match hand.kind("workload.kcp.io", "v1alpha1", "synctargets") {
        Ok(kind) => hand.change(&kind, "", &edge.name, "", edit).await.map(drop),
        Err(error) => Err(error),
    };
    if let Err(error) = done {
        tracing::warn!(%edge, annotation, error = error.message, "an annotation that was acted on could not be taken away");
    }
}
