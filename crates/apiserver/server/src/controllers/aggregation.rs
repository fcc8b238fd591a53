//! ClusterRoles that are made of others have the rules of all of them.

use std::{sync::Arc, time::Duration};

use identity::policy;
use request::ROOT;
use schema::status::Result;
use serde_json::Value;

use super::Controllers;
use crate::{Server, internal::Internal};

pub const ROLES: &str = "rbac.authorization.k8s.io/clusterroles";
const RETRY: Duration = Duration::from_secs(2);

pub async fn run(controllers: Arc<Controllers>, server: Arc<Server>) {
    loop {
        let cluster = controllers.cluster_roles.pop().await;
        if let Err(error) = gather(&server, &cluster).await {
            tracing::warn!(%error, "an aggregated ClusterRole could not be brought up to date; trying again");
            let again = controllers.clone();
            controllers.cluster_roles.again(cluster, move |key| again.cluster_roles.push(key), RETRY);
        }
    }
}

/// A role that gathers gathered ones settles in the rounds that its parts' changes cause.
async fn gather(server: &Arc<Server>, cluster: &str) -> Result<()> {
    if server.workspaces.is_leaving(cluster) {
        return Ok(());
    }
    let snapshot = server.cache.snapshot(ROLES);
    let prefix = format!("{cluster}//");
    let here = snapshot.items.range(&prefix, "").filter(|role| role.acts_here());
    let mut all: Vec<Value> = here.map(|role| role.value()).collect();
    let hand = Internal::new(server, cluster, "clusterrole-aggregation-controller");
    let kind = hand.kind("rbac.authorization.k8s.io", "v1", "clusterroles")?;
    let own = all.len();
    if cluster != ROOT && own > 0 {
        // Other workspaces share the default roles. One that adds to such a role gets it for its own.
        let name = |role: &Value| role["metadata"]["name"].clone();
        let have: Vec<Value> = all.iter().map(name).collect();
        all.extend(policy::cluster_roles().into_iter().filter(|role| !have.contains(&name(role))));
        for shared in &all[own..] {
            if let Some(rules) =
                policy::aggregated(shared, &all).filter(|rules| shared["rules"].as_array() != Some(rules))
            {
                let mut role = shared.clone();
                role["rules"] = rules.into();
                hand.ensure(&kind, "", role).await?;
            }
        }
    }
    for role in &all[..own] {
        let Some(rules) = policy::aggregated(role, &all) else { continue };
        let have = role["rules"].as_array().map(Vec::as_slice).unwrap_or_default();
        if rules == have {
            continue;
        }
        let name = role["metadata"]["name"].as_str().unwrap_or_default();
        hand.change(&kind, "", name, "", |value| value["rules"] = rules.clone().into()).await?;
    }
    Ok(())
}
