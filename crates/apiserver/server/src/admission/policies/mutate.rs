//! MutatingAdmissionPolicy: objects changed by expressions, before any webhook is asked.

use std::sync::Arc;

use cel::{COST_OF_ALL, Value as Made, from_json, to_json};
use schema::status::{Cause, Result, Status};
use serde_json::Value;

use super::{Binding, Mutation, Policies, Policy, Source, judge::is_outside, params, variables::Variables};
use crate::admission::{
    expressions::{Scope, explain},
    forbid,
    question::Question,
};
use crate::{
    kinds::{Kind, SchemaOf},
    turns::Turns,
    types,
};

/// Brings a changed object back to order: typed and with defaults.
type Settle<'a> = &'a (dyn Fn(&mut Value) -> Result<()> + Send + Sync);

/// Changes the object of a request as the policies say; whether anything changed. `again`: only those that ask for a second
/// round.
pub async fn mutate(policies: &Policies, question: &mut Question<'_>, again: bool, settle: Settle<'_>) -> Result<bool> {
    if question.object.is_none() || is_outside(&question.call.kind) {
        return Ok(false);
    }
    let mut changed = false;
    let mut found = Errors::default();
    let mut turns = Turns::default();
    for policy in policies.policies.values().filter(|policy| policy.again || !again) {
        turns.pass().await;
        let kind = match policy.constraints.find(question) {
            Ok(Some(kind)) => kind,
            Ok(None) => continue,
            Err(status) => {
                found.add(policy, None, "", &format!("failed to configure policy: {}", status.message));
                continue;
            }
        };
        for binding in policies.bindings_of(policy) {
            changed |= bound(policy, binding, &kind, question, settle, &mut found).await;
        }
    }
    match found.status(question) {
        Some(status) => Err(status),
        None => Ok(changed),
    }
}

/// What went wrong, of policies that do not let requests pass then.
#[derive(Default)]
struct Errors {
    messages: Vec<String>,
    /// The reason of the first one.
    reason: &'static str,
}

impl Errors {
    fn add(&mut self, policy: &Policy, binding: Option<&Binding>, reason: &'static str, why: &str) {
        if policy.fails_open {
            return;
        }
        if self.messages.is_empty() {
            self.reason = reason;
        }
        let name = &policy.name;
        self.messages.push(match binding {
            Some(binding) => format!("policy '{name}' with binding '{}' denied request: {why}", binding.name),
            None => format!("policy {name:?} denied request: {why}"),
        });
    }

    fn status(self, question: &Question<'_>) -> Option<Status> {
        let first = self.messages.first()?.clone();
        let about = question.object.as_ref().or(question.old.as_ref()).unwrap_or(&Value::Null);
        let mut status = forbid(question.call, about, "");
        status.message = first;
        if !self.reason.is_empty() {
            status.reason = self.reason;
        }
        let cause = |message: String| Cause { message, ..Cause::default() };
        Some(status.with_causes(self.messages.into_iter().map(cause).collect()))
    }
}

/// One binding of a policy, with each of its parameters; whether the object changed.
async fn bound(
    policy: &Policy,
    binding: &Binding,
    kind: &Arc<Kind>,
    question: &mut Question<'_>,
    settle: Settle<'_>,
    found: &mut Errors,
) -> bool {
    let unconfigured = |why: &str| format!("failed to configure binding: {why}");
    match binding.constraints.find(question) {
        Ok(Some(_)) => {}
        Ok(None) => return false,
        Err(status) => {
            found.add(policy, Some(binding), "", &unconfigured(&status.message));
            return false;
        }
    }
    let all = match params::find(policy, binding, question) {
        Ok(all) => all,
        Err(why) => {
            found.add(policy, Some(binding), "", &unconfigured(&why));
            return false;
        }
    };
    let mut changed = false;
    for params in &all {
        let step = Step { policy, kind, params: params.as_ref() };
        match step.is_wanted(question).await {
            Ok(true) => {}
            Ok(false) => continue,
            Err(why) => {
                found.add(policy, Some(binding), "Invalid", &why);
                continue;
            }
        }
        for mutation in &policy.mutations {
            match step.take(mutation, question, settle).await {
                Ok(did) => changed |= did,
                // What comes after it is done all the same, as upstream does.
                Err(why) => found.add(policy, Some(binding), "Invalid", &why),
            }
        }
    }
    changed
}

/// A policy on the object of a request, with one set of parameters.
struct Step<'a> {
    policy: &'a Policy,
    kind: &'a Arc<Kind>,
    params: Option<&'a Value>,
}

/// The objects of a request in the form that a policy is about.
type Both = (Value, Option<Value>);

impl Step<'_> {
    /// Whether the conditions of the policy hold.
    async fn is_wanted(&self, question: &Question<'_>) -> Result<bool, String> {
        if self.policy.conditions.is_empty() {
            return Ok(true);
        }
        let (object, old) = self.both(question).await?;
        let scope = self.scope(question, &object, old.as_ref());
        let variables = Variables::new(self.policy, &scope);
        self.policy.conditions.hold(&scope, &variables.seen())
    }

    /// Makes one change; whether it changed anything.
    async fn take(&self, mutation: &Mutation, question: &mut Question<'_>, settle: Settle<'_>) -> Result<bool, String> {
        let (object, old) = self.both(question).await?;
        let made = self.make(mutation, question, &object, old.as_ref())?;
        if made == object {
            return Ok(false);
        }
        let told = |status: Status| status.message;
        let own = question.call.kind.clone();
        let mut made = question.convert(made, self.kind, &own).await.map_err(told)?;
        settle(&mut made).map_err(told)?;
        let changed = question.object.as_ref() != Some(&made);
        question.object = Some(made);
        Ok(changed)
    }

    async fn both(&self, question: &Question<'_>) -> Result<Both, String> {
        let told = |status: Status| status.message;
        let own = &question.call.kind;
        let object = question.object.clone().unwrap_or_default();
        let object = question.convert(object, own, self.kind).await.map_err(told)?;
        let old = match question.old.clone() {
            Some(old) => Some(question.convert(old, own, self.kind).await.map_err(told)?),
            None => None,
        };
        Ok((object, old))
    }

    fn scope<'q>(&self, question: &Question<'q>, object: &Value, old: Option<&Value>) -> Scope<'q> {
        let mut scope = Scope::new(question, self.kind, Some(object), old);
        scope.add("params", self.params.map_or(Made::Null, from_json));
        scope.add("namespaceObject", question.namespace_seen().as_ref().map_or(Made::Null, from_json));
        scope
    }

    fn make(
        &self,
        mutation: &Mutation,
        question: &Question<'_>,
        object: &Value,
        old: Option<&Value>,
    ) -> Result<Value, String> {
        let scope = self.scope(question, object, old);
        let variables = Variables::new(self.policy, &scope);
        let (Mutation::Apply(source) | Mutation::Patch(source)) = mutation;
        let made = evaluate(source, &scope, &variables)?;
        match mutation {
            Mutation::Patch(_) => patched(object.clone(), made),
            Mutation::Apply(_) => overlaid(question, self.kind, object, made),
        }
    }
}

fn evaluate<'a>(source: &Source, scope: &Scope<'_>, variables: &'a Variables<'a>) -> Result<Value, String> {
    let expression = source.expression.as_ref().map_err(|why| explain(&source.text, why))?;
    let made = scope.evaluate(expression, &variables.seen(), &mut { COST_OF_ALL });
    let made = made.map_err(|failure| explain(&source.text, &failure.to_string()))?;
    expression.check_message_names()?;
    to_json(&made).ok_or_else(|| explain(&source.text, "the result is no JSON"))
}

/// A test that finds another value than it names lets the object be as it is.
fn patched(mut object: Value, mut patch: Value) -> Result<Value, String> {
    for operation in patch.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        operation.retain(|key, value| key != "from" || value != "");
    }
    patch::json_tested(&mut object, patch.to_string().as_bytes())
        .map_err(|status| format!("JSON Patch: {}", status.message))?;
    Ok(object)
}

fn overlaid(question: &Question<'_>, kind: &Kind, object: &Value, mut config: Value) -> Result<Value, String> {
    let schema = match question.speaks_own_kind() {
        true => kind.schema(),
        false => {
            let of = question.kind_of(kind);
            let text = |field: &str| of[field].as_str().unwrap_or_default();
            types::find(text("group"), text("version"), text("kind"))
                .map(|ty| (SchemaOf::BuiltIn(schema::builtin()), ty))
        }
    };
    let Some((schema, ty)) = schema else { return Err("this kind has no schema to merge by".to_owned()) };
    for field in ["apiVersion", "kind"] {
        match config.get(field) {
            Some(given) if *given != object[field] => return Err(format!("{field} may not be changed")),
            _ => config[field] = object[field].clone(),
        }
    }
    patch::apply::overlay(&schema, ty, object, &config).map_err(|why| format!("error applying patch: {why}"))
}
