//! `x-kubernetes-validations` of a definition: whether they are well formed, compile, and do not cost too much.

use std::cell::OnceCell;

use cel::Type;
use cel::cost::Bound;
use schema::field::{FieldError, FieldErrors};
use schema::json_schema::{Additional, Node, Rule};
use serde_json::{Map, Value, json};

use super::show;
use crate::crd::fieldpath;
use crate::crd::rules::verdict;

const REASONS: &[&str] = &["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// What one expression may cost by estimate, and all of one version.
const MOST_OF_ONE: u64 = 10_000_000;
const MOST_OF_ALL: u64 = 100_000_000;
/// At most this many of the most expensive rules are named, each of at least a hundredth of what is allowed.
const NAMED: usize = 4;

/// A place of the schema where rules can be.
#[derive(Clone, Copy)]
pub(super) struct Ruled<'n> {
    pub(super) node: &'n Node,
    pub(super) bound: Option<&'n Bound>,
    /// How often it can occur in an object, if all lists and maps around it are bounded.
    pub(super) times: Option<u64>,
}

impl<'n> Ruled<'n> {
    pub(super) fn property(self, name: &str) -> Option<Self> {
        let node = self.node.properties.get(name)?;
        Some(Self { node, bound: self.bound.and_then(|bound| bound.property(name)), times: self.times_below() })
    }

    pub(super) fn items(self) -> Option<Self> {
        let node = self.node.items.as_deref()?;
        Some(Self { node, bound: self.bound.and_then(Bound::element), times: self.times_below() })
    }

    /// The values of a map.
    pub(super) fn value(self) -> Option<Self> {
        let Some(Additional::Schema(node)) = &self.node.additional else { return None };
        Some(Self { node, bound: self.bound.and_then(Bound::element), times: self.times_below() })
    }

    fn times_below(self) -> Option<u64> {
        let count = |most: Option<i64>| most.map(|most| u64::try_from(most).unwrap_or(0));
        let factor = match &*self.node.ty {
            "object" if self.node.additional.is_some() => count(self.node.checks.max_properties)?,
            "array" => count(self.node.checks.max_items)?,
            _ => 1,
        };
        self.times.map(|times| times.saturating_mul(factor))
    }

    /// What an expression here may cost for a whole object.
    fn whole(self, cost: u64) -> u64 {
        let times = self.times.or(self.bound.map(Bound::repetitions)).unwrap_or(1);
        cost.saturating_mul(times)
    }
}

/// What all rules of a version may cost.
#[derive(Default)]
pub(super) struct Total {
    sum: u64,
    expensive: Vec<(u64, String)>,
}

impl Total {
    fn add(&mut self, path: String, cost: u64) {
        self.sum = self.sum.saturating_add(cost);
        if cost >= MOST_OF_ALL / 100 {
            self.expensive.push((cost, path));
            self.expensive.sort_by_key(|(cost, _)| std::cmp::Reverse(*cost));
            self.expensive.truncate(NAMED);
        }
    }

    pub(super) fn judge(self, path: &str, errors: &mut FieldErrors) {
        if self.sum <= MOST_OF_ALL {
            return;
        }
        for (_, path) in self.expensive {
            let why = "contributed to estimated rule & messageExpression cost total exceeding cost limit for entire \
                       OpenAPIv3 schema";
            errors.push(FieldError::forbidden(path, why));
        }
        let what = "x-kubernetes-validations estimated rule & messageExpression cost total for entire OpenAPIv3 schema";
        errors.push(FieldError::forbidden(path, &exceeded(what, self.sum, MOST_OF_ALL)));
    }
}

fn exceeded(what: &str, cost: u64, most: u64) -> String {
    let factor = cost as f64 / most as f64;
    let factor = match factor {
        factor if factor > 100.0 => "more than 100x".to_owned(),
        factor if factor < 1.5 => format!("{factor:.6}x"),
        factor => format!("{factor:.1}x"),
    };
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and \
         maxLength where arrays, maps, and strings are declared)"
    )
}

/// Whether an error is about what rules may cost.
pub fn is_about_cost(error: &FieldError) -> bool {
    error.message.contains(" exceeds budget by factor of ")
        || error.message.contains(" cost total exceeding cost limit ")
}

/// The fields of rules.
pub(super) fn fields(rules: &[Rule], map: &Map<String, Value>, path: &str, errors: &mut FieldErrors) {
    let node = OnceCell::new();
    for (index, rule) in rules.iter().enumerate() {
        let place = format!("{path}.x-kubernetes-validations[{index}]");
        let node = || node.get_or_init(|| Node::compile(&Value::Object(map.clone())));
        rule_fields(rule, node, &place, errors);
    }
}

fn rule_fields<'n>(rule: &Rule, node: impl FnOnce() -> &'n Node, path: &str, errors: &mut FieldErrors) {
    let lines = |text: &str| text.contains(['\n', '\r']);
    let (trimmed, message) = (rule.rule.trim(), rule.message.trim());
    let at = |key: &str| format!("{path}.{key}");
    if trimmed.is_empty() {
        errors.push(FieldError::required(at("rule"), "rule is not specified"));
    } else if !rule.message.is_empty() && message.is_empty() {
        errors.push(FieldError::invalid(at("message"), &json!(rule.message), "must be non-empty if specified"));
    } else if lines(message) {
        errors.push(FieldError::invalid(at("message"), &json!(rule.message), "must not contain line breaks"));
    } else if lines(trimmed) && message.is_empty() {
        let why = "message must be specified if rule contains line breaks";
        errors.push(FieldError::required(at("message"), why));
    }
    if !rule.message_expression.is_empty() && rule.message_expression.trim().is_empty() {
        let why = "messageExpression must be non-empty if specified";
        errors.push(FieldError::required(at("messageExpression"), why));
    }
    if let Some(reason) = rule.reason.as_deref().filter(|r| !REASONS.contains(r)) {
        errors.push(FieldError::not_supported(at("reason"), &json!(reason), REASONS));
    }
    if rule.field_path.is_empty() {
        return;
    }
    let shown = json!(rule.field_path);
    if rule.field_path.trim().is_empty() {
        errors.push(FieldError::invalid(at("fieldPath"), &shown, "must be non-empty if specified"));
    }
    if lines(&rule.field_path) {
        errors.push(FieldError::invalid(at("fieldPath"), &shown, "must not contain line breaks"));
    }
    if fieldpath::resolve(&rule.field_path, node(), true).is_err() {
        errors.push(FieldError::invalid(at("fieldPath"), &shown, "must be a valid path"));
    }
}

/// Compiles the rules of a place. `root` says that it is the root of a version, and the other within what no rule may
/// look at the old object.
pub(super) fn compile(
    rules: &[Rule],
    here: Ruled<'_>,
    path: &str,
    (root, uncorrelatable): (bool, Option<&str>),
    total: &mut Total,
    errors: &mut FieldErrors,
) {
    let node = here.node;
    let Some(ty) = Type::of(node, root || node.embedded, "object") else {
        let why = "internal error: failed to retrieve type information for x-kubernetes-validations";
        errors.push(FieldError::internal(format!("{path}.x-kubernetes-validations"), why));
        return;
    };
    for (index, rule) in rules.iter().enumerate() {
        let at = |key: &str| format!("{path}.x-kubernetes-validations[{index}].{key}");
        let verdict = verdict(rule, &ty, here.bound);
        let cost = here.whole(verdict.cost);
        if cost > MOST_OF_ONE {
            errors.push(FieldError::forbidden(at("rule"), &exceeded("estimated rule cost", cost, MOST_OF_ONE)));
        }
        total.add(at("rule"), cost);
        if let Some(why) = &verdict.rule_error {
            errors.push(show::invalid(at("rule"), &show::rule(rule), why));
        }
        if let Some(why) = &verdict.message_error {
            errors.push(show::invalid(at("messageExpression"), &show::rule(rule), why));
        } else if verdict.message_cost > MOST_OF_ONE {
            let why = exceeded("estimated messageExpression cost", verdict.message_cost, MOST_OF_ONE);
            errors.push(FieldError::forbidden(at("messageExpression"), &why));
        }
        total.add(at("messageExpression"), verdict.message_cost);
        match (uncorrelatable, rule.optional_old_self) {
            (Some(within), _) if verdict.uses_old => {
                let why = format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {within}");
                errors.push(FieldError::invalid(at("rule"), &json!(rule.rule), &why));
            }
            (_, Some(flag)) if !verdict.uses_old => {
                let why = "may not be set if oldSelf is not used in rule";
                errors.push(FieldError::invalid(at("optionalOldSelf"), &json!(flag), why));
            }
            _ => {}
        }
    }
}
