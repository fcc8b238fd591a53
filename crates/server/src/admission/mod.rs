//! What stands between a well-formed write and the store: namespaces, service accounts, limits, quotas, allocation.

mod services;

use api::{
    selector::scan,
    status::{Cause, Result, Status},
};
use serde_json::Value;
use store::Compare;

use crate::{call::Call, verbs::write::Beside};

/// Objects live only in namespaces that exist and are not being taken down. What is answered must still hold when the object
/// is committed, so that nothing is ever left behind in a namespace that has gone.
pub fn namespace(call: &Call, value: &Value) -> Result<Option<Compare>> {
    let namespace = call.target.namespace.as_str();
    if namespace.is_empty() {
        return Ok(None);
    }
    let key = format!("{}//{namespace}", call.cluster);
    let Some(found) = call.server.cache.get("core/namespaces", &key) else {
        return Err(Status::not_found("", "namespaces", namespace));
    };
    if scan::raw_at(&found.json, &["metadata", "deletionTimestamp"]).is_none() {
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

/// Mutates and judges a new object.
pub fn create(_call: &Call, _value: &mut Value) -> Result<()> {
    Ok(())
}

/// Completes and judges a change.
pub fn update(call: &Call, new: &mut Value, old: &Value) -> Result<()> {
    let _ = (call, new, old);
    Ok(())
}

/// Judges a deletion.
pub fn delete(call: &Call, value: &Value) -> Result<()> {
    let name = value["metadata"]["name"].as_str().unwrap_or_default();
    if &*call.kind.collection == "core/namespaces" && matches!(name, "default" | "kube-system" | "kube-public") {
        return Err(Status::forbidden("", "namespaces", name, "this namespace may not be deleted"));
    }
    Ok(())
}

/// Addresses and ports for a new object, taken in the same commit.
pub fn allocate(call: &Call, value: &mut Value) -> Result<Beside> {
    if is_service(call) { services::allocate(call, value, &Value::Null) } else { Ok(Beside::default()) }
}

/// The same for a change.
pub fn reallocate(call: &Call, new: &mut Value, old: &Value) -> Result<Beside> {
    if is_service(call) { services::allocate(call, new, old) } else { Ok(Beside::default()) }
}

/// What an object gives back when it goes.
pub fn release(call: &Call, old: &Value) -> Beside {
    if is_service(call) { services::release(call, old) } else { Beside::default() }
}

fn is_service(call: &Call) -> bool {
    &*call.kind.collection == "core/services" && call.target.subresource.is_empty()
}
