//! Kinds that a workspace has from another one's export.
//!
//! An APIResourceSchema is compiled when the first request needs it, and once, however many workspaces bind it: they share
//! the compiled kinds. Objects of one export never lie among those of another: the collection's name carries the identity.

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock, PoisonError, RwLock, Weak},
};

use cache::object::Object;
use rules::crd::Definition;
use serde_json::Value;
use store::Revision;

use super::{Kind, collection_name, kinds_of, system};
use crate::exports::{index, schema};

/// So much of an identity's hash is in the names of collections: 96 bits, which nobody finds a second key for.
const IDENTITY_DIGITS: usize = 24;

/// Everything that is exported, by the uid of its schema.
#[derive(Default)]
pub struct Schemas {
    known: RwLock<HashMap<Box<str>, Arc<Schema>>>,
    /// By uid, identity and the workspace of the export.
    shared: RwLock<HashMap<SharedKey, Weak<Bound>>>,
    /// When the last workspace went over to a schema from another one, by the new one's uid.
    followed: RwLock<HashMap<Box<str>, Revision>>,
}

type SharedKey = (Box<str>, Box<str>, Box<str>);

struct Schema {
    object: Arc<Object>,
    definition: OnceLock<Option<Arc<Definition>>>,
}

/// One resource as some workspaces have it.
pub struct Bound {
    /// The workspace of the export: its schemas are there, and one of another workspace is not served.
    provider: Box<str>,
    pub group: Box<str>,
    pub resource: Box<str>,
    pub uid: Box<str>,
    pub identity: Box<str>,
    since: Revision,
    kinds: OnceLock<Vec<Arc<Kind>>>,
}

/// Where the objects of an exported resource lie. Those of the server's own lie together, however they came to be served.
pub fn collection(group: &str, resource: &str, identity: &str) -> Box<str> {
    if system::is_exported(group) {
        return collection_name(group, resource);
    }
    let short = identity.get(..IDENTITY_DIGITS).unwrap_or(identity);
    format!("{group}/{resource}:{short}").into()
}

impl Schemas {
    pub fn set(&self, object: &Arc<Object>, there: bool) {
        let uid = uid_of(object);
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if there {
            // Its spec never changes, so what was compiled stays.
            let new = || Arc::new(Schema { object: object.clone(), definition: OnceLock::new() });
            known.entry(uid).or_insert_with(new);
        } else {
            known.remove(&uid);
            self.followed.write().unwrap_or_else(PoisonError::into_inner).remove(&uid);
        }
    }

    /// A resource as it has always been bound: everybody who binds it shares it.
    pub fn share(&self, provider: &str, group: &str, resource: &str, uid: &str, identity: &str) -> Arc<Bound> {
        let key = (Box::from(uid), Box::from(identity), Box::from(provider));
        let mut shared = self.shared.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = shared.get(&key).and_then(Weak::upgrade) {
            return found;
        }
        let new = Arc::new(Bound::new(provider, group, resource, uid, identity, 0));
        shared.retain(|_, weak| weak.strong_count() > 0);
        shared.insert(key, Arc::downgrade(&new));
        new
    }

    /// The served kinds, compiled now if nobody asked before. None while the schema is not there.
    pub fn kinds<'a>(&self, bound: &'a Bound) -> &'a [Arc<Kind>] {
        if let Some(kinds) = bound.kinds.get() {
            return kinds;
        }
        if system::is_exported(&bound.group) {
            return bound.kinds.get_or_init(|| system::bound(&bound.group, &bound.resource));
        }
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let own = known.get(&bound.uid).filter(|schema| schema.object.cluster() == &*bound.provider);
        let Some(schema) = own.cloned() else { return &[] };
        drop(known);
        bound.kinds.get_or_init(|| match schema.definition.get_or_init(|| compile(&schema.object)) {
            Some(definition) => kinds_of(definition, bound.since, Some(&bound.identity)),
            None => Vec::new(),
        })
    }

    /// The kinds as they are seen over all workspaces at once.
    pub fn across(&self, provider: &str, group: &str, resource: &str, uid: &str, identity: &str) -> Vec<Arc<Kind>> {
        let since = self.followed.read().unwrap_or_else(PoisonError::into_inner).get(uid).copied();
        match since {
            None => self.kinds(&self.share(provider, group, resource, uid, identity)).to_vec(),
            Some(since) => self.kinds(&Bound::new(provider, group, resource, uid, identity, since)).to_vec(),
        }
    }

    fn follow(&self, uid: &str, at: Revision) {
        let mut followed = self.followed.write().unwrap_or_else(PoisonError::into_inner);
        let newest = followed.entry(uid.into()).or_default();
        *newest = at.max(*newest);
    }

    #[cfg(test)]
    pub fn compiled(&self) -> usize {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.values().filter(|schema| schema.definition.get().is_some()).count()
    }
}

impl Bound {
    fn new(provider: &str, group: &str, resource: &str, uid: &str, identity: &str, since: Revision) -> Self {
        let (provider, group, resource) = (provider.into(), group.into(), resource.into());
        Self { provider, group, resource, uid: uid.into(), identity: identity.into(), since, kinds: OnceLock::new() }
    }
}

/// What a binding has, read from its status. One whose schema has changed holds since its own revision only. What its
/// export cannot have given is left out: a status may have been written by a server that took less care of who writes
/// it.
pub fn of_binding(schemas: &Schemas, binding: &Object, before: &[Arc<Bound>]) -> Vec<Arc<Bound>> {
    let value = binding.value();
    let (provider, export) = index::reference(binding.cluster(), &value);
    let bound = |entry: &Value| {
        let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let (group, resource) = (text(&entry["group"])?, text(&entry["resource"])?);
        if !schema::may_come_from(provider, export, &group) {
            return None;
        }
        let schema = &entry["schema"];
        let (uid, identity) = (text(&schema["UID"])?, text(&schema["identityHash"])?);
        let same = |b: &&Arc<Bound>| *b.uid == *uid && *b.identity == *identity && *b.resource == *resource;
        if let Some(same) = before.iter().find(same) {
            return Some(same.clone());
        }
        Some(match schema["followed"].as_bool() {
            Some(true) => {
                schemas.follow(&uid, binding.revision);
                Arc::new(Bound::new(provider, &group, &resource, &uid, &identity, binding.revision))
            }
            _ => schemas.share(provider, &group, &resource, &uid, &identity),
        })
    };
    value["status"]["boundResources"].as_array().into_iter().flatten().filter_map(bound).collect()
}

fn uid_of(object: &Object) -> Box<str> {
    object.value()["metadata"]["uid"].as_str().unwrap_or_default().into()
}

fn compile(schema: &Object) -> Option<Arc<Definition>> {
    match Definition::compile(&schema::definition(&schema.value())) {
        Ok(definition) => Some(Arc::new(definition)),
        Err(errors) => {
            tracing::warn!(key = %schema.key, ?errors, "a stored APIResourceSchema does not compile and is not served");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        exports::schema::tests::widgets,
        exports::{BINDINGS, SCHEMAS},
        kinds::Kinds,
    };
    use cache::{Change, ChangeKind, object};

    fn change(key: &str, value: &Value, revision: Revision, kind: ChangeKind) -> Arc<Change> {
        let json = object::with_revision(&object::encode(value), revision);
        Arc::new(Change::new(kind, Arc::new(Object::new(key.into(), json, 1, revision)), None))
    }

    fn binding(uid: &str, identity: &str, followed: bool) -> Value {
        let mut schema = json!({"name": "v1.widgets.example.io", "UID": uid, "identityHash": identity});
        if followed {
            schema["followed"] = true.into();
        }
        json!({"spec": {"reference": {"export": {"path": "root:p", "name": "widgets"}}},
            "status": {"boundResources": [{"group": "example.io", "resource": "widgets", "schema": schema}]}})
    }

    #[test]
    fn ten_thousand_workspaces_share_one_compiled_schema() {
        let kinds = Arc::new(Kinds::default());
        let see = kinds.clone().observer();
        let identity = "a".repeat(64);
        // A store is loaded in the order of its keys: bindings come before what they bind.
        for i in 0..10_000 {
            see(
                BINDINGS,
                &change(&format!("root:w{i}//b"), &binding("uid-v1", &identity, false), i, ChangeKind::Added),
            );
        }
        assert!(kinds.find("root:w1", "example.io", "v1", "widgets").is_none(), "the schema is not there yet");
        see(SCHEMAS, &change("root:p//v1.widgets.example.io", &widgets("v1", json!({})), 3, ChangeKind::Added));
        assert_eq!(kinds.schemas.compiled(), 0, "nobody has asked");
        let first = kinds.find("root:w0", "example.io", "v1", "widgets").unwrap();
        let last = kinds.find("root:w9999", "example.io", "v1", "widgets").unwrap();
        assert!(Arc::ptr_eq(&first, &last));
        assert_eq!(&*first.collection, format!("example.io/widgets:{}", "a".repeat(24)));
        assert_eq!(kinds.schemas.compiled(), 1);
        assert!(kinds.find("root:w10000", "example.io", "v1", "widgets").is_none());
        assert!(kinds.find_kind("root:w7", "example.io/v1", "Widget").is_some());
        assert!(kinds.any_version("root:w7", "example.io", &format!("widgets:{}", "a".repeat(24))).is_some());
    }

    #[test]
    fn a_schema_that_followed_another_holds_since_then() {
        let kinds = Arc::new(Kinds::default());
        let see = kinds.clone().observer();
        see(SCHEMAS, &change("root:p//v1.widgets.example.io", &widgets("v1", json!({})), 3, ChangeKind::Added));
        see(SCHEMAS, &change("root:p//v2.widgets.example.io", &widgets("v2", json!({})), 4, ChangeKind::Added));
        let since =
            |kinds: &Kinds| kinds.find("root:a", "example.io", "v1", "widgets")?.custom.as_ref().map(|c| c.since);
        see(BINDINGS, &change("root:a//b", &binding("uid-v1", "abc", false), 5, ChangeKind::Added));
        assert_eq!(since(&kinds), Some(0));
        see(BINDINGS, &change("root:a//b", &binding("uid-v2", "abc", true), 9, ChangeKind::Modified));
        assert_eq!(since(&kinds), Some(9));
        see(BINDINGS, &change("root:a//b", &binding("uid-v2", "abc", true), 12, ChangeKind::Modified));
        assert_eq!(since(&kinds), Some(9), "only its status moved");
        let across = kinds.schemas.across("root:p", "example.io", "widgets", "uid-v2", "abc");
        assert_eq!(across[0].custom.as_ref().unwrap().since, 9);
        see(BINDINGS, &change("root:a//b", &json!({}), 13, ChangeKind::Deleted));
        assert_eq!(since(&kinds), None);
    }

    /// Only what the export can have given is served, whatever the status of a binding says.
    #[test]
    fn what_no_export_gave_is_not_served() {
        let kinds = Arc::new(Kinds::default());
        let see = kinds.clone().observer();
        see(SCHEMAS, &change("root:p//v1.widgets.example.io", &widgets("v1", json!({})), 3, ChangeKind::Added));
        let mut revision = 3;
        let mut served = |path: &str, name: &str, group: &str, resource: &str, version: &str| {
            revision += 1;
            let entry =
                json!({"group": group, "resource": resource, "schema": {"UID": "uid-v1", "identityHash": "00"}});
            let value = json!({"spec": {"reference": {"export": {"path": path, "name": name}}},
                "status": {"phase": "Bound", "boundResources": [entry]}});
            see(BINDINGS, &change("root:a//b", &value, revision, ChangeKind::Added));
            let found = kinds.find("root:a", group, version, resource).is_some();
            see(BINDINGS, &change("root:a//b", &value, revision, ChangeKind::Deleted));
            found
        };
        assert!(served("root:p", "widgets", "example.io", "widgets", "v1"));
        assert!(!served("root:q", "widgets", "example.io", "widgets", "v1"), "a schema of another workspace");
        assert!(served("root:espw", "edge.kcp.io", "edge.kcp.io", "edgeplacements", "v1alpha1"));
        for (path, name) in [("root:p", "edge.kcp.io"), ("", "edge.kcp.io"), ("root:espw", "workload.kcp.io")] {
            assert!(!served(path, name, "edge.kcp.io", "edgeplacements", "v1alpha1"), "{path} {name}");
        }
    }
}
