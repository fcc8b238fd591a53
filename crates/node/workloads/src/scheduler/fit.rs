//! Whether a node's own properties suit a Pod: labels, names and taints. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodSpec, Taint, Toleration,
};

pub const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
/// Effects of taints that keep a Pod away.
pub const HARD: &[&str] = &["NoSchedule", "NoExecute"];

fn labels(node: &Node) -> &BTreeMap<String, String> {
    static NONE: BTreeMap<String, String> = BTreeMap::new();
    node.metadata.labels.as_ref().unwrap_or(&NONE)
}

/// `nodeSelector` and the affinity that is required.
pub fn suits(spec: &PodSpec, node: &Node) -> bool {
    let labels = labels(node);
    let selected = spec.node_selector.iter().flatten().all(|(name, value)| labels.get(name) == Some(value));
    let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    selected && required.is_none_or(|required| matches_any(required, node))
}

pub fn matches_any(selector: &NodeSelector, node: &Node) -> bool {
    selector.node_selector_terms.iter().any(|term| matches(term, node))
}

/// A term that asks for nothing is met by nobody.
pub fn matches(term: &NodeSelectorTerm, node: &Node) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    let name = [("metadata.name".to_owned(), node.metadata.name.clone().unwrap_or_default())].into();
    !(expressions.is_empty() && fields.is_empty())
        && expressions.iter().all(|requirement| holds(requirement, labels(node)))
        && fields.iter().all(|requirement| holds(requirement, &name))
}

fn holds(requirement: &NodeSelectorRequirement, labels: &BTreeMap<String, String>) -> bool {
    let value = labels.get(&requirement.key);
    let values = requirement.values.as_deref().unwrap_or_default();
    let number = |text: &str| text.parse::<i64>().ok();
    let compared = || Some((number(value?)?, number(values.first()?)?));
    match requirement.operator.as_str() {
        "In" => value.is_some_and(|value| values.contains(value)),
        "NotIn" => !value.is_some_and(|value| values.contains(value)),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compared().is_some_and(|(has, limit)| has > limit),
        "Lt" => compared().is_some_and(|(has, limit)| has < limit),
        _ => false,
    }
}

pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let is_set = |text: &Option<String>| text.as_deref().is_some_and(|text| !text.is_empty());
    if is_set(&toleration.effect) && toleration.effect.as_deref() != Some(&taint.effect) {
        return false;
    }
    if is_set(&toleration.key) && toleration.key.as_deref() != Some(&taint.key) {
        return false;
    }
    let (ours, theirs) = (toleration.value.as_deref().unwrap_or(""), taint.value.as_deref().unwrap_or(""));
    let number = |text: &str| text.parse::<i64>().ok();
    match toleration.operator.as_deref().unwrap_or("Equal") {
        "" | "Equal" => ours == theirs && is_set(&toleration.key),
        "Exists" => true,
        "Gt" => number(theirs).zip(number(ours)).is_some_and(|(taint, limit)| taint > limit),
        "Lt" => number(theirs).zip(number(ours)).is_some_and(|(taint, limit)| taint < limit),
        _ => false,
    }
}

/// The first taint of these effects that nothing tolerates.
pub fn untolerated<'a>(taints: &'a [Taint], tolerations: &[Toleration], effects: &[&str]) -> Option<&'a Taint> {
    let hurts = |taint: &&Taint| effects.contains(&taint.effect.as_str());
    taints.iter().filter(hurts).find(|taint| !tolerations.iter().any(|toleration| tolerates(toleration, taint)))
}

/// A node that is cordoned counts as tainted.
pub fn is_closed(spec: &PodSpec, node: &Node) -> bool {
    let closed = node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false);
    let taint = Taint { key: UNSCHEDULABLE.into(), effect: "NoSchedule".into(), ..Taint::default() };
    closed && !spec.tolerations.iter().flatten().any(|toleration| tolerates(toleration, &taint))
}

pub fn taints(node: &Node) -> &[Taint] {
    node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default()
}
