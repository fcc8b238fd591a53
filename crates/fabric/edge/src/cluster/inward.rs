//! What the cluster says of an object, as it is said of the object here. Pure.

use kinds::names;
use serde_json::Value;

/// Kinds of which this server itself keeps the status: two who both know it would never agree.
const KEPT_HERE: [&str; 5] = [
    "core/namespaces",
    "core/resourcequotas",
    "apiextensions.k8s.io/customresourcedefinitions",
    "admissionregistration.k8s.io/validatingadmissionpolicies",
    "apiregistration.k8s.io/apiservices",
];

/// What an object of the cluster has to say to those here.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shown {
    /// Null if it has none.
    pub status: Value,
    pub generation: i64,
}

impl Shown {
    pub fn read(value: &mut Value) -> Self {
        Self {
            status: value["status"].take(),
            generation: value["metadata"]["generation"].as_i64().unwrap_or_default(),
        }
    }
}

/// Brings an object of this edge's up to what the cluster shows of it. False if it says all that already.
///
/// Generations count what was written on each side for itself. What the cluster has observed is the object of here only when it has
/// the latest (`in_place`) and has looked at that; otherwise it is one before.
pub fn reflect(collection: &str, local: &mut Value, shown: &Shown, in_place: bool) -> bool {
    if KEPT_HERE.contains(&collection) {
        return false;
    }
    let generation = local["metadata"]["generation"].as_i64().unwrap_or(1);
    let observed = |seen: i64| if in_place && seen >= shown.generation { generation } else { (generation - 1).max(0) };
    let mut status = shown.status.clone();
    translate(&mut status, &observed);
    for condition in status.get_mut("conditions").and_then(Value::as_array_mut).into_iter().flatten() {
        translate(condition, &observed);
    }
    let Some(object) = local.as_object_mut() else { return false };
    let before = object.get("status").unwrap_or(&Value::Null);
    if *before == status {
        return false;
    }
    match status.is_null() {
        true => object.remove("status"),
        false => object.insert("status".into(), status),
    };
    true
}

fn translate(value: &mut Value, observed: &impl Fn(i64) -> i64) {
    if let Some(field) = value.get_mut("observedGeneration")
        && let Some(seen) = field.as_i64()
    {
        *field = observed(seen).into();
    }
}

/// Notes on an object of this edge's why the cluster refused it, or that it does not; and whose changes were taken back, if that is
/// known. False if it says so already.
pub fn note(local: &mut Value, refused: Option<&str>, overruled: Option<Option<&str>>) -> bool {
    let before = local["metadata"]["annotations"].clone();
    for (name, said) in [(names::REFUSED, Some(refused)), (names::OVERRULED, overruled)] {
        let Some(metadata) = local["metadata"].as_object_mut() else { return false };
        let annotations = metadata.entry("annotations").or_insert_with(|| Value::Object(Default::default()));
        let Some(annotations) = annotations.as_object_mut() else { return false };
        match said {
            Some(Some(text)) => drop(annotations.insert(name.to_owned(), short(text).into())),
            Some(None) => drop(annotations.remove(name)),
            None => {}
        }
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
    local["metadata"]["annotations"] != before
}

/// Long enough for any message that a person reads.
fn short(text: &str) -> String {
    text.chars().take(1000).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_status_is_the_clusters_and_the_generation_ours() {
        let shown = |seen: i64| Shown {
            status: json!({"observedGeneration": seen, "replicas": 2, "conditions": [{"type": "A", "observedGeneration": seen}]}),
            generation: 7,
        };
        for (seen, in_place, expected) in [(7, true, 3), (6, true, 2), (7, false, 2)] {
            let mut local = json!({"metadata": {"generation": 3}});
            assert!(reflect("apps/deployments", &mut local, &shown(seen), in_place));
            assert_eq!(local["status"]["observedGeneration"], expected);
            assert_eq!(local["status"]["conditions"][0]["observedGeneration"], expected);
            assert!(!reflect("apps/deployments", &mut local, &shown(seen), in_place), "once");
            assert!(reflect("apps/deployments", &mut local, &Shown::default(), in_place));
            assert_eq!(local, json!({"metadata": {"generation": 3}}));
        }
        assert!(!reflect("core/namespaces", &mut json!({}), &shown(7), true));
    }

    #[test]
    fn notes_come_and_go() {
        let plain = json!({"metadata": {"name": "a"}});
        let mut local = plain.clone();
        assert!(note(&mut local, Some("no"), None) && !note(&mut local, Some("no"), None));
        assert_eq!(local["metadata"]["annotations"], json!({names::REFUSED: "no"}));
        assert!(note(&mut local, None, Some(Some("theirs"))));
        assert!(!note(&mut local, None, None), "what is not known stays");
        assert!(note(&mut local, None, Some(None)));
        assert_eq!(local, plain);
        assert!(!note(&mut local, None, None));
        assert_eq!(local, plain);
    }
}
