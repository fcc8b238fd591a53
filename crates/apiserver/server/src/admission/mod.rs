//! What stands between a well-formed write and the store: namespaces, service accounts, limits, quotas, allocation.
//!
//! The order is upstream's: [`create`] and [`update`] complete an object and let webhooks change it, [`allocate`] and
//! [`reallocate`] give it what it needs, and once it is found valid, [`validate`] asks the webhooks that judge and [`judge`]
//! holds it against what else there is.

mod authorizer;
mod certificates;
mod expressions;
mod hooks;
mod matching;
mod nodes;
mod notes;
mod objects;
mod plugins;
pub mod pods;
mod podsecurity;
mod policies;
mod question;
pub mod quota;
mod references;
mod registry;
mod review;
mod roles;
mod services;
mod targets;
#[cfg(test)]
mod tests;
mod usage;

use schema::selector::scan;
use schema::status::{Cause, Result, Status};
use serde_json::Value;
use store::Compare;

use crate::{call::Call, exports, verbs::write::Beside, workspaces};
use nodes::Write;
pub use nodes::{restrict_eviction, restrict_token};
pub use notes::Notes;
pub use plugins::{Plugin, Plugins};
pub use question::Operation;
pub use registry::Registry;
pub use review::review;

/// Objects live only in namespaces that exist and are not being taken down. What is answered must still hold when the object
/// is committed, so that nothing is ever left behind in a namespace that has gone.
pub fn namespace(call: &Call, value: &Value) -> Result<Option<Compare>> {
    let namespace = call.target.namespace.as_str();
    if namespace.is_empty() || !on(call, Plugin::NamespaceLifecycle) {
        return Ok(None);
    }
    let key = format!("{}//{namespace}", call.cluster);
    let Some(found) = call.server.cache.get("core/namespaces", &key) else {
        return Err(Status::not_found("", "namespaces", namespace));
    };
    if scan::rare_at(&found.json, &["metadata", "deletionTimestamp"]).is_none() {
        return Ok(Some(Compare { key: format!("core/namespaces/{key}"), modified: found.revision }));
    }
    let name = value["metadata"]["name"].as_str().unwrap_or_default();
    let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
    let cause = Cause {
        reason: "NamespaceTerminating".into(),
        message: format!("namespace {namespace} is being terminated"),
        field: "metadata.namespace".into(),
    };
    Err(Status::forbidden(call.kind.group(), call.kind.plural(), name, &why).with_causes(vec![cause]))
}

/// Completes a new object, and lets webhooks change it.
pub async fn create(call: &Call, value: &mut Value) -> Result<()> {
    complete(call, value, None).await?;
    review::mutate(call, Operation::Create, value, None).await
}

/// The same for a change.
pub async fn update(call: &Call, new: &mut Value, old: &Value) -> Result<()> {
    complete(call, new, Some(old)).await?;
    review::mutate(call, Operation::Update, new, Some(old)).await
}

/// The server's own part of it, which may be done twice.
async fn complete(call: &Call, value: &mut Value, old: Option<&Value>) -> Result<()> {
    match old {
        None => complete_new(call, value).await,
        Some(old) => complete_change(call, value, old),
    }
}

async fn complete_new(call: &Call, value: &mut Value) -> Result<()> {
    nodes::restrict(call, Write::Create(value))?;
    exports::create(call, value)?;
    match &*call.kind.collection {
        "core/pods" => pods::create(call, value).await,
        "certificates.k8s.io/certificatesigningrequests" => certificates::create(call, value),
        workspaces::WORKSPACES => workspaces::complete(call, value),
        collection if collection.starts_with(roles::GROUP) => roles::write(call, value, None),
        targets::COLLECTION => targets::complete(call, value, None),
        "core/services" => objects::external_ips(call, value, &Value::Null),
        collection => {
            objects::create(call, collection, value);
            Ok(())
        }
    }
}

fn complete_change(call: &Call, new: &mut Value, old: &Value) -> Result<()> {
    nodes::restrict(call, Write::Update { new, old })?;
    exports::update(call, new, old)?;
    match &*call.kind.collection {
        "core/pods" => {
            pods::update(call, new, old);
            Ok(())
        }
        "certificates.k8s.io/certificatesigningrequests" => certificates::update(call, new, old),
        workspaces::WORKSPACES => workspaces::keep(call, new, old),
        collection if collection.starts_with(roles::GROUP) => roles::write(call, new, Some(old)),
        targets::COLLECTION => targets::complete(call, new, Some(old)),
        "core/services" => objects::external_ips(call, new, old),
        _ => Ok(()),
    }
}

/// Judges a deletion. `value` is what is stored, `options` how it shall go.
pub async fn delete(call: &Call, value: &Value, options: impl FnOnce() -> Value) -> Result<()> {
    nodes::restrict(call, Write::Delete(value))?;
    exports::delete(call, value)?;
    workspaces::delete(call, value)?;
    let name = value["metadata"]["name"].as_str().unwrap_or_default();
    let is_furniture = matches!(name, "default" | "kube-system" | "kube-public");
    if &*call.kind.collection == "core/namespaces" && is_furniture && on(call, Plugin::NamespaceLifecycle) {
        return Err(Status::forbidden("", "namespaces", name, "this namespace may not be deleted"));
    }
    review::delete(call, value, options).await
}

/// Addresses and ports for a new object, taken in the same commit.
pub fn allocate(call: &Call, value: &mut Value) -> Result<Beside> {
    match &*call.kind.collection {
        "core/services" => services::allocate(call, value, &Value::Null),
        "certificates.k8s.io/certificatesigningrequests" => {
            certificates::name_requester(call, value);
            Ok(Beside::default())
        }
        workspaces::WORKSPACES => workspaces::found(call, value),
        _ => Ok(Beside::default()),
    }
}

/// Whether that depends on what others have taken meanwhile.
pub fn allocates(call: &Call) -> bool {
    is_service(call) || &*call.kind.collection == workspaces::WORKSPACES
}

/// The same for a change.
pub fn reallocate(call: &Call, new: &mut Value, old: &Value) -> Result<Beside> {
    if is_service(call) { services::allocate(call, new, old) } else { Ok(Beside::default()) }
}

/// Holds a valid object against the standards of its namespace, the policies, and what webhooks say. Objects of built-in
/// kinds come as they are stored.
pub async fn validate(call: &Call, new: &Value, old: Option<&Value>) -> Result<()> {
    if on(call, Plugin::PodSecurity) {
        podsecurity::judge(call, new, old)?;
    }
    review::validate(call, new, old).await
}

/// Judges a valid object against what else there is: limits and quotas. `old` is what it is changed from.
pub async fn judge(call: &Call, value: &Value, old: Option<&Value>, beside: &mut Beside) -> Result<()> {
    exports::judge(call, value, old)?;
    if &*call.kind.collection == workspaces::TYPES {
        workspaces::judge_type(call, value, old)?;
    }
    if &*call.kind.collection == targets::COLLECTION {
        targets::judge(call, value, old)?;
    }
    objects::judge(call, value, old)?;
    if call.kind.group() == "admissionregistration.k8s.io" {
        references::judge(call, value, old)?;
    }
    if on(call, Plugin::ResourceQuota) {
        quota::charge(call, value, old, beside).await?;
    }
    Ok(())
}

/// What an object gives back when it goes.
pub fn release(call: &Call, old: &Value) -> Beside {
    if is_service(call) { services::release(call, old) } else { Beside::default() }
}

/// Whether a step of admission is switched on.
fn on(call: &Call, plugin: Plugin) -> bool {
    call.server.plugins.has(plugin)
}

fn is_service(call: &Call) -> bool {
    &*call.kind.collection == "core/services" && call.target.subresource.is_empty()
}

/// A refusal of this object, in upstream's words.
fn forbid(call: &Call, value: &Value, why: &str) -> Status {
    // An object whose name is still to be made is refused by what its name would have begun with.
    let names = ["name", "generateName"].map(|field| value["metadata"][field].as_str().unwrap_or_default());
    let name = names.into_iter().find(|name| !name.is_empty()).unwrap_or("Unknown");
    Status::forbidden(call.kind.group(), call.kind.plural(), name, why)
}

/// All objects of a collection in this workspace, or in one of its namespaces.
fn all(call: &Call, collection: &str, namespace: &str) -> Vec<Value> {
    let prefix = format!("{}/{namespace}/", call.cluster);
    call.server.cache.snapshot(collection).items.range(&prefix, "").map(|object| object.value()).collect()
}

fn one(call: &Call, collection: &str, namespace: &str, name: &str) -> Option<Value> {
    call.server.cache.get(collection, &format!("{}/{namespace}/{name}", call.cluster)).map(|object| object.value())
}
