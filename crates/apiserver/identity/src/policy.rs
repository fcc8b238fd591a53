//! The roles and bindings that every workspace has from the start, and the aggregation of roles.
//!
//! People's roles and those of the components that come as separate programs. Those of upstream's controllers are only in
//! the root workspace, and beside this in [`controller_policy`].

use schema::selector::LabelSelector;
use serde_json::{Value, json};

use super::{
    authenticate::{AUTHENTICATED, MASTERS, UNAUTHENTICATED},
    controller_policy::{self, CONTROLLERS, SELF_EDGE_CLIENT, SYSTEM_ROLES, SystemRole},
    rbac::Roles,
};

/// As whom this server comes to kubelets. They ask it what that user may do.
pub const KUBELET_CLIENT: &str = "kube-apiserver-kubelet-client";

const GROUP: &str = "rbac.authorization.k8s.io";
pub(super) const READ: &str = "get list watch";
const WRITE: &str = "create delete deletecollection patch update";
const ALL: &str = "create delete deletecollection get list patch update watch";
pub(super) const EVENTS: R = R::Of("create patch update", "core events.k8s.io", "events");

/// A rule, its lists written with spaces; the group `core` is the unnamed one.
#[derive(Clone, Copy)]
pub(super) enum R {
    Of(&'static str, &'static str, &'static str),
    Named(&'static str, &'static str, &'static str, &'static str),
    Paths(&'static str, &'static str),
}

use R::{Named, Of, Paths};

impl R {
    fn value(self) -> Value {
        let list = |text: &'static str| text.split(' ').collect::<Vec<_>>();
        let groups = |text: &'static str| list(text).into_iter().map(|g| if g == "core" { "" } else { g }).collect();
        let of = |verbs, in_groups, resources| {
            let groups: Vec<&str> = groups(in_groups);
            json!({"verbs": list(verbs), "apiGroups": groups, "resources": list(resources)})
        };
        match self {
            Of(verbs, groups, resources) => of(verbs, groups, resources),
            Named(verbs, groups, resources, names) => {
                let mut rule = of(verbs, groups, resources);
                rule["resourceNames"] = json!(list(names));
                rule
            }
            Paths(verbs, paths) => json!({"verbs": list(verbs), "nonResourceURLs": list(paths)}),
        }
    }
}

/// The roles themselves, in the order of their names.
const ROLES: &[(&str, &[R])] = &[
    ("cluster-admin", &[Of("*", "*", "*"), Paths("*", "*")]),
    (
        "system:aggregate-to-admin",
        &[Of("create", "authorization.k8s.io", "localsubjectaccessreviews"), Of(ALL, GROUP, "rolebindings roles")],
    ),
    (
        "system:aggregate-to-edit",
        &[
            Of(READ, "core", "pods/attach pods/exec pods/portforward pods/proxy secrets services/proxy"),
            Of("impersonate", "core", "serviceaccounts"),
            Of(WRITE, "core", "pods pods/attach pods/exec pods/portforward pods/proxy"),
            Of("create", "core", "pods/eviction"),
            Of(
                WRITE,
                "core",
                "configmaps persistentvolumeclaims replicationcontrollers replicationcontrollers/scale secrets \
             serviceaccounts services services/proxy",
            ),
            Of("create", "core", "serviceaccounts/token"),
            Of(WRITE, "core events.k8s.io", "events"),
            Of(
                WRITE,
                "apps",
                "daemonsets deployments deployments/rollback deployments/scale replicasets replicasets/scale statefulsets \
             statefulsets/scale",
            ),
            Of(WRITE, "autoscaling", "horizontalpodautoscalers"),
            Of(WRITE, "batch", "cronjobs jobs"),
            Of(
                WRITE,
                "extensions",
                "daemonsets deployments deployments/rollback deployments/scale ingresses networkpolicies replicasets \
             replicasets/scale replicationcontrollers/scale",
            ),
            Of(WRITE, "policy", "poddisruptionbudgets"),
            Of(WRITE, "networking.k8s.io", "ingresses networkpolicies"),
            Of(ALL, "coordination.k8s.io", "leases"),
            Of(WRITE, "resource.k8s.io", "resourceclaims resourceclaimtemplates"),
        ],
    ),
    (
        "system:aggregate-to-view",
        &[
            Of(
                READ,
                "core",
                "configmaps endpoints persistentvolumeclaims persistentvolumeclaims/status pods replicationcontrollers \
             replicationcontrollers/scale serviceaccounts services services/status",
            ),
            Of(
                READ,
                "core",
                "bindings limitranges namespaces/status pods/log pods/status replicationcontrollers/status resourcequotas \
             resourcequotas/status",
            ),
            Of(READ, "core", "namespaces"),
            Of(READ, "core events.k8s.io", "events"),
            Of(READ, "discovery.k8s.io", "endpointslices"),
            Of(
                READ,
                "apps",
                "controllerrevisions daemonsets daemonsets/status deployments deployments/scale deployments/status \
             replicasets replicasets/scale replicasets/status statefulsets statefulsets/scale statefulsets/status",
            ),
            Of(READ, "autoscaling", "horizontalpodautoscalers horizontalpodautoscalers/status"),
            Of(READ, "batch", "cronjobs cronjobs/status jobs jobs/status"),
            Of(
                READ,
                "extensions",
                "daemonsets daemonsets/status deployments deployments/scale deployments/status ingresses ingresses/status \
             networkpolicies replicasets replicasets/scale replicasets/status replicationcontrollers/scale",
            ),
            Of(READ, "policy", "poddisruptionbudgets poddisruptionbudgets/status"),
            Of(READ, "networking.k8s.io", "ingresses ingresses/status networkpolicies"),
            Of(READ, "resource.k8s.io", "resourceclaims resourceclaims/status resourceclaimtemplates"),
        ],
    ),
    (
        "system:auth-delegator",
        &[
            Of("create", "authentication.k8s.io", "tokenreviews"),
            Of("create", "authorization.k8s.io", "subjectaccessreviews"),
        ],
    ),
    (
        "system:basic-user",
        &[
            Of("create", "authorization.k8s.io", "selfsubjectaccessreviews selfsubjectrulesreviews"),
            Of("create", "authentication.k8s.io", "selfsubjectreviews"),
        ],
    ),
    (
        "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
        &[Of("create", "certificates.k8s.io", "certificatesigningrequests/nodeclient")],
    ),
    (
        "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient",
        &[Of("create", "certificates.k8s.io", "certificatesigningrequests/selfnodeclient")],
    ),
    (
        "system:discovery",
        &[Paths("get", "/api /api/* /apis /apis/* /healthz /livez /openapi /openapi/* /readyz /version /version/")],
    ),
    (
        "system:kube-controller-manager",
        &[
            EVENTS,
            Of("create", "coordination.k8s.io", "leases"),
            Named("get update", "coordination.k8s.io", "leases", "kube-controller-manager"),
            Of("create", "core", "secrets serviceaccounts"),
            Of("delete", "core", "secrets"),
            Of("get", "core", "configmaps namespaces secrets serviceaccounts"),
            Of("update", "core", "secrets serviceaccounts"),
            Of("create", "authentication.k8s.io", "tokenreviews"),
            Of("create", "authorization.k8s.io", "subjectaccessreviews"),
            Of("list watch", "*", "*"),
            Of("create", "core", "serviceaccounts/token"),
        ],
    ),
    ("system:kube-dns", &[Of("list watch", "core", "endpoints services")]),
    (
        "system:kube-scheduler",
        &[
            EVENTS,
            Of("create", "coordination.k8s.io", "leases"),
            Named("get list update watch", "coordination.k8s.io", "leases", "kube-scheduler"),
            Of(ALL, "coordination.k8s.io", "leasecandidates"),
            Of(READ, "core", "nodes"),
            Of("delete get list watch", "core", "pods"),
            Of("create", "core", "bindings pods/binding"),
            Of("patch update", "core", "pods/status"),
            Of(READ, "core", "replicationcontrollers services"),
            Of(READ, "apps extensions", "replicasets"),
            Of(READ, "apps", "statefulsets"),
            Of(READ, "policy", "poddisruptionbudgets"),
            Of(READ, "core", "persistentvolumeclaims persistentvolumes"),
            Of("create", "authentication.k8s.io", "tokenreviews"),
            Of("create", "authorization.k8s.io", "subjectaccessreviews"),
            Of(READ, "storage.k8s.io", "csinodes"),
            Of(READ, "storage.k8s.io", "volumeattachments"),
            Of(READ, "core", "namespaces"),
            Of(READ, "storage.k8s.io", "csidrivers"),
            Of(READ, "storage.k8s.io", "csistoragecapacities"),
            Of(READ, "resource.k8s.io", "deviceclasses"),
            Of("get list patch update watch", "resource.k8s.io", "resourceclaims"),
            Of("get list patch update watch", "resource.k8s.io", "resourceclaims/status"),
            Of("update", "core", "pods/finalizers"),
            Of(READ, "resource.k8s.io", "resourceslices"),
            Of("create delete", "resource.k8s.io", "resourceclaims"),
            Of("patch update", "resource.k8s.io", "resourceclaims/binding"),
        ],
    ),
    (
        "system:kubelet-api-admin",
        &[
            Of(READ, "core", "nodes"),
            Of("proxy", "core", "nodes"),
            Of("*", "core", "nodes/log nodes/metrics nodes/proxy nodes/stats"),
            Of("*", "core", "nodes/configz nodes/healthz nodes/pods"),
        ],
    ),
    (
        "system:monitoring",
        &[
            Paths(
                "get",
                "/flagz /healthz /healthz/* /livez /livez/* /metrics /metrics/slis /readyz /readyz/* /statusz",
            ),
            Of("get", "core", "nodes/metrics"),
        ],
    ),
    (
        "system:node",
        &[
            Of("create", "authentication.k8s.io", "tokenreviews"),
            Of("create", "authorization.k8s.io", "localsubjectaccessreviews subjectaccessreviews"),
            Of(READ, "core", "services"),
            Of("create get list watch", "core", "nodes"),
            Of("patch update", "core", "nodes/status"),
            Of("patch update", "core", "nodes"),
            EVENTS,
            Of(READ, "core", "pods"),
            Of("create delete", "core", "pods"),
            Of("patch update", "core", "pods/status"),
            Of("create", "core", "pods/eviction"),
            Of(READ, "core", "configmaps secrets"),
            Of("get", "core", "persistentvolumeclaims persistentvolumes"),
            Of("get", "core", "endpoints"),
            Of("create get list watch", "certificates.k8s.io", "certificatesigningrequests"),
            Of("create delete get patch update", "coordination.k8s.io", "leases"),
            Of("get", "storage.k8s.io", "volumeattachments"),
            Of("create", "core", "serviceaccounts/token"),
            Of("get patch update", "core", "persistentvolumeclaims/status"),
            Of(READ, "storage.k8s.io", "csidrivers"),
            Of("create delete get patch update", "storage.k8s.io", "csinodes"),
            Of(READ, "node.k8s.io", "runtimeclasses"),
            Of("get", "resource.k8s.io", "resourceclaims"),
            Of("deletecollection", "resource.k8s.io", "resourceslices"),
            Of("get", "core", "serviceaccounts"),
        ],
    ),
    ("system:node-bootstrapper", &[Of("create get list watch", "certificates.k8s.io", "certificatesigningrequests")]),
    (
        "system:node-proxier",
        &[
            Of("list watch", "core", "endpoints services"),
            Of(READ, "core", "nodes"),
            EVENTS,
            Of("list watch", "networking.k8s.io", "servicecidrs"),
            Of("list watch", "discovery.k8s.io", "endpointslices"),
        ],
    ),
    (
        "system:persistent-volume-provisioner",
        &[
            Of("create delete get list watch", "core", "persistentvolumes"),
            Of("get list update watch", "core", "persistentvolumeclaims"),
            Of(READ, "storage.k8s.io", "storageclasses"),
            Of("watch", "core", "events"),
            EVENTS,
        ],
    ),
    ("system:public-info-viewer", &[Paths("get", "/healthz /livez /readyz /version /version/")]),
    (
        "system:service-account-issuer-discovery",
        &[Paths(
            "get",
            "/.well-known/openid-configuration /.well-known/openid-configuration/ /openid/v1/jwks /openid/v1/jwks/",
        )],
    ),
    (
        "system:volume-scheduler",
        &[
            Of("get list patch update watch", "core", "persistentvolumes"),
            Of(READ, "storage.k8s.io", "storageclasses"),
            Of("get list patch update watch", "core", "persistentvolumeclaims"),
        ],
    ),
];

/// Roles made of others: name, what their parts are labelled with, and the role they are part of themselves.
const AGGREGATED: &[(&str, &str, Option<&str>)] =
    &[("view", "view", Some("edit")), ("edit", "edit", Some("admin")), ("admin", "admin", None)];

/// Who has which role: kind, namespace and name of each subject.
pub(super) type Subjects = &'static [(&'static str, &'static str, &'static str)];
const BINDINGS: &[(&str, Subjects)] = &[
    ("cluster-admin", &[("Group", "", "system:masters")]),
    ("system:basic-user", &[("Group", "", "system:authenticated")]),
    ("system:discovery", &[("Group", "", "system:authenticated")]),
    ("system:kube-controller-manager", &[("User", "", "system:kube-controller-manager")]),
    ("system:kube-dns", &[("ServiceAccount", "kube-system", "kube-dns")]),
    ("system:kube-scheduler", &[("User", "", "system:kube-scheduler")]),
    ("system:monitoring", &[("Group", "", "system:monitoring")]),
    ("system:node", &[]),
    ("system:node-proxier", &[("User", "", "system:kube-proxy")]),
    ("system:public-info-viewer", &[("Group", "", "system:authenticated"), ("Group", "", "system:unauthenticated")]),
    ("system:service-account-issuer-discovery", &[("Group", "", "system:serviceaccounts")]),
    ("system:volume-scheduler", &[("User", "", "system:kube-scheduler")]),
];

fn metadata(name: &str) -> Value {
    json!({
        "name": name,
        "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
        "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
    })
}

fn aggregation_label(to: &str) -> String {
    format!("{GROUP}/aggregate-to-{to}")
}

/// The ClusterRoles every workspace has.
pub fn cluster_roles() -> Vec<Value> {
    let mut roles: Vec<Value> = Vec::new();
    for (name, rules) in ROLES {
        let mut role = cluster_role(name, rules);
        if let Some(to) = name.strip_prefix("system:aggregate-to-") {
            role["metadata"]["labels"][aggregation_label(to)] = "true".into();
        }
        roles.push(role);
    }
    // The smaller ones come first, as the larger ones contain them.
    for (name, of, part_of) in AGGREGATED {
        let mut metadata = metadata(name);
        if let Some(to) = part_of {
            metadata["labels"][aggregation_label(to)] = "true".into();
        }
        let mut role = json!({
            "kind": "ClusterRole", "apiVersion": "rbac.authorization.k8s.io/v1", "metadata": metadata,
            "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {aggregation_label(of): "true"}}]},
        });
        role["rules"] = aggregated(&role, &roles).unwrap_or_default().into();
        roles.push(role);
    }
    roles
}

fn cluster_role(name: &str, rules: &[R]) -> Value {
    let rules: Vec<Value> = rules.iter().map(|rule| rule.value()).collect();
    json!({
        "kind": "ClusterRole", "apiVersion": "rbac.authorization.k8s.io/v1", "metadata": metadata(name), "rules": rules,
    })
}

/// The rules of one of the roles that every workspace has.
pub(super) fn rules_of(name: &str) -> Vec<Value> {
    let found = ROLES.iter().find(|(role, _)| *role == name);
    found.map(|(_, rules)| rules.iter().map(|rule| rule.value()).collect()).unwrap_or_default()
}

/// The ClusterRoles that only the root workspace has.
pub fn root_cluster_roles() -> Vec<Value> {
    let controllers = CONTROLLERS.iter().map(|(name, rules)| cluster_role(&controller(name), rules));
    controllers.chain(controller_policy::OTHERS.iter().map(|(name, rules)| cluster_role(name, rules))).collect()
}

/// Each of upstream's controllers has its role, by the account it uses.
pub fn root_cluster_role_bindings() -> Vec<Value> {
    let binding = |(name, _): &(&str, &[R])| {
        let role = controller(name);
        json!({
            "kind": "ClusterRoleBinding", "apiVersion": "rbac.authorization.k8s.io/v1", "metadata": metadata(&role),
            "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "namespace": "kube-system", "name": name}],
        })
    };
    let mut bindings: Vec<Value> = CONTROLLERS.iter().map(binding).collect();
    // An edge renews its own certificate without anybody's help.
    bindings.push(json!({
        "kind": "ClusterRoleBinding", "apiVersion": "rbac.authorization.k8s.io/v1", "metadata": metadata(SELF_EDGE_CLIENT),
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": SELF_EDGE_CLIENT},
        "subjects": [{"kind": "Group", "apiGroup": GROUP, "name": "system:edges"}],
    }));
    bindings.push(json!({
        "kind": "ClusterRoleBinding", "apiVersion": "rbac.authorization.k8s.io/v1", "metadata": metadata(KUBELET_CLIENT),
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": "system:kubelet-api-admin"},
        "subjects": [{"kind": "User", "apiGroup": GROUP, "name": KUBELET_CLIENT}],
    }));
    bindings
}

fn controller(name: &str) -> String {
    format!("system:controller:{name}")
}

/// The ClusterRoleBindings every workspace has. Each role is bound under its own name.
pub fn cluster_role_bindings() -> Vec<Value> {
    let binding = |(role, subjects): &(&str, Subjects)| {
        let mut binding = json!({
            "kind": "ClusterRoleBinding", "apiVersion": "rbac.authorization.k8s.io/v1", "metadata": metadata(role),
            "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role},
        });
        if !subjects.is_empty() {
            binding["subjects"] = subjects.iter().map(subject).collect();
        }
        binding
    };
    BINDINGS.iter().map(binding).collect()
}

/// Lets somebody into a workspace; what they may do there, other roles say.
const ACCESS: (&str, &[R]) = ("system:kcp:workspace:access", &[Paths("access", "/")]);

/// The roles that every workspace besides `root` shares, and those bindings of upstream's that concern everybody. Components
/// and their ServiceAccounts have rights in `root` only, until somebody binds them elsewhere.
pub fn shared() -> Roles {
    let mut roles = Roles::default();
    for role in cluster_roles() {
        roles.set_role("", role["metadata"]["name"].as_str().unwrap_or_default(), Some(&role));
    }
    let rules: Vec<Value> = ACCESS.1.iter().map(|rule| rule.value()).collect();
    roles.set_role("", ACCESS.0, Some(&json!({"rules": rules})));
    for mut binding in cluster_role_bindings() {
        let everybody = |subject: &Value| {
            let name = subject["name"].as_str().unwrap_or_default();
            subject["kind"] == "Group"
                && matches!(name, MASTERS | AUTHENTICATED | UNAUTHENTICATED | "system:serviceaccounts")
        };
        let Some(subjects) = binding["subjects"].as_array_mut() else { continue };
        subjects.retain(everybody);
        if !subjects.is_empty() {
            roles.set_binding("", binding["metadata"]["name"].as_str().unwrap_or_default(), Some(&binding));
        }
    }
    roles
}

/// The Roles every workspace has in the system's namespaces, each with its namespace.
pub fn roles() -> Vec<(&'static str, Value)> {
    let role = |(namespace, name, rules, _): &SystemRole| {
        let rules: Vec<Value> = rules.iter().map(|rule| rule.value()).collect();
        let role = json!({"kind": "Role", "apiVersion": "rbac.authorization.k8s.io/v1", "metadata": metadata(name), "rules": rules});
        (*namespace, role)
    };
    SYSTEM_ROLES.iter().map(role).collect()
}

/// The bindings of [`roles`].
pub fn role_bindings() -> Vec<(&'static str, Value)> {
    let binding = |(namespace, role, _, subjects): &SystemRole| {
        let name = if role.starts_with("system:") { (*role).to_owned() } else { format!("system::{role}") };
        let binding = json!({"kind": "RoleBinding", "apiVersion": "rbac.authorization.k8s.io/v1", "metadata": metadata(&name),
            "roleRef": {"apiGroup": GROUP, "kind": "Role", "name": role},
            "subjects": subjects.iter().map(subject).collect::<Vec<_>>()});
        (*namespace, binding)
    };
    SYSTEM_ROLES.iter().map(binding).collect()
}

fn subject((kind, namespace, name): &(&str, &str, &str)) -> Value {
    if *kind == "ServiceAccount" {
        return json!({"kind": kind, "namespace": namespace, "name": name});
    }
    json!({"kind": kind, "apiGroup": GROUP, "name": name})
}

/// The rules that an aggregated ClusterRole has by those it selects; `None` if it is not aggregated.
pub fn aggregated(role: &Value, all: &[Value]) -> Option<Vec<Value>> {
    let selectors = role.pointer("/aggregationRule/clusterRoleSelectors")?.as_array()?;
    let name = |role: &Value| role.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
    let own = name(role);
    let mut rules: Vec<Value> = Vec::new();
    for selector in selectors {
        let Ok(selector) = LabelSelector::from_value(selector) else { continue };
        let mut parts: Vec<&Value> = all.iter().filter(|r| name(r) != own && selector.matches_object(r)).collect();
        parts.sort_by_key(|r| name(r));
        for rule in parts.into_iter().filter_map(|r| r.get("rules")?.as_array()).flatten() {
            if !rules.contains(rule) {
                rules.push(rule.clone());
            }
        }
    }
    Some(rules)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        authorize::{Attributes, Authorizer},
        rbac::Roles,
        rbac::tests::{attributes, user},
    };

    fn roles() -> Roles {
        let mut roles = Roles::default();
        for role in cluster_roles() {
            roles.set_role("", role["metadata"]["name"].as_str().unwrap(), Some(&role));
        }
        for binding in cluster_role_bindings() {
            roles.set_binding("", binding["metadata"]["name"].as_str().unwrap(), Some(&binding));
        }
        roles
    }

    #[test]
    fn what_everybody_may() {
        let roles = roles();
        let anonymous = user("system:anonymous", &["system:unauthenticated"]);
        let jane = user("jane", &["system:authenticated"]);
        for (user, path, expected) in [
            (&anonymous, "/version", true),
            (&anonymous, "/api", false),
            (&anonymous, "/metrics", false),
            (&jane, "/api", true),
            (&jane, "/openapi/v3/apis/apps/v1", true),
            (&jane, "/metrics", false),
            (&user("m", &["system:monitoring"]), "/metrics", true),
        ] {
            assert_eq!(roles.authorize(user, &Attributes::path("get", path)).allowed, expected, "{} {path}", user.name);
        }
        let myself =
            Attributes { group: "authentication.k8s.io".into(), ..attributes("create", "selfsubjectreviews", "", "") };
        assert!(roles.authorize(&jane, &myself).allowed);
        assert!(!roles.authorize(&anonymous, &myself).allowed);
        assert!(
            roles
                .authorize(&user("system:kube-scheduler", &[]), &attributes("create", "pods/binding", "ns", "p"))
                .allowed
        );
    }

    #[test]
    fn larger_roles_contain_smaller_ones() {
        let all = cluster_roles();
        let rules = |name: &str| {
            let role = all.iter().find(|r| r["metadata"]["name"] == name).unwrap();
            role["rules"].as_array().unwrap().clone()
        };
        let (view, edit, admin) = (rules("view"), rules("edit"), rules("admin"));
        assert!(!view.is_empty() && view.len() < edit.len() && edit.len() < admin.len());
        assert!(view.iter().all(|rule| edit.contains(rule)) && edit.iter().all(|rule| admin.contains(rule)));

        let mut mine = roles();
        mine.set_binding(
            "ns",
            "b",
            Some(&json!({"roleRef": {"kind": "ClusterRole", "name": "view"},
            "subjects": [{"kind": "User", "name": "jane"}]})),
        );
        let jane = user("jane", &[]);
        assert!(mine.authorize(&jane, &attributes("list", "pods", "ns", "")).allowed);
        assert!(!mine.authorize(&jane, &attributes("list", "secrets", "ns", "")).allowed);
        assert!(!mine.authorize(&jane, &attributes("create", "pods", "ns", "")).allowed);
    }

    #[test]
    fn every_binding_has_its_role() {
        let roles = cluster_roles();
        let roles = [roles, root_cluster_roles()].concat();
        for binding in [cluster_role_bindings(), root_cluster_role_bindings()].concat() {
            assert!(roles.iter().any(|r| r["metadata"]["name"] == binding["roleRef"]["name"]), "{binding}");
        }
    }
}
