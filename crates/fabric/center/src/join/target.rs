//! The SyncTarget of an edge that joins, and which certificates are good for it.

use std::sync::Arc;

use http::Method;
use identity::User;
pub use kinds::join::{REVOKED, credential_of};
use kinds::{EdgeId, join, names};
use schema::status::{Result, Status};
use serde_json::{Value, json};
use server::Server;

use super::{call, token::Grant};

/// Whether somebody with this certificate is the edge that the SyncTarget stands for. To be asked when a session starts, and again
/// whenever the SyncTarget changes: one that was made anew, or revoked, or joined by another machine since, shuts it out.
pub fn is_welcome(user: &User, target: &Value) -> bool {
    credential_of(target).is_some_and(|credential| credential == user.uid)
}

pub fn not_welcome(edge: &EdgeId) -> Status {
    Status::new(
        403,
        "Revoked",
        format!(
            "the certificate of the edge {edge} is not good any more: the edge was revoked, its SyncTarget deleted, or another machine \
             joined in its name; join again with a new token"
        ),
    )
}

pub async fn get(server: &Arc<Server>, edge: &EdgeId) -> Result<Option<Value>> {
    match call(server, Method::GET, &path(edge), None).await {
        Err(status) if status.code == 404 => Ok(None),
        found => found.map(Some),
    }
}

fn path(edge: &EdgeId) -> String {
    format!("/clusters/{}/apis/workload.kcp.io/v1alpha1/synctargets/{}", edge.workspace, edge.name)
}

/// What is going to be written, known to be acceptable.
pub struct Plan {
    edge: EdgeId,
    credential: String,
    object: Value,
}

/// Creates the SyncTarget, or adopts the one that is there; here only for show.
pub async fn prepare(server: &Arc<Server>, edge: &EdgeId, grant: &Grant) -> Result<Plan> {
    let found = get(server, edge).await?;
    if let Some(target) = &found {
        may_adopt(edge, target, grant)?;
    }
    let credential = format!("{:016x}", rand::random::<u64>());
    let object = json!({"apiVersion": "workload.kcp.io/v1alpha1", "kind": "SyncTarget",
        "metadata": {"name": edge.name, "labels": grant.labels, "annotations": {names::CREDENTIAL: credential}}});
    let plan = Plan { edge: edge.clone(), credential, object };
    plan.write(server, "?dryRun=All").await?;
    Ok(plan)
}

impl Plan {
    /// What a certificate has to say from now on.
    pub async fn carry_out(&self, server: &Arc<Server>) -> Result<String> {
        let written = self.write(server, "").await?;
        let uid = written["metadata"]["uid"].as_str().unwrap_or_default();
        Ok(join::credential(uid, Some(&self.credential)))
    }

    async fn write(&self, server: &Arc<Server>, how: &str) -> Result<Value> {
        let one = path(&self.edge);
        let all = one.rsplit_once('/').map_or("", |(all, _)| all);
        match call(server, Method::PATCH, &format!("{one}{how}"), Some(&self.object)).await {
            Err(status) if status.code == 404 => {
                match call(server, Method::POST, &format!("{all}{how}"), Some(&self.object)).await {
                    // Somebody made it in this very moment.
                    Err(status) if status.code == 409 => {
                        call(server, Method::PATCH, &format!("{one}{how}"), Some(&self.object)).await
                    }
                    made => made,
                }
            }
            written => written,
        }
    }
}

/// A token for a name is as good as the name. One for labels makes new edges, and fills places that were kept for them: it must
/// not take over an edge that has joined, nor one that was meant for others.
fn may_adopt(edge: &EdgeId, target: &Value, grant: &Grant) -> Result<()> {
    let metadata = &target["metadata"];
    let refuse = |why: &str| {
        let said = format!(
            "the edge {} {why}; a token for its name can do that: `selvedge join-token create --workspace {} --name {}`",
            edge.name, edge.workspace, edge.name
        );
        Err(Status::new(403, "TokenForOther", said))
    };
    if !metadata["deletionTimestamp"].is_null() {
        return Err(Status::new(409, "Conflict", format!("the SyncTarget {} is being deleted: try again", edge.name)));
    }
    if grant.by_name {
        return Ok(());
    }
    if !metadata["annotations"][names::CREDENTIAL].is_null() {
        return refuse("has joined already, and the join token is one for new edges");
    }
    if grant.given.iter().any(|(key, value)| metadata["labels"][key] != value.as_str()) {
        return refuse("is there already, with other labels than the join token gives");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_good_for_one_life() {
        let target = |uid: &str, credential: Option<&str>| {
            let mut made = json!({"metadata": {"uid": uid, "annotations": {}}});
            if let Some(credential) = credential {
                made["metadata"]["annotations"][names::CREDENTIAL] = credential.into();
            }
            made
        };
        let user = |uid: &str| User { uid: uid.into(), ..User::default() };
        assert!(is_welcome(&user("u.1"), &target("u", Some("1"))));
        assert!(is_welcome(&user("u"), &target("u", None)));
        for (uid, target) in [
            ("u.1", target("v", Some("1"))),
            ("u.1", target("u", Some("2"))),
            ("u.1", target("u", None)),
            ("u", target("u", Some("1"))),
            ("u.revoked", target("u", Some(REVOKED))),
            ("", target("u", None)),
            ("", json!({})),
            (".1", json!({"metadata": {"annotations": {names::CREDENTIAL: "1"}}})),
            ("u", json!({"metadata": {"uid": "u", "deletionTimestamp": "t"}})),
        ] {
            assert!(!is_welcome(&user(uid), &target), "{uid} {target}");
        }
    }

    #[test]
    fn who_is_adopted() {
        let edge = EdgeId::new("root", "florin");
        let given = [("env".to_owned(), "prod".to_owned())].into();
        let by_labels = Grant { given, ..Grant::default() };
        let by_name = Grant { by_name: true, ..Grant::default() };
        let target =
            |env: &str, annotations: Value| json!({"metadata": {"labels": {"env": env}, "annotations": annotations}});
        assert!(may_adopt(&edge, &target("prod", json!({})), &by_labels).is_ok());
        assert!(may_adopt(&edge, &target("test", json!({})), &by_labels).is_err());
        assert!(may_adopt(&edge, &json!({"metadata": {}}), &by_labels).is_err());
        let joined = target("prod", json!({names::CREDENTIAL: "1"}));
        assert!(may_adopt(&edge, &joined, &by_labels).unwrap_err().message.contains("has joined already"));
        assert!(may_adopt(&edge, &joined, &by_name).is_ok());
    }
}
