//! Discovery: which groups, versions and resources there are, in the plain and in the aggregated form. Pure.

use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use serde_json::{Value, json};

use crate::kinds::Kind;

pub const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Groups in order, each with its versions in order of preference.
pub fn groups(kinds: &[Arc<Kind>]) -> Vec<(String, Vec<String>)> {
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    for kind in kinds {
        let (group, version) = (kind.group(), &*kind.resource.version);
        let at = match groups.iter().position(|(g, _)| g == group) {
            Some(at) => at,
            None => {
                groups.push((group.to_owned(), Vec::new()));
                groups.len() - 1
            }
        };
        if !groups[at].1.iter().any(|v| v == version) {
            groups[at].1.push(version.to_owned());
        }
    }
    for (group, versions) in &mut groups {
        if !schema::catalogue::builtin().iter().any(|r| *r.group == **group) {
            versions.sort_by(|a, b| rules::crd::compare_versions(a, b));
        }
    }
    groups
}

/// `/api`
pub fn core_versions(address: &str) -> Value {
    json!({"kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]})
}

/// `/apis`
pub fn group_list(kinds: &[Arc<Kind>]) -> Value {
    let groups: Vec<Value> = groups(kinds)
        .iter()
        .filter(|(group, _)| !group.is_empty())
        .map(|(group, versions)| bare_group(group, versions))
        .collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

fn bare_group(group: &str, versions: &[String]) -> Value {
    let version = |v: &String| json!({"groupVersion": format!("{group}/{v}"), "version": v});
    json!({"name": group, "versions": versions.iter().map(version).collect::<Vec<_>>(),
        "preferredVersion": versions.first().map(version)})
}

/// `/apis/<group>`
pub fn group(kinds: &[Arc<Kind>], name: &str) -> Option<Value> {
    let groups = groups(kinds);
    let (name, versions) = groups.iter().find(|(g, _)| g == name)?;
    let mut group = bare_group(name, versions);
    group["kind"] = "APIGroup".into();
    group["apiVersion"] = "v1".into();
    Some(group)
}

/// `/api/v1`, `/apis/<group>/<version>`
pub fn resource_list(kinds: &[Arc<Kind>], group: &str, version: &str) -> Option<Value> {
    let mut resources = Vec::new();
    for kind in of(kinds, group, version) {
        let r = &kind.resource;
        let mut entry = json!({"name": r.resource, "singularName": r.singular, "namespaced": r.namespaced,
            "kind": r.kind, "verbs": r.verbs});
        // What cannot be watched is not stored.
        if r.verbs.iter().any(|verb| &**verb == "watch") {
            entry["storageVersionHash"] = storage_hash(&kind.stored_group, &kind.stored_version, &r.kind).into();
        }
        for (field, list) in [("shortNames", &r.short_names), ("categories", &r.categories)] {
            if !list.is_empty() {
                entry[field] = json!(list);
            }
        }
        resources.push(entry);
        for s in &r.subresources {
            let mut entry = json!({"name": format!("{}/{}", r.resource, s.name), "singularName": "",
                "namespaced": r.namespaced, "kind": s.kind, "verbs": s.verbs});
            if !s.version.is_empty() && (s.group != r.group || s.version != r.version) {
                entry["group"] = json!(s.group);
                entry["version"] = json!(s.version);
            }
            resources.push(entry);
        }
    }
    if resources.is_empty() {
        return None;
    }
    let group_version = schema::catalogue::api_version(group, version);
    Some(json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources}))
}

/// `/api` and `/apis` as one document each.
pub fn aggregated(kinds: &[Arc<Kind>], core: bool) -> Value {
    let items: Vec<Value> = groups(kinds)
        .iter()
        .filter(|(group, _)| group.is_empty() == core)
        .map(|(group, versions)| {
            let versions: Vec<Value> = versions
                .iter()
                .map(|version| {
                    let resources: Vec<Value> = of(kinds, group, version).map(aggregated_resource).collect();
                    json!({"version": version, "resources": resources, "freshness": "Current"})
                })
                .collect();
            let metadata = if group.is_empty() { json!({}) } else { json!({"name": group}) };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items})
}

fn aggregated_resource(kind: &Arc<Kind>) -> Value {
    let r = &kind.resource;
    // Built-in kinds leave out what is the same as the group and version above them.
    let own = if kind.custom.is_some() { (&*r.group, &*r.version) } else { ("", "") };
    let mut entry = json!({"resource": r.resource, "singularResource": r.singular, "verbs": r.verbs,
        "responseKind": {"group": own.0, "version": own.1, "kind": r.kind},
        "scope": if r.namespaced { "Namespaced" } else { "Cluster" }});
    for (field, list) in [("shortNames", &r.short_names), ("categories", &r.categories)] {
        if !list.is_empty() {
            entry[field] = json!(list);
        }
    }
    if !r.subresources.is_empty() {
        let subresource = |s: &schema::catalogue::Subresource| {
            let same = s.version.is_empty() || (s.group == r.group && s.version == r.version);
            let (group, version) = if same { own } else { (&*s.group, &*s.version) };
            json!({"subresource": s.name, "verbs": s.verbs,
                "responseKind": {"group": group, "version": version, "kind": s.kind}})
        };
        entry["subresources"] = r.subresources.iter().map(subresource).collect();
    }
    entry
}

fn of<'a>(kinds: &'a [Arc<Kind>], group: &'a str, version: &'a str) -> impl Iterator<Item = &'a Arc<Kind>> {
    kinds.iter().filter(move |k| k.group() == group && &*k.resource.version == version)
}

/// Upstream's name for what an object is stored as; a client that remembers it sees when stored objects need a rewrite.
fn storage_hash(group: &str, version: &str, kind: &str) -> String {
    use base64::Engine;
    let hash = digest(&SHA256, format!("{group}/{version}/{kind}").as_bytes());
    base64::engine::general_purpose::STANDARD.encode(&hash.as_ref()[..8])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn storage_hashes_are_those_that_clients_know() {
        assert_eq!(storage_hash("apps", "v1", "Deployment"), "8aSe+NMegvE=");
        assert_eq!(storage_hash("", "v1", "Pod"), "xPOwRZ+Yhw8=");
    }
}
