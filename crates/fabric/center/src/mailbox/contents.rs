//! What a mailbox shows of one object. Pure.

use bytes::Bytes;
use kinds::{ObjectKey, names};
use link::entry_hash;
use serde_json::Value;

/// What an edge said of an object.
#[derive(Debug, Default, PartialEq)]
pub struct Said {
    /// How it fares, of one that the center sent.
    pub status: Option<Value>,
    /// All of it, of one that the edge made itself.
    pub object: Option<Value>,
}

impl Said {
    pub fn read(state: &[u8]) -> Self {
        let mut state: Value = serde_json::from_slice(state).unwrap_or_default();
        let mut take = |field: &str| state.get_mut(field).map(Value::take).filter(|value| !value.is_null());
        Self { status: take("status"), object: take("object").filter(Value::is_object) }
    }
}

/// An object in a mailbox.
#[derive(Debug, PartialEq)]
pub enum Shown {
    Nothing,
    /// What the edge shall hold, and how it says that it fares; nothing if it has not said.
    Placed(Value, Option<Value>),
    /// What the edge made.
    Upsynced(Value),
}

/// What came up beats what goes down.
pub fn shown(key: &ObjectKey<'_>, desired: Option<&Bytes>, said: Option<Said>) -> Shown {
    let Said { status, object } = said.unwrap_or_default();
    if let Some(object) = object.filter(|object| calls_itself(object, key)) {
        return Shown::Upsynced(marked(object));
    }
    match desired.and_then(|content| serde_json::from_slice(content).ok()) {
        Some(value) => Shown::Placed(value, status),
        None => Shown::Nothing,
    }
}

/// An edge says of an object what it likes, but not under another one's name.
fn calls_itself(object: &Value, key: &ObjectKey<'_>) -> bool {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    text("/metadata/name") == key.name && text("/metadata/namespace") == key.namespace && !key.name.contains('/')
}

fn marked(mut object: Value) -> Value {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for field in ["resourceVersion", "managedFields", "selfLink"] {
            metadata.remove(field);
        }
        let labels = metadata.entry("labels").or_insert_with(|| Value::Object(Default::default()));
        if !labels.is_object() {
            *labels = Value::Object(Default::default());
        }
        labels[names::UPSYNCED] = "yes".into();
    }
    object
}

/// Points owners that are placed objects to these as they are shown: `uid_of` names them.
pub fn point_to_owners(object: &mut Value, uid_of: impl Fn(&str, &str, &str) -> Option<String>) {
    let owners = object.pointer_mut("/metadata/ownerReferences").and_then(Value::as_array_mut);
    for owner in owners.into_iter().flatten() {
        let text = |field: &str| owner.get(field).and_then(Value::as_str).unwrap_or_default();
        if let Some(uid) = uid_of(text("apiVersion"), text("kind"), text("name")) {
            owner["uid"] = uid.into();
        }
    }
}

/// The uid of an object as its mailbox shows it: always the same, however often the mailbox is made.
pub fn uid(edge: &str, key: &str) -> String {
    let hash = entry_hash(&format!("{edge}/{key}"), b"mailbox");
    // The bits that say that this is one of nobody's usual kinds.
    let hash = hash & !(0xf << 76) & !(0x3 << 62) | (0x8 << 76) | (0x2 << 62);
    let hex = format!("{hash:032x}");
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const KEY: ObjectKey<'_> = ObjectKey { collection: "core/configmaps", namespace: "shop", name: "a" };

    #[test]
    fn what_came_up_beats_what_goes_down() {
        let desired = Bytes::from(json!({"metadata": {"name": "a"}, "data": {"k": "center"}}).to_string());
        let whole =
            json!({"object": {"metadata": {"name": "a", "namespace": "shop", "resourceVersion": "7", "uid": "u"}}});
        let other = json!({"object": {"metadata": {"name": "b", "namespace": "shop"}}});
        let fares = json!({"status": {"phase": "Active"}});
        let placed =
            |status: Option<Value>| Shown::Placed(json!({"metadata": {"name": "a"}, "data": {"k": "center"}}), status);
        let up = || {
            Shown::Upsynced(json!({"metadata": {"name": "a", "namespace": "shop", "uid": "u",
                "labels": {"edge.kcp.io/upsynced": "yes"}}}))
        };
        for (desired, state, want) in [
            (None, None, Shown::Nothing),
            (None, Some(&fares), Shown::Nothing),
            (Some(&desired), None, placed(None)),
            (Some(&desired), Some(&fares), placed(Some(json!({"phase": "Active"})))),
            (Some(&desired), Some(&json!({})), placed(None)),
            (Some(&desired), Some(&json!(7)), placed(None)),
            (Some(&desired), Some(&whole), up()),
            (None, Some(&whole), up()),
            (None, Some(&other), Shown::Nothing),
            (Some(&desired), Some(&other), placed(None)),
        ] {
            let said = state.map(|state| Said::read(state.to_string().as_bytes()));
            assert_eq!(shown(&KEY, desired, said), want, "{state:?}");
        }
    }

    #[test]
    fn uids_are_always_the_same_and_each_its_own() {
        let one = uid("u", "core/configmaps/shop/a");
        assert_eq!(one, uid("u", "core/configmaps/shop/a"));
        assert_ne!(one, uid("v", "core/configmaps/shop/a"));
        assert_ne!(one, uid("u", "core/configmaps/shop/b"));
        let parts: Vec<&str> = one.split('-').collect();
        assert_eq!(parts.iter().map(|part| part.len()).collect::<Vec<_>>(), [8, 4, 4, 4, 12]);
        assert!(parts[2].starts_with('8') && matches!(&parts[3][..1], "8" | "9" | "a" | "b"), "{one}");
    }

    #[test]
    fn owners_are_those_that_are_shown() {
        let mut set = json!({"metadata": {"ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "edge's"},
            {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "kept"}]}});
        point_to_owners(&mut set, |_, kind, name| (kind == "Deployment").then(|| format!("shown {name}")));
        let owners = &set["metadata"]["ownerReferences"];
        assert_eq!((owners[0]["uid"].as_str(), owners[1]["uid"].as_str()), (Some("shown web"), Some("kept")));
        point_to_owners(&mut json!({"metadata": {"ownerReferences": [1, "x"]}}), |_, _, _| None);
    }
}
