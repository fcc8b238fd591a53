//! All policies of a workspace held against a request.

use std::sync::Arc;

use schema::status::{Cause, Result, Status};
use serde_json::{Value, json};

use super::{
    Binding, Policies, Policy,
    evaluate::{Failed, Objects, evaluate},
    params,
};
use crate::admission::{forbid, question::Question};
use crate::{kinds::Kind, turns::Turns};

const AUDIT_KEY: &str = "validation.policy.admission.k8s.io/validation_failure";

/// Reviews are answered, not stored; policies that failed them would stop authentication itself.
pub fn is_outside(kind: &Kind) -> bool {
    matches!(kind.group(), "authentication.k8s.io" | "authorization.k8s.io")
}

pub async fn judge(policies: &Policies, question: &Question<'_>) -> Result<()> {
    if policies.policies.is_empty() || is_outside(&question.call.kind) {
        return Ok(());
    }
    let mut found = Findings::default();
    let mut turns = Turns::default();
    for policy in policies.policies.values() {
        turns.pass().await;
        policy_on(policies, policy, question, &mut found).await?;
    }
    found.publish(question);
    let causes = found.denials.iter().flat_map(|denial| denial.causes().to_vec()).collect();
    match found.denials.into_iter().next() {
        Some(denial) => Err(denial.with_causes(causes)),
        None => Ok(()),
    }
}

async fn policy_on(
    policies: &Policies,
    policy: &Arc<Policy>,
    question: &Question<'_>,
    found: &mut Findings,
) -> Result<()> {
    let kind = match policy.constraints.find(question) {
        Ok(Some(kind)) => kind,
        Ok(None) => return Ok(()),
        Err(status) => {
            found.misconfigured(policy, None, question, &status.message);
            return Ok(());
        }
    };
    let mut converted: Option<(Option<Value>, Option<Value>)> = None;
    for binding in policies.bindings_of(policy) {
        match binding.constraints.find(question) {
            Ok(Some(_)) => {}
            Ok(None) => continue,
            Err(status) => {
                found.misconfigured(policy, Some(binding), question, &status.message);
                continue;
            }
        }
        let all = match params::find(policy, binding, question) {
            Ok(all) => all,
            Err(why) => {
                found.misconfigured(policy, Some(binding), question, &why);
                continue;
            }
        };
        if converted.is_none() && kind.api_version != question.call.kind.api_version {
            let own = &question.call.kind;
            let mut both = [question.object.clone(), question.old.clone()];
            for object in &mut both {
                if let Some(value) = object.take() {
                    *object = Some(question.convert(value, own, &kind).await?);
                }
            }
            let [object, old] = both;
            converted = Some((object, old));
        }
        let (object, old) = match &converted {
            Some((object, old)) => (object.as_ref(), old.as_ref()),
            None => (question.object.as_ref(), question.old.as_ref()),
        };
        let namespace = question.namespace_seen();
        let objects = Objects { kind: &kind, object, old, namespace: namespace.as_ref() };
        for params in &all {
            let verdict = evaluate(policy, question, &objects, params.as_ref());
            for failed in &verdict.failures {
                found.failed(policy, binding, question, failed);
            }
            for (key, value) in verdict.annotations {
                found.annotations.push((format!("{}/{key}", policy.name), value));
            }
        }
    }
    Ok(())
}

#[derive(Default)]
struct Findings {
    denials: Vec<Status>,
    /// For the audit log.
    failures: Vec<Value>,
    annotations: Vec<(String, String)>,
}

impl Findings {
    fn failed(&mut self, policy: &Policy, binding: &Binding, question: &Question<'_>, failed: &Failed) {
        let (name, bound, message) = (&policy.name, &binding.name, &failed.message);
        if binding.has("Deny") {
            let what = format!("ValidatingAdmissionPolicy '{name}' with binding '{bound}' denied request: {message}");
            self.denials.push(denial(question, &what, &failed.reason));
        }
        if binding.has("Warn") {
            question.call.warn(format!(
                "Validation failed for ValidatingAdmissionPolicy '{name}' with binding '{bound}': {message}"
            ));
        }
        if binding.has("Audit") {
            self.failures.push(json!({"message": message, "policy": name, "binding": bound,
                "expressionIndex": failed.index.to_string(), "validationActions": binding.actions}));
        }
    }

    fn misconfigured(&mut self, policy: &Policy, binding: Option<&Arc<Binding>>, question: &Question<'_>, why: &str) {
        if policy.fails_open {
            return;
        }
        let name = &policy.name;
        let what = match binding {
            Some(binding) => format!(
                "ValidatingAdmissionPolicy '{name}' with binding '{}' denied request: failed to configure binding: {why}",
                binding.name
            ),
            None => format!("ValidatingAdmissionPolicy '{name}' denied request: failed to configure policy: {why}"),
        };
        self.denials.push(denial(question, &what, ""));
    }

    fn publish(&mut self, question: &Question<'_>) {
        let notes = &question.call.notes;
        if !self.failures.is_empty() {
            notes.annotate(AUDIT_KEY.to_owned(), Value::from(std::mem::take(&mut self.failures)).to_string());
        }
        for (key, value) in self.annotations.drain(..) {
            notes.annotate(key, value);
        }
    }
}

pub fn denial(question: &Question<'_>, what: &str, reason: &str) -> Status {
    let (code, reason) = match reason {
        "Forbidden" => (403, "Forbidden"),
        "Unauthorized" => (401, "Unauthorized"),
        "RequestEntityTooLarge" => (413, "RequestEntityTooLarge"),
        _ => (422, "Invalid"),
    };
    let about = question.object.as_ref().or(question.old.as_ref()).unwrap_or(&Value::Null);
    let mut status = forbid(question.call, about, what);
    status.code = code;
    status.reason = reason;
    status.with_causes(vec![Cause { message: what.to_owned(), ..Cause::default() }])
}
