//! One discovery document of what is served here and what remote servers serve. Pure.

use serde_json::{Value, json};

use super::local;

/// One remote group version as discovery shows it.
#[derive(Clone, Debug)]
pub struct Shown {
    pub group: Box<str>,
    pub version: Box<str>,
    pub group_priority: i64,
    pub version_priority: i64,
    /// In the form of aggregated discovery.
    pub resources: Vec<Value>,
    /// The remote server can be asked now.
    pub is_fresh: bool,
}

/// How a document writes groups and versions.
struct Form {
    name: fn(&Value) -> &str,
    group: fn(&str) -> Value,
    version: fn(&Shown) -> Value,
}

const PLAIN: Form = Form {
    name: |group| group["name"].as_str().unwrap_or_default(),
    group: |name| json!({"name": name, "versions": []}),
    version: |one| json!({"groupVersion": format!("{}/{}", one.group, one.version), "version": one.version}),
};

const AGGREGATED: Form = Form {
    name: |group| group["metadata"]["name"].as_str().unwrap_or_default(),
    group: |name| json!({"metadata": {"name": name}, "versions": []}),
    version: |one| {
        let freshness = if one.is_fresh { "Current" } else { "Stale" };
        json!({"version": one.version, "resources": one.resources, "freshness": freshness})
    },
};

/// Adds remote groups to an APIGroupList.
pub fn group_list(document: &mut Value, remotes: &[Shown]) {
    if let Some(groups) = document["groups"].as_array_mut() {
        merge(groups, remotes, &PLAIN);
        groups.iter_mut().for_each(prefer_first);
    }
}

/// Adds remote versions to an APIGroup, or makes one of them.
pub fn group(document: Option<Value>, name: &str, remotes: &[Shown]) -> Option<Value> {
    let remotes: Vec<Shown> = remotes.iter().filter(|one| *one.group == *name).cloned().collect();
    if remotes.is_empty() {
        return document;
    }
    let mut groups: Vec<Value> = document.into_iter().collect();
    merge(&mut groups, &remotes, &PLAIN);
    let mut group = groups.pop()?;
    prefer_first(&mut group);
    group["kind"] = "APIGroup".into();
    group["apiVersion"] = "v1".into();
    Some(group)
}

/// Adds remote groups to an APIGroupDiscoveryList.
pub fn aggregated(document: &mut Value, remotes: &[Shown]) {
    if let Some(items) = document["items"].as_array_mut() {
        merge(items, remotes, &AGGREGATED);
    }
}

fn prefer_first(group: &mut Value) {
    group["preferredVersion"] = group["versions"][0].clone();
}

/// Groups with a higher priority come first, and in them versions with a higher one.
fn merge(groups: &mut Vec<Value>, remotes: &[Shown], form: &Form) {
    let mut names: Vec<&str> = remotes.iter().map(|one| &*one.group).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        let mine: Vec<&Shown> = remotes.iter().filter(|one| *one.group == *name).collect();
        let known = groups.iter().position(|group| (form.name)(group) == name);
        let mut group = known.map_or_else(|| (form.group)(name), |at| groups.remove(at));
        let mut versions = group["versions"].take().as_array().cloned().unwrap_or_default();
        versions.extend(mine.iter().map(|one| (form.version)(one)));
        let version = |one: &Value| one["version"].as_str().unwrap_or_default().to_owned();
        versions.sort_by_cached_key(|one| {
            let remote = mine.iter().find(|known| *known.version == *version(one));
            let priority = remote.map_or_else(|| local::priority(name, &version(one)).1, |one| one.version_priority);
            (-priority, Ranked(version(one)))
        });
        let rank = |group: &Value| {
            let name = (form.name)(group);
            let versions = group["versions"].as_array().into_iter().flatten();
            let priority = |one: &Value| {
                let version = one["version"].as_str().unwrap_or_default();
                let remote = remotes.iter().find(|known| *known.group == *name && *known.version == *version);
                remote.map_or_else(|| local::priority(name, version).0, |remote| remote.group_priority)
            };
            versions.map(priority).max().unwrap_or_default()
        };
        group["versions"] = versions.into();
        let mine = rank(&group);
        let at = groups.iter().position(|other| rank(other) < mine).unwrap_or(groups.len());
        groups.insert(at, group);
    }
}

/// Versions in Kubernetes' order.
#[derive(PartialEq, Eq)]
struct Ranked(String);

impl Ord for Ranked {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        rules::crd::compare_versions(&self.0, &other.0)
    }
}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(group: &str, version: &str, priorities: (i64, i64), is_fresh: bool) -> Shown {
        let resources = vec![json!({"resource": "things"})];
        let (group_priority, version_priority) = priorities;
        Shown { group: group.into(), version: version.into(), group_priority, version_priority, resources, is_fresh }
    }

    #[test]
    fn priorities_decide_the_order() {
        let group =
            |name: &str| json!({"name": name, "versions": [{"groupVersion": format!("{name}/v1"), "version": "v1"}]});
        let mut list = json!({"groups": [group("apps"), group("custom.example.com")]});
        let remotes = [
            shown("metrics.k8s.io", "v1beta1", (100, 100), true),
            shown("wardle.example.com", "v1beta1", (2000, 200), true),
            shown("wardle.example.com", "v1alpha1", (2000, 300), false),
            shown("custom.example.com", "v2", (100, 200), true),
        ];
        group_list(&mut list, &remotes);
        let names: Vec<&str> = list["groups"].as_array().unwrap().iter().map(PLAIN.name).collect();
        assert_eq!(names, ["apps", "wardle.example.com", "custom.example.com", "metrics.k8s.io"]);
        assert_eq!(list["groups"][1]["preferredVersion"]["version"], "v1alpha1", "by priority, not by name");
        assert_eq!(list["groups"][2]["versions"][0]["version"], "v2");
        let found = super::group(None, "metrics.k8s.io", &remotes).unwrap();
        assert_eq!((&found["kind"], &found["preferredVersion"]["version"]), (&json!("APIGroup"), &json!("v1beta1")));
        assert!(super::group(None, "other", &remotes).is_none());
        let mut all = json!({"items": [{"metadata": {"name": "apps"}, "versions": [{"version": "v1"}]}]});
        aggregated(&mut all, &remotes);
        let wardle = &all["items"][1];
        assert_eq!(wardle["metadata"]["name"], "wardle.example.com");
        let freshness = |at: usize| wardle["versions"][at]["freshness"].as_str().unwrap().to_owned();
        assert_eq!((freshness(0), freshness(1)), ("Stale".into(), "Current".into()));
    }
}
