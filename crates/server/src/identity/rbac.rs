//! Role-based access control over an index of a workspace's roles and bindings, kept by whoever sees them change.

use std::{collections::BTreeMap, fmt};

use serde_json::{Value, json};

use super::{
    authenticate::{MASTERS, User},
    authorize::{Attributes, Authorizer, Decision},
    escalation,
};

/// A `PolicyRule`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    pub verbs: Vec<String>,
    pub groups: Vec<String>,
    pub resources: Vec<String>,
    pub names: Vec<String>,
    pub paths: Vec<String>,
}

#[derive(Clone, Debug)]
struct Binding {
    role_kind: String,
    role: String,
    subjects: Vec<Subject>,
}

#[derive(Clone, Debug)]
struct Subject {
    kind: String,
    namespace: String,
    name: String,
}

/// The roles and bindings of one workspace. Those of the cluster are under the empty namespace.
#[derive(Debug, Default)]
pub struct Roles {
    roles: BTreeMap<(String, String), Vec<Rule>>,
    bindings: BTreeMap<String, BTreeMap<String, Binding>>,
}

impl Rule {
    pub fn from_value(rule: &Value) -> Self {
        let list = |name: &str| strings(rule.get(name));
        Self {
            verbs: list("verbs"),
            groups: list("apiGroups"),
            resources: list("resources"),
            names: list("resourceNames"),
            paths: list("nonResourceURLs"),
        }
    }

    /// The rules of a Role or ClusterRole.
    pub fn all_of(role: &Value) -> Vec<Self> {
        let rules = role.get("rules").and_then(Value::as_array).into_iter().flatten();
        rules.map(Self::from_value).collect()
    }

    pub(super) fn allows(&self, attributes: &Attributes) -> bool {
        let listed = |list: &[String], wanted: &str| list.iter().any(|have| have == "*" || have == wanted);
        if !listed(&self.verbs, &attributes.verb) {
            return false;
        }
        if attributes.resource.is_empty() {
            return self.paths.iter().any(|have| path_matches(have, &attributes.path));
        }
        listed(&self.groups, &attributes.group)
            && self.allows_resource(&attributes.combined_resource(), &attributes.subresource)
            && (self.names.is_empty() || self.names.contains(&attributes.name))
    }

    fn allows_resource(&self, combined: &str, subresource: &str) -> bool {
        self.resources.iter().any(|have| {
            let any_of_subresource =
                have.strip_prefix("*/").is_some_and(|sub| !subresource.is_empty() && sub == subresource);
            have == "*" || have == combined || any_of_subresource
        })
    }
}

/// `*`, the path itself, or a prefix that ends in a star.
pub(super) fn path_matches(pattern: &str, path: &str) -> bool {
    pattern == "*" || pattern == path || pattern.ends_with('*') && path.starts_with(pattern.trim_end_matches('*'))
}

fn strings(list: Option<&Value>) -> Vec<String> {
    let items = list.and_then(Value::as_array).into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}

impl Roles {
    /// A role (or, in the empty namespace, a ClusterRole) is now this, or gone.
    pub fn set_role(&mut self, namespace: &str, name: &str, role: Option<&Value>) {
        let key = (namespace.to_owned(), name.to_owned());
        match role {
            Some(role) => self.roles.insert(key, Rule::all_of(role)),
            None => self.roles.remove(&key),
        };
    }

    /// A binding (or, in the empty namespace, a ClusterRoleBinding) is now this, or gone.
    pub fn set_binding(&mut self, namespace: &str, name: &str, binding: Option<&Value>) {
        let bindings = self.bindings.entry(namespace.to_owned()).or_default();
        match binding {
            Some(binding) => bindings.insert(name.to_owned(), Binding::from_value(binding)),
            None => bindings.remove(name),
        };
    }

    /// Goes through the rules that apply to a user, until `visit` says enough.
    fn visit<'a>(&'a self, user: &User, namespace: &str, mut visit: impl FnMut(Applies<'a>) -> bool) {
        let scopes: &[&str] = if namespace.is_empty() { &[""] } else { &["", namespace] };
        for (scope, bindings) in scopes.iter().filter_map(|scope| self.bindings.get_key_value(*scope)) {
            for (name, binding) in bindings {
                let Some(subject) = binding.subjects.iter().find(|subject| subject.is(user, scope)) else { continue };
                let source = Source { namespace: scope, name, binding, subject };
                let go_on = match self.referenced(&binding.role_kind, scope, &binding.role) {
                    Ok(rules) => rules.iter().all(|rule| visit(Applies::Rule(rule, source))),
                    Err(error) => visit(Applies::Unresolved(error)),
                };
                if !go_on {
                    return;
                }
            }
        }
    }

    /// The rules of the role that a binding in `namespace` refers to.
    pub fn referenced(&self, kind: &str, namespace: &str, name: &str) -> Result<&[Rule], String> {
        let (namespace, resource) = match kind {
            "Role" => (namespace, "role"),
            "ClusterRole" => ("", "clusterrole"),
            _ => return Err(format!("unsupported role reference kind: {kind:?}")),
        };
        let key = (namespace.to_owned(), name.to_owned());
        let found = self.roles.get(&key).map(Vec::as_slice);
        found.ok_or_else(|| format!("{resource}.rbac.authorization.k8s.io {name:?} not found"))
    }

    /// All rules that apply to a user in a namespace, and what could not be resolved.
    pub fn rules_for(&self, user: &User, namespace: &str) -> (Vec<Rule>, Vec<String>) {
        let (mut rules, mut errors) = (Vec::new(), Vec::new());
        if user.is_in(MASTERS) {
            let all = vec!["*".to_owned()];
            let resources = Rule { verbs: all.clone(), groups: all.clone(), resources: all.clone(), ..Rule::default() };
            rules.extend([resources, Rule { verbs: all.clone(), paths: all, ..Rule::default() }]);
        }
        self.visit(user, namespace, |found| {
            match found {
                Applies::Rule(rule, _) => rules.push(rule.clone()),
                Applies::Unresolved(error) => errors.push(error),
            }
            true
        });
        (rules, errors)
    }

    /// Nobody may give others what they do not have: checks the rules of a role that a user wants to write or to bind.
    pub fn check_escalation(&self, user: &User, namespace: &str, rules: &[Rule]) -> Result<(), String> {
        let (owned, errors) = self.rules_for(user, namespace);
        escalation::check(user, &owned, rules, &errors)
    }
}

impl Authorizer for Roles {
    fn authorize(&self, user: &User, attributes: &Attributes) -> Decision {
        if user.is_in(MASTERS) {
            return Decision::allowed("");
        }
        let mut decision = Decision::default();
        let mut errors = Vec::new();
        self.visit(user, &attributes.namespace, |found| match found {
            Applies::Rule(rule, source) if rule.allows(attributes) => {
                decision = Decision::allowed(format!("RBAC: allowed by {source}"));
                false
            }
            Applies::Rule(..) => true,
            Applies::Unresolved(error) => {
                errors.push(error);
                true
            }
        });
        if !decision.allowed && !errors.is_empty() {
            let errors = if errors.len() == 1 { errors.concat() } else { format!("[{}]", errors.join(", ")) };
            decision.reason = format!("RBAC: {errors}");
        }
        decision
    }
}

impl Binding {
    fn from_value(binding: &Value) -> Self {
        let text = |value: &Value, pointer: &str| {
            value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let subjects = binding.get("subjects").and_then(Value::as_array).into_iter().flatten();
        let subject =
            |s: &Value| Subject { kind: text(s, "/kind"), namespace: text(s, "/namespace"), name: text(s, "/name") };
        Self {
            role_kind: text(binding, "/roleRef/kind"),
            role: text(binding, "/roleRef/name"),
            subjects: subjects.map(subject).collect(),
        }
    }
}

/// What a binding that applies to a user leads to.
enum Applies<'a> {
    Rule(&'a Rule, Source<'a>),
    /// The role is not there.
    Unresolved(String),
}

/// Why a rule applies to somebody.
#[derive(Clone, Copy)]
struct Source<'a> {
    namespace: &'a str,
    name: &'a str,
    binding: &'a Binding,
    subject: &'a Subject,
}

impl fmt::Display for Source<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { namespace, name, binding, subject } = self;
        match *namespace {
            "" => write!(f, "ClusterRoleBinding {name:?}")?,
            namespace => write!(f, "RoleBinding \"{name}/{namespace}\"")?,
        }
        write!(f, " of {} {:?} to {} ", binding.role_kind, binding.role, subject.kind)?;
        match subject.kind.as_str() {
            "ServiceAccount" => write!(f, "\"{}/{}\"", subject.name, subject.home(namespace)),
            _ => write!(f, "{:?}", subject.name),
        }
    }
}

impl Subject {
    fn home<'a>(&'a self, namespace: &'a str) -> &'a str {
        if self.namespace.is_empty() { namespace } else { &self.namespace }
    }

    fn is(&self, user: &User, namespace: &str) -> bool {
        match self.kind.as_str() {
            "User" => user.name == self.name,
            "Group" => user.is_in(&self.name),
            "ServiceAccount" => {
                let account = user.name.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
                let home = self.home(namespace);
                !home.is_empty() && account == Some((home, self.name.as_str()))
            }
            _ => false,
        }
    }
}

/// The rules as a `SelfSubjectRulesReview` lists them: those about resources, and those about paths.
pub(super) fn listed(rules: &[Rule]) -> (Vec<Value>, Vec<Value>) {
    let resource = |rule: &Rule| {
        let mut value = json!({"verbs": rule.verbs, "apiGroups": rule.groups, "resources": rule.resources});
        if !rule.names.is_empty() {
            value["resourceNames"] = json!(rule.names);
        }
        value
    };
    let path = |rule: &Rule| json!({"verbs": rule.verbs, "nonResourceURLs": rule.paths});
    (
        rules.iter().filter(|rule| !rule.resources.is_empty()).map(resource).collect(),
        rules.iter().filter(|rule| !rule.paths.is_empty()).map(path).collect(),
    )
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::identity) fn user(name: &str, groups: &[&str]) -> User {
        User { name: name.to_owned(), groups: groups.iter().map(|g| (*g).to_owned()).collect(), ..User::default() }
    }

    pub(in crate::identity) fn attributes(verb: &str, resource: &str, namespace: &str, name: &str) -> Attributes {
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

    pub(in crate::identity) fn roles() -> Roles {
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
}
