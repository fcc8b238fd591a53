//! Workspaces that are no logical clusters: mailboxes, one for each edge, which somebody else answers for. Nothing lies in them, so that
//! all that there is of one is its object, and there can be as many as there are edges.

use cache::object;
use cache::object::Object;
use request::ROOT;
use schema::selector::scan;
use schema::status::Result;
use serde_json::{Map, Value, json};
use store::{Commit, Compare, Op, Outcome, Revision};

use super::{GROUP, VERSION, WORKSPACES, birth, lifecycle, path};
use crate::{Server, kinds::system::PROVIDER};

/// The type by which they are known. Nobody can make a workspace of it through the API.
pub const TYPE: &str = "mailbox";

/// Whether the object is one of these.
pub fn is_light(object: &Object) -> bool {
    object.cluster() == PROVIDER
        && scan::string_at(&object.json, &["spec", "type", "name"]).is_some_and(|name| name == TYPE)
        && scan::string_at(&object.json, &["spec", "type", "path"]).is_some_and(|path| path == ROOT)
}

/// What is written of one.
pub struct Light<'a> {
    pub name: &'a str,
    pub annotations: &'a [(&'a str, &'a str)],
}

impl Light<'_> {
    /// What the object says of itself is what it would say now.
    pub fn is_shown(&self, server: &Server, object: &Object) -> bool {
        let annotated = |(key, value): &(&str, &str)| {
            scan::string_at(&object.json, &["metadata", "annotations", key]).is_some_and(|found| found == *value)
        };
        let at = url(server, self.name);
        // Of several servers over one store, each would say something else.
        let placed = server.has_shared_store()
            || scan::string_at(&object.json, &["spec", "URL"]).is_some_and(|found| found == at.as_str());
        is_light(object) && placed && self.annotations.iter().all(annotated)
    }

    fn value(&self, server: &Server, uid: &str, now: &str) -> Value {
        let annotations: Map<String, Value> =
            self.annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).into())).collect();
        let cluster = path::child(PROVIDER, self.name);
        json!({"kind": "Workspace", "apiVersion": format!("{GROUP}/{VERSION}"),
            "metadata": {"name": self.name, "uid": uid, "creationTimestamp": now, "generation": 1, "annotations": annotations},
            "spec": {"type": {"name": TYPE, "path": ROOT}, "cluster": cluster, "URL": url(server, self.name)},
            "status": {"phase": lifecycle::READY}})
    }
}

fn url(server: &Server, name: &str) -> String {
    birth::url(server, &path::child(PROVIDER, name))
}

/// Makes these objects, or makes them anew, and takes those away, in one commit. False: somebody was faster with one of them.
pub async fn write(server: &Server, made: &[Light<'_>], gone: &[&str]) -> Result<bool> {
    let now = clock::now();
    let mut commit = Commit::default();
    let mut compare = |name: &str, modified: Revision| {
        let key = format!("{WORKSPACES}/{PROVIDER}//{name}");
        commit.compares.push(Compare { key: key.clone(), modified });
        key
    };
    let found = |name: &str| server.cache.get(WORKSPACES, &format!("{PROVIDER}//{name}"));
    let mut ops = Vec::new();
    for one in made {
        let old = found(one.name);
        let key = compare(one.name, old.as_ref().map_or(0, |old| old.revision));
        let kept = |field: &str| {
            let old = old.as_ref().filter(|old| is_light(old))?;
            scan::string_at(&old.json, &["metadata", field]).map(|text| text.into_owned())
        };
        let uid = kept("uid").unwrap_or_else(|| uuid::Uuid::new_v4().to_string());
        let value = one.value(server, &uid, &kept("creationTimestamp").unwrap_or_else(|| now.clone()));
        ops.push(Op::Put { key, value: object::encode(&value) });
    }
    for name in gone {
        let Some(old) = found(name).filter(|old| is_light(old)) else { continue };
        ops.push(Op::Delete { key: compare(name, old.revision) });
    }
    if ops.is_empty() {
        return Ok(true);
    }
    commit.ops = ops;
    match server.cache.store().commit(commit).await.map_err(|error| crate::unavailable(&error))? {
        Outcome::Committed(revision) => {
            server.cache.wait_for(revision).await;
            Ok(true)
        }
        Outcome::Conflict { found, .. } => {
            server.cache.see_why(found).await.map_err(|error| crate::unavailable(&error))?;
            Ok(false)
        }
    }
}
