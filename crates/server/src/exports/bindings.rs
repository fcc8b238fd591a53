//! Brings APIBindings to what they should be, and takes bound objects away before a binding goes.

use std::{sync::Arc, time::Duration};

use api::{crd::Definition, status::Result};
use serde_json::Value;
use store::{Commit, Compare, Op};

use super::{
    BINDINGS, EXPORTS, Exports, GROUP, SCHEMAS, VERSION,
    admit::FINALIZER,
    bind::{self, World},
    index,
};
use crate::{
    Server, clock,
    internal::{Internal, is_held},
    kinds::bound,
    object::Object,
    verbs::delete::Options,
};

const RETRY: Duration = Duration::from_millis(200);

pub async fn run(exports: Arc<Exports>, server: Arc<Server>) {
    loop {
        let key = exports.bindings.pop().await;
        let Some(object) = server.cache.get(BINDINGS, &key) else { continue };
        let hand = Internal::new(&server, object.cluster(), "kcp-apibinding");
        let done = if object.value()["metadata"]["deletionTimestamp"].is_null() {
            look_after(&hand, &object).await
        } else {
            clean_up(&hand, &object).await
        };
        if !matches!(done, Ok(true)) {
            if let Err(error) = done {
                tracing::warn!(binding = &*key, %error, "an APIBinding could not be brought to order; trying again");
            }
            let again = exports.clone();
            exports.bindings.again(key, move |key| again.bindings.push(key), RETRY);
        }
    }
}

async fn look_after(hand: &Internal, object: &Object) -> Result<bool> {
    let server = hand.server();
    let value = object.value();
    let (provider, name) = index::reference(object.cluster(), &value);
    let export = server.cache.get(EXPORTS, &index::key(provider, name)).map(|export| export.value());
    let schema = |name: &str| server.cache.get(SCHEMAS, &index::key(provider, name)).map(|schema| schema.value());
    let taken = |definition: &Definition| server.kinds.taken(object.cluster(), object.name(), provider, definition);
    let status = bind::status(&value, &World { provider, export, schema: &schema, taken: &taken }, &clock::now());
    if status != value["status"] {
        let kind = hand.kind(GROUP, VERSION, "apibindings")?;
        hand.change(&kind, "", object.name(), "status", |value| value["status"] = status.clone()).await?;
    }
    Ok(true)
}

/// Removes all objects of the bound kinds here, then lets the binding go. False: not all of them are gone yet.
async fn clean_up(hand: &Internal, object: &Object) -> Result<bool> {
    let value = object.value();
    if !is_held(&value, FINALIZER) {
        return Ok(true);
    }
    let server = hand.server();
    let prefix = format!("{}/", object.cluster());
    let mut left = 0;
    for one in value["status"]["boundResources"].as_array().into_iter().flatten() {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (group, resource) = (text(&one["group"]), text(&one["resource"]));
        let collection = bound::collection(&group, &resource, &text(&one["schema"]["identityHash"]));
        let kind = server.kinds.of_binding(object.cluster(), object.name(), &group, &resource);
        for instance in server.cache.snapshot(&collection).items.range(&prefix, "") {
            match &kind {
                Some(kind) => hand.delete(kind, instance, &Options::background()).await?,
                // Its schema is gone, and with it everything that could say how such an object is taken leave of.
                None => forget(server, &collection, instance).await?,
            }
        }
        left += server.cache.snapshot(&collection).items.range(&prefix, "").count();
    }
    if left > 0 {
        return Ok(false);
    }
    let kind = hand.kind(GROUP, VERSION, "apibindings")?;
    hand.release(&kind, object.name(), FINALIZER).await?;
    Ok(true)
}

async fn forget(server: &Server, collection: &str, object: &Object) -> Result<()> {
    let key = format!("{collection}/{}", object.key);
    let compares = vec![Compare { key: key.clone(), modified: object.revision }];
    let commit = Commit { compares, ops: vec![Op::Delete { key }] };
    let outcome = server.cache.store().commit(commit).await.map_err(|error| crate::unavailable(&error))?;
    if let store::Outcome::Committed(revision) = outcome {
        server.cache.wait_for(revision).await;
    }
    Ok(())
}
