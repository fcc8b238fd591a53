//! Objects that another server decides on: what it sent becomes an object of this one, in a commit of the caller's.
//!
//! Nobody is asked any more whether they may: admission was where the object was made. But an object here has a uid,
//! a generation and a status of its own, holds its addresses, and goes as every object of this server goes.

use std::sync::Arc;

use cache::object;
use cache::object::Object;
use rules::strategy;
use schema::catalogue::split_api_version;
use schema::selector::scan;
use schema::status::{Result, Status};
use serde_json::Value;
use store::{Commit, Compare, Op};

use crate::{
    Server, admission,
    internal::Internal,
    kinds::{DEFINITIONS, Kind, system},
    verbs::create::metadata,
    verbs::delete::Options,
    verbs::{delete, update, write},
};

/// Named in managedFields where somebody else is named too.
const MANAGER: &str = "selvedge";

/// One object's place in this server.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    pub server: &'a Arc<Server>,
    pub cluster: &'a str,
    /// `apps/deployments`.
    pub collection: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
}

/// What is known of an object where it really is, if it is only shown here.
#[derive(Clone, Copy)]
pub struct Seen<'a> {
    pub uid: &'a str,
    pub created: &'a str,
    /// Nothing leaves it as it is, null takes it away.
    pub status: Option<&'a Value>,
}

/// What a put does to what was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// It is so already.
    Same,
    Written,
    /// What was there could not become this by any change that is allowed: it is another object of that name.
    Replaced,
}

impl Place<'_> {
    fn key(&self) -> String {
        format!("{}/{}/{}", self.cluster, self.namespace, self.name)
    }

    pub fn get(&self) -> Option<Arc<Object>> {
        self.server.cache.get(self.collection, &self.key())
    }

    /// Adds to the commit what makes `value` the object at this place, which is `old` now.
    pub fn put(&self, value: Value, old: Option<&Object>, commit: &mut Commit) -> Result<Put> {
        self.put_as(value, None, old, commit)
    }

    /// The same for an object that is another server's, of which this one only shows what is known.
    pub fn show(&self, value: Value, seen: Seen<'_>, old: Option<&Object>, commit: &mut Commit) -> Result<Put> {
        self.put_as(value, Some(seen), old, commit)
    }

    /// Adds to the commit what shows an object whole as another server has it: with its identity, its status, its owners.
    pub fn mirror(&self, mut value: Value, old: Option<&Object>, commit: &mut Commit) -> Result<Put> {
        self.check(&value)?;
        if let Some(kind) = self.kind(&value, commit)? {
            write::conform(&kind, &mut value)?;
            write::to_stored(&kind, &mut value)?;
            if kind.is_definition() {
                self.establish(&mut value);
            }
        }
        metadata(&mut value).remove("resourceVersion");
        self.write(&value, old.map(Object::value).as_ref(), old, commit, Put::Written)
    }

    fn put_as(
        &self,
        mut value: Value,
        seen: Option<Seen<'_>>,
        old: Option<&Object>,
        commit: &mut Commit,
    ) -> Result<Put> {
        self.check(&value)?;
        let kind = self.kind(&value, commit)?;
        let before = old.map(Object::value);
        let mut put = Put::Written;
        match &kind {
            Some(kind) if kind.custom.is_none() => {
                put = self.prepare(kind, &mut value, before.as_ref(), commit)?;
            }
            other => self.prepare_custom(other.as_deref(), &mut value, before.as_ref())?,
        }
        if let Some(seen) = seen {
            seen.say(&mut value);
            self.settle_in(&mut value);
            if kind.is_some_and(|kind| kind.is_definition()) {
                self.establish(&mut value);
            }
        }
        self.write(&value, before.as_ref(), old, commit, put)
    }

    fn write(
        &self,
        value: &Value,
        before: Option<&Value>,
        old: Option<&Object>,
        commit: &mut Commit,
        put: Put,
    ) -> Result<Put> {
        if before.is_some_and(|before| update::is_same(before, value)) {
            return Ok(Put::Same);
        }
        let stored = object::encode(value);
        let limit = self.server.limits.body;
        if stored.len() > limit {
            return Err(Status::too_large(format!("{} bytes are more than the {limit} that are kept", stored.len())));
        }
        let key = format!("{}/{}", self.collection, self.key());
        commit.compares.push(Compare { key: key.clone(), modified: old.map_or(0, |old| old.revision) });
        commit.ops.push(Op::Put { key, value: stored });
        Ok(put)
    }

    /// Adds to the commit what deletes `old`: it goes at once, or is marked and goes when its grace period or its finalizers
    /// let it. `value` is what it was, without the finalizers that hold it no longer. True if it is gone.
    pub fn remove(&self, old: &Object, mut value: Value, commit: &mut Commit) -> Result<bool> {
        // Without a kind there is nothing that could hold it.
        let kind = self.kind(&value, commit).unwrap_or_default();
        let pending = match &kind {
            Some(kind) => delete::mark(kind, &mut value, &Options::background()),
            None => false,
        };
        let key = format!("{}/{}", self.collection, self.key());
        commit.compares.push(Compare { key: key.clone(), modified: old.revision });
        if pending {
            commit.ops.push(Op::Put { key, value: object::encode(&value) });
            return Ok(false);
        }
        commit.ops.push(Op::Delete { key });
        if let Some(kind) = &kind {
            let hand = Internal::new(self.server, self.cluster, MANAGER);
            let released = admission::release(&hand.call(kind, self.namespace, self.name, ""), &old.value());
            commit.ops.extend(released.ops);
        }
        Ok(true)
    }

    /// An object says of itself what its place says of it.
    fn check(&self, value: &Value) -> Result<()> {
        let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let (name, namespace) = (text("/metadata/name"), text("/metadata/namespace"));
        if name != self.name || namespace != self.namespace {
            return Err(Status::bad_request(format!("it calls itself {namespace}/{name}")));
        }
        let group = match split_api_version(text("/apiVersion")).0 {
            "" => "core",
            group => group,
        };
        if self.collection.split('/').next() != Some(group) {
            return Err(Status::bad_request(format!("it says that it is of {:?}", text("/apiVersion"))));
        }
        let home = self.server.cache.get("core/namespaces", &format!("{}//{namespace}", self.cluster));
        if !namespace.is_empty()
            && home.is_some_and(|home| scan::raw_at(&home.json, &["metadata", "deletionTimestamp"]).is_some())
        {
            return Err(Status::bad_request(format!("the namespace {namespace} is being deleted here")));
        }
        Ok(())
    }

    /// The kind, unless its definition is there but not served yet.
    fn kind(&self, value: &Value, commit: &Commit) -> Result<Option<Arc<Kind>>> {
        let (group, version) = split_api_version(value["apiVersion"].as_str().unwrap_or_default());
        let resource = self.collection.split_once('/').map(|(_, resource)| resource).unwrap_or_default();
        if let Some(kind) = self.server.kinds.find(self.cluster, group, version, resource) {
            let said = value["kind"].as_str().unwrap_or_default();
            if said != kind.name() || kind.resource.namespaced == self.namespace.is_empty() {
                return Err(Status::bad_request(format!("it is a {said} where a {} belongs", kind.name())));
            }
            return Ok(Some(kind));
        }
        let definition = format!("{}//{resource}.{group}", self.cluster);
        let arrives = || {
            commit.ops.iter().any(|op| matches!(op, Op::Put { key, .. } if key.strip_prefix(DEFINITIONS).and_then(|rest| rest.strip_prefix('/')) == Some(&definition)))
        };
        if self.server.cache.get(DEFINITIONS, &definition).is_some() || arrives() {
            return Ok(None);
        }
        Err(Status::bad_request(format!(
            "there is no {resource} in {} here: the edge is older than that kind, or its CustomResourceDefinition was \
             not sent",
            value["apiVersion"]
        )))
    }

    /// A definition of which nobody has said how it fares is served all the same, if its names are free: here nothing else
    /// would see to it.
    fn establish(&self, definition: &mut Value) {
        if definition.pointer("/status/conditions").is_some_and(|said| !said.as_array().is_none_or(Vec::is_empty)) {
            return;
        }
        let prefix = format!("{}/", self.cluster);
        let snapshot = self.server.cache.snapshot(DEFINITIONS);
        let mut others: Vec<Value> = snapshot.items.range(&prefix, "").map(|other| other.value()).collect();
        others.extend(system::names(definition["spec"]["group"].as_str().unwrap_or_default()));
        rules::crd::accept(definition, &others, &clock::now());
    }

    fn prepare(&self, kind: &Arc<Kind>, value: &mut Value, old: Option<&Value>, commit: &mut Commit) -> Result<Put> {
        let hand = Internal::new(self.server, self.cluster, MANAGER);
        let call = hand.call(kind, self.namespace, self.name, "");
        write::to_stored(kind, value)?;
        if self.collection == "core/services" {
            self.server.services.take_in(value, old);
        }
        let stored_kind = write::stored_kind(&call);
        let now = clock::now();
        let now = strategy::Now { rfc3339: &now };
        let mut put = Put::Written;
        let sent = value.clone();
        if let Some(old) = old {
            keep_identity(value, old);
            self.settle_in(value);
            if old["metadata"]["managedFields"].is_array() {
                write::track(&call, Some(old), value);
            }
            strategy::prepare_update(&stored_kind.resource, "", value, old, now);
            keep_status(value, old);
            if kind.is_definition() {
                rules::crd::prepare(value, Some(old));
            }
            if write::validate_update(self.server, &stored_kind, "", value, old).is_err() {
                (*value, put) = (sent.clone(), Put::Replaced);
            }
        }
        if old.is_none() || put == Put::Replaced {
            give_identity(value);
            self.settle_in(value);
            strategy::prepare_create(&stored_kind.resource, value, now);
            if kind.is_definition() {
                rules::crd::prepare(value, None);
            }
            write::validate_create(self.server, &stored_kind, value)?;
        }
        let beside = match old {
            Some(old) => admission::reallocate(&call, value, old)?,
            None => admission::allocate(&call, value)?,
        };
        commit.compares.extend(beside.compares);
        commit.ops.extend(beside.ops);
        Ok(put)
    }

    /// What an object says of its own identity is said of the one that it has here.
    fn settle_in(&self, value: &mut Value) {
        if self.collection == "batch/jobs" {
            strategy::find_pods_by_own_uid(value);
        }
    }

    fn prepare_custom(&self, kind: Option<&Kind>, value: &mut Value, old: Option<&Value>) -> Result<()> {
        match old {
            Some(old) => {
                keep_identity(value, old);
                if let Some(managed) = old["metadata"].get("managedFields") {
                    metadata(value).insert("managedFields".into(), managed.clone());
                }
                keep_status(value, old);
                strategy::prepare_update_custom(true, "", value, old);
            }
            None => {
                give_identity(value);
                strategy::prepare_create_custom(true, value);
            }
        }
        match kind {
            // What it was before does not count: the way from there to here was judged where it was made.
            Some(kind) => write::validate_create(self.server, kind, value),
            None => Ok(()),
        }
    }
}

impl Seen<'_> {
    fn say(&self, value: &mut Value) {
        let metadata = metadata(value);
        metadata.insert("uid".into(), self.uid.into());
        metadata.insert("creationTimestamp".into(), self.created.into());
        match self.status {
            Some(Value::Null) => drop(value.as_object_mut().map(|object| object.remove("status"))),
            Some(status) => value["status"] = status.clone(),
            None => {}
        }
    }
}

fn give_identity(value: &mut Value) {
    let metadata = metadata(value);
    metadata.insert("uid".into(), uuid::Uuid::new_v4().to_string().into());
    metadata.insert("creationTimestamp".into(), clock::now().into());
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "managedFields", "resourceVersion"] {
        metadata.remove(field);
    }
}

fn keep_identity(value: &mut Value, old: &Value) {
    let metadata = metadata(value);
    for field in ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion"] {
        match old["metadata"].get(field) {
            Some(had) => metadata.insert(field.into(), had.clone()),
            None => metadata.remove(field),
        };
    }
}

/// Status is this server's own also of kinds that have no subresource for it.
fn keep_status(value: &mut Value, old: &Value) {
    let Some(object) = value.as_object_mut() else { return };
    match old.get("status") {
        Some(status) => object.insert("status".into(), status.clone()),
        None => object.remove("status"),
    };
}
