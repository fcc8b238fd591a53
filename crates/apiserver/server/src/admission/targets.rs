//! Whose objects an edge holds. The annotation `edge.selvedge.dev/workspace` of a SyncTarget sends a whole workspace to an edge, Secrets
//! included, so the user who writes it needs a right in that workspace: the verb `project` on the path `/`. The SyncTarget's own
//! workspace needs no more rights.
//!
//! That somebody with the right has decided is recorded in a second annotation, which only the server writes: any write by others leaves
//! it as it is, or is refused. It names the uid of the workspace, so a new workspace of the same path has to be decided on again.

use ::kinds::names;
use identity::Attributes;
use schema::status::{Result, Status};
use serde_json::{Value, json};

use super::forbid;
use crate::{call::Call, verbs::create::metadata, workspaces};

pub const COLLECTION: &str = "workload.kcp.io/synctargets";

/// Records the decision on a SyncTarget that is written, or refuses it.
pub fn complete(call: &Call, new: &mut Value, old: Option<&Value>) -> Result<()> {
    let granted = granted(call, new, old)?;
    if annotation(new, names::WORKSPACE_GRANTED) == granted.as_deref() {
        return Ok(());
    }
    let annotations = metadata(new).entry("annotations").or_insert_with(|| json!({}));
    match (granted, annotations.as_object_mut()) {
        (Some(granted), Some(all)) => drop(all.insert(names::WORKSPACE_GRANTED.to_owned(), granted.into())),
        (None, Some(all)) => drop(all.remove(names::WORKSPACE_GRANTED)),
        (_, None) => {}
    }
    Ok(())
}

/// Refuses a record that a webhook or policy has changed after it was made.
pub fn judge(call: &Call, new: &Value, old: Option<&Value>) -> Result<()> {
    if annotation(new, names::WORKSPACE_GRANTED) == granted(call, new, old)?.as_deref() {
        return Ok(());
    }
    Err(forbid(call, new, &format!("the annotation {} is written by the server only", names::WORKSPACE_GRANTED)))
}

/// What the record says after this write.
fn granted(call: &Call, new: &Value, old: Option<&Value>) -> Result<Option<String>> {
    let workspace = match annotation(new, names::WORKSPACE) {
        // What is not inside cannot be asked for at all: the SyncTarget's status says so.
        Some(workspace) if workspaces::is_inside(workspace, &call.cluster) => workspace,
        _ => return Ok(None),
    };
    if let Some(old) = old.filter(|old| annotation(old, names::WORKSPACE) == Some(workspace)) {
        return Ok(annotation(old, names::WORKSPACE_GRANTED).map(str::to_owned));
    }
    let project = Attributes::path("project", "/");
    let may = call.server.enter(&call.user, workspace).is_ok()
        && call.server.authorize(&call.user, workspace, &project).is_ok();
    // The same words whether there is such a workspace or not.
    let uid = workspaces::uid(&call.server, workspace).filter(|_| may).ok_or_else(|| refusal(call, new, workspace))?;
    Ok(Some(json!({"workspace": workspace, "uid": uid, "by": call.user.name}).to_string()))
}

fn refusal(call: &Call, new: &Value, workspace: &str) -> Status {
    let user = &call.user.name;
    let why = format!(
        "the annotation {} sends every object of {workspace} to the edge, Secrets included, and User {user:?} may not decide that: it \
         needs the verb \"project\" on the path \"/\" in {workspace} (cluster-admin there has it), and the workspace has to exist",
        names::WORKSPACE
    );
    forbid(call, new, &why)
}

fn annotation<'a>(value: &'a Value, name: &str) -> Option<&'a str> {
    value.get("metadata")?.get("annotations")?.get(name)?.as_str()
}
