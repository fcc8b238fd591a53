//! CustomResourceDefinitions: accepting their names, and removing their objects with them.

use std::{sync::Arc, time::Duration};

use api::{crd, status::Result};
use serde_json::Value;

use super::Controllers;
use crate::{
    Server, clock,
    internal::{Internal, is_held},
    kinds::{DEFINITIONS, system},
    object::Object,
    verbs::delete::Options,
};

const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

pub async fn run(controllers: Arc<Controllers>, server: Arc<Server>) {
    loop {
        let key = controllers.definitions.pop().await;
        let Some(object) = server.cache.get(DEFINITIONS, &key) else { continue };
        let hand = Internal::new(&server, object.cluster(), "kube-apiserver");
        let done = if object.value()["metadata"]["deletionTimestamp"].is_null() {
            accept(&hand, &object).await
        } else {
            clean_up(&hand, &object).await
        };
        if !matches!(done, Ok(true)) {
            if let Err(status) = done {
                tracing::warn!(definition = object.name(), error = %status, "a definition could not be brought to order; trying again");
            }
            let again = controllers.clone();
            controllers.definitions.again(key, move |key| again.definitions.push(key), Duration::from_millis(200));
        }
    }
}

/// Names that nobody else has are accepted, and the kind is served from then on.
async fn accept(hand: &Internal, object: &Object) -> Result<bool> {
    let kind = hand.kind("apiextensions.k8s.io", "v1", "customresourcedefinitions")?;
    let prefix = format!("{}/", object.cluster());
    let snapshot = hand.server().cache.snapshot(DEFINITIONS);
    let mut others: Vec<Value> =
        snapshot.items.range(&prefix, "").filter(|o| o.key != object.key).map(|o| o.value()).collect();
    let group = object.value()["spec"]["group"].as_str().unwrap_or_default().to_owned();
    others.extend(system::names(&group));
    others.extend(hand.server().kinds.bound_names(object.cluster(), &group));
    let mut judged = object.value();
    if crd::accept(&mut judged, others.iter(), &clock::now()) {
        let status = judged["status"].clone();
        hand.change(&kind, "", object.name(), "status", |value| value["status"] = status.clone()).await?;
    }
    Ok(true)
}

/// Removes all objects of the kind, then lets the definition go. False: not all of them are gone yet.
async fn clean_up(hand: &Internal, object: &Object) -> Result<bool> {
    let value = object.value();
    if !is_held(&value, FINALIZER) {
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
