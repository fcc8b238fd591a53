//! Keeps the levels and schemas that every cluster has, and says which schemas name a level that does not exist.

use std::{sync::Arc, time::Duration};

use request::ROOT;
use schema::status::Result;
use serde_json::{Value, json};

use super::{GROUP, LEVELS, SCHEMAS, defaults};
use crate::{Server, internal::Internal, kinds::Kind, workspaces::wildcard::EVERYWHERE};

const RETRY: Duration = Duration::from_secs(2);

pub async fn run(server: Arc<Server>) {
    let flows = server.flows.clone();
    flows.changed.push(ROOT);
    loop {
        let cluster = flows.changed.pop().await;
        if server.workspaces.is_leaving(&cluster) {
            continue;
        }
        if let Err(error) = look_after(&server, &cluster).await {
            tracing::warn!(%cluster, %error, "FlowSchemas could not be brought up to date; trying again");
            let again = flows.clone();
            flows.changed.again(cluster, move |key| again.changed.push(key), RETRY);
        }
    }
}

/// Gives a workspace the levels and schemas that every cluster has, once somebody asks for them there.
pub async fn furnish(server: &Arc<Server>, cluster: &str) -> Result<()> {
    let skipped = cluster == ROOT || cluster == EVERYWHERE || server.flows.has(cluster);
    if skipped || server.workspaces.is_leaving(cluster) || !server.workspaces.exists(cluster) {
        return Ok(());
    }
    keep(server, cluster).await
}

async fn look_after(server: &Arc<Server>, cluster: &str) -> Result<()> {
    if server.flows.has(cluster) || cluster == ROOT {
        keep(server, cluster).await?;
    }
    let hand = Internal::new(server, cluster, "api-priority-and-fairness-config-consumer-v1");
    let kind = hand.kind(GROUP, "v1", "flowschemas")?;
    let snapshot = server.cache.snapshot(SCHEMAS);
    for object in snapshot.items.range(&format!("{cluster}//"), "").filter(|object| object.acts_here()) {
        let mut value = object.value();
        let level = value["spec"]["priorityLevelConfiguration"]["name"].as_str().unwrap_or_default().to_owned();
        let exists = server.flows.has_level(cluster, &level);
        let now = clock::now();
        if set_dangling(&mut value, &level, exists, &now) {
            let edit = |value: &mut Value| {
                set_dangling(value, &level, exists, &now);
            };
            hand.change(&kind, "", object.name(), "status", edit).await?;
        }
    }
    Ok(())
}

/// Makes what is missing, and puts back what was changed, unless its annotation says otherwise.
async fn keep(server: &Arc<Server>, cluster: &str) -> Result<()> {
    let hand = Internal::new(server, cluster, "api-priority-and-fairness-config-producer-v1");
    let wanted = defaults::objects();
    let kinds = ["prioritylevelconfigurations", "flowschemas"].map(|resource| hand.kind(GROUP, "v1", resource));
    let [levels, schemas] = kinds;
    let (levels, schemas) = (levels?, schemas?);
    let kind_of = |resource: &str| if resource == "flowschemas" { &schemas } else { &levels };
    let all: Vec<(&Arc<Kind>, &str, Value)> =
        wanted.iter().map(|(resource, value)| (kind_of(resource), "", value.clone())).collect();
    hand.make_missing(&all).await?;
    for (resource, want) in &wanted {
        let kind = kind_of(resource);
        let name = want["metadata"]["name"].as_str().unwrap_or_default();
        let collection = if *resource == "flowschemas" { SCHEMAS } else { LEVELS };
        let Some(have) = server.cache.get(collection, &kind.key(cluster, "", name)) else { continue };
        let have = have.value();
        let mut want = want.clone();
        crate::verbs::write::default(kind, &mut want);
        if defaults::is_kept(&have) && have["spec"] != want["spec"] {
            hand.change(kind, "", name, "", |value| value["spec"] = want["spec"].clone()).await?;
        }
    }
    Ok(())
}

/// Sets the condition `Dangling`. Says whether it is another one than before.
fn set_dangling(value: &mut Value, level: &str, exists: bool, now: &str) -> bool {
    let named = format!("This FlowSchema references the PriorityLevelConfiguration object named {level:?}");
    let (status, reason, message) = match exists {
        true => ("False", "Found", format!("{named} and it exists")),
        false => ("True", "NotFound", format!("{named} but there is no such object")),
    };
    let mut conditions = value["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let old = conditions.iter().position(|condition| condition["type"] == "Dangling");
    let same = |condition: &Value| {
        condition["status"] == status && condition["reason"] == reason && condition["message"] == message.as_str()
    };
    if old.is_some_and(|at| same(&conditions[at])) {
        return false;
    }
    let new = json!({"type": "Dangling", "status": status, "reason": reason, "message": message,
        "lastTransitionTime": now});
    match old {
        Some(at) => conditions[at] = new,
        None => conditions.push(new),
    }
    value["status"]["conditions"] = conditions.into();
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_without_its_level_dangles() {
        let mut value = json!({});
        assert!(set_dangling(&mut value, "l", false, "t1"));
        assert!(!set_dangling(&mut value, "l", false, "t2"));
        assert_eq!(value["status"]["conditions"][0]["status"], "True");
        assert!(set_dangling(&mut value, "l", true, "t3"));
        assert_eq!(value["status"]["conditions"][0]["reason"], "Found");
    }
}
