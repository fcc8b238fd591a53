//! Patch an object: JSON patch, merge patch, strategic merge patch, server-side apply.

use std::sync::Arc;

use cache::object::Object;
use codec::decode;
use schema::go::json_name;
use schema::status::{Result, Status};
use serde_json::{Value, json};

use super::{create, update, write};
use crate::{call::Call, kinds::Kind, negotiate::media_type, render, reply::Reply, types, webhooks::convert};

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
        _ => Err(unsupported(call)),
    }
}

pub fn unsupported(call: &Call) -> Status {
    if call.kind.custom.is_none() {
        // Upstream's router refuses it before any handler sees it.
        return Status::unsupported_media_type("415: Unsupported Media Type").with_causes(Vec::new());
    }
    Status::unsupported_media_type(
        "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, \
         application/merge-patch+json, application/apply-patch+yaml",
    )
}

fn invalid_option(field: &str, why: &str) -> Status {
    let error = schema::field::FieldError::forbidden(field, why);
    Status::invalid("meta.k8s.io", "PatchOptions", "", &vec![error])
}

async fn json_patch(call: &Call) -> Result<Reply> {
    let body = parse(call)?;
    if !body.value.is_array() {
        return Err(undecodable(&body.value, "[]handlers.jsonPatchOp"));
    }
    patched(call, &Patch { shown: String::new(), duplicates: Vec::new(), strategic: false }, |value| {
        patch::json_to_any(value, &call.body)
    })
    .await
}

async fn merge_patch(call: &Call) -> Result<Reply> {
    let body = patch_object(call)?;
    let patch = Patch { shown: String::new(), duplicates: body.duplicates, strategic: false };
    patched(call, &patch, |value| {
        patch::merge(value, &body.value);
        Ok(())
    })
    .await
}

async fn strategic_patch(call: &Call) -> Result<Reply> {
    // A strategic patch is decoded where it is applied, and its faults come bare.
    let mut body = decode::parse(&call.body, decode::Format::Json)?;
    if body.value.is_null() {
        body.value = serde_json::json!({});
    }
    if !body.value.is_object() {
        let what = json_name(&body.value);
        let why = format!("json: cannot unmarshal {what} into Go value of type map[string]interface {{}}");
        return Err(Status::bad_request(why));
    }
    let patch = Patch { shown: schema::go::plain(&body.value), duplicates: body.duplicates, strategic: true };
    patched(call, &patch, |value| {
        let (schema, ty) = call.kind.schema().ok_or_else(Status::no_such_path)?;
        patch::strategic(&schema, ty, value, &body.value)
    })
    .await
}

/// What a patch that leads to something undecodable is told with.
struct Patch {
    shown: String,
    duplicates: Vec<String>,
    strategic: bool,
}

impl Patch {
    fn refuse(&self, patched: &str, why: &str) -> Status {
        // Upstream decodes the result of a strategic patch by other means, which have other words for a wrong type.
        let why = if self.strategic { unrestorable(why) } else { why.to_owned() };
        let shown = if self.strategic { &self.shown } else { patched };
        let error = schema::field::FieldError::invalid("patch", &shown.into(), &why);
        Status::invalid("", "", "", &vec![error])
    }
}

/// Upstream makes an object of a strategic patch's result value by value, and not from text.
fn unrestorable(why: &str) -> String {
    let Some((what, ty)) =
        why.strip_prefix("json: cannot unmarshal ").and_then(|mismatch| mismatch.rsplit_once(" of type "))
    else {
        let is_text = why.starts_with("illegal base64");
        return if is_text { format!("error decoding from json: {why}") } else { why.to_owned() };
    };
    let what = what.split(" into ").next().unwrap_or(what);
    let found = match what {
        "array" => "slice",
        "object" => "map",
        "number" => "int64",
        number if number.starts_with("number") => "float64",
        other => other,
    };
    let is_number = |ty: &str| ty.starts_with("int") || ty.starts_with("uint") || ty.starts_with("float");
    match ty {
        list if list.starts_with("[]") => format!("cannot restore slice from {found}"),
        map if map.starts_with("map[") => format!("cannot restore map from {found}"),
        "string" if found == "int64" => format!("cannot convert {found} to {ty}"),
        number if is_number(number) && matches!(found, "int64" | "float64") => {
            format!("cannot convert {found} to {ty}")
        }
        scalar if is_number(scalar) || matches!(scalar, "string" | "bool") => format!("unrecognized type: {scalar}"),
        _ => format!("cannot restore struct from: {found}"),
    }
}

fn parse(call: &Call) -> Result<decode::Parsed> {
    decode::parse(&call.body, decode::Format::Json)
        .map_err(|status| Status::bad_request(format!("error decoding patch: {}", status.message)))
}

fn undecodable(value: &Value, wanted: &str) -> Status {
    let what =
        format!("error decoding patch: json: cannot unmarshal {} into Go value of type {wanted}", json_name(value));
    Status::bad_request(what)
}

fn patch_object(call: &Call) -> Result<decode::Parsed> {
    let body = parse(call)?;
    if !body.value.is_object() {
        return Err(undecodable(&body.value, "map[string]interface {}"));
    }
    Ok(body)
}

/// Applies a patch to the current object, in the version of the request, until it sticks.
async fn patched(call: &Call, patch: &Patch, edit: impl Fn(&mut Value) -> Result<()>) -> Result<Reply> {
    let object = update::change(call, |old| {
        let mut value = current(call, old)?;
        edit(&mut value)?;
        accept(call, value, patch, old)
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
fn accept(call: &Call, mut value: Value, patch: &Patch, old: &Object) -> Result<Value> {
    let kind = &*call.kind;
    if !value.is_object() {
        let why = no_kind(&format!(
            "{} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \
             \"json:\\\"kind,omitempty\\\"\" }}",
            json_name(&value)
        ));
        return Err(patch.refuse(&value.to_string(), &why));
    }
    write::keep_reset(&mut value);
    // Upstream shows the whole patched object, but the patch itself if it was a strategic one.
    let patched = if patch.strategic { String::new() } else { value.to_string() };
    let unknown = match (&kind.custom, patch.strategic) {
        (None, true) => conform_strategic(kind, &mut value).map_err(|why| patch.refuse(&patched, &why))?,
        (None, false) => conform(call, &mut value, patch, &patched)?,
        (Some(_), _) => conform_custom(kind, &mut value, patch, &patched)?,
    };
    judge_strict(call, patch, &patched, unknown)?;
    let asked = update::version_asked(&value)?;
    if asked.is_some_and(|asked| asked != old.revision) {
        return Err(Status::modified(kind.group(), kind.plural(), &call.target.name));
    }
    update::check_name(call, &value)?;
    if kind.custom.is_some() && value["apiVersion"].as_str().is_none_or(str::is_empty) {
        return Err(Status::internal("Object 'apiVersion' is missing in 'object has no apiVersion field'"));
    }
    if asked.is_none() && !rules::strategy::allow_unconditional_update(kind.group(), kind.plural()) {
        return Err(update::unversioned(call));
    }
    create::place(call, &mut value)?;
    write::default(kind, &mut value);
    write::dedup_owners(call, &mut value, " after mutating admission happens");
    Ok(value)
}

fn no_kind(what: &str) -> String {
    format!("couldn't get version/kind; json parse error: json: cannot unmarshal {what}")
}

/// Types right and unknown fields dropped. What a strategic patch says of kind and version is passed over.
fn conform_strategic(kind: &Kind, value: &mut Value) -> Result<Vec<String>, String> {
    for (field, own) in [("kind", kind.name()), ("apiVersion", kind.api_version.as_str())] {
        if !matches!(value[field], Value::Null | Value::String(_)) {
            return Err(format!("json: cannot unmarshal {} into Go value of type string", json_name(&value[field])));
        }
        value[field] = own.into();
    }
    match kind.schema() {
        Some((schema, ty)) => decode::conform(&schema, ty, value),
        None => Ok(Vec::new()),
    }
}

/// Kind and version have to be texts.
fn check_texts(value: &Value) -> Result<(), String> {
    let odd = ["apiVersion", "kind"].into_iter().find(|field| !matches!(value[*field], Value::Null | Value::String(_)));
    odd.map_or(Ok(()), |field| {
        Err(no_kind(&format!("{} into Go struct field .{field} of type string", json_name(&value[field]))))
    })
}

/// The same for custom resources. A wrong kind or version is told by their validation, a missing one here.
fn conform_custom(kind: &Kind, value: &mut Value, patch: &Patch, patched: &str) -> Result<Vec<String>> {
    check_texts(value).map_err(|why| patch.refuse(patched, &why))?;
    if value["kind"].as_str().is_none_or(str::is_empty) {
        return Err(patch.refuse(patched, &format!("Object 'Kind' is missing in '{patched}'")));
    }
    write::conform(kind, value)
}

/// The same for another patch. A kind that it takes away is put back. It may make an object of another version of its
/// kind, which is brought back to the one of the request; one of another kind is refused.
fn conform(call: &Call, value: &mut Value, patch: &Patch, patched: &str) -> Result<Vec<String>> {
    let kind = &*call.kind;
    check_texts(value).map_err(|why| patch.refuse(patched, &why))?;
    let text = |field: &str| value[field].as_str().unwrap_or_default().to_owned();
    let (mut got_kind, got_version) = (text("kind"), text("apiVersion"));
    if got_kind.is_empty() {
        got_kind = kind.name().to_owned();
        value["kind"] = kind.name().into();
    }
    if got_version.is_empty() {
        return Err(nameless(call, value, patch, patched));
    }
    let from = schema::catalogue::split_api_version(&got_version);
    let refuse = |why: &str| patch.refuse(patched, why);
    let mut unknown = Vec::new();
    if let Some(ty) = types::find(from.0, from.1, &got_kind) {
        unknown = decode::conform(schema::builtin(), ty, value).map_err(|why| refuse(&why))?;
    }
    if let Some(why) = write::is_of_other_kind(kind, &got_kind, &got_version) {
        return Err(refuse(&why));
    }
    rules::convert::convert(kind.name(), from, (kind.group(), &kind.resource.version), value)
        .map_err(|why| refuse(&why))?;
    Ok(unknown)
}

/// Upstream reads an object of no version as one of its own memory, where no field has the name that clients know.
fn nameless(call: &Call, value: &Value, patch: &Patch, patched: &str) -> Status {
    let fields = value.as_object().into_iter().flat_map(|map| map.keys());
    let fields = fields.filter(|field| !matches!(field.as_str(), "apiVersion" | "kind"));
    let mut unknown: Vec<String> = fields.map(|field| format!("unknown field \"{field}\"")).collect();
    unknown.sort();
    if let Err(status) = judge_strict(call, patch, patched, unknown) {
        return status;
    }
    let name = &call.target.name;
    Status::bad_request(format!(
        "the name of the object ({name} based on URL) was undeterminable: name must be provided"
    ))
}

fn judge_strict(call: &Call, patch: &Patch, patched: &str, unknown: Vec<String>) -> Result<()> {
    let mut strict = patch.duplicates.clone();
    strict.extend(unknown);
    if !strict.is_empty() && call.query.get("fieldValidation") == "Strict" {
        return Err(patch.refuse(patched, &format!("strict decoding error: {}", strict.join(", "))));
    }
    write::judge_strict(call, &call.kind, strict)
}

async fn apply(call: &Call, force: bool) -> Result<Reply> {
    if call.query.get("fieldManager").is_empty() {
        let error = schema::field::FieldError::required("fieldManager", "is required for apply patch");
        return Err(Status::invalid("meta.k8s.io", "PatchOptions", "", &vec![error]));
    }
    let config = read_config(call)?;
    let Some((schema, ty)) = call.kind.schema() else { return Err(Status::no_such_path()) };
    let manager = call.field_manager();
    let versions = write::built_in_versions(&call.kind);
    for _ in 0..30 {
        let now = clock::now();
        let ctx = write::tracking(call, &schema, ty, &manager, &now, versions.as_ref());
        match call.get() {
            None if !call.target.subresource.is_empty() => return Err(call.not_found()),
            None => {
                if let Some(uid) = config["metadata"]["uid"].as_str().filter(|uid| !uid.is_empty()) {
                    let why = format!(
                        "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
                    );
                    return Err(Status::conflict(call.kind.group(), call.kind.plural(), &call.target.name, &why));
                }
                update::check_name(call, &config)?;
                let mut value = patch::apply::apply(&ctx, None, &config, force)?;
                settle(call, &mut value)?;
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

/// What apply made is typed and defaulted like anything else; nulls of the configuration go.
fn settle(call: &Call, value: &mut Value) -> Result<()> {
    write::conform(&call.kind, value)?;
    create::place(call, value)?;
    write::default(&call.kind, value);
    Ok(())
}

async fn apply_once(
    call: &Call,
    ctx: &patch::apply::Context<'_>,
    old: &Arc<Object>,
    config: &Value,
    force: bool,
) -> Result<Option<Arc<Object>>> {
    if let Some(asked) = update::version_asked(config)?
        && asked != old.revision
    {
        return Err(Status::modified(call.kind.group(), call.kind.plural(), &call.target.name));
    }
    let live = current(call, &*convert::object(&call.server, &call.kind, old).await?)?;
    let mut value = patch::apply::apply(ctx, Some(&live), config, force)?;
    settle(call, &mut value)?;
    update::replace(call, old, value, false).await
}

/// The body of an apply: YAML (or JSON) of the right kind and name.
pub fn read_config(call: &Call) -> Result<Value> {
    let parsed = decode::parse(&call.body, decode::Format::Yaml)
        .map_err(|status| Status::bad_request(format!("error decoding YAML: {}", status.message)))?;
    // An empty document is a configuration of nothing, which is then told to be of no kind.
    let config = if parsed.value.is_null() { json!({}) } else { parsed.value };
    if !config.is_object() {
        let kind = json_name(&config);
        let what = format!(
            "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {kind} into Go value of \
             type map[string]interface {{}}"
        );
        return Err(Status::bad_request(what));
    }
    match (call.query.get("fieldValidation"), parsed.duplicates.first()) {
        ("Strict", Some(why)) => {
            return Err(Status::bad_request(format!(
                "error strict decoding YAML: error converting YAML to JSON: {why}"
            )));
        }
        ("Ignore", _) | (_, None) => {}
        // Of the parser's list of errors each one is a warning.
        (_, Some(_)) => {
            let lines = parsed.duplicates.iter().flat_map(|why| why.lines());
            lines.filter(|line| line.starts_with("  ")).for_each(|line| call.warn(line.trim().to_owned()));
        }
    }
    check_config(call, &config)?;
    Ok(config)
}

fn check_config(call: &Call, config: &Value) -> Result<()> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (api_version, kind) = (text(&config["apiVersion"]), text(&config["kind"]));
    if kind != call.kind.name() || api_version != call.kind.api_version {
        let (group, version) = schema::catalogue::split_api_version(&api_version);
        return Err(Status::bad_request(format!("invalid object type: {group}/{version}, Kind={kind}")));
    }
    let name = text(&config["metadata"]["name"]);
    if !name.is_empty() && name != call.target.name {
        let what = format!("the name of the object ({name}) does not match the name on the URL ({})", call.target.name);
        return Err(Status::bad_request(what));
    }
    let namespace = text(&config["metadata"]["namespace"]);
    if !namespace.is_empty() && namespace != call.target.namespace {
        return Err(Status::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_restored() {
        let of =
            |what: &str, ty: &str| unrestorable(&format!("json: cannot unmarshal {what} into Go value of type {ty}"));
        for (what, ty, want) in [
            ("string", "v1.Container", "cannot restore struct from: string"),
            ("array", "v1.ObjectMeta", "cannot restore struct from: slice"),
            ("string", "[]v1.Container", "cannot restore slice from string"),
            ("object", "[]v1.Container", "cannot restore slice from map"),
            ("number", "string", "cannot convert int64 to string"),
            ("number 1.5", "int32", "cannot convert float64 to int32"),
            ("string", "int32", "unrecognized type: int32"),
            ("bool", "string", "unrecognized type: string"),
        ] {
            assert_eq!(of(what, ty), want);
        }
        let base64 = "illegal base64 data at input byte 0";
        assert_eq!(unrestorable(base64), format!("error decoding from json: {base64}"));
    }
}
