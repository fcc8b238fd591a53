//! What all writes share: reading the body, checking it, committing it, and showing the result.

use std::{collections::HashSet, sync::Arc};

use bytes::Bytes;
use cache::object;
use cache::object::Object;
use codec::{decode, proto};
use rules::convert::BuiltInVersions;
use rules::{strategy, validate};
use schema::field::FieldErrors;
use schema::go::json_name;
use schema::status::{Result, Status};
use schema::{Schema, TypeId};
use serde_json::Value;
use store::{Commit, Compare, Op, Outcome, Revision};

use crate::{Server, apart, call::Call, kinds::Kind, negotiate::Format, types, workspaces::wildcard};

/// A request body as an object, not yet checked against its kind.
pub struct Received {
    pub value: Value,
    /// Repeated fields, for fieldValidation.
    pub duplicates: Vec<String>,
    format: decode::Format,
}

/// Reads a body in whichever format it comes.
pub fn receive(call: &Call) -> Result<Received> {
    receive_as(call, &call.kind.api_version, call.kind.name())
}

/// `api_version` and `kind` are what is expected; a body for a built-in kind may leave them out.
pub fn receive_as(call: &Call, api_version: &str, kind: &str) -> Result<Received> {
    match Format::of_body(call.header("content-type"))? {
        Format::Protobuf => receive_protobuf(call, kind),
        Format::Json => receive_text(call, api_version, kind, decode::Format::Json),
        Format::Yaml => receive_text(call, api_version, kind, decode::Format::Yaml),
    }
}

fn receive_protobuf(call: &Call, expected: &str) -> Result<Received> {
    let unknown = proto::unwrap(&call.body)
        .map_err(|status| Status::bad_request(unrecognized(call, expected, &status.message)))?;
    let (group, version) = schema::catalogue::split_api_version(&unknown.api_version);
    let ty = types::find(group, version, &unknown.kind).ok_or_else(|| {
        cannot_handle(&unknown.kind, version, expected, &unregistered(&unknown.kind, &unknown.api_version))
    })?;
    let mut value = proto::decode(schema::builtin(), ty, unknown.raw)
        .map_err(|why| cannot_handle(&unknown.kind, version, expected, &why))?;
    value["kind"] = unknown.kind.into();
    value["apiVersion"] = unknown.api_version.into();
    Ok(Received { value, duplicates: Vec::new(), format: decode::Format::Json })
}

fn receive_text(call: &Call, api_version: &str, kind: &str, format: decode::Format) -> Result<Received> {
    let refuse = |why: &str| Status::bad_request(unrecognized(call, kind, why));
    let mut received = parse_typed(&call.body, format).map_err(|why| refuse(&why))?;
    let value = &mut received.value;
    for (field, wanted) in [("kind", kind), ("apiVersion", api_version)] {
        if value[field].is_null() || value[field] == "" {
            if call.kind.custom.is_some() && wanted == call.kind.name() {
                let text = String::from_utf8_lossy(&call.body);
                return Err(refuse(&format!("Object 'Kind' is missing in '{text}'")));
            }
            value[field] = wanted.into();
        }
    }
    Ok(received)
}

fn unrecognized(call: &Call, kind: &str, why: &str) -> String {
    format!("the object provided is unrecognized (must be of type {kind}): {why} ({})", summary(&call.body))
}

/// An object of which kind and version can be told, if it says them. What is not there at all is an empty one.
fn parse_typed(body: &[u8], format: decode::Format) -> std::result::Result<Received, String> {
    let no_type = |why: &str| format!("couldn't get version/kind; json parse error: {why}");
    let parsed = decode::parse(body, format).map_err(|status| no_type(&status.message))?;
    let value = if parsed.value.is_null() { serde_json::json!({}) } else { parsed.value };
    if !value.is_object() {
        let shape = "struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }";
        return Err(no_type(&format!("json: cannot unmarshal {} into Go value of type {shape}", json_name(&value))));
    }
    for field in ["apiVersion", "kind"] {
        if !value[field].is_null() && !value[field].is_string() {
            let what = json_name(&value[field]);
            return Err(no_type(&format!(
                "json: cannot unmarshal {what} into Go struct field .{field} of type string"
            )));
        }
    }
    if let Some(version) = value["apiVersion"].as_str().filter(|version| version.matches('/').count() > 1) {
        return Err(format!("unexpected GroupVersion string: {version}"));
    }
    Ok(Received { value, duplicates: parsed.duplicates, format })
}

/// Options that come as a body. They belong to no group, and upstream reads them by a table of their own.
pub fn receive_options(call: &Call, kind: &str) -> Result<Value> {
    let mut value = match Format::of_body(call.header("content-type"))? {
        Format::Protobuf => receive_protobuf(call, kind)?.value,
        Format::Json => parse_typed(&call.body, decode::Format::Json).map_err(Status::bad_request)?.value,
        Format::Yaml => parse_typed(&call.body, decode::Format::Yaml).map_err(Status::bad_request)?.value,
    };
    let said = |field: &str, default: &str| match value[field].as_str() {
        None | Some("") => default.to_owned(),
        Some(text) => text.to_owned(),
    };
    let (got, version) = (said("kind", kind), said("apiVersion", "meta.k8s.io/v1"));
    if got != kind {
        let scheme = "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go:27";
        let what = format!("no kind \"{got}\" is registered for version \"{version}\" in scheme \"{scheme}\"");
        return Err(Status::bad_request(what));
    }
    if let Some(ty) = types::find("", "v1", kind) {
        decode::conform(schema::builtin(), ty, &mut value).map_err(Status::bad_request)?;
    }
    Ok(value)
}

/// The body of a subresource that has a kind of its own: read, held against that kind, and put where the path says.
pub fn receive_kind(call: &Call, api_version: &str, kind: &str) -> Result<Value> {
    let Received { mut value, duplicates, format } = receive_as(call, api_version, kind)?;
    let said = |field: &str| value[field].as_str().unwrap_or_default();
    let (got_kind, got_version) = (said("kind").to_owned(), said("apiVersion").to_owned());
    let (group, version) = schema::catalogue::split_api_version(&got_version);
    let (wanted_group, _) = schema::catalogue::split_api_version(api_version);
    // Old clients evict in a version that is served no more, and upstream still reads it.
    let read_as = if got_version == "policy/v1beta1" && got_kind == "Eviction" { "v1" } else { version };
    let Some(ty) = types::find(group, read_as, &got_kind) else {
        return Err(cannot_handle(&got_kind, version, kind, &unregistered(&got_kind, &got_version)));
    };
    if got_kind != kind {
        let package = if wanted_group.is_empty() { "core" } else { wanted_group.split('.').next().unwrap_or_default() };
        let why = format!("converting ({version}.{got_kind}) to ({package}.{kind}): unknown conversion");
        return Err(cannot_handle(&got_kind, version, kind, &why));
    }
    if group != wanted_group {
        let what = format!(
            "the API version in the data ({got_version}) does not match the expected API version ({api_version})"
        );
        return Err(Status::bad_request(what));
    }
    let unknown =
        decode::conform(schema::builtin(), ty, &mut value).map_err(|why| cannot_handle(kind, version, kind, &why))?;
    let strict = decode::strict_errors(&call.body, format, duplicates, unknown);
    judge_strict_as(call, kind, version, strict)?;
    super::create::place(call, &mut value)?;
    Ok(value)
}

/// The beginning of a body, as upstream shows it: text if it looks like JSON, else in hexadecimal.
fn summary(body: &[u8]) -> String {
    const MOST: usize = 30;
    let head = &body[..body.len().min(MOST)];
    let more = if body.len() > MOST { " ..." } else { "" };
    match body.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => format!("{}{more}", String::from_utf8_lossy(head)),
        Some(_) => format!("{}{more}", head.iter().map(|b| format!("{b:02x}")).collect::<String>()),
    }
}

pub fn unregistered(kind: &str, api_version: &str) -> String {
    format!(
        "no kind \"{kind}\" is registered for version \"{api_version}\" in scheme \"pkg/api/legacyscheme/scheme.go:30\""
    )
}

pub fn cannot_handle(kind: &str, version: &str, expected: &str, why: &str) -> Status {
    Status::bad_request(format!("{kind} in version \"{version}\" cannot be handled as a {expected}: {why}"))
}

/// Makes an object of a kind out of what was received: right kind, right types, nothing unknown, defaults filled in.
pub fn admit_as(call: &Call, received: Received) -> Result<Value> {
    let Received { mut value, duplicates, format } = received;
    let kind = &*call.kind;
    if kind.custom.is_none() {
        check_kind(kind, &value)?;
    }
    keep_reset(&mut value);
    let unknown = conform(kind, &mut value)?;
    if kind.custom.is_some() {
        // Unknown fields of custom resources come sorted, wherever they stand.
        judge_strict(call, kind, duplicates.into_iter().chain(unknown).collect())?;
        check_kind(kind, &value)?;
    } else {
        judge_strict(call, kind, decode::strict_errors(&call.body, format, duplicates, unknown))?;
    }
    if call.view.is_some() {
        // It was put there when the object was shown, and is not the object's own.
        wildcard::bare(&mut value);
    }
    default(kind, &mut value);
    dedup_owners(call, &mut value, "");
    Ok(value)
}

/// An empty list of managedFields asks for nobody to own anything. Decoding leaves empty lists out, but one empty entry
/// means the same.
pub fn keep_reset(value: &mut Value) {
    if let Some(Value::Array(owners)) = in_metadata(value, "managedFields")
        && owners.is_empty()
    {
        owners.push(serde_json::json!({}));
    }
}

fn in_metadata<'a>(value: &'a mut Value, field: &str) -> Option<&'a mut Value> {
    value.get_mut("metadata")?.get_mut(field)
}

pub fn check_kind(kind: &Kind, value: &Value) -> Result<()> {
    let text = |field: &str| value[field].as_str().unwrap_or_default();
    let (got_kind, got_version) = (text("kind"), text("apiVersion"));
    let (_, version) = schema::catalogue::split_api_version(got_version);
    let other_version = || {
        let expected = &kind.api_version;
        let what =
            format!("the API version in the data ({got_version}) does not match the expected API version ({expected})");
        Status::bad_request(what)
    };
    if kind.custom.is_some() {
        // A wrong kind of a custom resource is told by its validation.
        return if got_version == kind.api_version { Ok(()) } else { Err(other_version()) };
    }
    if let Some(why) = is_of_other_kind(kind, got_kind, got_version) {
        return Err(cannot_handle(got_kind, version, kind.name(), &why));
    }
    if got_version == kind.api_version { Ok(()) } else { Err(other_version()) }
}

/// What upstream's code has against an object of that kind in the place of one of ours, if it is of another.
pub fn is_of_other_kind(kind: &Kind, got_kind: &str, got_version: &str) -> Option<String> {
    let (group, version) = schema::catalogue::split_api_version(got_version);
    if types::find(group, version, got_kind).is_none() {
        return Some(unregistered(got_kind, got_version));
    }
    let (from, to) = (format!("{version}.{got_kind}"), go_type(kind, ""));
    (got_kind != kind.name()).then(|| format!("converting ({from}) to ({to}): unknown conversion"))
}

/// What upstream's code calls a kind: `core.ConfigMap`.
pub fn go_type(kind: &Kind, suffix: &str) -> String {
    let package = match kind.group() {
        "" => "core",
        group => group.split('.').next().unwrap_or(group),
    };
    format!("{package}.{}{suffix}", kind.name())
}

/// Types right, unknown fields dropped and answered in upstream's sentences.
pub fn conform(kind: &Kind, value: &mut Value) -> Result<Vec<String>> {
    if let Some(custom) = &kind.custom {
        let unknown = custom
            .definition
            .decode(value)
            .map_err(|why| cannot_handle(kind.name(), &kind.resource.version, kind.name(), &why))?;
        return Ok(unknown.iter().map(|path| format!("unknown field \"{path}\"")).collect());
    }
    let Some((schema, ty)) = kind.schema() else { return Ok(Vec::new()) };
    decode::conform(&schema, ty, value)
        .map_err(|why| cannot_handle(kind.name(), &kind.resource.version, kind.name(), &why))
}

/// fieldValidation: what a client wants to hear of fields that nobody knows.
pub fn judge_strict(call: &Call, kind: &Kind, strict: Vec<String>) -> Result<()> {
    judge_strict_as(call, kind.name(), &kind.resource.version, strict)
}

fn judge_strict_as(call: &Call, kind: &str, version: &str, strict: Vec<String>) -> Result<()> {
    if strict.is_empty() {
        return Ok(());
    }
    match call.query.get("fieldValidation") {
        "Strict" => {
            let why = format!("strict decoding error: {}", strict.join(", "));
            Err(cannot_handle(kind, version, kind, &why))
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
        None => rules::defaults::apply(kind.group(), &kind.resource.version, kind.name(), value),
    }
}

/// From the version of the request to the one in the store.
pub fn to_stored(kind: &Kind, value: &mut Value) -> Result<()> {
    if !kind.is_converted() {
        return Ok(());
    }
    crate::render::convert_value(kind, value, true).map_err(Status::internal)
}

/// The kind as which an object is stored: strategies and rules of built-in kinds are those of the stored version.
pub fn stored_kind(call: &Call) -> Arc<Kind> {
    let kind = &call.kind;
    if !kind.is_converted() || kind.custom.is_some() {
        return kind.clone();
    }
    let found = call.server.kinds.find(&call.cluster, &kind.stored_group, &kind.stored_version, kind.plural());
    found.unwrap_or_else(|| kind.clone())
}

pub fn validate_create(server: &Server, kind: &Kind, value: &Value) -> Result<()> {
    let mut errors = match kind.custom.as_ref().and_then(|c| c.version()) {
        Some(version) => {
            let metadata = validate::metadata_create(&kind.resource, value);
            let mut errors = apart::costing(|budget| version.validate_within(budget, metadata.clone(), value, None));
            errors.extend(crate::exports::validate(kind, value, None));
            errors
        }
        None if kind.is_definition() => {
            let mut errors = validate::metadata_create(&kind.resource, value);
            errors.extend(rules::crd::validate_definition(value, None));
            errors
        }
        None => validate::create(&kind.resource, value),
    };
    errors.retain(|error| !server.services.forgives(&kind.collection, error));
    judge(kind, value, errors)
}

pub fn validate_update(server: &Server, kind: &Kind, subresource: &str, new: &Value, old: &Value) -> Result<()> {
    let mut errors = match kind.custom.as_ref().and_then(|c| c.version()) {
        Some(version) if subresource == "status" => {
            let metadata = validate::metadata_update(new, old);
            apart::costing(|budget| version.validate_status_within(budget, metadata.clone(), new, old))
        }
        Some(version) => {
            let metadata = validate::metadata_update(new, old);
            let mut errors = apart::costing(|budget| version.validate_within(budget, metadata.clone(), new, Some(old)));
            errors.extend(crate::exports::validate(kind, new, Some(old)));
            errors
        }
        None if kind.is_definition() => {
            let mut errors = validate::metadata_update(new, old);
            if subresource.is_empty() {
                errors.extend(rules::crd::validate_definition(new, Some(old)));
            }
            errors
        }
        // A binding has its own rules; those of pods would not let the node be set.
        None if subresource == "binding" => Vec::new(),
        None => validate::update(&kind.resource, subresource, new, old),
    };
    errors.retain(|error| !server.services.forgives(&kind.collection, error));
    judge(kind, new, errors)
}

pub fn judge(kind: &Kind, value: &Value, errors: FieldErrors) -> Result<()> {
    if errors.is_empty() {
        return Ok(());
    }
    let name = value["metadata"]["name"].as_str().unwrap_or_default();
    // Upstream names the kind and the group that the object says it is of.
    let said = |field: &str| value[field].as_str().filter(|said| !said.is_empty() && kind.custom.is_some());
    let group = said("apiVersion").map_or(kind.group(), |version| schema::catalogue::split_api_version(version).0);
    Err(Status::invalid(group, said("kind").unwrap_or(kind.name()), name, &errors))
}

/// What a commit changes besides the object itself (addresses, counters), all or nothing.
#[derive(Default)]
pub struct Beside {
    pub compares: Vec<Compare>,
    pub ops: Vec<Op>,
    /// Held until the commit is done.
    pub turn: Option<tokio::sync::OwnedMutexGuard<()>>,
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
    commit.ops.extend_from_slice(&call.also);
    let mut room = call.server.workspaces.admit(call, key, value, expected, &commit)?;
    commit.compares.extend(room.compare.take());
    // What is marked for deletion is on its way out.
    let frees = value["metadata"]["deletionTimestamp"].is_string();
    Ok(match commit_and_see(call, commit, frees).await? {
        Some(revision) => {
            // Usually nobody has changed it since, and it is what everybody reads.
            let seen = call.server.cache.get(&call.kind.collection, key).filter(|object| object.revision == revision);
            let created = if created == 0 { revision } else { created };
            Written::Done(seen.unwrap_or_else(|| Arc::new(shown(key, &stored, created, revision))))
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
    commit.ops.extend_from_slice(&call.also);
    commit_and_see(call, commit, true).await
}

/// `frees` says that it deletes something, or leads to that: it may then use room that a full disk has for nothing else.
async fn commit_and_see(call: &Call, commit: Commit, frees: bool) -> Result<Option<Revision>> {
    let cache = &call.server.cache;
    let store = cache.store();
    let done = if frees { store.commit_freeing(commit).await } else { store.commit(commit).await };
    match done.map_err(|error| crate::unavailable(&error))? {
        Outcome::Committed(revision) => {
            cache.wait_for(revision).await;
            Ok(Some(revision))
        }
        Outcome::Conflict { found, .. } => {
            cache.see_why(found).await.map_err(|error| crate::unavailable(&error))?;
            Ok(None)
        }
    }
}

/// An object as it would be read back, without reading it back. Revision 0 is none (dry run).
pub fn shown(key: &str, stored: &Bytes, created: Revision, revision: Revision) -> Object {
    let json = if revision == 0 { without_revision(stored) } else { object::with_revision(stored, revision) };
    Object::new(key.into(), json, created, revision)
}

pub fn without_revision(stored: &Bytes) -> Bytes {
    let mut value: Value = serde_json::from_slice(stored).unwrap_or_default();
    if let Some(metadata) = value["metadata"].as_object_mut() {
        metadata.remove("resourceVersion");
    }
    serde_json::to_vec(&value).unwrap_or_default().into()
}

/// Warnings that upstream gives about an object that is fine but for them.
pub fn warn_about(call: &Call, new: &Value, old: Option<&Value>) {
    let kind = &call.kind;
    let warnings = match (&kind.custom, kind.is_definition()) {
        (Some(_), _) => rules::crd::finalizer_warnings(new, old),
        (None, true) => rules::crd::definition_warnings(new, old),
        (None, false) => strategy::warnings(&kind.resource, new, old),
    };
    for warning in warnings {
        call.warn(warning);
    }
}

/// At most this many owners that are named twice are told of.
const MAX_TOLD: usize = 100;

/// An owner that is named twice counts once. `when` is what upstream says of when it looked.
pub fn dedup_owners(call: &Call, value: &mut Value, when: &str) {
    let Some(Value::Array(owners)) = in_metadata(value, "ownerReferences") else { return };
    if owners.len() < 2 {
        return;
    }
    let mut twice = Vec::new();
    let mut seen = HashSet::with_capacity(owners.len());
    let is_new: Vec<bool> = owners.iter().map(|owner| seen.insert(owner)).collect();
    drop(seen);
    let mut is_new = is_new.into_iter();
    owners.retain(|owner| {
        let keep = is_new.next().unwrap_or(true);
        if !keep {
            twice.push(owner["uid"].as_str().unwrap_or_default().to_owned());
        }
        keep
    });
    if !twice.is_empty() {
        // The rest of many says nothing new.
        twice.truncate(MAX_TOLD);
        call.warn(format!(
            ".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, and \
             may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
            twice.join(", ")
        ));
    }
}

/// Notes in managedFields who wrote what.
pub fn track(call: &Call, live: Option<&Value>, new: &mut Value) {
    let Some((schema, ty)) = call.kind.schema() else { return };
    let (manager, now) = (call.field_manager(), clock::now());
    let versions = built_in_versions(&call.kind);
    patch::apply::track_update(&tracking(call, &schema, ty, &manager, &now, versions.as_ref()), live, new);
}

/// What managedFields need to know of a write.
pub fn tracking<'a>(
    call: &'a Call,
    schema: &'a Schema,
    ty: TypeId,
    manager: &'a str,
    now: &'a str,
    versions: Option<&'a BuiltInVersions<'a>>,
) -> patch::apply::Context<'a> {
    let kind = &call.kind;
    let has_status = kind.resource.subresource("status").is_some();
    patch::apply::Context {
        schema,
        ty,
        api_version: &kind.api_version,
        kind: kind.name(),
        manager,
        subresource: &call.target.subresource,
        now,
        reset: patch::apply::reset_fields(kind.group(), kind.plural(), &call.target.subresource, has_status),
        versions: versions.map(|v| v as &dyn patch::apply::Versions),
    }
}

/// Kinds that are served in several forms are owned in several forms too.
pub fn built_in_versions(kind: &Kind) -> Option<BuiltInVersions<'_>> {
    let several = kind.custom.is_none() && matches!(kind.name(), "HorizontalPodAutoscaler" | "Event");
    several.then(|| BuiltInVersions { kind: kind.name(), api_version: &kind.api_version })
}
