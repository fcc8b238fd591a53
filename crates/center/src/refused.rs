//! Tells of objects that edges could not take: an Event on the object itself, once however many edges say the same.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use serde_json::json;
use server::{Server, clock, internal::Internal};
use types::{EdgeId, ObjectKey};

/// The same is not said again before.
const AGAIN: Duration = Duration::from_secs(600);
/// So much is remembered of what was said. When it is full, nothing more is said for a while: the SyncTargets still tell.
const KEPT: usize = 1000;

#[derive(Default)]
pub struct Told(Mutex<HashMap<u64, Instant>>);

impl Told {
    /// Whether that is news.
    fn is_new(&self, what: u64) -> bool {
        let now = Instant::now();
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() >= KEPT {
            told.retain(|_, at| now.duration_since(*at) < AGAIN);
        }
        if told.get(&what).is_some_and(|at| now.duration_since(*at) < AGAIN) || told.len() >= KEPT {
            return false;
        }
        told.insert(what, now);
        true
    }

    pub fn tell(&self, server: &Arc<Server>, workspace: &str, edge: &EdgeId, key: &str, reason: &str) {
        let mut hasher = DefaultHasher::new();
        (workspace, key, reason).hash(&mut hasher);
        let what = hasher.finish();
        if self.is_new(what) {
            let (server, edge) = (server.clone(), edge.clone());
            let (workspace, key, reason) = (workspace.to_owned(), key.to_owned(), reason.to_owned());
            tokio::spawn(async move {
                if let Err(error) = event(&server, &workspace, &edge, &key, &reason, what).await {
                    tracing::warn!(%edge, key, reason, error = error.message, "an edge refused an object, and no Event could be made of it");
                }
            });
        }
    }
}

async fn event(
    server: &Arc<Server>,
    workspace: &str,
    edge: &EdgeId,
    key: &str,
    reason: &str,
    what: u64,
) -> api::status::Result<()> {
    let Some(object) = ObjectKey::parse(key) else { return Ok(()) };
    let Some(found) = crate::bound::source(server, workspace, &object) else { return Ok(()) };
    let value = found.value();
    let namespace = if object.namespace.is_empty() { "default" } else { object.namespace };
    let now = clock::now();
    let about = json!({"apiVersion": value["apiVersion"], "kind": value["kind"], "namespace": object.namespace,
        "name": object.name, "uid": value["metadata"]["uid"], "resourceVersion": value["metadata"]["resourceVersion"]});
    let message: String = format!("edge {edge} could not take it: {reason}").chars().take(1000).collect();
    // Object names may be as long as names get.
    let short: String = object.name.chars().take(200).filter(|c| *c != ':').collect();
    let name = format!("{short}.{:016x}", what ^ clock::unix() as u64);
    let hand = Internal::new(server, workspace, "selvedge-fleet");
    let kind = hand.kind("", "v1", "events")?;
    let event = json!({"metadata": {"name": name, "namespace": namespace}, "involvedObject": about, "type": "Warning",
        "reason": "RefusedByEdge", "message": message, "source": {"component": "selvedge-fleet"}, "count": 1,
        "firstTimestamp": now, "lastTimestamp": now});
    hand.ensure(&kind, namespace, event).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_said_once_and_not_without_end() {
        let told = Told::default();
        assert!(told.is_new(1));
        assert!(!told.is_new(1));
        let said = (0..3 * KEPT as u64).filter(|what| told.is_new(*what)).count();
        assert_eq!(said, KEPT - 1);
    }
}
