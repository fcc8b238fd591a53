//! The server as its own client: what controllers in this crate write goes through the same verbs as everybody's writes.

use std::sync::Arc;

use bytes::Bytes;
use cache::object;
use cache::object::Object;
use http::{HeaderMap, HeaderValue, header::USER_AGENT};
use identity::User;
use request::{Query, Target};
use rules::strategy;
use schema::status::{Result, Status};
use serde_json::Value;
use store::{Commit, Compare, Op, Outcome};

use crate::{
    Server, admission,
    call::Call,
    kinds::Kind,
    negotiate::Accept,
    verbs::delete::Options,
    verbs::{create, delete, update, write},
};

/// Several servers may start on one empty store: all but one see what the first has made.
const TRIES: usize = 5;

/// Whether a finalizer keeps the object.
pub fn is_held(value: &Value, finalizer: &str) -> bool {
    value["metadata"]["finalizers"].as_array().is_some_and(|all| all.iter().any(|f| f == finalizer))
}

/// A controller's hand in one workspace.
#[derive(Clone)]
pub struct Internal {
    server: Arc<Server>,
    cluster: String,
    /// Named in managedFields.
    manager: &'static str,
    relays_status: bool,
}

impl Internal {
    pub fn new(server: &Arc<Server>, cluster: &str, manager: &'static str) -> Self {
        Self { server: server.clone(), cluster: cluster.to_owned(), manager, relays_status: false }
    }

    /// For writing a status that another machine reported: see [`Call::relays_status`].
    pub fn relaying_status(self) -> Self {
        Self { relays_status: true, ..self }
    }

    pub fn server(&self) -> &Arc<Server> {
        &self.server
    }

    pub fn kind(&self, group: &str, version: &str, resource: &str) -> Result<Arc<Kind>> {
        self.server.kinds.find(&self.cluster, group, version, resource).ok_or_else(Status::no_such_path)
    }

    pub fn call(&self, kind: &Arc<Kind>, namespace: &str, name: &str, subresource: &str) -> Call {
        let mut headers = HeaderMap::new();
        headers.insert(USER_AGENT, HeaderValue::from_static(self.manager));
        Call {
            server: self.server.clone(),
            cluster: self.cluster.clone(),
            kind: kind.clone(),
            target: Target {
                group: kind.group().to_owned(),
                version: kind.resource.version.to_string(),
                resource: kind.plural().to_owned(),
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                subresource: subresource.to_owned(),
                ..Target::default()
            },
            query: Query::default(),
            accept: Accept::JSON,
            headers,
            user: User::itself(),
            body: Bytes::new(),
            warnings: Default::default(),
            view: None,
            notes: Default::default(),
            verb: None,
            also: Vec::new(),
            relays_status: self.relays_status,
        }
    }

    pub fn get(&self, kind: &Kind, namespace: &str, name: &str) -> Option<Arc<Object>> {
        self.server.cache.get(&kind.collection, &kind.key(&self.cluster, namespace, name))
    }

    /// Creates an object; one that exists is fine.
    pub async fn ensure(&self, kind: &Arc<Kind>, namespace: &str, mut value: Value) -> Result<()> {
        let name = value["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        if self.get(kind, namespace, &name).is_some() {
            return Ok(());
        }
        let call = self.call(kind, namespace, "", "");
        value["kind"] = kind.name().into();
        value["apiVersion"] = kind.api_version.as_str().into();
        create::place(&call, &mut value)?;
        write::default(kind, &mut value);
        match create::insert(&call, value).await {
            Err(status) if status.reason != "AlreadyExists" => Err(status),
            _ => Ok(()),
        }
    }

    /// Adds the making of an object to a commit. The object is trusted to be valid, and its namespace to be there or be made.
    pub fn make(&self, kind: &Arc<Kind>, namespace: &str, mut value: Value, commit: &mut Commit) -> Result<()> {
        let call = self.call(kind, namespace, "", "");
        value["kind"] = kind.name().into();
        value["apiVersion"] = kind.api_version.as_str().into();
        create::place(&call, &mut value)?;
        write::default(kind, &mut value);
        write::track(&call, None, &mut value);
        let now = clock::now();
        let metadata = create::metadata(&mut value);
        metadata.insert("uid".into(), uuid::Uuid::new_v4().to_string().into());
        metadata.insert("creationTimestamp".into(), now.as_str().into());
        let name = metadata.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
        match &kind.custom {
            Some(custom) => {
                let has_status = custom.version().is_some_and(|version| version.subresources.status);
                strategy::prepare_create_custom(has_status, &mut value);
            }
            None => {
                write::to_stored(kind, &mut value)?;
                let now = strategy::Now { rfc3339: &now };
                strategy::prepare_create(&write::stored_kind(&call).resource, &mut value, now);
            }
        }
        let beside = admission::allocate(&call, &mut value)?;
        let key = kind.store_key(&kind.key(&self.cluster, namespace, &name));
        commit.compares.push(Compare { key: key.clone(), modified: 0 });
        commit.ops.push(Op::Put { key, value: object::encode(&value) });
        commit.compares.extend(beside.compares);
        commit.ops.extend(beside.ops);
        Ok(())
    }

    /// Makes what of these is missing, in one commit. They are trusted as by [`make`](Self::make).
    pub async fn make_missing(&self, wanted: &[(&Arc<Kind>, &str, Value)]) -> Result<()> {
        let cache = &self.server.cache;
        for _ in 0..TRIES {
            let mut commit = Commit::default();
            for (kind, namespace, value) in wanted {
                let name = value["metadata"]["name"].as_str().unwrap_or_default();
                let key = kind.store_key(&kind.key(&self.cluster, namespace, name));
                let known = commit.compares.iter().any(|one| one.key == key);
                if !known && self.get(kind, namespace, name).is_none() {
                    self.make(kind, namespace, value.clone(), &mut commit)?;
                }
            }
            if commit.ops.is_empty() {
                break;
            }
            match cache.store().commit(commit).await.map_err(|error| crate::unavailable(&error))? {
                Outcome::Committed(revision) => {
                    cache.wait_for(revision).await;
                    break;
                }
                Outcome::Conflict { found, .. } => {
                    cache.see_why(found).await.map_err(|error| crate::unavailable(&error))?;
                }
            }
        }
        Ok(())
    }

    /// Changes an object through a subresource (or the object itself, if empty). One that is gone is fine.
    pub async fn change(
        &self,
        kind: &Arc<Kind>,
        namespace: &str,
        name: &str,
        subresource: &str,
        edit: impl Fn(&mut Value),
    ) -> Result<Option<Arc<Object>>> {
        let call = self.call(kind, namespace, name, subresource);
        let changed = update::change(&call, |old| {
            let mut value = old.value();
            crate::render::convert_value(kind, &mut value, false).map_err(Status::internal)?;
            edit(&mut value);
            Ok(value)
        });
        match changed.await {
            Ok(object) => Ok(Some(object)),
            Err(status) if status.code == 404 => Ok(None),
            Err(status) => Err(status),
        }
    }

    /// The same for an object that is trusted to be valid, as what [`make`](Self::make) makes is.
    pub async fn change_trusted(
        &self,
        kind: &Arc<Kind>,
        namespace: &str,
        name: &str,
        edit: impl Fn(&mut Value),
    ) -> Result<()> {
        let cache = &self.server.cache;
        for _ in 0..TRIES {
            let Some(object) = self.get(kind, namespace, name) else { return Ok(()) };
            let mut value = object.value();
            edit(&mut value);
            if let Some(generation) = value["metadata"]["generation"].as_i64() {
                value["metadata"]["generation"] = (generation + 1).into();
            }
            let key = kind.store_key(&object.key);
            let compares = vec![Compare { key: key.clone(), modified: object.revision }];
            let commit = Commit { compares, ops: vec![Op::Put { key, value: object::encode(&value) }] };
            match cache.store().commit(commit).await.map_err(|error| crate::unavailable(&error))? {
                Outcome::Committed(revision) => {
                    cache.wait_for(revision).await;
                    return Ok(());
                }
                Outcome::Conflict { found, .. } => {
                    cache.see_why(found).await.map_err(|error| crate::unavailable(&error))?;
                }
            }
        }
        Err(Status::conflict(kind.group(), kind.plural(), name, "the object changes faster than it can be written"))
    }

    /// Takes a finalizer out of a cluster-scoped object, so that it can go.
    pub async fn release(&self, kind: &Arc<Kind>, name: &str, finalizer: &str) -> Result<()> {
        let edit = |value: &mut Value| {
            if let Some(list) = value["metadata"]["finalizers"].as_array_mut() {
                list.retain(|f| f != finalizer);
            }
        };
        self.change(kind, "", name, "", edit).await.map(drop)
    }

    /// Deletes an object. One that is gone, or is another one by now, is fine.
    pub async fn delete(&self, kind: &Arc<Kind>, object: &Object, options: &Options) -> Result<()> {
        let call = self.call(kind, object.namespace(), object.name(), "");
        match delete::remove(&call, &object.key, object.name(), options).await {
            Err(status) if !matches!(status.code, 404 | 409) => Err(status),
            _ => Ok(()),
        }
    }
}
