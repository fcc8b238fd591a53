//! How much a pod asks for, in numbers.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{Container, Pod, PodSpec, ResourceRequirements},
    apimachinery::pkg::api::resource::Quantity,
};
use schema::quantity::Quantity as Amount;

use crate::{runtime::Limits, spec};

pub type Amounts = BTreeMap<String, Quantity>;

pub fn amount(amounts: Option<&Amounts>, name: &str) -> Option<Amount> {
    amounts.and_then(|amounts| amounts.get(name)).and_then(|text| text.0.parse().ok())
}

pub fn limits(container: &Container) -> Limits {
    let limits = container.resources.as_ref().and_then(|resources| resources.limits.as_ref());
    let positive = |value: i64| u64::try_from(value).ok().filter(|value| *value > 0);
    Limits {
        cpu_millis: amount(limits, "cpu").and_then(|cpu| positive(cpu.milli_value())),
        memory_bytes: amount(limits, "memory").and_then(|memory| positive(memory.value())),
        processes: None,
    }
}

/// What a pod counts on its node, in thousandths of a cpu and whole units of everything else.
pub fn requests(pod: &Pod) -> BTreeMap<String, i64> {
    let Some(spec) = &pod.spec else { return BTreeMap::new() };
    let mut total = BTreeMap::new();
    for container in &spec.containers {
        add(&mut total, &of(container.resources.as_ref()));
    }
    // Sidecars count beside what runs with them, init containers only while they run.
    let (mut sidecars, mut peak) = (BTreeMap::new(), BTreeMap::new());
    for container in spec.init_containers.iter().flatten() {
        let own = of(container.resources.as_ref());
        let mut at_once = sidecars.clone();
        add(&mut at_once, &own);
        if container.restart_policy.as_deref() == Some("Always") {
            sidecars.clone_from(&at_once);
        }
        most(&mut peak, &at_once);
    }
    add(&mut total, &sidecars);
    most(&mut total, &peak);
    for (name, value) in of(spec.resources.as_ref()) {
        total.insert(name, value);
    }
    add(&mut total, &numbers(spec.overhead.as_ref()));
    total
}

fn of(resources: Option<&ResourceRequirements>) -> BTreeMap<String, i64> {
    numbers(resources.and_then(|resources| resources.requests.as_ref()))
}

pub fn numbers(amounts: Option<&Amounts>) -> BTreeMap<String, i64> {
    let names = amounts.into_iter().flat_map(BTreeMap::keys);
    names.filter_map(|name| Some((name.clone(), number(name, &amount(amounts, name)?)))).collect()
}

fn number(name: &str, amount: &Amount) -> i64 {
    if name == "cpu" { amount.milli_value() } else { amount.value() }
}

fn add(total: &mut BTreeMap<String, i64>, more: &BTreeMap<String, i64>) {
    for (name, value) in more {
        let sum = total.entry(name.clone()).or_default();
        *sum = sum.saturating_add(*value);
    }
}

fn most(total: &mut BTreeMap<String, i64>, other: &BTreeMap<String, i64>) {
    for (name, value) in other {
        let most = total.entry(name.clone()).or_default();
        *most = (*most).max(*value);
    }
}

/// A pod's class of service.
pub fn qos(spec: &PodSpec) -> &'static str {
    let containers = || spec::containers(spec).filter(|(role, _)| *role != spec::Role::Ephemeral);
    let counted = ["cpu", "memory"];
    let set = |amounts: Option<&Amounts>, name| amount(amounts, name).is_some_and(|amount| !amount.is_zero());
    let asks = |resources: Option<&ResourceRequirements>| {
        resources.is_some_and(|resources| {
            let (requests, limits) = (resources.requests.as_ref(), resources.limits.as_ref());
            counted.iter().any(|name| set(requests, name) || set(limits, name))
        })
    };
    let is_guaranteed = |resources: Option<&ResourceRequirements>| {
        resources.is_some_and(|resources| {
            let (requests, limits) = (resources.requests.as_ref(), resources.limits.as_ref());
            counted.iter().all(|name| {
                let limit = amount(limits, name).filter(|amount| !amount.is_zero());
                limit.is_some() && amount(requests, name).is_none_or(|request| Some(request) == limit)
            })
        })
    };
    if spec.resources.is_some() && asks(spec.resources.as_ref()) {
        return if is_guaranteed(spec.resources.as_ref()) { "Guaranteed" } else { "Burstable" };
    }
    if !containers().any(|(_, container)| asks(container.resources.as_ref())) {
        return "BestEffort";
    }
    let all = containers().all(|(_, container)| is_guaranteed(container.resources.as_ref()));
    if all { "Guaranteed" } else { "Burstable" }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn spec(containers: Value, init: Value) -> PodSpec {
        serde_json::from_value(json!({"containers": containers, "initContainers": init})).unwrap()
    }

    #[test]
    fn classes_of_service() {
        let of = |resources: Value| json!({"name": "a", "resources": resources});
        for (containers, expected) in [
            (vec![of(json!({}))], "BestEffort"),
            (vec![of(json!({"requests": {"cpu": "0"}}))], "BestEffort"),
            (vec![of(json!({"requests": {"cpu": "1"}}))], "Burstable"),
            (vec![of(json!({"limits": {"cpu": "1", "memory": "1Gi"}}))], "Guaranteed"),
            (
                vec![of(
                    json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1000m", "memory": "1Gi"}}),
                )],
                "Guaranteed",
            ),
            (
                vec![of(
                    json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m", "memory": "1Gi"}}),
                )],
                "Burstable",
            ),
            (vec![of(json!({"limits": {"cpu": "1", "memory": "1Gi"}})), of(json!({}))], "Burstable"),
        ] {
            assert_eq!(qos(&spec(json!(containers), json!([]))), expected, "{containers:?}");
        }
    }

    #[test]
    fn init_containers_count_only_while_they_run() {
        let of = |name: &str, cpu: &str| json!({"name": name, "resources": {"requests": {"cpu": cpu}}});
        let mut sidecar = of("s", "100m");
        sidecar["restartPolicy"] = "Always".into();
        let cpu = |containers: Value, init: Value| {
            let pod = Pod { spec: Some(spec(containers, init)), ..Pod::default() };
            requests(&pod).remove("cpu").unwrap()
        };
        assert_eq!(cpu(json!([of("a", "1"), of("b", "500m")]), json!([])), 1500);
        assert_eq!(cpu(json!([of("a", "1")]), json!([of("i", "2")])), 2000);
        assert_eq!(cpu(json!([of("a", "1")]), json!([sidecar.clone()])), 1100);
        assert_eq!(cpu(json!([of("a", "1")]), json!([sidecar, of("i", "1500m")])), 1600);
    }

    #[test]
    fn limits_are_numbers() {
        let container: Container =
            serde_json::from_value(json!({"name": "a", "resources": {"limits": {"cpu": "250m", "memory": "64Mi"}}}))
                .unwrap();
        assert_eq!(limits(&container), Limits { cpu_millis: Some(250), memory_bytes: Some(64 << 20), processes: None });
    }
}
