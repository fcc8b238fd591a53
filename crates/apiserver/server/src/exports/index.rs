//! Which exports and bindings there are, and who binds what. Fed by changes, without I/O.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use cache::object::Object;
use serde_json::Value;
use store::Revision;

use super::{Claim, schema};

#[derive(Clone)]
pub struct Export {
    pub schemas: Vec<Box<str>>,
    pub claims: Vec<Claim>,
    /// The hash of its key, once this process has seen the key. Empty until then, and when the key is missing or
    /// another one: nothing that is stored in the export's status is believed.
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
    /// The identities of exports, as far as their keys were seen.
    verified: HashMap<Box<str>, Box<str>>,
}

pub fn key(cluster: &str, name: &str) -> String {
    format!("{cluster}//{name}")
}

impl Index {
    pub fn set_export(&mut self, object: &Object, there: bool) {
        if there {
            let identity = self.verified.get(&object.key).cloned().unwrap_or_default();
            let export = Arc::new(Export { identity, ..Export::read(&object.value()) });
            let before = self.exports.insert(object.key.clone(), export.clone());
            if before.is_none_or(|before| before.claims != export.claims) {
                self.claimed.insert(object.key.clone(), object.revision);
            }
        } else {
            self.exports.remove(&object.key);
            self.verified.remove(&object.key);
        }
    }

    /// The identity of an export was found out, or is not known any more. Whether that is news.
    pub fn verify(&mut self, key: &str, identity: Option<&str>) -> bool {
        let Some(export) = self.exports.get_mut(key) else { return false };
        let identity = identity.unwrap_or_default();
        if &*export.identity == identity {
            return false;
        }
        *export = Arc::new(Export { identity: identity.into(), ..Export::clone(export) });
        if identity.is_empty() {
            self.verified.remove(key);
        } else {
            self.verified.insert(key.into(), identity.into());
        }
        true
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

    /// The export that a workspace has a resource of this identity from.
    pub fn provider(&self, cluster: &str, group: &str, resource: &str, identity: &str) -> Option<(&str, &Arc<Export>)> {
        let mut bindings = self.bindings_in(cluster).map(|(_, binding)| binding);
        let is = |b: &Binding| b.brings(group, resource).is_some_and(|one| &*one.identity == identity);
        let binding = bindings.find(|b| is(b) && self.may_have(&b.export, identity))?;
        Some((&binding.export, self.exports.get(&binding.export)?))
    }

    /// Whether what an export has given can be of this identity: its own, or one that it had before and nobody else
    /// has.
    fn may_have(&self, export: &str, identity: &str) -> bool {
        let own = self.exports.get(export).is_some_and(|export| &*export.identity == identity);
        own || self.of_identity(identity).next().is_none()
    }

    /// The same for what is bound already. It stays while the export is gone or without its key: it may have moved
    /// elsewhere with its key.
    pub fn may_have_given(&self, export: &str, identity: &str) -> bool {
        let is_known = self.exports.get(export).is_some_and(|export| !export.identity.is_empty());
        !is_known || self.may_have(export, identity)
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
            identity: Box::default(),
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
        let (provider, name) = reference(object.cluster(), &value);
        let mut bound = status["boundResources"].as_array().cloned().unwrap_or_default();
        bound.retain(|one| schema::may_come_from(provider, name, one["group"].as_str().unwrap_or_default()));
        Self {
            export: key(provider, name).into(),
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use cache::object;

    fn object(key: &str, value: &Value, revision: Revision) -> Object {
        Object::new(key.into(), object::with_revision(&object::encode(value), revision), 1, revision)
    }

    fn binding(path: &str, phase: &str, claims: Value) -> Value {
        json!({"spec": {"reference": {"export": {"path": path, "name": "x"}}}, "status": {"phase": phase,
            "boundResources": [{"group": "example.io", "resource": "widgets",
                "schema": {"name": "v1.widgets.example.io", "identityHash": "abc"}}],
            "appliedPermissionClaims": claims}})
    }

    #[test]
    fn who_binds_what() {
        let mut index = Index::default();
        let export = json!({"spec": {}, "status": {"identityHash": "abc"}});
        index.set_export(&object("root:p//x", &export, 1), true);
        assert_eq!(index.of_identity("abc").count(), 0, "what a status says is not believed");
        assert!(index.verify("root:p//x", Some("abc")) && !index.verify("root:p//x", Some("abc")));
        assert!(!index.verify("root:p//none", Some("abc")));
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
        assert_eq!(index.provider("root:a", "example.io", "widgets", "abc").unwrap().0, "root:p//x");
        assert!(index.provider("root:a", "example.io", "widgets", "other").is_none());
        assert_eq!(index.of_identity("abc").count(), 1);
        assert_eq!(index.of_identity("").count(), 0);
        assert_eq!(index.claimed("root:p//x"), 2);
        index.set_binding(&object("root:a//b", &binding("root:p", "Bound", claims), 5), true);
        assert_eq!(index.claimed("root:p//x"), 2, "nothing new");
        index.set_binding(&object("root:a//b", &json!({}), 6), false);
        assert_eq!(index.claimed("root:p//x"), 6);
        assert_eq!(index.binders("root:p//x").count(), 2);
        assert!(index.verify("root:p//x", None));
        assert_eq!(index.of_identity("abc").count(), 0);
    }

    /// A binding that claims to have what is another export's has it not: the other's policy stays in force.
    #[test]
    fn identities_are_not_lent() {
        let mut index = Index::default();
        for name in ["root:p//x", "root:a//x"] {
            index.set_export(&object(name, &json!({"spec": {}}), 1), true);
        }
        index.verify("root:p//x", Some("abc"));
        index.set_binding(&object("root:a//a", &binding("root:a", "Bound", json!([])), 2), true);
        assert!(index.provider("root:a", "example.io", "widgets", "abc").is_none());
        index.set_binding(&object("root:a//b", &binding("root:p", "Bound", json!([])), 3), true);
        assert_eq!(index.provider("root:a", "example.io", "widgets", "abc").unwrap().0, "root:p//x");
        index.set_export(&object("root:b//x", &json!({"spec": {}}), 1), true);
        index.verify("root:b//x", Some("def"));
        for (export, identity, may, may_have_given) in [
            ("root:p//x", "abc", true, true),
            ("root:b//x", "abc", false, false),
            ("root:b//x", "old", true, true),
            ("root:a//x", "abc", false, true),
            ("root:a//x", "old", true, true),
            ("root:gone//x", "abc", false, true),
        ] {
            assert_eq!(index.may_have(export, identity), may, "{export} {identity}");
            assert_eq!(index.may_have_given(export, identity), may_have_given, "{export} {identity}");
        }
        let ours = json!({"spec": {"reference": {"export": {"path": "root:p", "name": "x"}}},
            "status": {"phase": "Bound", "boundResources": [{"group": "edge.kcp.io", "resource": "edgeplacements"}]}});
        index.set_binding(&object("root:a//c", &ours, 4), true);
        let brings = |key: &str| index.bindings[key].brings("edge.kcp.io", "edgeplacements").is_some();
        assert!(!brings("root:a//c"));
    }
}
