//! CustomResourceDefinitions: accepting their names, and removing their objects with them.

use std::{sync::Arc, time::Duration};

use cache::object::Object;
use futures::future::BoxFuture;
use rules::crd;
use rules::crd::Light;
use schema::selector::scan;
use schema::status::Result;
use serde_json::{Value, json};

use super::Controllers;
use crate::{
    Server,
    apart::{ALONE, LARGE},
    internal::{Internal, is_held},
    kinds::{DEFINITIONS, system},
    verbs::delete::Options,
};

const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// One of several workers. The definitions of one workspace come one after the other.
pub async fn run(controllers: Arc<Controllers>, server: Arc<Server>) {
    loop {
        let key = controllers.definitions.pop_exclusive().await;
        let done = tend(&server, &key).await;
        controllers.definitions.done(&key);
        if !matches!(done, Ok(true)) {
            if let Err(status) = done {
                tracing::warn!(definition = %key, error = %status, "a definition could not be brought to order; trying again");
            }
            let again = controllers.clone();
            controllers.definitions.again(key, move |key| again.definitions.push(key), Duration::from_millis(200));
        }
    }
}

/// Brings one definition to order. A large one has a thread of its own for it.
async fn tend(server: &Arc<Server>, key: &str) -> Result<bool> {
    let Some(object) = server.cache.get(DEFINITIONS, key) else { return Ok(true) };
    if object.json.len() <= LARGE {
        return order(server.clone(), object).await;
    }
    let (cluster, size) = (object.cluster().to_owned(), ALONE);
    let work: BoxFuture<'static, Result<bool>> = Box::pin(order(server.clone(), object));
    server.apart(&cluster, "", size, work).await?
}

async fn order(server: Arc<Server>, object: Arc<Object>) -> Result<bool> {
    let hand = Internal::new(&server, object.cluster(), "kube-apiserver");
    if scan::raw_at(object.metadata(), &["deletionTimestamp"]).is_some() {
        return clean_up(&hand, &object).await;
    }
    let mut definition = Light::read(&object.json).value;
    if judge(&hand, &object, &mut definition) {
        accept(&hand, object.name(), definition["status"].take()).await?;
    }
    Ok(true)
}

/// Names that nobody else has are accepted, and the kind is served from then on. Says whether the status changed.
fn judge(hand: &Internal, object: &Object, definition: &mut Value) -> bool {
    let (server, cluster) = (hand.server(), object.cluster());
    let group = definition["spec"]["group"].as_str().unwrap_or_default().to_owned();
    let mut others = system::names(&group);
    others.extend(server.kinds.bound_names(cluster, &group));
    let beside = crd::names_of(&others);
    let taken = |name: &str, as_kind: bool| {
        beside.has(name, as_kind) || server.kinds.names.taken(cluster, object.name(), name, as_kind)
    };
    crd::accept_beside(definition, taken, &clock::now())
}

/// Writes what was decided.
async fn accept(hand: &Internal, name: &str, status: Value) -> Result<()> {
    let kind = hand.kind("apiextensions.k8s.io", "v1", "customresourcedefinitions")?;
    hand.change(&kind, "", name, "status", |value| value["status"] = status.clone()).await?;
    Ok(())
}

/// Removes all objects of the kind, then lets the definition go. False: not all of them are gone yet.
async fn clean_up(hand: &Internal, object: &Object) -> Result<bool> {
    let held: Value = serde_json::from_slice(object.metadata()).unwrap_or_default();
    if !is_held(&json!({"metadata": held}), FINALIZER) {
        return Ok(true);
    }
    let kind = hand.kind("apiextensions.k8s.io", "v1", "customresourcedefinitions")?;
    // Only its own kind: a definition whose names were taken must not take the objects of the one that has them.
    if let Some(custom) = hand.server().kinds.of_definition(object.cluster(), object.name()) {
        let prefix = format!("{}/", object.cluster());
        let snapshot = hand.server().cache.snapshot(&custom.collection);
        for instance in snapshot.items.range(&prefix, "") {
            hand.delete(&custom, instance, &Options::background()).await?;
        }
        let left = hand.server().cache.snapshot(&custom.collection).items.range(&prefix, "").count();
        let (reason, message) = match left {
            0 => ("InstanceDeletionCompleted", "removed all instances".to_owned()),
            n => ("InstanceDeletionInProgress", format!("CustomResource deletion is in progress: {n} left")),
        };
        let now = clock::now();
        hand.change(&kind, "", object.name(), "status", |value| crd::terminating(value, reason, &message, &now))
            .await?;
        if left > 0 {
            return Ok(false);
        }
    }
    hand.release(&kind, object.name(), FINALIZER).await?;
    Ok(true)
}
