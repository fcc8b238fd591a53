//! Which exports and bindings there are, and who binds what. Fed by changes, without I/O.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use serde_json::Value;
use store::Revision;

use super::Claim;
use crate::object::Object;

pub struct Export {
    pub schemas: Vec<Box<str>>,
    pub claims: Vec<Claim>,
    /// Empty until it has one.
    pub identity: Box<str>,
    /// Binders are held to the roles of the export's own workspace.
    pub has_policy: bool,
    /// Namespace and name of the secret with its key.
    pub secret: (Box<str>, Box<str>),
}

pub struct Binding {
    /// The key of the export: `cluster//name`.
    pub export: Box<str>,
    pub is_bound: bool,
    pub resources: Vec<Resource>,
    /// What the provider was given.
    pub claims: Vec<Claim>,
    pub schemas: Vec<Box<str>>,
}

/// Something that a workspace has from an export.
pub struct Resource {
    pub group: Box<str>,
    pub resource: Box<str>,
    pub identity: Box<str>,
}

/// Everything by the keys of the objects: `cluster//name`.
#[derive(Default)]
pub struct Index {
    exports: BTreeMap<Box<str>, Arc<Export>>,
    bindings: BTreeMap<Box<str>, Arc<Binding>>,
    binders: HashMap<Box<str>, BTreeSet<Box<str>>>,
    /// When somebody last gave to, or took from, the provider of an export what it claims.
    claimed: HashMap<Box<str>, Revision>,
}

pub fn key(cluster: &str, name: &str) -> String {
    format!("{cluster}//{name}")
}

impl Index {
    pub fn set_export(&mut self, object: &Object, there: bool) {
        if there {
            let export = Arc::new(Export::read(&object.value()));
            let before = self.exports.insert(object.key.clone(), export.clone());
            if before.is_none_or(|before| before.claims != export.claims) {
                self.claimed.insert(object.key.clone(), object.revision);
            }
        } else {
            self.exports.remove(&object.key);
        }
    }

    pub fn set_binding(&mut self, object: &Object, there: bool) {
        let new = there.then(|| Arc::new(Binding::read(object)));
        let old = match &new {
            Some(new) => self.bindings.insert(object.key.clone(), new.clone()),
            None => self.bindings.remove(&object.key),
        };
        if let Some(old) = &old
            && let Some(all) = self.binders.get_mut(&old.export)
        {
            all.remove(&object.key);
            if all.is_empty() {
                self.binders.remove(&old.export);
            }
        }
        if let Some(new) = &new {
            self.binders.entry(new.export.clone()).or_default().insert(object.key.clone());
        }
        let claims = |binding: &Option<Arc<Binding>>| binding.as_ref().map(|b| b.given().to_vec()).unwrap_or_default();
        if claims(&old) != claims(&new)
            && let Some(binding) = new.or(old)
        {
            self.claimed.insert(binding.export.clone(), object.revision);
        }
    }

    pub fn export(&self, key: &str) -> Option<&Arc<Export>> {
        self.exports.get(key)
    }

    pub fn exports_in(&self, cluster: &str) -> impl Iterator<Item = (&Box<str>, &Arc<Export>)> {
        within(&self.exports, cluster)
    }

    pub fn bindings_in(&self, cluster: &str) -> impl Iterator<Item = (&Box<str>, &Arc<Binding>)> {
        within(&self.bindings, cluster)
    }

    /// The keys of the bindings of an export.
    pub fn binders(&self, export: &str) -> impl Iterator<Item = &Box<str>> {
        self.binders.get(export).into_iter().flatten()
    }

    /// How a workspace binds an export, if it does.
    pub fn bound(&self, cluster: &str, export: &str) -> Option<&Arc<Binding>> {
        self.bindings_in(cluster).map(|(_, binding)| binding).find(|b| b.is_bound && &*b.export == export)
    }

    /// The export that a workspace has a resource from.
    pub fn provider(&self, cluster: &str, group: &str, resource: &str) -> Option<(&str, &Arc<Export>)> {
        let mut bindings = self.bindings_in(cluster).map(|(_, binding)| binding);
        let binding = bindings.find(|b| b.brings(group, resource).is_some())?;
        Some((&binding.export, self.exports.get(&binding.export)?))
    }

    /// Does a workspace have this resource, and of this identity?
    pub fn has(&self, cluster: &str, group: &str, resource: &str, identity: &str) -> bool {
        let is = |b: &Binding| b.brings(group, resource).is_some_and(|one| &*one.identity == identity);
        self.bindings_in(cluster).any(|(_, binding)| is(binding))
    }

    /// The exports of an identity. Usually there is one.
    pub fn of_identity<'a>(&'a self, identity: &'a str) -> impl Iterator<Item = (&'a Box<str>, &'a Arc<Export>)> {
        self.exports.iter().filter(move |(_, export)| !identity.is_empty() && &*export.identity == identity)
    }

    pub fn claimed(&self, export: &str) -> Revision {
        self.claimed.get(export).copied().unwrap_or(0)
    }
}

fn within<'a, T>(map: &'a BTreeMap<Box<str>, T>, cluster: &str) -> impl Iterator<Item = (&'a Box<str>, &'a T)> {
    let prefix: Box<str> = format!("{cluster}//").into();
    let start = prefix.clone();
    map.range(start..).take_while(move |(key, _)| key.starts_with(&*prefix))
}

impl Export {
    pub fn read(value: &Value) -> Self {
        let spec = &value["spec"];
        let text = |value: &Value| Box::from(value.as_str().unwrap_or_default());
        let secret = &spec["identity"]["secretRef"];
        Self {
            schemas: spec["latestResourceSchemas"].as_array().into_iter().flatten().map(text).collect(),
            claims: Claim::read_all(&spec["permissionClaims"]),
            identity: text(&value["status"]["identityHash"]),
            has_policy: spec["maximalPermissionPolicy"]["local"].is_object(),
            secret: (text(&secret["namespace"]), text(&secret["name"])),
        }
    }
}

impl Binding {
    fn read(object: &Object) -> Self {
        let value = object.value();
        let status = &value["status"];
        let text = |value: &Value| Box::from(value.as_str().unwrap_or_default());
        let resource = |one: &Value| Resource {
            group: text(&one["group"]),
            resource: text(&one["resource"]),
            identity: text(&one["schema"]["identityHash"]),
        };
        let bound = status["boundResources"].as_array().cloned().unwrap_or_default();
        Self {
            export: export_of(object.cluster(), &value).into(),
            is_bound: status["phase"] == "Bound",
            resources: bound.iter().map(resource).collect(),
            claims: Claim::read_all(&status["appliedPermissionClaims"]),
            schemas: bound.iter().map(|one| text(&one["schema"]["name"])).collect(),
        }
    }

    pub fn brings(&self, group: &str, resource: &str) -> Option<&Resource> {
        self.resources.iter().find(|one| &*one.group == group && &*one.resource == resource)
    }

    /// What the provider has at the moment.
    pub fn given(&self) -> &[Claim] {
        if self.is_bound { &self.claims } else { &[] }
    }
}

/// The workspace and name of the export that a binding names. Without a path it is in the binding's own workspace.
pub fn reference<'a>(cluster: &'a str, binding: &'a Value) -> (&'a str, &'a str) {
    let export = &binding["spec"]["reference"]["export"];
    let path = export["path"].as_str().filter(|path| !path.is_empty()).unwrap_or(cluster);
    (path, export["name"].as_str().unwrap_or_default())
}

pub fn export_of(cluster: &str, binding: &Value) -> String {
    let (path, name) = reference(cluster, binding);
    key(path, name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::object;

    fn object(key: &str, value: &Value, revision: Revision) -> Object {
        Object::new(key.into(), object::with_revision(&object::encode(value), revision), 1, revision)
    }

    fn binding(path: &str, phase: &str, claims: Value) -> Value {
        json!({"spec": {"reference": {"export": {"path": path, "name": "x"}}}, "status": {"phase": phase,
            "boundResources": [{"group": "example.io", "resource": "widgets", "schema": {"name": "v1.widgets.example.io"}}],
            "appliedPermissionClaims": claims}})
    }

    #[test]
    fn who_binds_what() {
        let mut index = Index::default();
        let export = json!({"spec": {}, "status": {"identityHash": "abc"}});
        index.set_export(&object("root:p//x", &export, 1), true);
        let claims = json!([{"resource": "configmaps", "all": true}]);
        index.set_binding(&object("root:a//b", &binding("root:p", "Bound", claims.clone()), 2), true);
        index.set_binding(&object("root:ab//b", &binding("root:p", "Binding", json!([])), 3), true);
        index.set_binding(&object("root:p//self", &binding("", "Bound", json!([])), 4), true);
        let binders: Vec<_> = index.binders("root:p//x").map(|key| &**key).collect();
        assert_eq!(binders, ["root:a//b", "root:ab//b", "root:p//self"]);
        assert!(index.bound("root:a", "root:p//x").is_some() && index.bound("root:p", "root:p//x").is_some());
        assert!(index.bound("root:ab", "root:p//x").is_none(), "not yet");
        assert!(index.bound("root:a", "root:q//x").is_none() && index.bound("root", "root:p//x").is_none());
        assert_eq!(index.provider("root:a", "example.io", "widgets").unwrap().0, "root:p//x");
        assert_eq!(index.of_identity("abc").count(), 1);
        assert_eq!(index.of_identity("").count(), 0);
        assert_eq!(index.claimed("root:p//x"), 2);
        index.set_binding(&object("root:a//b", &binding("root:p", "Bound", claims), 5), true);
        assert_eq!(index.claimed("root:p//x"), 2, "nothing new");
        index.set_binding(&object("root:a//b", &json!({}), 6), false);
        assert_eq!(index.claimed("root:p//x"), 6);
        assert_eq!(index.binders("root:p//x").count(), 2);
    }
}
