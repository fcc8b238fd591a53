//! How a workspace begins: with its object, in the same commit, what every workspace holds from its first moment.
//!
//! Nothing of upstream's default policy is copied into it: that is the same everywhere and shared.

use identity::{Attributes, kubeconfig};
use request::ROOT;
use schema::field::FieldError;
use schema::status::{Result, Status};
use serde_json::{Value, json};
use store::Commit;

use super::{
    FINALIZER, GROUP, TYPES, VERSION, WORKSPACES, lifecycle, named_in,
    path::{self, LONGEST},
    types::{Reference, Resolved, Type, placement_types, system_types, upwards},
    usage::is_internal,
};
use crate::{
    Server,
    call::Call,
    controllers::root_ca,
    internal::{Internal, is_held},
    kinds::system::PROVIDER,
    verbs::create::metadata,
    verbs::write::Beside,
};

/// Completes a new Workspace object: its type and what comes with it.
pub fn complete(call: &Call, value: &mut Value) -> Result<()> {
    let of_type = wanted_type(call, value)?;
    let mut spec = value["spec"].as_object().cloned().unwrap_or_default();
    spec.insert("type".into(), of_type.reference().value());
    for given in ["cluster", "URL"] {
        spec.remove(given);
    }
    value["spec"] = spec.into();
    let metadata = metadata(value);
    let labels = of_type.labels();
    if !labels.is_empty() {
        let mut all = metadata.get("labels").and_then(Value::as_object).cloned().unwrap_or_default();
        all.extend(labels.into_iter().map(|(key, value)| (key, value.into())));
        metadata.insert("labels".into(), all.into());
    }
    hold(metadata);
    Ok(())
}

/// Adds to the commit of a new Workspace object what its workspace holds from its first moment.
pub fn found(call: &Call, value: &mut Value) -> Result<Beside> {
    let name = value["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    if !path::is_name(&name) {
        let what = "a workspace's name is part of its path: at most 63 lower-case letters, digits and \"-\", which must \
                    neither begin nor end it";
        return Err(invalid(value, FieldError::invalid("metadata.name", &name.into(), what)));
    }
    let path = path::child(&call.cluster, &name);
    if path.len() > LONGEST {
        let what = format!("the path {path} would be longer than {LONGEST} bytes");
        return Err(invalid(value, FieldError::invalid("metadata.name", &name.into(), &what)));
    }
    let of_type = wanted_type(call, value)?;
    allowed(call, &of_type).map_err(|why| invalid(value, FieldError::forbidden("spec.type", &why)))?;
    value["spec"]["type"] = of_type.reference().value();
    value["spec"]["cluster"] = path.as_str().into();
    value["spec"]["URL"] = url(&call.server, &path).into();
    value["status"] = lifecycle::first_status(&of_type, &clock::now());
    let mut commit = Commit::default();
    let hand = Internal::new(&call.server, &path, "kube-apiserver");
    let mut make = |group: &str, resource: &str, namespace: &str, object: Value| {
        hand.make(&hand.kind(group, "v1", resource)?, namespace, object, &mut commit)
    };
    make("", "namespaces", "", json!({"metadata": {"name": "default"}}))?;
    make("", "serviceaccounts", "default", json!({"metadata": {"name": "default"}}))?;
    make("", "configmaps", "default", root_ca(&call.server))?;
    if !is_internal(call) {
        let rbac = "rbac.authorization.k8s.io";
        let subject = json!({"kind": "User", "apiGroup": rbac, "name": named_in(&call.user, &path).name});
        let role = json!({"apiGroup": rbac, "kind": "ClusterRole", "name": "cluster-admin"});
        let binding = json!({"metadata": {"name": "workspace-admin"}, "roleRef": role, "subjects": [subject]});
        make(rbac, "clusterrolebindings", "", binding)?;
    }
    Ok(Beside { compares: commit.compares, ops: commit.ops, ..Beside::default() })
}

/// May a workspace of this type be made here, by this user? Asked last, when nobody changes the object any more.
fn allowed(call: &Call, of_type: &Resolved) -> Result<(), String> {
    let reference = of_type.reference();
    of_type.check_parent(&type_of(&call.server, &call.cluster))?;
    if !reference.is_for_all() && !may_use(call, &reference) {
        return Err(format!(
            "you may not use the type {reference}: that needs the verb \"use\" on it in {}",
            reference.path
        ));
    }
    if let Some(extended) = of_type.borrowed().into_iter().find(|extended| !may_use(call, extended)) {
        return Err(format!(
            "the type {reference} extends {extended}, which you may not use: that needs the verb \"use\" on it in {}",
            extended.path
        ));
    }
    match of_type.foreign_bindings().first() {
        Some((home, export)) => Err(format!(
            "the type {reference} binds APIExport {home}:{export}: only types in {ROOT} or beside the export may bind it"
        )),
        None => Ok(()),
    }
}

/// Judges a type that is written: nobody offers what they may not use. What was in it before was somebody's to put
/// there.
pub fn judge_type(call: &Call, value: &Value, old: Option<&Value>) -> Result<()> {
    if is_internal(call) {
        return Ok(());
    }
    let name = value["metadata"]["name"].as_str().unwrap_or_default();
    let of = |value: &Value| Type::of(Reference::new(&call.cluster, name), value);
    let before = old.map(of).unwrap_or_default().extends;
    let new = of(value);
    match new.borrowed().find(|one| !before.contains(one) && !may_use(call, one)) {
        None => Ok(()),
        Some(one) => {
            let why =
                format!("it extends {one}, which you may not use: that needs the verb \"use\" on it in {}", one.path);
            Err(Status::forbidden(GROUP, "workspacetypes", name, &why))
        }
    }
}

/// What of a Workspace object nobody but the server changes.
pub fn keep(call: &Call, new: &mut Value, old: &Value) -> Result<()> {
    if is_internal(call) {
        return Ok(());
    }
    let mut errors = Vec::new();
    for field in ["type", "cluster", "URL"] {
        if new["spec"][field] != old["spec"][field] {
            let path = format!("spec.{field}");
            errors.push(FieldError::invalid(path, &new["spec"][field], "a workspace's place and type never change"));
        }
    }
    if !errors.is_empty() {
        return Err(Status::invalid(GROUP, "Workspace", &call.target.name, &errors));
    }
    if is_held(old, FINALIZER) {
        hold(metadata(new));
    }
    Ok(())
}

/// Judges a deletion: what the center needs itself stays.
pub fn delete(call: &Call, value: &Value) -> Result<()> {
    let name = value["metadata"]["name"].as_str().unwrap_or_default();
    if &*call.kind.collection == WORKSPACES && path::child(&call.cluster, name) == PROVIDER && !is_internal(call) {
        let why = "the kinds of placement come from it, and mailboxes are in it";
        return Err(Status::forbidden(GROUP, "workspaces", name, why));
    }
    Ok(())
}

fn hold(metadata: &mut serde_json::Map<String, Value>) {
    let list = metadata.entry("finalizers").or_insert_with(|| json!([]));
    if let Some(list) = list.as_array_mut()
        && !list.iter().any(|f| f == FINALIZER)
    {
        list.push(FINALIZER.into());
    }
}

pub fn url(server: &Server, path: &str) -> String {
    kubeconfig::server_url(server.address, Some(path))
}

/// The type that a new workspace asks for, or the one that it gets if it asks for none.
fn wanted_type(call: &Call, value: &Value) -> Result<Resolved> {
    let server = &call.server;
    let reference = match Reference::of(&value["spec"]["type"]) {
        Some(asked) if asked.path.is_empty() => {
            let there = |at: &&str| find(server, &Reference::new(at, &asked.name)).is_some();
            upwards(&call.cluster).find(there).map(|at| Reference::new(at, &asked.name)).unwrap_or(asked)
        }
        Some(asked) => asked,
        None => type_of(server, &call.cluster).default_child(),
    };
    resolve(server, &reference)
        .ok_or_else(|| invalid(value, FieldError::not_found("spec.type", &reference.to_string().into())))
}

/// The type of a workspace that there is. One whose type is gone is of no type, which limits nothing.
pub fn type_of(server: &Server, path: &str) -> Resolved {
    let reference = match path::object_key(path) {
        None => Some(Reference::new(ROOT, "root")),
        Some(key) => server.cache.get(WORKSPACES, &key).and_then(|o| Reference::of(&o.value()["spec"]["type"])),
    };
    let resolved = reference.as_ref().and_then(|reference| resolve(server, reference));
    resolved.unwrap_or_else(|| Resolved(vec![Type { reference: reference.unwrap_or_default(), ..Type::default() }]))
}

pub fn resolve(server: &Server, reference: &Reference) -> Option<Resolved> {
    Resolved::new(reference, |one| find(server, one))
}

fn find(server: &Server, reference: &Reference) -> Option<Type> {
    let stored = server.cache.get(TYPES, &reference.key()).map(|object| object.value());
    let from_the_start = || {
        system_types().into_iter().chain(placement_types()).find(|t| t["metadata"]["name"] == reference.name.as_str())
    };
    let value = stored.or_else(|| from_the_start().filter(|_| reference.path == ROOT))?;
    Some(Type::of(reference.clone(), &value))
}

fn may_use(call: &Call, reference: &Reference) -> bool {
    let attributes = Attributes {
        verb: "use".to_owned(),
        group: GROUP.to_owned(),
        version: VERSION.to_owned(),
        resource: "workspacetypes".to_owned(),
        name: reference.name.clone(),
        ..Attributes::default()
    };
    call.server.authorize(&call.user, &reference.path, &attributes).is_ok()
}

fn invalid(value: &Value, error: FieldError) -> Status {
    let name = value["metadata"]["name"].as_str().unwrap_or_default();
    Status::invalid(GROUP, "Workspace", name, &vec![error])
}
