//! How a workspace ends: the workspaces inside it first, then its objects, then what they needed.
//!
//! Every step looks at what is there, so one that was interrupted goes on where it was. Objects with finalizers are waited
//! for, as when a namespace is deleted; the others go many at a time.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use cache::object::Object;
use schema::selector::scan;
use schema::status::Result;
use serde_json::Value;
use store::{Commit, Compare, Op, Outcome};

use super::{FINALIZER, GROUP, VERSION, WORKSPACES, lifecycle};
use crate::{internal::Internal, kinds::DEFINITIONS, verbs::delete::Options};

/// etcd takes at most 128 operations and as many compares in one commit.
const AT_ONCE: usize = 100;
/// After so many, others have their turn.
const IN_ONE_GO: usize = 2_000;
/// What waits for others is looked at again after this long, whatever happens.
const LOOK: Duration = Duration::from_secs(2);

/// These go when nothing else is left: kinds that objects are of, namespaces that they are in, roles by which others finish
/// their finalizers.
fn is_last(collection: &str) -> bool {
    collection == DEFINITIONS
        || collection == "core/namespaces"
        || collection == "apis.kcp.io/apibindings"
        || collection.starts_with("rbac.authorization.k8s.io/")
}

/// Finalizers of those that stand for work which is done here.
fn is_ours(finalizer: &str) -> bool {
    finalizer.starts_with("customresourcecleanup.apiextensions.k8s.io") || finalizer.starts_with("apis.kcp.io/")
}

/// Takes out of the workspace at `path` what can be taken out, says what is left, and lets its object go if nothing is.
pub async fn take_down(hand: &Internal, object: &Object, path: &str) -> Result<Option<Duration>> {
    let server = hand.server();
    let mut sweep = Sweep {
        inside: Internal::new(server, path, "selvedge"),
        path,
        batch: Vec::new(),
        removed: 0,
        left: Left::default(),
    };
    let stages: [fn(&str) -> bool; 3] =
        [|name| name == WORKSPACES, |name| name != WORKSPACES && !is_last(name), is_last];
    let mut names = server.cache.names();
    names.sort();
    for stage in stages {
        for name in names.iter().filter(|name| stage(name)) {
            sweep.empty(name, is_last(name)).await?;
        }
        sweep.remove().await?;
        if !sweep.left.is_nothing() {
            break;
        }
    }
    let kind = hand.kind(GROUP, VERSION, "workspaces")?;
    let left = &sweep.left;
    if left.is_nothing() {
        hand.release(&kind, object.name(), FINALIZER).await?;
        return Ok(None);
    }
    let (now, message) = (clock::now(), left.message());
    let edit = |value: &mut Value| {
        let conditions = vec![
            lifecycle::condition("Ready", false, "Deleting", "the workspace is being deleted", &now),
            lifecycle::condition("WorkspaceContentDeleted", false, left.reason(), &message, &now),
        ];
        let before = value["status"]["conditions"].take();
        if !value["status"].is_object() {
            value["status"] = serde_json::json!({});
        }
        value["status"]["phase"] = "Deleting".into();
        value["status"]["conditions"] = lifecycle::with_times(conditions, &before);
    };
    hand.change(&kind, "", object.name(), "status", edit).await?;
    Ok(Some(if sweep.removed > 0 { Duration::ZERO } else { LOOK }))
}

/// One go through what is in a workspace.
struct Sweep<'a> {
    inside: Internal,
    path: &'a str,
    /// What goes in the next commit, with the collections it is in.
    batch: Vec<(Box<str>, Arc<Object>)>,
    removed: usize,
    left: Left,
}

impl Sweep<'_> {
    /// Takes what is in one collection, or begins to, and notes what stays.
    async fn empty(&mut self, collection: &str, last: bool) -> Result<()> {
        let server = self.inside.server().clone();
        let (group, resource) = collection.split_once('/').unwrap_or(("", collection));
        let find = || server.kinds.any_version(self.path, if group == "core" { "" } else { group }, resource);
        let snapshot = server.cache.snapshot(collection);
        for object in snapshot.items.range(&format!("{}/", self.path), "") {
            if self.removed + self.batch.len() >= IN_ONE_GO {
                self.left.note(collection, object);
                continue;
            }
            let waits = finalizers(object).iter().any(|f| !(last && is_ours(f)));
            // A pod that runs ends gracefully.
            let runs = collection == "core/pods" && scan::raw_at(&object.json, &["spec", "nodeName"]).is_some();
            match Some(()).filter(|()| waits || runs).and_then(|()| find()) {
                Some(kind) => {
                    if scan::raw_at(&object.json, &["metadata", "deletionTimestamp"]).is_none() {
                        self.inside.delete(&kind, object, &Options::background()).await?;
                    }
                    if let Some(still) = server.cache.get(collection, &object.key) {
                        self.left.note(collection, &still);
                    }
                }
                // Also what is of no kind any more, so that nobody could let go of it.
                None => self.batch.push((collection.into(), object.clone())),
            }
            if self.batch.len() >= AT_ONCE {
                self.remove().await?;
            }
        }
        Ok(())
    }

    /// One commit. If somebody has changed one of them meanwhile, they are all left for the next time.
    async fn remove(&mut self) -> Result<()> {
        let batch = std::mem::take(&mut self.batch);
        if batch.is_empty() {
            return Ok(());
        }
        let mut commit = Commit::default();
        for (collection, object) in &batch {
            let key = format!("{collection}/{}", object.key);
            commit.compares.push(Compare { key: key.clone(), modified: object.revision });
            commit.ops.push(Op::Delete { key });
        }
        let cache = &self.inside.server().cache;
        match cache.store().commit_freeing(commit).await.map_err(|error| crate::unavailable(&error))? {
            Outcome::Committed(revision) => {
                cache.wait_for(revision).await;
                self.removed += batch.len();
            }
            Outcome::Conflict { found, .. } => {
                cache.see_why(found).await.map_err(|error| crate::unavailable(&error))?;
                batch.iter().for_each(|(collection, object)| self.left.note(collection, object));
                self.removed += 1;
            }
        }
        Ok(())
    }
}

fn finalizers(object: &Object) -> Vec<String> {
    let raw = scan::raw_at(&object.json, &["metadata", "finalizers"]);
    raw.and_then(|raw| serde_json::from_slice(raw).ok()).unwrap_or_default()
}

/// What is still there.
#[derive(Default)]
struct Left {
    resources: BTreeMap<String, usize>,
    finalizers: BTreeMap<String, usize>,
}

impl Left {
    fn note(&mut self, collection: &str, object: &Object) {
        let (group, resource) = collection.split_once('/').unwrap_or(("", collection));
        *self
            .resources
            .entry(schema::status::qualified(if group == "core" { "" } else { group }, resource))
            .or_default() += 1;
        for finalizer in finalizers(object) {
            *self.finalizers.entry(finalizer).or_default() += 1;
        }
    }

    fn is_nothing(&self) -> bool {
        self.resources.is_empty()
    }

    fn reason(&self) -> &'static str {
        if self.finalizers.is_empty() { "SomeResourcesRemain" } else { "SomeFinalizersRemain" }
    }

    fn message(&self) -> String {
        let list = |counts: &BTreeMap<String, usize>, what: &str| {
            counts
                .iter()
                .map(|(name, n)| format!("{name} {what} {n} resource instances"))
                .collect::<Vec<_>>()
                .join(", ")
        };
        let mut text = format!("Some resources are remaining: {}", list(&self.resources, "has"));
        if !self.finalizers.is_empty() {
            text.push_str("; some content has finalizers remaining: ");
            text.push_str(&list(&self.finalizers, "in"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn it_says_what_remains() {
        let mut left = Left::default();
        assert!(left.is_nothing());
        let object = |json: &'static str| Object::new("root:a/ns/x".into(), Bytes::from_static(json.as_bytes()), 1, 1);
        left.note("core/configmaps", &object(r#"{"metadata":{"name":"x"}}"#));
        assert_eq!(left.reason(), "SomeResourcesRemain");
        left.note("core/configmaps", &object(r#"{"metadata":{"name":"y","finalizers":["a.io/b"]}}"#));
        left.note("apps/deployments", &object(r#"{"metadata":{"finalizers":["a.io/b","c"]}}"#));
        assert_eq!(left.reason(), "SomeFinalizersRemain");
        assert_eq!(
            left.message(),
            "Some resources are remaining: configmaps has 2 resource instances, deployments.apps has 1 resource instances; \
             some content has finalizers remaining: a.io/b in 2 resource instances, c in 1 resource instances"
        );
    }

    #[test]
    fn what_others_need_goes_last() {
        for (collection, last) in [
            ("core/configmaps", false),
            ("core/namespaces", true),
            ("rbac.authorization.k8s.io/roles", true),
            ("apis.kcp.io/apiexports", false),
            (DEFINITIONS, true),
            ("-/nodeports", false),
        ] {
            assert_eq!(is_last(collection), last, "{collection}");
        }
        assert!(is_ours("customresourcecleanup.apiextensions.k8s.io") && !is_ours("example.io/hold"));
    }
}
