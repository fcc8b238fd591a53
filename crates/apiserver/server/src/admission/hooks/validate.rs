//! Webhooks that only judge: all at once, and every one of them must agree.

use futures::future::join_all;
use schema::status::Result;

use crate::admission::{question::Question, registry::Workspace};

pub async fn validate(workspace: &Workspace, question: &Question<'_>) -> Result<()> {
    let mut concerned = Vec::new();
    for hook in workspace.validating.values().flatten() {
        if let Some(form) = hook.concerns(question).await? {
            concerned.push((hook, form));
        }
    }
    let asked = concerned.iter().map(|(hook, form)| hook.ask(question, form, false));
    for answer in join_all(asked).await {
        answer?;
    }
    Ok(())
}
