//! Update an object, and what every change of an existing object goes through.

use std::sync::Arc;

use cache::object;
use cache::object::Object;
use rules::strategy;
use schema::status::{Result, Status};
use serde_json::Value;

use super::{
    create,
    write::{self, Written},
};
use crate::{
    admission,
    call::Call,
    owner,
    owner::{To, Verdict},
    reply::Reply,
    webhooks::convert,
};

/// How often a change that names no version is tried on top of others' changes.
const TRIES: usize = 30;

pub async fn update(call: &Call) -> Result<Reply> {
    call.check_write_options("UpdateOptions")?;
    let received = write::receive(call)?;
    let mut value = write::admit_as(call, received)?;
    create::place(call, &mut value)?;
    check_name(call, &value)?;
    let asked = version_asked(&value)?;
    if call.get().is_none() {
        if !strategy::allow_create_on_update(call.kind.group(), call.kind.plural())
            || !call.target.subresource.is_empty()
        {
            return Err(call.not_found());
        }
        if asked.is_none() {
            return create::insert(call, value).await.map(Reply::created);
        }
    }
    let uid = value["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    let unconditional = strategy::allow_unconditional_update(call.kind.group(), call.kind.plural());
    if asked.is_none() && !unconditional {
        return Err(unversioned(call));
    }
    change(call, |old| {
        check_uid(call, &uid, old)?;
        if let Some(asked) = asked
            && asked != old.revision
        {
            return Err(Status::modified(call.kind.group(), call.kind.plural(), &call.target.name));
        }
        Ok(value.clone())
    })
    .await
    .map(Reply::ok)
}

/// The kind is not changed without saying which version of the object is meant.
pub fn unversioned(call: &Call) -> Status {
    let why = "must be specified for an update";
    let error = schema::field::FieldError::invalid("metadata.resourceVersion", &0.into(), why);
    Status::invalid(call.kind.group(), call.kind.plural(), &call.target.name, &vec![error])
}

/// The object that is sent is the one that the path names.
pub fn check_name(call: &Call, value: &Value) -> Result<()> {
    let name = value["metadata"]["name"].as_str().unwrap_or_default();
    if name.is_empty() {
        let what = format!(
            "the name of the object ({} based on URL) was undeterminable: name must be provided",
            call.target.name
        );
        return Err(Status::bad_request(what));
    }
    if name != call.target.name {
        let what = format!("the name of the object ({name}) does not match the name on the URL ({})", call.target.name);
        return Err(Status::bad_request(what));
    }
    Ok(())
}

/// The version that the client thinks it is changing.
pub fn version_asked(value: &Value) -> Result<Option<u64>> {
    match value["metadata"]["resourceVersion"].as_str().unwrap_or_default() {
        "" | "0" => Ok(None),
        text => text
            .parse()
            .map(Some)
            .map_err(|_| Status::new(500, "", format!("strconv.ParseUint: parsing \"{text}\": invalid syntax"))),
    }
}

pub fn check_uid(call: &Call, uid: &str, old: &Object) -> Result<()> {
    let have = old.value()["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    if uid.is_empty() || uid == have {
        return Ok(());
    }
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: {}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: \
         UID in precondition: {uid}, UID in object meta: {have}",
        call.kind.store_key(&call.key())
    );
    Err(Status::conflict(call.kind.group(), call.kind.plural(), &call.target.name, &why))
}

/// Changes the object that the path names: `make` gives the new state for the current one, as often as others interfere.
/// The new state comes in the version of the request, defaulted; status and metadata are kept to the rules here.
pub async fn change(call: &Call, make: impl Fn(&Arc<Object>) -> Result<Value>) -> Result<Arc<Object>> {
    change_as(call, true, make).await
}

/// `tracked`: managedFields are noted here; else `make` has done it.
pub async fn change_as(
    call: &Call,
    tracked: bool,
    make: impl Fn(&Arc<Object>) -> Result<Value>,
) -> Result<Arc<Object>> {
    for _ in 0..TRIES {
        let old = call.get().ok_or_else(|| call.not_found())?;
        let new = make(&convert::object(&call.server, &call.kind, &old).await?)?;
        if let Some(object) = replace(call, &old, new, tracked).await? {
            return Ok(object);
        }
    }
    Err(Status::modified(call.kind.group(), call.kind.plural(), &call.target.name))
}

fn without_status(value: &Value) -> Value {
    let mut value = value.clone();
    // The class of a Pod follows from its spec. It is no word of another machine, and stays.
    let class = value.pointer_mut("/status/qosClass").map(Value::take);
    value.as_object_mut().map(|object| object.remove("status"));
    if let Some(class) = class {
        value["status"] = serde_json::json!({"qosClass": class});
    }
    value
}

/// One attempt; `None` if somebody else was faster.
pub async fn replace(call: &Call, old: &Arc<Object>, mut new: Value, tracked: bool) -> Result<Option<Arc<Object>>> {
    let kind = &call.kind;
    let subresource = call.target.subresource.as_str();
    let old_stored = old.value();
    let mut old_value = match convert::by_webhook(kind) {
        Some(_) => convert::object(&call.server, kind, old).await?.value(),
        None => old_stored.clone(),
    };
    if kind.is_converted() || kind.custom.is_some() {
        crate::render::convert_value(kind, &mut old_value, false).map_err(Status::internal)?;
    }
    keep_identity(&mut new, &old_value);
    if tracked {
        write::track(call, Some(&old_value), &mut new);
    }
    admission::update(call, &mut new, &old_value).await?;
    keep_identity(&mut new, &old_value);
    let mut beside = write::Beside::default();
    if let Some(custom) = &kind.custom {
        // Custom objects are judged in the version of the request.
        let has_status = custom.version().is_some_and(|v| v.subresources.status);
        strategy::prepare_update_custom(has_status, subresource, &mut new, &old_value);
        write::validate_update(&call.server, kind, subresource, &new, &old_value)?;
        admission::validate(call, &new, Some(&old_value)).await?;
        write::warn_about(call, &new, Some(&old_value));
        convert::to_stored(call, &mut new).await?;
    } else {
        write::to_stored(kind, &mut new)?;
        let stored_kind = write::stored_kind(call);
        let now = clock::now();
        // A binding sets the node and says so in the status; nothing of that is a change of the spec.
        if subresource != "binding" {
            strategy::prepare_update(
                &stored_kind.resource,
                subresource,
                &mut new,
                &old_stored,
                strategy::Now { rfc3339: &now },
            );
        }
        if kind.is_definition() && subresource.is_empty() {
            rules::crd::prepare(&mut new, Some(&old_stored));
        }
        beside = admission::reallocate(call, &mut new, &old_stored)?;
        match subresource {
            "status" if call.relays_status => {
                let before = without_status(&old_stored);
                write::validate_update(&call.server, &stored_kind, subresource, &new, &before)?;
            }
            _ => write::validate_update(&call.server, &stored_kind, subresource, &new, &old_stored)?,
        }
        admission::validate(call, &new, Some(&old_stored)).await?;
        write::warn_about(call, &new, Some(&old_stored));
    }
    if patch::apply::keep_times(&old_stored, &mut new) || is_same(&old_stored, &new) {
        return Ok(Some(old.clone()));
    }
    let to = To::Value { value: &new, replicas: owner::replicas(call, &new) };
    match owner::ask(call, old, &old_stored, to, call.dry_run()).await? {
        Verdict::Here => {}
        Verdict::Left => return Ok(Some(old.clone())),
        Verdict::Done(object) => return Ok(Some(object)),
        Verdict::Again => return Ok(None),
    }
    admission::judge(call, &new, Some(&old_stored), &mut beside).await?;
    if is_finished(call, &new) {
        // The last thing that held a deleted object is gone, and so is the object.
        if call.dry_run() {
            return Ok(Some(Arc::new(write::shown(&old.key, &object::encode(&new), old.created, old.revision))));
        }
        let released = admission::release(call, &old_stored);
        return match write::remove(call, &old.key, old.revision, released).await? {
            Some(_) => Ok(Some(Arc::new(write::shown(&old.key, &object::encode(&new), old.created, old.revision)))),
            None => Ok(None),
        };
    }
    if call.dry_run() {
        return Ok(Some(Arc::new(write::shown(&old.key, &object::encode(&new), old.created, old.revision))));
    }
    match write::put(call, &old.key, &new, old.revision, old.created, beside).await? {
        Written::Done(object) => Ok(Some(object)),
        Written::Conflict => Ok(None),
    }
}

/// What a client may leave out, and what it can never take away. What it may not change, validation says.
fn keep_identity(new: &mut Value, old: &Value) {
    let metadata = create::metadata(new);
    let old = &old["metadata"];
    for field in ["uid", "namespace", "name"] {
        if metadata.get(field).and_then(Value::as_str).unwrap_or_default().is_empty() && !old[field].is_null() {
            metadata.insert(field.into(), old[field].clone());
        }
    }
    for field in ["creationTimestamp", "deletionTimestamp", "resourceVersion"] {
        if !old[field].is_null() {
            metadata.insert(field.into(), old[field].clone());
        }
    }
    if !metadata.contains_key("deletionGracePeriodSeconds") && !old["deletionGracePeriodSeconds"].is_null() {
        metadata.insert("deletionGracePeriodSeconds".into(), old["deletionGracePeriodSeconds"].clone());
    }
    metadata.remove("selfLink");
}

pub fn is_same(old: &Value, new: &Value) -> bool {
    let (Some(old), Some(new)) = (old.as_object(), new.as_object()) else { return false };
    let bare = |metadata: &Value| -> Option<serde_json::Map<String, Value>> {
        let mut map = metadata.as_object()?.clone();
        map.remove("resourceVersion");
        Some(map)
    };
    old.len() == new.len()
        && old.iter().all(|(key, value)| match key.as_str() {
            "metadata" => new.get(key).is_some_and(|other| bare(value) == bare(other)),
            _ => new.get(key) == Some(value),
        })
}

fn is_finished(call: &Call, value: &Value) -> bool {
    let metadata = &value["metadata"];
    let empty = |list: &Value| list.as_array().is_none_or(Vec::is_empty);
    let namespace_done = &*call.kind.collection != "core/namespaces" || empty(&value["spec"]["finalizers"]);
    metadata["deletionTimestamp"].is_string()
        && metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0
        && empty(&metadata["finalizers"])
        && namespace_done
}
