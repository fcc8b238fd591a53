//! Writes that wait for the center, each as an OfflineWrite that anybody may read who may read that kind.

use std::sync::Arc;

use cache::object;
use cache::object::Object;
use kinds::{
    ObjectKey,
    forward::{self, Forward},
    names,
};
use schema::selector::scan;
use schema::status::{Result, Status};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use server::Server;
use server::owner::{Carried, Change, To};
use store::{Commit, Compare, Op};

use super::{RETRY, part};
use crate::{
    apply::{self, commit_and_see, place_of, put_record},
    book::CLUSTER,
};

pub const COLLECTION: &str = "edge.selvedge.dev/offlinewrites";
/// One record with the number of the last write that ever waited.
const COUNTER: &str = "edge.selvedge.dev/_queue";
const LAST: &str = "last";
/// Keeps a write that waits until what was made of the object here is undone.
pub const FINALIZER: &str = "edge.selvedge.dev/undo";

/// So many writes, and bytes of them, are kept, with those that the center did not take.
const MOST: usize = 1000;
const MOST_BYTES: usize = 16 << 20;
/// No single one is larger.
const LARGEST: usize = 2 << 20;
/// So many objects are named where there are more.
const NAMED: usize = 5;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    #[default]
    Pending,
    /// The object was another one at the center than the write builds on.
    Conflict,
    /// The center would not have it.
    Refused,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Spec {
    pub object: About,
    pub write: Forward,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub after: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base: Option<Value>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct About {
    pub api_version: String,
    pub kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    pub name: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Standing {
    pub state: State,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<u16>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub decided: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wanted: Option<Value>,
}

/// One of them, as it lies in the store.
#[derive(Clone, Debug)]
pub struct OfflineWrite {
    pub object: Arc<Object>,
    pub metadata: Value,
    pub spec: Spec,
    pub status: Standing,
}

impl OfflineWrite {
    fn read(object: &Arc<Object>) -> Option<Self> {
        let mut value = object.value();
        let spec = serde_json::from_value(value["spec"].take()).ok()?;
        let status = serde_json::from_value(value["status"].take()).unwrap_or_default();
        Some(Self { object: object.clone(), metadata: value["metadata"].take(), spec, status })
    }

    pub fn name(&self) -> &str {
        self.object.name()
    }

    /// Somebody wants to take it back.
    pub fn is_leaving(&self) -> bool {
        self.metadata["deletionTimestamp"].is_string()
    }

    /// Adds to the commit that this is what it is now.
    pub fn write(&self, commit: &mut Commit) {
        let value = value(&self.metadata, &self.spec, &self.status);
        commit.compares.push(self.compare());
        commit.ops.push(Op::Put { key: self.store_key(), value: object::encode(&value) });
    }

    pub fn delete(&self, commit: &mut Commit) {
        commit.compares.push(self.compare());
        commit.ops.push(Op::Delete { key: self.store_key() });
    }

    fn store_key(&self) -> String {
        format!("{COLLECTION}/{}", self.object.key)
    }

    fn compare(&self) -> Compare {
        Compare { key: self.store_key(), modified: self.object.revision }
    }
}

fn value(metadata: &Value, spec: &Spec, status: &Standing) -> Value {
    json!({"apiVersion": "edge.selvedge.dev/v1alpha1", "kind": "OfflineWrite", "metadata": metadata, "spec": spec,
        "status": status})
}

fn state(object: &Object) -> Option<String> {
    scan::string_at(&object.json, &["status", "state"]).map(|state| state.into_owned())
}

/// All that wait, in order.
pub fn waiting(server: &Server) -> Vec<OfflineWrite> {
    let snapshot = server.cache.snapshot(COLLECTION);
    let objects = snapshot.items.range("", "").filter(|object| state(object).as_deref() == Some("Pending"));
    objects.filter_map(OfflineWrite::read).collect()
}

/// How many the center did not take, and of which objects.
pub fn standing(server: &Server) -> forward::Standing {
    let snapshot = server.cache.snapshot(COLLECTION);
    let refused = snapshot.items.range("", "").filter(|object| state(object).as_deref() != Some("Pending"));
    let mut standing = forward::Standing::default();
    for object in refused {
        standing.refused += 1;
        if standing.objects.len() < NAMED {
            let about = |field: &str| scan::string_at(&object.json, &["spec", "object", field]).unwrap_or_default();
            let (kind, namespace, name) = (about("kind"), about("namespace"), about("name"));
            let place = if namespace.is_empty() { name.into_owned() } else { format!("{namespace}/{name}") };
            standing.objects.push(format!("{kind} {place}"));
        }
    }
    standing
}

/// The first of all that wait.
pub fn first(server: &Server) -> Option<OfflineWrite> {
    let snapshot = server.cache.snapshot(COLLECTION);
    let mut objects = snapshot.items.range("", "").filter(|object| state(object).as_deref() == Some("Pending"));
    objects.find_map(OfflineWrite::read)
}

/// Those that wait to be made on one object, in order.
pub fn waiting_for(server: &Server, key: &str) -> Vec<OfflineWrite> {
    waiting(server).into_iter().filter(|write| write.spec.write.key == key).collect()
}

pub fn is_waiting(server: &Server, key: &str) -> bool {
    let snapshot = server.cache.snapshot(COLLECTION);
    let mut objects = snapshot.items.range("", "").filter(|object| state(object).as_deref() == Some("Pending"));
    objects.any(|object| scan::string_at(&object.json, &["spec", "write", "key"]).as_deref() == Some(key))
}

/// Keeps a write until the center can be asked, and makes it on the object here: all in one commit.
pub async fn put_by(change: &Change<'_>, mut write: Forward) -> Result<Carried> {
    let server = change.server;
    let key = ObjectKey::parse(&write.key).ok_or_else(|| Status::internal("an object without a key"))?;
    let counter = server.cache.get(COUNTER, LAST);
    let (number, counted) = match &counter {
        Some(record) => (record.value().as_u64().unwrap_or(0) + 1, record.revision),
        None => (1, 0),
    };
    let name = format!("write-{number:010}");
    let earlier = waiting_for(server, &write.key).pop();
    let text = |pointer: &str| change.before.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let about = About {
        api_version: text("/apiVersion"),
        kind: text("/kind"),
        namespace: key.namespace.to_owned(),
        name: key.name.to_owned(),
    };
    let mut commit = Commit::default();
    commit.compares.push(Compare { key: format!("{COUNTER}/{LAST}"), modified: counted });
    put_record(&mut commit, COUNTER, LAST, &number);
    let place = place_of(server, &key);
    match &change.to {
        To::Value { value, .. } => {
            let mut value = (*value).clone();
            value["metadata"]["annotations"][names::PENDING] = name.as_str().into();
            place.put(value, Some(change.old), &mut commit)?;
        }
        To::Nothing(_) => _ = place.remove(change.old, change.before.clone(), &mut commit)?,
    }
    let (after, base) = match &earlier {
        // It builds on what the earlier one makes of the object.
        Some(earlier) => {
            write.precondition = String::new();
            commit.compares.push(earlier.compare());
            (earlier.name().to_owned(), None)
        }
        None => (String::new(), base(change, &write)),
    };
    write.id = uuid::Uuid::new_v4().to_string();
    let metadata = json!({"name": name, "uid": uuid::Uuid::new_v4().to_string(), "creationTimestamp": clock::now(),
        "generation": 1, "finalizers": [FINALIZER]});
    let offline = value(&metadata, &Spec { object: about, write, after, base }, &Standing::default());
    let stored = object::encode(&offline);
    check_room(server, stored.len())?;
    let at = format!("{COLLECTION}/{CLUSTER}//{name}");
    commit.compares.push(Compare { key: at.clone(), modified: 0 });
    commit.ops.push(Op::Put { key: at, value: stored });
    if !commit_and_see(server, commit).await.map_err(|error| server::unavailable(&error))? {
        return Ok(Carried::Again);
    }
    let object = match &change.to {
        To::Value { .. } => server.cache.get(change.collection, &change.old.key),
        To::Nothing(_) => None,
    };
    let warning = format!(
        "the center is away: this write waits as OfflineWrite {name}, and the center decides on it when the link is back"
    );
    Ok(Carried::Done { object: object.unwrap_or_else(|| change.old.clone()), warnings: vec![warning] })
}

/// The center's part of the object, to go back to. What is deleted comes back from the center itself.
fn base(change: &Change<'_>, write: &Forward) -> Option<Value> {
    let (held, _) = apply::held(change.server, &write.key)?;
    matches!(change.to, To::Value { .. }).then(|| part::center_part(change.collection, &held, change.before))
}

fn check_room(server: &Server, size: usize) -> Result<()> {
    if size > LARGEST {
        return Err(Status::too_large(format!("{size} bytes are too many to wait for the center: {LARGEST} may be")));
    }
    let snapshot = server.cache.snapshot(COLLECTION);
    let (mut count, mut bytes) = (0, 0);
    for object in snapshot.items.range("", "") {
        count += 1;
        bytes += object.json.len();
    }
    if count < MOST && bytes + size <= MOST_BYTES {
        return Ok(());
    }
    Err(Status::unavailable(format!(
        "the center is away, and {count} writes of {bytes} bytes wait for it already: no more can. Delete OfflineWrites that \
         are not needed, or try again when the link is back"
    ))
    .retry_after(RETRY))
}
