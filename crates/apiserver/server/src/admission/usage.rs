//! What an object uses of a quota, and which quotas it falls under.

use std::collections::BTreeMap;

use rules::strategy;
use schema::quantity::Quantity;
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
    if group == "resource.k8s.io" && plural == "resourceclaims" {
        add(&mut used, &devices(&value["spec"]["devices"]));
    }
    if !group.is_empty() {
        return used;
    }
    let finished = plural == "pods" && is_finished(value);
    if COUNTED.contains(&plural) && !finished {
        used.insert(plural.to_owned(), Quantity::from_int(1));
    }
    match plural {
        "pods" if !finished => used.extend(pod(value)),
        "services" => used.extend(service(&value["spec"])),
        "persistentvolumeclaims" => used.extend(claim(value)),
        _ => {}
    }
    used
}

/// What has ended uses nothing but its place among objects, and neither does a Pod that should have been gone by now.
fn is_finished(pod: &Value) -> bool {
    let metadata = &pod["metadata"];
    matches!(text(&pod["status"]["phase"]), "Failed" | "Succeeded")
        || clock::seconds(text(&metadata["deletionTimestamp"])).is_some_and(|end| {
            metadata["deletionGracePeriodSeconds"].as_i64().is_some_and(|grace| clock::unix() > end + grace)
        })
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

fn claim(value: &Value) -> Amounts {
    let mut used = Amounts::new();
    let (spec, status) = (&value["spec"], &value["status"]);
    let class = text(&spec["storageClassName"]);
    let of_class = format!("{class}.storageclass.storage.k8s.io");
    if !class.is_empty() {
        used.insert(format!("{of_class}/persistentvolumeclaims"), Quantity::from_int(1));
    }
    let Some(mut storage) = amount(&spec["resources"]["requests"]["storage"]) else { return used };
    // A volume that grows, or failed to, is as large as it was allowed to become.
    if let Some(allocated) = amount(&status["allocatedResources"]["storage"]).filter(|allocated| *allocated > storage) {
        storage = allocated;
    }
    if !class.is_empty() {
        used.insert(format!("{of_class}/requests.storage"), storage.clone());
    }
    used.insert("requests.storage".to_owned(), storage);
    used
}

const DEVICES: &str = ".deviceclass.resource.k8s.io/devices";
/// As many devices as a request for all of them can get.
const ALL_DEVICES: i64 = 32;

/// Whether an entry of a quota counts devices of a class.
pub fn names_devices(name: &str) -> bool {
    name.ends_with(DEVICES)
}

/// The devices that a claim may get at most, by class.
fn devices(spec: &Value) -> Amounts {
    let mut used = Amounts::new();
    for request in list(&spec["requests"]) {
        let exactly = std::slice::from_ref(&request["exactly"]).iter().filter(|exactly| exactly.is_object());
        let mut worst = Amounts::new();
        for choice in list(&request["firstAvailable"]).iter().chain(exactly) {
            let count = match text(&choice["allocationMode"]) {
                "ExactCount" => choice["count"].as_i64().unwrap_or(0),
                "All" => ALL_DEVICES,
                _ => 0,
            };
            let name = format!("{}{DEVICES}", text(&choice["deviceClassName"]));
            raise(&mut worst, &Amounts::from([(name, Quantity::from_int(count))]));
        }
        add(&mut used, &worst);
    }
    used
}

fn pod(value: &Value) -> Amounts {
    let mut used = Amounts::new();
    for (field, prefix) in [("requests", "requests."), ("limits", "limits.")] {
        for (name, quantity) in pod_used(value, field) {
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

/// What a pod's spec needs at its worst moment: all containers together, or one that runs before them.
pub fn pod_total(spec: &Value, field: &str) -> Amounts {
    total(spec, field, |container| amounts(&container["resources"][field]))
}

/// The same of a Pod that may be resized: a container uses the most of what it shall have, was given and has.
fn pod_used(pod: &Value, field: &str) -> Amounts {
    let statuses: BTreeMap<&str, &Value> = ["containerStatuses", "initContainerStatuses"]
        .iter()
        .flat_map(|statuses| list(&pod["status"][*statuses]))
        .map(|status| (text(&status["name"]), status))
        .collect();
    let infeasible = list(&pod["status"]["conditions"])
        .iter()
        .any(|condition| condition["type"] == "PodResizePending" && condition["reason"] == "Infeasible");
    total(&pod["spec"], field, |container| {
        let mut own = amounts(&container["resources"][field]);
        let Some(status) = statuses.get(text(&container["name"])).filter(|status| status["resources"].is_object())
        else {
            return own;
        };
        if infeasible {
            own = Amounts::new();
        }
        raise(&mut own, &amounts(&status["resources"][field]));
        if field == "requests" {
            raise(&mut own, &amounts(&status["allocatedResources"]));
        }
        own
    })
}

fn total(spec: &Value, field: &str, of: impl Fn(&Value) -> Amounts) -> Amounts {
    let mut together = Amounts::new();
    let mut peak = Amounts::new();
    for container in list(&spec["initContainers"]) {
        let own = of(container);
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
        add(&mut together, &of(container));
    }
    raise(&mut together, &peak);
    // What is said of the whole Pod counts instead of what its containers say.
    for (name, quantity) in amounts(&spec["resources"][field]) {
        if matches!(name.as_str(), "cpu" | "memory") || name.starts_with("hugepages-") {
            together.insert(name, quantity);
        }
    }
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

/// Whether a Pod is made to end.
pub fn ends(pod: &Value) -> bool {
    pod["spec"]["activeDeadlineSeconds"].as_i64().is_some_and(|seconds| seconds >= 0)
}

/// Whether a quota speaks of such an object at all. Scopes choose among Pods and claims.
pub fn matches(quota: &Value, collection: &str, value: &Value) -> bool {
    let spec = &quota["spec"];
    let scopes = list(&spec["scopes"]).iter().map(|scope| (text(scope), "Exists", &[][..]));
    let selected = list(&spec["scopeSelector"]["matchExpressions"])
        .iter()
        .map(|e| (text(&e["scopeName"]), text(&e["operator"]), list(&e["values"])));
    scopes.chain(selected).all(|(scope, operator, values)| match collection {
        "core/pods" => pod_in_scope(scope, operator, values, value),
        "core/persistentvolumeclaims" => scope == "VolumeAttributesClass" && class_chosen(operator, values, value),
        _ => false,
    })
}

/// The classes of volume attributes that a claim shall have, has, and is given.
pub fn classes(claim: &Value) -> [&str; 3] {
    let status = &claim["status"];
    [
        text(&claim["spec"]["volumeAttributesClassName"]),
        text(&status["currentVolumeAttributesClassName"]),
        text(&status["modifyVolumeStatus"]["targetVolumeAttributesClassName"]),
    ]
}

/// Whether a claim has, had or shall have one of these classes of volume attributes.
fn class_chosen(operator: &str, values: &[Value], claim: &Value) -> bool {
    let mut classes = classes(claim).into_iter().filter(|class| !class.is_empty()).peekable();
    let listed = |class: &str| values.iter().any(|value| value == class);
    match (operator, classes.peek().is_some()) {
        ("In", _) => classes.any(listed),
        ("NotIn", true) => classes.any(|class| !listed(class)),
        ("NotIn" | "DoesNotExist", has) => !has,
        (_, has) => has,
    }
}

/// Whether a Pod wants to be near, or far from, Pods of other namespaces.
fn reaches_across(pod: &Value) -> bool {
    let affinity = &pod["spec"]["affinity"];
    ["podAffinity", "podAntiAffinity"].iter().any(|kind| {
        let required = list(&affinity[kind]["requiredDuringSchedulingIgnoredDuringExecution"]).iter();
        let preferred = list(&affinity[kind]["preferredDuringSchedulingIgnoredDuringExecution"]).iter();
        required
            .chain(preferred.map(|term| &term["podAffinityTerm"]))
            .any(|term| !list(&term["namespaces"]).is_empty() || term["namespaceSelector"].is_object())
    })
}

fn pod_in_scope(scope: &str, operator: &str, values: &[Value], pod: &Value) -> bool {
    let spec = &pod["spec"];
    let ends = ends(pod);
    let best_effort = || strategy::qos_class(pod) == "BestEffort";
    match scope {
        "CrossNamespacePodAffinity" => reaches_across(pod),
        "Terminating" => ends,
        "NotTerminating" => !ends,
        "BestEffort" => best_effort(),
        "NotBestEffort" => !best_effort(),
        "PriorityClass" => {
            let class = text(&spec["priorityClassName"]);
            let listed = values.iter().any(|v| v == class);
            match operator {
                "In" => listed,
                "NotIn" => class.is_empty() || !listed,
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
    let whole = |field: &str| amounts(&spec["resources"][field]).keys().any(|name| name != "ephemeral-storage");
    if whole("requests") || whole("limits") {
        return None;
    }
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
            assert_eq!(matches(&json!({"spec": spec}), "core/pods", &pod), expected, "{spec}");
        }
        assert!(!matches(&json!({"spec": {"scopes": ["Terminating"]}}), "core/services", &json!({})));
        assert!(matches(&json!({"spec": {}}), "core/services", &json!({})));
    }

    #[test]
    fn pods_that_look_at_other_namespaces() {
        let quota = json!({"spec": {"scopes": ["CrossNamespacePodAffinity"]}});
        let term = |kind: &str, field: &str, term: Value| json!({"spec": {"affinity": {kind: {field: [term]}}}});
        let (required, preferred) =
            ("requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution");
        for (pod, expected) in [
            (json!({"spec": {}}), false),
            (term("podAffinity", required, json!({"topologyKey": "a"})), false),
            (term("podAffinity", required, json!({"namespaces": ["a"]})), true),
            (term("podAntiAffinity", required, json!({"namespaceSelector": {}})), true),
            (term("podAntiAffinity", preferred, json!({"podAffinityTerm": {"namespaces": ["a"]}})), true),
            (term("podAffinity", preferred, json!({"podAffinityTerm": {"namespaces": []}})), false),
        ] {
            assert_eq!(matches(&quota, "core/pods", &pod), expected, "{pod}");
        }
    }

    #[test]
    fn claims_by_their_class_of_volume_attributes() {
        let none = json!({});
        let gold = json!({"spec": {"volumeAttributesClassName": "gold"}});
        let both = json!({"spec": {"volumeAttributesClassName": "gold"},
            "status": {"currentVolumeAttributesClassName": "silver"}});
        for (operator, values, claim, expected) in [
            ("Exists", json!([]), &none, false),
            ("Exists", json!([]), &gold, true),
            ("DoesNotExist", json!([]), &none, true),
            ("DoesNotExist", json!([]), &gold, false),
            ("In", json!(["gold"]), &gold, true),
            ("In", json!(["silver"]), &gold, false),
            ("In", json!(["silver"]), &both, true),
            ("NotIn", json!(["gold"]), &gold, false),
            ("NotIn", json!(["gold"]), &both, true),
            ("NotIn", json!(["gold"]), &none, true),
        ] {
            let requirement = json!({"scopeName": "VolumeAttributesClass", "operator": operator, "values": values});
            let quota = json!({"spec": {"scopeSelector": {"matchExpressions": [requirement]}}});
            assert_eq!(matches(&quota, "core/persistentvolumeclaims", claim), expected, "{operator} {values} {claim}");
        }
    }

    #[test]
    fn pods_that_are_resized_and_claims_of_devices() {
        let pod = json!({"spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "1"}}}]},
            "status": {"containerStatuses": [{"name": "a", "resources": {"requests": {"cpu": "2"}},
                "allocatedResources": {"cpu": "3"}}]}});
        assert_eq!(written(of("", "pods", &pod)), "count/pods=1,cpu=3,pods=1,requests.cpu=3");
        let whole = json!({"spec": {"resources": {"requests": {"cpu": "5"}}, "containers": [{"name": "a"}]}});
        assert_eq!(written(of("", "pods", &whole)), "count/pods=1,cpu=5,pods=1,requests.cpu=5");
        let late = json!({"metadata": {"deletionTimestamp": "2020-01-01T00:00:00Z", "deletionGracePeriodSeconds": 30}});
        assert_eq!(written(of("", "pods", &late)), "count/pods=1");
        let claim = json!({"spec": {"devices": {"requests": [
            {"exactly": {"deviceClassName": "gold", "allocationMode": "ExactCount", "count": 2}},
            {"firstAvailable": [{"deviceClassName": "gold", "allocationMode": "ExactCount", "count": 1},
                {"deviceClassName": "silver", "allocationMode": "All"}]}]}}});
        assert_eq!(
            written(of("resource.k8s.io", "resourceclaims", &claim)),
            "count/resourceclaims.resource.k8s.io=1,gold.deviceclass.resource.k8s.io/devices=3,\
             silver.deviceclass.resource.k8s.io/devices=32"
        );
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
