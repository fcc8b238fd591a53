//! Our own kinds: definitions that come with the server instead of with a workspace.
//!
//! They are data, CustomResourceDefinitions in `system/*.yaml`, and behave as custom kinds do. A group is parsed and compiled
//! when somebody first asks for it: a server that nobody asks pays nothing for them.

use std::sync::{Arc, LazyLock};

use request::ROOT;
use rules::crd::Definition;
use schema::status::Status;
use serde_json::{Value, json};

use super::{Kind, kinds_of};
use crate::workspaces::wildcard::EVERYWHERE;

/// The workspace whose APIExports offer our kinds to others: the edge service provider's.
pub const PROVIDER: &str = ::kinds::mailbox::PROVIDER;

/// Some kinds of one group.
struct Group {
    name: &'static str,
    served: Served,
    /// Some of them live in namespaces.
    namespaced: bool,
    /// Their definitions.
    text: &'static str,
    kinds: LazyLock<Vec<Arc<Kind>>>,
}

/// Where kinds are served.
#[derive(Clone, Copy, PartialEq)]
enum Served {
    Everywhere,
    /// Where the server itself is at home.
    Root,
    /// In `root`, and where the export of the group is bound. Edges do without them.
    Bound,
    /// The same, but edges have them too.
    BoundAndEdges,
}

impl Served {
    /// Without a binding.
    fn is_in(self, cluster: &str, provides: bool) -> bool {
        match self {
            Self::Everywhere => true,
            Self::Root => cluster == ROOT,
            Self::Bound => provides && matches!(cluster, ROOT | EVERYWHERE),
            Self::BoundAndEdges => matches!(cluster, ROOT | EVERYWHERE),
        }
    }
}

macro_rules! group {
    ($name:literal, $served:ident, $file:literal) => {
        group!($name, $served, $file, namespaced: false, compile)
    };
    ($name:literal, $served:ident, $file:literal, namespaced: $namespaced:literal, $compile:expr) => {
        Group {
            name: $name,
            served: Served::$served,
            namespaced: $namespaced,
            text: include_str!($file),
            kinds: LazyLock::new(|| $compile(include_str!($file))),
        }
    };
}

static GROUPS: [Group; 8] = [
    group!("apis.kcp.io", Everywhere, "system/apis.yaml"),
    group!("tenancy.kcp.io", Everywhere, "system/tenancy.yaml"),
    group!("workload.kcp.io", Bound, "system/workload.yaml"),
    group!("scheduling.kcp.io", Bound, "system/scheduling.yaml"),
    group!("edge.kcp.io", Bound, "system/placement.yaml", namespaced: true, compile),
    group!("edge.kcp.io", BoundAndEdges, "system/syncer.yaml"),
    group!("edge.selvedge.dev", Bound, "system/summary.yaml", namespaced: false, |text| unwritable(compile(text), "combinedstatuses")),
    group!("edge.selvedge.dev", Root, "system/edge.yaml", namespaced: false, |text| unwritable(compile(text), "offlinewrites")),
];

/// The kinds of one of our groups, wherever they are served; none if it is not ours.
pub fn of_group(group: &str) -> impl Iterator<Item = &'static Arc<Kind>> {
    GROUPS.iter().filter(move |g| g.name == group).flat_map(|g| g.kinds.iter())
}

/// A group whose kinds come with the server: nobody else defines any in it.
pub fn is_ours(group: &str) -> bool {
    GROUPS.iter().any(|g| g.name == group)
}

/// A group that is offered to workspaces by the export of its name.
pub fn is_exported(group: &str) -> bool {
    exported().any(|g| g.name == group)
}

/// The kinds of a group that are served in a workspace without being bound there. `provides`: by a server that offers them to others.
pub fn served(cluster: &str, provides: bool, group: &str) -> impl Iterator<Item = &'static Arc<Kind>> {
    let here = GROUPS.iter().filter(move |g| g.name == group && g.served.is_in(cluster, provides));
    here.flat_map(|g| g.kinds.iter())
}

/// The same of all groups, or of those with kinds that live in namespaces.
pub fn all(cluster: &str, provides: bool, namespaced: bool) -> impl Iterator<Item = &'static Arc<Kind>> {
    let wanted = move |g: &&Group| g.served.is_in(cluster, provides) && (g.namespaced || !namespaced);
    GROUPS.iter().filter(wanted).flat_map(|g| g.kinds.iter()).filter(move |k| k.resource.namespaced || !namespaced)
}

/// The kinds of a resource as workspaces have it that bind it.
pub fn bound(group: &str, resource: &str) -> Vec<Arc<Kind>> {
    let mine = exported().filter(|g| g.name == group).flat_map(|g| g.kinds.iter());
    mine.filter(|kind| kind.plural() == resource).cloned().collect()
}

fn exported() -> impl Iterator<Item = &'static Group> {
    GROUPS.iter().filter(|g| matches!(g.served, Served::Bound | Served::BoundAndEdges))
}

/// Every definition that is exported: its group, its name (`<plural>.<group>`), and its text.
pub fn offered() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    exported().flat_map(|g| {
        let name = |text: &'static str| text.lines().find_map(|line| line.strip_prefix("  name: "));
        texts(g.text).filter_map(move |text| Some((g.name, name(text)?, text)))
    })
}

/// The definition in a text.
pub fn definition(text: &'static str) -> Option<Value> {
    documents(text).into_iter().next()
}

/// What somebody is told who wants one of our kinds where it is not served.
pub fn unbound(cluster: &str, group: &str, resource: &str) -> Option<Status> {
    // Where they are served without a binding, only a server that does not provide them comes here.
    if !bound_by_name(group, resource) || matches!(cluster, ROOT | EVERYWHERE) {
        return None;
    }
    let inventory = matches!(group, "workload.kcp.io" | "scheduling.kcp.io");
    let of_type = if inventory { "inventory" } else { "workload" };
    let what = format!(
        "{resource}.{group} are not served in the workspace {cluster}: bind the APIExport {group} of {PROVIDER} there, or \
         use a workspace of the type {of_type}, which has them. An APIBinding that does it: {{\"apiVersion\":\"apis.kcp.io/v1alpha1\",\
         \"kind\":\"APIBinding\",\"metadata\":{{\"name\":\"{group}\"}},\"spec\":{{\"reference\":{{\"export\":{{\
         \"path\":\"{PROVIDER}\",\"name\":\"{group}\"}}}}}}}}"
    );
    Some(Status::new(404, "NotFound", what).about(group, resource, ""))
}

/// Found without compiling anything.
fn bound_by_name(group: &str, resource: &str) -> bool {
    let is = |name: &str| name.strip_suffix(group).and_then(|rest| rest.strip_suffix('.')) == Some(resource);
    offered().any(|(of, name, _)| of == group && is(name))
}

/// The names that our kinds of a group have taken, as a definition beside which another one has to find its own: also where they are not
/// served, as their objects lie among those of all workspaces.
pub fn names(group: &str) -> Vec<Value> {
    of_group(group).map(|kind| names_of(kind)).collect()
}

/// A kind as a definition beside others, which has no name that another could have.
pub fn names_of(kind: &Kind) -> Value {
    let r = &kind.resource;
    json!({"metadata": {"name": "not a definition"}, "spec": {"group": r.group}, "status": {"acceptedNames": {
        "plural": r.resource, "singular": r.singular, "kind": r.kind, "listKind": kind.list_kind(),
        "shortNames": r.short_names}}})
}

fn compile(text: &'static str) -> Vec<Arc<Kind>> {
    let kinds = documents(text).into_iter().map(|crd| match Definition::compile(&crd) {
        Ok(definition) => kinds_of(&Arc::new(definition), 0, None),
        Err(errors) => {
            tracing::error!(?errors, "a definition of the server's own does not compile and is not served");
            Vec::new()
        }
    });
    kinds.flatten().collect()
}

/// A kind that only the server writes: clients read such objects, and may throw them away.
fn unwritable(mut kinds: Vec<Arc<Kind>>, resource: &str) -> Vec<Arc<Kind>> {
    for kind in kinds.iter_mut().filter_map(Arc::get_mut).filter(|kind| kind.plural() == resource) {
        kind.resource.verbs.retain(|verb| !matches!(&**verb, "create" | "update" | "patch"));
    }
    kinds
}

fn documents(text: &'static str) -> Vec<Value> {
    let document = |text: &str| match yaml_serde::from_str::<Value>(text) {
        Ok(mut crd) => {
            rules::defaults::apply("apiextensions.k8s.io", "v1", "CustomResourceDefinition", &mut crd);
            Some(crd)
        }
        Err(error) => {
            tracing::error!(%error, "a definition of the server's own is not YAML and is not served");
            None
        }
    };
    texts(text).filter_map(document).collect()
}

fn texts(text: &'static str) -> impl Iterator<Item = &'static str> {
    text.split("\n---\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(cluster: &str, provides: bool, group: &str, resource: &str) -> Option<&'static Arc<Kind>> {
        served(cluster, provides, group).find(|k| k.plural() == resource)
    }

    #[test]
    fn every_definition_is_valid_and_served() {
        for group in &GROUPS {
            let crds = documents(group.text);
            assert_eq!(crds.len(), group.text.matches("\nkind: CustomResourceDefinition").count());
            let namespaced = crds.iter().any(|crd| crd["spec"]["scope"] == "Namespaced");
            assert_eq!(group.namespaced, namespaced, "{}", group.name);
            for mut crd in crds {
                rules::crd::prepare(&mut crd, None);
                let mut errors = rules::crd::validate_definition(&crd, None);
                // The server's own rules may cost more by estimate than those of tenants.
                errors.retain(|error| !rules::crd::is_about_cost(error));
                assert!(errors.is_empty(), "{}: {errors:?}", crd["metadata"]["name"]);
                assert_eq!(crd["spec"]["group"], group.name);
                let plural = crd["spec"]["names"]["plural"].as_str().unwrap();
                assert!(find("root", true, group.name, plural).is_some(), "{plural}");
            }
        }
    }

    #[test]
    fn where_they_are_served() {
        for (group, resource, cluster, provides, there) in [
            ("tenancy.kcp.io", "workspaces", "root:a", false, true),
            ("workload.kcp.io", "synctargets", "root", true, true),
            ("workload.kcp.io", "synctargets", "*", true, true),
            ("workload.kcp.io", "synctargets", "root:a", true, false),
            ("workload.kcp.io", "synctargets", "root", false, false),
            ("edge.kcp.io", "edgeplacements", "root", false, false),
            ("edge.kcp.io", "syncerconfigs", "root", false, true),
            ("edge.selvedge.dev", "statuscollectors", "root", true, true),
            ("edge.selvedge.dev", "offlinewrites", "root", false, true),
            ("edge.selvedge.dev", "offlinewrites", "root:a", true, false),
        ] {
            assert_eq!(find(cluster, provides, group, resource).is_some(), there, "{resource} in {cluster}");
        }
        let offered: Vec<&str> = offered().map(|(_, name, _)| name).collect();
        assert_eq!(
            offered,
            [
                "synctargets.workload.kcp.io",
                "locations.scheduling.kcp.io",
                "edgeplacements.edge.kcp.io",
                "singleplacementslices.edge.kcp.io",
                "customizers.edge.kcp.io",
                "syncerconfigs.edge.kcp.io",
                "statuscollectors.edge.selvedge.dev",
                "combinedstatuses.edge.selvedge.dev"
            ]
        );
        assert_eq!(bound("edge.kcp.io", "customizers").len(), 1);
        assert!(
            bound("edge.selvedge.dev", "offlinewrites").is_empty() && bound("example.io", "customizers").is_empty()
        );
        let told = unbound("root:a", "workload.kcp.io", "synctargets").unwrap();
        assert!(told.message.contains("bind the APIExport workload.kcp.io of root:espw"), "{}", told.message);
        assert!(unbound("root:a", "workload.kcp.io", "others").is_none());
        assert!(unbound("root:a", "example.io", "synctargets").is_none());
        assert!(unbound("root", "workload.kcp.io", "synctargets").is_none(), "an edge");
    }

    #[test]
    fn what_only_the_server_writes() {
        for (resource, theirs) in [("offlinewrites", false), ("combinedstatuses", false), ("statuscollectors", true)] {
            let kind = find("root", true, "edge.selvedge.dev", resource).unwrap();
            for (verb, can) in [("get", true), ("watch", true), ("delete", true), ("create", theirs), ("patch", theirs)]
            {
                assert_eq!(kind.resource.can(verb), can, "{verb} {resource}");
            }
        }
    }

    #[test]
    fn names_that_are_taken_stay_taken() {
        let mut crd = json!({"metadata": {"name": "apiexports.apis.kcp.io"}, "spec": {"group": "apis.kcp.io",
            "names": {"plural": "apiexports", "kind": "APIExport", "singular": "apiexport", "listKind": "APIExportList"}}});
        rules::crd::accept(&mut crd, &names("apis.kcp.io"), "2026-01-01T00:00:00Z");
        let conditions = crd["status"]["conditions"].as_array().unwrap();
        assert!(conditions.iter().all(|c| c["status"] == "False"), "{conditions:?}");
        assert!(names("example.io").is_empty());
    }
}
