//! What EdgePlacements, Locations and SyncTargets say to the scheduler and to the projection, read from the objects. Pure.
//!
//! What cannot be understood selects nothing: an object that validation let through in another time must not send things about.

use std::sync::Arc;

use schema::selector::LabelSelector;
use serde_json::{Value, json};

pub const PLACEMENTS: &str = "edge.kcp.io/edgeplacements";
pub const SLICES: &str = "edge.kcp.io/singleplacementslices";
pub const CUSTOMIZERS: &str = "edge.kcp.io/customizers";
pub const LOCATIONS: &str = "scheduling.kcp.io/locations";
pub const TARGETS: &str = "workload.kcp.io/synctargets";

/// What `spec.removal` says if removals are intended.
const REMOVAL_ALLOW: &str = "Allow";

/// Stands for everything, wherever names are listed.
const ALL: &str = "*";

/// Labels or annotations. There are as many of them as there are edges, so they are packed, and shared by whoever has a use for them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels(Option<Arc<[Pair]>>);

type Pair = (Box<str>, Box<str>);

impl Labels {
    pub fn get(&self, key: &str) -> Option<&str> {
        let all = self.0.as_deref()?;
        let at = all.binary_search_by(|(name, _)| (**name).cmp(key)).ok()?;
        all.get(at).map(|(_, value)| &**value)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.as_deref().unwrap_or_default().iter().map(|(name, value)| (&**name, &**value))
    }
}

/// Selectors of which one has to match, shared likewise.
pub type Selectors = Arc<[LabelSelector]>;

/// What kubectl remembers of an object stands for nothing.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// An EdgePlacement.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Placement {
    pub uid: Box<str>,
    /// When it was made, as text that sorts. The older of two wins.
    pub created: Box<str>,
    pub locations: Selectors,
    /// The same as it was written, as JSON.
    pub reach: Box<str>,
    pub namespaces: Option<LabelSelector>,
    pub others: Vec<Others>,
    pub upsync: Vec<Value>,
    /// What comes to be on the edge because of a placed object is reported too.
    pub associated: bool,
    pub create_only: bool,
    pub orphan: bool,
    /// The owner states that what this placement takes away from edges is intended: the deletion fuse does not hold it.
    pub allow_removal: bool,
    /// The plain set of a workspace: all of it, to the edges that name it.
    pub everything: bool,
}

/// Cluster-scoped objects: of this group and one of these kinds, and one of these names or matched by a selector.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Others {
    pub group: String,
    pub resources: Vec<String>,
    pub names: Vec<String>,
    pub selectors: Vec<LabelSelector>,
}

impl Placement {
    /// What a SyncTarget asks for by naming a workspace. It was there before placements were, so it is older than all.
    pub fn everything() -> Self {
        Self {
            namespaces: Some(LabelSelector::everything()),
            others: vec![Others {
                group: ALL.to_owned(),
                resources: vec![ALL.to_owned()],
                names: vec![ALL.to_owned()],
                selectors: Vec::new(),
            }],
            everything: true,
            ..Self::default()
        }
    }

    /// `None` for one that is being deleted: what it placed goes.
    pub fn read(value: &Value) -> Option<Self> {
        let (metadata, spec) = (living(value)?, &value["spec"]);
        let flag = |name: &str| spec[name] == true;
        let others = |one: &Value| Others {
            group: text(&one["apiGroup"]).to_owned(),
            resources: strings(&one["resources"]),
            names: strings(&one["resourceNames"]),
            selectors: items(&one["labelSelectors"]).map(selector).collect(),
        };
        Some(Self {
            uid: text(&metadata["uid"]).into(),
            created: text(&metadata["creationTimestamp"]).into(),
            locations: items(&spec["locationSelectors"]).map(selector).collect(),
            reach: spec.get("locationSelectors").map_or_else(|| "[]".into(), |all| all.to_string().into()),
            namespaces: spec.get("namespaceSelector").filter(|one| one.is_object()).map(selector),
            others: items(&spec["nonNamespacedObjects"]).map(others).collect(),
            upsync: items(&spec["upsync"]).map(upsync).collect(),
            associated: flag("returnAssociated"),
            create_only: flag("createOnly"),
            orphan: flag("orphanOnDelete"),
            allow_removal: spec["removal"] == REMOVAL_ALLOW,
            everything: false,
        })
    }

    /// Whether what is in a Namespace with these labels goes.
    pub fn takes_namespace(&self, labels: &Labels) -> bool {
        self.namespaces.as_ref().is_some_and(|selector| matches(selector, labels))
    }

    /// Whether a cluster-scoped object goes for its own sake.
    pub fn takes_other(&self, collection: &str, name: &str, labels: &Labels) -> bool {
        let (group, resource) = collection.split_once('/').unwrap_or_default();
        let group = if group == "core" { "" } else { group };
        self.others.iter().any(|one| {
            (one.group == ALL || one.group == group)
                && lists(&one.resources, resource)
                && (lists(&one.names, name) || one.selectors.iter().any(|selector| matches(selector, labels)))
        })
    }
}

/// A Location.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Location {
    pub labels: Labels,
    pub annotations: Labels,
    /// Which SyncTargets of its workspace it stands for.
    pub instances: Selectors,
    /// Workspaces that may place what concerns the whole edge, besides its own.
    pub trusted: Arc<[Box<str>]>,
}

impl Location {
    pub fn read(value: &Value) -> Option<Self> {
        let (metadata, spec) = (living(value)?, &value["spec"]);
        let resource = text(&spec["resource"]["resource"]);
        let instances = spec.get("instanceSelector").filter(|one| one.is_object()).map(selector);
        Some(Self {
            labels: map(&metadata["labels"]),
            annotations: map(&metadata["annotations"]),
            instances: instances.filter(|_| matches!(resource, "" | "synctargets")).into_iter().collect(),
            trusted: strings(&spec["trustedWorkspaces"]).into_iter().map(Into::into).collect(),
        })
    }

    /// Whether what a workspace places by it may concern the whole edge. `root:org` is that workspace, `root:org:*` all that are inside
    /// it, `*` everybody who can place here.
    pub fn trusts(&self, workspace: &str) -> bool {
        self.trusted.iter().any(|one| match one.strip_suffix('*') {
            Some("") => true,
            Some(inside) => inside.ends_with(':') && workspace.starts_with(inside),
            None => **one == *workspace,
        })
    }

    /// What a parameter is on it.
    pub fn parameter(&self, key: &str) -> Option<&str> {
        self.labels.get(key).or_else(|| self.annotations.get(key))
    }
}

/// A SyncTarget, as the scheduler sees it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Instance {
    pub uid: Box<str>,
    pub labels: Labels,
    pub unschedulable: bool,
    /// From then on nothing is placed there, and what was placed is taken away. Seconds since 1970.
    pub evict_after: Option<i64>,
    /// Its edge is connected and does what it is told.
    pub ready: bool,
    /// An edge has joined, so it may hold something.
    pub joined: bool,
    /// The workspace whose plain set it asks for, and may have.
    pub workspace: Option<Box<str>>,
}

pub(crate) fn matches(selector: &LabelSelector, labels: &Labels) -> bool {
    selector.matches(|key| labels.get(key))
}

/// Metadata of an object that is not being deleted.
fn living(value: &Value) -> Option<&Value> {
    let metadata = value.get("metadata").filter(|metadata| metadata.is_object())?;
    metadata.get("deletionTimestamp").is_none().then_some(metadata)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn strings(value: &Value) -> Vec<String> {
    items(value).filter_map(Value::as_str).map(str::to_owned).collect()
}

fn selector(value: &Value) -> LabelSelector {
    LabelSelector::from_value(value).unwrap_or_else(|_| LabelSelector::nothing())
}

fn lists(names: &[String], name: &str) -> bool {
    names.iter().any(|one| one == ALL || one == name)
}

/// The same set written in another order is the same.
fn upsync(value: &Value) -> Value {
    let sorted = |name: &str| {
        let mut names = strings(&value[name]);
        names.sort();
        names.dedup();
        names
    };
    json!({"apiGroup": text(&value["apiGroup"]), "resources": sorted("resources"),
        "namespaces": sorted("namespaces"), "names": sorted("names")})
}

pub fn map(value: &Value) -> Labels {
    let pairs = value.as_object().into_iter().flatten().filter(|(key, _)| *key != LAST_APPLIED);
    let mut pairs: Vec<Pair> =
        pairs.filter_map(|(key, value)| Some((key.as_str().into(), value.as_str()?.into()))).collect();
    pairs.sort();
    Labels((!pairs.is_empty()).then(|| pairs.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        map(&pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), json!(value)))
            .collect::<serde_json::Map<_, _>>()
            .into())
    }

    #[test]
    fn placements_are_read() {
        let value = json!({"metadata": {"uid": "u", "creationTimestamp": "t"}, "spec": {
            "locationSelectors": [{"matchLabels": {"env": "prod"}}],
            "namespaceSelector": {"matchLabels": {"common": "si"}},
            "nonNamespacedObjects": [
                {"apiGroup": "", "resources": ["namespaces"], "resourceNames": ["shop"]},
                {"apiGroup": "rbac.authorization.k8s.io", "resources": ["*"], "labelSelectors": [{"matchLabels": {"a": "b"}}]},
                {"apiGroup": "x", "resources": [], "resourceNames": ["*"]}],
            "upsync": [{"apiGroup": "g", "resources": ["b", "a", "a"], "names": ["*"]}], "createOnly": true}});
        let read = Placement::read(&value).unwrap();
        assert!(read.takes_namespace(&labels(&[("common", "si")])) && !read.takes_namespace(&labels(&[])));
        for (collection, name, with, takes) in [
            ("core/namespaces", "shop", &[][..], true),
            ("core/namespaces", "bank", &[], false),
            ("apps/namespaces", "shop", &[], false),
            ("rbac.authorization.k8s.io/clusterroles", "r", &[("a", "b")], true),
            ("rbac.authorization.k8s.io/clusterroles", "r", &[("a", "c")], false),
            ("x/ys", "z", &[], false),
        ] {
            assert_eq!(read.takes_other(collection, name, &labels(with)), takes, "{collection} {name} {with:?}");
        }
        assert_eq!(read.upsync[0]["resources"], json!(["a", "b"]));
        assert_eq!((read.create_only, read.orphan, &*read.uid), (true, false, "u"));
        let all = Placement::everything();
        assert!(all.takes_other("a/b", "c", &labels(&[])) && all.takes_namespace(&labels(&[])));
    }

    #[test]
    fn locations_say_whom_they_trust() {
        let read = |list: Value| Location::read(&json!({"metadata": {}, "spec": {"trustedWorkspaces": list}})).unwrap();
        let some = read(json!(["root:shop", "root:org:*"]));
        for (workspace, trusted) in [
            ("root:shop", true),
            ("root:shop:inner", false),
            ("root:shopping", false),
            ("root:org", false),
            ("root:org:team", true),
            ("root:organism", false),
            ("root", false),
        ] {
            assert_eq!(some.trusts(workspace), trusted, "{workspace}");
        }
        assert!(read(json!(["*"])).trusts("root:any") && !read(json!(["root:an*"])).trusts("root:any"));
        assert!(!read(json!(null)).trusts("root") && !read(json!([])).trusts(""));
    }

    #[test]
    fn what_says_nothing_selects_nothing() {
        for broken in [json!(null), json!({}), json!({"metadata": {"deletionTimestamp": "t"}})] {
            assert_eq!(Placement::read(&broken), None);
            assert_eq!(Location::read(&broken), None);
        }
        let odd = json!({"metadata": {}, "spec": {"locationSelectors": [{"matchExpressions": [{"key": "a", "operator": "?"}]}],
            "nonNamespacedObjects": 7, "namespaceSelector": "x"}});
        let read = Placement::read(&odd).unwrap();
        assert!(read.locations[0].matches_nothing() && !read.takes_namespace(&labels(&[])));
        let empty = json!({"metadata": {}, "spec": {"namespaceSelector": {}}});
        assert!(Placement::read(&empty).unwrap().takes_namespace(&labels(&[])), "an empty selector selects all");
        assert!(Location::read(&json!({"metadata": {}})).unwrap().instances.is_empty());
        let other = json!({"metadata": {}, "spec": {"resource": {"resource": "clusters"}, "instanceSelector": {}}});
        assert!(Location::read(&other).unwrap().instances.is_empty(), "only SyncTargets are known here");
    }
}
