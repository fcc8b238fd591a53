//! What may still change in a pod.

use std::collections::HashSet;

use schema::names;
use serde_json::Value;

use super::{MIRROR, pod_spec_and_annotations, scheduling};
use crate::validate::internal;
use crate::validate::node::{Node, same};

const UPDATABLE: &str = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,\
`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 \
if it was previously negative)";
const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

pub(crate) fn pod(new: Node<'_>, old: Node<'_>) {
    pod_spec_and_annotations(new);
    annotations(new, old);
    let (spec, old_spec) = (new.get("spec"), old.get("spec"));
    for list in ["containers", "initContainers"] {
        if !containers(spec.get(list), old_spec.get(list)) {
            return;
        }
    }
    if !deadline(spec.get("activeDeadlineSeconds"), old_spec.get("activeDeadlineSeconds")) {
        return;
    }
    tolerations(spec.get("tolerations"), old_spec.get("tolerations"));
    gates(spec.get("schedulingGates"), old_spec.get("schedulingGates"));
    if spec.same(old_spec) {
        return;
    }
    let allowed = with_allowed_changes_undone(spec, old_spec);
    if !same(&allowed, old_spec.value) {
        let diff = internal::diff("PodSpec", old_spec.value, &allowed);
        spec.forbidden(&format!("pod updates may not change fields other than {UPDATABLE}\n{diff}"));
    }
}

/// Through the subresource of that name, which keeps everything else as it was: they are only ever added.
pub(crate) fn ephemeral_containers(new: Node<'_>, old: Node<'_>) {
    pod_spec_and_annotations(new);
    let (now, before) = (new.get("spec").get("ephemeralContainers"), old.get("spec").get("ephemeralContainers"));
    if old.get("metadata").get("annotations").value.get(MIRROR).is_some() {
        now.forbidden("static pods do not support ephemeral containers");
    }
    for was in before.array() {
        let name = was.get("name").and_then(Value::as_str).unwrap_or_default();
        match now.array().iter().find(|container| container.get("name") == was.get("name")) {
            None => now.forbidden(&format!("existing ephemeral containers {name:?} may not be removed\n")),
            Some(container) if !same(container, was) => {
                let diff = internal::diff("EphemeralContainer", was, container);
                now.forbidden(&format!("existing ephemeral containers {name:?} may not be changed\n{diff}"));
            }
            Some(_) => {}
        }
    }
}

fn annotations(new: Node<'_>, old: Node<'_>) {
    let (notes, old) = (new.get("metadata").get("annotations"), old.get("metadata").get("annotations"));
    let protected = |key: &str| {
        if key.starts_with(APP_ARMOR) {
            Some("AppArmor annotations")
        } else {
            (key == MIRROR).then_some("mirror pod annotation")
        }
    };
    for (key, value) in old.map().into_iter().flatten() {
        if let Some(what) = protected(key).filter(|_| notes.value.get(key) != Some(value)) {
            notes.key(key).forbidden(&format!("may not remove or update {what}"));
        }
    }
    for key in notes.map().into_iter().flatten().map(|(key, _)| key) {
        if let Some(what) = protected(key).filter(|_| old.value.get(key).is_none()) {
            notes.key(key).forbidden(&format!("may not add {what}"));
        }
    }
    super::annotations(notes, new.get("spec"));
}

fn containers(new: Node<'_>, old: Node<'_>) -> bool {
    if new.len() != old.len() {
        new.forbidden("pod updates may not add or remove containers");
        return false;
    }
    for container in new.items() {
        if container.get("image").str().is_empty() {
            container.get("image").required("");
        }
        super::container::trimmed_image(container);
    }
    true
}

fn deadline(new: Node<'_>, old: Node<'_>) -> bool {
    match (new.int(), old.int()) {
        (Some(n), _) if !(0..=i64::from(i32::MAX)).contains(&n) => {
            new.invalid(&names::between(0, i32::MAX.into()));
            return false;
        }
        (Some(n), Some(o)) if o < n => {
            new.invalid("must be less than or equal to previous value");
            return false;
        }
        (None, Some(_)) => new.invalid("must not update from a positive integer to nil value"),
        _ => {}
    }
    true
}

fn tolerations(new: Node<'_>, old: Node<'_>) {
    // Absent and empty are the same.
    fn told(toleration: &Value) -> [&str; 4] {
        ["key", "operator", "value", "effect"].map(|f| toleration.get(f).and_then(Value::as_str).unwrap_or_default())
    }
    let kept: HashSet<[&str; 4]> = new.array().iter().map(told).collect();
    if !old.array().iter().all(|was| kept.contains(&told(was))) {
        return new.forbidden("existing toleration can not be modified except its tolerationSeconds");
    }
    scheduling::tolerations(new);
}

fn gates(new: Node<'_>, old: Node<'_>) {
    let had: HashSet<&str> = old.array().iter().filter_map(|g| g.get("name").and_then(Value::as_str)).collect();
    for gate in new.items() {
        let name = gate.get("name");
        if !had.contains(name.str()) {
            name.forbidden(&format!("only deletion is allowed, but found new scheduling gate '{}'", name.str()));
        }
    }
}

/// The new spec as it would be without the changes that are allowed.
fn with_allowed_changes_undone(spec: Node<'_>, old: Node<'_>) -> Value {
    let mut munged = spec.value.clone();
    for list in ["containers", "initContainers"] {
        if let Some(items) = munged.get_mut(list).and_then(Value::as_array_mut) {
            for (item, was) in items.iter_mut().zip(old.get(list).array()) {
                if let (Some(item), Some(image)) = (item.as_object_mut(), was.get("image")) {
                    item.insert("image".to_owned(), image.clone());
                }
            }
        }
    }
    let mut restore = |field: &'static str| {
        if let Some(map) = munged.as_object_mut() {
            match old.value.get(field) {
                Some(value) => map.insert(field.to_owned(), value.clone()),
                None => map.remove(field),
            };
        }
    };
    restore("activeDeadlineSeconds");
    restore("schedulingGates");
    restore("tolerations");
    let (grace, old_grace) =
        (spec.get("terminationGracePeriodSeconds").int(), old.get("terminationGracePeriodSeconds").int());
    if grace == Some(1) && old_grace.is_some_and(|n| n < 0) {
        restore("terminationGracePeriodSeconds");
    }
    if !old.get("schedulingGates").is_empty() {
        gated(spec, old, &mut restore);
    }
    munged
}

fn terms_shown(terms: &Value) -> String {
    let terms = terms.as_array().into_iter().flatten().map(|term| internal::shown("NodeSelectorTerm", term));
    format!("[{}]", terms.collect::<Vec<_>>().join(","))
}

/// Whether a term asks for all that it did, and in the same order, before anything else.
fn only_adds(new: &Value, old: &Value) -> bool {
    let of = |term: &Value, list: &str| term.get(list).and_then(Value::as_array).cloned().unwrap_or_default();
    let lists = ["matchExpressions", "matchFields"];
    let empty = |term: &Value| lists.iter().all(|list| of(term, list).is_empty());
    if empty(old) {
        return empty(new);
    }
    lists.iter().all(|list| {
        let (now, was) = (of(new, list), of(old, list));
        now.len() >= was.len() && now.iter().zip(&was).all(|(a, b)| same(a, b))
    })
}

/// A gated pod may still be told more precisely where to run.
fn gated(spec: Node<'_>, old: Node<'_>, restore: &mut impl FnMut(&'static str)) {
    let (selector, old_selector) = (spec.get("nodeSelector"), old.get("nodeSelector"));
    if !selector.same(old_selector) {
        let kept = old_selector.map().into_iter().flatten().all(|(key, value)| selector.value.get(key) == Some(value));
        if !kept {
            selector.invalid("only additions to spec.nodeSelector are allowed (no mutations or deletions)");
        }
        restore("nodeSelector");
    }
    let required = |spec: Node<'_>| -> Value {
        let path = "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
        spec.value.pointer(path).cloned().unwrap_or(Value::Null)
    };
    let (terms, old_terms) = (required(spec), required(old));
    let count = |terms: &Value| terms.as_array().map_or(0, Vec::len);
    let others = |field: &str| {
        same(
            spec.value.pointer(&format!("/affinity/{field}")).unwrap_or(&Value::Null),
            old.value.pointer(&format!("/affinity/{field}")).unwrap_or(&Value::Null),
        )
    };
    if others("podAffinity") && others("podAntiAffinity") {
        if count(&old_terms) > 0 && count(&old_terms) != count(&terms) {
            spec.get("affinity")
                .get("nodeAffinity")
                .get("requiredDuringSchedulingIgnoredDuringExecution")
                .get("nodeSelectorTerms")
                .invalid_as(
                    terms_shown(&terms),
                    "no additions/deletions to non-empty NodeSelectorTerms list are allowed",
                );
        } else {
            let at = spec
                .get("affinity")
                .get("nodeAffinity")
                .get("requiredDuringSchedulingIgnoredDuringExecution")
                .get("nodeSelectorTerms");
            for (i, was) in old_terms.as_array().into_iter().flatten().enumerate() {
                let term = at.index(i);
                if !only_adds(term.value, was) {
                    let shown = internal::shown("NodeSelectorTerm", term.value);
                    term.invalid_as(shown, "only additions are allowed (no mutations or deletions)");
                }
            }
        }
        restore("affinity");
    }
}
