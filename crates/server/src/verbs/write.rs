//! What all writes share: reading the body, checking it, committing it, and showing the result.

use std::sync::Arc;

use api::{
    decode,
    field::FieldErrors,
    schema::{Schema, TypeId},
    status::{Result, Status},
    strategy, validate,
};
use bytes::Bytes;
use serde_json::Value;
use store::{Commit, Compare, Op, Outcome, Revision};

use crate::{
    call::Call,
    clock, codec as proto,
    kinds::Kind,
    negotiate::Format,
    object::{self, Object},
};

/// A request body as an object, not yet checked against its kind.
pub struct Received {
    pub value: Value,
    /// Unknown and repeated fields, for fieldValidation.
    pub strict: Vec<String>,
}

/// Reads a body in whichever format it comes.
pub fn receive(call: &Call) -> Result<Received> {
    receive_as(call, &call.kind.api_version, call.kind.name())
}

/// `api_version` and `kind` are what is expected; a body may leave them out.
pub fn receive_as(call: &Call, api_version: &str, kind: &str) -> Result<Received> {
    let format = Format::of_body(call.header("content-type"))?;
    match format {
        Format::Protobuf => {
            let unknown = proto::unwrap(&call.body)?;
            let (group, version) = api::catalogue::split_api_version(&unknown.api_version);
            let ty = crate::types::find(group, version, &unknown.kind)
                .ok_or_else(|| no_match(&unknown.kind, &unknown.api_version))?;
            let mut value = proto::decode(api::schema::builtin(), ty, &unknown.raw)
                .map_err(|why| Status::bad_request(format!("unable to decode protobuf: {why}")))?;
            value["kind"] = unknown.kind.into();
            value["apiVersion"] = unknown.api_version.into();
            Ok(Received { value, strict: Vec::new() })
        }
        Format::Json | Format::Yaml => {
            let as_yaml = format == Format::Yaml;
            let parsed = decode::parse(&call.body, if as_yaml { decode::Format::Yaml } else { decode::Format::Json })?;
            let mut value = parsed.value;
            if !value.is_object() {
                let what = format!(
                    "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}",
                    go_kind(&value)
                );
                return Err(Status::bad_request(what));
            }
            for (field, wanted) in [("kind", kind), ("apiVersion", api_version)] {
                if value[field].is_null() || value[field] == "" {
                    value[field] = wanted.into();
                }
            }
            Ok(Received { value, strict: parsed.duplicates })
        }
    }
}

pub fn go_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn no_match(kind: &str, api_version: &str) -> Status {
    Status::bad_request(format!("no kind \"{kind}\" is registered for version \"{api_version}\""))
}

/// Makes an object of a kind out of what was received: right kind, right types, nothing unknown, defaults filled in.
pub fn admit_as(call: &Call, received: Received) -> Result<Value> {
    let Received { mut value, strict } = received;
    let kind = &*call.kind;
    check_kind(kind, &value)?;
    let strict = conform(kind, &mut value, strict)?;
    judge_strict(call, kind, strict)?;
    default(kind, &mut value);
    Ok(value)
}

pub fn check_kind(kind: &Kind, value: &Value) -> Result<()> {
    let text = |field: &str| value[field].as_str().unwrap_or_default().to_owned();
    let (got_kind, got_version) = (text("kind"), text("apiVersion"));
    if got_kind == kind.name() && got_version == kind.api_version {
        return Ok(());
    }
    let (group, version) = api::catalogue::split_api_version(&got_version);
    if kind.custom.is_none() && got_kind != kind.name() && crate::types::find(group, version, &got_kind).is_none() {
        let what = format!(
            "no kind \"{got_kind}\" is registered for version \"{got_version}\" in scheme \"pkg/api/legacyscheme/scheme.go:30\""
        );
        return Err(Status::bad_request(what));
    }
    if kind.custom.is_some() {
        let what = format!(
            "the API version in the data ({got_version}) does not match the expected API version ({})",
            kind.api_version
        );
        if got_version != kind.api_version {
            return Err(Status::bad_request(what));
        }
    }
    let what = format!(
        "{} in version \"{}\" cannot be handled as a {}: {}",
        got_kind,
        if version.is_empty() { &got_version } else { version },
        kind.name(),
        if got_kind == kind.name() {
            format!("no kind \"{got_kind}\" is registered for version \"{got_version}\"")
        } else {
            format!("converting ({got_kind}) to ({}): unknown conversion", kind.name())
        }
    );
    Err(Status::bad_request(what))
}

/// Types right, unknown fields dropped and named.
pub fn conform(kind: &Kind, value: &mut Value, mut strict: Vec<String>) -> Result<Vec<String>> {
    if let Some(custom) = &kind.custom {
        if let Some(version) = custom.version() {
            // Unknown fields come first, in upstream's order; the metadata of custom objects is typed all the same.
            strict.extend(version.decode(value).map_err(Status::bad_request)?);
        }
        return Ok(strict);
    }
    let Some((schema, ty)) = kind.schema() else { return Ok(strict) };
    let unknown = decode::conform(schema, ty, value).map_err(|why| {
        let what = format!(
            "{} in version \"{}\" cannot be handled as a {}: {why}",
            kind.name(),
            kind.resource.version,
            kind.name()
        );
        Status::bad_request(what)
    })?;
    strict.extend(unknown);
    Ok(strict)
}

/// fieldValidation: what a client wants to hear of fields that nobody knows.
pub fn judge_strict(call: &Call, kind: &Kind, strict: Vec<String>) -> Result<()> {
    if strict.is_empty() {
        return Ok(());
    }
    match call.query.get("fieldValidation") {
        "Strict" => {
            let problems = strict.join(", ");
            let what = if kind.custom.is_some() {
                format!("strict decoding error: {problems}")
            } else {
                format!(
                    "{} in version \"{}\" cannot be handled as a {}: strict decoding error: {problems}",
                    kind.name(),
                    kind.resource.version,
                    kind.name()
                )
            };
            Err(Status::bad_request(what))
        }
        "Ignore" => Ok(()),
        _ => {
            for problem in strict {
                call.warn(problem);
            }
            Ok(())
        }
    }
}

pub fn default(kind: &Kind, value: &mut Value) {
    match &kind.custom {
        Some(custom) => {
            if let Some(version) = custom.version() {
                version.default(value);
            }
        }
        None => api::defaults::apply(kind.group(), &kind.resource.version, kind.name(), value),
    }
}

/// From the version of the request to the one in the store.
pub fn to_stored(kind: &Kind, value: &mut Value) -> Result<()> {
    if !kind.is_converted() {
        return Ok(());
    }
    crate::render::convert_value(kind, value, true).map_err(|why| Status::internal(why))
}

pub fn validate_create(kind: &Kind, value: &Value) -> Result<()> {
    let mut errors = validate::metadata_create(&kind.resource, value);
    match kind.custom.as_ref().and_then(|c| c.version()) {
        Some(version) => errors = version.validate_after(errors, value, None),
        None if kind.is_definition() => errors.extend(api::crd::validate_definition(value, None)),
        None => errors.extend(validate::create(&kind.resource, value)),
    }
    judge(kind, value, errors)
}

pub fn validate_update(kind: &Kind, subresource: &str, new: &Value, old: &Value) -> Result<()> {
    let mut errors = validate::metadata_update(new, old);
    match kind.custom.as_ref().and_then(|c| c.version()) {
        Some(version) if subresource == "status" => errors = version.validate_status_after(errors, new, old),
        Some(version) => errors = version.validate_after(errors, new, Some(old)),
        None if kind.is_definition() && subresource == "status" => {}
        None if kind.is_definition() => errors.extend(api::crd::validate_definition(new, Some(old))),
        None => errors.extend(validate::update(&kind.resource, subresource, new, old)),
    }
    judge(kind, new, errors)
}

pub fn judge(kind: &Kind, value: &Value, errors: FieldErrors) -> Result<()> {
    if errors.is_empty() {
        return Ok(());
    }
    let name = value["metadata"]["name"].as_str().unwrap_or_default();
    Err(Status::invalid(kind.group(), kind.name(), name, &errors))
}

/// What a commit changes besides the object itself (addresses, counters), all or nothing.
#[derive(Default)]
pub struct Beside {
    pub compares: Vec<Compare>,
    pub ops: Vec<Op>,
}

pub enum Written {
    Done(Arc<Object>),
    /// Somebody else was faster. The cache has caught up with them when this is told.
    Conflict,
}

/// Writes an object if it is still at `expected` (0: not there). Answers when every reader can see it.
pub async fn put(
    call: &Call,
    key: &str,
    value: &Value,
    expected: Revision,
    created: Revision,
    beside: Beside,
) -> Result<Written> {
    let stored = object::encode(value);
    let store_key = call.kind.store_key(key);
    let mut commit = Commit {
        compares: vec![Compare { key: store_key.clone(), modified: expected }],
        ops: vec![Op::Put { key: store_key, value: stored.clone() }],
    };
    commit.compares.extend(beside.compares);
    commit.ops.extend(beside.ops);
    Ok(match commit_and_see(call, commit).await? {
        Some(revision) => {
            let created = if created == 0 { revision } else { created };
            Written::Done(Arc::new(shown(key, &stored, created, revision)))
        }
        None => Written::Conflict,
    })
}

/// Removes an object if it is still at `expected`.
pub async fn remove(call: &Call, key: &str, expected: Revision, beside: Beside) -> Result<Option<Revision>> {
    let store_key = call.kind.store_key(key);
    let mut commit = Commit {
        compares: vec![Compare { key: store_key.clone(), modified: expected }],
        ops: vec![Op::Delete { key: store_key }],
    };
    commit.compares.extend(beside.compares);
    commit.ops.extend(beside.ops);
    commit_and_see(call, commit).await
}

async fn commit_and_see(call: &Call, commit: Commit) -> Result<Option<Revision>> {
    let cache = &call.server.cache;
    match cache.store().commit(commit).await.map_err(|error| crate::unavailable(&error))? {
        Outcome::Committed(revision) => {
            cache.wait_for(revision).await;
            Ok(Some(revision))
        }
        Outcome::Conflict { found, .. } => {
            cache.wait_for(found).await;
            Ok(None)
        }
    }
}

/// An object as it would be read back, without reading it back. Revision 0 is none (dry run).
pub fn shown(key: &str, stored: &Bytes, created: Revision, revision: Revision) -> Object {
    let json = if revision == 0 { without_revision(stored) } else { object::with_revision(stored, revision) };
    Object { key: key.into(), json, created, revision }
}

fn without_revision(stored: &Bytes) -> Bytes {
    let mut value: Value = serde_json::from_slice(stored).unwrap_or_default();
    if let Some(metadata) = value["metadata"].as_object_mut() {
        metadata.remove("resourceVersion");
    }
    serde_json::to_vec(&value).unwrap_or_default().into()
}

/// Warnings that upstream gives about an object that is fine but for them.
pub fn warn_about(call: &Call, new: &Value, old: Option<&Value>) {
    if call.kind.custom.is_none() {
        for warning in strategy::warnings(&call.kind.resource, new, old) {
            call.warn(warning);
        }
    }
}

/// Notes in managedFields who wrote what.
pub fn track(call: &Call, live: Option<&Value>, new: &mut Value) {
    let Some((schema, ty)) = call.kind.schema() else { return };
    let (manager, now) = (call.field_manager(), clock::now());
    api::apply::track_update(&tracking(call, schema, ty, &manager, &now), live, new);
}

/// What managedFields need to know of a write.
pub fn tracking<'a>(
    call: &'a Call,
    schema: &'a Schema,
    ty: TypeId,
    manager: &'a str,
    now: &'a str,
) -> api::apply::Context<'a> {
    let kind = &call.kind;
    let has_status = kind.resource.subresource("status").is_some();
    api::apply::Context {
        schema,
        ty,
        api_version: &kind.api_version,
        kind: kind.name(),
        manager,
        subresource: &call.target.subresource,
        now,
        reset: api::apply::reset_fields(kind.group(), kind.plural(), &call.target.subresource, has_status),
        versions: None,
    }
}
