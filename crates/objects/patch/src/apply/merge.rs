//! The rules of ownership: what a write takes from others, what it may not take, what it leaves behind.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::LazyLock;

use schema::builtin;
use schema::catalogue::split_api_version;
use schema::status::Cause;
use serde_json::Value;

use super::element::{PathElement, same};
use super::fieldset::FieldSet;
use super::managed::{Entry, Managed, Operation};
use super::typed::{Comparison, Ty};
use super::{Context, show};

/// What nobody ever owns.
static NEVER_OWNED: LazyLock<FieldSet<'static>> = LazyLock::new(|| {
    FieldSet::of_fields(&[
        &["apiVersion"],
        &["kind"],
        &["metadata"],
        &["metadata", "name"],
        &["metadata", "namespace"],
        &["metadata", "creationTimestamp"],
        &["metadata", "selfLink"],
        &["metadata", "uid"],
        &["metadata", "clusterName"],
        &["metadata", "generation"],
        &["metadata", "managedFields"],
        &["metadata", "resourceVersion"],
    ])
});

/// Why a configuration is not applied.
pub(super) enum Refusal<'a> {
    Conflicts(Vec<Conflict<'a>>),
}

/// A field that another manager owns with another value.
pub(super) struct Conflict<'a> {
    pub(super) manager: Entry<'a>,
    pub(super) path: Vec<PathElement<'a>>,
}

impl Conflict<'_> {
    /// `"third" with subresource "status" using v1`
    pub(super) fn holder(&self) -> String {
        let mut holder = schema::go::quote(&self.manager.manager);
        if !self.manager.subresource.is_empty() {
            holder.push_str(&format!(" with subresource {}", schema::go::quote(&self.manager.subresource)));
        }
        if self.manager.operation == Operation::Update {
            holder.push_str(&format!(" using {}", self.manager.api_version));
        }
        holder
    }

    pub(super) fn cause(&self) -> Cause {
        Cause {
            reason: "FieldManagerConflict".to_owned(),
            message: format!("conflict with {}", self.holder()),
            field: show(&self.path),
        }
    }
}

/// Notes an update: what changed is the writer's now, and no longer anyone else's.
pub(super) fn update<'a>(ctx: &Context<'a>, managed: &mut Managed<'a>, old: &'a Value, new: &'a Value) {
    let comparison = compare(ctx.ty(), ctx.reset, old, new);
    let Comparison { removed, modified, added } = comparison;
    let mut mine = modified.union(added);
    // Entries of versions that are gone are looked for even if nothing changed.
    let foreign = managed.entries.iter().any(|entry| entry.api_version != ctx.api_version);
    if foreign || !(mine.is_empty() && removed.is_empty()) {
        reconcile(ctx, managed);
        others(ctx, managed, None, old, new, (&mine, &removed), |entry, changed, removed| {
            if entry.set.subtract(changed) | entry.set.subtract(removed) {
                entry.touch();
            }
        });
    }
    managed.drop_empty();
    mine.subtract(&NEVER_OWNED);
    if !mine.is_empty() {
        let entry = ctx.entry(Operation::Update);
        let at = managed.position(&entry).unwrap_or_else(|| {
            managed.entries.push(entry);
            managed.entries.len() - 1
        });
        let entry = &mut managed.entries[at];
        entry.set = std::mem::take(&mut entry.set).union(mine);
        entry.time = Some(Cow::Borrowed(ctx.now));
        entry.touch();
    }
    managed.cap_updaters();
}

/// Merges a configuration into the live object. No object in the answer means that it would not change.
pub(super) fn apply<'a>(
    ctx: &Context<'a>,
    live: &'a Value,
    config: &'a Value,
    mut managed: Managed<'a>,
    force: bool,
) -> Result<(Option<Value>, Managed<'a>), Refusal<'a>> {
    let ty = ctx.ty();
    reconcile(ctx, &mut managed);
    let mut me = ctx.entry(Operation::Apply);
    me.set = ty.fields(config);
    me.set.subtract_deep(ctx.reset);
    let last = managed.position(&me).map(|at| managed.entries.swap_remove(at));
    me.time = last.as_ref().and_then(|last| last.time.clone());
    let last = last.map(|last| last.set).unwrap_or_default();
    managed.entries.push(me.clone());

    let merged = ty.merge(live, config);
    let new = if last.is_empty() { merged } else { prune(ty, merged, &managed, &last) };

    let Comparison { removed, modified, added } = compare(ty, ctx.reset, live, &new);
    let changed = modified.union(added);
    if !force {
        let mut conflicts = Vec::new();
        others(ctx, &mut managed, Some(&me), live, &new, (&changed, &removed), |entry, changed, _| {
            for path in entry.set.intersection(changed).paths() {
                conflicts.push(Conflict { manager: entry.clone(), path });
            }
        });
        if !conflicts.is_empty() {
            return Err(Refusal::Conflicts(conflicts));
        }
    }
    others(ctx, &mut managed, Some(&me), live, &new, (&changed, &removed), |entry, changed, removed| {
        if entry.set.subtract(changed) | entry.set.subtract(removed) {
            entry.touch();
        }
    });
    let unchanged = same(live, &new);
    if let Some(at) = managed.position(&me) {
        let me = &mut managed.entries[at];
        me.set.subtract(&NEVER_OWNED);
        if !unchanged {
            me.time = Some(Cow::Borrowed(ctx.now));
        }
    }
    managed.drop_empty();
    Ok(((!unchanged).then_some(new), managed))
}

fn compare<'v>(ty: Ty<'v>, reset: &FieldSet<'_>, old: &'v Value, new: &'v Value) -> Comparison<'v> {
    let mut comparison = ty.compare(old, new);
    for set in [&mut comparison.removed, &mut comparison.modified, &mut comparison.added] {
        set.subtract_deep(reset);
    }
    comparison
}

fn reconcile(ctx: &Context<'_>, managed: &mut Managed<'_>) {
    for entry in managed.entries.iter_mut().filter(|entry| entry.api_version == ctx.api_version) {
        if let Some(set) = ctx.ty().reconcile(&entry.set) {
            entry.set = set;
            entry.touch();
        }
    }
}

/// Calls `each` with every entry but `me`, what was changed and what was removed, as seen in the entry's version.
/// Entries of versions that are gone are dropped.
fn others<'a>(
    ctx: &Context<'_>,
    managed: &mut Managed<'a>,
    me: Option<&Entry<'_>>,
    old: &Value,
    new: &Value,
    (changed, removed): (&FieldSet<'_>, &FieldSet<'_>),
    mut each: impl FnMut(&mut Entry<'a>, &FieldSet<'_>, &FieldSet<'_>),
) {
    // What differs is the same for all entries of a version.
    let mut seen: HashMap<String, Option<(FieldSet<'static>, FieldSet<'static>)>> = HashMap::new();
    managed.entries.retain_mut(|entry| {
        if me.is_some_and(|me| entry.is(me)) {
            return true;
        }
        if entry.api_version == ctx.api_version {
            each(entry, changed, removed);
            return true;
        }
        let Some(versions) = ctx.versions else {
            each(entry, changed, removed);
            let (group, version) = split_api_version(&entry.api_version);
            // A built-in kind is what the table of kinds says; the versions of others come and go.
            let known = !std::ptr::eq(ctx.schema, builtin()) || builtin().of_kind(group, version, ctx.kind).is_some();
            return known && group == split_api_version(ctx.api_version).0;
        };
        if !seen.contains_key(&*entry.api_version) {
            let differs = || {
                let (old, _, _) = versions.convert(old, &entry.api_version)?;
                let (new, schema, ty) = versions.convert(new, &entry.api_version)?;
                let Comparison { removed, modified, added } = compare(Ty::new(schema, ty), ctx.reset, &old, &new);
                Some((modified.union(added).into_owned(), removed.into_owned()))
            };
            seen.insert(entry.api_version.to_string(), differs());
        }
        let Some(Some((changed, removed))) = seen.get(&*entry.api_version) else { return false };
        each(entry, changed, removed);
        true
    });
}

/// Removes what the manager owned before (`last`), does not list any more, and nobody else owns.
fn prune(ty: Ty<'_>, merged: Value, managed: &Managed<'_>, last: &FieldSet<'_>) -> Value {
    let named = |set: &FieldSet<'_>| set.clone().into_owned().with_named_fields(Some(ty));
    let last = named(last);
    let all = named(&ty.fields(&merged));
    let owned = FieldSet::union_all(managed.entries.iter().map(|entry| named(&entry.set)).collect());

    // First everything the manager had, then back what anyone owns, then back what the manager did not have.
    let pruned = ty.without(&merged, &last);
    let mut gone = all.clone();
    gone.subtract(&named(&ty.fields(&pruned)).union(owned));
    let pruned = ty.without(&merged, &gone);
    let mut gone = all;
    gone.subtract(&named(&ty.fields(&pruned)));
    ty.without(&merged, &gone.intersection(&last))
}
