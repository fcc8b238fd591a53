//! Our own kinds: definitions that come with the server instead of with a workspace.
//!
//! They are data, CustomResourceDefinitions in `system/*.yaml`, and behave as custom kinds do. A group is parsed and compiled
//! when somebody first asks for it: a server that nobody asks pays nothing for them.

use std::sync::{Arc, LazyLock};

use api::crd::Definition;
use serde_json::{Value, json};

use super::{Kind, kinds_of};

/// One group of kinds.
struct Group {
    name: &'static str,
    /// In which workspaces it is served.
    served_in: fn(&str) -> bool,
    kinds: LazyLock<Vec<Arc<Kind>>>,
}

fn everywhere(_cluster: &str) -> bool {
    true
}

/// Where the server itself is at home.
fn at_root(cluster: &str) -> bool {
    cluster == crate::request::ROOT
}

static GROUPS: [Group; 4] = [
    Group {
        name: "apis.kcp.io",
        served_in: everywhere,
        kinds: LazyLock::new(|| compile(include_str!("system/apis.yaml"))),
    },
    Group {
        name: "tenancy.kcp.io",
        served_in: everywhere,
        kinds: LazyLock::new(|| compile(include_str!("system/tenancy.yaml"))),
    },
    Group {
        name: "workload.kcp.io",
        served_in: everywhere,
        kinds: LazyLock::new(|| compile(include_str!("system/workload.yaml"))),
    },
    Group {
        name: "edge.selvedge.dev",
        served_in: at_root,
        kinds: LazyLock::new(|| unwritable(compile(include_str!("system/edge.yaml")))),
    },
];

/// The kinds of one of our groups; none if it is not ours, or not served there.
pub fn of_group(cluster: &str, group: &str) -> &'static [Arc<Kind>] {
    let ours = GROUPS.iter().find(|g| g.name == group && (g.served_in)(cluster));
    ours.map_or(&[], |g| g.kinds.as_slice())
}

pub fn find(cluster: &str, group: &str, version: &str, resource: &str) -> Option<&'static Arc<Kind>> {
    of_group(cluster, group).iter().find(|k| *k.resource.version == *version && k.plural() == resource)
}

pub fn all(cluster: &str) -> impl Iterator<Item = &'static Arc<Kind>> {
    GROUPS.iter().filter(move |g| (g.served_in)(cluster)).flat_map(|g| g.kinds.iter())
}

/// The names that our kinds of a group have taken, as a definition beside which another one has to find its own.
pub fn names(cluster: &str, group: &str) -> Vec<Value> {
    of_group(cluster, group).iter().map(|kind| names_of(kind)).collect()
}

/// A kind as a definition beside others, which has no name that another could have.
pub fn names_of(kind: &Kind) -> Value {
    let r = &kind.resource;
    json!({"metadata": {"name": "not a definition"}, "spec": {"group": r.group}, "status": {"acceptedNames": {
        "plural": r.resource, "singular": r.singular, "kind": r.kind, "listKind": kind.list_kind(),
        "shortNames": r.short_names}}})
}

fn compile(text: &str) -> Vec<Arc<Kind>> {
    let kinds = documents(text).into_iter().map(|crd| match Definition::compile(&crd) {
        Ok(definition) => kinds_of(&Arc::new(definition), 0, None),
        Err(errors) => {
            tracing::error!(?errors, "a definition of the server's own does not compile and is not served");
            Vec::new()
        }
    });
    kinds.flatten().collect()
}

/// Kinds that only the server writes: clients read them, and may throw them away.
fn unwritable(mut kinds: Vec<Arc<Kind>>) -> Vec<Arc<Kind>> {
    for kind in kinds.iter_mut().filter_map(Arc::get_mut) {
        kind.resource.verbs.retain(|verb| !matches!(&**verb, "create" | "update" | "patch"));
    }
    kinds
}

fn documents(text: &str) -> Vec<Value> {
    let document = |text: &str| match yaml_serde::from_str::<Value>(text) {
        Ok(mut crd) => {
            api::defaults::apply("apiextensions.k8s.io", "v1", "CustomResourceDefinition", &mut crd);
            Some(crd)
        }
        Err(error) => {
            tracing::error!(%error, "a definition of the server's own is not YAML and is not served");
            None
        }
    };
    text.split("\n---\n").filter_map(document).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_definition_is_valid_and_served() {
        for (group, text) in [
            ("apis.kcp.io", include_str!("system/apis.yaml")),
            ("tenancy.kcp.io", include_str!("system/tenancy.yaml")),
            ("workload.kcp.io", include_str!("system/workload.yaml")),
            ("edge.selvedge.dev", include_str!("system/edge.yaml")),
        ] {
            let crds = documents(text);
            assert_eq!(crds.len(), text.matches("\nkind: CustomResourceDefinition").count());
            for mut crd in crds {
                api::crd::prepare(&mut crd, None);
                let errors = api::crd::validate_definition(&crd, None);
                assert!(errors.is_empty(), "{}: {errors:?}", crd["metadata"]["name"]);
                let plural = crd["spec"]["names"]["plural"].as_str().unwrap();
                assert!(find("root", group, "v1alpha1", plural).is_some(), "{plural}");
            }
        }
    }

    #[test]
    fn what_only_the_server_writes() {
        let kind = find("root", "edge.selvedge.dev", "v1alpha1", "offlinewrites").unwrap();
        for (verb, can) in [("get", true), ("watch", true), ("delete", true), ("create", false), ("patch", false)] {
            assert_eq!(kind.resource.can(verb), can, "{verb}");
        }
        assert!(find("root:shop", "edge.selvedge.dev", "v1alpha1", "offlinewrites").is_none());
    }

    #[test]
    fn names_that_are_taken_stay_taken() {
        let mut crd = json!({"metadata": {"name": "apiexports.apis.kcp.io"}, "spec": {"group": "apis.kcp.io",
            "names": {"plural": "apiexports", "kind": "APIExport", "singular": "apiexport", "listKind": "APIExportList"}}});
        api::crd::accept(&mut crd, &names("root", "apis.kcp.io"), "2026-01-01T00:00:00Z");
        let conditions = crd["status"]["conditions"].as_array().unwrap();
        assert!(conditions.iter().all(|c| c["status"] == "False"), "{conditions:?}");
        assert!(names("root", "example.io").is_empty());
    }
}
