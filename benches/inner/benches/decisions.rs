//! What it costs to say whether somebody may do something, among ten thousand bindings.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use identity::rbac::Roles;
use identity::{Attributes, Authorizer, User};
use serde_json::{Value, json};

const BINDINGS: usize = 10_000;
const NAMESPACES: usize = 500;
const GROUPS: usize = 200;
const CLUSTER_ROLES: usize = 300;

fn role(number: usize) -> Value {
    let rule = |at: usize| {
        let kind = (number * 7 + at) % 90;
        json!({"apiGroups": ["apps", "example.com"], "verbs": ["get", "list", "watch"],
            "resources": [format!("kind{kind}"), format!("kind{kind}/status"), format!("other{at}")]})
    };
    json!({"rules": (0..40).map(rule).collect::<Vec<_>>()})
}

/// A third of the bindings are the cluster's, each for a user, a group and an account.
fn roles() -> Roles {
    let mut roles = Roles::default();
    for number in 0..CLUSTER_ROLES {
        roles.set_role("", &format!("role-{number}"), Some(&role(number)));
    }
    for number in 0..BINDINGS {
        let binding = json!({"roleRef": {"kind": "ClusterRole", "name": format!("role-{}", number % CLUSTER_ROLES)}, "subjects": [
            {"kind": "User", "name": format!("user-{}", number % 3000)},
            {"kind": "Group", "name": format!("group-{}", number % GROUPS)},
            {"kind": "ServiceAccount", "namespace": "default", "name": format!("account-{}", number % 700)}]});
        let namespace = if number % 3 == 0 { String::new() } else { format!("ns-{}", number % NAMESPACES) };
        roles.set_binding(&namespace, &format!("binding-{number}"), Some(&binding));
    }
    let last = json!({"rules": [{"apiGroups": ["batch"], "resources": ["jobs"], "resourceNames": ["mine"], "verbs": ["get"]}]});
    roles.set_role("", "last", Some(&last));
    let to = json!({"roleRef": {"kind": "ClusterRole", "name": "last"}, "subjects": [{"kind": "Group", "name": "group-19"}]});
    roles.set_binding("ns-1", "zz-last", Some(&to));
    roles
}

fn decisions(c: &mut Criterion) {
    let roles = roles();
    let user =
        User { name: "user-1".to_owned(), groups: (0..20).map(|n| format!("group-{n}")).collect(), ..User::default() };
    let asked = |verb: &str, group: &str, resource: &str, name: &str| Attributes {
        verb: verb.to_owned(),
        group: group.to_owned(),
        resource: resource.to_owned(),
        namespace: "ns-1".to_owned(),
        name: name.to_owned(),
        ..Attributes::default()
    };
    let cases = [
        ("allowed by the last group's last binding", asked("get", "batch", "jobs", "mine"), true),
        ("allowed by one of many", asked("get", "apps", "kind5", "x"), true),
        ("denied, a kind that roles know", asked("delete", "apps", "kind5", "x"), false),
        ("denied, a kind that no role knows", asked("get", "", "secrets", "x"), false),
        ("denied, a path", Attributes::path("get", "/metrics"), false),
    ];
    let mut group = c.benchmark_group("one of 10,000 bindings, 20 groups");
    for (name, asked, allowed) in cases {
        assert_eq!(roles.allows(&user, &asked), allowed, "{name}");
        group.bench_function(name, |b| b.iter(|| roles.check(black_box(&user), black_box(&asked)).is_ok()));
    }
    group.finish();
    c.bench_function("a review with its reason", |b| {
        let asked = asked("get", "apps", "kind5", "x");
        b.iter(|| roles.authorize(black_box(&user), black_box(&asked)))
    });
    c.bench_function("a binding changes", |b| {
        let mut roles = self::roles();
        let binding = json!({"roleRef": {"kind": "ClusterRole", "name": "role-1"}, "subjects": [{"kind": "Group", "name": "group-1"}]});
        b.iter(|| roles.set_binding("", "binding-0", Some(&binding)))
    });
}

criterion_group!(benches, decisions);
criterion_main!(benches);
