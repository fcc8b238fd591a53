//! What users may write of exports and bindings: who may bind, what nobody may take away, what is valid.

use ::schema::field::{FieldError, FieldErrors};
use ::schema::status::{Result, Status};
use identity::Attributes;
use serde_json::Value;

use super::{BINDINGS, EXPORTS, GROUP, SCHEMAS, VERSION, index, ours, schema};
use crate::{
    call::Call,
    internal,
    kinds::{Kind, system},
    verbs::create::metadata,
    workspaces::is_internal,
};

/// Holds a binding until the bound objects are gone.
pub const FINALIZER: &str = "apis.kcp.io/apibinding-finalizer";

/// Completes and judges a new object.
pub fn create(call: &Call, value: &mut Value) -> Result<()> {
    if let Some(view) = &call.view {
        view.admit(call, value)?;
    }
    match &*call.kind.collection {
        BINDINGS => {
            hold(value);
            Ok(())
        }
        _ if !call.kind.identity.is_empty() || system::is_exported(call.kind.group()) => stays(call),
        _ => Ok(()),
    }
}

/// Judges a complete new object, which no webhook can change any more.
pub fn judge(call: &Call, value: &Value, old: Option<&Value>) -> Result<()> {
    if old.is_none() && &*call.kind.collection == BINDINGS { may_bind(call, value) } else { Ok(()) }
}

/// Completes and judges a change. What a binding is bound to does not change, so the right to bind was asked for already.
pub fn update(call: &Call, new: &mut Value, old: &Value) -> Result<()> {
    let ours = matches!(&*call.kind.collection, BINDINGS | EXPORTS | SCHEMAS);
    if !ours || is_internal(call) {
        return Ok(());
    }
    if call.target.subresource == "status" {
        // Whoever writes what is bound could bind anything.
        let why = "its status is written by the server only";
        return Err(Status::forbidden(GROUP, call.kind.plural(), &call.target.name, why));
    }
    if &*call.kind.collection == BINDINGS && internal::is_held(old, FINALIZER) {
        hold(new);
    }
    Ok(())
}

/// Judges a deletion: what workspaces are bound to stays.
pub fn delete(call: &Call, value: &Value) -> Result<()> {
    // The server's own controllers delete, and also take whole workspaces down.
    if is_internal(call) {
        return Ok(());
    }
    let name = value["metadata"]["name"].as_str().unwrap_or_default();
    if ours::is_fixed(&call.kind.collection, &call.cluster, value) {
        let why = "it brings the kinds of placement, which every center has";
        return Err(Status::forbidden(GROUP, call.kind.plural(), name, why));
    }
    if &*call.kind.collection != SCHEMAS {
        return Ok(());
    }
    let refuse = |why: String| Err(Status::forbidden(GROUP, "apiresourceschemas", name, &why));
    let index = call.server.exports.read();
    for (key, export) in index.exports_in(&call.cluster) {
        let shown = key.split("//").nth(1).unwrap_or_default();
        if export.schemas.iter().any(|schema| &**schema == name) {
            return refuse(format!("the APIExport {shown} exports it"));
        }
        let binds = |binder: &str| {
            let cluster = binder.split("//").next().unwrap_or_default();
            let mut bindings = index.bindings_in(cluster).map(|(_, binding)| binding);
            bindings.any(|b| b.export == *key && b.schemas.iter().any(|schema| &**schema == name))
        };
        if index.binders(key).any(|binder| binds(binder)) {
            return refuse(format!("workspaces that bind the APIExport {shown} still use it"));
        }
    }
    Ok(())
}

/// Errors beyond those of the kinds' own schemas.
pub fn validate(kind: &Kind, new: &Value, old: Option<&Value>) -> FieldErrors {
    match &*kind.collection {
        SCHEMAS => schema::validate(new, old),
        EXPORTS => {
            let mut errors = schema::validate_export(new);
            if let Some(old) = old {
                let secret = |export: &Value| export["spec"]["identity"]["secretRef"].clone();
                if !secret(old).is_null() && secret(new) != secret(old) {
                    let why = "an identity never changes: bound objects belong to it";
                    errors.push(FieldError::forbidden("spec.identity.secretRef", why));
                }
            }
            errors
        }
        _ => Vec::new(),
    }
}

fn hold(value: &mut Value) {
    if internal::is_held(value, FINALIZER) {
        return;
    }
    let finalizers = metadata(value).entry("finalizers").or_insert_with(|| Value::Array(Vec::new()));
    match finalizers.as_array_mut() {
        Some(list) => list.push(FINALIZER.into()),
        None => *finalizers = serde_json::json!([FINALIZER]),
    }
}

/// Binding needs the right to, in the workspace of the export. Whether the export is there is nobody else's business.
fn may_bind(call: &Call, value: &Value) -> Result<()> {
    let (provider, name) = index::reference(&call.cluster, value);
    let attributes = Attributes {
        verb: "bind".into(),
        group: GROUP.into(),
        version: VERSION.into(),
        resource: "apiexports".into(),
        name: name.to_owned(),
        ..Attributes::default()
    };
    if call.server.authorize(&call.user, provider, &attributes).is_ok() {
        return Ok(());
    }
    let own = value["metadata"]["name"].as_str().unwrap_or_default();
    let why =
        format!("no permission to bind to the APIExport {name} of {provider}: it needs the verb bind on it there");
    Err(Status::forbidden(GROUP, "apibindings", own, &why))
}

/// Nothing new comes into a binding that is going away.
fn stays(call: &Call) -> Result<()> {
    let going = {
        let index = call.server.exports.read();
        let has = |b: &index::Binding| b.brings(call.kind.group(), call.kind.plural()).is_some();
        let mut keys = index.bindings_in(&call.cluster).filter(|(_, b)| has(b)).map(|(key, _)| key.clone());
        keys.next()
    };
    let Some(key) = going else { return Ok(()) };
    let binding = call.server.cache.get(BINDINGS, &key);
    let leaving =
        binding.is_none_or(|b| ::schema::selector::scan::raw_at(&b.json, &["metadata", "deletionTimestamp"]).is_some());
    if leaving {
        let why = "the APIBinding that brings this kind is being deleted";
        return Err(Status::new(405, "MethodNotAllowed", why).about(call.kind.group(), call.kind.plural(), ""));
    }
    Ok(())
}
