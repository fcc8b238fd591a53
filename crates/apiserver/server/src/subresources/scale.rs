//! Scale: the replica count of a workload, in a shape that all workloads share.

use std::sync::Arc;

use ::patch::apply::Context;
use cache::object::Object;
use codec::decode;
use codec::table::{IncludeObject, human};
use request::Verb;
use rules::strategy;
use schema::status::{Result, Status};
use serde_json::{Value, json};

use crate::{
    admission,
    call::Call,
    kinds::Kind,
    negotiate::media_type,
    render,
    reply::Reply,
    types,
    verbs::{get, patch, update, write},
    webhooks::convert,
};

/// How often a change is tried on top of others' changes.
const TRIES: usize = 30;

pub async fn run(call: &Call, verb: Verb) -> Result<Reply> {
    match verb {
        Verb::Get => {
            get::reach(call, 0).await?;
            let object = call.get().ok_or_else(|| call.not_found())?;
            Ok(Reply::Value { code: 200, value: read(call, &object).await? })
        }
        Verb::Update => {
            call.check_write_options("UpdateOptions")?;
            let scale = write::receive_kind(call, "autoscaling/v1", "Scale")?;
            update::check_name(call, &scale)?;
            change(call, |_, _| Ok((scale.clone(), false)), Status::bad_request).await
        }
        Verb::Patch => {
            call.check_write_options("PatchOptions")?;
            change(call, |current, ctx| patched(call, current, ctx), |why| patch_refused("", &why)).await
        }
        _ => Err(Status::method_not_allowed()),
    }
}

/// The new Scale, and whether its managedFields are already right.
fn patched(call: &Call, current: &Value, ctx: &Context<'_>) -> Result<(Value, bool)> {
    let mut scale = current.clone();
    let body = || decode::parse(&call.body, decode::Format::Json).map(|parsed| parsed.value);
    match media_type(call.header("content-type")).as_str() {
        "application/json-patch+json" => ::patch::json(&mut scale, &call.body)?,
        "application/merge-patch+json" => ::patch::merge(&mut scale, &body()?),
        "application/strategic-merge-patch+json" if call.kind.custom.is_none() => {
            ::patch::strategic(ctx.schema, ctx.ty, &mut scale, &body()?)?;
        }
        "application/apply-patch+yaml" => {
            let config = decode::parse(&call.body, decode::Format::Yaml)?.value;
            return ::patch::apply::apply(ctx, Some(&scale), &config, call.query.flag("force"))
                .map(|scale| (scale, true));
        }
        _ => return Err(patch::unsupported(call)),
    }
    check_kind(&scale)?;
    Ok((scale, false))
}

/// A patch that leads to something that is no Scale.
fn patch_refused(patched: &str, why: &str) -> Status {
    let error = schema::field::FieldError::invalid("patch", &patched.into(), why);
    Status::invalid("", "", "", &vec![error])
}

/// A patch may not make something else of a Scale.
fn check_kind(scale: &Value) -> Result<()> {
    let text = |field: &str| scale[field].as_str().unwrap_or_default();
    let (kind, version) = (text("kind"), text("apiVersion"));
    if kind.is_empty() || (kind, version) == ("Scale", "autoscaling/v1") {
        return Ok(());
    }
    let (group, name) = schema::catalogue::split_api_version(version);
    let why = match types::find(group, name, kind) {
        Some(_) => format!("converting ({name}.{kind}) to (autoscaling.Scale): unknown conversion"),
        None => write::unregistered(kind, version),
    };
    Err(patch_refused(&scale.to_string(), &why))
}

async fn change(
    call: &Call,
    make: impl Fn(&Value, &Context<'_>) -> Result<(Value, bool)>,
    refuse: impl Fn(String) -> Status,
) -> Result<Reply> {
    let ty = types::find("autoscaling", "v1", "Scale").ok_or_else(Status::no_such_path)?;
    let (manager, now) = (call.field_manager(), clock::now());
    let ctx = Context {
        schema: schema::builtin(),
        ty,
        api_version: "autoscaling/v1",
        kind: "Scale",
        manager: &manager,
        subresource: "scale",
        now: &now,
        reset: ::patch::apply::reset_fields("autoscaling", "scales", "", false),
        versions: None,
    };
    let paths = replicas_paths(&call.kind);
    let paths: Vec<(&str, Option<&[&str]>)> =
        paths.iter().map(|(version, path)| (version.as_str(), path.as_ref().map(Vec::as_slice))).collect();
    for _ in 0..TRIES {
        let old = call.get().ok_or_else(|| call.not_found())?;
        let mut value = current(call, &old).await?;
        let owners = value["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        let mut before = read_for_write(call, &value)?;
        before["metadata"]["managedFields"] = ::patch::apply::scale_entries(&owners, &paths).into();
        let (mut scale, tracked) = make(&before, &ctx)?;
        decode::conform(ctx.schema, ty, &mut scale).map_err(&refuse)?;
        update::check_uid(call, scale["metadata"]["uid"].as_str().unwrap_or_default(), &old)?;
        if update::version_asked(&scale)?.is_some_and(|asked| asked != old.revision) {
            return Err(Status::modified(call.kind.group(), call.kind.plural(), &call.target.name));
        }
        // The replicas of a custom object are checked where they are kept.
        let errors = if call.kind.custom.is_some() { Vec::new() } else { rules::validate::scale(&scale) };
        if !errors.is_empty() {
            return Err(Status::invalid("autoscaling", "Scale", &call.target.name, &errors));
        }
        if !tracked {
            ::patch::apply::track_update(&ctx, Some(&before), &mut scale);
        }
        admission::review(call, admission::Operation::Update, &mut scale, Some(&before)).await?;
        match call.kind.custom.as_ref().and_then(|c| c.version()) {
            Some(version) => version.scale_set(&mut value, &scale)?,
            None => strategy::scale::set(&call.kind.resource, &mut value, &scale),
        }
        let scale_owners = scale["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        if let Some(owners) = ::patch::apply::parent_entries(&owners, &scale_owners, &call.kind.api_version, &paths) {
            value["metadata"]["managedFields"] = owners.into();
        }
        if let Some(object) = update::replace(call, &old, value, false).await? {
            return Ok(Reply::Value { code: 200, value: read(call, &object).await? });
        }
    }
    Err(Status::modified(call.kind.group(), call.kind.plural(), &call.target.name))
}

/// Where each version of the kind keeps its replicas.
fn replicas_paths(kind: &Kind) -> Vec<(String, Option<Vec<&str>>)> {
    match &kind.custom {
        None => vec![(kind.api_version.clone(), Some(vec!["spec", "replicas"]))],
        Some(custom) => custom
            .definition
            .versions
            .iter()
            .map(|version| {
                let path = version.subresources.scale.as_ref();
                let path = path.map(|s| s.spec_path.trim_start_matches('.').split('.').collect());
                (format!("{}/{}", kind.group(), version.name), path)
            })
            .collect(),
    }
}

async fn current(call: &Call, object: &Arc<Object>) -> Result<Value> {
    let mut value = convert::object(&call.server, &call.kind, object).await?.value();
    render::convert_value(&call.kind, &mut value, false).map_err(Status::internal)?;
    Ok(value)
}

async fn read(call: &Call, object: &Arc<Object>) -> Result<Value> {
    let value = current(call, object).await?;
    match call.kind.custom.as_ref().and_then(|c| c.version()) {
        Some(version) => version.scale_get(&value).unwrap_or_else(|| Err(Status::no_such_path())),
        None => strategy::scale::get(&call.kind.resource, &value).ok_or_else(Status::no_such_path),
    }
}

/// For a write, an object that has no replicas yet is one with none.
fn read_for_write(call: &Call, value: &Value) -> Result<Value> {
    match call.kind.custom.as_ref().and_then(|c| c.version()) {
        Some(version) => version.scale_of(value).unwrap_or_else(|| Err(Status::no_such_path())).map(|(scale, _)| scale),
        None => strategy::scale::get(&call.kind.resource, value).ok_or_else(Status::no_such_path),
    }
}

/// A Scale as kubectl shows it: what is wanted, and what there is.
pub fn table(scale: &Value, include: IncludeObject, now: i64) -> Value {
    let column =
        |name: &str, kind: &str| json!({"name": name, "type": kind, "format": "", "description": "", "priority": 0});
    let count = |part: &str| scale[part]["replicas"].as_i64().unwrap_or(0);
    let metadata = &scale["metadata"];
    let born = metadata["creationTimestamp"].as_str().and_then(|time| time.parse::<jiff::Timestamp>().ok());
    let age = born.map_or("<unknown>".to_owned(), |born| human(now - born.as_second()));
    let object = match include {
        IncludeObject::None => Value::Null,
        IncludeObject::Object => scale.clone(),
        IncludeObject::Metadata => {
            json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
        }
    };
    json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": metadata["resourceVersion"]},
        "columnDefinitions": [column("Name", "string"), column("Desired", "integer"), column("Available", "integer"),
            column("Age", "string")],
        "rows": [{"cells": [metadata["name"], count("spec"), count("status"), age], "object": object}]})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_has_a_table_of_its_own() {
        let scale = json!({"kind": "Scale", "metadata": {"name": "d", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"replicas": 3}, "status": {}});
        let born = "2026-01-01T00:01:00Z".parse::<jiff::Timestamp>().unwrap().as_second();
        let table = table(&scale, IncludeObject::None, born);
        assert_eq!(table["rows"], json!([{"cells": ["d", 3, 0, "60s"], "object": null}]));
    }
}
