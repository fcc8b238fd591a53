//! The status of a definition: which names it got, and whether it is served.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

/// What a create or update writes into the status before validation: nothing but the versions ever stored.
///
/// Golden rule of upstream: status is never taken from the request, and the storage version joins `storedVersions`.
pub fn prepare(new: &mut Value, old: Option<&Value>) {
    let storage = storage_version(new);
    let mut status = match old.and_then(|old| old.get("status")) {
        Some(status) => status.clone(),
        None => json!({ "acceptedNames": { "kind": "", "plural": "" }, "conditions": null, "storedVersions": null }),
    };
    if let (Some(storage), Some(status)) = (storage, status.as_object_mut()) {
        let stored = status.entry("storedVersions").or_insert(Value::Null);
        if !stored.is_array() {
            *stored = json!([]);
        }
        if let Some(list) = stored.as_array_mut()
            && !list.iter().any(|v| v.as_str() == Some(&storage))
        {
            list.push(storage.into());
        }
    }
    if let Some(map) = new.as_object_mut() {
        map.insert("status".to_owned(), status);
    }
}

fn storage_version(crd: &Value) -> Option<String> {
    let versions = crd.pointer("/spec/versions")?.as_array()?;
    let storage = versions.iter().find(|v| v.get("storage").and_then(Value::as_bool) == Some(true))?;
    storage.get("name").and_then(Value::as_str).map(str::to_owned)
}

/// The names that definitions have been given.
#[derive(Debug, Default)]
pub struct Taken {
    resources: BTreeSet<String>,
    kinds: BTreeSet<String>,
}

impl Taken {
    pub fn has(&self, name: &str, as_kind: bool) -> bool {
        if as_kind { self.kinds.contains(name) } else { self.resources.contains(name) }
    }
}

/// The names of these definitions, by their status.
pub fn names_of<'a>(definitions: impl IntoIterator<Item = &'a Value>) -> Taken {
    let mut taken = Taken::default();
    for other in definitions {
        let accepted = names(other, "/status/acceptedNames");
        taken.resources.extend(["plural", "singular"].iter().map(|key| accepted_text(&accepted, key)));
        taken.resources.extend(short_names(&accepted));
        taken.kinds.extend(["kind", "listKind"].iter().map(|key| accepted_text(&accepted, key)));
    }
    taken
}

/// Gives a definition its names and conditions, next to the other definitions of its group. `now` is RFC 3339.
///
/// Answers whether the status changed. A definition whose names are taken is `NamesAccepted: False` and not served.
pub fn accept<'a>(crd: &mut Value, others: impl IntoIterator<Item = &'a Value>, now: &str) -> bool {
    let group = text(crd, "/spec/group");
    let own = text(crd, "/metadata/name");
    let mine = |o: &&Value| text(o, "/spec/group") == group && text(o, "/metadata/name") != own;
    let taken = names_of(others.into_iter().filter(mine));
    accept_beside(crd, |name, as_kind| taken.has(name, as_kind), now)
}

/// The same where somebody knows which names are taken by others of the group: as that of a resource, or of a kind.
pub fn accept_beside(crd: &mut Value, taken: impl Fn(&str, bool) -> bool, now: &str) -> bool {
    let before = crd.get("status").cloned();
    let group = text(crd, "/spec/group");
    let requested = names(crd, "/spec/names");
    let mut accepted = names(crd, "/status/acceptedNames");
    let mut conflict: Option<(&str, String)> = None;
    for (key, reason, as_kind) in [
        ("plural", "PluralConflict", false),
        ("singular", "SingularConflict", false),
        ("shortNames", "ShortNamesConflict", false),
        ("kind", "KindConflict", true),
        ("listKind", "ListKindConflict", true),
    ] {
        match refused(key, &requested, &accepted, &|name| taken(name, as_kind)) {
            Some(message) => conflict = Some((reason, message)),
            None => copy(&mut accepted, &requested, key),
        }
    }
    copy(&mut accepted, &requested, "categories");
    write(crd, accepted, conflict, now);
    conformance(crd, &group, now);
    crd.get("status") != before.as_ref()
}

fn refused(key: &str, requested: &Value, accepted: &Value, taken: &dyn Fn(&str) -> bool) -> Option<String> {
    let in_use = |name: &String| format!("{} is already in use", schema::go::quoted(name));
    if key == "shortNames" {
        let have: BTreeSet<String> = short_names(accepted).into_iter().collect();
        let clashes: Vec<String> =
            short_names(requested).iter().filter(|n| !have.contains(*n) && taken(n)).map(in_use).collect();
        return match clashes.as_slice() {
            [] => None,
            [one] => Some(one.clone()),
            many => Some(format!("[{}]", many.join(", "))),
        };
    }
    let name = accepted_text(requested, key);
    (name != accepted_text(accepted, key) && taken(&name)).then(|| in_use(&name))
}

fn write(crd: &mut Value, accepted: Value, conflict: Option<(&str, String)>, now: &str) {
    let Some(map) = crd.as_object_mut() else { return };
    let status = map.entry("status").or_insert_with(|| json!({}));
    let Some(status) = status.as_object_mut() else { return };
    status.insert("acceptedNames".to_owned(), accepted);
    let fine = conflict.is_none();
    let (reason, message) = conflict.unwrap_or(("NoConflicts", "no conflicts found".to_owned()));
    set_condition(status, "NamesAccepted", fine, reason, &message, now);
    let established = condition(status, "Established").is_some_and(|c| c["status"] == "True");
    match (established, fine) {
        (true, _) => {}
        (false, true) => {
            let message = "the initial names have been accepted";
            set_condition(status, "Established", true, "InitialNamesAccepted", message, now);
        }
        (false, false) => {
            set_condition(status, "Established", false, "NotAccepted", "not all names are accepted", now);
        }
    }
}

/// Whether a definition in a group of the Kubernetes community says that it was approved.
fn conformance(crd: &mut Value, group: &str, now: &str) {
    if !["k8s.io", "kubernetes.io"].iter().any(|p| group == *p || group.ends_with(&format!(".{p}"))) {
        return;
    }
    let annotations = crd.pointer("/metadata/annotations");
    let annotation = annotations.and_then(|a| a.get("api-approved.kubernetes.io")).and_then(Value::as_str);
    let (ok, reason, message) = match annotation {
        Some(text) if text.starts_with("unapproved") => {
            (false, "UnapprovedAnnotation", format!("not approved: {}", schema::go::quoted(text)))
        }
        Some(text) if text.contains("://") => (true, "ApprovedAnnotation", format!("approved in {text}")),
        _ => return,
    };
    if let Some(status) = crd.get_mut("status").and_then(Value::as_object_mut) {
        set_condition(status, "KubernetesAPIApprovalPolicyConformant", ok, reason, &message, now);
    }
}

/// Marks a definition that is being deleted.
pub fn terminating(crd: &mut Value, reason: &str, message: &str, now: &str) {
    if let Some(status) = crd.get_mut("status").and_then(Value::as_object_mut) {
        set_condition(status, "Terminating", true, reason, message, now);
    }
}

fn condition<'a>(status: &'a Map<String, Value>, ty: &str) -> Option<&'a Value> {
    status.get("conditions")?.as_array()?.iter().find(|c| c.get("type").and_then(Value::as_str) == Some(ty))
}

fn set_condition(status: &mut Map<String, Value>, ty: &str, ok: bool, reason: &str, message: &str, now: &str) {
    let state = if ok { "True" } else { "False" };
    let since = condition(status, ty).filter(|c| c["status"] == state).and_then(|c| c["lastTransitionTime"].as_str());
    let fresh = json!({
        "type": ty, "status": state, "lastTransitionTime": since.unwrap_or(now), "reason": reason, "message": message,
    });
    let conditions = status.entry("conditions").or_insert(Value::Null);
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Some(list) = conditions.as_array_mut() else { return };
    match list.iter_mut().find(|c| c.get("type").and_then(Value::as_str) == Some(ty)) {
        Some(place) => *place = fresh,
        None => list.push(fresh),
    }
}

fn text(value: &Value, pointer: &str) -> String {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or("").to_owned()
}

fn names(value: &Value, pointer: &str) -> Value {
    value.pointer(pointer).filter(|n| n.is_object()).cloned().unwrap_or_else(|| json!({}))
}

fn accepted_text(names: &Value, key: &str) -> String {
    names.get(key).and_then(Value::as_str).unwrap_or("").to_owned()
}

fn short_names(names: &Value) -> Vec<String> {
    let list = names.get("shortNames").and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn copy(into: &mut Value, from: &Value, key: &str) {
    let Some(map) = into.as_object_mut() else { return };
    match from.get(key).filter(|v| !v.is_null()) {
        Some(value) => {
            map.insert(key.to_owned(), value.clone());
        }
        None => {
            map.remove(key);
        }
    }
}
