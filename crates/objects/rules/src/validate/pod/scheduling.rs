//! Where a pod may run: affinity, tolerations and spreading.

use std::collections::{HashMap, HashSet};

use schema::names;
use serde_json::Value;

use crate::validate::meta;
use crate::validate::node::{Node, Quoted};

const EFFECTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "NoExecute"];
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

pub(super) fn affinity(affinity: Node<'_>) {
    let nodes = affinity.get("nodeAffinity");
    if nodes.get(REQUIRED).is_set() {
        node_selector(nodes.get(REQUIRED));
    }
    for term in nodes.get(PREFERRED).items() {
        weight(term.get("weight"));
        node_selector_term(term.get("preference"), false);
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let pods = affinity.get(kind);
        pods.get(REQUIRED).items().for_each(pod_affinity_term);
        for term in pods.get(PREFERRED).items() {
            weight(term.get("weight"));
            pod_affinity_term(term.get("podAffinityTerm"));
        }
    }
}

fn weight(weight: Node<'_>) {
    if !(1..=100).contains(&weight.int_or_0()) {
        weight.invalid_as(weight.int_or_0(), "must be in the range 1-100");
    }
}

pub(crate) fn node_selector(selector: Node<'_>) {
    let terms = selector.get("nodeSelectorTerms");
    if terms.is_empty() {
        return terms.required("must have at least one node selector term");
    }
    terms.items().for_each(|term| node_selector_term(term, true));
}

fn node_selector_term(term: Node<'_>, strict: bool) {
    for requirement in term.get("matchExpressions").items() {
        let values = requirement.get("values");
        match requirement.get("operator").str() {
            "In" | "NotIn" => {
                if values.is_empty() {
                    values.required("must be specified when `operator` is 'In' or 'NotIn'");
                }
            }
            "Exists" | "DoesNotExist" => {
                if !values.is_empty() {
                    values.forbidden("may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
                }
            }
            "Gt" | "Lt" => {
                if values.len() != 1 {
                    values.required("must be specified single value when `operator` is 'Lt' or 'Gt'");
                }
            }
            _ => requirement.get("operator").invalid_str("not a valid selector operator"),
        }
        requirement.get("key").check(names::qualified_name);
        if strict {
            values.items().for_each(|value| value.check(names::label_value));
        }
    }
    for requirement in term.get("matchFields").items() {
        let (operator, key, values) = (requirement.get("operator"), requirement.get("key"), requirement.get("values"));
        if !matches!(operator.str(), "In" | "NotIn") {
            operator.invalid_str("not a valid selector operator");
        } else if values.len() != 1 {
            values.required("must be only one value when `operator` is 'In' or 'NotIn' for node field selector");
        }
        if key.str() == "metadata.name" {
            values.items().for_each(|value| value.check(names::dns1123_subdomain));
        } else {
            key.invalid_str("not a valid field selector key");
        }
    }
}

fn pod_affinity_term(term: Node<'_>) {
    meta::label_selector(term.get("labelSelector"));
    meta::label_selector(term.get("namespaceSelector"));
    for name in term.get("namespaces").array() {
        term.get("namespace").with(name).check(names::dns1123_label);
    }
    label_keys(term);
    let key = term.get("topologyKey");
    if key.str().is_empty() {
        key.required("can not be empty");
    }
    key.check(names::qualified_name);
}

fn label_keys(term: Node<'_>) {
    let selector = term.get("labelSelector");
    for field in ["matchLabelKeys", "mismatchLabelKeys"] {
        let keys = term.get(field);
        if keys.is_empty() {
            continue;
        }
        if selector.is_set() {
            keys.items().for_each(|key| key.check(names::qualified_name));
        } else {
            keys.forbidden("must not be specified when labelSelector is not set");
        }
    }
    let matched = term.get("matchLabelKeys");
    // The last place of each key.
    let places: HashMap<&str, usize> =
        matched.array().iter().enumerate().filter_map(|(at, key)| Some((key.as_str()?, at))).collect();
    let mut seen: HashSet<&str> =
        selector.get("matchLabels").map().into_iter().flatten().map(|(k, _)| k.as_str()).collect();
    for expression in selector.get("matchExpressions").items() {
        let key = expression.get("key").str();
        if let Some(at) = places.get(key).filter(|_| seen.contains(key)) {
            term.index(*at).invalid_text(key, "exists in both matchLabelKeys and labelSelector");
        }
        seen.insert(key);
    }
    let mismatched: HashSet<&Value> = term.get("mismatchLabelKeys").array().iter().collect();
    for key in matched.items() {
        if mismatched.contains(key.value) {
            key.invalid("exists in both matchLabelKeys and mismatchLabelKeys");
        }
    }
}

pub(super) fn topology_spread(constraints: Node<'_>) {
    // The last place of each pair: whatever comes before it is repeated later.
    fn pair(constraint: &Value) -> [&str; 2] {
        ["topologyKey", "whenUnsatisfiable"].map(|f| constraint.get(f).and_then(Value::as_str).unwrap_or_default())
    }
    let last: HashMap<[&str; 2], usize> =
        constraints.array().iter().enumerate().map(|(i, constraint)| (pair(constraint), i)).collect();
    for (i, constraint) in constraints.items().enumerate() {
        let skew = constraint.get("maxSkew");
        if skew.int_or_0() <= 0 {
            skew.invalid_as(skew.int_or_0(), "must be greater than zero");
        }
        let (key, action) = (constraint.get("topologyKey"), constraint.get("whenUnsatisfiable"));
        if key.str().is_empty() {
            key.required("can not be empty");
        }
        action.one_of(&["DoNotSchedule", "ScheduleAnyway"]);
        if last.get(&pair(constraint.value)).is_some_and(|last| *last > i) {
            let shown = format!("{{{}, {}}}", key.str(), action.str());
            constraint.get("{topologyKey, whenUnsatisfiable}").duplicate_as(Quoted(&shown));
        }
        let domains = constraint.get("minDomains");
        if let Some(count) = domains.int() {
            if count <= 0 {
                domains.invalid("must be greater than zero");
            }
            if action.str() != "DoNotSchedule" {
                let detail =
                    format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {}", action.str());
                domains.invalid(&detail);
            }
        }
        for field in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            if constraint.get(field).is_set() {
                constraint.get(field).one_of(&["Honor", "Ignore"]);
            }
        }
        label_keys(constraint);
        meta::label_selector(constraint.get("labelSelector"));
    }
}

pub(crate) fn tolerations(tolerations: Node<'_>) {
    tolerations.items().for_each(toleration);
}

pub(crate) fn toleration(toleration: Node<'_>) {
    let (key, operator, effect) = (toleration.get("key"), toleration.get("operator"), toleration.get("effect"));
    let value = toleration.get("value").str();
    if key.str().is_empty() {
        if operator.str() != "Exists" {
            operator.invalid_str(
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
            );
        }
    } else {
        key.check(names::qualified_name);
    }
    if toleration.get("tolerationSeconds").is_set() && effect.str() != "NoExecute" {
        effect.invalid_str("effect must be 'NoExecute' when `tolerationSeconds` is set");
    }
    match operator.str() {
        "Equal" | "" => {
            let complaints = names::label_value(value);
            if !complaints.is_empty() {
                operator.invalid_text(value, &complaints.join(";"));
            }
        }
        "Exists" => {
            if !value.is_empty() {
                operator.invalid_text(value, "value must be empty when `operator` is 'Exists'");
            }
        }
        "Lt" | "Gt" => operator.not_supported(&["Equal", "Exists", "Lt", "Gt"]),
        _ => operator.not_supported(&["Equal", "Exists"]),
    }
    if !effect.str().is_empty() {
        effect.one_of(EFFECTS);
    }
}

/// The effect of a taint, which it cannot do without.
pub(crate) fn taint_effect(effect: Node<'_>) {
    effect.required_one_of(EFFECTS);
}
