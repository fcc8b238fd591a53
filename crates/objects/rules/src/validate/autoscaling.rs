//! HorizontalPodAutoscaler and PodDisruptionBudget: how many pods there should be.

use schema::names;

use super::amount::Amount;
use super::apps::{at_most_100_percent, int_or_percent};
use super::node::{Node, Quoted};
use super::pod::resources;
use super::{Rules, internal, meta, status};

const SOURCES: &[(&str, &str)] = &[
    ("Object", "object"),
    ("External", "external"),
    ("Pods", "pods"),
    ("Resource", "resource"),
    ("ContainerResource", "containerResource"),
];
const SOURCE_TYPES: &[&str] = &["ContainerResource", "External", "Object", "Pods", "Resource"];

pub(super) fn autoscaler() -> Rules {
    Rules::new(|new| spec_of(new, false)).updated(|new, old| spec_of(new, has_same_target(new, old))).status(
        |new, _| {
            for field in ["currentReplicas", "desiredReplicas"] {
                new.get("status").get(field).non_negative();
            }
        },
    )
}

/// What is of the same kind and version as before is not held against rules that may be younger than it.
fn has_same_target(new: Node<'_>, old: Node<'_>) -> bool {
    let target = |root: Node<'_>| {
        let target = root.get("spec").get("scaleTargetRef");
        (target.get("kind").str().to_owned(), target.get("apiVersion").str().to_owned())
    };
    target(new) == target(old)
}

fn spec_of(root: Node<'_>, keeps_target: bool) {
    let spec = root.get("spec");
    let (min, max) = (spec.get("minReplicas"), spec.get("maxReplicas"));
    if min.int().is_some_and(|n| n < 1) {
        min.invalid("must be greater than or equal to 1");
    }
    match max.int_or_0() {
        0 => max.required("must be set and greater than 0"),
        n if n < 0 => max.invalid("must be greater than or equal to 1"),
        _ => {}
    }
    if min.int().is_some_and(|n| max.int_or_0() < n) {
        max.invalid_as(max.int_or_0(), "must be greater than or equal to `minReplicas`");
    }
    let target = spec.get("scaleTargetRef");
    named(target);
    if !keeps_target {
        version(target);
        let version = target.get("apiVersion");
        let has_group = match version.str().split_once('/') {
            Some((group, rest)) => !group.is_empty() || rest.contains('/'),
            // It is the only kind of the core group that can be scaled.
            None => target.get("kind").str() == "ReplicationController",
        };
        if !has_group {
            version.invalid_str("apiVersion must specify API group");
        }
    }
    spec.get("metrics").items().for_each(metric);
    let outside = |metric: Node<'_>| matches!(metric.get("type").str(), "Object" | "External");
    if min.int() == Some(0) && !spec.get("metrics").items().any(outside) {
        spec.get("metrics")
            .forbidden("must specify at least one Object or External metric to support scaling to zero replicas");
    }
    for direction in ["scaleUp", "scaleDown"] {
        let rules = spec.get("behavior").get(direction);
        if rules.is_set() {
            scaling_rules(rules);
        }
    }
}

fn named(target: Node<'_>) {
    target.get("kind").required_and(names::path_segment);
    target.get("name").required_and(names::path_segment);
}

fn reference(target: Node<'_>) {
    named(target);
    version(target);
}

fn version(target: Node<'_>) {
    let version = target.get("apiVersion");
    match version.str().split('/').collect::<Vec<_>>()[..] {
        [_] | [_, _] => {}
        _ => version.invalid_str(&format!("unexpected GroupVersion string: {}", version.str())),
    }
}

fn metric(metric: Node<'_>) {
    let kind = metric.get("type");
    if kind.is_empty() {
        kind.required("must specify a metric source type");
    }
    kind.one_of(SOURCE_TYPES);
    let present: Vec<&'static str> = SOURCES.iter().map(|(_, f)| *f).filter(|f| metric.get(f).is_set()).collect();
    if let Some(first) = present.first() {
        source(metric.get(first), first);
    }
    let expected = SOURCES.iter().find(|(name, _)| *name == kind.str()).map(|(_, field)| *field);
    match expected {
        Some(field) if !metric.get(field).is_set() => {
            metric.get(field).required("must populate information for the given metric source");
        }
        Some(_) => {}
        None => kind.not_supported(SOURCE_TYPES),
    }
    if present.len() != 1 {
        for field in present.into_iter().filter(|field| Some(*field) != expected) {
            metric.get(field).forbidden("must populate the given metric source only");
        }
    }
}

fn source(source: Node<'_>, kind: &str) {
    let target = source.get("target");
    let (value, average, utilization) =
        (target.get("value"), target.get("averageValue"), target.get("averageUtilization"));
    let name = source.get("metric").get("name");
    match kind {
        "object" => reference(source.get("describedObject")),
        "resource" if source.get("name").is_empty() => source.get("name").required("must specify a resource name"),
        "containerResource" => {
            let resource = source.get("name");
            if resource.is_empty() {
                resource.required("must specify a resource name");
            } else {
                resources::container_resource_name(resource, resource.str());
            }
            let container = source.get("container");
            if container.is_empty() {
                container.required("must specify a container");
            } else {
                container.check(names::dns1123_label);
            }
        }
        _ => {}
    }
    if matches!(kind, "object" | "external" | "pods") {
        if name.is_empty() {
            name.required("must specify a metric name");
        } else {
            name.check(names::path_segment);
        }
    }
    metric_target(target);
    match kind {
        "object" if !value.is_set() && !average.is_set() => {
            average.required("must set either a target value or averageValue");
        }
        "external" if !value.is_set() && !average.is_set() => {
            average.required("must set either a target value for metric or a per-pod target");
        }
        "external" if value.is_set() && average.is_set() => {
            value.forbidden("may not set both a target value for metric and a per-pod target");
        }
        "pods" if !average.is_set() => average.required("must specify a positive target averageValue"),
        "resource" | "containerResource" => match (utilization.is_set(), average.is_set()) {
            (false, false) => utilization.required("must set either a target raw value or a target utilization"),
            (true, true) => average.forbidden("may not set both a target raw value and a target utilization"),
            _ => {}
        },
        _ => {}
    }
}

fn metric_target(target: Node<'_>) {
    let kind = target.get("type");
    if kind.is_empty() {
        kind.required("must specify a metric target type");
    }
    if !matches!(kind.str(), "Utilization" | "Value" | "AverageValue") {
        kind.invalid_str("must be either Utilization, Value, or AverageValue");
    }
    for field in ["value", "averageValue"] {
        let amount = target.get(field);
        if amount.is_set() && Amount::of(amount.value) <= Amount::zero() {
            amount.invalid("must be positive");
        }
    }
    let utilization = target.get("averageUtilization");
    if utilization.int().is_some_and(|n| n < 1) {
        utilization.invalid("must be greater than 0");
    }
}

fn scaling_rules(rules: Node<'_>) {
    let window = rules.get("stabilizationWindowSeconds");
    if window.int().is_some_and(|n| n < 0) {
        window.invalid("must be greater than or equal to zero");
    }
    if window.int().is_some_and(|n| n > 3600) {
        window.invalid("must be less than or equal to 3600");
    }
    if rules.get("selectPolicy").is_set() {
        rules.get("selectPolicy").one_of(&["Disabled", "Max", "Min"]);
    }
    let policies = rules.get("policies");
    if policies.is_empty() {
        policies.required("must specify at least one Policy");
    }
    for policy in policies.items() {
        policy.get("type").one_of(&["Percent", "Pods"]);
        for field in ["value", "periodSeconds"] {
            let number = policy.get(field);
            if number.int_or_0() <= 0 {
                number.invalid_as(number.int_or_0(), "must be greater than zero");
            }
        }
        if policy.get("periodSeconds").int_or_0() > 1800 {
            policy.get("periodSeconds").invalid("must be less than or equal to 1800");
        }
    }
    let tolerance = rules.get("tolerance");
    if Amount::of(tolerance.value) < Amount::zero() {
        tolerance.invalid_as(Quoted(tolerance.str()), "must be greater than or equal to 0");
    }
}

pub(super) fn disruption_budget() -> Rules {
    Rules::new(budget).before(|_, _| {}).without_meta().status(|new, _| {
        status::conditions(new.get("status").get("conditions"));
        for field in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
            new.get("status").get(field).non_negative();
        }
    })
}

fn budget(root: Node<'_>) {
    let spec = root.get("spec");
    let (min, max) = (spec.get("minAvailable"), spec.get("maxUnavailable"));
    if min.is_set() && max.is_set() {
        let shown = internal::shown("PodDisruptionBudgetSpec", spec.value);
        spec.invalid_as(shown, "minAvailable and maxUnavailable cannot be both set");
    }
    for bound in [min, max] {
        if bound.is_set() {
            int_or_percent(bound);
            at_most_100_percent(bound);
        }
    }
    meta::label_selector(spec.get("selector"));
    if spec.get("unhealthyPodEvictionPolicy").is_set() {
        spec.get("unhealthyPodEvictionPolicy").one_of(&["AlwaysAllow", "IfHealthyBudget"]);
    }
}
