//! MutatingAdmissionPolicy: objects changed by expressions, before any webhook is asked.

use api::{
    crd::cel::{COST_OF_ALL, Value as Made, from_json, to_json},
    status::{Result, Status},
};
use serde_json::Value;

use super::{
    Binding, Mutation, Policies, Policy, Source,
    judge::{denial, is_outside},
    params,
    variables::Variables,
};
use crate::admission::{
    expressions::{Scope, explain},
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
    let mut turns = Turns::default();
    for policy in policies.policies.values().filter(|policy| policy.again || !again) {
        turns.pass().await;
        for binding in policies.bindings_of(policy) {
            match bound(policy, binding, question, settle).await {
                Ok(did) => changed |= did,
                Err(_) if policy.fails_open => {}
                Err(why) => {
                    let (name, bound) = (&policy.name, &binding.name);
                    let what = format!("MutatingAdmissionPolicy '{name}' with binding '{bound}' denied request: {why}");
                    return Err(denial(question, &what, ""));
                }
            }
        }
    }
    Ok(changed)
}

async fn bound(
    policy: &Policy,
    binding: &Binding,
    question: &mut Question<'_>,
    settle: Settle<'_>,
) -> Result<bool, String> {
    let told = |status: Status| status.message;
    let Some(kind) = policy.constraints.find(question).map_err(told)? else { return Ok(false) };
    if binding.constraints.find(question).map_err(told)?.is_none() {
        return Ok(false);
    }
    let all = params::find(policy, binding, question).map_err(|why| format!("failed to configure binding: {why}"))?;
    let own = question.call.kind.clone();
    let mut changed = false;
    for params in &all {
        let object = question.object.clone().unwrap_or_default();
        let object = question.convert(object, &own, &kind).await.map_err(told)?;
        let old = match question.old.clone() {
            Some(old) => Some(question.convert(old, &own, &kind).await.map_err(told)?),
            None => None,
        };
        let made = step(policy, question, &kind, object.clone(), old.as_ref(), params.as_ref())?;
        if made == object {
            continue;
        }
        let mut made = question.convert(made, &kind, &own).await.map_err(told)?;
        settle(&mut made).map_err(told)?;
        changed |= question.object.as_ref() != Some(&made);
        question.object = Some(made);
    }
    Ok(changed)
}

/// All changes of a policy, each on top of the one before.
fn step(
    policy: &Policy,
    question: &Question<'_>,
    kind: &Kind,
    mut object: Value,
    old: Option<&Value>,
    params: Option<&Value>,
) -> Result<Value, String> {
    let namespace = question.namespace_object().unwrap_or_default();
    let mut budget = COST_OF_ALL;
    for (index, mutation) in policy.mutations.iter().enumerate() {
        let mut scope = Scope::new(question, kind, Some(&object), old);
        scope.add("params", params.map_or(Made::Null, from_json));
        scope.add("namespaceObject", namespace.as_ref().map_or(Made::Null, from_json));
        let variables = Variables::new(policy, &scope);
        if index == 0 && !policy.conditions.hold(&scope, &variables.seen())? {
            break;
        }
        let (Mutation::Apply(source) | Mutation::Patch(source)) = mutation;
        let made = evaluate(source, &scope, &variables, &mut budget)?;
        object = match mutation {
            Mutation::Patch(_) => patched(object, &made)?,
            Mutation::Apply(_) => overlaid(question, kind, &object, made)?,
        };
    }
    Ok(object)
}

fn evaluate<'a>(
    source: &Source,
    scope: &Scope<'_>,
    variables: &'a Variables<'a>,
    budget: &mut u64,
) -> Result<Value, String> {
    let expression = source.expression.as_ref().map_err(|why| explain(&source.text, why))?;
    let made = scope.evaluate(expression, &variables.seen(), budget);
    let made = made.map_err(|failure| explain(&source.text, &failure.to_string()))?;
    to_json(&made).ok_or_else(|| explain(&source.text, "the result is no JSON"))
}

fn patched(mut object: Value, patch: &Value) -> Result<Value, String> {
    api::patch::json(&mut object, patch.to_string().as_bytes())
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
                .map(|ty| (SchemaOf::BuiltIn(api::schema::builtin()), ty))
        }
    };
    let Some((schema, ty)) = schema else { return Err("this kind has no schema to merge by".to_owned()) };
    for field in ["apiVersion", "kind"] {
        match config.get(field) {
            Some(given) if *given != object[field] => return Err(format!("{field} may not be changed")),
            _ => config[field] = object[field].clone(),
        }
    }
    api::apply::overlay(&schema, ty, object, &config).map_err(|why| format!("error applying patch: {why}"))
}
