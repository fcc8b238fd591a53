//! Nobody gives away rights that they do not have: roles and bindings are held against their writer's own rights.

use identity::rbac::Rule;
use identity::{Attributes, Authorizer};
use schema::status::{Result, Status};
use serde_json::Value;

use super::forbid;
use crate::{authorize::Workspace, call::Call};

pub const GROUP: &str = "rbac.authorization.k8s.io/";

/// Judges a role or binding that is created, or changed from `old`.
pub fn write(call: &Call, new: &Value, old: Option<&Value>) -> Result<()> {
    if call.user.rules(&call.cluster) || old.is_some_and(|old| only_lets_go(new, old)) {
        return Ok(());
    }
    let workspace = call.server.authorization.in_workspace(&call.cluster);
    match call.kind.plural() {
        "roles" | "clusterroles" => role(call, &workspace, new, old),
        _ => binding(call, &workspace, new),
    }
}

/// The garbage collector must be able to free an object of its owners and finalizers without having its rights.
fn only_lets_go(new: &Value, old: &Value) -> bool {
    let bare = |value: &Value| {
        let mut value = value.clone();
        if let Some(metadata) = value["metadata"].as_object_mut() {
            for field in ["ownerReferences", "finalizers", "managedFields", "resourceVersion"] {
                metadata.remove(field);
            }
        }
        value
    };
    bare(new) == bare(old)
}

fn role(call: &Call, workspace: &Workspace, new: &Value, old: Option<&Value>) -> Result<()> {
    let attributes = Attributes {
        verb: "escalate".into(),
        group: call.kind.group().into(),
        version: "*".into(),
        resource: call.kind.plural().into(),
        namespace: call.target.namespace.clone(),
        // As the path has it: whoever may escalate one role by name may change it so, but not create it.
        name: call.target.name.clone(),
        ..Attributes::default()
    };
    if workspace.allows(&call.user, &attributes) {
        return Ok(());
    }
    let gathers = |role: &Value| !role["aggregationRule"].is_null();
    if gathers(new) || old.is_some_and(gathers) {
        // Whoever decides what a role gathers can give it anything.
        let everything = ["*".to_owned()];
        let everything = [
            Rule {
                verbs: everything.to_vec(),
                groups: everything.to_vec(),
                resources: everything.to_vec(),
                ..Rule::default()
            },
            Rule { verbs: everything.to_vec(), paths: everything.to_vec(), ..Rule::default() },
        ];
        if check(call, workspace, &everything).is_err() {
            return Err(forbid(call, new, "must have cluster-admin privileges to use the aggregationRule"));
        }
    }
    check(call, workspace, &Rule::all_of(new)).map_err(|why| forbid(call, new, &why))
}

fn binding(call: &Call, workspace: &Workspace, new: &Value) -> Result<()> {
    let (kind, role) = (text(&new["roleRef"]["kind"]), text(&new["roleRef"]["name"]));
    let namespace = &call.target.namespace;
    let attributes = Attributes {
        verb: "bind".into(),
        group: call.kind.group().into(),
        version: "*".into(),
        resource: if kind == "Role" { "roles" } else { "clusterroles" }.into(),
        namespace: namespace.clone(),
        name: role.clone(),
        ..Attributes::default()
    };
    if workspace.allows(&call.user, &attributes) {
        return Ok(());
    }
    let rules = {
        let roles = workspace.roles.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        match roles.referenced(&kind, namespace, &role) {
            Ok(rules) => rules.to_vec(),
            // Upstream names the binding's resource here, with the role's name.
            Err(_) if matches!(&*kind, "Role" | "ClusterRole") => {
                return Err(Status::not_found(call.kind.group(), call.kind.plural(), &role));
            }
            Err(why) => return Err(forbid(call, new, &why)),
        }
    };
    check(call, workspace, &rules).map_err(|why| forbid(call, new, &why))
}

fn check(call: &Call, workspace: &Workspace, rules: &[Rule]) -> std::result::Result<(), String> {
    workspace.check_escalation(&call.user, &call.target.namespace, rules)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
