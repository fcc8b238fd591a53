//! Flow schemas and priority levels.

use std::collections::HashSet;

use schema::names;

use super::Rules;
use super::internal;
use super::node::{Go, Node};

const VERBS: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"];
const MAX_PRECEDENCE: i64 = 10_000;
const MAX_QUEUES: i64 = 10_000_000;
/// A hand of queues is dealt from a hash of 64 bits, some of which are spent on fairness.
const MAX_HASH_BITS: i64 = 60;

pub(super) fn rules(kind: &str) -> Rules {
    let rules = match kind {
        "FlowSchema" => Rules::new(flow_schema).before(flow_schema_update),
        "PriorityLevelConfiguration" => Rules::new(priority_level).again(|_, _| {}),
        _ => return Rules::new(|_| {}),
    };
    rules.without_meta_update().status(|new, _| conditions(new))
}

fn conditions(root: Node<'_>) {
    let mut seen = HashSet::new();
    for condition in root.get("status").get("conditions").items() {
        let ty = condition.get("type");
        if !seen.insert(ty.str()) {
            ty.duplicate_as(super::node::Quoted(ty.str()));
        }
        if ty.is_empty() {
            ty.required("");
        }
    }
}

fn flow_schema(root: Node<'_>) {
    let spec = root.get("spec");
    let precedence = spec.get("matchingPrecedence");
    let number = precedence.int_or_0();
    if number <= 0 {
        precedence.invalid_as(number, "must be a positive value");
    }
    if number > MAX_PRECEDENCE {
        precedence.invalid_as(number, &format!("must not be greater than {MAX_PRECEDENCE}"));
    }
    if number == 1 && root.get("metadata").get("name").str() != "exempt" {
        precedence.invalid_as(number, "only the schema named 'exempt' may have matchingPrecedence 1");
    }
    let method = spec.get("distinguisherMethod");
    if method.is_set() && !matches!(method.get("type").str(), "ByNamespace" | "ByUser") {
        let shown = internal::shown("FlowDistinguisherMethod", method.value);
        method.get("type").not_supported_as(shown, &["ByNamespace", "ByUser"]);
    }
    let level = spec.get("priorityLevelConfiguration").get("name");
    if level.is_empty() {
        level.required("must reference a priority level");
    } else {
        level.check(names::dns1123_subdomain);
    }
    spec.get("rules").items().for_each(policy_rule);
    conditions(root);
}

/// Those that every server has are as they were made.
fn flow_schema_update(new: Node<'_>, old: Node<'_>) {
    let (name, spec) = (new.get("metadata").get("name").str(), new.get("spec"));
    if matches!(name, "exempt" | "catch-all") && !spec.same(old.get("spec")) {
        let shown = internal::shown("FlowSchemaSpec", spec.value);
        spec.invalid_as(shown, &format!("spec of '{name}' must equal the fixed value"));
    }
}

fn policy_rule(rule: Node<'_>) {
    let subjects = rule.get("subjects");
    if subjects.is_empty() {
        subjects.required("subjects must contain at least one value");
    }
    subjects.items().for_each(subject);
    let (resources, others) = (rule.get("resourceRules"), rule.get("nonResourceRules"));
    if resources.is_empty() && others.is_empty() {
        rule.required("at least one of resourceRules and nonResourceRules has to be non-empty");
    }
    resources.items().for_each(resource_rule);
    others.items().for_each(url_rule);
}

fn subject(subject: Node<'_>) {
    let kinds = [("ServiceAccount", "serviceAccount"), ("User", "user"), ("Group", "group")];
    let kind = subject.get("kind");
    let Some((name, field)) = kinds.iter().find(|(name, _)| *name == kind.str()) else {
        return kind.not_supported(&["Group", "ServiceAccount", "User"]);
    };
    let who = subject.get(field);
    if !who.is_set() {
        who.required(&format!("{field} is required when subject kind is '{name}'"));
    } else if *name == "ServiceAccount" {
        account(who);
    } else if who.get("name").is_empty() {
        who.get("name").required("");
    }
    for (other, field) in kinds {
        if other != *name && subject.get(field).is_set() {
            subject.get(field).forbidden(&format!("{field} is forbidden when subject kind is not '{other}'"));
        }
    }
}

fn account(account: Node<'_>) {
    let (name, namespace) = (account.get("name"), account.get("namespace"));
    if name.is_empty() {
        name.required("");
    } else if name.str() != "*" {
        name.check(names::dns1123_subdomain);
    }
    if namespace.is_empty() {
        namespace.required("must specify namespace for service account");
    } else {
        namespace.check(names::dns1123_label);
    }
}

fn has_star(list: Node<'_>) -> bool {
    list.array().iter().any(|one| one == "*")
}

/// A list that may be everything, but then nothing besides.
fn all_or_some(list: Node<'_>, absent: &str, what: &str) -> bool {
    if list.is_empty() {
        list.required(absent);
        return false;
    }
    if !has_star(list) {
        return true;
    }
    if list.len() > 1 {
        list.invalid(&format!("if '*' is present, must not specify other {what}"));
    }
    false
}

fn verbs(list: Node<'_>) {
    if all_or_some(list, "verbs must contain at least one value", "verbs")
        && list.items().any(|verb| !VERBS.contains(&verb.str()))
    {
        list.not_supported_as(Go(list.value), VERBS);
    }
}

fn resource_rule(rule: Node<'_>) {
    verbs(rule.get("verbs"));
    all_or_some(rule.get("apiGroups"), "resource rules must supply at least one api group", "api groups");
    all_or_some(rule.get("resources"), "resource rules must supply at least one resource", "resources");
    let namespaces = rule.get("namespaces");
    if namespaces.is_empty() && rule.get("clusterScope").bool() {
        return;
    }
    let absent = "resource rules that are not cluster scoped must supply at least one namespace";
    if all_or_some(namespaces, absent, "namespaces") {
        for namespace in namespaces.items() {
            for complaint in names::dns1123_label(namespace.str()) {
                namespace.invalid(&format!("each member of this list must be '*' or a DNS-1123 label; {complaint}"));
            }
        }
    }
}

fn url_rule(rule: Node<'_>) {
    verbs(rule.get("verbs"));
    let urls = rule.get("nonResourceURLs");
    if all_or_some(urls, "nonResourceURLs must contain at least one value", "non-resource URLs") {
        for url in urls.items() {
            if let Some(complaint) = bad_url(url.str()) {
                url.invalid_str(complaint);
            }
        }
    }
}

fn bad_url(path: &str) -> Option<&'static str> {
    let stars = path.matches('*').count();
    match path {
        "" => Some("must not be empty"),
        "/" => None,
        _ if !path.starts_with('/') => Some("must start with slash"),
        _ if path.contains(' ') => Some("must not contain white-space"),
        _ if path.contains("//") => Some("must not contain double slash"),
        _ if stars > 1 || stars == 1 && !path.ends_with("/*") => Some("wildcard can only do suffix matching"),
        _ => None,
    }
}

fn priority_level(root: Node<'_>) {
    const PRESERVE: &str = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares";
    let metadata = root.get("metadata");
    if metadata.get("annotations").key(PRESERVE).is_set() {
        metadata.get("annotations").forbidden(&format!("annotation '{PRESERVE}' is forbidden"));
    }
    let spec = root.get("spec");
    let (ty, exempt, limited) = (spec.get("type"), spec.get("exempt"), spec.get("limited"));
    let named_exempt = metadata.get("name").str() == "exempt";
    if named_exempt != (ty.str() == "Exempt") {
        ty.invalid_str("must be 'Exempt' if and only if `name` is 'exempt'");
    }
    match ty.str() {
        "Exempt" => {
            if limited.is_set() {
                limited.forbidden("must be nil if the type is not Limited");
            }
            shares(exempt);
            lendable(exempt);
        }
        "Limited" => {
            if exempt.is_set() {
                exempt.forbidden("must be nil if the type is Limited");
            }
            if limited.is_set() {
                limits(limited);
            } else {
                limited.required("must not be empty when type is Limited");
            }
        }
        _ => ty.required_one_of(&["Exempt", "Limited"]),
    }
    if named_exempt && (ty.str() != "Exempt" || limited.is_set()) {
        let shown = internal::shown("PriorityLevelConfigurationSpec", spec.value);
        spec.invalid_as(shown, "spec of 'exempt' except the 'spec.exempt' field must equal the fixed value");
    }
    conditions(root);
}

fn shares(level: Node<'_>) {
    let shares = level.get("nominalConcurrencyShares");
    if shares.int_or_0() < 0 {
        shares.invalid("must be a non-negative integer");
    }
}

fn lendable(level: Node<'_>) {
    let percent = level.get("lendablePercent");
    if !(0..=100).contains(&percent.int_or_0()) {
        percent.invalid("must be between 0 and 100, inclusive");
    }
}

fn limits(limited: Node<'_>) {
    shares(limited);
    let response = limited.get("limitResponse");
    let (ty, queuing) = (response.get("type"), response.get("queuing"));
    match (ty.str(), queuing.is_set()) {
        ("Reject", true) => queuing.forbidden("must be nil if limited.limitResponse.type is not Limited"),
        ("Reject", false) => {}
        ("Queue", true) => queues(queuing),
        ("Queue", false) => queuing.required("must not be empty if limited.limitResponse.type is Limited"),
        _ => ty.required_one_of(&["Queue", "Reject"]),
    }
    lendable(limited);
    let borrowing = limited.get("borrowingLimitPercent");
    if borrowing.int_or_0() < 0 {
        borrowing.invalid("if specified, must be a non-negative integer");
    }
}

fn queues(queuing: Node<'_>) {
    let positive = |field: &'static str| {
        let node = queuing.get(field);
        let number = node.int_or_0();
        if number <= 0 {
            node.invalid_as(number, "must be positive");
        }
        number
    };
    positive("queueLengthLimit");
    let queues = positive("queues");
    if queues > MAX_QUEUES {
        queuing.get("queues").invalid(&format!("must not be greater than {MAX_QUEUES}"));
    }
    let hand = positive("handSize");
    if hand > 0 {
        let at = queuing.get("handSize");
        if hand > queues {
            at.invalid(&format!("should not be greater than queues ({queues})"));
        } else if bits(queues, hand) > MAX_HASH_BITS {
            at.invalid(&format!(
                "required entropy bits of deckSize {queues} and handSize {hand} should not be greater than {MAX_HASH_BITS}"
            ));
        }
    }
}

/// How many bits it takes to deal a hand from that many queues, a little generously.
fn bits(queues: i64, hand: i64) -> i64 {
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "both are small by now")]
    let bits = ((queues as f64).log2() * hand as f64).ceil() as i64;
    bits
}
