//! Create an object.

use std::sync::Arc;

use cache::object;
use cache::object::Object;
use rules::strategy;
use schema::names;
use schema::selector::scan;
use schema::status::{Result, Status};
use serde_json::{Value, json};

use super::write::{self, Written};
use crate::{admission, call::Call, kinds::DEFINITIONS, reply::Reply, webhooks::convert};

/// How often a generated name that is taken is made anew.
const TRIES: usize = 8;

pub async fn create(call: &Call) -> Result<Reply> {
    call.check_write_options("CreateOptions")?;
    let received = write::receive(call)?;
    let mut value = write::admit_as(call, received)?;
    place(call, &mut value)?;
    if value["metadata"]["resourceVersion"].as_str().is_some_and(|v| !matches!(v, "" | "0")) {
        return Err(Status::new(500, "", "resourceVersion should not be set on objects to be created"));
    }
    insert(call, value).await.map(Reply::created)
}

/// An object belongs where the path says.
pub fn place(call: &Call, value: &mut Value) -> Result<()> {
    let wanted = call.target.namespace.as_str();
    let metadata = metadata(value);
    let got = metadata.get("namespace").and_then(Value::as_str).unwrap_or_default();
    if call.kind.resource.namespaced {
        if got.is_empty() {
            metadata.insert("namespace".into(), wanted.into());
        } else if got != wanted {
            return Err(Status::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
    } else {
        // What lies in no namespace cannot be put into one: upstream drops the wish without a word.
        metadata.remove("namespace");
    }
    Ok(())
}

/// The metadata map, made if it is not there.
pub fn metadata(value: &mut Value) -> &mut serde_json::Map<String, Value> {
    if !value["metadata"].is_object() {
        value["metadata"] = json!({});
    }
    match &mut value["metadata"] {
        Value::Object(map) => map,
        _ => unreachable!("it was just made an object"),
    }
}

/// Nobody but the server says these.
fn forget_what_is_ours(value: &mut Value) {
    let metadata = metadata(value);
    for field in
        ["selfLink", "deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion", "uid", "creationTimestamp"]
    {
        metadata.remove(field);
    }
}

/// Nothing new of a kind whose definition is on its way out.
fn refuse_if_ending(call: &Call, value: &Value) -> Result<()> {
    let kind = &call.kind;
    if kind.custom.is_none() {
        return Ok(());
    }
    let key = format!("{}//{}.{}", call.cluster, kind.plural(), kind.group());
    let definition = call.server.cache.get(DEFINITIONS, &key);
    if definition.is_none_or(|d| scan::raw_at(&d.json, &["metadata", "deletionTimestamp"]).is_none()) {
        return Ok(());
    }
    let name = value["metadata"]["name"].as_str().unwrap_or_default();
    let why = "create not allowed while custom resource definition is terminating";
    Err(Status::forbidden(kind.group(), kind.plural(), name, why))
}

/// The name is in use, perhaps by an object that only waits for its finalizers.
fn taken(call: &Call, key: &str, name: &str) -> Status {
    let mut status = Status::already_exists(call.kind.group(), call.kind.plural(), name);
    let there = call.server.cache.get(&call.kind.collection, key);
    if there.is_some_and(|there| there.value()["metadata"]["deletionTimestamp"].is_string()) {
        status.message = format!("object is being deleted: {}", status.message);
    }
    status
}

/// Everything behind decoding: admission, preparation, validation, commit. Also how an update creates.
pub async fn insert(call: &Call, mut value: Value) -> Result<Arc<Object>> {
    write::track(call, None, &mut value);
    insert_tracked(call, value).await
}

/// The same for an object whose managedFields are already right, as apply leaves them.
pub async fn insert_tracked(call: &Call, mut value: Value) -> Result<Arc<Object>> {
    forget_what_is_ours(&mut value);
    refuse_if_ending(call, &value)?;
    let mut home = admission::namespace(call, &value)?;
    admission::create(call, &mut value).await?;
    place(call, &mut value)?;
    forget_what_is_ours(&mut value);
    let generate = {
        let metadata = metadata(&mut value);
        metadata.insert("uid".into(), uuid::Uuid::new_v4().to_string().into());
        metadata.insert("creationTimestamp".into(), clock::now().into());
        let text = |field: &str| metadata.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        Some(text("generateName")).filter(|base| text("name").is_empty() && !base.is_empty())
    };
    let now = clock::now();
    let stored_kind = write::stored_kind(call);
    if let Some(custom) = &call.kind.custom {
        strategy::prepare_create_custom(custom.version().is_some_and(|v| v.subresources.status), &mut value);
    }
    // What is prepared from the beginning again after a conflict. For most objects preparing them twice does no harm.
    let changes_by_trying =
        generate.is_some() || call.kind.custom.is_some() || call.kind.is_converted() || admission::allocates(call);
    for attempt in 1.. {
        if let Some(base) = &generate {
            let name = names::generate(base, |n| rand::random_range(0..n));
            metadata(&mut value).insert("name".into(), name.into());
        }
        // Custom objects are judged in the version of the request, built-in ones in the stored version.
        let mut final_value = if changes_by_trying { value.clone() } else { std::mem::take(&mut value) };
        if call.kind.custom.is_none() {
            write::to_stored(&call.kind, &mut final_value)?;
            strategy::prepare_create(&stored_kind.resource, &mut final_value, strategy::Now { rfc3339: &now });
            if call.kind.is_definition() {
                rules::crd::prepare(&mut final_value, None);
            }
        }
        let mut beside = admission::allocate(call, &mut final_value)?;
        beside.compares.extend(home.take());
        write::validate_create(&call.server, &stored_kind, &final_value)?;
        admission::validate(call, &final_value, None).await?;
        admission::judge(call, &final_value, None, &mut beside).await?;
        write::warn_about(call, &final_value, None);
        if call.kind.custom.is_some() {
            convert::to_stored(call, &mut final_value).await?;
        }
        let name = final_value["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let key = call.kind.key(&call.cluster, &call.target.namespace, &name);
        let taken = || taken(call, &key, &name);
        if call.dry_run() {
            if call.server.cache.get(&call.kind.collection, &key).is_some() {
                return Err(taken());
            }
            return Ok(Arc::new(write::shown(&key, &object::encode(&final_value), 0, 0)));
        }
        match write::put(call, &key, &final_value, 0, 0, beside).await? {
            Written::Done(object) => return Ok(object),
            Written::Conflict
                if attempt < TRIES
                    && (generate.is_some() || call.server.cache.get(&call.kind.collection, &key).is_none()) =>
            {
                if !changes_by_trying {
                    value = final_value;
                }
                home = admission::namespace(call, &value)?;
            }
            Written::Conflict if generate.is_some() => {
                return Err(Status::new(
                    409,
                    "AlreadyExists",
                    format!("{}; a unique name could not be generated, please try again", taken().message),
                )
                .about(call.kind.group(), call.kind.plural(), &name));
            }
            Written::Conflict if call.server.cache.get(&call.kind.collection, &key).is_some() => return Err(taken()),
            // Not this object, but what it needs beside it is in high demand.
            Written::Conflict => return Err(Status::modified(call.kind.group(), call.kind.plural(), &name)),
        }
    }
    Err(Status::internal("no attempt was made"))
}
