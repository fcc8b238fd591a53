//! What of a workspace can go to edges, and in which form. Pure.
//!
//! Not what belongs to a server itself: what it made for its own sake, what its controllers derive from other objects, and who it is.

use bytes::Bytes;
use kinds::{ObjectKey, names};
use serde_json::{Map, Value, json};

/// Every server has these namespaces, and what is in them is its own. `default` holds users' objects, so only the
/// Namespace itself stays.
const OWN_NAMESPACES: [&str; 3] = ["kube-system", "kube-public", "kube-node-lease"];

/// Groups of which nothing travels: they arrange the center, or a server's own affairs.
const OWN_GROUPS: [&str; 12] = [
    "apis.kcp.io",
    "tenancy.kcp.io",
    "workload.kcp.io",
    "scheduling.kcp.io",
    "edge.kcp.io",
    "edge.selvedge.dev",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "identity.selvedge.dev",
];

/// Collections of which nothing travels: nodes and what is theirs, what happened, what is counted or given out locally.
const OWN_COLLECTIONS: [&str; 11] = [
    "core/nodes",
    "core/events",
    "core/endpoints",
    "core/bindings",
    "storage.k8s.io/csinodes",
    "storage.k8s.io/volumeattachments",
    "storage.k8s.io/csistoragecapacities",
    "resource.k8s.io/resourceslices",
    "networking.k8s.io/ipaddresses",
    "internal.apiserver.k8s.io/storageversions",
    "storagemigration.k8s.io/storageversionmigrations",
];

/// What controllers on the edge make again from an owner that travels.
const DERIVED: [&str; 4] = ["core/pods", "apps/replicasets", "apps/controllerrevisions", "batch/jobs"];

/// Secrets of a server itself, and of helm where it is used: what helm remembers of a release is read where it was
/// installed.
const OWN_SECRETS: [&str; 3] =
    ["bootstrap.kubernetes.io/token", "kubernetes.io/service-account-token", "helm.sh/release.v1"];
/// What helm's records are called when it keeps them in ConfigMaps.
const HELM_RELEASE: &str = "sh.helm.release.v1.";

/// On how many edges an object runs: said at the center, of no meaning on any of them.
const EXECUTING_COUNT: &str = "kubestellar.io/executing-count";

/// What is at the center for the center's sake, unless it says that it is for edges only.
const ONLY_FOR_EDGES: &str = "apiregistration.k8s.io/apiservices";

/// Metadata that each server says for itself. Finalizers are settled where the object was made: nobody at the edge would.
const OWN_METADATA: [&str; 10] = [
    "uid",
    "resourceVersion",
    "ownerReferences",
    "managedFields",
    "selfLink",
    "creationTimestamp",
    "generation",
    "generateName",
    "finalizers",
    "deletionGracePeriodSeconds",
];

/// Whether such objects can be meant for edges at all; if not, they need not be looked at.
pub fn may_belong(key: &ObjectKey<'_>) -> bool {
    let group = key.collection.split('/').next().unwrap_or_default();
    let own_name = match key.collection {
        "core/namespaces" => key.name == "default" || OWN_NAMESPACES.contains(&key.name),
        "core/configmaps" => key.name == "kube-root-ca.crt",
        "core/serviceaccounts" => key.name == "default",
        "core/services" => (key.namespace, key.name) == ("default", "kubernetes"),
        "networking.k8s.io/servicecidrs" => key.name == "kubernetes",
        "scheduling.k8s.io/priorityclasses" => matches!(key.name, "system-cluster-critical" | "system-node-critical"),
        _ => false,
    };
    !own_name
        && !OWN_NAMESPACES.contains(&key.namespace)
        && !OWN_GROUPS.contains(&group)
        && !OWN_COLLECTIONS.contains(&key.collection)
        // No kind is called that; it is how servers name what they keep beside the objects.
        && !key.collection.contains("/_")
        // How the center's store names kinds of an export; on the link they have plain names.
        && !key.collection.contains(':')
}

/// The object as an edge shall hold it, as canonical JSON: equal objects have equal bytes. `None` if it is not for edges.
pub fn project(key: &ObjectKey<'_>, value: Value, workspace: &str) -> Option<Bytes> {
    encode(&project_value(key, value, workspace)?)
}

/// Canonical JSON.
pub fn encode(value: &Value) -> Option<Bytes> {
    serde_json::to_vec(value).ok().map(Bytes::from)
}

/// The same before it is written.
pub fn project_value(key: &ObjectKey<'_>, mut value: Value, workspace: &str) -> Option<Value> {
    if !may_belong(key) {
        return None;
    }
    let object = value.as_object_mut()?;
    let metadata = object.get_mut("metadata")?.as_object_mut()?;
    if metadata.contains_key("deletionTimestamp") {
        return None;
    }
    let label = |name: &str| metadata.get("labels").and_then(|labels| labels.get(name));
    if label("kubernetes.io/bootstrapping").is_some() {
        return None;
    }
    let annotation = |name: &str| metadata.get("annotations").and_then(|all| all.get(name));
    if key.collection == ONLY_FOR_EDGES && annotation(names::ONLY).is_none_or(|only| only != names::ONLY_EDGE) {
        return None;
    }
    if DERIVED.contains(&key.collection) && has_controller(metadata) {
        return None;
    }
    if annotation(names::ONLY).is_some_and(|only| only == names::ONLY_CENTER) {
        return None;
    }
    let is_helms = key.name.starts_with(HELM_RELEASE) && label("owner").is_some_and(|owner| owner == "helm");
    if key.collection == "core/configmaps" && is_helms {
        return None;
    }
    let secret = object.get("type").and_then(Value::as_str).unwrap_or_default();
    if key.collection == "core/secrets" && OWN_SECRETS.contains(&secret) {
        return None;
    }
    object.remove("status");
    let metadata = object.get_mut("metadata")?.as_object_mut()?;
    for field in OWN_METADATA {
        metadata.remove(field);
    }
    for field in ["labels", "annotations"] {
        if let Some(Value::Object(all)) = metadata.get_mut(field) {
            all.retain(|name, _| travels(name));
        }
    }
    if let Some(Value::Object(annotations)) = metadata.get_mut("annotations") {
        annotations.remove(names::EXCLUSIVE);
    }
    mark(&mut value, workspace);
    Some(value)
}

/// Whether a Namespace stays at the center with all that is in it: it is being deleted, or says so.
pub fn is_closed(namespace: &Value) -> bool {
    let metadata = &namespace["metadata"];
    metadata["deletionTimestamp"].is_string() || metadata["annotations"][names::ONLY] == names::ONLY_CENTER
}

/// Writes on an object that the center sends it, and from which workspace.
pub fn mark(value: &mut Value, workspace: &str) {
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        set(metadata, "labels", names::PROJECTED, "yes");
        set(metadata, "annotations", names::SOURCE, workspace);
    }
}

/// A Namespace of which only the existence matters.
pub fn bare_namespace(name: &str, workspace: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name,
        "labels": {names::PROJECTED: "yes"}, "annotations": {names::SOURCE: workspace}}})
}

/// Writes on an object what the edge has to know about it.
pub fn annotate(value: &mut Value, name: &str, text: &str) {
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        set(metadata, "annotations", name, text);
    }
}

fn has_controller(metadata: &Map<String, Value>) -> bool {
    let owners = metadata.get("ownerReferences").and_then(Value::as_array);
    owners.is_some_and(|owners| owners.iter().any(|owner| owner["controller"] == true))
}

/// What workspaces write on objects for themselves stays, and what the center has counted; what is said about edges goes along.
fn travels(name: &str) -> bool {
    if matches!(name, names::ONLY | names::EDGES | EXECUTING_COUNT) {
        return false;
    }
    let domain = name.split_once('/').map_or("", |(domain, _)| domain);
    domain == "edge.kcp.io" || !(domain == "kcp.io" || domain.ends_with(".kcp.io"))
}

fn set(metadata: &mut Map<String, Value>, field: &str, name: &str, value: &str) {
    let entry = metadata.entry(field).or_insert_with(|| Value::Object(Map::new()));
    if !entry.is_object() {
        *entry = Value::Object(Map::new());
    }
    entry[name] = value.into();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn projected(key: &str, value: Value) -> Option<Value> {
        let bytes = project(&ObjectKey::parse(key).unwrap(), value, "root:shop")?;
        Some(serde_json::from_slice(&bytes).unwrap())
    }

    #[test]
    fn what_a_server_says_for_itself_stays() {
        let value = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"}, "status": {"x": 1},
            "metadata": {"name": "a", "namespace": "default", "uid": "u", "resourceVersion": "7", "generation": 2,
                "creationTimestamp": "t", "managedFields": [], "ownerReferences": [{"controller": true}], "selfLink": "/x",
                "finalizers": ["a/b"], "labels": {"app": "web", "kcp.io/x": "1", "tenancy.kcp.io/y": "2", "edge.kcp.io/z": "3"},
                "annotations": {"note": "n", "internal.kcp.io/x": "1", "kubestellar.io/executing-count": "2",
                    "edge.selvedge.dev/only": "edge"}}});
        let want = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"},
            "metadata": {"name": "a", "namespace": "default",
                "labels": {"app": "web", "edge.kcp.io/z": "3", "edge.kcp.io/projected": "yes"},
                "annotations": {"note": "n", "edge.selvedge.dev/source": "root:shop"}}});
        assert_eq!(projected("core/configmaps/default/a", value), Some(want));
    }

    #[test]
    fn what_belongs_to_a_server_stays() {
        let owned = json!({"metadata": {"ownerReferences": [{"controller": true}]}});
        let free = json!({"metadata": {}});
        let typed = |t: &str| json!({"metadata": {}, "type": t});
        let labelled = json!({"metadata": {"labels": {"kubernetes.io/bootstrapping": "rbac-defaults"}}});
        let elsewhere = json!({"metadata": {"annotations": {"edge.selvedge.dev/only": "edge"}}});
        let leaving = json!({"metadata": {"deletionTimestamp": "t"}});
        let here = json!({"metadata": {"annotations": {"edge.selvedge.dev/only": "center"}}});
        let helms = json!({"metadata": {"labels": {"owner": "helm"}}});
        for (key, value, travels) in [
            ("core/configmaps/default/a", &free, true),
            ("core/configmaps/default/kube-root-ca.crt", &free, false),
            ("core/configmaps/kube-system/a", &free, false),
            ("core/configmaps/default/a", &leaving, false),
            ("core/configmaps/default/a", &here, false),
            ("core/configmaps/default/a", &helms, true),
            ("core/configmaps/default/sh.helm.release.v1.a.v1", &helms, false),
            ("core/configmaps/default/sh.helm.release.v1.a.v1", &free, true),
            ("core/namespaces//shop", &here, false),
            ("core/namespaces//shop", &free, true),
            ("core/namespaces//default", &free, false),
            ("core/namespaces//kube-system", &free, false),
            ("core/serviceaccounts/default/default", &free, false),
            ("core/serviceaccounts/default/web", &free, true),
            ("core/services/default/kubernetes", &free, false),
            ("core/services/shop/kubernetes", &free, true),
            ("core/pods/default/a", &free, true),
            ("core/pods/default/a", &owned, false),
            ("apps/replicasets/default/a", &owned, false),
            ("apps/deployments/default/a", &owned, true),
            ("batch/jobs/default/a", &owned, false),
            ("batch/cronjobs/default/a", &free, true),
            ("core/secrets/default/a", &typed("Opaque"), true),
            ("core/secrets/default/a", &typed("kubernetes.io/service-account-token"), false),
            ("core/secrets/default/a", &typed("bootstrap.kubernetes.io/token"), false),
            ("core/secrets/default/a", &typed("helm.sh/release.v1"), false),
            ("rbac.authorization.k8s.io/clusterroles//edit", &labelled, false),
            ("rbac.authorization.k8s.io/clusterroles//mine", &free, true),
            ("apiextensions.k8s.io/customresourcedefinitions//a.b", &free, true),
            ("apiregistration.k8s.io/apiservices//v1.x", &free, false),
            ("apiregistration.k8s.io/apiservices//v1.x", &elsewhere, true),
            ("example.com/widgets/default/a", &free, true),
            ("example.com/widgets:0123456789/default/a", &free, false),
            ("core/nodes//a", &free, false),
            ("core/events/default/a", &free, false),
            ("coordination.k8s.io/leases/default/a", &free, false),
            ("discovery.k8s.io/endpointslices/default/a", &free, false),
            ("tenancy.kcp.io/workspaces//a", &free, false),
            ("workload.kcp.io/synctargets//a", &free, false),
            ("identity.selvedge.dev/_files//a", &free, false),
        ] {
            assert_eq!(projected(key, value.clone()).is_some(), travels, "{key} {value}");
        }
        for broken in [json!(null), json!([]), json!({}), json!({"metadata": 1})] {
            assert_eq!(projected("core/configmaps/default/a", broken), None);
        }
        assert!(projected("core/configmaps/default/a", json!({"metadata": {"labels": 1}})).is_some());
    }
}
