//! Object metadata: names, labels, annotations, owners, finalizers, and what an update may not change.

use std::collections::HashSet;

use schema::names;
use schema::names::{Complaints, NameRule};
use serde_json::Value;

use super::node::{Ctx, Go, Node, html_safe};

/// All annotations of an object together, keys and values.
const MAX_ANNOTATIONS: usize = 256 * 1024;
/// Items of each list in the metadata. Upstream has no limit but that of the whole object; nobody has so many owners.
const MAX_ITEMS: usize = 2_000;
/// How often the same mistake is told of a list whose every item makes it, if each time all of the list is shown.
const MAX_TOLD: usize = 10;
/// Terms of a selector that is part of an object.
const MAX_TERMS: usize = 1_000;
const MAX_MANAGER: usize = 128;
const MAX_SUBRESOURCE: usize = 256;

/// Finalizers that need no domain.
const STANDARD_FINALIZERS: &[&str] = &["kubernetes", "orphan", "foregroundDeletion"];

/// A rule for the names of a kind; the flag says that it is a `generateName`.
pub(crate) type CheckName<'r> = &'r dyn Fn(&str, bool) -> Complaints;

/// What holds of every object, whatever its kind.
pub(crate) fn object_meta(meta: Node<'_>, namespaced: bool, check: CheckName<'_>) {
    let generate_name = meta.get("generateName");
    if !generate_name.is_empty() {
        generate_name.all(check(generate_name.str(), true));
    }
    let name = meta.get("name");
    if name.str().is_empty() {
        name.required("name or generateName is required");
    } else {
        name.all(check(name.str(), false));
    }
    let namespace = meta.get("namespace");
    if namespaced {
        namespace.required_and(names::dns1123_label);
    } else if !namespace.is_empty() {
        namespace.forbidden("not allowed on this type");
    }
    meta.get("generation").non_negative();
    bounded_lists(meta, None);
    labels(meta.get("labels"));
    annotations(meta.get("annotations"));
    owners(meta.get("ownerReferences"));
    finalizers(meta.get("finalizers"));
    managed_fields(meta.get("managedFields"));
}

/// What holds of every object of a built-in kind.
pub(crate) fn built_in(meta: Node<'_>, namespaced: bool, check: CheckName<'_>) {
    object_meta(meta, namespaced, check);
    standard_finalizers(meta);
}

fn standard_finalizers(meta: Node<'_>) {
    for finalizer in meta.get("finalizers").items() {
        standard_finalizer(finalizer);
    }
}

pub(crate) fn standard_finalizer(finalizer: Node<'_>) {
    let name = finalizer.str();
    if !name.contains('/') && !STANDARD_FINALIZERS.contains(&name) {
        finalizer.invalid_str("name is neither a standard finalizer name nor is it fully qualified");
    }
}

/// What no update may change, and what it may not introduce.
pub(crate) fn object_meta_update(meta: Node<'_>, old: Node<'_>) {
    if old.get("deletionTimestamp").is_set() {
        no_new_finalizers(meta.get("finalizers"), old.get("finalizers"));
    }
    if meta.get("resourceVersion").str().is_empty() {
        meta.get("resourceVersion").invalid_str("must be specified for an update");
    }
    let generation = meta.get("generation");
    if generation.int_or_0() < old.get("generation").int_or_0() {
        generation.invalid_as(generation.int_or_0(), "must not be decremented");
    }
    for field in ["name", "namespace", "uid"] {
        if !meta.get(field).same(old.get(field)) {
            meta.get(field).invalid_str("field is immutable");
        }
    }
    for field in ["creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        let (new, old) = (meta.get(field), old.get(field));
        if !new.same(old) {
            // Times are structs to Go, which it shows as JSON: with quotes all the same.
            new.invalid_as(Go(new.value), "field is immutable");
        }
    }
    bounded_lists(meta, Some(old));
    labels(meta.get("labels"));
    annotations(meta.get("annotations"));
    owners(meta.get("ownerReferences"));
    managed_fields(meta.get("managedFields"));
}

/// Lists that are walked over with every write may not grow without end. One that is too long already may become
/// shorter.
fn bounded_lists(meta: Node<'_>, old: Option<Node<'_>>) {
    for field in ["ownerReferences", "finalizers", "managedFields"] {
        let items = meta.get(field);
        if items.len() > MAX_ITEMS && old.is_none_or(|old| old.get(field).len() < items.len()) {
            items.too_many(MAX_ITEMS);
        }
    }
}

pub(crate) fn built_in_update(meta: Node<'_>, old: Node<'_>) {
    object_meta_update(meta, old);
    standard_finalizers(meta);
}

fn no_new_finalizers(new: Node<'_>, old: Node<'_>) {
    let mut extra: Vec<&str> = new.array().iter().filter_map(Value::as_str).collect();
    let had: HashSet<&str> = old.array().iter().filter_map(Value::as_str).collect();
    extra.retain(|name| !had.contains(name));
    extra.sort_unstable();
    extra.dedup();
    if !extra.is_empty() {
        let list = extra.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ");
        new.forbidden(&format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{list}}}"
        ));
    }
}

pub(crate) fn label_key(node: Node<'_>, key: &str) {
    for complaint in names::qualified_name(key) {
        node.invalid_text(key, &complaint);
    }
}

/// Labels, also those of selectors: complaints are about the map as a whole.
pub(crate) fn labels(labels: Node<'_>) {
    for (key, value) in labels.map().into_iter().flatten() {
        label_key(labels, key);
        let value = value.as_str().unwrap_or("");
        for complaint in names::label_value(value) {
            labels.invalid_text(value, &complaint);
        }
    }
}

pub(crate) fn annotations(annotations: Node<'_>) {
    let mut size = 0usize;
    for (key, value) in annotations.map().into_iter().flatten() {
        // Annotation keys are label keys in any case.
        if !names::qualified_name(key).is_empty() {
            for complaint in names::qualified_name(&key.to_lowercase()) {
                annotations.invalid_text(key, &complaint);
            }
        }
        size = size.saturating_add(key.len()).saturating_add(value.as_str().map_or(0, str::len));
    }
    if size > MAX_ANNOTATIONS {
        annotations.too_long(MAX_ANNOTATIONS);
    }
}

fn owners(owners: Node<'_>) {
    let mut first_controller: Option<String> = None;
    let mut told = 0;
    for owner in owners.array() {
        let text = |field: &str| owner.get(field).and_then(Value::as_str).unwrap_or("");
        let (api_version, kind, name) = (text("apiVersion"), text("kind"), text("name"));
        // Upstream names the list, not the item.
        if api_version.is_empty() || api_version.ends_with('/') || api_version.matches('/').count() > 1 {
            owners.get("apiVersion").invalid_text(api_version, "version must not be empty");
        }
        for (field, value) in [("kind", kind), ("name", name), ("uid", text("uid"))] {
            if value.is_empty() {
                owners.get(field).invalid_text("", "must not be empty");
            }
        }
        if (api_version, kind) == ("v1", "Event") {
            owners.invalid_as(owner_shown(owner), "/v1, Kind=Event is disallowed from being an owner");
        }
        if owner.get("controller").and_then(Value::as_bool) == Some(true) {
            let controller = format!("{kind}/{name}");
            match &first_controller {
                Some(_) if told == MAX_TOLD => {}
                Some(first) => {
                    told += 1;
                    owners.invalid_as(
                        format!("[{}]", owners.array().iter().map(owner_shown).collect::<Vec<_>>().join(",")),
                        &format!(
                            "Only one reference can have Controller set to true. Found \"true\" in references for \
                             {first} and {controller}"
                        ),
                    );
                }
                None => first_controller = Some(controller),
            }
        }
    }
}

/// An owner in the order of Go's struct.
fn owner_shown(owner: &Value) -> String {
    let mut fields = Vec::new();
    for name in ["apiVersion", "kind", "name", "uid"] {
        let value = owner.get(name).cloned().unwrap_or_else(|| "".into());
        fields.push(format!("\"{name}\":{value}"));
    }
    for name in ["controller", "blockOwnerDeletion"] {
        if let Some(value) = owner.get(name).filter(|v| !v.is_null()) {
            fields.push(format!("\"{name}\":{value}"));
        }
    }
    html_safe(&format!("{{{}}}", fields.join(",")))
}

fn finalizers(finalizers: Node<'_>) {
    let (mut orphan, mut foreground) = (false, false);
    for finalizer in finalizers.array() {
        let name = finalizer.as_str().unwrap_or("");
        for complaint in names::qualified_name(name) {
            finalizers.invalid_text(name, &complaint);
        }
        orphan |= name == "orphan";
        foreground |= name == "foregroundDeletion";
    }
    if orphan && foreground {
        finalizers.invalid("finalizer orphan and foregroundDeletion cannot be both set");
    }
}

fn managed_fields(entries: Node<'_>) {
    for entry in entries.items() {
        let operation = entry.get("operation");
        if !matches!(operation.str(), "Apply" | "Update") {
            operation.invalid_str("must be `Apply` or `Update`");
        }
        let fields_type = entry.get("fieldsType");
        if !matches!(fields_type.str(), "" | "FieldsV1") {
            fields_type.invalid_str("must be `FieldsV1`");
        }
        field_manager(entry.get("manager"));
        if entry.get("subresource").str().len() > MAX_SUBRESOURCE {
            entry.get("subresource").too_long(MAX_SUBRESOURCE);
        }
    }
}

/// A field manager: short, and printable.
pub(crate) fn field_manager(manager: Node<'_>) {
    let name = manager.str();
    if name.len() > MAX_MANAGER {
        manager.too_long(MAX_MANAGER);
    }
    for (at, c) in name.char_indices() {
        if c.is_control() || (c.is_whitespace() && c != ' ') {
            manager.invalid_str(&format!("invalid character U+{:04X} (at position {at})", c as u32));
        }
    }
}

/// `metav1.LabelSelector`.
pub(crate) fn label_selector(selector: Node<'_>) {
    for field in ["matchLabels", "matchExpressions"] {
        if selector.get(field).len() > MAX_TERMS {
            selector.get(field).too_many(MAX_TERMS);
        }
    }
    labels(selector.get("matchLabels"));
    for requirement in selector.get("matchExpressions").items() {
        let values = requirement.get("values");
        match requirement.get("operator").str() {
            "In" | "NotIn" if values.is_empty() => {
                values.required("must be specified when `operator` is 'In' or 'NotIn'");
            }
            "In" | "NotIn" => {}
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                values.forbidden("may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
            }
            "Exists" | "DoesNotExist" => {}
            _ => requirement.get("operator").invalid_str("not a valid selector operator"),
        }
        requirement.get("key").check(names::qualified_name);
        for value in values.items() {
            value.check(names::label_value);
        }
    }
}

/// Whether a selector can be used at all. [`label_selector`] says what is wrong with it.
pub(crate) fn is_selector(selector: &Value) -> bool {
    let ctx = Ctx::default();
    label_selector(ctx.root(selector));
    ctx.take().is_empty()
}

/// A selector that selects nothing in particular.
pub(crate) fn is_empty_selector(selector: Node<'_>) -> bool {
    selector.get("matchLabels").is_empty() && selector.get("matchExpressions").is_empty()
}

/// Whether labels satisfy a `metav1.LabelSelector`; absent selects nothing, empty everything.
pub(crate) fn selects(selector: &Value, labels: &Value) -> bool {
    let Some(selector) = selector.as_object() else { return false };
    let label = |key: &str| labels.get(key).and_then(Value::as_str);
    let wanted = selector.get("matchLabels").and_then(Value::as_object);
    let expressions = selector.get("matchExpressions").and_then(Value::as_array);
    wanted.into_iter().flatten().all(|(key, value)| label(key).is_some_and(|v| Some(v) == value.as_str()))
        && expressions.into_iter().flatten().all(|expression| {
            let have = label(expression.get("key").and_then(Value::as_str).unwrap_or(""));
            let values = expression.get("values").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            let among = have.is_some_and(|v| values.iter().any(|w| w.as_str() == Some(v)));
            match expression.get("operator").and_then(Value::as_str).unwrap_or("") {
                "In" => among,
                "NotIn" => !among,
                "Exists" => have.is_some(),
                "DoesNotExist" => have.is_none(),
                _ => false,
            }
        })
}

/// A `LabelSelector` in the order of Go's struct.
pub(crate) fn selector_shown(selector: &Value) -> String {
    let mut fields = Vec::new();
    for name in ["matchLabels", "matchExpressions"] {
        if let Some(value) = selector.get(name).filter(|v| !v.is_null()) {
            fields.push(format!("\"{name}\":{value}"));
        }
    }
    if selector.is_null() { "null".to_owned() } else { html_safe(&format!("{{{}}}", fields.join(","))) }
}

/// The rule for a kind's names, as a function for [`object_meta`].
pub(crate) fn by(rule: NameRule) -> impl Fn(&str, bool) -> Complaints {
    move |name, prefix| rule.check(name, prefix)
}
