//! Requests, limits and claims.

use std::collections::{BTreeMap, BTreeSet};

use schema::names;
use serde_json::{Value, json};

use super::Spec;
use crate::validate::amount::Amount;
use crate::validate::node::{Go, Node, Quoted};

const STANDARD: &[&str] = &[
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "storage",
    "requests.storage",
    "services.nodeports",
    "services.loadbalancers",
];
/// Counted in whole numbers, apart from extended resources.
const COUNTED: &[&str] = &[
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];

pub(crate) fn is_huge_page(name: &str) -> bool {
    name.starts_with("hugepages-")
}

pub(crate) fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

pub(crate) fn is_extended(name: &str) -> bool {
    !is_native(name) && !name.starts_with("requests.") && names::qualified_name(&format!("requests.{name}")).is_empty()
}

pub(crate) fn overcommit_allowed(name: &str) -> bool {
    is_native(name) && !is_huge_page(name)
}

fn is_standard(name: &str) -> bool {
    STANDARD.contains(&name) || name.starts_with("hugepages-") || name.starts_with("requests.hugepages-")
}

/// A resource by name: qualified, or one of those every cluster has.
pub(crate) fn resource_name(at: Node<'_>, name: &str) {
    let complaints = names::qualified_name(name);
    if complaints.is_empty() {
        if !name.contains('/') && !is_standard(name) {
            at.invalid_text(name, "must be a standard resource type or fully qualified");
        }
        return;
    }
    for complaint in complaints {
        at.invalid_text(name, &complaint);
    }
}

pub(crate) fn container_resource_name(at: Node<'_>, name: &str) {
    resource_name(at, name);
    if !name.contains('/') {
        if !matches!(name, "cpu" | "memory" | "ephemeral-storage") && !is_huge_page(name) {
            at.invalid_text(name, "must be a standard resource for containers");
        }
    } else if !is_native(name) && !is_extended(name) {
        at.invalid_text(name, "doesn't follow extended resource name standard");
    }
}

fn pod_resource_name(at: Node<'_>, name: &str) {
    let before = at.errors();
    resource_name(at, name);
    if at.errors() == before && !matches!(name, "cpu" | "memory") && !is_huge_page(name) {
        at.not_supported_as(Quoted(name), &["cpu", "hugepages-", "memory"]);
    }
}

pub(crate) fn quantity(at: Node<'_>, name: &str) {
    let amount = Amount::of(at.value);
    if amount < Amount::zero() {
        at.invalid("must be greater than or equal to 0");
    }
    if (COUNTED.contains(&name) || is_extended(name)) && !amount.is_integer() {
        at.invalid("must be an integer");
    }
}

fn huge_pages_divide(name: &str, value: &Value) -> bool {
    let page = Amount::of(&json!(name.strip_prefix("hugepages-").unwrap_or("")));
    let (page, amount) = (page.value(), Amount::of(value).value());
    page > 0 && amount % page == 0
}

type CheckName = fn(Node<'_>, &str);

pub(super) fn container(resources: Node<'_>, claims: &BTreeSet<&str>) {
    requirements(resources, resources.get("limits"), container_resource_name, claims);
}

/// A list of amounts that upstream treats as the limits of a container.
pub(crate) fn limits_only(at: Node<'_>, limits: Node<'_>) {
    requirements(at.with(&Value::Null), limits, container_resource_name, &BTreeSet::new());
}

fn requirements(at: Node<'_>, limits: Node<'_>, check: CheckName, claims: &BTreeSet<&str>) {
    let requests = at.get("requests");
    let (mut compute, mut huge) = (false, false);
    let mut amount = |name: &str, entry: Node<'_>| {
        check(entry, name);
        quantity(entry, name);
        compute |= matches!(name, "cpu" | "memory");
        huge |= is_huge_page(name);
    };
    let divides = |name: &str, entry: Node<'_>| {
        if is_huge_page(name) && !huge_pages_divide(name, entry.value) {
            entry.invalid(&format!("{} is not positive integer multiple of {name}", entry.str()));
        }
    };
    for (name, limit) in limits.entries() {
        amount(name, limit);
        divides(name, limit);
    }
    for (name, request) in requests.entries() {
        amount(name, request);
        let shown = requests.with(request.value);
        match limits.value.get(name) {
            Some(limit) => {
                let (want, have) = (Amount::of(request.value), Amount::of(limit));
                let limit = limit.as_str().unwrap_or("");
                if want != have && !overcommit_allowed(name) {
                    shown.invalid(&format!("must be equal to {name} limit of {limit}"));
                } else if want > have {
                    shown.invalid(&format!("must be less than or equal to {name} limit of {limit}"));
                }
            }
            None if !overcommit_allowed(name) => {
                limits.required("Limit must be set for non overcommitable resources");
            }
            None => {}
        }
        divides(name, request);
    }
    if huge && !compute {
        at.forbidden("HugePages require cpu or memory");
    }
    claim_names(at.get("claims"), claims);
}

/// At most this many names are shown of those that a claim could have.
const MAX_SHOWN: usize = 100;

fn claim_names(list: Node<'_>, claims: &BTreeSet<&str>) {
    let mut seen = BTreeSet::new();
    for claim in list.items() {
        let (name, request) = (claim.get("name").str(), claim.get("request"));
        if name.is_empty() {
            claim.required("");
            continue;
        }
        if seen.contains(name) {
            claim.duplicate_as(Quoted(name));
        } else {
            let mut key = name.to_owned();
            if !request.str().is_empty() {
                request.check(names::dns1123_label);
                key = format!("{name}/{}", request.str());
            }
            if seen.contains(&key) {
                claim.duplicate_as(Quoted(&key));
            } else if request.str().is_empty() {
                let prefix = format!("{name}/");
                for _ in seen.range(prefix.clone()..).take_while(|k: &&String| k.starts_with(&prefix)) {
                    claim.duplicate_as(Quoted(name));
                }
            }
            seen.insert(key);
        }
        if !claims.contains(name) {
            let mut detail = "must be one of the names in pod.spec.resourceClaims".to_owned();
            if claims.is_empty() {
                detail.push_str(" which is empty");
            } else {
                let list: Vec<&str> = claims.iter().copied().take(MAX_SHOWN).collect();
                detail.push_str(": ");
                detail.push_str(&list.join(", "));
                if claims.len() > MAX_SHOWN {
                    detail.push_str(", ...");
                }
            }
            claim.shown(schema::field::FieldErrorKind::NotFound, Quoted(name), &detail);
        }
    }
}

/// The pod's resource claims; answers their names.
pub(super) fn pod_claims<'a>(pod: Spec<'a>) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    for claim in pod.spec.get("resourceClaims").items() {
        let name = claim.get("name");
        if name.is_empty() {
            name.required("");
        } else if seen.insert(name.str()) {
            name.check(names::dns1123_label);
        } else {
            name.duplicate();
        }
        let (by_name, template) = (claim.get("resourceClaimName"), claim.get("resourceClaimTemplateName"));
        let shown = || {
            let text = |node: Node<'_>| Go(node.value).to_string();
            format!(
                "{{\"Name\":{},\"ResourceClaimName\":{},\"ResourceClaimTemplateName\":{}}}",
                Quoted(name.str()),
                text(by_name),
                text(template)
            )
        };
        match (by_name.is_set(), template.is_set()) {
            (true, true) => claim.invalid_as(
                shown(),
                "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified",
            ),
            (false, false) => {
                claim.invalid_as(shown(), "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`");
            }
            _ => {}
        }
        for node in [by_name, template] {
            if node.is_set() {
                node.check(names::dns1123_subdomain);
            }
        }
    }
    seen
}

/// Resources of the pod as a whole, which bound those of its containers.
pub(super) fn pod_resources(pod: Spec<'_>, claims: &BTreeSet<&str>) {
    let resources = pod.spec.get("resources");
    if !resources.is_set() {
        return;
    }
    if pod.spec.get("os").get("name").str() == "windows" {
        return resources.forbidden("may not be set for a windows pod");
    }
    if resources.get("claims").is_set() {
        resources.get("claims").forbidden("claims may not be set for Resources at pod-level");
    }
    requirements(resources, resources.get("limits"), pod_resource_name, claims);
    let mut total: BTreeMap<&str, i64> = BTreeMap::new();
    let sidecars = pod.spec.get("initContainers").items().filter(|c| c.get("restartPolicy").str() == "Always");
    for container in pod.spec.get("containers").items().chain(sidecars) {
        for (name, amount) in container.get("resources").get("requests").map().into_iter().flatten() {
            let sum = total.entry(name).or_default();
            *sum = sum.saturating_add(Amount::of(amount).milli());
        }
    }
    for (name, request) in resources.get("requests").entries() {
        let sum = total.get(name).copied().unwrap_or(0);
        if sum > Amount::of(request.value).milli() {
            let shown = if sum % 1000 == 0 { (sum / 1000).to_string() } else { format!("{sum}m") };
            request.invalid(&format!("must be greater than or equal to aggregate container requests of {shown}"));
        }
    }
    for (i, container) in pod.spec.get("containers").items().enumerate() {
        for (name, limit) in container.get("resources").get("limits").map().into_iter().flatten() {
            if let Some(bound) = resources.get("limits").value.get(name)
                && Amount::of(limit) > Amount::of(bound)
            {
                let at = resources.get("containers").index(i).key(name).get("limits").with(limit);
                at.invalid(&format!("must be less than or equal to pod limits of {}", bound.as_str().unwrap_or("")));
            }
        }
    }
}
