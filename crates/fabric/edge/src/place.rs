//! How what the center sent and what is here become one object. Pure.
//!
//! The center's fields win. Status, and the labels, annotations, finalizers and owners that the center never sent, are the
//! edge's and stay; what the center sent before and sends no more goes.

use std::collections::BTreeSet;

use kinds::{ObjectKey, names};
use serde_json::{Map, Value};

use crate::held::Held;

/// Fields that are the edge's to fill in as long as the center leaves them out: which node, which volume.
const LOCAL: &[(&str, &[&str])] = &[
    ("core/pods", &["/spec/nodeName", "/spec/ephemeralContainers"]),
    ("core/persistentvolumeclaims", &["/spec/volumeName"]),
    ("core/persistentvolumes", &["/spec/claimRef"]),
    ("core/serviceaccounts", &["/secrets"]),
];

/// The object to be, and what to remember of it. `existing` is what is here, `before` what was remembered of it.
pub fn place(
    key: &ObjectKey<'_>,
    mut content: Value,
    existing: Option<&Value>,
    before: Option<&Held>,
) -> (Value, Held) {
    if !content["metadata"].is_object() {
        content["metadata"] = Value::Object(Map::new());
    }
    // Nothing of another server's: what the projection leaves out is left out here too, whoever made it.
    for field in ["uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "selfLink"] {
        content["metadata"].as_object_mut().map(|metadata| metadata.remove(field));
    }
    if let Some(object) = content.as_object_mut() {
        object.remove("status");
    }
    let metadata = &content["metadata"];
    let held = Held {
        source: metadata["annotations"][names::SOURCE].as_str().unwrap_or_default().to_owned(),
        labels: keys(&metadata["labels"], names::PROJECTED),
        annotations: keys(&metadata["annotations"], names::SOURCE),
        finalizers: strings(&metadata["finalizers"]).collect(),
        adopted: before.map_or(existing.is_some(), |before| before.adopted),
        foreign: false,
        reported: before.and_then(|before| before.reported),
        hash: 0,
        is_autoscaled: false,
    };
    if let Some(existing) = existing {
        keep_local(key, &mut content, existing, before.unwrap_or(&Held::default()));
    }
    (content, held)
}

fn keep_local(key: &ObjectKey<'_>, content: &mut Value, existing: &Value, before: &Held) {
    let there = &existing["metadata"];
    for (field, from_center, always) in
        [("labels", &before.labels, names::PROJECTED), ("annotations", &before.annotations, names::SOURCE)]
    {
        let local = there[field].as_object().into_iter().flatten();
        for (name, value) in local.filter(|(name, _)| !from_center.contains(*name) && *name != always) {
            let map = &mut content["metadata"][field];
            if !map.is_object() {
                *map = Value::Object(Map::new());
            }
            if let Some(map) = map.as_object_mut() {
                map.entry(name).or_insert_with(|| value.clone());
            }
        }
    }
    let mut finalizers: Vec<String> = strings(&content["metadata"]["finalizers"]).collect();
    for local in strings(&there["finalizers"]).filter(|name| !before.finalizers.contains(name)) {
        if !finalizers.contains(&local) {
            finalizers.push(local);
        }
    }
    if !finalizers.is_empty() {
        content["metadata"]["finalizers"] = finalizers.into();
    }
    if let Some(owners) = there.get("ownerReferences") {
        content["metadata"]["ownerReferences"] = owners.clone();
    }
    let fields = LOCAL.iter().filter(|(collection, _)| *collection == key.collection).flat_map(|(_, fields)| *fields);
    for field in fields {
        if content.pointer(field).is_none_or(Value::is_null)
            && let Some(value) = existing.pointer(field)
            && let Some((parent, name)) = field.rsplit_once('/')
            && let Some(parent) = content.pointer_mut(parent).and_then(Value::as_object_mut)
        {
            parent.insert(name.to_owned(), value.clone());
        }
    }
    // What an autoscaler of this edge decided stays, whatever the center sends.
    if before.is_autoscaled
        && let Some(replicas) = existing.pointer("/spec/replicas").filter(|replicas| replicas.is_number())
        && let Some(spec) = content.get_mut("spec").and_then(Value::as_object_mut)
    {
        spec.insert("replicas".to_owned(), replicas.clone());
    }
}

/// An object without what the center had put on it: what is left when the center lets go of it. Its fields stay as they are.
pub fn let_go(mut existing: Value, held: &Held) -> Value {
    let Some(metadata) = existing["metadata"].as_object_mut() else { return existing };
    for (field, from_center, always) in
        [("labels", &held.labels, names::PROJECTED), ("annotations", &held.annotations, names::SOURCE)]
    {
        if let Some(map) = metadata.get_mut(field).and_then(Value::as_object_mut) {
            map.retain(|name, _| !from_center.contains(name) && name != always);
            if map.is_empty() {
                metadata.remove(field);
            }
        }
    }
    release(metadata, held);
    existing
}

/// Whether the center wants no more than that the object is there.
pub fn is_create_only(sent: &Value) -> bool {
    sent["metadata"]["annotations"][names::CREATE_ONLY] == "true"
}

/// Whether a Namespace may be had only by a workspace alone.
pub fn is_exclusive(sent: &Value) -> bool {
    sent["metadata"]["annotations"][names::EXCLUSIVE] == "true"
}

/// Whether a Namespace only has to exist: nothing is said of it but its name and whose it is.
pub fn only_has_to_exist(sent: &Value) -> bool {
    let only = |field: &str, ours: &[&str]| {
        sent["metadata"][field].as_object().is_none_or(|all| all.keys().all(|name| ours.contains(&name.as_str())))
    };
    sent.get("spec").is_none()
        && only("labels", &[names::PROJECTED])
        && only("annotations", &[names::SOURCE, names::EXCLUSIVE])
}

pub fn source_of(sent: &Value) -> String {
    sent["metadata"]["annotations"][names::SOURCE].as_str().unwrap_or_default().to_owned()
}

/// Whether the center said that the object stays when it takes its hand off it.
pub fn is_orphaned(existing: &Value, held: &Held) -> bool {
    held.annotations.contains(names::ORPHAN) && existing["metadata"]["annotations"][names::ORPHAN] == "true"
}

/// An object as the edge's own: as it is, but for what says that it is the center's.
pub fn orphaned(mut existing: Value) -> Value {
    for (field, marks) in [
        ("labels", &[names::PROJECTED][..]),
        ("annotations", &[names::SOURCE, names::ORPHAN, names::CREATE_ONLY, names::OFFLINE_WRITES]),
    ] {
        if let Some(map) = existing["metadata"][field].as_object_mut() {
            map.retain(|name, _| !marks.contains(&name.as_str()));
        }
        if existing["metadata"][field].as_object().is_some_and(Map::is_empty)
            && let Some(metadata) = existing["metadata"].as_object_mut()
        {
            metadata.remove(field);
        }
    }
    existing
}

/// A Namespace that the center took its hand off and that stays because this edge's users have objects in it.
pub fn left_behind(existing: Value, held: &Held) -> Value {
    let mut value = let_go(existing, held);
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        let annotations = metadata.entry("annotations").or_insert_with(|| Value::Object(Map::new()));
        annotations[names::LEFT_BY] = held.source.as_str().into();
    }
    value
}

/// Whether a Namespace is one that this workspace had before, and that stayed because of what this edge's users had in
/// it.
pub fn was_left_by(existing: &Value, source: &str) -> bool {
    !source.is_empty() && existing["metadata"]["annotations"][names::LEFT_BY] == source
}

/// Whether somebody on this edge made an object that nobody else would miss: no controller makes it again, and no
/// server makes it for itself.
pub fn is_users_own(key: &ObjectKey<'_>, object: &Value) -> bool {
    let metadata = &object["metadata"];
    let by_itself = match key.collection {
        "core/serviceaccounts" => key.name == "default",
        "core/configmaps" => key.name == "kube-root-ca.crt",
        "core/secrets" => object["type"] == "kubernetes.io/service-account-token",
        // What a StatefulSet claims has no owner, so that it outlives the set; it goes with the namespace all the same.
        "core/persistentvolumeclaims" => {
            let number = key.name.rsplit('-').next().unwrap_or_default();
            let labelled = metadata["labels"].as_object().is_some_and(|labels| !labels.is_empty());
            labelled && !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit())
        }
        "core/endpoints" | "core/events" | "events.k8s.io/events" | "discovery.k8s.io/endpointslices" => true,
        collection => collection.starts_with("coordination.k8s.io/") || collection.starts_with("metrics.k8s.io/"),
    };
    let owned = metadata["ownerReferences"].as_array().is_some_and(|owners| !owners.is_empty());
    !by_itself && !owned && metadata["deletionTimestamp"].is_null()
}

/// An object that only the edge's own finalizers still hold.
pub fn released(mut existing: Value, held: &Held) -> Value {
    if let Some(metadata) = existing["metadata"].as_object_mut() {
        release(metadata, held);
    }
    existing
}

fn release(metadata: &mut Map<String, Value>, held: &Held) {
    if let Some(list) = metadata.get_mut("finalizers").and_then(Value::as_array_mut) {
        list.retain(|name| name.as_str().is_none_or(|name| !held.finalizers.contains(name)));
        if list.is_empty() {
            metadata.remove("finalizers");
        }
    }
}

/// Namespaces that every server has.
pub fn is_everywhere(namespace: &str) -> bool {
    matches!(namespace, "default" | "kube-node-lease" | "kube-public" | "kube-system")
}

/// Whether the center may take over an object that is here already: only what every server makes for itself. Anything else
/// of the same name belongs to this edge.
pub fn may_adopt(key: &ObjectKey<'_>, existing: &Value) -> Result<(), String> {
    if existing["metadata"]["deletionTimestamp"].is_string() {
        return Err(format!("the former {} is still being deleted here", key.name));
    }
    let everywhere = match key.collection {
        "core/namespaces" => is_everywhere(key.name),
        "core/serviceaccounts" => key.name == "default",
        "scheduling.k8s.io/priorityclasses" => key.name.starts_with("system-"),
        collection if collection.starts_with("rbac.authorization.k8s.io/") => {
            existing["metadata"]["labels"]["kubernetes.io/bootstrapping"].is_string()
        }
        _ => false,
    };
    match everywhere {
        true => Ok(()),
        false => Err(format!(
            "{} was made on this edge and belongs to it: it stays as it is until one of the two is renamed or deleted",
            key.to_string().replace("//", "/")
        )),
    }
}

fn keys(map: &Value, but: &str) -> BTreeSet<String> {
    map.as_object().into_iter().flatten().map(|(name, _)| name.clone()).filter(|name| name != but).collect()
}

fn strings(list: &Value) -> impl Iterator<Item = String> {
    list.as_array().into_iter().flatten().filter_map(|one| one.as_str().map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const KEY: ObjectKey<'_> = ObjectKey { collection: "core/pods", namespace: "shop", name: "a" };

    type Names = BTreeSet<u8>;

    fn content(labels: &Names, finalizers: &Names, data: u8) -> Value {
        let map = |names: &Names| names.iter().map(|n| (format!("l{n}"), json!(data))).collect::<Map<_, _>>();
        let list: Vec<String> = finalizers.iter().map(|n| format!("f{n}")).collect();
        let mut annotations = map(labels);
        annotations.insert(names::SOURCE.into(), "root:shop".into());
        let mut value = json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a", "namespace": "shop",
            "labels": map(labels), "annotations": annotations}, "spec": {"data": data}});
        value["metadata"]["labels"][names::PROJECTED] = "yes".into();
        if !list.is_empty() {
            value["metadata"]["finalizers"] = list.into();
        }
        value
    }

    /// What clients and controllers on the edge do to it.
    fn local(mut value: Value, names: &Names) -> Value {
        let mut finalizers: Vec<String> = strings(&value["metadata"]["finalizers"]).collect();
        for n in names {
            value["metadata"]["labels"][format!("local{n}")] = "x".into();
            value["metadata"]["annotations"][format!("local{n}")] = "x".into();
            finalizers.push(format!("local{n}"));
        }
        value["metadata"]["finalizers"] = finalizers.into();
        value["metadata"]["uid"] = "u".into();
        value["status"] = json!({"phase": "Running"});
        value["spec"]["nodeName"] = "n".into();
        value
    }

    fn some() -> impl Strategy<Value = Names> {
        proptest::collection::btree_set(0u8..6, 0..4)
    }

    proptest! {
        #[test]
        fn twice_is_once(labels in some(), finalizers in some(), mine in some(), data: u8) {
            let (first, held) = place(&KEY, content(&labels, &finalizers, data), None, None);
            let mut there = local(first, &mine);
            let (once, again) = place(&KEY, content(&labels, &finalizers, data), Some(&there), Some(&held));
            prop_assert_eq!(&again, &held);
            there.as_object_mut().unwrap().remove("status");
            there["metadata"].as_object_mut().unwrap().remove("uid");
            if there["metadata"]["finalizers"] == json!([]) {
                there["metadata"].as_object_mut().unwrap().remove("finalizers");
            }
            prop_assert_eq!(&once, &there);
            let (twice, _) = place(&KEY, content(&labels, &finalizers, data), Some(&once), Some(&again));
            prop_assert_eq!(twice, once);
        }

        #[test]
        fn the_centers_part_follows_the_center_and_the_rest_stays(
            a in some(), fa in some(), b in some(), fb in some(), mine in some(), data: u8,
        ) {
            let (first, held) = place(&KEY, content(&a, &fa, 1), None, None);
            let there = local(first, &mine);
            let (now, held) = place(&KEY, content(&b, &fb, data), Some(&there), Some(&held));
            let expected = local(content(&b, &fb, data), &mine);
            for field in ["labels", "annotations"] {
                prop_assert_eq!(&now["metadata"][field], &expected["metadata"][field]);
            }
            let set = |v: &Value| strings(&v["metadata"]["finalizers"]).collect::<BTreeSet<_>>();
            prop_assert_eq!(set(&now), set(&expected));
            prop_assert_eq!(&now["spec"], &expected["spec"]);
            prop_assert!(now.get("status").is_none());
            // And what the center lets go of keeps what is local only.
            let left = let_go(now, &held);
            let names = |v: &Value| keys(v, "");
            let local_only: BTreeSet<String> = mine.iter().map(|n| format!("local{n}")).collect();
            prop_assert_eq!(names(&left["metadata"]["labels"]), local_only.clone());
            prop_assert_eq!(names(&left["metadata"]["annotations"]), local_only.clone());
            prop_assert_eq!(set(&left), local_only);
        }
    }

    #[test]
    fn an_autoscaler_of_the_edge_decides_on_replicas() {
        let key = ObjectKey { collection: "apps/deployments", namespace: "shop", name: "web" };
        let sent = |replicas: i32| json!({"metadata": {"name": "web"}, "spec": {"replicas": replicas, "paused": true}});
        let there = json!({"metadata": {"name": "web"}, "spec": {"replicas": 7}});
        for (is_autoscaled, expected) in [(false, 2), (true, 7)] {
            let before = Held { is_autoscaled, ..Held::default() };
            let (placed, _) = place(&key, sent(2), Some(&there), Some(&before));
            assert_eq!(placed["spec"], json!({"replicas": expected, "paused": true}));
        }
        let (first, _) = place(&key, sent(2), None, None);
        assert_eq!(first["spec"]["replicas"], 2, "the first number is the center's");
    }

    #[test]
    fn nothing_of_the_centers_own_is_kept() {
        let sent =
            json!({"metadata": {"name": "a", "uid": "theirs", "resourceVersion": "7", "generation": 9}, "status": {}});
        let (placed, held) = place(&KEY, sent, None, None);
        assert_eq!(placed, json!({"metadata": {"name": "a"}}));
        assert!(!held.adopted);
    }

    #[test]
    fn only_what_every_server_makes_is_taken_over() {
        let plain = json!({"metadata": {}});
        let role = json!({"metadata": {"labels": {"kubernetes.io/bootstrapping": "rbac-defaults"}}});
        let going = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
        for (key, existing, may) in [
            ("core/namespaces//default", &plain, true),
            ("core/namespaces//shop", &plain, false),
            ("core/namespaces//default", &going, false),
            ("core/serviceaccounts/shop/default", &plain, true),
            ("core/serviceaccounts/shop/web", &plain, false),
            ("core/configmaps/default/default", &plain, false),
            ("rbac.authorization.k8s.io/clusterroles//view", &role, true),
            ("rbac.authorization.k8s.io/clusterroles//view", &plain, false),
        ] {
            assert_eq!(may_adopt(&ObjectKey::parse(key).unwrap(), existing).is_ok(), may, "{key}");
        }
        assert!(only_has_to_exist(&json!({"metadata": {"name": "a", "labels": {names::PROJECTED: "yes"}}})));
        assert!(!only_has_to_exist(&json!({"metadata": {"name": "a", "labels": {"b": "c"}}})));
        assert!(!only_has_to_exist(&json!({"metadata": {"name": "a"}, "spec": {}})));
        let (_, held) =
            place(&ObjectKey::parse("core/namespaces//default").unwrap(), plain.clone(), Some(&plain), None);
        assert!(held.adopted);
    }
    #[test]
    fn users_own_is_what_nobody_makes_again() {
        let plain = json!({"metadata": {}});
        let owned = json!({"metadata": {"ownerReferences": [{"controller": true}]}});
        let labelled = json!({"metadata": {"labels": {"app": "db"}}});
        let token = json!({"metadata": {}, "type": "kubernetes.io/service-account-token"});
        let going = json!({"metadata": {"deletionTimestamp": "t"}});
        for (key, object, own) in [
            ("core/configmaps/shop/menu", &plain, true),
            ("core/configmaps/shop/menu", &going, false),
            ("core/configmaps/shop/kube-root-ca.crt", &plain, false),
            ("core/serviceaccounts/shop/default", &plain, false),
            ("core/serviceaccounts/shop/robot", &plain, true),
            ("core/secrets/shop/pw", &plain, true),
            ("core/secrets/shop/robot-token", &token, false),
            ("core/pods/shop/web-1", &owned, false),
            ("core/pods/shop/debug", &plain, true),
            ("apps/replicasets/shop/web", &owned, false),
            ("core/endpoints/shop/web", &plain, false),
            ("core/events/shop/web", &plain, false),
            ("coordination.k8s.io/leases/shop/lead", &plain, false),
            ("core/persistentvolumeclaims/shop/data-db-0", &labelled, false),
            ("core/persistentvolumeclaims/shop/data-db-0", &plain, true),
            ("core/persistentvolumeclaims/shop/photos", &labelled, true),
        ] {
            assert_eq!(is_users_own(&ObjectKey::parse(key).unwrap(), object), own, "{key}");
        }
    }
}
