//! What an object uses of a quota, and which quotas it falls under.

use std::collections::BTreeMap;

use api::{quantity::Quantity, strategy};
use serde_json::Value;

pub type Amounts = BTreeMap<String, Quantity>;

/// Core kinds that have a short name of their own besides `count/…`.
const COUNTED: [&str; 7] =
    ["configmaps", "persistentvolumeclaims", "pods", "replicationcontrollers", "resourcequotas", "secrets", "services"];
/// What every container must name if a quota speaks of it.
const CONSTRAINED: [&str; 6] = ["cpu", "limits.cpu", "limits.memory", "memory", "requests.cpu", "requests.memory"];

/// Everything that one object uses.
pub fn of(group: &str, plural: &str, value: &Value) -> Amounts {
    let mut used = Amounts::new();
    let count = if group.is_empty() { format!("count/{plural}") } else { format!("count/{plural}.{group}") };
    used.insert(count, Quantity::from_int(1));
    if !group.is_empty() {
        return used;
    }
    let finished = plural == "pods" && matches!(text(&value["status"]["phase"]), "Failed" | "Succeeded");
    if COUNTED.contains(&plural) && !finished {
        used.insert(plural.to_owned(), Quantity::from_int(1));
    }
    match plural {
        "pods" if !finished => used.extend(pod(value)),
        "services" => used.extend(service(&value["spec"])),
        "persistentvolumeclaims" => used.extend(claim(&value["spec"])),
        _ => {}
    }
    used
}

fn service(spec: &Value) -> Amounts {
    let ports = spec["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
    let has_port = |port: &&Value| port["nodePort"].as_i64().unwrap_or(0) != 0;
    let (balancers, ports) = match text(&spec["type"]) {
        "NodePort" => (0, ports.len()),
        "LoadBalancer" if spec["allocateLoadBalancerNodePorts"] == false => (1, ports.iter().filter(has_port).count()),
        "LoadBalancer" => (1, ports.len()),
        _ => (0, 0),
    };
    let ports = i64::try_from(ports).unwrap_or(i64::MAX);
    [("services.loadbalancers", balancers), ("services.nodeports", ports)]
        .map(|(name, n)| (name.to_owned(), Quantity::from_int(n)))
        .into()
}

fn claim(spec: &Value) -> Amounts {
    let mut used = Amounts::new();
    let storage = amount(&spec["resources"]["requests"]["storage"]).unwrap_or_else(Quantity::zero);
    let class = text(&spec["storageClassName"]);
    if !class.is_empty() {
        let of_class = format!("{class}.storageclass.storage.k8s.io");
        used.insert(format!("{of_class}/requests.storage"), storage.clone());
        used.insert(format!("{of_class}/persistentvolumeclaims"), Quantity::from_int(1));
    }
    used.insert("requests.storage".to_owned(), storage);
    used
}

fn pod(value: &Value) -> Amounts {
    let mut used = Amounts::new();
    for (field, prefix) in [("requests", "requests."), ("limits", "limits.")] {
        for (name, quantity) in pod_total(&value["spec"], field) {
            let basic =
                matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-");
            if field == "requests" && basic {
                used.insert(name.clone(), quantity.clone());
            }
            // Limits of other resources are always what is requested of them.
            if field == "requests" || matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") {
                used.insert(format!("{prefix}{name}"), quantity);
            }
        }
    }
    used
}

/// What a pod needs at its worst moment: all containers together, or one that runs before them.
pub fn pod_total(spec: &Value, field: &str) -> Amounts {
    let mut together = Amounts::new();
    let mut peak = Amounts::new();
    for container in list(&spec["initContainers"]) {
        let own = amounts(&container["resources"][field]);
        if container["restartPolicy"] == "Always" {
            add(&mut together, &own);
            raise(&mut peak, &together);
        } else {
            let mut now = together.clone();
            add(&mut now, &own);
            raise(&mut peak, &now);
        }
    }
    for container in list(&spec["containers"]) {
        add(&mut together, &amounts(&container["resources"][field]));
    }
    raise(&mut together, &peak);
    let overhead = amounts(&spec["overhead"]);
    for (name, quantity) in &overhead {
        if field == "requests" || together.contains_key(name) {
            add(&mut together, &Amounts::from([(name.clone(), quantity.clone())]));
        }
    }
    together
}

pub fn add(to: &mut Amounts, more: &Amounts) {
    for (name, quantity) in more {
        to.entry(name.clone()).or_insert_with(Quantity::zero).add(quantity);
    }
}

fn raise(to: &mut Amounts, other: &Amounts) {
    for (name, quantity) in other {
        let have = to.entry(name.clone()).or_insert_with(Quantity::zero);
        if *have < *quantity {
            *have = quantity.clone();
        }
    }
}

/// A map of quantities; what is none counts as absent.
pub fn amounts(value: &Value) -> Amounts {
    let entries = value.as_object().into_iter().flatten();
    entries.filter_map(|(name, value)| Some((name.clone(), amount(value)?))).collect()
}

fn amount(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => Quantity::parse(text).ok(),
        Value::Number(number) => Quantity::parse(&number.to_string()).ok(),
        _ => None,
    }
}

/// Whether a quota speaks of such an object at all. Scopes choose among pods.
pub fn matches(quota: &Value, is_pod: bool, value: &Value) -> bool {
    let spec = &quota["spec"];
    let scopes = list(&spec["scopes"]).iter().map(|scope| (text(scope), "Exists", &[][..]));
    let selected = list(&spec["scopeSelector"]["matchExpressions"])
        .iter()
        .map(|e| (text(&e["scopeName"]), text(&e["operator"]), list(&e["values"])));
    scopes.chain(selected).all(|(scope, operator, values)| is_pod && in_scope(scope, operator, values, value))
}

fn in_scope(scope: &str, operator: &str, values: &[Value], pod: &Value) -> bool {
    let spec = &pod["spec"];
    let ends = spec["activeDeadlineSeconds"].is_number();
    let best_effort = || strategy::qos_class(pod) == "BestEffort";
    match scope {
        "Terminating" => ends,
        "NotTerminating" => !ends,
        "BestEffort" => best_effort(),
        "NotBestEffort" => !best_effort(),
        "PriorityClass" => {
            let class = text(&spec["priorityClassName"]);
            let listed = values.iter().any(|v| v == class);
            match operator {
                "In" => listed,
                "NotIn" => !listed,
                "DoesNotExist" => class.is_empty(),
                _ => !class.is_empty(),
            }
        }
        _ => false,
    }
}

/// What a pod's containers must name because a quota limits it, in upstream's words.
pub fn unspecified(pod: &Value, hard: &Amounts) -> Option<String> {
    let mut missing: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let spec = &pod["spec"];
    for container in list(&spec["containers"]).iter().chain(list(&spec["initContainers"])) {
        for name in CONSTRAINED.into_iter().filter(|name| hard.contains_key(*name)) {
            let (field, resource) = match name.split_once('.') {
                Some((field, resource)) => (field, resource),
                None => ("requests", name),
            };
            if container["resources"][field][resource].is_null() {
                missing.entry(name).or_default().push(text(&container["name"]));
            }
        }
    }
    let told: Vec<String> = missing
        .into_iter()
        .map(|(name, mut containers)| {
            containers.sort_unstable();
            format!("{name} for: {}", containers.join(","))
        })
        .collect();
    (!told.is_empty()).then(|| format!("must specify {}", told.join("; ")))
}

/// `cpu=1,pods=2`.
pub fn shown(amounts: &Amounts, of: &[&String]) -> String {
    let zero = Quantity::zero();
    let entry = |name: &&String| format!("{name}={}", amounts.get(*name).unwrap_or(&zero));
    of.iter().map(entry).collect::<Vec<_>>().join(",")
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn written(amounts: Amounts) -> String {
        let names: Vec<&String> = amounts.keys().collect();
        shown(&amounts, &names)
    }

    #[test]
    fn what_objects_use() {
        for (group, plural, value, expected) in [
            ("apps", "deployments", json!({}), "count/deployments.apps=1"),
            ("", "secrets", json!({}), "count/secrets=1,secrets=1"),
            (
                "",
                "services",
                json!({"spec": {"type": "NodePort", "ports": [{}, {}]}}),
                "count/services=1,services=1,services.loadbalancers=0,services.nodeports=2",
            ),
            (
                "",
                "services",
                json!({"spec": {"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false, "ports": [{"nodePort": 30000}, {}]}}),
                "count/services=1,services=1,services.loadbalancers=1,services.nodeports=1",
            ),
            (
                "",
                "persistentvolumeclaims",
                json!({"spec": {"storageClassName": "fast", "resources": {"requests": {"storage": "1Gi"}}}}),
                "count/persistentvolumeclaims=1,fast.storageclass.storage.k8s.io/persistentvolumeclaims=1,\
                 fast.storageclass.storage.k8s.io/requests.storage=1Gi,persistentvolumeclaims=1,requests.storage=1Gi",
            ),
            (
                "",
                "pods",
                json!({"spec": {"containers": [
                    {"resources": {"requests": {"cpu": "100m", "example.com/gpu": "1"}, "limits": {"cpu": "1", "example.com/gpu": "1"}}},
                    {"resources": {"requests": {"cpu": "200m"}}}],
                    "initContainers": [{"resources": {"requests": {"cpu": "250m"}}, "restartPolicy": "Always"},
                        {"resources": {"requests": {"cpu": "500m"}}}]}}),
                "count/pods=1,cpu=750m,limits.cpu=1,pods=1,requests.cpu=750m,requests.example.com/gpu=1",
            ),
            ("", "pods", json!({"status": {"phase": "Succeeded"}}), "count/pods=1"),
        ] {
            assert_eq!(written(of(group, plural, &value)), expected, "{value}");
        }
    }

    #[test]
    fn scopes() {
        let pod = json!({"spec": {"activeDeadlineSeconds": 5, "priorityClassName": "high", "containers": [{}]}});
        for (spec, expected) in [
            (json!({}), true),
            (json!({"scopes": ["Terminating", "BestEffort"]}), true),
            (json!({"scopes": ["NotTerminating"]}), false),
            (json!({"scopes": ["NotBestEffort"]}), false),
            (
                json!({"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]}}),
                true,
            ),
            (
                json!({"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "NotIn", "values": ["high"]}]}}),
                false,
            ),
        ] {
            assert_eq!(matches(&json!({"spec": spec}), true, &pod), expected, "{spec}");
        }
        assert!(!matches(&json!({"spec": {"scopes": ["Terminating"]}}), false, &json!({})));
        assert!(matches(&json!({"spec": {}}), false, &json!({})));
    }

    #[test]
    fn what_must_be_said() {
        let pod =
            json!({"spec": {"containers": [{"name": "b"}, {"name": "a", "resources": {"requests": {"cpu": "1"}}}]}});
        let hard = amounts(&json!({"requests.cpu": "1", "limits.memory": "1", "pods": "3"}));
        assert_eq!(unspecified(&pod, &hard).unwrap(), "must specify limits.memory for: a,b; requests.cpu for: b");
        assert_eq!(unspecified(&pod, &amounts(&json!({"pods": "1"}))), None);
    }
}
