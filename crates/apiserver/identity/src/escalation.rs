//! Nobody gives away what they do not have: whether a user's rules cover those of a role.

use std::collections::BTreeSet;

use super::{authenticate::User, rbac::Rule};

/// Nothing if the owned rules cover all wanted ones; otherwise upstream's explanation of what is missing.
pub(super) fn check(user: &User, owned: &[Rule], wanted: &[Rule], errors: &[String]) -> Result<(), String> {
    let single = wanted.iter().flat_map(break_down);
    let missing: Vec<Rule> = single.filter(|rule| !owned.iter().any(|own| covers(own, rule))).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let described: BTreeSet<String> = compact(missing).iter().map(describe).collect();
    let described: Vec<String> = described.into_iter().collect();
    let mut message = format!(
        "user {:?} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
        user.name,
        quoted(&user.groups),
        described.join("\n")
    );
    if !errors.is_empty() {
        message.push_str(&format!("; resolution errors: [{}]", errors.join(" ")));
    }
    Err(message)
}

/// An equivalent list of rules with one verb and one resource, name or path each.
fn break_down(rule: &Rule) -> Vec<Rule> {
    let one = |text: &String| vec![text.clone()];
    let mut rules = Vec::new();
    for group in &rule.groups {
        for resource in &rule.resources {
            for verb in &rule.verbs {
                let whole = Rule { verbs: one(verb), groups: one(group), resources: one(resource), ..Rule::default() };
                if rule.names.is_empty() {
                    rules.push(whole);
                } else {
                    rules.extend(rule.names.iter().map(|name| Rule { names: one(name), ..whole.clone() }));
                }
            }
        }
    }
    for path in &rule.paths {
        rules.extend(rule.verbs.iter().map(|verb| Rule { verbs: one(verb), paths: one(path), ..Rule::default() }));
    }
    rules
}

/// Whether a rule covers one that was broken down.
fn covers(own: &Rule, wanted: &Rule) -> bool {
    let any = |list: &[String]| list.iter().any(|item| item == "*");
    let has_all = |list: &[String], wanted: &[String]| any(list) || wanted.iter().all(|item| list.contains(item));
    let resource = |wanted: &String| {
        let by_subresource = wanted.split_once('/').map(|(_, sub)| format!("*/{sub}"));
        own.resources.contains(wanted) || by_subresource.is_some_and(|pattern| own.resources.contains(&pattern))
    };
    let path = |wanted: &String| own.paths.iter().any(|have| super::rbac::path_matches(have, wanted));
    has_all(&own.verbs, &wanted.verbs)
        && has_all(&own.groups, &wanted.groups)
        && (any(&own.resources) || wanted.resources.iter().all(resource))
        && wanted.paths.iter().all(path)
        && (own.names.is_empty() || !wanted.names.is_empty() && wanted.names.iter().all(|n| own.names.contains(n)))
}

/// Rules about the same resource become one with several verbs.
fn compact(rules: Vec<Rule>) -> Vec<Rule> {
    let mut compacted: Vec<Rule> = Vec::new();
    for rule in rules {
        let same = |other: &&mut Rule| {
            rule.paths.is_empty()
                && other.paths.is_empty()
                && (&other.groups, &other.resources, &other.names) == (&rule.groups, &rule.resources, &rule.names)
        };
        match compacted.iter_mut().find(same) {
            Some(other) => other.verbs.extend(rule.verbs),
            None => compacted.push(rule),
        }
    }
    compacted
}

fn describe(rule: &Rule) -> String {
    let parts = [
        ("APIGroups", &rule.groups),
        ("Resources", &rule.resources),
        ("NonResourceURLs", &rule.paths),
        ("ResourceNames", &rule.names),
        ("Verbs", &rule.verbs),
    ];
    let parts = parts.iter().filter(|(_, list)| !list.is_empty());
    let parts: Vec<String> = parts.map(|(name, list)| format!("{name}:{}", quoted(list))).collect();
    format!("{{{}}}", parts.join(", "))
}

/// A list as Go's `%q` prints it.
fn quoted(list: &[String]) -> String {
    let items: Vec<String> = list.iter().map(|item| format!("{item:?}")).collect();
    format!("[{}]", items.join(" "))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::rbac::tests::user;

    fn rules(rules: Value) -> Vec<Rule> {
        Rule::all_of(&json!({"rules": rules}))
    }

    #[test]
    fn what_is_missing() {
        let jane = user("jane", &["system:authenticated"]);
        let owned = rules(json!([
            {"apiGroups": [""], "resources": ["configmaps", "*/scale"], "verbs": ["get", "list"]},
            {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["one"], "verbs": ["*"]},
            {"nonResourceURLs": ["/healthz*"], "verbs": ["get"]}]));
        let check = |wanted| check(&jane, &owned, &rules(wanted), &[]);
        for covered in [
            json!([]),
            json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]),
            json!([{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["x"], "verbs": ["list"]}]),
            json!([{"apiGroups": [""], "resources": ["pods/scale"], "verbs": ["get"]}]),
            json!([{"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["one"], "verbs": ["delete"]}]),
            json!([{"nonResourceURLs": ["/healthz/etcd"], "verbs": ["get"]}]),
        ] {
            assert_eq!(check(covered.clone()), Ok(()), "{covered}");
        }
        for missing in [
            json!([{"apiGroups": ["apps"], "resources": ["configmaps"], "verbs": ["get"]}]),
            json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]),
            json!([{"apiGroups": [""], "resources": ["*"], "verbs": ["get"]}]),
            json!([{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]),
        ] {
            assert!(check(missing.clone()).is_err(), "{missing}");
        }
        assert_eq!(
            check(json!([{"apiGroups": [""], "resources": ["configmaps", "pods"], "verbs": ["get", "delete"]}]))
                .unwrap_err(),
            "user \"jane\" (groups=[\"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n\
             {APIGroups:[\"\"], Resources:[\"configmaps\"], Verbs:[\"delete\"]}\n\
             {APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"get\" \"delete\"]}"
        );
    }
}
