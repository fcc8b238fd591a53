//! The way to the functions of `kube-cel`: a call is handed to its interpreter, with the arguments as variables.

use std::cell::RefCell;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use kube_cel::KubeCelExt as _;
use kube_cel::cel::common::ast::{CallExpr, Expr, IdedExpr};
use kube_cel::cel::{Context, ExecutionError, Value};
use regex::Regex;

use super::Failure;

thread_local! {
    static LIBRARY: Context<'static> = Context::default().with_all();
    static PATTERNS: RefCell<HashMap<String, Option<Regex>>> = RefCell::default();
}

fn ident(name: &str) -> IdedExpr {
    IdedExpr { id: 0, expr: Expr::Ident(name.to_owned()) }
}

pub fn function(name: &str, args: &[Value]) -> Result<Value, Failure> {
    run(name, None, None, args)
}

pub fn method(name: &str, target: &Value, args: &[Value]) -> Result<Value, Failure> {
    run(name, None, Some(target), args)
}

/// `math.abs(x)`: a function whose name has a dot.
pub fn qualified(prefix: &str, name: &str, args: &[Value]) -> Result<Value, Failure> {
    run(name, Some(prefix), None, args)
}

fn run(name: &str, prefix: Option<&str>, target: Option<&Value>, args: &[Value]) -> Result<Value, Failure> {
    let names: Vec<String> = (0..args.len()).map(|i| format!("@{i}")).collect();
    let receiver = match (prefix, target) {
        (Some(prefix), _) => Some(Box::new(ident(prefix))),
        (None, Some(_)) => Some(Box::new(ident("@self"))),
        (None, None) => None,
    };
    let call =
        CallExpr { func_name: name.to_owned(), target: receiver, args: names.iter().map(|n| ident(n)).collect() };
    let expr = IdedExpr { id: 0, expr: Expr::Call(call) };
    // The interpreter has corners where it panics; whoever finds one gets an error.
    let result = catch_unwind(AssertUnwindSafe(|| {
        LIBRARY.with(|library| {
            let mut context = library.new_inner_scope();
            for (name, value) in names.iter().zip(args) {
                context.add_variable_from_value(name.clone(), value.clone());
            }
            if let Some(target) = target {
                context.add_variable_from_value("@self", target.clone());
            }
            context.resolve(&expr)
        })
    }));
    match result {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(Failure::Error(describe(&error))),
        Err(_) => Err(Failure::Error(format!("internal error in function '{name}'"))),
    }
}

fn describe(error: &ExecutionError) -> String {
    match error {
        ExecutionError::FunctionError { message, .. } => message.clone(),
        ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
        ExecutionError::IndexOutOfBounds(_) => "index out of bounds".to_owned(),
        ExecutionError::DivisionByZero(_) => "division by zero".to_owned(),
        ExecutionError::RemainderByZero(_) => "modulus by zero".to_owned(),
        ExecutionError::Overflow(..) => "integer overflow".to_owned(),
        _ => "no such overload".to_owned(),
    }
}

/// Whether a text matches a pattern. Patterns are compiled once per thread, and not too many are kept.
pub fn matches(text: &str, pattern: &str) -> Result<bool, Failure> {
    PATTERNS.with_borrow_mut(|patterns| {
        if patterns.len() > 512 {
            patterns.clear();
        }
        let compiled = patterns
            .entry(pattern.to_owned())
            .or_insert_with(|| regex::RegexBuilder::new(pattern).size_limit(1 << 20).build().ok());
        match compiled {
            Some(regex) => Ok(regex.is_match(text)),
            None => Err(Failure::Error(format!("error parsing regexp: invalid pattern: `{pattern}`"))),
        }
    })
}
