//! May this user do this? Roles and bindings are indexed as they change; `system:masters` may do everything.

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
};

use api::status::Result;
use http::{HeaderMap, Method};

use crate::{
    Server,
    cache::{Cache, Change, ChangeKind, Observer},
    identity::{Attributes, Authorizer, Bound, Decision, Found, Lookup, User, impersonate, rbac::Roles},
    request::{Target, Verb},
};

/// What everybody may read.
const PUBLIC: [&str; 4] = ["/healthz", "/livez", "/readyz", "/version"];

/// The roles of every workspace.
#[derive(Default)]
pub struct Authorization {
    roles: RwLock<HashMap<Box<str>, Arc<RwLock<Roles>>>>,
}

impl Authorization {
    pub fn observer(self: &Arc<Self>) -> Observer {
        let authorization = self.clone();
        Box::new(move |collection: &str, change: &Arc<Change>| authorization.observe(collection, change))
    }

    fn observe(&self, collection: &str, change: &Change) {
        let Some(resource) = collection.strip_prefix("rbac.authorization.k8s.io/") else { return };
        let object = &change.object;
        let value = (change.kind != ChangeKind::Deleted).then(|| object.value());
        let roles = self.roles(object.cluster());
        let mut roles = roles.write().unwrap_or_else(PoisonError::into_inner);
        match resource {
            "roles" | "clusterroles" => roles.set_role(object.namespace(), object.name(), value.as_ref()),
            _ => roles.set_binding(object.namespace(), object.name(), value.as_ref()),
        }
    }

    pub fn roles(&self, cluster: &str) -> Arc<RwLock<Roles>> {
        if let Some(found) = self.roles.read().unwrap_or_else(PoisonError::into_inner).get(cluster) {
            return found.clone();
        }
        let mut roles = self.roles.write().unwrap_or_else(PoisonError::into_inner);
        roles.entry(cluster.into()).or_default().clone()
    }

    /// The authorizer of one workspace.
    pub fn in_workspace(&self, cluster: &str) -> Workspace {
        Workspace { roles: self.roles(cluster) }
    }
}

pub struct Workspace {
    pub roles: Arc<RwLock<Roles>>,
}

impl Authorizer for Workspace {
    fn authorize(&self, user: &User, attributes: &Attributes) -> Decision {
        if !attributes.path.is_empty() && everybody_may(user, &attributes.verb, &attributes.path) {
            return Decision::allowed("");
        }
        self.roles.read().unwrap_or_else(PoisonError::into_inner).authorize(user, attributes)
    }
}

/// Upstream's default roles let everybody see that a server is well, and everybody it knows discover what there is.
fn everybody_may(user: &User, verb: &str, path: &str) -> bool {
    let within = |base: &str| path == base || path.strip_prefix(base).is_some_and(|rest| rest.starts_with('/'));
    let reads = matches!(verb, "get" | "head");
    let known = user.is_in("system:authenticated");
    let discovery = ["/api", "/apis", "/openapi", "/.well-known/openid-configuration", "/openid/v1/jwks"];
    reads && (PUBLIC.iter().any(|p| within(p)) || (known && discovery.iter().any(|p| within(p))))
}

impl Server {
    /// The user that a request is made as: the sender, or whom the sender may impersonate.
    pub fn act_as(&self, sender: User, headers: &HeaderMap, cluster: &str, attributes: &Attributes) -> Result<User> {
        match impersonate::wanted(headers)? {
            None => Ok(sender),
            Some(wanted) => {
                impersonate::become_user(&sender, &wanted, attributes, &self.authorization.in_workspace(cluster))
            }
        }
    }

    pub fn authorize(&self, user: &User, cluster: &str, attributes: &Attributes) -> Result<()> {
        self.authorization.in_workspace(cluster).check(user, attributes)
    }
}

pub fn of_path(method: &Method, path: &str) -> Attributes {
    Attributes::path(&method.as_str().to_ascii_lowercase(), path)
}

pub fn of_target(verb: Verb, target: &Target) -> Attributes {
    Attributes {
        verb: verb.name().to_owned(),
        group: target.group.clone(),
        version: target.version.clone(),
        resource: target.resource.clone(),
        subresource: target.subresource.clone(),
        namespace: target.namespace.clone(),
        name: target.name.clone(),
        path: String::new(),
    }
}

impl Lookup for Cache {
    fn find(&self, cluster: &str, kind: Bound, namespace: &str, name: &str) -> Option<Found> {
        let collection = match kind {
            Bound::ServiceAccount => "core/serviceaccounts",
            Bound::Pod => "core/pods",
            Bound::Secret => "core/secrets",
            Bound::Node => "core/nodes",
        };
        let value = self.get(collection, &format!("{cluster}/{namespace}/{name}"))?.value();
        let metadata = &value["metadata"];
        let deletion = metadata["deletionTimestamp"].as_str().and_then(|t| t.parse::<jiff::Timestamp>().ok());
        let uid = metadata["uid"].as_str().unwrap_or_default().to_owned();
        Some(Found { uid, deletion: deletion.map(|t| t.as_second()) })
    }
}
