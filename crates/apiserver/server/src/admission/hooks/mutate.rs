//! Webhooks that change objects: one after the other, and once more those that ask for it when others changed something.

use std::collections::HashSet;

use schema::status::{Result, Status};
use serde_json::Value;

use super::Form;
use crate::admission::{question::Question, registry::Workspace};

/// What a first round leaves for a second.
#[derive(Default)]
pub struct Rounds {
    second: bool,
    /// Webhooks that were asked and want to see later changes, by configuration and index.
    asked: HashSet<(Box<str>, usize)>,
    /// Those of them that something changed after.
    due: HashSet<(Box<str>, usize)>,
    pub changed: bool,
}

impl Rounds {
    pub fn is_second(&self) -> bool {
        self.second
    }

    /// Whether somebody else changed the object in this round.
    pub fn note(&mut self, changed: bool) {
        self.changed |= changed;
        if changed {
            self.due.extend(self.asked.drain());
        }
    }

    /// Before the second round. `changed`: the server's own steps changed the object in between.
    pub fn again(&mut self, changed: bool) {
        self.second = true;
        if changed {
            self.due.extend(self.asked.drain());
        }
    }
}

/// Asks all webhooks that the request concerns, and changes the object as they answer.
/// `settle` brings a patched object back to order: typed and with defaults.
pub async fn mutate(
    workspace: &Workspace,
    question: &mut Question<'_>,
    rounds: &mut Rounds,
    settle: &(dyn Fn(&mut Value) -> Result<()> + Send + Sync),
) -> Result<()> {
    for (configuration, hooks) in &workspace.mutating {
        for (index, hook) in hooks.iter().enumerate() {
            let id = (configuration.clone(), index);
            if rounds.second && !rounds.due.contains(&id) {
                continue;
            }
            let Some(mut form) = hook.concerns(question).await? else { continue };
            let answer = hook.ask(question, &form, true).await?;
            if let Some(patch) = answer.and_then(|answer| answer.patch)
                && apply(&hook.name, &mut form, &patch)?
            {
                take_over(question, form, settle).await?;
                rounds.changed = true;
                rounds.due.extend(rounds.asked.drain());
            }
            if hook.again {
                rounds.asked.insert(id);
            }
        }
    }
    Ok(())
}

/// Whether the patch changed the object.
fn apply(name: &str, form: &mut Form, patch: &[u8]) -> Result<bool> {
    if patch.trim_ascii() == b"[]" {
        return Ok(false);
    }
    let Some(object) = &mut form.object else {
        let why = format!(
            "admission webhook {name:?} attempted to modify the object, which is not supported for this operation"
        );
        return Err(Status::internal(why));
    };
    let before = object.clone();
    patch::json(object, patch).map_err(|status| {
        Status::internal(format!("admission webhook {name:?} returned a patch that does not apply: {}", status.message))
    })?;
    Ok(*object != before)
}

/// The patched object becomes that of the request, in the request's own form.
async fn take_over(
    question: &mut Question<'_>,
    form: Form,
    settle: &(dyn Fn(&mut Value) -> Result<()> + Send + Sync),
) -> Result<()> {
    let Some(object) = form.object else { return Ok(()) };
    let own = &question.call.kind;
    let mut object = question.convert(object, &form.kind, own).await?;
    settle(&mut object).map_err(|status| Status::internal(status.message))?;
    question.object = Some(object);
    Ok(())
}
