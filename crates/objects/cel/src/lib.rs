//! CEL: expressions compiled once and evaluated in bounded time.
//!
//! Values and the library of Kubernetes functions are those of `kube-cel`. Parsing, type checking and the evaluation of
//! operators and macros are here: upstream tells at which character an expression is wrong, refuses what cannot be
//! right before it is ever evaluated, counts the cost of what it evaluates, and knows macros that the crate does not.
//!
//! An [`Expression`] knows nothing of custom resources: names are bound by whoever evaluates it.

mod call;
mod check;
pub mod cost;
mod declared;
mod eval;
mod functions;
mod messages;
mod parse;
mod syntax;
mod token;
mod types;
pub mod value;

#[cfg(test)]
mod estimates;
#[cfg(test)]
mod tests;

pub use kube_cel::cel::Value;
pub use kube_cel::cel::objects::Key;

pub use check::Environment;
pub use types::{Object, Type};

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
            Err(problem) => Err(upstream_syntax_error(source).unwrap_or_else(|| problem.show(source))),
        }
    }

    /// Parses an expression and checks it; answers also the type it evaluates to.
    pub fn compile(source: &str, environment: &Environment) -> Result<(Self, Type), String> {
        let compiled = Self::parse(source)?;
        match check::check(&compiled.expr, environment) {
            Ok(ty) => Ok((compiled, ty)),
            Err(problems) => Err(problems.iter().map(|problem| problem.show(source)).collect::<Vec<_>>().join("\n")),
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
    value::to_json(value)
}

/// A JSON value as expressions without a schema see it.
pub fn from_json(json: &serde_json::Value) -> Value {
    value::untyped(json)
}

/// The words of upstream's own grammar, which the crate shares, for a text that is no expression.
fn upstream_syntax_error(source: &str) -> Option<String> {
    // Its parser is only asked about short texts: it is slow, and the words matter only to people.
    if source.len() > 4096 {
        return None;
    }
    let parsed = std::panic::catch_unwind(|| kube_cel::cel::Program::compile(source).map(|_| ()));
    let errors = parsed.ok()?.err()?.errors;
    let shown: Vec<String> = errors
        .iter()
        .map(|error| {
            let line = usize::try_from(error.pos.0 - 1).unwrap_or(0);
            let column = usize::try_from(error.pos.1 - 1).unwrap_or(0);
            let start: usize = source.split_inclusive('\n').take(line).map(|l| l.chars().count()).sum();
            Problem::new(start + column, error.msg.clone()).show(source)
        })
        .collect();
    (!shown.is_empty()).then(|| shown.join("\n"))
}

/// Whether a word has a meaning of its own, so that nothing can be named by it.
pub fn is_reserved(word: &str) -> bool {
    parse::RESERVED.contains(&word)
}

/// A value that may be missing: what `oldSelf` is where a rule asks for it.
pub fn optional(value: Option<Value>) -> Value {
    value.map_or_else(eval::none, eval::some)
}
