//! Server-side apply and the bookkeeping behind it: who owns which fields of an object.
//!
//! [`apply`] merges a configuration into the live object; [`track_update`] notes what any other write changed. Both
//! work on objects that are decoded and defaulted, and before admission and strategies change anything: what those add
//! is nobody's. The caller finishes with [`keep_times`], so that a write which changed nothing is no write.

mod element;
mod fieldset;
mod last_applied;
mod managed;
mod merge;
mod reset;
mod scale;
mod typed;
mod versions;
mod zero;

use std::collections::HashSet;

use serde_json::{Value, json};

pub use element::{Literal, PathElement};
pub use fieldset::{FieldSet, show};
pub use reset::reset_fields;
pub use scale::{ReplicasPath, parent_entries, scale_entries};
pub use versions::Versions;

use managed::{Entry, Managed, Operation, is_reset};
use merge::{Conflict, Refusal};
use schema::catalogue::split_api_version;
use schema::status::{Result, Status};
use schema::{Schema, TypeId};
use typed::Ty;

/// The manager of what was there when an object is applied to for the first time.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Who writes what, where and when.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    pub schema: &'a Schema,
    pub ty: TypeId,
    /// The version written in, such as `apps/v1`.
    pub api_version: &'a str,
    pub kind: &'a str,
    /// The field manager; empty is upstream's `unknown`.
    pub manager: &'a str,
    /// Empty for the resource itself.
    pub subresource: &'a str,
    /// RFC 3339, to the second.
    pub now: &'a str,
    /// What this write cannot change: [`reset_fields`].
    pub reset: &'a FieldSet<'static>,
    /// How to see the object in other versions of its group, for managers that wrote in them. Without it all versions
    /// are taken to have the same shape.
    pub versions: Option<&'a dyn Versions>,
}

impl<'a> Context<'a> {
    fn ty(&self) -> Ty<'a> {
        Ty::new(self.schema, self.ty)
    }

    fn entry(&self, operation: Operation) -> Entry<'a> {
        let manager = if self.manager.is_empty() { "unknown" } else { self.manager };
        Entry::new(manager, operation, self.api_version, self.subresource)
    }
}

/// Merges `config` into the live object (none: creates it) and answers the new object with its `managedFields`.
pub fn apply(ctx: &Context<'_>, live: Option<&Value>, config: &Value, force: bool) -> Result<Value> {
    check_kind(ctx, config)?;
    let mut live = live.cloned().unwrap_or_else(|| json!({}));
    let stored = take_managed_fields(&mut live);
    let list = stored.as_ref().and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let mut managed = Managed::decode(list).map_err(|why| failed(format!("failed to decode managed fields: {why}")))?;
    if config.pointer("/metadata/managedFields").is_some_and(Value::is_array) {
        return Err(Status::bad_request("metadata.managedFields must be nil"));
    }
    ctx.ty().validate(config).map_err(|why| {
        let text = |path| config.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
        let kind = group_version_kind(ctx.api_version, ctx.kind);
        failed(format!("failed to create typed patch object ({namespace}/{name}; {kind}): {why}"))
    })?;
    if managed.entries.is_empty() && live.get("metadata").is_some() {
        let before = Context { manager: BEFORE_FIRST_APPLY, ..*ctx };
        merge::update(&before, &mut managed, zero::zero(ctx.schema, ctx.ty), &live);
    }
    let applied = match merge::apply(ctx, &live, config, managed.clone(), force) {
        Err(Refusal::Conflicts(conflicts)) if ctx.manager == last_applied::KUBECTL => {
            match last_applied::remaining(ctx, &live, conflicts) {
                left if left.is_empty() => merge::apply(ctx, &live, config, managed, true),
                left => Err(Refusal::Conflicts(left)),
            }
        }
        other => other,
    };
    let (object, managed) = applied.map_err(|refusal| match refusal {
        Refusal::Conflicts(conflicts) => conflict_status(conflicts),
    })?;
    let list = managed.encode();
    let mut object = object.unwrap_or_else(|| live.clone());
    if ctx.manager == last_applied::KUBECTL {
        last_applied::refresh(&mut object, config);
    }
    set_managed_fields(&mut object, list);
    Ok(object)
}

/// Merges a configuration into an object, as apply does but with nobody as owner. Lists and maps that are only ever replaced
/// as a whole are refused: half of them would be lost unnoticed.
pub fn overlay(schema: &Schema, ty: TypeId, object: &Value, config: &Value) -> std::result::Result<Value, String> {
    let ty = typed::Ty::new(schema, ty);
    ty.validate(config).map_err(|why| format!("failed to convert patch object to typed object: {why}"))?;
    let atomic = ty.atomic_parts(config);
    if !atomic.is_empty() {
        return Err(format!(
            "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {}",
            atomic.join(", ")
        ));
    }
    Ok(ty.merge(object, config))
}

/// Attributes what `new` changes against the live object (none: all of it) to the manager, and takes it from others.
/// `managedFields` that the client sent count, unless they are written through a subresource.
pub fn track_update(ctx: &Context<'_>, live: Option<&Value>, new: &mut Value) {
    if !new.get("metadata").is_some_and(Value::is_object) {
        return;
    }
    let sent = take_managed_fields(new);
    let sent = sent.as_ref().and_then(Value::as_array).filter(|_| ctx.subresource.is_empty());
    let of_live = || live.and_then(|live| Managed::decode(managed_fields(live)).ok()).unwrap_or_default();
    let mut managed = match sent {
        Some(list) if is_reset(list) => Managed::default(),
        Some(list) => Managed::decode(list).ok().filter(|managed| !managed.entries.is_empty()).unwrap_or_else(of_live),
        None => of_live(),
    };
    // An object that nobody owns anything of stays that way until it is applied to.
    let exists =
        live.is_some_and(|live| live.pointer("/metadata/uid").and_then(Value::as_str).is_some_and(|u| !u.is_empty()));
    if !(managed.entries.is_empty() && exists) {
        let old = live.unwrap_or_else(|| zero::zero(ctx.schema, ctx.ty));
        merge::update(ctx, &mut managed, old, new);
    }
    let list = managed.encode();
    set_managed_fields(new, list);
}

/// Gives `new` the old times if only the times of its `managedFields` differ. Says whether nothing differs then: there is
/// nothing to write.
pub fn keep_times(old: &Value, new: &mut Value) -> bool {
    let (was, is) = (managed_fields(old), managed_fields(new));
    if !same_but_managed_fields(old, new) || !same_but_times(was, is) {
        return false;
    }
    if was != is {
        set_managed_fields(new, (!was.is_empty()).then(|| was.to_vec()));
    }
    true
}

fn managed_fields(object: &Value) -> &[Value] {
    object.pointer("/metadata/managedFields").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// Entries are sorted by time, so a new time may have moved one.
fn same_but_times(was: &[Value], is: &[Value]) -> bool {
    let same = |a: &Value, b: &Value| match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            let rest = |m| serde_json::Map::iter(m).filter(|(key, _)| *key != "time");
            rest(a).eq(rest(b))
        }
        _ => a == b,
    };
    if was.len() != is.len() {
        return false;
    }
    if was.iter().zip(is).all(|(a, b)| same(a, b)) {
        return true;
    }
    let timeless = |entry: &Value| {
        let mut entry = entry.clone();
        entry.as_object_mut().map(|map| map.remove("time"));
        entry.to_string()
    };
    let is: HashSet<String> = is.iter().map(timeless).collect();
    was.iter().all(|a| is.contains(&timeless(a)))
}

/// Whether two objects are the same but for their `managedFields` and `resourceVersion`.
fn same_but_managed_fields(old: &Value, new: &Value) -> bool {
    let (Value::Object(old), Value::Object(new)) = (old, new) else { return old == new };
    old.len() == new.len()
        && old.iter().zip(new).all(|((ka, a), (kb, b))| match (ka == kb, ka.as_str(), a, b) {
            (false, ..) => false,
            (_, "metadata", Value::Object(a), Value::Object(b)) => {
                let rest =
                    |m| serde_json::Map::iter(m).filter(|(k, _)| *k != "managedFields" && *k != "resourceVersion");
                rest(a).eq(rest(b))
            }
            _ => a == b,
        })
}

fn failed(message: String) -> Status {
    Status::new(500, "", message)
}

fn group_version_kind(api_version: &str, kind: &str) -> String {
    let (group, version) = split_api_version(api_version);
    format!("{group}/{version}, Kind={kind}")
}

fn check_kind(ctx: &Context<'_>, config: &Value) -> Result<()> {
    let text = |key| config.get(key).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    if (api_version, kind) == (ctx.api_version, ctx.kind) {
        return Ok(());
    }
    Err(Status::bad_request(format!("invalid object type: {}", group_version_kind(api_version, kind))))
}

fn conflict_status(mut conflicts: Vec<Conflict<'_>>) -> Status {
    conflicts.sort_by_cached_key(|conflict| conflict.manager.identity());
    let causes = conflicts.iter().map(Conflict::cause).collect();
    let message = match conflicts.as_slice() {
        [one] => format!("Apply failed with 1 conflict: conflict with {}: {}", one.holder(), show(&one.path)),
        many => {
            let mut lines = Vec::new();
            let mut last = String::new();
            for conflict in many {
                let holder = conflict.holder();
                if holder != last {
                    lines.push(format!("conflicts with {holder}:"));
                    last = holder;
                }
                lines.push(format!("- {}", show(&conflict.path)));
            }
            format!("Apply failed with {} conflicts: {}", many.len(), lines.join("\n"))
        }
    };
    Status { details: None, ..Status::new(409, "Conflict", message) }.with_causes(causes)
}

fn take_managed_fields(object: &mut Value) -> Option<Value> {
    object.get_mut("metadata").and_then(Value::as_object_mut).and_then(|metadata| metadata.remove("managedFields"))
}

fn set_managed_fields(object: &mut Value, list: Option<Vec<Value>>) {
    let Value::Object(object) = object else { return };
    match list {
        Some(list) => {
            let metadata = object.entry("metadata").or_insert_with(|| json!({}));
            if let Value::Object(metadata) = metadata {
                metadata.insert("managedFields".to_owned(), Value::Array(list));
            }
        }
        None => {
            if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
                metadata.remove("managedFields");
            }
        }
    }
}

#[cfg(test)]
mod laws;
#[cfg(test)]
mod tests;
