//! LimitRange and ResourceQuota.

use std::collections::{BTreeSet, HashSet};

use schema::names;

use super::amount::Amount;
use super::node::{Go, Node};
use super::pod::resources::{container_resource_name, overcommit_allowed, quantity, resource_name};

const QUOTA: &[&str] = &[
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.storage",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "persistentvolumeclaims",
    "configmaps",
    "services.nodeports",
    "services.loadbalancers",
];
const SCOPES: &[&str] = &[
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "VolumeAttributesClass",
    "CrossNamespacePodAffinity",
];
const COMPUTE: &[&str] = &["pods", "cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"];

pub(super) fn limit_range(root: Node<'_>) {
    let mut types = HashSet::new();
    for limit in root.get("spec").get("limits").items() {
        let kind = limit.get("type");
        let complaints = names::qualified_name(kind.str());
        if complaints.is_empty()
            && !kind.str().contains('/')
            && !matches!(kind.str(), "Pod" | "Container" | "PersistentVolumeClaim")
        {
            kind.invalid_str("must be a standard limit type or fully qualified");
        }
        kind.all(complaints);
        if !types.insert(kind.str()) {
            kind.duplicate();
        }
        limit_item(limit, kind.str());
    }
}

fn limit_item(limit: Node<'_>, kind: &str) {
    let mut keys = BTreeSet::new();
    let mut known = |field: &'static str| {
        for (name, entry) in limit.get(field).entries() {
            if matches!(kind, "Pod" | "Container") {
                container_resource_name(entry, name);
            } else {
                resource_name(entry, name);
            }
            keys.insert(name);
        }
    };
    known("max");
    known("min");
    if kind == "Pod" {
        for field in ["default", "defaultRequest"] {
            if !limit.get(field).is_empty() {
                limit.get(field).forbidden("may not be specified when `type` is 'Pod'");
            }
        }
    } else {
        known("default");
        known("defaultRequest");
    }
    let bounded = ["min", "max"].iter().any(|f| limit.get(f).value.get("storage").is_some());
    if kind == "PersistentVolumeClaim" && !bounded {
        limit.get("limits").required("either minimum or maximum storage value is required, but neither was provided");
    }
    known("maxLimitRequestRatio");
    for key in keys {
        compare(limit, kind, key);
    }
}

fn compare(limit: Node<'_>, kind: &str, key: &str) {
    let get = |field: &'static str| {
        let skip = kind == "Pod" && field.starts_with("default");
        limit.get(field).value.get(key).filter(|_| !skip).map(|value| limit.get(field).key(key).with(value))
    };
    let over = |a: Option<Node<'_>>, b: Option<Node<'_>>| match (a, b) {
        (Some(a), Some(b)) => Amount::of(a.value) > Amount::of(b.value),
        _ => false,
    };
    let text = |node: Option<Node<'_>>| node.map_or(String::new(), |n| n.str().to_owned());
    let (min, max, default, request, ratio) =
        (get("min"), get("max"), get("default"), get("defaultRequest"), get("maxLimitRequestRatio"));
    if let Some(at) = min.filter(|_| over(min, max)) {
        at.invalid(&format!("min value {} is greater than max value {}", text(min), text(max)));
    }
    if let Some(at) = request {
        if over(min, request) {
            at.invalid(&format!("min value {} is greater than default request value {}", text(min), text(request)));
        }
        if over(request, max) {
            at.invalid(&format!("default request value {} is greater than max value {}", text(request), text(max)));
        }
        if over(request, default) {
            at.invalid(&format!(
                "default request value {} is greater than default limit value {}",
                text(request),
                text(default)
            ));
        }
    }
    if let Some(at) = default {
        if over(min, default) {
            at.invalid_text(
                &text(min),
                &format!("min value {} is greater than default value {}", text(min), text(default)),
            );
        }
        if over(default, max) {
            at.invalid_text(
                &text(max),
                &format!("default value {} is greater than max value {}", text(default), text(max)),
            );
        }
    }
    if let Some(at) = ratio {
        if Amount::of(at.value) < Amount::one() {
            at.invalid(&format!("ratio {} is less than 1", at.str()));
        }
        if let (Some(min), Some(max)) = (min, max) {
            let bound = Amount::of(max.value).ratio(&Amount::of(min.value));
            if Amount::of(at.value).ratio(&Amount::one()) > bound {
                at.invalid(&format!("ratio {} is greater than max/min = {bound:.6}", at.str()));
            }
        }
    }
    if let (Some(at), Some(default)) = (request, default)
        && !overcommit_allowed(key)
        && Amount::of(at.value) != Amount::of(default.value)
    {
        at.invalid(&format!(
            "default value {} must equal to defaultRequest value {} in {key}",
            default.str(),
            at.str()
        ));
    }
}

pub(super) fn resource_quota(root: Node<'_>) {
    quota_spec(root.get("spec"));
    quota_status(root);
}

fn quota_status(root: Node<'_>) {
    amounts(root.get("status").get("hard"));
    amounts(root.get("status").get("used"));
}

fn amounts(map: Node<'_>) {
    for (name, entry) in map.entries() {
        resource_name(entry, name);
        let object_count = name.starts_with("count/");
        let huge = name.starts_with("hugepages-") || name.starts_with("requests.hugepages-");
        if !name.contains('/') && !object_count && !huge && !QUOTA.contains(&name) {
            entry.invalid_text(name, "must be a standard resource for quota");
        }
        quantity(entry, name);
    }
}

fn scope_fits(scope: &str, resource: &str) -> bool {
    match scope {
        "Terminating" | "NotTerminating" | "NotBestEffort" | "PriorityClass" | "CrossNamespacePodAffinity" => {
            COMPUTE.contains(&resource)
        }
        "BestEffort" => resource == "pods",
        "VolumeAttributesClass" => matches!(resource, "persistentvolumeclaims" | "requests.storage"),
        _ => true,
    }
}

fn quota_spec(spec: Node<'_>) {
    amounts(spec.get("hard"));
    let hard: Vec<&str> = spec.get("hard").map().into_iter().flatten().map(|(k, _)| k.as_str()).collect();
    let misfits = |scope: &str| hard.iter().filter(|r| QUOTA.contains(*r) && !scope_fits(scope, r)).count();
    let conflict = |all: &HashSet<&str>| {
        [["BestEffort", "NotBestEffort"], ["Terminating", "NotTerminating"]]
            .iter()
            .filter(|pair| pair.iter().all(|s| all.contains(s)))
            .count()
    };
    let scopes = spec.get("scopes");
    let mut all = HashSet::new();
    for scope in scopes.items().map(Node::str) {
        if !SCOPES.contains(&scope) {
            scopes.invalid("unsupported scope");
        }
        for _ in 0..misfits(scope) {
            scopes.invalid("unsupported scope applied to resource");
        }
        all.insert(scope);
    }
    for _ in 0..conflict(&all) {
        scopes.invalid("conflicting scopes");
    }
    let expressions = spec.get("scopeSelector").get("matchExpressions");
    let mut all = HashSet::new();
    for requirement in expressions.array() {
        let requirement = expressions.with(requirement);
        let (scope, operator, values) =
            (requirement.get("scopeName"), requirement.get("operator"), requirement.get("values"));
        if !SCOPES.contains(&scope.str()) {
            scope.invalid_str("unsupported scope");
        }
        for _ in 0..misfits(scope.str()) {
            let shown = super::internal::shown("ScopeSelector", spec.get("scopeSelector").value);
            expressions.invalid_as(shown, "unsupported scope applied to resource");
        }
        let exists_only =
            !matches!(scope.str(), "PriorityClass" | "VolumeAttributesClass") && SCOPES.contains(&scope.str());
        if exists_only && operator.str() != "Exists" {
            operator.invalid_str(
                "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, \
                 ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or \
                 ResourceQuotaScopeCrossNamespacePodAffinity",
            );
        }
        match operator.str() {
            "In" | "NotIn" => {
                if values.is_empty() {
                    values.required("must be at least one value when `operator` is 'In' or 'NotIn' for scope selector");
                }
            }
            "Exists" | "DoesNotExist" => {
                if !values.is_empty() {
                    values.invalid("must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector");
                }
            }
            _ => operator.invalid_str("not a valid selector operator"),
        }
        all.insert(scope.str());
    }
    for _ in 0..conflict(&all) {
        expressions.invalid_as(Go(scopes.value), "conflicting scopes");
    }
}

pub(super) fn resource_quota_update(new: Node<'_>, old: Node<'_>) {
    quota_spec(new.get("spec"));
    let scopes = |root: Node<'_>| {
        root.get("spec").get("scopes").array().iter().map(ToString::to_string).collect::<BTreeSet<_>>()
    };
    if scopes(new) != scopes(old) {
        new.get("spec").get("scopes").invalid("field is immutable");
    }
}

pub(super) fn resource_quota_status(new: Node<'_>, _old: Node<'_>) {
    quota_status(new);
}
