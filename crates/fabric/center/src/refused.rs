//! Tells of objects that edges could not take: an Event on the object itself, once however many edges say the same.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use kinds::{EdgeId, ObjectKey};
use serde_json::json;
use server::Server;
use server::internal::Internal;

/// The same is not said again before.
const AGAIN: Duration = Duration::from_secs(600);
/// So much is remembered of what was said. When it is full, nothing more is said for a while: the SyncTargets still tell.
const KEPT: usize = 1000;
/// An Event has about so many bytes besides its message.
pub const EVENT: usize = 1000;

/// At most this many Events come of one edge at once, and then one in so long.
const OF_EDGE: Rate = Rate { burst: 100, every: Duration::from_secs(6) };
/// The same of one edge about one object.
const OF_OBJECT: Rate = Rate { burst: 10, every: Duration::from_secs(60) };
/// At most this many edges and objects are remembered for that.
const PACED: usize = 10_000;

#[derive(Default)]
pub struct Told {
    said: Mutex<HashMap<u64, Instant>>,
    pace: Mutex<Pace>,
    dropped: AtomicU64,
}

struct Rate {
    burst: u32,
    every: Duration,
}

/// When each has used up what it may say: a time ahead of now by as much as it said lately.
#[derive(Default)]
struct Pace(HashMap<u64, Instant>);

impl Pace {
    fn allows(&mut self, what: u64, rate: &Rate, now: Instant) -> bool {
        if self.0.len() >= PACED {
            self.0.retain(|_, until| *until > now);
        }
        if self.0.len() >= PACED && !self.0.contains_key(&what) {
            return false;
        }
        let until = self.0.entry(what).or_insert(now);
        let used = (*until).max(now) + rate.every;
        let allowed = used.duration_since(now) <= rate.every * rate.burst;
        if allowed {
            *until = used;
        }
        allowed
    }
}

fn hash_of(what: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

impl Told {
    /// Whether there may be one more Event of so many bytes in a workspace, about an object and because of an edge.
    pub fn may_tell(&self, server: &Server, workspace: &str, edge: &EdgeId, key: &str, bytes: usize) -> bool {
        let now = Instant::now();
        let edge = edge.to_string();
        let mut pace = self.pace.lock().unwrap_or_else(PoisonError::into_inner);
        let allowed = pace.allows(hash_of((&edge, workspace, key)), &OF_OBJECT, now)
            && pace.allows(hash_of(&edge), &OF_EDGE, now);
        drop(pace);
        let allowed =
            allowed && server.workspaces.has_room(workspace, 1, i64::try_from(bytes).unwrap_or(i64::MAX)).is_ok();
        if !allowed {
            self.dropped.fetch_add(1, Relaxed);
        }
        allowed
    }

    /// How many Events were not made.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }

    /// Whether that is news.
    fn is_new(&self, what: u64) -> bool {
        let now = Instant::now();
        let mut told = self.said.lock().unwrap_or_else(PoisonError::into_inner);
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
        let what = hash_of((workspace, key, reason));
        if self.is_new(what) && self.may_tell(server, workspace, edge, key, EVENT + reason.len().min(1000)) {
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
) -> schema::status::Result<()> {
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
    fn an_edge_says_so_much_at_once_and_then_slowly() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        let rate = Rate { burst: 3, every: Duration::from_secs(10) };
        let mut said = |what, seconds| pace.allows(what, &rate, now + Duration::from_secs(seconds));
        assert_eq!([0, 0, 0, 0, 9].map(|at| said(1, at)), [true, true, true, false, false]);
        assert!(said(2, 9), "another is not concerned");
        assert_eq!([10, 10, 100, 100, 100, 100].map(|at| said(1, at)), [true, false, true, true, true, false]);
    }

    #[test]
    fn the_same_is_said_once_and_not_without_end() {
        let told = Told::default();
        assert!(told.is_new(1));
        assert!(!told.is_new(1));
        let said = (0..3 * KEPT as u64).filter(|what| told.is_new(*what)).count();
        assert_eq!(said, KEPT - 1);
    }
}
