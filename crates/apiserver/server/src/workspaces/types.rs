//! What a workspace gets by its type: who may be whose child, labels, bindings, limits. Pure.

use std::collections::BTreeMap;

use request::ROOT;
use serde_json::{Value, json};

use super::{light, path};
use crate::kinds::system::PROVIDER;

/// Types extend others at most so deep, and as many.
const MOST: usize = 16;
/// Types of `root` that everybody may use.
const FOR_ALL: [&str; 4] = ["root", "organization", "team", "universal"];

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reference {
    pub path: String,
    pub name: String,
}

impl Reference {
    pub fn new(path: &str, name: &str) -> Self {
        Self { path: path.to_owned(), name: name.to_owned() }
    }

    /// `{name, path}`; a path that is not said is the empty one.
    pub fn of(value: &Value) -> Option<Self> {
        let text = |field: &str| value[field].as_str().unwrap_or_default().to_owned();
        let reference = Self { path: text("path"), name: text("name") };
        (!reference.name.is_empty()).then_some(reference)
    }

    /// Where the type lies in its collection.
    pub fn key(&self) -> String {
        format!("{}//{}", self.path, self.name)
    }

    pub fn value(&self) -> Value {
        json!({"name": self.name, "path": self.path})
    }

    /// Everybody may use it, and extend it.
    pub fn is_for_all(&self) -> bool {
        self.path == ROOT && FOR_ALL.contains(&self.name.as_str())
    }
}

impl std::fmt::Display for Reference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.path, self.name)
    }
}

/// A WorkspaceType.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Type {
    pub reference: Reference,
    pub extends: Vec<Reference>,
    pub default_child: Option<Reference>,
    /// `None`: any.
    pub parents: Option<Vec<Reference>>,
    pub children: Option<Vec<Reference>>,
    /// Path and name of exports.
    pub bindings: Vec<(String, String)>,
    pub labels: BTreeMap<String, String>,
    pub initializer: bool,
}

impl Type {
    pub fn of(reference: Reference, value: &Value) -> Self {
        let spec = &value["spec"];
        let home = reference.path.clone();
        let at_home = move |value: &Value| {
            let mut found = Reference::of(value)?;
            if found.path.is_empty() {
                found.path.clone_from(&home);
            }
            Some(found)
        };
        let list = |value: &Value| value.as_array().into_iter().flatten().filter_map(&at_home).collect::<Vec<_>>();
        let allowed = |value: &Value| match value {
            Value::Object(limit) if limit.get("none") == Some(&Value::Bool(true)) => Some(Vec::new()),
            Value::Object(limit) => limit.get("types").map(&list),
            _ => None,
        };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let bindings = spec["defaultAPIBindings"].as_array().into_iter().flatten();
        let labels = spec["additionalWorkspaceLabels"].as_object().into_iter().flatten();
        Self {
            extends: list(&spec["extend"]["with"]),
            default_child: at_home(&spec["defaultChildWorkspaceType"]),
            parents: allowed(&spec["limitAllowedParents"]),
            children: allowed(&spec["limitAllowedChildren"]),
            bindings: bindings.map(|b| (text(&b["path"]), text(&b["export"]))).filter(|(_, e)| !e.is_empty()).collect(),
            labels: labels.map(|(key, value)| (key.clone(), text(value))).collect(),
            initializer: spec["initializer"] == true,
            reference,
        }
    }

    /// What it extends of other workspaces.
    pub fn borrowed(&self) -> impl Iterator<Item = &Reference> {
        let own = &self.reference.path;
        self.extends.iter().filter(move |extended| own != ROOT && *own != extended.path && !extended.is_for_all())
    }
}

/// A type with all that it extends, itself first.
#[derive(Clone, Debug, Default)]
pub struct Resolved(pub Vec<Type>);

impl Resolved {
    pub fn new(reference: &Reference, find: impl Fn(&Reference) -> Option<Type>) -> Option<Self> {
        let mut all = vec![find(reference)?];
        let mut next = 0;
        while let Some(one) = all.get(next) {
            for extended in one.extends.clone() {
                let known = all.iter().any(|t| t.reference == extended);
                if !known
                    && all.len() < MOST
                    && let Some(found) = find(&extended)
                {
                    all.push(found);
                }
            }
            next += 1;
        }
        Some(Self(all))
    }

    fn is(&self, any: &[Reference]) -> bool {
        self.0.iter().any(|t| any.contains(&t.reference))
    }

    pub fn reference(&self) -> Reference {
        self.0.first().map(|t| t.reference.clone()).unwrap_or_default()
    }

    pub fn default_child(&self) -> Reference {
        let said = self.0.iter().find_map(|t| t.default_child.clone());
        said.unwrap_or_else(|| Reference::new(ROOT, "universal"))
    }

    pub fn labels(&self) -> BTreeMap<String, String> {
        // The type's own come last, over those of what it extends.
        self.0.iter().rev().flat_map(|t| t.labels.clone()).collect()
    }

    /// What is bound in a new workspace, by path and name of the export. Who uses a type need not be allowed to bind it, so
    /// only who decides about the export or about everything may have put it there.
    pub fn bindings(&self) -> Vec<(String, String)> {
        self.bindings_by(|of, home| of == ROOT || of == home)
    }

    /// What else the type names: what nobody asked has let it.
    pub fn foreign_bindings(&self) -> Vec<(String, String)> {
        let (all, good) = (self.bindings_by(|_, _| true), self.bindings());
        all.into_iter().filter(|one| !good.contains(one)).collect()
    }

    fn bindings_by(&self, decides: impl Fn(&str, &str) -> bool) -> Vec<(String, String)> {
        let mut all: Vec<(String, String)> = Vec::new();
        for one in &self.0 {
            for (home, export) in one.bindings.iter().filter(|(home, _)| decides(&one.reference.path, home)) {
                let binding = (home.clone(), export.clone());
                if !all.contains(&binding) {
                    all.push(binding);
                }
            }
        }
        all
    }

    /// The types of other workspaces that the type extends, unless it is in `root`. Users of the type need the right to
    /// use these as well, as they may bring what not everybody may bind.
    pub fn borrowed(&self) -> Vec<&Reference> {
        self.0.iter().flat_map(Type::borrowed).collect()
    }

    /// Who must say that a new workspace is complete, as kcp names them: `root:mine`.
    pub fn initializers(&self) -> Vec<String> {
        self.0.iter().filter(|t| t.initializer).map(|t| t.reference.to_string()).collect()
    }

    /// May a workspace of this type be made in one of the type `parent`?
    pub fn check_parent(&self, parent: &Self) -> Result<(), String> {
        for one in &self.0 {
            if let Some(allowed) = &one.parents
                && !parent.is(allowed)
            {
                return Err(format!(
                    "workspaces of type {} cannot be in one of type {}",
                    one.reference,
                    parent.reference()
                ));
            }
        }
        for one in &parent.0 {
            if let Some(allowed) = &one.children
                && !self.is(allowed)
            {
                return Err(format!("workspaces of type {} hold none of type {}", one.reference, self.reference()));
            }
        }
        Ok(())
    }
}

/// Where a type is looked for that is named without a path: where the workspace is made, then upwards.
pub fn upwards(from: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(from), |at| path::parent(at))
}

/// The types that `root` has from the start.
pub fn system_types() -> Vec<Value> {
    let reference = |name: &str| json!({"name": name, "path": ROOT});
    let parents = |names: &[&str]| json!({"types": names.iter().map(|n| reference(n)).collect::<Vec<_>>()});
    let universal = reference("universal");
    let one = |name: &str, spec: Value| json!({"metadata": {"name": name}, "spec": spec});
    vec![
        one("root", json!({"limitAllowedParents": {"none": true}, "defaultChildWorkspaceType": universal})),
        one("organization", json!({"limitAllowedParents": parents(&["root"]), "defaultChildWorkspaceType": universal})),
        one(
            "team",
            json!({"limitAllowedParents": parents(&["organization", "team"]), "defaultChildWorkspaceType": universal}),
        ),
        one("universal", json!({"defaultChildWorkspaceType": universal})),
    ]
}

/// Those that a center has besides, for placement: inventory holds edges, workload what is placed on them. Nobody makes a mailbox but the
/// center.
pub fn placement_types() -> Vec<Value> {
    let bindings = |groups: &[&str]| -> Vec<Value> {
        groups.iter().map(|group| json!({"path": PROVIDER, "export": group})).collect()
    };
    let child = json!({"name": "universal", "path": ROOT});
    let one = |name: &str, groups: &[&str]| {
        json!({"metadata": {"name": name},
            "spec": {"defaultChildWorkspaceType": child, "defaultAPIBindings": bindings(groups)}})
    };
    vec![
        one("inventory", &["workload.kcp.io", "scheduling.kcp.io"]),
        one("workload", &["edge.kcp.io", "edge.selvedge.dev"]),
        json!({"metadata": {"name": light::TYPE},
            "spec": {"limitAllowedParents": {"none": true}, "limitAllowedChildren": {"none": true}}}),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(name: &str, more: &[Value]) -> Option<Resolved> {
        let all: Vec<Value> = system_types().into_iter().chain(placement_types()).chain(more.iter().cloned()).collect();
        Resolved::new(&Reference::new(ROOT, name), |r| {
            let found = all.iter().find(|t| r.path == ROOT && t["metadata"]["name"] == r.name.as_str())?;
            Some(Type::of(r.clone(), found))
        })
    }

    #[test]
    fn who_may_be_whose_child() {
        for (parent, child, fine) in [
            ("root", "organization", true),
            ("root", "universal", true),
            ("root", "team", false),
            ("root", "root", false),
            ("organization", "team", true),
            ("team", "team", true),
            ("universal", "organization", false),
            ("universal", "universal", true),
            ("root", "inventory", true),
            ("organization", "workload", true),
            ("root", "mailbox", false),
            ("mailbox", "universal", false),
        ] {
            let (parent_type, child_type) = (resolve(parent, &[]).unwrap(), resolve(child, &[]).unwrap());
            assert_eq!(child_type.check_parent(&parent_type).is_ok(), fine, "{child} in {parent}");
        }
        let closed = json!({"metadata": {"name": "closed"}, "spec": {"limitAllowedChildren": {"none": true}}});
        let (closed, universal) = (resolve("closed", &[closed]).unwrap(), resolve("universal", &[]).unwrap());
        assert_eq!(
            universal.check_parent(&closed).unwrap_err(),
            "workspaces of type root:closed hold none of type root:universal"
        );
    }

    #[test]
    fn types_extend_others() {
        let base = json!({"metadata": {"name": "base"}, "spec": {"initializer": true, "extend": {"with": [{"name": "mine"}]},
            "additionalWorkspaceLabels": {"a": "base", "b": "base"}, "limitAllowedParents": {"types": [{"name": "root"}]},
            "defaultAPIBindings": [{"path": "root:x", "export": "e"}]}});
        let mine = json!({"metadata": {"name": "mine"}, "spec": {"extend": {"with": [{"name": "base"}, {"name": "nowhere"}]},
            "additionalWorkspaceLabels": {"a": "mine"}, "defaultChildWorkspaceType": {"name": "team"},
            "defaultAPIBindings": [{"path": "root:x", "export": "e"}, {"path": "root:y", "export": "f"}]}});
        let mine = resolve("mine", &[base, mine]).unwrap();
        assert_eq!(mine.0.len(), 2, "going round in circles ends");
        assert_eq!(mine.labels(), BTreeMap::from([("a".into(), "mine".into()), ("b".into(), "base".into())]));
        assert_eq!((mine.bindings().len(), mine.foreign_bindings().len()), (2, 0));
        let elsewhere = |home: &str| {
            let value = json!({"spec": {"defaultAPIBindings": [{"path": "root:b", "export": "e"}]}});
            Resolved(vec![Type::of(Reference::new(home, "t"), &value)])
        };
        assert_eq!(elsewhere("root:a").foreign_bindings(), [("root:b".to_owned(), "e".to_owned())]);
        assert!(elsewhere("root:a").bindings().is_empty() && elsewhere("root:b").foreign_bindings().is_empty());
        let extending = |home: &str, path: &str, name: &str| {
            let value = json!({"spec": {"extend": {"with": [{"path": path, "name": name}]}}});
            Resolved(vec![Type::of(Reference::new(home, "t"), &value)]).borrowed().len()
        };
        assert_eq!((extending("root:a", ROOT, "workload"), extending("root:a", "root:b", "t")), (1, 1));
        assert_eq!((extending("root:a", ROOT, "universal"), extending("root:a", "root:a", "u")), (0, 0));
        assert_eq!((extending("root:a", "", "u"), extending(ROOT, "root:b", "t")), (0, 0));
        assert_eq!(mine.initializers(), ["root:base"]);
        assert_eq!(mine.default_child(), Reference::new(ROOT, "team"));
        assert!(mine.check_parent(&resolve("universal", &[]).unwrap()).is_err(), "what it extends limits it too");
        assert!(resolve("none", &[]).is_none());
        assert_eq!(upwards("root:a:b").collect::<Vec<_>>(), ["root:a:b", "root:a", "root"]);
    }
}
