use serde_json::json;

use super::*;

pub(crate) fn user(name: &str, groups: &[&str]) -> User {
    User { name: name.to_owned(), groups: groups.iter().map(|g| (*g).to_owned()).collect(), ..User::default() }
}

pub(crate) fn attributes(verb: &str, resource: &str, namespace: &str, name: &str) -> Attributes {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    Attributes {
        verb: verb.to_owned(),
        resource: resource.to_owned(),
        subresource: subresource.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        ..Attributes::default()
    }
}

pub(crate) fn roles() -> Roles {
    let mut roles = Roles::default();
    roles.set_role(
        "ns",
        "reader",
        Some(&json!({"rules": [
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]},
            {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["one"], "verbs": ["get"]},
            {"apiGroups": [""], "resources": ["pods/log", "*/scale"], "verbs": ["get"]}]})),
    );
    roles.set_binding(
        "ns",
        "reader",
        Some(&json!({"roleRef": {"kind": "Role", "name": "reader"}, "subjects": [
            {"kind": "User", "name": "jane"}, {"kind": "Group", "name": "readers"}, {"kind": "ServiceAccount", "name": "robot"}]})),
    );
    roles.set_role("", "paths", Some(&json!({"rules": [{"nonResourceURLs": ["/healthz/*"], "verbs": ["get"]}]})));
    roles.set_binding(
        "",
        "paths",
        Some(&json!({"roleRef": {"kind": "ClusterRole", "name": "paths"}, "subjects": [
            {"kind": "Group", "name": "system:authenticated"}]})),
    );
    roles
}

#[test]
fn who_may_do_what() {
    let roles = roles();
    let jane = user("jane", &["system:authenticated"]);
    for (user, verb, resource, namespace, name, expected) in [
        (&jane, "get", "configmaps", "ns", "x", true),
        (&jane, "delete", "configmaps", "ns", "x", false),
        (&jane, "get", "configmaps", "other", "x", false),
        (&jane, "list", "configmaps", "", "", false),
        (&jane, "get", "secrets", "ns", "one", true),
        (&jane, "get", "secrets", "ns", "two", false),
        (&jane, "list", "secrets", "ns", "", false),
        (&jane, "get", "pods/log", "ns", "p", true),
        (&jane, "get", "pods", "ns", "p", false),
        (&jane, "get", "deployments/scale", "ns", "p", true),
        (&user("peter", &["readers"]), "list", "configmaps", "ns", "", true),
        (&user("system:serviceaccount:ns:robot", &[]), "list", "configmaps", "ns", "", true),
        (&user("system:serviceaccount:other:robot", &[]), "list", "configmaps", "ns", "", false),
        (&user("x", &["system:masters"]), "anything", "nodes", "", "", true),
    ] {
        let decision = roles.authorize(user, &attributes(verb, resource, namespace, name));
        assert_eq!(decision.allowed, expected, "{} {verb} {resource} {namespace} {name}", user.name);
    }
    assert_eq!(
        roles.authorize(&jane, &attributes("get", "configmaps", "ns", "x")).reason,
        r#"RBAC: allowed by RoleBinding "reader/ns" of Role "reader" to User "jane""#
    );
    assert_eq!(
        roles
            .authorize(&user("system:serviceaccount:ns:robot", &[]), &attributes("get", "configmaps", "ns", ""))
            .reason,
        r#"RBAC: allowed by RoleBinding "reader/ns" of Role "reader" to ServiceAccount "robot/ns""#
    );
    assert!(roles.authorize(&jane, &Attributes::path("get", "/healthz/ping")).allowed);
    assert!(!roles.authorize(&jane, &Attributes::path("get", "/metrics")).allowed);
}

#[test]
fn roles_that_are_gone_are_named() {
    let mut roles = roles();
    let jane = user("jane", &[]);
    roles.set_role("ns", "reader", None);
    let decision = roles.authorize(&jane, &attributes("get", "configmaps", "ns", "x"));
    assert_eq!(decision.reason, r#"RBAC: role.rbac.authorization.k8s.io "reader" not found"#);
    roles.set_binding("ns", "reader", None);
    assert_eq!(roles.authorize(&jane, &attributes("get", "configmaps", "ns", "x")), Decision::default());
}

/// What lies above counts; what it does not have comes from below.
#[test]
fn layers() {
    let mut below = roles();
    let bound = |role: &str, who: &str| json!({"roleRef": {"kind": "ClusterRole", "name": role}, "subjects": [{"kind": "User", "name": who}]});
    let allow = |what: &str| json!({"rules": [{"apiGroups": ["*"], "resources": [what], "verbs": ["get"]}]});
    below.set_role("", "view", Some(&allow("pods")));
    below.set_binding("", "view", Some(&bound("view", "jane")));
    let mut roles = Roles::over(Arc::new(below));
    let may = |roles: &Roles, who: &str, what: &str| roles.allows(&user(who, &[]), &attributes("get", what, "n", "x"));

    assert!(may(&roles, "jane", "pods") && !may(&roles, "peter", "pods"));
    // A binding above to a role below.
    roles.set_binding("n", "b", Some(&bound("view", "peter")));
    assert!(may(&roles, "peter", "pods") && roles.referenced("ClusterRole", "", "view").is_ok());
    // A role above for bindings on both layers.
    roles.set_role("", "view", Some(&allow("nodes")));
    for who in ["jane", "peter"] {
        assert!(may(&roles, who, "nodes") && !may(&roles, who, "pods"), "{who}");
    }
    roles.set_role("", "view", None);
    roles.set_binding("", "view", Some(&bound("view", "eve")));
    assert!(may(&roles, "eve", "pods") && may(&roles, "peter", "pods") && !may(&roles, "jane", "pods"));
    roles.set_binding("", "view", None);
    assert!(may(&roles, "jane", "pods") && !may(&roles, "eve", "pods"));
    assert_eq!(roles.hiding, 0);
}

/// What was deleted leaves nothing behind.
#[test]
fn nothing_is_kept_of_what_is_gone() {
    let mut roles = Roles::default();
    for round in 0..1000 {
        let (ns, name) = (format!("ns-{round}"), format!("name-{round}"));
        let role = json!({"rules": [{"apiGroups": [""], "resources": [name], "verbs": ["get"]}]});
        let binding = json!({"roleRef": {"kind": "Role", "name": name}, "subjects": [
            {"kind": "User", "name": name}, {"kind": "ServiceAccount", "name": name}, {"kind": "Group", "name": name}]});
        roles.set_role(&ns, &name, Some(&role));
        roles.set_binding(&ns, &name, Some(&binding));
        assert!(roles.allows(&user("x", &[&name]), &attributes("get", &name, &ns, "")));
        roles.set_role(&ns, &name, None);
        roles.set_binding(&ns, &name, None);
    }
    let left = format!("{roles:?}");
    assert!(left.len() < 8000, "{left}");
    assert!(roles.is_empty());
}
