//! Whether this node takes a pod, in a kubelet's words if not. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec};

use crate::resources;

/// The node, as far as it matters for who may run there.
#[derive(Clone, Debug, Default)]
pub struct Room {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    /// In thousandths of a cpu and whole units of everything else; `pods` included.
    pub allocatable: BTreeMap<String, i64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub reason: String,
    pub message: String,
}

/// Checks one more pod beside what the others ask for.
pub fn admit(pod: &Pod, others: &[&BTreeMap<String, i64>], room: &Room) -> Result<(), Refusal> {
    let refuse = |reason: &str, why: String| {
        Err(Refusal { reason: reason.to_owned(), message: format!("Pod was rejected: {why}") })
    };
    let too_little = |name: &str, requested: i64, used: i64, capacity: i64| {
        let why = format!(
            "Node didn't have enough resource: {name}, requested: {requested}, used: {used}, capacity: {capacity}"
        );
        refuse(&format!("OutOf{name}"), why)
    };
    if let Some(spec) = &pod.spec
        && !matches(spec, room)
    {
        return refuse(
            "NodeAffinity",
            "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector".into(),
        );
    }
    let count = i64::try_from(others.len()).unwrap_or(i64::MAX);
    if let Some(capacity) = room.allocatable.get("pods").filter(|capacity| count >= **capacity) {
        return too_little("pods", 1, count, *capacity);
    }
    for (name, requested) in resources::requests(pod).into_iter().filter(|(_, requested)| *requested > 0) {
        let capacity = room.allocatable.get(&name).copied().unwrap_or_default();
        let used =
            others.iter().filter_map(|other| other.get(&name)).fold(0_i64, |sum, more| sum.saturating_add(*more));
        if requested > capacity.saturating_sub(used) {
            return too_little(&name, requested, used, capacity);
        }
    }
    Ok(())
}

/// Whether the pod wants to be on such a node.
pub fn matches(spec: &PodSpec, room: &Room) -> bool {
    let selected = spec.node_selector.iter().flatten().all(|(name, value)| room.labels.get(name) == Some(value));
    let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    selected && required.is_none_or(|required| required.node_selector_terms.iter().any(|term| is_term_met(term, room)))
}

fn is_term_met(term: &NodeSelectorTerm, room: &Room) -> bool {
    let labels = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    // A term that says nothing matches nothing.
    if labels.is_empty() && fields.is_empty() {
        return false;
    }
    labels.iter().all(|requirement| is_met(requirement, room.labels.get(&requirement.key)))
        && fields.iter().all(|requirement| requirement.key == "metadata.name" && is_met(requirement, Some(&room.name)))
}

fn is_met(requirement: &NodeSelectorRequirement, value: Option<&String>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let compare = |is: fn(i64, i64) -> bool| {
        let bound = values.first().and_then(|bound| bound.parse().ok());
        value.and_then(|value| value.parse().ok()).zip(bound).is_some_and(|(value, bound)| is(value, bound))
    };
    match requirement.operator.as_str() {
        "In" => value.is_some_and(|value| values.contains(value)),
        "NotIn" => value.is_none_or(|value| !values.contains(value)),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compare(|value, bound| value > bound),
        "Lt" => compare(|value, bound| value < bound),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn room() -> Room {
        Room {
            name: "florin".into(),
            labels: [("disk".to_owned(), "ssd".to_owned()), ("cores".to_owned(), "4".to_owned())].into(),
            allocatable: [("cpu".to_owned(), 2000), ("memory".to_owned(), 1000), ("pods".to_owned(), 3)].into(),
        }
    }

    #[test]
    fn refusals_are_a_kubelets() {
        let asking = |resources: Value| json!({"containers": [{"name": "a", "resources": {"requests": resources}}]});
        let wanting = |expression: Value| {
            json!({"containers": [], "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
                {"nodeSelectorTerms": [expression]}}}})
        };
        let label = |key: &str, operator: &str, values: &[&str]| {
            wanting(json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]}))
        };
        let used = BTreeMap::from([("cpu".to_owned(), 1500)]);
        for (spec, others, expected) in [
            (asking(json!({"cpu": "500m"})), 1, None),
            (asking(json!({"cpu": "501m"})), 1, Some("OutOfcpu")),
            (asking(json!({"memory": "1001"})), 0, Some("OutOfmemory")),
            (asking(json!({"example.com/gpu": "1"})), 0, Some("OutOfexample.com/gpu")),
            (asking(json!({})), 3, Some("OutOfpods")),
            (json!({"containers": [], "nodeSelector": {"disk": "ssd"}}), 0, None),
            (json!({"containers": [], "nodeSelector": {"disk": "hdd"}}), 0, Some("NodeAffinity")),
            (label("disk", "In", &["ssd", "nvme"]), 0, None),
            (label("disk", "NotIn", &["ssd"]), 0, Some("NodeAffinity")),
            (label("gpu", "NotIn", &["a"]), 0, None),
            (label("gpu", "Exists", &[]), 0, Some("NodeAffinity")),
            (label("gpu", "DoesNotExist", &[]), 0, None),
            (label("cores", "Gt", &["3"]), 0, None),
            (label("cores", "Lt", &["3"]), 0, Some("NodeAffinity")),
            (
                wanting(json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["florin"]}]})),
                0,
                None,
            ),
            (wanting(json!({})), 0, Some("NodeAffinity")),
        ] {
            let pod: Pod = serde_json::from_value(json!({"spec": spec})).unwrap();
            let found = admit(&pod, &vec![&used; others], &room()).err();
            assert_eq!(found.as_ref().map(|refusal| refusal.reason.as_str()), expected, "{spec} {found:?}");
        }
        let pod: Pod = serde_json::from_value(json!({"spec": asking(json!({"cpu": "1"}))})).unwrap();
        let refusal = admit(&pod, &[&used], &room()).unwrap_err();
        let message =
            "Pod was rejected: Node didn't have enough resource: cpu, requested: 1000, used: 1500, capacity: 2000";
        assert_eq!(refusal.message, message);
    }
}
