//! Acts when one identity is used by two machines: lets one of them in, writes that down at the SyncTarget, and tells
//! of it.

use std::sync::{
    Arc, PoisonError,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use kinds::{EdgeId, names};
use serde_json::{Value, json};
use server::Server;
use server::internal::Internal;

use crate::{
    edges::Edge,
    instances::{Decision, Lineage},
};

const MANAGER: &str = "selvedge-fleet";

/// Whether an edge may have a session, as far as other machines with the same identity are concerned.
pub fn lets_in(server: &Arc<Server>, edge: &Edge, from: &Lineage, credential: &str) -> bool {
    if let Some(decision) = &edge.target().decision {
        if let Some(later) = decision.follow(from) {
            tokio::spawn(write(server.clone(), edge.id.clone(), Some(decision.as_ref().clone()), later));
        }
        return decision.lets_in(from);
    }
    let found = edge.seen.lock().unwrap_or_else(PoisonError::into_inner).begins(from, credential);
    let Some(decision) = found else { return true };
    let may = decision.lets_in(from);
    tokio::spawn(write(server.clone(), edge.id.clone(), None, decision));
    may
}

/// Writes a decision down if the one before it is still what was decided, and tells of a first one.
async fn write(server: Arc<Server>, edge: EdgeId, before: Option<Decision>, decision: Decision) {
    let text = |decision: &Decision| serde_json::to_string(decision).unwrap_or_default();
    let (old, new) = (before.as_ref().map(text), text(&decision));
    let taken = AtomicBool::new(false);
    let edit = |value: &mut Value| {
        let found = value["metadata"]["annotations"][names::INSTANCES].as_str().map(str::to_owned);
        // A decision of an earlier joining is void.
        let void = found.as_deref().and_then(|found| serde_json::from_str::<Decision>(found).ok());
        let void = void.is_some_and(|found| found.credential != decision.credential);
        taken.store(found == old || void, Relaxed);
        if taken.load(Relaxed) {
            value["metadata"]["annotations"][names::INSTANCES] = new.clone().into();
        }
    };
    let done = change(&server, &edge, edit).await;
    if let Err(error) = done {
        return tracing::warn!(%edge, error = error.message, "it is not written down that an edge's identity is shared");
    }
    if taken.load(Relaxed) && before.is_none() {
        let message = decision.message(&edge.workspace, &edge.name, names::ACCEPT_INSTANCE);
        tracing::error!(%edge, "{message}");
        if let Err(error) = tell(&server, &edge, &message).await {
            tracing::warn!(%edge, error = error.message, "no Event tells that an edge's identity is shared");
        }
    }
}

/// Does what an operator has decided, and takes the annotation that says so away.
pub async fn accept(server: Arc<Server>, edge: EdgeId) {
    let edit = |value: &mut Value| {
        let Some(all) = value.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) else { return };
        let Some(chosen) = all.remove(names::ACCEPT_INSTANCE) else { return };
        let decision = all.get(names::INSTANCES).and_then(Value::as_str);
        let decision = decision.and_then(|text| serde_json::from_str::<Decision>(text).ok());
        match (chosen.as_str().map(str::trim), decision) {
            (Some("any"), _) => _ = all.remove(names::INSTANCES),
            (Some(id), Some(decision)) => {
                if let Some(chosen) = decision.choose(id).and_then(|chosen| serde_json::to_string(&chosen).ok()) {
                    all.insert(names::INSTANCES.to_owned(), chosen.into());
                }
            }
            _ => {}
        }
    };
    if let Err(error) = change(&server, &edge, edit).await {
        tracing::warn!(%edge, error = error.message, "it is not written down which machine of an edge is let in");
    }
}

async fn change(server: &Arc<Server>, edge: &EdgeId, edit: impl Fn(&mut Value)) -> schema::status::Result<()> {
    let hand = Internal::new(server, &edge.workspace, MANAGER);
    let kind = hand.kind("workload.kcp.io", "v1alpha1", "synctargets")?;
    hand.change(&kind, "", &edge.name, "", edit).await.map(drop)
}

/// An Event at the SyncTarget.
async fn tell(server: &Arc<Server>, edge: &EdgeId, message: &str) -> schema::status::Result<()> {
    let hand = Internal::new(server, &edge.workspace, MANAGER);
    let kind = hand.kind("workload.kcp.io", "v1alpha1", "synctargets")?;
    let target = hand.get(&kind, "", &edge.name);
    let Some(target) = target.map(|target| target.value()) else { return Ok(()) };
    let about = json!({"apiVersion": target["apiVersion"], "kind": target["kind"], "name": edge.name,
        "uid": target["metadata"]["uid"], "resourceVersion": target["metadata"]["resourceVersion"]});
    let (now, namespace) = (clock::now(), "default");
    let name = format!("{}.{:016x}", edge.name.chars().take(200).collect::<String>(), rand::random::<u64>());
    let message: String = message.chars().take(1000).collect();
    let event = json!({"metadata": {"name": name, "namespace": namespace}, "involvedObject": about, "type": "Warning",
        "reason": "IdentityShared", "message": message, "source": {"component": MANAGER}, "count": 1,
        "firstTimestamp": now, "lastTimestamp": now});
    hand.ensure(&hand.kind("", "v1", "events")?, namespace, event).await
}
