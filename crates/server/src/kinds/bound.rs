//! Kinds that a workspace has from another one's export.
//!
//! An APIResourceSchema is compiled when the first request needs it, and once, however many workspaces bind it: they share
//! the compiled kinds. Objects of one export never lie among those of another: the collection's name carries the identity.

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock, PoisonError, RwLock, Weak},
};

use api::crd::Definition;
use serde_json::Value;
use store::Revision;

use super::{Kind, kinds_of};
use crate::{exports::schema, object::Object};

/// So much of an identity's hash is in the names of collections: 96 bits, which nobody finds a second key for.
const IDENTITY_DIGITS: usize = 24;

/// Everything that is exported, by the uid of its schema.
#[derive(Default)]
pub struct Schemas {
    known: RwLock<HashMap<Box<str>, Arc<Schema>>>,
    /// By uid and identity.
    shared: RwLock<HashMap<(Box<str>, Box<str>), Weak<Bound>>>,
    /// When the last workspace went over to a schema from another one, by the new one's uid.
    followed: RwLock<HashMap<Box<str>, Revision>>,
}

struct Schema {
    object: Arc<Object>,
    definition: OnceLock<Option<Arc<Definition>>>,
}

/// One resource as some workspaces have it.
pub struct Bound {
    pub group: Box<str>,
    pub resource: Box<str>,
    pub uid: Box<str>,
    pub identity: Box<str>,
    since: Revision,
    kinds: OnceLock<Vec<Arc<Kind>>>,
}

/// Where the objects of an exported resource lie.
pub fn collection(group: &str, resource: &str, identity: &str) -> Box<str> {
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
    pub fn share(&self, group: &str, resource: &str, uid: &str, identity: &str) -> Arc<Bound> {
        let key = (Box::from(uid), Box::from(identity));
        let mut shared = self.shared.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = shared.get(&key).and_then(Weak::upgrade) {
            return found;
        }
        let new = Arc::new(Bound::new(group, resource, uid, identity, 0));
        shared.retain(|_, weak| weak.strong_count() > 0);
        shared.insert(key, Arc::downgrade(&new));
        new
    }

    /// The served kinds, compiled now if nobody asked before. None while the schema is not there.
    pub fn kinds<'a>(&self, bound: &'a Bound) -> &'a [Arc<Kind>] {
        if let Some(kinds) = bound.kinds.get() {
            return kinds;
        }
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let Some(schema) = known.get(&bound.uid).cloned() else { return &[] };
        drop(known);
        bound.kinds.get_or_init(|| match schema.definition.get_or_init(|| compile(&schema.object)) {
            Some(definition) => kinds_of(definition, bound.since, Some(&bound.identity)),
            None => Vec::new(),
        })
    }

    /// The kinds as they are seen over all workspaces at once.
    pub fn across(&self, group: &str, resource: &str, uid: &str, identity: &str) -> Vec<Arc<Kind>> {
        let since = self.followed.read().unwrap_or_else(PoisonError::into_inner).get(uid).copied();
        match since {
            None => self.kinds(&self.share(group, resource, uid, identity)).to_vec(),
            Some(since) => self.kinds(&Bound::new(group, resource, uid, identity, since)).to_vec(),
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
    fn new(group: &str, resource: &str, uid: &str, identity: &str, since: Revision) -> Self {
        let (group, resource) = (group.into(), resource.into());
        Self { group, resource, uid: uid.into(), identity: identity.into(), since, kinds: OnceLock::new() }
    }
}

/// What a binding has, read from its status. One whose schema has changed holds since its own revision only.
pub fn of_binding(schemas: &Schemas, binding: &Object, before: &[Arc<Bound>]) -> Vec<Arc<Bound>> {
    let value = binding.value();
    let bound = |entry: &Value| {
        let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let (group, resource) = (text(&entry["group"])?, text(&entry["resource"])?);
        let schema = &entry["schema"];
        let (uid, identity) = (text(&schema["UID"])?, text(&schema["identityHash"])?);
        let same = |b: &&Arc<Bound>| *b.uid == *uid && *b.identity == *identity && *b.resource == *resource;
        if let Some(same) = before.iter().find(same) {
            return Some(same.clone());
        }
        Some(match schema["followed"].as_bool() {
            Some(true) => {
                schemas.follow(&uid, binding.revision);
                Arc::new(Bound::new(&group, &resource, &uid, &identity, binding.revision))
            }
            _ => schemas.share(&group, &resource, &uid, &identity),
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
