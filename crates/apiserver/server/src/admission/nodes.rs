//! What nodes may write: themselves, the status of their pods, their lease, tokens for their pods. The authorizer decides by
//! names; here is the content. As upstream's NodeRestriction, in its words.

use identity::node_authorizer::LEASES;
use identity::pod_references::MIRROR;
use identity::signing::{KUBELET_CLIENT, KUBELET_SERVING, Request};
use identity::{Attributes, Authorizer, node_authorizer, pod_references};
use schema::status::{Result, Status};
use serde_json::Value;

use super::{Plugin, forbid, one};
use crate::call::Call;

/// A write, with what it is about.
#[derive(Clone, Copy)]
pub enum Write<'a> {
    Create(&'a Value),
    Update { new: &'a Value, old: &'a Value },
    Delete(&'a Value),
}

impl<'a> Write<'a> {
    fn object(self) -> &'a Value {
        match self {
            Self::Create(value) | Self::Update { new: value, .. } | Self::Delete(value) => value,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Create(_) => "CREATE",
            Self::Update { .. } => "UPDATE",
            Self::Delete(_) => "DELETE",
        }
    }
}

/// The labels that a node may give itself among those of the system.
const OWN_LABELS: [&str; 11] = [
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "beta.kubernetes.io/instance-type",
    "node.kubernetes.io/instance-type",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];

/// The node that the user is, as far as nodes are restricted at all.
fn node_of(call: &Call) -> Option<&str> {
    node_authorizer::node_of(&call.user).filter(|_| super::on(call, Plugin::NodeRestriction))
}

/// Refuses what a node may not write. Everybody else passes.
pub fn restrict(call: &Call, write: Write<'_>) -> Result<()> {
    let Some(node) = node_of(call) else { return Ok(()) };
    let object = write.object();
    let refuse = |why: String| Err(forbid(call, object, &why));
    if node.is_empty() {
        return refuse(format!("could not determine node from user {:?}", call.user.name));
    }
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let checked = match (&*call.kind.collection, call.target.subresource.as_str()) {
        ("core/pods", "") => match write {
            Write::Create(pod) => return mirror_pod(call, node, pod),
            Write::Delete(pod) => {
                only(on(pod, node), || format!("node {node:?} can only delete pods with spec.nodeName set to itself"))
            }
            Write::Update { .. } => Err(format!(
                "unexpected operation {:?}, node {node:?} can only create and delete mirror pods",
                write.name()
            )),
        },
        ("core/pods", "status") => match write {
            Write::Update { new, old } => pod_status(node, new, old),
            _ => Err(format!("unexpected operation {:?}", write.name())),
        },
        ("core/pods", sub) => {
            Err(format!("unexpected pod subresource {sub:?}, only 'status' and 'eviction' are allowed"))
        }
        ("core/nodes", _) if name != node => Err(format!("node {node:?} is not allowed to modify node {name:?}")),
        ("core/nodes", _) => own_node(node, write),
        ("core/persistentvolumeclaims", "status") => match write {
            Write::Update { new, old } => only(same_claim(new, old), || {
                format!(
                    "node {node:?} is not allowed to update fields other than status.quantity and status.conditions"
                )
            }),
            _ => Err(format!("unexpected operation {:?}", write.name())),
        },
        ("core/persistentvolumeclaims", _) => Err("may only update PVC status".to_owned()),
        ("coordination.k8s.io/leases", _) if call.target.namespace != LEASES => {
            Err(format!("can only access leases in the {LEASES:?} system namespace"))
        }
        ("coordination.k8s.io/leases", _) => {
            only(name == node, || "can only access node lease with the same name as the requesting node".to_owned())
        }
        ("storage.k8s.io/csinodes", _) => {
            only(name == node, || "can only access CSINode with the same name as the requesting node".to_owned())
        }
        ("resource.k8s.io/resourceslices", _) => {
            let deed = if matches!(write, Write::Create(_)) { "create" } else { "delete" };
            let own = matches!(write, Write::Update { .. }) || on(object, node);
            only(own, || format!("can only {deed} ResourceSlice with the same NodeName as the requesting node"))
        }
        ("certificates.k8s.io/certificatesigningrequests", _) => match write {
            Write::Create(request) => own_certificate(node, request),
            _ => Ok(()),
        },
        _ => Ok(()),
    };
    checked.or_else(refuse)
}

fn only(is: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if is { Ok(()) } else { Err(otherwise()) }
}

fn on(object: &Value, node: &str) -> bool {
    object["spec"]["nodeName"] == node
}

fn mirror_pod(call: &Call, node: &str, pod: &Value) -> Result<()> {
    let refuse = |why: String| Err(forbid(call, pod, &why));
    if pod["metadata"]["annotations"].get(MIRROR).is_none() {
        return refuse(format!("pod does not have {MIRROR:?} annotation, node {node:?} can only create mirror pods"));
    }
    if let Some(why) = pod_references::not_for_mirrors(pod) {
        return refuse(why.to_owned());
    }
    if !on(pod, node) {
        return refuse(format!("node {node:?} can only create pods with spec.nodeName set to itself"));
    }
    let owners = pod["metadata"]["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default();
    let owner = match owners {
        [] => return refuse(format!("node {node:?} can only create pods with an owner reference set to itself")),
        [one] => one,
        _ => return refuse(format!("node {node:?} can only create pods with a single owner reference set to itself")),
    };
    if owner["apiVersion"] != "v1" || owner["kind"] != "Node" || owner["name"] != node {
        return refuse(format!("node {node:?} can only create pods with an owner reference set to itself"));
    }
    if owner["controller"] != true {
        return refuse(format!("node {node:?} can only create pods with a controller owner reference set to itself"));
    }
    if owner["blockOwnerDeletion"] == true {
        return refuse(format!("node {node:?} must not set blockOwnerDeletion on an owner reference"));
    }
    let own = one(call, "core/nodes", "", node).ok_or_else(|| Status::not_found("", "nodes", node))?;
    let (given, expected) =
        (owner["uid"].as_str().unwrap_or_default(), own["metadata"]["uid"].as_str().unwrap_or_default());
    if given != expected {
        return refuse(format!("node {node} UID mismatch: expected {given} got {expected}"));
    }
    pod_references::foreign_reference(pod)
        .or_else(|what| refuse(format!("node {node:?} can not create pods that reference {what}")))
}

fn pod_status(node: &str, new: &Value, old: &Value) -> Result<(), String> {
    only(on(old, node), || {
        format!("node {node:?} can only update pod status for pods with spec.nodeName set to itself")
    })?;
    let labels = |pod: &Value| pod["metadata"]["labels"].as_object().cloned().unwrap_or_default();
    only(labels(new) == labels(old), || format!("node {node:?} cannot update labels through pod status"))?;
    let claims = |pod: &Value| pod["status"]["resourceClaimStatuses"].as_array().cloned().unwrap_or_default();
    only(claims(new) == claims(old), || format!("node {node:?} cannot update resource claim statues"))?;
    let extended = |pod: &Value| pod["status"]["extendedResourceClaimStatus"].clone();
    only(extended(new) == extended(old), || format!("node {node:?} cannot update extended resource claim status"))
}

fn own_node(node: &str, write: Write<'_>) -> Result<(), String> {
    match write {
        Write::Create(new) => {
            only(new["spec"]["configSource"].is_null(), || {
                format!("node {node:?} is not allowed to create pods with a non-nil configSource")
            })?;
            let labels = forbidden_labels(new, &Value::Null);
            only(labels.is_empty(), || {
                format!("node {node:?} is not allowed to set the following labels: {}", labels.join(", "))
            })
        }
        Write::Update { new, old } => {
            let same = |path: &str| {
                let part = |value: &Value| match value.pointer(path) {
                    None | Some(Value::Null) => Value::Array(Vec::new()),
                    Some(part) => part.clone(),
                };
                part(new) == part(old)
            };
            only(new["spec"]["configSource"].is_null() || same("/spec/configSource"), || {
                format!("node {node:?} is not allowed to update configSource to a new non-nil configSource")
            })?;
            only(same("/spec/taints"), || format!("node {node:?} is not allowed to modify taints"))?;
            only(same("/metadata/ownerReferences"), || {
                format!("node {node:?} is not allowed to modify ownerReferences")
            })?;
            let labels = forbidden_labels(new, old);
            only(labels.is_empty(), || format!("is not allowed to modify labels: {}", labels.join(", ")))
        }
        Write::Delete(_) => Ok(()),
    }
}

/// Labels that differ and are not a node's to give itself: by them workloads are kept to nodes that others trust.
fn forbidden_labels(new: &Value, old: &Value) -> Vec<String> {
    let (new, old) = (&new["metadata"]["labels"], &old["metadata"]["labels"]);
    let keys = [new, old].into_iter().filter_map(Value::as_object).flat_map(|labels| labels.keys());
    let mut found: Vec<String> =
        keys.filter(|key| new.get(*key) != old.get(*key) && !may_label(key)).cloned().collect();
    found.sort();
    found.dedup();
    found
}

fn may_label(key: &str) -> bool {
    let Some((domain, _)) = key.split_once('/') else { return true };
    let within = |base: &str| domain == base || domain.strip_suffix(base).is_some_and(|rest| rest.ends_with('.'));
    if within("node-restriction.kubernetes.io") {
        return false;
    }
    let of_system = within("kubernetes.io") || within("k8s.io");
    !of_system || OWN_LABELS.contains(&key) || within("kubelet.kubernetes.io") || within("node.kubernetes.io")
}

/// Whether two claims differ in nothing but what a node reports of them.
fn same_claim(new: &Value, old: &Value) -> bool {
    let bare = |claim: &Value| {
        let mut claim = claim.clone();
        for (part, fields) in [
            ("status", &["capacity", "conditions", "allocatedResources", "allocatedResourceStatuses"][..]),
            ("metadata", &["resourceVersion", "managedFields"]),
        ] {
            if let Some(part) = claim[part].as_object_mut() {
                fields.iter().for_each(|field| _ = part.remove(*field));
            }
        }
        claim
    };
    bare(new) == bare(old)
}

fn own_certificate(node: &str, request: &Value) -> Result<(), String> {
    if request["spec"]["signerName"] != KUBELET_CLIENT && request["spec"]["signerName"] != KUBELET_SERVING {
        return Ok(());
    }
    let parsed = Request::parse(request["spec"]["request"].as_str().unwrap_or_default());
    let parsed = parsed.map_err(|why| format!("unable to parse csr: {why}"))?;
    let own = parsed.common_name() == format!("system:node:{node}");
    only(own, || format!("can only create a node CSR with CN=system:node:{node}"))
}

/// A node evicts only pods that run on it.
pub fn restrict_eviction(call: &Call, pod: &Value) -> Result<()> {
    match node_of(call) {
        Some(node) if !on(pod, node) => {
            let why = format!("node {node} can only evict pods with spec.nodeName set to itself");
            Err(forbid(call, pod, &why))
        }
        _ => Ok(()),
    }
}

/// A node asks for tokens only for pods that run on it, and only for audiences that they name.
pub fn restrict_token(call: &Call, request: &Value) -> Result<()> {
    let Some(node) = node_of(call) else { return Ok(()) };
    let refuse = |why: &str| Err(Status::forbidden("", "serviceaccounts", &call.target.name, why));
    let bound = &request["spec"]["boundObjectRef"];
    let text = |field: &str| bound[field].as_str().unwrap_or_default();
    if text("apiVersion") != "v1" || text("kind") != "Pod" || text("name").is_empty() {
        return refuse("node requested token not bound to a pod");
    }
    if text("uid").is_empty() {
        return refuse("node requested token with a pod binding without a uid");
    }
    let name = text("name");
    let pod = one(call, "core/pods", &call.target.namespace, name).ok_or_else(|| Status::not_found("", "pod", name))?;
    if pod["metadata"]["uid"] != text("uid") {
        return refuse(&format!(
            "the UID in the bound object reference ({}) does not match the UID in record. The object might have been deleted \
             and then recreated",
            text("uid")
        ));
    }
    if !on(&pod, node) {
        return refuse("node requested token bound to a pod scheduled on a different node");
    }
    let asked: Vec<&str> =
        request["spec"]["audiences"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let audience = match asked.as_slice() {
        [] => "",
        [one] => one,
        _ => return refuse("node may only request 0 or 1 audiences"),
    };
    if names_audience(call, &pod, audience) || may_request(call, audience) {
        return Ok(());
    }
    refuse(&format!(
        "audience {audience:?} not found in pod spec volume, {} is not authorized to request tokens for this audience",
        call.user.name
    ))
}

fn names_audience(call: &Call, pod: &Value, audience: &str) -> bool {
    let list = |value: &Value, field: &str| value[field].as_array().cloned().unwrap_or_default();
    let is = |value: &Value| value.as_str().unwrap_or_default() == audience;
    let pod_name = pod["metadata"]["name"].as_str().unwrap_or_default();
    list(&pod["spec"], "volumes").iter().any(|volume| {
        let projected = list(&volume["projected"], "sources");
        if projected.iter().any(|s| s["serviceAccountToken"].is_object() && is(&s["serviceAccountToken"]["audience"])) {
            return true;
        }
        let driver = match (volume["csi"]["driver"].as_str(), volume["persistentVolumeClaim"]["claimName"].as_str()) {
            (Some(driver), _) => Some(driver.to_owned()),
            (None, Some(claim)) => driver_of(call, claim),
            (None, None) if volume["ephemeral"].is_object() => {
                driver_of(call, &format!("{pod_name}-{}", volume["name"].as_str().unwrap_or_default()))
            }
            (None, None) => None,
        };
        let driver = driver.and_then(|name| one(call, "storage.k8s.io/csidrivers", "", &name));
        driver.is_some_and(|driver| list(&driver["spec"], "tokenRequests").iter().any(|r| is(&r["audience"])))
    })
}

fn driver_of(call: &Call, claim: &str) -> Option<String> {
    let claim = one(call, "core/persistentvolumeclaims", &call.target.namespace, claim)?;
    let volume = one(call, "core/persistentvolumes", "", claim["spec"]["volumeName"].as_str()?)?;
    volume["spec"]["csi"]["driver"].as_str().map(str::to_owned)
}

fn may_request(call: &Call, audience: &str) -> bool {
    let attributes = Attributes {
        verb: "request-serviceaccounts-token-audience".to_owned(),
        version: "v1".to_owned(),
        resource: audience.to_owned(),
        namespace: call.target.namespace.clone(),
        name: call.target.name.clone(),
        ..Attributes::default()
    };
    !audience.is_empty()
        && call.server.authorization.in_workspace(&call.cluster).authorize(&call.user, &attributes).allowed
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn labels_that_nodes_may_set() {
        for (key, expected) in [
            ("kubernetes.io/hostname", true),
            ("node.kubernetes.io/anything", true),
            ("x.kubelet.kubernetes.io/y", true),
            ("plain", true),
            ("example.com/x", true),
            ("node-restriction.kubernetes.io/x", false),
            ("a.node-restriction.kubernetes.io/x", false),
            ("node-role.kubernetes.io/control-plane", false),
            ("k8s.io/x", false),
            ("myk8s.io/x", true),
        ] {
            assert_eq!(may_label(key), expected, "{key}");
        }
    }

    #[test]
    fn nodes_cannot_improve_themselves() {
        let node = json!({"metadata": {"name": "n", "labels": {"a": "b"}}, "spec": {"taints": [{"key": "t"}]}});
        let change = |edit: &dyn Fn(&mut Value)| {
            let mut new = node.clone();
            edit(&mut new);
            own_node("n", Write::Update { new: &new, old: &node })
        };
        assert_eq!(change(&|n| n["status"] = json!({"phase": "x"})), Ok(()));
        assert_eq!(change(&|n| n["metadata"]["labels"] = json!({"a": "c", "kubernetes.io/os": "linux"})), Ok(()));
        assert_eq!(
            change(&|n| n["spec"]["taints"] = json!([])),
            Err("node \"n\" is not allowed to modify taints".to_owned())
        );
        assert_eq!(
            change(&|n| n["metadata"]["labels"] = json!({"node-role.kubernetes.io/x": "", "k8s.io/a": ""})),
            Err("is not allowed to modify labels: k8s.io/a, node-role.kubernetes.io/x".to_owned())
        );
        assert!(change(&|n| n["metadata"]["ownerReferences"] = json!([{"name": "x"}])).is_err());
        assert!(change(&|n| n["spec"]["configSource"] = json!({"configMap": {}})).is_err());
        let mut registered = node.clone();
        registered["metadata"]["labels"] = json!({"node-restriction.kubernetes.io/x": "y"});
        assert_eq!(
            own_node("n", Write::Create(&registered)),
            Err("node \"n\" is not allowed to set the following labels: node-restriction.kubernetes.io/x".to_owned())
        );
    }

    #[test]
    fn pods_report_status_only() {
        let pod = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"nodeName": "n"}});
        let mut labelled = pod.clone();
        labelled["metadata"]["labels"] = json!({});
        assert_eq!(pod_status("n", &pod, &pod), Ok(()));
        assert!(pod_status("m", &pod, &pod).is_err());
        assert!(pod_status("n", &labelled, &pod).unwrap_err().contains("cannot update labels"));
        let claim = json!({"metadata": {"labels": {"a": "b"}}, "status": {"phase": "Bound"}});
        let mut grown = claim.clone();
        grown["status"]["capacity"] = json!({"storage": "1Gi"});
        assert!(same_claim(&grown, &claim));
        grown["metadata"]["labels"] = json!({});
        assert!(!same_claim(&grown, &claim));
    }
}
