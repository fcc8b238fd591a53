//! The index answers what a plain scan over all roles and bindings answers, whatever happened to them in whatever order.

use std::collections::{BTreeMap, BTreeSet};

use proptest::{prelude::*, sample::select};
use serde_json::{Value, json};

use super::{super::policy, tests::user, *};

const SPACES: [&str; 3] = ["", "a", "b"];
const NAMES: [&str; 4] = ["r1", "r2", "r3", "gathers"];
const VERBS: [&str; 4] = ["get", "list", "delete", "*"];
const GROUPS: [&str; 3] = ["", "apps", "*"];
const RESOURCES: [&str; 7] = ["pods", "pods/log", "deployments", "deployments/scale", "*/scale", "*", "*/log"];
const PATHS: [&str; 5] = ["/healthz", "/healthz/*", "/metrics", "*", "/a*"];
const OBJECTS: [&str; 3] = ["x", "y", ""];

/// One change: a role or a binding is set or removed.
#[derive(Clone, Debug)]
struct Step {
    role: bool,
    space: &'static str,
    name: &'static str,
    value: Option<Value>,
}

/// All roles and bindings as they are, scanned for every question.
#[derive(Default)]
struct Plain {
    roles: BTreeMap<(String, String), Value>,
    bindings: BTreeMap<(String, String), Value>,
}

impl Plain {
    fn apply(&mut self, step: &Step) {
        let key = (step.space.to_owned(), step.name.to_owned());
        let map = if step.role { &mut self.roles } else { &mut self.bindings };
        match &step.value {
            Some(value) => map.insert(key, value.clone()),
            None => map.remove(&key),
        };
    }

    fn cluster_roles(&self) -> Vec<Value> {
        self.roles.iter().filter(|((space, _), _)| space.is_empty()).map(|(_, role)| role.clone()).collect()
    }

    /// The rules of a role; a gathering one has those of all roles with its label.
    fn rules(&self, space: &str, name: &str) -> Option<Vec<Value>> {
        let role = self.roles.get(&(space.to_owned(), name.to_owned()))?;
        let list = |role: &Value| role["rules"].as_array().cloned().unwrap_or_default();
        if role["aggregationRule"].is_null() {
            return Some(list(role));
        }
        let parts = self.cluster_roles().into_iter().filter(|part| part["metadata"]["labels"]["part"] == "yes");
        Some(parts.flat_map(|part| list(&part)).collect())
    }

    fn allows(&self, user: &User, asked: &Attributes) -> (bool, BTreeSet<String>) {
        let (mut allowed, mut missing) = (false, BTreeSet::new());
        for ((space, _), binding) in &self.bindings {
            let here = space.is_empty() || *space == asked.namespace;
            let concerns = |s: &Value| match s["kind"].as_str() {
                Some("User") => s["name"] == *user.name,
                Some("Group") => user.groups.iter().any(|g| s["name"] == **g),
                Some("ServiceAccount") => {
                    let home = s["namespace"].as_str().filter(|n| !n.is_empty()).unwrap_or(space);
                    let name = s["name"].as_str().unwrap();
                    !home.is_empty() && user.name == format!("system:serviceaccount:{home}:{name}")
                }
                _ => false,
            };
            if !here || !binding["subjects"].as_array().unwrap().iter().any(concerns) {
                continue;
            }
            let role = binding["roleRef"]["name"].as_str().unwrap();
            let home = if binding["roleRef"]["kind"] == "Role" { space.as_str() } else { "" };
            match self.rules(home, role) {
                Some(rules) => allowed |= rules.iter().any(|rule| covers(rule, asked)),
                None => {
                    missing.insert(role.to_owned());
                }
            }
        }
        (allowed, missing)
    }
}

fn covers(rule: &Value, asked: &Attributes) -> bool {
    let has =
        |field: &str, wanted: &str| rule[field].as_array().is_some_and(|list| list.iter().any(|item| item == wanted));
    let either = |field: &str, wanted: &str| has(field, "*") || has(field, wanted);
    if !asked.path.is_empty() {
        let paths = rule["nonResourceURLs"].as_array().cloned().unwrap_or_default();
        let fits = |pattern: &str| match pattern.strip_suffix('*') {
            Some(start) => asked.path.starts_with(start),
            None => asked.path == pattern,
        };
        return either("verbs", &asked.verb) && paths.iter().any(|pattern| fits(pattern.as_str().unwrap()));
    }
    let sub = &asked.subresource;
    let combined = if sub.is_empty() { asked.resource.clone() } else { format!("{}/{sub}", asked.resource) };
    let named = rule["resourceNames"].as_array().is_none_or(Vec::is_empty) || has("resourceNames", &asked.name);
    either("verbs", &asked.verb)
        && either("apiGroups", &asked.group)
        && (either("resources", &combined) || !sub.is_empty() && has("resources", &format!("*/{sub}")))
        && named
}

fn some<T: Clone + std::fmt::Debug + 'static>(of: &'static [T], most: usize) -> impl Strategy<Value = Vec<T>> {
    proptest::collection::vec(select(of), 1..=most)
}

fn rule() -> impl Strategy<Value = Value> {
    let names = prop_oneof![Just(Vec::new()), some(&OBJECTS, 2)];
    let resources = (some(&VERBS, 2), some(&GROUPS, 2), some(&RESOURCES, 3), names).prop_map(
        |(verbs, groups, resources, names)| {
            json!({"verbs": verbs, "apiGroups": groups, "resources": resources, "resourceNames": names})
        },
    );
    let paths = (some(&VERBS, 2), some(&PATHS, 2)).prop_map(|(v, p)| json!({"verbs": v, "nonResourceURLs": p}));
    prop_oneof![4 => resources, 1 => paths]
}

fn role() -> impl Strategy<Value = Step> {
    let rules = proptest::collection::vec(rule(), 0..4);
    (select(&SPACES), select(&NAMES), any::<bool>(), proptest::option::weighted(0.8, rules)).prop_map(
        |(space, name, part, rules)| {
            let value = rules.map(|rules| {
                if space.is_empty() && name == "gathers" {
                    let labels = json!([{"matchLabels": {"part": "yes"}}]);
                    return json!({"metadata": {"name": name}, "rules": [], "aggregationRule": {"clusterRoleSelectors": labels}});
                }
                let part = if part { "yes" } else { "no" };
                json!({"metadata": {"name": name, "labels": {"part": part}}, "rules": rules})
            });
            Step { role: true, space, name, value }
        },
    )
}

fn binding() -> impl Strategy<Value = Step> {
    let subject = prop_oneof![
        select(&["u1", "u2"]).prop_map(|name| json!({"kind": "User", "name": name})),
        select(&["g1", "g2"]).prop_map(|name| json!({"kind": "Group", "name": name})),
        select(&SPACES).prop_map(|space| json!({"kind": "ServiceAccount", "namespace": space, "name": "robot"})),
    ];
    let binding = (any::<bool>(), select(&NAMES), proptest::collection::vec(subject, 0..4));
    (select(&SPACES), select(&["b1", "b2", "b3"]), proptest::option::weighted(0.8, binding)).prop_map(
        |(space, name, binding)| {
            let value = binding.map(|(local, role, subjects)| {
                let kind = if local && !space.is_empty() { "Role" } else { "ClusterRole" };
                json!({"roleRef": {"kind": kind, "name": role}, "subjects": subjects})
            });
            Step { role: false, space, name, value }
        },
    )
}

/// As the controller does it: gathered roles are written with the rules of their parts.
fn set(roles: &mut Roles, plain: &Plain, step: &Step) {
    if !step.role {
        return roles.set_binding(step.space, step.name, step.value.as_ref());
    }
    roles.set_role(step.space, step.name, step.value.as_ref());
    let all = plain.cluster_roles();
    for role in &all {
        if let Some(rules) = policy::aggregated(role, &all) {
            let name = role["metadata"]["name"].as_str().unwrap();
            roles.set_role("", name, Some(&json!({"rules": rules})));
        }
    }
}

fn questions() -> Vec<Attributes> {
    let mut all = Vec::new();
    for verb in ["get", "list", "create"] {
        for path in ["/healthz", "/healthz/x", "/metrics", "/abc", "/"] {
            all.push(Attributes::path(verb, path));
        }
        for (group, resource) in [("", "pods"), ("", "pods/log"), ("apps", "deployments/scale"), ("batch", "jobs")] {
            for namespace in SPACES {
                let asked = super::tests::attributes(verb, resource, namespace, "");
                all.extend(["x", "z", ""].map(|name| Attributes {
                    group: group.to_owned(),
                    name: name.to_owned(),
                    ..asked.clone()
                }));
            }
        }
    }
    all
}

fn check(roles: &Roles, plain: &Plain) -> Result<(), TestCaseError> {
    let users = [
        user("u1", &["g1"]),
        user("u2", &[]),
        user("x", &["g2", "g1"]),
        user("system:serviceaccount:a:robot", &[]),
        user("system:serviceaccount:b:robot", &["g2"]),
    ];
    for asked in questions() {
        for user in &users {
            let (allowed, missing) = plain.allows(user, &asked);
            let decision = roles.authorize(user, &asked);
            prop_assert_eq!(decision.allowed, allowed, "{} {:?}: {}", &user.name, &asked, decision.reason);
            prop_assert_eq!(roles.allows(user, &asked), allowed);
            for name in missing.iter().filter(|_| !allowed) {
                prop_assert!(decision.reason.contains(&format!("{name:?} not found")), "{}", decision.reason);
            }
            prop_assert!(allowed || missing.is_empty() == decision.reason.is_empty(), "{}", decision.reason);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_index_answers_as_a_scan_does(steps in proptest::collection::vec(prop_oneof![role(), binding()], 1..40)) {
        let (mut roles, mut plain) = (Roles::default(), Plain::default());
        for (at, step) in steps.iter().enumerate() {
            plain.apply(step);
            set(&mut roles, &plain, step);
            if at % 8 == 0 {
                check(&roles, &plain)?;
            }
        }
        check(&roles, &plain)?;
    }

    /// Two layers answer as one in which the upper things replaced the lower ones.
    #[test]
    fn layers_answer_as_one(
        below in proptest::collection::vec(prop_oneof![role(), binding()], 1..20),
        above in proptest::collection::vec(prop_oneof![role(), binding()], 1..20),
    ) {
        let flat = |steps: &[Step]| -> Vec<Step> { steps.iter().filter(|s| s.name != "gathers").cloned().collect() };
        let (below, above) = (flat(&below), flat(&above));
        let (mut lower, mut lower_plain) = (Roles::default(), Plain::default());
        for step in &below {
            lower_plain.apply(step);
            set(&mut lower, &lower_plain, step);
        }
        let (mut roles, mut upper_plain) = (Roles::over(Arc::new(lower)), Plain::default());
        for step in &above {
            upper_plain.apply(step);
            set(&mut roles, &upper_plain, step);
        }
        lower_plain.roles.extend(upper_plain.roles);
        lower_plain.bindings.extend(upper_plain.bindings);
        check(&roles, &lower_plain)?;
    }
}
