//! Keeps the status of ResourceQuotas true when something is freed. What is used is charged by admission.

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use cache::{Change, ChangeKind};
use schema::selector::scan;
use schema::status::Result;
use serde_json::Value;

use super::{Controllers, queue::Queue};
use crate::{
    Server,
    admission::quota::{QUOTAS, is_counted, is_counted_otherwise, recount, write_status},
    internal::Internal,
};

const RETRY: Duration = Duration::from_secs(2);
/// Deletions often come in numbers: they are counted together.
const GATHER: Duration = Duration::from_millis(20);

/// Keys of quotas whose spec changed, and prefixes (`cluster/namespace/`) of namespaces in which something was freed.
#[derive(Default)]
pub struct Quotas {
    queue: Queue,
    /// How many quotas there are below each prefix.
    namespaces: RwLock<HashMap<Box<str>, usize>>,
}

impl Quotas {
    pub fn observe(&self, collection: &str, change: &Change) {
        let object = &change.object;
        let prefix = || &object.key[..object.key.len() - object.name().len()];
        if collection == QUOTAS {
            let mut namespaces = self.namespaces.write().unwrap_or_else(PoisonError::into_inner);
            match change.kind {
                ChangeKind::Added => {
                    *namespaces.entry(prefix().into()).or_default() += 1;
                    self.queue.push(prefix());
                }
                ChangeKind::Modified => self.queue.push(&object.key),
                ChangeKind::Deleted => {
                    if let Some(count) = namespaces.get_mut(prefix()) {
                        *count -= 1;
                        if *count == 0 {
                            namespaces.remove(prefix());
                        }
                    }
                }
            }
        }
        let frees = match change.kind {
            ChangeKind::Deleted => true,
            ChangeKind::Modified => matches!(collection, "core/pods" | "core/services" | "core/persistentvolumeclaims"),
            ChangeKind::Added => false,
        };
        if !frees {
            return;
        }
        let namespaces = self.namespaces.read().unwrap_or_else(PoisonError::into_inner);
        if namespaces.is_empty() || !namespaces.contains_key(prefix()) {
            return;
        }
        if collection == "core/pods" && change.kind == ChangeKind::Modified && !frees_something(change) {
            return;
        }
        self.queue.push(prefix());
    }
}

/// Whether a Pod ended, was resized, or came under other quotas.
fn frees_something(change: &Change) -> bool {
    let phase = scan::raw_at(&change.object.json, &["status", "phase"]);
    if phase.is_some_and(|phase| phase == b"\"Succeeded\"" || phase == b"\"Failed\"") {
        return true;
    }
    let Some(previous) = &change.previous else { return false };
    // Most changes are of the status alone, and none of them matters unless containers were resized.
    let generation = |json| scan::raw_at(json, &["metadata", "generation"]);
    let resized = |json: &[u8]| scan::mentions(json, "allocatedResources");
    let looks = generation(&previous.json) != generation(&change.object.json)
        || resized(&previous.json)
        || resized(&change.object.json);
    looks && is_counted_otherwise(&previous.value(), &change.object.value())
}

pub async fn run(controllers: Arc<Controllers>, server: Arc<Server>) {
    loop {
        let key = controllers.quotas.queue.pop().await;
        tokio::time::sleep(GATHER).await;
        if let Err(error) = handle(&server, &key).await {
            tracing::warn!(%error, "a ResourceQuota could not be brought up to date; trying again");
            let again = controllers.clone();
            controllers.quotas.queue.again(key, move |key| again.quotas.queue.push(key), RETRY);
        }
    }
}

async fn handle(server: &Arc<Server>, key: &str) -> Result<()> {
    if !key.ends_with('/') {
        return match server.cache.get(QUOTAS, key) {
            // A charge, which is right by itself.
            Some(quota) if is_counted(&quota.value()) => Ok(()),
            Some(quota) => count(server, &quota.key).await,
            None => Ok(()),
        };
    }
    let snapshot = server.cache.snapshot(QUOTAS);
    for quota in snapshot.items.range(key, "") {
        count(server, &quota.key).await?;
    }
    Ok(())
}

async fn count(server: &Arc<Server>, key: &str) -> Result<()> {
    let mut parts = key.splitn(3, '/');
    let (cluster, namespace, name) =
        (parts.next().unwrap_or_default(), parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let hand = Internal::new(server, cluster, "kube-controller-manager");
    let kind = hand.kind("", "v1", "resourcequotas")?;
    // Counted anew in every attempt: whatever was charged after the quota was read makes the attempt fail.
    let edit = |value: &mut Value| {
        let used = recount(server, cluster, namespace, value);
        write_status(value, &used);
    };
    hand.change(&kind, namespace, name, "status", edit).await.map(|_| ())
}
