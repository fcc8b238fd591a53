//! Where writes meet the webhooks of their workspace. Without any, nothing here costs more than a look.

use std::sync::Arc;

use schema::status::{Result, Status};
use serde_json::Value;

use super::{
    Plugin, complete, hooks, on, policies,
    question::{Operation, Question, is_exempt},
    registry::Workspace,
};
use crate::{call::Call, render, types, verbs::write, webhooks::convert};

/// Who has a say in this call.
fn reviewers(call: &Call) -> Option<Arc<Workspace>> {
    if call.notes.is_exempt() || is_exempt(call) {
        return None;
    }
    call.server.admission.of(&call.cluster)
}

/// A Scale is reviewed as such; the object that it changes is not reviewed again.
fn is_reviewed_elsewhere(call: &Call) -> bool {
    call.target.subresource == "scale"
}

/// Lets policies and webhooks change an object that is in the version of the request.
pub async fn mutate(call: &Call, operation: Operation, value: &mut Value, old: Option<&Value>) -> Result<()> {
    let Some(workspace) = reviewers(call) else { return Ok(()) };
    if workspace.changes_nothing() || is_reviewed_elsewhere(call) {
        return Ok(());
    }
    let settle = |object: &mut Value| {
        write::conform(&call.kind, object)?;
        write::default(&call.kind, object);
        Ok(())
    };
    let mut question = Question::new(call, operation, Some(value.take()), old.cloned());
    let mut rounds = hooks::Rounds::default();
    change(&workspace, &mut question, &mut rounds, &settle).await?;
    if rounds.changed {
        let mut object = question.object.take().unwrap_or_default();
        let before = object.clone();
        complete(call, &mut object, old).await?;
        rounds.again(object != before);
        question.object = Some(object);
        change(&workspace, &mut question, &mut rounds, &settle).await?;
    }
    *value = question.object.unwrap_or_default();
    Ok(())
}

/// One round of policies, then webhooks.
async fn change(
    workspace: &Workspace,
    question: &mut Question<'_>,
    rounds: &mut hooks::Rounds,
    settle: &(dyn Fn(&mut Value) -> Result<()> + Send + Sync),
) -> Result<()> {
    if on(question.call, Plugin::MutatingAdmissionPolicy) {
        let changed = policies::mutate(&workspace.mutations, question, rounds.is_second(), settle).await?;
        rounds.note(changed);
    }
    if on(question.call, Plugin::MutatingAdmissionWebhook) {
        hooks::mutate(workspace, question, rounds, settle).await?;
    }
    Ok(())
}

/// Asks those who judge about what is about to be written. Objects of built-in kinds come as they are stored.
pub async fn validate(call: &Call, new: &Value, old: Option<&Value>) -> Result<()> {
    let Some(workspace) = reviewers(call) else { return Ok(()) };
    if is_reviewed_elsewhere(call) {
        return Ok(());
    }
    let shown = |value: &Value| -> Result<Value> {
        let mut value = value.clone();
        if call.kind.custom.is_none() && call.kind.is_converted() {
            render::convert_value(&call.kind, &mut value, false).map_err(Status::internal)?;
        }
        Ok(value)
    };
    let operation = if old.is_some() { Operation::Update } else { Operation::Create };
    let question = Question::new(call, operation, Some(shown(new)?), old.map(shown).transpose()?);
    judge(&workspace, &question).await
}

/// Judges a deletion, of which webhooks that change things are told too.
pub async fn delete(call: &Call, stored: &Value, options: impl FnOnce() -> Value) -> Result<()> {
    let Some(workspace) = reviewers(call) else { return Ok(()) };
    let old = convert::from_stored(call, stored.clone()).await?;
    let mut question = Question::new(call, Operation::Delete, None, Some(old)).with_options(options());
    if on(call, Plugin::MutatingAdmissionWebhook) {
        hooks::mutate(&workspace, &mut question, &mut hooks::Rounds::default(), &|_| Ok(())).await?;
    }
    judge(&workspace, &question).await
}

/// For what is asked of an object but is another kind: a Scale, an Eviction, a Binding, a token, a review.
pub async fn review(call: &Call, operation: Operation, value: &mut Value, old: Option<&Value>) -> Result<()> {
    let Some(workspace) = reviewers(call) else { return Ok(()) };
    let mut question = Question::new(call, operation, Some(value.take()), old.cloned());
    let kind = question.kind_of(&call.kind);
    let text = |field: &str| kind[field].as_str().unwrap_or_default();
    let ty = types::find(text("group"), text("version"), text("kind"));
    let settle = |object: &mut Value| {
        if let Some(ty) = ty {
            codec::decode::conform(schema::builtin(), ty, object).map_err(Status::bad_request)?;
        }
        Ok(())
    };
    change(&workspace, &mut question, &mut hooks::Rounds::default(), &settle).await?;
    judge(&workspace, &question).await?;
    *value = question.object.unwrap_or_default();
    Ok(())
}

async fn judge(workspace: &Workspace, question: &Question<'_>) -> Result<()> {
    if on(question.call, Plugin::ValidatingAdmissionPolicy) {
        policies::judge(&workspace.policies, question).await?;
    }
    if on(question.call, Plugin::ValidatingAdmissionWebhook) {
        hooks::validate(workspace, question).await?;
    }
    Ok(())
}
