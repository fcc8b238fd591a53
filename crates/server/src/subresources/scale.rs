//! Scale: the replica count of a workload, in a shape that all workloads share.

use api::{
    decode, patch,
    status::{Result, Status},
    strategy,
};
use serde_json::Value;

use crate::{
    call::Call,
    negotiate::media_type,
    object::Object,
    render,
    reply::Reply,
    request::Verb,
    types,
    verbs::{get, update, write},
};

pub async fn run(call: &Call, verb: Verb) -> Result<Reply> {
    match verb {
        Verb::Get => {
            get::reach(call, 0).await?;
            let object = call.get().ok_or_else(|| call.not_found())?;
            Ok(Reply::Value { code: 200, value: read(call, &object)? })
        }
        Verb::Update => {
            call.check_write_options("UpdateOptions")?;
            let scale = write::receive_as(call, "autoscaling/v1", "Scale")?.value;
            if scale["metadata"]["name"].as_str().is_some_and(|name| name != call.target.name) {
                return Err(Status::bad_request(format!(
                    "the name of the object ({}) does not match the name on the URL ({})",
                    scale["metadata"]["name"].as_str().unwrap_or_default(),
                    call.target.name
                )));
            }
            change(call, |_| Ok(scale.clone())).await
        }
        Verb::Patch => {
            call.check_write_options("PatchOptions")?;
            change(call, |current| patched(call, current)).await
        }
        _ => Err(Status::method_not_allowed()),
    }
}

fn patched(call: &Call, current: &Value) -> Result<Value> {
    let mut scale = current.clone();
    match media_type(call.header("content-type")).as_str() {
        "application/json-patch+json" => patch::json(&mut scale, &call.body)?,
        "application/merge-patch+json" => {
            patch::merge(&mut scale, &decode::parse(&call.body, decode::Format::Json)?.value)
        }
        "application/strategic-merge-patch+json" if call.kind.custom.is_none() => {
            let ty = types::find("autoscaling", "v1", "Scale").ok_or_else(Status::no_such_path)?;
            let body = decode::parse(&call.body, decode::Format::Json)?.value;
            patch::strategic(api::schema::builtin(), ty, &mut scale, &body)?;
        }
        // An apply of nothing but spec.replicas is a merge; conflicts on the count belong to the main resource.
        "application/apply-patch+yaml" => {
            patch::merge(&mut scale, &decode::parse(&call.body, decode::Format::Yaml)?.value)
        }
        _ => {
            return Err(Status::unsupported_media_type(
                "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json, application/apply-patch+yaml",
            ));
        }
    }
    Ok(scale)
}

async fn change(call: &Call, make: impl Fn(&Value) -> Result<Value>) -> Result<Reply> {
    let object = update::change(call, |old| {
        let mut scale = make(&read(call, old)?)?;
        if let Some(ty) = types::find("autoscaling", "v1", "Scale") {
            decode::conform(api::schema::builtin(), ty, &mut scale).map_err(Status::bad_request)?;
        }
        if update::version_asked(&scale)?.is_some_and(|asked| asked != old.revision) {
            return Err(Status::modified(call.kind.group(), call.kind.plural(), &call.target.name));
        }
        let errors = validate_scale(&scale);
        if !errors.is_empty() {
            return Err(Status::invalid("autoscaling", "Scale", &call.target.name, &errors));
        }
        let mut value = current(call, old)?;
        match call.kind.custom.as_ref().and_then(|c| c.version()) {
            Some(version) => version.scale_set(&mut value, &scale)?,
            None => strategy::scale::set(&call.kind.resource, &mut value, &scale),
        }
        Ok(value)
    })
    .await?;
    Ok(Reply::Value { code: 200, value: read(call, &object)? })
}

fn current(call: &Call, object: &Object) -> Result<Value> {
    let mut value = object.value();
    render::convert_value(&call.kind, &mut value, false).map_err(Status::internal)?;
    Ok(value)
}

fn read(call: &Call, object: &Object) -> Result<Value> {
    let value = current(call, object)?;
    match call.kind.custom.as_ref().and_then(|c| c.version()) {
        Some(version) => version.scale_get(&value).unwrap_or_else(|| Err(Status::no_such_path())),
        None => strategy::scale::get(&call.kind.resource, &value).ok_or_else(Status::no_such_path),
    }
}

fn validate_scale(scale: &Value) -> api::field::FieldErrors {
    let replicas = &scale["spec"]["replicas"];
    if replicas.as_i64().unwrap_or(0) >= 0 {
        return Vec::new();
    }
    vec![api::field::FieldError::invalid("spec.replicas", replicas, "must be greater than or equal to 0")]
}
