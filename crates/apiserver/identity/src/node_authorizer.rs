//! What nodes may do: read what their pods use, report on themselves and their pods, and little else. Evaluated beside the
//! roles, as upstream's node authorizer is.

use std::sync::OnceLock;

use serde_json::Value;

use super::{
    authenticate::User,
    authorize::{Attributes, Decision},
    nodes::{Nodes, What},
    policy,
    rbac::Rule,
};

const PREFIX: &str = "system:node:";
const GROUP: &str = "system:nodes";
pub const LEASES: &str = "kube-node-lease";

/// The node that a user is.
pub fn node_of(user: &User) -> Option<&str> {
    user.name.strip_prefix(PREFIX).filter(|_| user.is_in(GROUP))
}

/// What the node authorizer says of a request; `None` if it is not made by a node.
pub fn authorize(user: &User, attributes: &Attributes, nodes: &Nodes) -> Option<Decision> {
    let node = node_of(user)?;
    if node.is_empty() {
        return Some(no(format!("unknown node for user {:?}", user.name)));
    }
    let asked = Asked { node, attributes, nodes };
    Some(match (attributes.group.as_str(), attributes.resource.as_str()) {
        ("", "secrets") => asked.read(What::Secret),
        ("", "configmaps") => asked.read(What::ConfigMap),
        ("", "persistentvolumeclaims") if attributes.subresource == "status" => match attributes.verb.as_str() {
            "update" | "patch" => asked.related(What::Claim),
            _ => no("can only get/update/patch this type"),
        },
        ("", "persistentvolumeclaims") => asked.get(What::Claim),
        ("", "persistentvolumes") => asked.get(What::Volume),
        ("resource.k8s.io", "resourceclaims") => asked.get(What::ResourceClaim),
        ("storage.k8s.io", "volumeattachments") => asked.get(What::Attachment),
        ("", "serviceaccounts") => asked.service_account(),
        ("coordination.k8s.io", "leases") => asked.lease(),
        ("storage.k8s.io", "csinodes") => asked.csi_node(),
        ("resource.k8s.io", "resourceslices") => asked.slice(),
        ("", "nodes") => asked.node(),
        ("", "pods") => asked.pod(),
        _ if rules().iter().any(|rule| rule.allows(attributes)) => Decision::allowed(""),
        _ => Decision::default(),
    })
}

/// The rules for what is not divided among nodes.
fn rules() -> &'static [Rule] {
    static RULES: OnceLock<Vec<Rule>> = OnceLock::new();
    RULES.get_or_init(|| {
        let role = policy::rules_of("system:node");
        Rule::all_of(&Value::from_iter([("rules", Value::Array(role))]))
    })
}

fn no(reason: impl Into<String>) -> Decision {
    Decision { reason: reason.into(), ..Decision::default() }
}

struct Asked<'a> {
    node: &'a str,
    attributes: &'a Attributes,
    nodes: &'a Nodes,
}

impl Asked<'_> {
    fn verb(&self) -> &str {
        &self.attributes.verb
    }

    fn has_subresource(&self) -> bool {
        !self.attributes.subresource.is_empty()
    }

    fn related(&self, what: What) -> Decision {
        let Attributes { namespace, name, .. } = self.attributes;
        if name.is_empty() {
            return no("No Object name found");
        }
        if self.nodes.is_related(self.node, what, namespace, name) {
            return Decision::allowed("");
        }
        no(format!("no relationship found between node '{}' and this object", self.node))
    }

    fn get(&self, what: What) -> Decision {
        if self.verb() != "get" {
            return no("can only get individual resources of this type");
        }
        if self.has_subresource() {
            return no("cannot get subresource");
        }
        self.related(what)
    }

    fn read(&self, what: What) -> Decision {
        if !matches!(self.verb(), "get" | "list" | "watch") {
            return no("can only read resources of this type");
        }
        if self.has_subresource() {
            return no("cannot read subresource");
        }
        if self.attributes.namespace.is_empty() {
            return no("can only read namespaced object of this type");
        }
        self.related(what)
    }

    fn service_account(&self) -> Decision {
        if self.verb() == "get" && !self.has_subresource() {
            return self.read(What::ServiceAccount);
        }
        if self.verb() != "create" || self.attributes.name.is_empty() {
            return no("can only create tokens for individual service accounts");
        }
        if self.attributes.subresource != "token" {
            return no("can only create token subresource of serviceaccount");
        }
        self.related(What::ServiceAccount)
    }

    fn lease(&self) -> Decision {
        if !matches!(self.verb(), "get" | "create" | "update" | "patch" | "delete") {
            return no("can only get, create, update, patch, or delete a node lease");
        }
        if self.attributes.namespace != LEASES {
            return no(format!("can only access leases in the {LEASES:?} system namespace"));
        }
        // What is created has no name yet; admission looks at it.
        if self.verb() != "create" && self.attributes.name != self.node {
            return no("can only access node lease with the same name as the requesting node");
        }
        Decision::allowed("")
    }

    fn csi_node(&self) -> Decision {
        if !matches!(self.verb(), "get" | "create" | "update" | "patch" | "delete") {
            return no("can only get, create, update, patch, or delete a CSINode");
        }
        if self.has_subresource() {
            return no("cannot authorize CSINode subresources");
        }
        if self.verb() != "create" && self.attributes.name != self.node {
            return no("can only access CSINode with the same name as the requesting node");
        }
        Decision::allowed("")
    }

    /// Whether the request selects only what has this node's name in that field.
    fn selects(&self, field: &str) -> bool {
        self.attributes.exact_fields.iter().any(|(name, value)| name == field && value == self.node)
    }

    fn slice(&self) -> Decision {
        if self.has_subresource() {
            return no("cannot authorize ResourceSlice subresources");
        }
        match self.verb() {
            "create" => Decision::allowed(""),
            "get" | "update" | "patch" | "delete" => self.related(What::Slice),
            "watch" | "list" | "deletecollection" if self.selects("spec.nodeName") => Decision::allowed(""),
            "watch" | "list" | "deletecollection" => {
                no("can only list/watch/deletecollection resourceslices with nodeName field selector")
            }
            _ => no(
                "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, \
                 deletecollection",
            ),
        }
    }

    fn node(&self) -> Decision {
        let node = self.node;
        match (self.attributes.subresource.as_str(), self.verb()) {
            // Which node it is, admission looks at.
            ("", "create" | "update" | "patch") | ("status", "update" | "patch") => Decision::allowed(""),
            ("", "get" | "list" | "watch") => match self.attributes.name.as_str() {
                name if name == node => Decision::allowed(""),
                "" => no(format!("node '{node}' cannot read all nodes, only its own Node object")),
                name => no(format!("node '{node}' cannot read '{name}', only its own Node object")),
            },
            _ => Decision::default(),
        }
    }

    fn pod(&self) -> Decision {
        match (self.attributes.subresource.as_str(), self.verb()) {
            ("", "get") => self.get(What::Pod),
            ("", "list" | "watch") if self.selects("spec.nodeName") => Decision::allowed(""),
            ("", "list" | "watch") if !self.attributes.name.is_empty() => self.related(What::Pod),
            ("", "list" | "watch") => no("can only list/watch pods with spec.nodeName field selector"),
            // Whose pods they are, admission looks at.
            ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => {
                Decision::allowed("")
            }
            _ => Decision::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::rbac::tests::{attributes, user};

    #[test]
    fn what_nodes_may() {
        let mut nodes = Nodes::default();
        let pod = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n1", "serviceAccountName": "robot",
            "volumes": [{"secret": {"secretName": "s"}}]}});
        nodes.set("core/pods", "ns", "p", Some(&pod));
        let n1 = user("system:node:n1", &["system:nodes"]);
        for (verb, resource, namespace, name, selected, expected) in [
            ("get", "secrets", "ns", "s", "", Ok(())),
            ("list", "secrets", "ns", "s", "", Ok(())),
            ("get", "secrets", "ns", "other", "", Err("no relationship found between node 'n1' and this object")),
            ("list", "secrets", "ns", "", "", Err("No Object name found")),
            ("list", "secrets", "", "", "", Err("can only read namespaced object of this type")),
            ("delete", "secrets", "ns", "s", "", Err("can only read resources of this type")),
            ("get", "pods", "ns", "p", "", Ok(())),
            ("get", "pods", "ns", "q", "", Err("no relationship found between node 'n1' and this object")),
            ("list", "pods", "", "", "n1", Ok(())),
            ("watch", "pods", "", "", "n2", Err("can only list/watch pods with spec.nodeName field selector")),
            ("list", "pods", "", "", "", Err("can only list/watch pods with spec.nodeName field selector")),
            ("create", "pods", "ns", "", "", Ok(())),
            ("patch", "pods/status", "ns", "x", "", Ok(())),
            ("update", "pods", "ns", "x", "", Err("")),
            ("create", "pods/binding", "ns", "x", "", Err("")),
            ("get", "nodes", "", "n1", "", Ok(())),
            ("get", "nodes", "", "n2", "", Err("node 'n1' cannot read 'n2', only its own Node object")),
            ("list", "nodes", "", "", "", Err("node 'n1' cannot read all nodes, only its own Node object")),
            ("delete", "nodes", "", "n1", "", Err("")),
            ("create", "serviceaccounts/token", "ns", "robot", "", Ok(())),
            (
                "create",
                "serviceaccounts/token",
                "ns",
                "x",
                "",
                Err("no relationship found between node 'n1' and this object"),
            ),
            ("get", "persistentvolumes", "", "pv", "", Err("no relationship found between node 'n1' and this object")),
            ("list", "persistentvolumes", "", "", "", Err("can only get individual resources of this type")),
            ("list", "services", "", "", "", Ok(())),
            ("create", "events", "ns", "", "", Ok(())),
            ("create", "namespaces", "", "", "", Err("")),
        ] {
            let mut asked = attributes(verb, resource, namespace, name);
            if !selected.is_empty() {
                asked.exact_fields.push(("spec.nodeName".to_owned(), selected.to_owned()));
            }
            let got = authorize(&n1, &asked, &nodes).unwrap();
            let got = if got.allowed { Ok(()) } else { Err(got.reason) };
            assert_eq!(got, expected.map_err(str::to_owned), "{verb} {resource} {namespace} {name}");
        }
        let lease = |verb: &str, namespace: &str, name: &str| {
            let asked =
                Attributes { group: "coordination.k8s.io".into(), ..attributes(verb, "leases", namespace, name) };
            authorize(&n1, &asked, &nodes).unwrap().allowed
        };
        assert!(lease("update", LEASES, "n1") && lease("create", LEASES, ""));
        assert!(!lease("update", LEASES, "n2") && !lease("get", "kube-system", "n1") && !lease("list", LEASES, ""));
        assert_eq!(authorize(&user("system:node:n1", &[]), &attributes("get", "nodes", "", "n1"), &nodes), None);
        assert_eq!(authorize(&user("jane", &["system:nodes"]), &attributes("get", "nodes", "", "n1"), &nodes), None);
        let nameless =
            authorize(&user("system:node:", &["system:nodes"]), &attributes("get", "nodes", "", "x"), &nodes);
        assert_eq!(nameless.unwrap().reason, "unknown node for user \"system:node:\"");
    }
}
