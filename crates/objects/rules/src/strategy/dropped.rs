//! Fields of features that are off in the version we serve: a client may send them, and they are left out.
//!
//! An object that has one already keeps it, as it was written when the feature was on. What our own node and controllers
//! can do is not off here, though it is upstream: `stopSignal`, and `maxUnavailable` of StatefulSets.

use schema::catalogue::Resource;
use serde_json::Value;

use super::warnings::template_path;
use crate::defaults::fields::at;

/// A way into an object; `*` stands for every item of a list.
type Path = &'static [&'static str];

const OF_PODS: &[Path] = &[
    &["volumes", "*", "projected", "sources", "*", "clusterTrustBundle"],
    &["volumes", "*", "projected", "sources", "*", "podCertificate"],
    &["schedulingGroup"],
];

pub(super) fn leave_out(resource: &Resource, obj: &mut Value, old: Option<&Value>) {
    let kind = (&*resource.group, &*resource.kind);
    let pod: Option<&[&str]> = match kind {
        ("", "Pod") => Some(&[]),
        _ => template_path(kind),
    };
    if let Some(way) = pod {
        let spec = [way, &["spec"]].concat();
        leave_out_of(OF_PODS, obj, old, &spec);
    }
    let (way, paths): (&[&str], &[Path]) = match kind {
        // A new node may say so, and is warned.
        ("", "Node") if old.is_some() => (&["spec"], &[&["configSource"]]),
        ("coordination.k8s.io", "Lease") => (&["spec"], &[&["strategy"], &["preferredHolder"]]),
        ("storage.k8s.io", "CSIDriver") => (&["spec"], &[&["preventPodSchedulingIfMissing"]]),
        // A source in another namespace counts for nothing, not only its namespace.
        ("", "PersistentVolumeClaim")
            if at(obj, &["spec", "dataSourceRef", "namespace"])
                .and_then(Value::as_str)
                .is_some_and(|n| !n.is_empty()) =>
        {
            (&["spec"], &[&["dataSourceRef"]])
        }
        _ => return,
    };
    leave_out_of(paths, obj, old, way);
}

fn leave_out_of(paths: &[Path], obj: &mut Value, old: Option<&Value>, way: &[&str]) {
    let before = old.and_then(|old| at(old, way));
    let mut within = Some(obj);
    for step in way {
        within = within.and_then(|value| value.get_mut(*step));
    }
    let Some(within) = within else { return };
    for path in paths {
        if has(within, path) && !before.is_some_and(|before| has(before, path)) {
            remove(within, path);
        }
    }
}

fn has(value: &Value, path: &[&str]) -> bool {
    match path {
        [] => !value.is_null(),
        ["*", rest @ ..] => value.as_array().is_some_and(|items| items.iter().any(|item| has(item, rest))),
        [key, rest @ ..] => value.get(*key).is_some_and(|inner| has(inner, rest)),
    }
}

fn remove(value: &mut Value, path: &[&str]) {
    match path {
        [] => {}
        ["*", rest @ ..] => value.as_array_mut().into_iter().flatten().for_each(|item| remove(item, rest)),
        [key] => {
            if let Some(map) = value.as_object_mut() {
                map.remove(*key);
            }
        }
        [key, rest @ ..] => {
            if let Some(inner) = value.get_mut(*key) {
                remove(inner, rest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn left_out_unless_it_was_there() {
        let path: &[Path] = &[&["volumes", "*", "projected", "sources", "*", "clusterTrustBundle"]];
        let with = json!({"spec": {"volumes": [{"projected": {"sources": [{"clusterTrustBundle": {"path": "a"}}]}}]}});
        let mut new = with.clone();
        leave_out_of(path, &mut new, Some(&with), &["spec"]);
        assert_eq!(new, with);
        leave_out_of(path, &mut new, None, &["spec"]);
        assert_eq!(new, json!({"spec": {"volumes": [{"projected": {"sources": [{}]}}]}}));
    }
}
