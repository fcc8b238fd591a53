//! One policy held against one request, with one set of parameters.

use cel::{COST_OF_ALL, Failure, Value, from_json};

use super::{Policy, Source, Validation, variables::Variables};
use crate::admission::{
    expressions::{Scope, explain},
    question::Question,
};
use crate::kinds::Kind;

/// What an evaluation came to.
#[derive(Default)]
pub struct Verdict {
    pub failures: Vec<Failed>,
    /// Key and value.
    pub annotations: Vec<(String, String)>,
}

/// One validation that did not hold.
pub struct Failed {
    /// Which validation it was.
    pub index: usize,
    pub message: String,
    pub reason: String,
}

const LONGEST_MESSAGE: usize = 5 * 1024;
const LONGEST_ANNOTATION: usize = 10 * 1024;

type Json = serde_json::Value;

/// The objects of a request in the form that a policy is about.
pub struct Objects<'a> {
    pub kind: &'a Kind,
    pub object: Option<&'a Json>,
    pub old: Option<&'a Json>,
    pub namespace: Option<&'a Json>,
}

pub fn evaluate(policy: &Policy, question: &Question<'_>, objects: &Objects<'_>, params: Option<&Json>) -> Verdict {
    let mut scope = Scope::new(question, objects.kind, objects.object, objects.old);
    scope.add("params", params.map_or(Value::Null, from_json));
    scope.add("namespaceObject", objects.namespace.map_or(Value::Null, from_json));
    let variables = Variables::new(policy, &scope);
    let mut run =
        Run { policy, scope: &scope, variables: &variables, budget: COST_OF_ALL, verdict: Verdict::default() };
    match policy.conditions.hold(&scope, &variables.seen()) {
        Ok(true) => {}
        Ok(false) => return run.verdict,
        Err(why) => {
            run.broken(0, why);
            return run.verdict;
        }
    }
    for (index, validation) in policy.validations.iter().enumerate() {
        run.validation(index, validation);
    }
    for (key, source) in &policy.annotations {
        run.annotation(key, source);
    }
    run.verdict
}

struct Run<'a> {
    policy: &'a Policy,
    scope: &'a Scope<'a>,
    variables: &'a Variables<'a>,
    budget: u64,
    verdict: Verdict,
}

impl Run<'_> {
    fn value(&mut self, source: &Source) -> Result<Value, String> {
        let result = match &source.expression {
            Ok(_) if self.budget == 0 => Err(Failure::Cost),
            Ok(expression) => self.scope.evaluate(expression, &self.variables.seen(), &mut self.budget),
            Err(why) => Err(Failure::Error(format!("compilation error: {why}"))),
        };
        result.map_err(|failure| explain(&source.text, &failure.to_string()))
    }

    /// What cannot be evaluated counts as the failure policy says.
    fn broken(&mut self, index: usize, message: String) {
        if !self.policy.fails_open {
            self.verdict.failures.push(Failed { index, message, reason: String::new() });
        }
    }

    fn validation(&mut self, index: usize, validation: &Validation) {
        match self.value(&validation.expression) {
            Ok(Value::Bool(true)) => {}
            Ok(_) => {
                let written = validation.message_expression.as_ref().and_then(|source| self.message(source));
                let message = written.unwrap_or_else(|| match validation.message.as_str() {
                    "" => format!("failed expression: {}", validation.expression.text.trim()),
                    message => message.to_owned(),
                });
                self.verdict.failures.push(Failed { index, message, reason: validation.reason.clone() });
            }
            Err(why) => self.broken(index, why),
        }
    }

    /// The message that an expression makes, if it is one line of text.
    fn message(&mut self, source: &Source) -> Option<String> {
        let Ok(Value::String(text)) = self.value(source) else { return None };
        let text = text.trim();
        (!text.is_empty() && text.len() <= LONGEST_MESSAGE && !text.contains('\n')).then(|| text.to_owned())
    }

    fn annotation(&mut self, key: &str, source: &Source) {
        match self.value(source) {
            Ok(Value::String(text)) if !text.trim().is_empty() => {
                let text = text.trim();
                let end = (0..=text.len().min(LONGEST_ANNOTATION)).rev().find(|at| text.is_char_boundary(*at));
                self.verdict.annotations.push((key.to_owned(), text[..end.unwrap_or(0)].to_owned()));
            }
            Ok(_) => {}
            Err(why) => self.broken(0, why),
        }
    }
}
