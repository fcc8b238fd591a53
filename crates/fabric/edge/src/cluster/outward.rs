//! An object of this edge as it is applied to a cluster: what the center sent, and nothing that another server has to say. Pure.

use kinds::{EdgeId, ObjectKey, names};
use serde_json::{Map, Value, json};

use super::found::{ADOPTED, MADE};
use crate::{held::Held, owner::part::center_part};

/// Kinds that are about edges themselves: they stay here.
const OWN_GROUPS: [&str; 6] =
    ["apis.kcp.io", "edge.kcp.io", "edge.selvedge.dev", "scheduling.kcp.io", "tenancy.kcp.io", "workload.kcp.io"];

/// Labels by which a Job finds its Pods unless it is told otherwise: they name the uid of the Job of another server.
const OF_A_JOB: [&str; 4] =
    ["controller-uid", "job-name", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"];

pub fn is_for_clusters(key: &ObjectKey<'_>) -> bool {
    let group = key.collection.split('/').next().unwrap_or_default();
    !OWN_GROUPS.contains(&group)
}

/// What is applied, but for the mark.
pub fn outward(key: &ObjectKey<'_>, held: &Held, value: &Value) -> Value {
    let mut part = center_part(key.collection, held, value);
    match key.collection {
        "core/services" => forget_addresses(&mut part),
        "batch/jobs" if part["spec"]["manualSelector"] != true => forget_selector(&mut part),
        _ => {}
    }
    part
}

/// Addresses are given by the cluster. That there shall be none is the center's word.
fn forget_addresses(service: &mut Value) {
    let Some(spec) = service["spec"].as_object_mut() else { return };
    if spec.get("clusterIP").is_none_or(|ip| ip != "None") {
        for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "healthCheckNodePort"] {
            spec.remove(field);
        }
    }
}

fn forget_selector(job: &mut Value) {
    if let Some(spec) = job["spec"].as_object_mut() {
        spec.remove("selector");
    }
    for labels in ["/metadata/labels", "/spec/template/metadata/labels"] {
        if let Some(labels) = job.pointer_mut(labels).and_then(Value::as_object_mut) {
            labels.retain(|name, _| !OF_A_JOB.contains(&name.as_str()));
        }
    }
}

/// With the mark by which the edge knows it again.
pub fn marked(mut value: Value, edge: &EdgeId, adopted: bool) -> Value {
    let mark = if adopted { ADOPTED } else { MADE };
    for (field, name, said) in
        [("labels", names::DOWNSYNCED, mark.to_owned()), ("annotations", names::EDGE, edge.to_string())]
    {
        let all = &mut value["metadata"][field];
        if !all.is_object() {
            *all = Value::Object(Map::new());
        }
        all[name] = said.into();
    }
    value
}

/// Applied to the object of this uid or not at all: another one of its name may have come since. An empty one is that of a new object.
pub fn only(uid: &str, mut value: Value) -> Value {
    if !uid.is_empty() {
        value["metadata"]["uid"] = uid.into();
    }
    value
}

/// Nothing but a name: applied, it takes back what was applied before.
pub fn nothing(key: &ObjectKey<'_>, api_version: &str, kind: &str) -> Value {
    let mut value = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": key.name}});
    if !key.namespace.is_empty() {
        value["metadata"]["namespace"] = key.namespace.into();
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(key: &str, value: Value) -> Value {
        let held = Held { labels: ["app".to_owned(), "job-name".to_owned()].into(), ..Held::default() };
        outward(&ObjectKey::parse(key).unwrap(), &held, &value)
    }

    #[test]
    fn only_what_the_center_sent() {
        let value = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"}, "status": {"x": 1}, "metadata": {
            "name": "a", "namespace": "shop", "uid": "u", "resourceVersion": "7", "labels": {"app": "web", "local": "x"},
            "annotations": {names::SOURCE: "root:shop", names::REFUSED: "x"}, "managedFields": [{}], "finalizers": ["local"]}});
        let want = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"}, "metadata": {"name": "a",
            "namespace": "shop", "labels": {"app": "web"}, "annotations": {names::SOURCE: "root:shop"}}});
        assert_eq!(of("core/configmaps/shop/a", value), want);
        let mark = marked(want, &EdgeId::new("root", "florin"), false);
        assert_eq!(mark["metadata"]["labels"], json!({"app": "web", names::DOWNSYNCED: "yes"}));
        assert_eq!(mark["metadata"]["annotations"][names::EDGE], "root:florin");
        assert_eq!(
            marked(json!({}), &EdgeId::new("root", "f"), true)["metadata"]["labels"][names::DOWNSYNCED],
            "adopted"
        );
    }

    #[test]
    fn addresses_and_selectors_are_the_clusters() {
        let service = |ip: &str| json!({"spec": {"clusterIP": ip, "clusterIPs": [ip], "ports": [{"port": 80, "nodePort": 30001}]}});
        let kept = json!({"ports": [{"port": 80, "nodePort": 30001}]});
        assert_eq!(of("core/services/shop/a", service("10.0.0.7"))["spec"], kept);
        assert_eq!(of("core/services/shop/a", service("None"))["spec"], service("None")["spec"]);
        let job = json!({"metadata": {"labels": {"app": "x", "job-name": "j"}}, "spec": {"selector": {"matchLabels": {"controller-uid": "u"}},
            "template": {"metadata": {"labels": {"app": "x", "batch.kubernetes.io/controller-uid": "u"}}}}});
        let kept =
            json!({"metadata": {"labels": {"app": "x"}}, "spec": {"template": {"metadata": {"labels": {"app": "x"}}}}});
        assert_eq!(of("batch/jobs/shop/j", job), kept);
    }

    #[test]
    fn replicas_are_the_clusters_where_its_autoscaler_sets_them() {
        let web = json!({"metadata": {"name": "web"}, "spec": {"replicas": 3, "paused": true}});
        let key = ObjectKey::parse("apps/deployments/shop/web").unwrap();
        for (is_autoscaled, expected) in
            [(false, json!({"replicas": 3, "paused": true})), (true, json!({"paused": true}))]
        {
            let held = Held { is_autoscaled, ..Held::default() };
            assert_eq!(outward(&key, &held, &web)["spec"], expected);
        }
    }

    #[test]
    fn what_is_about_edges_stays() {
        for (key, goes) in [
            ("core/configmaps/shop/a", true),
            ("example.com/widgets/shop/a", true),
            ("edge.kcp.io/syncerconfigs//the-one", false),
            ("workload.kcp.io/synctargets//a", false),
        ] {
            assert_eq!(is_for_clusters(&ObjectKey::parse(key).unwrap()), goes, "{key}");
        }
    }
}
