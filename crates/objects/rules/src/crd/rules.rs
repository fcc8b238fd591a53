//! `x-kubernetes-validations`: the rules of a schema, compiled once, and what they say of an object.

use std::collections::BTreeMap;

use cel::cost::Bound;
use cel::{COST_OF_ALL, Environment, Expression, Failure, Type, Value, typed};
use schema::field::{FieldError, FieldErrorKind, FieldErrors};
use schema::json_schema::{Additional, Node, Rule};
use serde_json::Value as Json;

use super::correlate::Pair;
use super::fieldpath;
use super::prune::join;

/// The rules of a node and of everything below it that has rules.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    own: Vec<Compiled>,
    resource: bool,
    properties: BTreeMap<Box<str>, Rules>,
    additional: Option<Box<Rules>>,
    items: Option<Box<Rules>>,
}

#[derive(Debug)]
struct Compiled {
    rule: Rule,
    program: Result<Expression, String>,
    message: Option<Expression>,
    uses_old: bool,
    /// Where below the node the error is told, or nothing.
    field: String,
}

/// What compiling a rule against the type of its place came to.
pub(crate) struct Verdict {
    pub(crate) rule_error: Option<String>,
    pub(crate) message_error: Option<String>,
    pub(crate) uses_old: bool,
    /// What the rule and its message may cost at most.
    pub(crate) cost: u64,
    pub(crate) message_cost: u64,
}

/// Compiles a rule strictly, as a definition that brings it is refused by.
pub(crate) fn verdict(rule: &Rule, ty: &Type, bound: Option<&Bound>) -> Verdict {
    let old = if rule.optional_old_self == Some(true) { Type::Optional(Box::new(ty.clone())) } else { ty.clone() };
    let environment = Environment::new([("self".to_owned(), ty.clone()), ("oldSelf".to_owned(), old)]);
    let mut verdict = Verdict { rule_error: None, message_error: None, uses_old: false, cost: 0, message_cost: 0 };
    let most = |expression: &Expression| bound.map_or(0, |bound| expression.most(bound));
    if rule.rule.trim().is_empty() {
        return verdict;
    }
    match Expression::compile(&rule.rule, &environment) {
        Ok((expression, Type::Bool | Type::Unknown)) => {
            verdict.uses_old = expression.reads("oldSelf");
            verdict.cost = most(&expression);
        }
        Ok(_) => verdict.rule_error = Some("cel expression must evaluate to a bool".to_owned()),
        Err(why) => verdict.rule_error = Some(format!("compilation failed: {why}")),
    }
    if verdict.rule_error.is_none() && !rule.message_expression.is_empty() {
        verdict.message_error = match Expression::compile(&rule.message_expression, &environment) {
            Ok((expression, Type::Text | Type::Unknown)) => {
                verdict.message_cost = most(&expression);
                None
            }
            Ok(_) => Some("messageExpression must evaluate to a string".to_owned()),
            Err(why) => Some(format!("messageExpression compilation failed: {why}")),
        };
    }
    verdict
}

impl Rules {
    /// `None` when there is no rule here or below.
    pub(crate) fn compile(node: &Node, resource: bool) -> Option<Self> {
        if !node.has_rules() {
            return None;
        }
        let below = |node: &Node| Self::compile(node, node.embedded);
        Some(Self {
            own: node.rules.iter().filter(|r| !r.rule.trim().is_empty()).map(|r| Compiled::new(r, node)).collect(),
            resource: resource || node.embedded,
            properties: node.properties.iter().filter_map(|(k, n)| Some((k.clone(), below(n)?))).collect(),
            additional: match &node.additional {
                Some(Additional::Schema(n)) => below(n).map(Box::new),
                _ => None,
            },
            items: node.items.as_deref().and_then(below).map(Box::new),
        })
    }

    /// What the rules say of an object; `base` is where it is.
    pub(crate) fn validate(&self, node: &Node, pair: Pair<'_>, base: &str) -> FieldErrors {
        self.validate_within(COST_OF_ALL, node, pair, base).0
    }

    /// The same for no more than so much, and whether that was too little.
    pub(crate) fn validate_within(&self, budget: u64, node: &Node, pair: Pair<'_>, base: &str) -> (FieldErrors, bool) {
        let mut run = Run { errors: FieldErrors::new(), budget, stopped: false };
        run.node(self, node, pair, pair, base);
        (run.errors, run.stopped || run.budget == 0)
    }
}

impl Compiled {
    fn new(rule: &Rule, node: &Node) -> Self {
        let program = Expression::parse(&rule.rule);
        let message = Expression::parse(&rule.message_expression).ok().filter(|_| !rule.message_expression.is_empty());
        let uses_old = program.as_ref().is_ok_and(|p| p.reads("oldSelf"));
        let field = fieldpath::resolve(&rule.field_path, node, true).map(|(path, _)| path).unwrap_or_default();
        Self { rule: rule.clone(), program, message, uses_old, field }
    }
}

struct Run {
    errors: FieldErrors,
    budget: u64,
    /// No further rules are run: the budget is used up.
    stopped: bool,
}

impl Run {
    /// `nearest` is the closest place around that is known in the old object: if nothing changed there, failures of
    /// rules that do not look at the old object are let pass.
    fn node(&mut self, rules: &Rules, node: &Node, pair: Pair<'_>, nearest: Pair<'_>, path: &str) {
        if self.stopped || pair.new.is_null() {
            return;
        }
        self.own(rules, node, pair, nearest, path);
        match pair.new {
            Json::Object(map) => {
                let correlate = |key: &str, new| {
                    if node.is_atomic_map() { Pair::created(new) } else { pair.key(key, new) }
                };
                for (key, value) in map {
                    if let (Some(rules), Some(Additional::Schema(child))) = (&rules.additional, &node.additional) {
                        let below = correlate(key, value);
                        self.node(rules, child, below, closest(below, nearest), &format!("{path}[{key}]"));
                    }
                    if let (Some(rules), Some(child)) =
                        (rules.properties.get(key.as_str()), node.properties.get(key.as_str()))
                    {
                        let below = correlate(key, value);
                        self.node(rules, child, below, closest(below, nearest), &join(path, key));
                    }
                }
            }
            Json::Array(list) => {
                if let (Some(rules), Some(child)) = (&rules.items, &node.items) {
                    let elements = pair.elements(node);
                    for (index, value) in list.iter().enumerate() {
                        let below = elements.pair(value);
                        self.node(rules, child, below, closest(below, nearest), &format!("{path}[{index}]"));
                    }
                }
            }
            _ => {}
        }
    }

    fn own(&mut self, rules: &Rules, node: &Node, pair: Pair<'_>, nearest: Pair<'_>, path: &str) {
        if rules.own.is_empty() {
            return;
        }
        let this = typed(pair.new, node, rules.resource);
        let old = pair.old.filter(|old| !old.is_null() && rules.own.iter().any(|r| r.uses_old));
        let old = old.map(|old| typed(old, node, rules.resource));
        for compiled in &rules.own {
            if self.stopped {
                return;
            }
            let maybe = compiled.rule.optional_old_self == Some(true);
            if compiled.uses_old && old.is_none() && !maybe {
                continue;
            }
            let mut variables = vec![("self", this.clone())];
            match (&old, maybe) {
                (Some(old), false) => variables.push(("oldSelf", old.clone())),
                (old, true) => variables.push(("oldSelf", cel::optional(old.clone()))),
                (None, false) => {}
            }
            self.rule(compiled, node, &variables, pair, nearest, path);
        }
    }

    fn rule(
        &mut self,
        compiled: &Compiled,
        node: &Node,
        variables: &[(&str, Value)],
        pair: Pair<'_>,
        nearest: Pair<'_>,
        path: &str,
    ) {
        let rule = &compiled.rule;
        let typed_error = |detail: &str| FieldError::invalid(path, &Json::from(&*node.ty), detail);
        let program = match &compiled.program {
            Ok(program) => program,
            Err(why) => {
                return self.errors.push(typed_error(&format!("rule compile error: compilation failed: {why}")));
            }
        };
        if self.budget == 0 {
            self.stopped = true;
            let why = "validation failed due to running out of cost budget, no further validation rules will be run";
            return self.errors.push(typed_error(why));
        }
        let error = match program.evaluate(variables, &mut self.budget) {
            Ok(Value::Bool(true)) => return,
            Ok(_) => {
                let error = self.failure(compiled, node, variables, pair, path);
                if !compiled.uses_old && nearest.unchanged() {
                    return;
                }
                error
            }
            Err(Failure::Cost) => {
                self.stopped = true;
                let why = "no further validation rules will be run due to call cost exceeds limit for rule";
                typed_error(&format!("'{}': {why}: {}", Failure::Cost, rule.title()))
            }
            Err(Failure::Error(why)) if why.starts_with("no such overload") => {
                let what = "call arguments did not match a supported operator, function or macro signature for rule";
                typed_error(&format!("'{why}': {what}: {}", rule.title()))
            }
            Err(Failure::Error(why)) => typed_error(&format!("{why} evaluating rule: {}", rule.title())),
        };
        self.errors.push(error);
    }

    fn failure(
        &mut self,
        compiled: &Compiled,
        node: &Node,
        variables: &[(&str, Value)],
        pair: Pair<'_>,
        path: &str,
    ) -> FieldError {
        let message = compiled.message.as_ref().and_then(|m| self.message(m, variables));
        let detail = message.unwrap_or_else(|| compiled.rule.failure());
        let path = if compiled.field.is_empty() { path.to_owned() } else { join(path, &compiled.field) };
        // Objects and lists are too large to show.
        let omit = matches!(&*node.ty, "object" | "array");
        match compiled.rule.reason.as_deref() {
            Some("FieldValueForbidden") => FieldError::forbidden(path, &detail),
            Some("FieldValueRequired") => FieldError::required(path, &detail),
            Some("FieldValueDuplicate") if omit => {
                FieldError { kind: FieldErrorKind::Duplicate, path, message: "Duplicate value".to_owned() }
            }
            Some("FieldValueDuplicate") => FieldError::duplicate(path, pair.new),
            _ if omit => {
                FieldError { kind: FieldErrorKind::Invalid, path, message: format!("Invalid value: {detail}") }
            }
            _ => FieldError::invalid(path, &schema::go::printable(pair.new), &detail),
        }
    }

    /// The message of an expression, if it is one line of text.
    fn message(&mut self, expression: &Expression, variables: &[(&str, Value)]) -> Option<String> {
        let Ok(Value::String(text)) = expression.evaluate(variables, &mut self.budget) else { return None };
        let text = text.trim();
        (!text.is_empty() && text.len() <= 5 * 1024 && !text.contains('\n')).then(|| text.to_owned())
    }
}

fn closest<'a>(below: Pair<'a>, nearest: Pair<'a>) -> Pair<'a> {
    if below.old.is_some() { below } else { nearest }
}
