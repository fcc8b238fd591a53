//! `variables` of a policy: each is evaluated when it is first read, and then known.

use std::{cell::RefCell, collections::HashMap};

use cel::{Failure, Host, Value};

use super::{Policy, Source};
use crate::admission::expressions::Scope;

/// All variables of one evaluation.
pub struct Variables<'a> {
    scope: &'a Scope<'a>,
    all: &'a [(String, Source)],
    known: RefCell<HashMap<&'a str, Result<Value, Failure>>>,
}

impl<'a> Variables<'a> {
    pub fn new(policy: &'a Policy, scope: &'a Scope<'a>) -> Self {
        Self { scope, all: &policy.variables, known: RefCell::default() }
    }

    /// What an expression behind the first `count` variables sees.
    fn up_to(&'a self, count: usize) -> Seen<'a> {
        Seen { variables: self, count }
    }

    pub fn seen(&'a self) -> Seen<'a> {
        self.up_to(self.all.len())
    }
}

pub struct Seen<'a> {
    variables: &'a Variables<'a>,
    count: usize,
}

impl Host for Seen<'_> {
    fn member(&self, of: &str, name: &str, left: &mut u64) -> Option<Result<Value, Failure>> {
        if of != "variables" {
            return None;
        }
        let Variables { scope, all, known } = self.variables;
        let Some(index) = all[..self.count].iter().position(|(known, _)| known == name) else {
            return Some(Err(Failure::Error(format!("no such key: {name}"))));
        };
        let (name, source) = &all[index];
        if let Some(value) = known.borrow().get(name.as_str()) {
            return Some(value.clone());
        }
        let result = match &source.expression {
            Ok(expression) => scope.evaluate(expression, &self.variables.up_to(index), left),
            Err(why) => Err(Failure::Error(why.clone())),
        };
        let result = result.map_err(|failure| match failure {
            Failure::Cost => Failure::Cost,
            Failure::Error(why) => Failure::Error(format!("composited variable {name:?} fails to evaluate: {why}")),
        });
        // What was stopped may be tried once more with a larger budget.
        if !matches!(result, Err(Failure::Cost)) {
            known.borrow_mut().insert(name, result.clone());
        }
        Some(result)
    }

    fn method(&self, of: &Value, name: &str, args: &[Value], left: &mut u64) -> Option<Result<Value, Failure>> {
        self.variables.scope.host.method(of, name, args, left)
    }
}
