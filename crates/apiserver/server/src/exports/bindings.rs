//! Brings APIBindings to what they should be, and takes bound objects away before a binding goes.

use std::{sync::Arc, time::Duration};

use ::schema::status::Result;
use cache::object::Object;
use rules::crd::Definition;
use serde_json::Value;
use store::{Commit, Compare, Op};

use super::{
    BINDINGS, EXPORTS, Exports, GROUP, SCHEMAS, VERSION,
    admit::FINALIZER,
    bind::{self, World},
    index, schema,
};
use crate::{
    Server,
    internal::{Internal, is_held},
    kinds::{bound, system},
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
    let found = server.exports.read().export(&index::key(provider, name)).map(|export| export.identity.clone());
    let identity = found.as_deref().filter(|identity| !identity.is_empty());
    let gave = |one: &Value| gave(server, (provider, name), one);
    let schema = |name: &str| server.cache.get(SCHEMAS, &index::key(provider, name)).map(|schema| schema.value());
    let taken = |definition: &Definition| server.kinds.taken(object.cluster(), object.name(), provider, definition);
    let status = {
        let world = World { provider, export, identity, gave: &gave, schema: &schema, taken: &taken };
        bind::status(&value, &world, &clock::now())
    };
    if status != value["status"] {
        let kind = hand.kind(GROUP, VERSION, "apibindings")?;
        hand.change(&kind, "", object.name(), "status", |value| value["status"] = status.clone()).await?;
    }
    Ok(true)
}

/// Whether an export can have given this entry of a binding's status. Tenants cannot write any of what this is decided
/// by, except for what is theirs: the schema that the entry names must be one of the provider's workspace, and its
/// identity no other export's.
fn gave(server: &Server, (provider, export): (&str, &str), one: &Value) -> bool {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (group, resource, named) = (text(&one["group"]), text(&one["resource"]), &one["schema"]);
    if !schema::may_come_from(provider, export, &group) {
        return false;
    }
    if system::is_exported(&group) {
        return !system::bound(&group, &resource).is_empty();
    }
    let key = index::key(provider, export);
    let found = server.cache.get(SCHEMAS, &index::key(provider, &text(&named["name"]))).map(|schema| schema.value());
    let is_there = match found {
        Some(found) => {
            let spec = &found["spec"];
            found["metadata"]["uid"] == named["UID"]
                && spec["group"] == one["group"]
                && spec["names"]["plural"] == one["resource"]
        }
        // A schema that is bound goes only with its workspace. Without it nothing is served, but its objects have to be
        // found.
        None => server.cache.get(EXPORTS, &key).is_none() || server.workspaces.is_leaving(provider),
    };
    is_there && server.exports.read().may_have_given(&key, &text(&named["identityHash"]))
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{exports::schema::tests::widgets, workspaces};
    use request::ROOT;

    async fn until(what: &str, is_so: impl Fn() -> bool) {
        for _ in 0..1000 {
            if is_so() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("waited in vain for {what}");
    }

    /// A status that says more than its sources is put right, and nothing is served by it meanwhile.
    #[tokio::test]
    async fn what_was_forged_is_put_right() {
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(store::MemoryStore::default());
        let running = crate::start::testing::start(crate::Options::new(dir.path(), store)).await.unwrap();
        let server = &running.server;
        let root = Internal::new(server, ROOT, "test");
        let spaces = root.kind(workspaces::GROUP, workspaces::VERSION, "workspaces").unwrap();
        root.ensure(&spaces, "", json!({"metadata": {"name": "a"}, "spec": {}})).await.unwrap();
        let hand = Internal::new(server, "root:a", "test");
        let kind = |resource: &str| hand.kind(GROUP, VERSION, resource).unwrap();
        let (schemas, exports, bindings) = (kind("apiresourceschemas"), kind("apiexports"), kind("apibindings"));
        hand.ensure(&schemas, "", widgets("v1", json!({}))).await.unwrap();
        for name in ["mine", "theirs"] {
            let spec = json!({"latestResourceSchemas": ["v1.widgets.example.io"]});
            hand.ensure(&exports, "", json!({"metadata": {"name": name}, "spec": spec})).await.unwrap();
        }
        let binding =
            json!({"metadata": {"name": "b"}, "spec": {"reference": {"export": {"path": "root:a", "name": "mine"}}}});
        hand.ensure(&bindings, "", binding).await.unwrap();
        let bound = || hand.get(&bindings, "", "b").unwrap().value()["status"]["boundResources"].clone();
        let identity = |name: &str| {
            let found = server.exports.read().export(&index::key("root:a", name)).unwrap().identity.clone();
            found.to_string()
        };
        until("the binding", || bound().is_array()).await;
        until("the other export", || !identity("theirs").is_empty()).await;
        let (right, mine) = (bound(), identity("mine"));
        assert_eq!(right[0]["schema"]["identityHash"], mine.as_str());

        let entry = |group: &str, resource: &str, uid: &Value, identity: &str| {
            let schema = json!({"name": "v1.widgets.example.io", "UID": uid, "identityHash": identity});
            json!({"group": group, "resource": resource, "storageVersions": ["v1"], "schema": schema})
        };
        let uid = &right[0]["schema"]["UID"];
        let unknown = Value::from("0");
        let many = json!([
            right[0],
            entry("edge.kcp.io", "edgeplacements", uid, &mine),
            entry("x.io", "xs", uid, &mine),
            entry("example.io", "others", &unknown, &mine)
        ]);
        for forged in [many, json!([entry("example.io", "widgets", uid, &identity("theirs"))])] {
            let edit = |value: &mut Value| value["status"]["boundResources"] = forged.clone();
            hand.change(&bindings, "", "b", "status", edit).await.unwrap();
            assert!(server.kinds.find("root:a", "edge.kcp.io", "v1alpha1", "edgeplacements").is_none());
            until("what is right", || bound() == right).await;
        }

        // An identity that nobody has the key of is none, and another's is not taken over.
        let edit = |value: &mut Value| value["status"]["identityHash"] = "f".repeat(64).into();
        hand.change(&exports, "", "mine", "status", edit).await.unwrap();
        until("the export to have none", || identity("mine").is_empty()).await;
        let theirs = identity("theirs");
        let edit = |value: &mut Value| value["status"]["identityHash"] = theirs.as_str().into();
        hand.change(&exports, "", "mine", "status", edit).await.unwrap();
        until("the export to have its own", || identity("mine") == mine).await;
        let status = || hand.get(&exports, "", "mine").unwrap().value()["status"]["identityHash"].clone();
        until("its status", || status() == mine.as_str()).await;
        assert_eq!(bound(), right);
        running.stop().await;
    }
}
