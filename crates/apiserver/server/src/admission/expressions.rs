//! Expressions over a request: the variables they see, and conditions that decide whether something applies.

use cel::{COST_OF_ALL, Expression, Value};
use schema::status::{Result, Status};

use super::{authorizer::Authorizer, question::Question};
use crate::{apart, kinds::Kind};

/// What expressions about one request can read.
pub struct Scope<'a> {
    variables: Vec<(&'static str, Value)>,
    pub host: Authorizer<'a>,
}

impl<'a> Scope<'a> {
    /// `kind` is the form in which the objects are.
    pub fn new(
        question: &Question<'a>,
        kind: &Kind,
        object: Option<&serde_json::Value>,
        old: Option<&serde_json::Value>,
    ) -> Self {
        let value = |json: Option<&serde_json::Value>| json.map_or(Value::Null, cel::from_json);
        let variables = vec![
            ("object", value(object)),
            ("oldObject", value(old)),
            ("request", cel::from_json(&question.request(kind))),
            ("authorizer", Authorizer::root(question)),
        ];
        Self { variables, host: Authorizer { call: question.call } }
    }

    pub fn add(&mut self, name: &'static str, value: Value) {
        self.variables.push((name, value));
    }

    pub fn evaluate(
        &self,
        expression: &Expression,
        host: &dyn cel::Host,
        budget: &mut u64,
    ) -> Result<Value, cel::Failure> {
        apart::evaluating(budget, |budget| expression.evaluate_at(&self.variables, host, budget))
    }
}

/// `matchConditions`: all of them must hold.
pub struct Conditions(Vec<Condition>);

struct Condition {
    source: String,
    expression: Result<Expression, String>,
}

impl Conditions {
    pub fn read(list: &serde_json::Value) -> Self {
        let list = list.as_array().into_iter().flatten();
        let condition = |value: &serde_json::Value| {
            let source = value["expression"].as_str().unwrap_or_default().to_owned();
            Condition { expression: Expression::parse(&source), source }
        };
        Self(list.map(condition).collect())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One condition that does not hold decides, whatever is wrong with others. `Err`: none did, but some failed.
    pub fn hold(&self, scope: &Scope<'_>, host: &dyn cel::Host) -> Result<bool, String> {
        let mut budget = COST_OF_ALL;
        let mut failures = Vec::new();
        for condition in &self.0 {
            let result = match &condition.expression {
                Ok(expression) => scope.evaluate(expression, host, &mut budget).map_err(|failure| failure.to_string()),
                Err(why) => Err(format!("compilation error: {why}")),
            };
            match result {
                Ok(Value::Bool(true)) => {}
                Ok(Value::Bool(false)) => return Ok(false),
                Ok(_) => failures.push(explain(&condition.source, "the expression is not a boolean")),
                Err(why) => failures.push(explain(&condition.source, &why)),
            }
        }
        match failures.as_slice() {
            [] => Ok(true),
            [one] => Err(one.clone()),
            several => Err(format!("[{}]", several.join(", "))),
        }
    }
}

/// How a failed evaluation is told.
pub fn explain(source: &str, why: &str) -> String {
    format!("expression '{source}' resulted in error: {why}")
}

/// A request that could not even be matched is refused like this.
pub fn unmatched(question: &Question<'_>, why: &str) -> Status {
    Status::forbidden(question.call.kind.group(), question.call.kind.plural(), &question.name, why)
}
