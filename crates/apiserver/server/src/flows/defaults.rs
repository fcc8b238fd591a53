//! The levels and schemas that every cluster has: upstream's mandatory and suggested ones. Pure.

use serde_json::{Value, json};

const AUTO: &str = "apf.kubernetes.io/autoupdate-spec";

fn metadata(name: &str) -> Value {
    json!({"name": name, "annotations": {AUTO: "true"}})
}

/// Levels with queues: name, shares, what they lend in percent, queues and hand size.
const QUEUED: [(&str, u32, u32, u32, u32); 6] = [
    ("system", 30, 33, 64, 6),
    ("node-high", 40, 25, 64, 6),
    ("leader-election", 10, 0, 16, 4),
    ("workload-high", 40, 50, 128, 6),
    ("workload-low", 100, 90, 128, 6),
    ("global-default", 20, 50, 128, 6),
];

fn levels() -> Vec<Value> {
    let queued = |(name, shares, lends, queues, hand): (&str, u32, u32, u32, u32)| {
        let queuing = json!({"queues": queues, "handSize": hand, "queueLengthLimit": 50});
        json!({"metadata": metadata(name), "spec": {"type": "Limited", "limited": {
            "nominalConcurrencyShares": shares, "lendablePercent": lends,
            "limitResponse": {"type": "Queue", "queuing": queuing}}}})
    };
    let mut levels = vec![
        json!({"metadata": metadata("exempt"),
            "spec": {"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}}}),
        json!({"metadata": metadata("catch-all"), "spec": {"type": "Limited", "limited": {
            "nominalConcurrencyShares": 5, "lendablePercent": 0, "limitResponse": {"type": "Reject"}}}}),
    ];
    levels.extend(QUEUED.map(queued));
    levels
}

fn groups(names: &[&str]) -> Value {
    names.iter().map(|name| json!({"kind": "Group", "group": {"name": name}})).collect()
}

fn user(name: &str) -> Value {
    json!({"kind": "User", "user": {"name": name}})
}

fn resource(verbs: &[&str], group: &str, resources: &[&str], cluster_scope: bool) -> Value {
    let mut rule = json!({"verbs": verbs, "apiGroups": [group], "resources": resources, "namespaces": ["*"]});
    if cluster_scope {
        rule["clusterScope"] = true.into();
    }
    rule
}

fn everything(subjects: Value) -> Value {
    json!({"subjects": subjects, "resourceRules": [resource(&["*"], "*", &["*"], true)],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}]})
}

fn schema(name: &str, level: &str, precedence: u32, by: &str, rule: Value) -> Value {
    let mut schema = json!({"metadata": metadata(name), "spec": {"matchingPrecedence": precedence,
        "priorityLevelConfiguration": {"name": level}, "rules": [rule]}});
    if !by.is_empty() {
        schema["spec"]["distinguisherMethod"] = json!({"type": by});
    }
    schema
}

fn schemas() -> Vec<Value> {
    const USER: &str = "ByUser";
    const NAMESPACE: &str = "ByNamespace";
    let (manager, scheduler) = (user("system:kube-controller-manager"), user("system:kube-scheduler"));
    let accounts = json!({"kind": "ServiceAccount", "serviceAccount": {"namespace": "kube-system", "name": "*"}});
    let everybody = groups(&["system:unauthenticated", "system:authenticated"]);
    let nodes = groups(&["system:nodes"]);
    let leases = ("coordination.k8s.io", ["leases"]);
    let elections = json!({"subjects": [manager, scheduler, accounts],
        "resourceRules": [resource(&["get", "create", "update"], leases.0, &leases.1, false)]});
    let node_high = json!({"subjects": nodes, "resourceRules": [
        resource(&["*"], "", &["nodes", "nodes/status"], true), resource(&["*"], leases.0, &leases.1, false)]});
    let probes = json!({"subjects": everybody,
        "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/healthz", "/readyz", "/livez"]}]});
    vec![
        schema("exempt", "exempt", 1, "", everything(groups(&["system:masters"]))),
        schema("probes", "exempt", 2, "", probes),
        schema("system-leader-election", "leader-election", 100, USER, elections),
        schema("system-node-high", "node-high", 400, USER, node_high),
        schema("system-nodes", "system", 500, USER, everything(nodes.clone())),
        schema("kube-controller-manager", "workload-high", 800, NAMESPACE, everything(json!([manager]))),
        schema("kube-scheduler", "workload-high", 800, NAMESPACE, everything(json!([scheduler]))),
        schema("kube-system-service-accounts", "workload-high", 900, NAMESPACE, everything(json!([accounts]))),
        schema("service-accounts", "workload-low", 9000, USER, everything(groups(&["system:serviceaccounts"]))),
        schema("global-default", "global-default", 9900, USER, everything(everybody.clone())),
        schema("catch-all", "catch-all", 10000, USER, everything(everybody)),
    ]
}

/// Resource and object.
pub fn objects() -> Vec<(&'static str, Value)> {
    let levels = levels().into_iter().map(|level| ("prioritylevelconfigurations", level));
    levels.chain(schemas().into_iter().map(|schema| ("flowschemas", schema))).collect()
}

/// Whether the server keeps the object as it is: an administrator can take the annotation away.
pub fn is_kept(value: &Value) -> bool {
    value["metadata"]["annotations"][AUTO] == "true"
}
