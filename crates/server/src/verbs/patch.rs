//! Patch an object: JSON patch, merge patch, strategic merge patch, server-side apply.

use std::sync::Arc;

use api::{
    decode,
    status::{Result, Status},
};
use serde_json::Value;

use super::{create, update, write};
use crate::{call::Call, clock, negotiate::media_type, object::Object, render, reply::Reply};

pub async fn patch(call: &Call) -> Result<Reply> {
    call.check_write_options("PatchOptions")?;
    let content_type = media_type(call.header("content-type"));
    let force = call.query.has("force").then(|| call.query.flag("force"));
    if force.is_some() && !content_type.starts_with("application/apply-patch") {
        return Err(invalid_option("force", "may not be specified for non-apply patch"));
    }
    match content_type.as_str() {
        "application/json-patch+json" => json_patch(call).await,
        "application/merge-patch+json" => merge_patch(call).await,
        "application/strategic-merge-patch+json" if call.kind.custom.is_none() => strategic_patch(call).await,
        "application/apply-patch+yaml" | "application/apply-patch" => apply(call, force.unwrap_or(false)).await,
        _ => Err(Status::unsupported_media_type(format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted(call)
        ))),
    }
}

fn accepted(call: &Call) -> &'static str {
    if call.kind.custom.is_some() {
        "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
    } else {
        "application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json, application/apply-patch+yaml"
    }
}

fn invalid_option(field: &str, why: &str) -> Status {
    let error = api::field::FieldError::forbidden(field, why);
    Status::invalid("meta.k8s.io", "PatchOptions", "", &vec![error])
}

async fn json_patch(call: &Call) -> Result<Reply> {
    let body = decode::parse(&call.body, decode::Format::Json)?;
    if !body.value.is_array() {
        // The library behind upstream words it like this.
        let what =
            format!("json: cannot unmarshal {} into Go value of type jsonpatch.Patch", write::go_kind(&body.value));
        return Err(Status::bad_request(what));
    }
    patched(call, &[], |value| api::patch::json(value, &call.body)).await
}

async fn merge_patch(call: &Call) -> Result<Reply> {
    let body = patch_object(call)?;
    patched(call, &body.duplicates, |value| {
        api::patch::merge(value, &body.value);
        Ok(())
    })
    .await
}

async fn strategic_patch(call: &Call) -> Result<Reply> {
    let body = patch_object(call)?;
    patched(call, &body.duplicates, |value| {
        let (schema, ty) = call.kind.schema().ok_or_else(Status::no_such_path)?;
        api::patch::strategic(schema, ty, value, &body.value)
    })
    .await
}

fn patch_object(call: &Call) -> Result<decode::Parsed> {
    let body = decode::parse(&call.body, decode::Format::Json)?;
    if !body.value.is_object() {
        let what = format!(
            "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            write::go_kind(&body.value)
        );
        return Err(Status::bad_request(what));
    }
    Ok(body)
}

/// Applies a patch to the current object, in the version of the request, until it sticks.
async fn patched(call: &Call, duplicates: &[String], patch: impl Fn(&mut Value) -> Result<()>) -> Result<Reply> {
    let object = update::change(call, |old| {
        let mut value = current(call, old)?;
        patch(&mut value)?;
        accept(call, value, duplicates, old)
    })
    .await?;
    Ok(Reply::ok(object))
}

/// The object as the client of this version sees it.
fn current(call: &Call, old: &Object) -> Result<Value> {
    let mut value = old.value();
    render::convert_value(&call.kind, &mut value, false).map_err(Status::internal)?;
    Ok(value)
}

/// A patched object goes through the same checks as one that was sent whole.
fn accept(call: &Call, mut value: Value, duplicates: &[String], old: &Object) -> Result<Value> {
    let asked = update::version_asked(&value)?;
    if asked.is_some_and(|asked| asked != old.revision) {
        return Err(Status::modified(call.kind.group(), call.kind.plural(), &call.target.name));
    }
    write::check_kind(&call.kind, &value)?;
    let strict =
        write::conform(&call.kind, &mut value, duplicates.to_vec()).map_err(|status| Status { code: 400, ..status })?;
    write::judge_strict(call, &call.kind, strict)?;
    let name = value["metadata"]["name"].as_str().unwrap_or_default();
    if name != call.target.name {
        let what = format!("the name of the object ({name}) does not match the name on the URL ({})", call.target.name);
        return Err(Status::bad_request(what));
    }
    create::place(call, &mut value)?;
    write::default(&call.kind, &mut value);
    Ok(value)
}

async fn apply(call: &Call, force: bool) -> Result<Reply> {
    if call.query.get("fieldManager").is_empty() {
        let error = api::field::FieldError::required("fieldManager", "is required for apply patch");
        return Err(Status::invalid("meta.k8s.io", "PatchOptions", "", &vec![error]));
    }
    let parsed = decode::parse(&call.body, decode::Format::Yaml)
        .map_err(|status| Status::bad_request(format!("error decoding YAML: {}", status.message)))?;
    let mut config = parsed.value;
    if !config.is_object() {
        return Err(Status::bad_request("error decoding YAML: the body is not an object"));
    }
    let strict = check_config(call, &mut config, parsed.duplicates)?;
    write::judge_strict(call, &call.kind, strict)?;
    let Some((schema, ty)) = call.kind.schema() else { return Err(Status::no_such_path()) };
    let manager = call.field_manager();
    for _ in 0..30 {
        let now = clock::now();
        let ctx = write::tracking(call, schema, ty, &manager, &now);
        match call.get() {
            None if !call.target.subresource.is_empty() => return Err(call.not_found()),
            None => {
                let mut value = api::apply::apply(&ctx, None, &config, force)?;
                write::default(&call.kind, &mut value);
                create::place(call, &mut value)?;
                match create::insert_tracked(call, value).await {
                    Err(status) if status.reason == "AlreadyExists" => {}
                    done => return done.map(Reply::created),
                }
            }
            Some(old) => {
                if let Some(object) = apply_once(call, &ctx, &old, &config, force).await? {
                    return Ok(Reply::ok(object));
                }
            }
        }
    }
    Err(Status::modified(call.kind.group(), call.kind.plural(), &call.target.name))
}

async fn apply_once(
    call: &Call,
    ctx: &api::apply::Context<'_>,
    old: &Arc<Object>,
    config: &Value,
    force: bool,
) -> Result<Option<Arc<Object>>> {
    if let Some(asked) = update::version_asked(config)?
        && asked != old.revision
    {
        return Err(Status::modified(call.kind.group(), call.kind.plural(), &call.target.name));
    }
    let live = current(call, old)?;
    let mut value = api::apply::apply(ctx, Some(&live), config, force)?;
    if let Some(custom) = call.kind.custom.as_ref().and_then(|c| c.version()) {
        drop(custom.decode(&mut value).map_err(Status::bad_request)?);
    }
    write::default(&call.kind, &mut value);
    update::replace(call, old, value, false).await
}

fn check_config(call: &Call, config: &mut Value, duplicates: Vec<String>) -> Result<Vec<String>> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (api_version, kind) = (text(&config["apiVersion"]), text(&config["kind"]));
    if kind.is_empty() {
        return Err(Status::bad_request("error unmarshaling patch: Object 'Kind' is missing in patch"));
    }
    if api_version.is_empty() {
        return Err(Status::bad_request("error unmarshaling patch: Object 'apiVersion' is missing in patch"));
    }
    write::check_kind(&call.kind, config)?;
    let name = text(&config["metadata"]["name"]);
    if name.is_empty() {
        create::metadata(config).insert("name".into(), call.target.name.clone().into());
    } else if name != call.target.name {
        let what =
            format!("metadata.name: Invalid value: \"{name}\": name must match the request URL ({})", call.target.name);
        return Err(Status::bad_request(what));
    }
    create::place(call, config)?;
    Ok(duplicates)
}
