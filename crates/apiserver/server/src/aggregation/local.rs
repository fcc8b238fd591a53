//! Local APIServices: one for each group version that this server serves itself.
//!
//! The root workspace has them from the start. Another workspace gets them when somebody first asks for APIServices
//! there, so that workspaces in which nobody does stay small; from then on they are kept in step with its definitions
//! and bindings. What is served here stays so: an APIService of the same name that leads elsewhere is made local again.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use cache::object::Object;
use request::ROOT;
use schema::selector::scan;
use schema::status::Result;
use serde_json::{Value, json};

use super::COLLECTION;
use crate::{
    Server, controllers::authentication, discovery, internal::Internal, kinds::Kind, verbs::delete::Options,
    workspaces::wildcard::EVERYWHERE,
};

const GROUP: &str = "apiregistration.k8s.io";
const MANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";
const RETRY: Duration = Duration::from_secs(2);
/// Priorities of groups that definitions and bindings bring, and of groups that the table does not name.
const CUSTOM: (i64, i64) = (1000, 100);
const OTHER: (i64, i64) = (15000, 9);

/// Upstream's priorities of its groups, and of the versions in them.
pub fn priority(group: &str, version: &str) -> (i64, i64) {
    let of_group = match group {
        "" => return (18000, 1),
        "apps" => 17800,
        "events.k8s.io" => 17750,
        "authentication.k8s.io" => 17700,
        "authorization.k8s.io" => 17600,
        "autoscaling" => return (17500, if version == "v2" { 30 } else { 15 }),
        "batch" => 17400,
        "certificates.k8s.io" => 17300,
        "networking.k8s.io" => 17200,
        "policy" => 17100,
        "rbac.authorization.k8s.io" => 17000,
        "storage.k8s.io" => 16800,
        "admissionregistration.k8s.io" | "apiextensions.k8s.io" => 16700,
        "scheduling.k8s.io" => 16600,
        "coordination.k8s.io" => 16500,
        "node.k8s.io" => 16300,
        "discovery.k8s.io" => 16200,
        "resource.k8s.io" => return (16200, 21),
        "flowcontrol.apiserver.k8s.io" => return (16100, 21),
        // Served by the aggregator itself: it comes first in discovery.
        GROUP => 20000,
        _ if schema::catalogue::groups().iter().any(|known| *known.name == *group) => return OTHER,
        _ => return CUSTOM,
    };
    (of_group, if version == "v1" { 15 } else { 9 })
}

/// Whether this server made it.
pub fn is_managed(object: &Object) -> bool {
    scan::string_at(object.metadata(), &["labels", MANAGED]).is_some()
}

/// The APIServices of these kinds, by name.
fn wanted(kinds: &[Arc<Kind>]) -> BTreeMap<String, Value> {
    let mut wanted = BTreeMap::new();
    for (group, versions) in discovery::groups(kinds) {
        let is_builtin = schema::catalogue::groups().iter().any(|known| *known.name == *group);
        for version in versions.iter().filter(|_| group != GROUP) {
            let name = format!("{version}.{group}");
            let (of_group, of_version) = priority(&group, version);
            let managed = if is_builtin { "onstart" } else { "true" };
            let spec = json!({"group": group, "version": version, "groupPriorityMinimum": of_group,
                "versionPriority": of_version});
            let spec = without_empty_group(spec);
            wanted
                .insert(name.clone(), json!({"metadata": {"name": name, "labels": {MANAGED: managed}}, "spec": spec}));
        }
    }
    wanted
}

fn without_empty_group(mut spec: Value) -> Value {
    if let Some(fields) = spec.as_object_mut().filter(|fields| fields.get("group").is_some_and(|group| group == "")) {
        fields.remove("group");
    }
    spec
}

pub async fn run(server: Arc<Server>) {
    let aggregation = server.aggregation.clone();
    loop {
        let cluster = aggregation.locals.pop().await;
        if server.workspaces.is_leaving(&cluster) {
            continue;
        }
        match compare(&server, &cluster).await {
            Ok(()) if *cluster == *ROOT => aggregation.registered.store(true, Relaxed),
            Ok(()) => {}
            Err(error) => {
                tracing::warn!(%cluster, %error, "local APIServices could not be brought up to date; trying again");
                let again = aggregation.clone();
                aggregation.locals.again(cluster, move |key| again.locals.push(key), RETRY);
            }
        }
    }
}

/// Makes what is missing, makes local again what is served here, and removes what is not served any more.
async fn compare(server: &Arc<Server>, cluster: &str) -> Result<()> {
    let hand = Internal::new(server, cluster, "kube-aggregator");
    let kind = hand.kind(GROUP, "v1", "apiservices")?;
    let wanted = wanted(&server.kinds.plain(cluster));
    let missing: Vec<(&Arc<Kind>, &str, Value)> = wanted.values().map(|value| (&kind, "", value.clone())).collect();
    hand.make_missing(&missing).await?;
    let snapshot = server.cache.snapshot(COLLECTION);
    for object in snapshot.items.range(&format!("{cluster}//"), "") {
        match wanted.get(object.name()) {
            Some(want) => {
                let have = object.value();
                if have["spec"] != want["spec"] && object.acts_here() {
                    let edit = |value: &mut Value| {
                        value["spec"] = want["spec"].clone();
                        value["metadata"]["labels"][MANAGED] = want["metadata"]["labels"][MANAGED].clone();
                    };
                    hand.change(&kind, "", object.name(), "", edit).await?;
                    make_available(&hand, &kind, object.name()).await?;
                }
            }
            None if is_managed(object) => hand.delete(&kind, object, &Options::background()).await?,
            None => {}
        }
    }
    Ok(())
}

/// Says that a local API is there.
async fn make_available(hand: &Internal, kind: &Arc<Kind>, name: &str) -> Result<()> {
    let now = clock::now();
    let edit = |value: &mut Value| {
        super::check::set_available(value, "True", "Local", "Local APIServices are always available", &now);
    };
    hand.change(kind, "", name, "status", edit).await.map(drop)
}

/// Gives a workspace other than `root` its local APIServices, and what remote servers need to know of this one.
pub async fn furnish(server: &Arc<Server>, cluster: &str) -> Result<()> {
    let skipped = cluster == ROOT || cluster == EVERYWHERE || server.aggregation.is_furnished(cluster);
    if skipped || server.workspaces.is_leaving(cluster) || !server.workspaces.exists(cluster) {
        return Ok(());
    }
    compare(server, cluster).await?;
    let hand = Internal::new(server, cluster, "kube-aggregator");
    let namespaces = hand.kind("", "v1", "namespaces")?;
    hand.ensure(&namespaces, "", json!({"metadata": {"name": "kube-system"}})).await?;
    authentication(&hand, cluster).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::Kinds;

    #[test]
    fn every_built_in_group_version_has_one() {
        let wanted = wanted(Kinds::builtin());
        assert!(!wanted.contains_key("v1.apiregistration.k8s.io"), "upstream has none for the aggregator itself");
        let names: Vec<&str> = wanted.keys().map(String::as_str).collect();
        assert!(names.contains(&"v1.") && names.contains(&"v2.autoscaling") && names.contains(&"v1.apps"), "{names:?}");
        assert_eq!(
            wanted["v1."]["spec"],
            json!({"version": "v1", "groupPriorityMinimum": 18000, "versionPriority": 1})
        );
        assert_eq!(wanted["v1.apps"]["spec"]["groupPriorityMinimum"], 17800);
        for group in schema::catalogue::groups() {
            assert_ne!(priority(&group.name, "v1"), CUSTOM, "{} is not a custom group", group.name);
        }
        assert_eq!(priority("stable.example.com", "v1"), CUSTOM);
    }
}
