//! Roles and bindings.

use schema::names;
use schema::names::NameRule;

use super::Rules;
use super::meta;
use super::node::Node;

const GROUP: &str = "rbac.authorization.k8s.io";

pub(super) fn rules(kind: &str) -> Rules {
    match kind {
        "Role" => Rules::new(role).again(|_, _| {}),
        "ClusterRole" => Rules::new(cluster_role).again(|_, _| {}),
        "RoleBinding" => Rules::new(role_binding).again(binding_update),
        _ => Rules::new(cluster_role_binding).again(binding_update),
    }
    .named(NameRule::PathSegment)
}

fn role(root: Node<'_>) {
    root.get("rules").items().for_each(|rule| policy_rule(rule, true));
}

fn cluster_role(root: Node<'_>) {
    root.get("rules").items().for_each(|rule| policy_rule(rule, false));
    let aggregation = root.get("aggregationRule");
    if aggregation.is_set() {
        let selectors = aggregation.get("clusterRoleSelectors");
        if selectors.is_empty() {
            selectors.required("at least one clusterRoleSelector required if aggregationRule is non-nil");
        }
        for selector in selectors.items() {
            meta::label_selector(selector);
            if !meta::is_selector(selector.value) {
                selector.invalid_as("null", "invalid label selector.");
            }
        }
    }
}

fn policy_rule(rule: Node<'_>, namespaced: bool) {
    if rule.get("verbs").is_empty() {
        rule.get("verbs").required("verbs must contain at least one value");
    }
    let urls = rule.get("nonResourceURLs");
    if !urls.is_empty() {
        if namespaced {
            urls.invalid("namespaced rules cannot apply to non-resource URLs");
        }
        if ["apiGroups", "resources", "resourceNames"].iter().any(|field| !rule.get(field).is_empty()) {
            urls.invalid("rules cannot apply to both regular resources and non-resource URLs");
        }
        return;
    }
    if rule.get("apiGroups").is_empty() {
        rule.get("apiGroups").required("resource rules must supply at least one api group");
    }
    if rule.get("resources").is_empty() {
        rule.get("resources").required("resource rules must supply at least one resource");
    }
}

fn role_binding(root: Node<'_>) {
    binding(root, &["Role", "ClusterRole"], true);
}

fn cluster_role_binding(root: Node<'_>) {
    binding(root, &["ClusterRole"], false);
}

fn binding(root: Node<'_>, kinds: &[&str], namespaced: bool) {
    let role = root.get("roleRef");
    role.get("apiGroup").one_of(&[GROUP]);
    role.get("kind").one_of(kinds);
    role.get("name").required_and(names::path_segment);
    root.get("subjects").items().for_each(|s| subject(s, namespaced));
}

fn subject(subject: Node<'_>, namespaced: bool) {
    let name = subject.get("name");
    if name.str().is_empty() {
        name.required("");
    }
    match subject.get("kind").str() {
        "ServiceAccount" => {
            if !name.str().is_empty() {
                name.check(names::dns1123_subdomain);
            }
            subject.get("apiGroup").one_of(&[""]);
            if !namespaced && subject.get("namespace").str().is_empty() {
                subject.get("namespace").required("");
            }
        }
        "User" | "Group" => subject.get("apiGroup").one_of(&[GROUP]),
        _ => subject.get("kind").not_supported(&["ServiceAccount", "User", "Group"]),
    }
}

fn binding_update(new: Node<'_>, old: Node<'_>) {
    let (role, old) = (new.get("roleRef"), old.get("roleRef"));
    if !role.same(old) {
        let text = |field| role.get(field).str().replace('"', "\\\"");
        let shown = format!(
            "{{\"APIGroup\":\"{}\",\"Kind\":\"{}\",\"Name\":\"{}\"}}",
            text("apiGroup"),
            text("kind"),
            text("name")
        );
        role.invalid_as(shown, "cannot change roleRef");
    }
}
