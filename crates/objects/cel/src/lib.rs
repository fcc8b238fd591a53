//! CEL, the language of rules in Kubernetes: expressions are compiled once and evaluated in bounded time.
//!
//! An [`Expression`] goes through these steps, each in a module of its own:
//!
//! 1. `token` and `parse` make a syntax tree (`syntax`) of the text. Macros such as `all` and `map` are nodes of the
//!    tree. `expect` has upstream's words for a text that is no expression.
//! 2. `check` finds the types of its parts in an [`Environment`] of variables, and refuses what cannot be right. Types
//!    come from schemas of custom resources (`types`) and from built-in kinds (`declared`).
//! 3. [`cost`] bounds what it may cost, from the sizes that a schema allows.
//! 4. `eval` walks the tree. Each step is charged to a `meter` before it is done, so that no expression takes long
//!    whatever its input is. Functions are in `functions`, one file for each library of upstream.
//!
//! A [`Value`] is cheap to clone: texts, lists and maps are shared. Functions follow cel-go 0.26 and the libraries of
//! Kubernetes 1.36, with their error messages.
//!
//! An expression knows nothing of custom resources: whoever evaluates it binds the names, and a [`Host`] adds values
//! that are made only when they are read, such as the `authorizer` of admission policies.
//!
//! ```
//! use selvedge_cel::{COST_OF_ONE, Environment, Expression, Type, Value, from_json};
//!
//! let environment = Environment::new([("self".to_owned(), Type::Dyn)]);
//! let (rule, ty) = Expression::compile("self.ports.all(p, p > 0 && p < 65536)", &environment)?;
//! assert_eq!(ty, Type::Bool);
//!
//! let object = from_json(&serde_json::json!({"ports": [80, 443]}));
//! let mut budget = COST_OF_ONE;
//! assert_eq!(rule.evaluate(&[("self", object)], &mut budget), Ok(Value::Bool(true)));
//! assert!(budget < COST_OF_ONE);
//!
//! let wrong = Expression::compile("self.ports.size() > '1'", &environment).unwrap_err();
//! assert!(wrong.starts_with("ERROR: <input>:1:19: found no matching overload for '_>_' applied to '(int, string)'"));
//! # Ok::<(), String>(())
//! ```

mod check;
mod compare;
pub mod cost;
mod declared;
mod eval;
mod expect;
mod functions;
mod json;
mod messages;
mod meter;
mod parse;
mod syntax;
mod token;
mod types;
mod value;

#[cfg(test)]
mod corpus;
#[cfg(test)]
mod estimates;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

pub use check::Environment;
pub use json::typed;
pub use types::{Object, Type};
pub use value::{Key, Map, Value};

use syntax::Expr;

/// What one evaluation may cost, in upstream's units (about one per step).
pub const COST_OF_ONE: u64 = 1_000_000;
/// What all evaluations for one request may cost.
pub const COST_OF_ALL: u64 = 10_000_000;

/// Something wrong with the text of an expression, at a character of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    at: usize,
    message: String,
}

impl Problem {
    fn new(at: usize, message: String) -> Self {
        Self { at, message }
    }

    /// As upstream shows it: where, what, and a pointer under the line.
    fn show(&self, source: &str) -> String {
        let before: Vec<char> = source.chars().take(self.at).collect();
        let line = before.iter().filter(|c| **c == '\n').count();
        let column = before.iter().rev().take_while(|c| **c != '\n').count();
        let text = source.lines().nth(line).unwrap_or("").replace('\t', " ");
        let dots = ".".repeat(column);
        format!("ERROR: <input>:{}:{}: {}\n | {text}\n | {dots}^", line + 1, column + 1, self.message)
    }
}

fn shown(problems: &[Problem], source: &str) -> String {
    problems.iter().map(|problem| problem.show(source)).collect::<Vec<_>>().join("\n")
}

/// Why an evaluation came to nothing.
#[derive(Clone, Debug, PartialEq)]
pub enum Failure {
    /// The cost limit was reached.
    Cost,
    /// Upstream's words for it: `no such key: max`.
    Error(String),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Cost => f.write_str("operation cancelled: actual cost limit exceeded"),
            Self::Error(text) => f.write_str(text),
        }
    }
}

type Evaluated = Result<Value, Failure>;

fn error<T>(text: impl Into<String>) -> Result<T, Failure> {
    Err(Failure::Error(text.into()))
}

fn no_overload<T>() -> Result<T, Failure> {
    error("no such overload")
}

/// An expression that was parsed, and checked if it was compiled in an environment.
#[derive(Clone, Debug)]
pub struct Expression {
    expr: Expr,
}

impl Expression {
    /// Parses an expression without looking at types.
    pub fn parse(source: &str) -> Result<Self, String> {
        match parse::parse(source) {
            Ok(expr) => Ok(Self { expr }),
            Err(problems) => Err(shown(&problems, source)),
        }
    }

    /// Parses an expression and checks it; answers also the type it evaluates to.
    pub fn compile(source: &str, environment: &Environment) -> Result<(Self, Type), String> {
        let compiled = Self::parse(source)?;
        match check::check(&compiled.expr, environment) {
            Ok(ty) => Ok((compiled, ty)),
            Err(problems) => Err(shown(&problems, source)),
        }
    }

    /// Whether the expression reads a variable.
    pub fn reads(&self, name: &str) -> bool {
        self.expr.reads(name)
    }

    /// Whether the expression is a variable, or a member or element of one.
    pub fn only_reads(&self) -> bool {
        matches!(self.expr.kind, syntax::Kind::Ident(_) | syntax::Kind::Select { .. } | syntax::Kind::Index { .. })
    }

    /// Complains about objects whose type is named otherwise than the field that they are in.
    pub fn check_message_names(&self) -> Result<(), String> {
        messages::check(&self.expr)
    }

    /// What evaluating it may cost at most where `self` is bounded like this.
    pub fn most(&self, itself: &cost::Bound) -> u64 {
        cost::estimate(&self.expr, itself)
    }

    /// Evaluates with these variables; what it costs is taken off `budget`.
    pub fn evaluate(&self, variables: &[(&str, Value)], budget: &mut u64) -> Result<Value, Failure> {
        self.run(variables, None, budget)
    }

    /// The same with what only a host knows.
    pub fn evaluate_at(
        &self,
        variables: &[(&str, Value)],
        host: &dyn Host,
        budget: &mut u64,
    ) -> Result<Value, Failure> {
        self.run(variables, Some(host), budget)
    }

    fn run(&self, variables: &[(&str, Value)], host: Option<&dyn Host>, budget: &mut u64) -> Result<Value, Failure> {
        let limit = (*budget).min(COST_OF_ONE);
        let (result, cost) = eval::evaluate(&self.expr, variables, host, limit);
        *budget -= cost.min(*budget);
        result
    }
}

/// Whoever evaluates an expression may know more than values: what is made only when it is read, and methods of its own.
/// `None` means that it is not the host's; costs are taken off `left`.
pub trait Host {
    /// `of.name`, where `of` is no variable.
    fn member(&self, of: &str, name: &str, left: &mut u64) -> Option<Result<Value, Failure>>;

    /// `of.name(args)`.
    fn method(&self, of: &Value, name: &str, args: &[Value], left: &mut u64) -> Option<Result<Value, Failure>>;
}

/// What an expression made, as JSON; `None` if it has no such form.
pub fn to_json(value: &Value) -> Option<serde_json::Value> {
    json::to_json(value)
}

/// A JSON value as expressions without a schema see it.
pub fn from_json(json: &serde_json::Value) -> Value {
    json::untyped(json)
}

/// Whether a word has a meaning of its own, so that nothing can be named by it.
pub fn is_reserved(word: &str) -> bool {
    parse::RESERVED.contains(&word)
}

/// A value that may be missing: what `oldSelf` is where a rule asks for it.
pub fn optional(value: Option<Value>) -> Value {
    Value::Optional(value.map(Into::into))
}
