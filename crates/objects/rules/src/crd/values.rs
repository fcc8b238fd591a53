//! Types, bounds, patterns, enums, formats and alternatives, worded as upstream's OpenAPI validator words them.
//!
//! The order of the checks of one value is upstream's too: it decides which of several messages comes first.

use std::collections::HashSet;

use schema::field::{FieldError, FieldErrorKind, FieldErrors};
use schema::formats;
use schema::go;
use schema::json_schema::{Additional, Checks, Node};
use serde_json::{Map, Value};

use super::correlate::Pair;

/// At most this many values of an enumeration are told of.
const MAX_SHOWN: usize = 100;
/// At most this many errors are told of one object.
const MAX_ERRORS: usize = 1_000;

/// Everything wrong with the values below `base`. Where `pair` has an old value, what did not change is let pass.
pub(crate) fn validate(node: &Node, pair: Pair<'_>, base: &str) -> FieldErrors {
    let mut validator = Validator { base, name: String::new() };
    validator.ratcheted(node, pair).errors
}

#[derive(Default)]
struct Outcome {
    errors: FieldErrors,
    /// How many checks went well: of several failed alternatives the closest one is told about.
    matches: usize,
}

impl Outcome {
    fn merge(&mut self, other: Outcome) {
        let room = MAX_ERRORS.saturating_sub(self.errors.len());
        self.errors.extend(other.errors.into_iter().take(room));
        self.matches += other.matches;
    }
}

struct Validator<'a> {
    base: &'a str,
    /// Where we are below `base`; messages name it without the base.
    name: String,
}

impl Validator<'_> {
    fn path(&self) -> String {
        let name = self.name.strip_prefix('.').unwrap_or(&self.name);
        match (self.base, name) {
            (base, "") => base.to_owned(),
            ("", name) => name.to_owned(),
            (base, name) => format!("{base}.{name}"),
        }
    }

    fn invalid(&self, value: &Value, detail: &str) -> FieldError {
        let detail = format!("{} in body {detail}", self.name);
        FieldError::invalid(self.path(), &go::printable(value), &detail)
    }

    fn wrong_type(&self, expected: &str, got: &str) -> FieldError {
        let detail = format!("{} in body must be of type {expected}: {}", self.name, go::quoted(got));
        FieldError::type_invalid(self.path(), &Value::String(got.to_owned()), &detail)
    }

    /// An error about alternatives: upstream gives it no field of its own.
    fn composite(&self, detail: &str) -> FieldError {
        let message = format!("Invalid value: \"\": \"{}\" {detail}", self.name);
        FieldError { kind: FieldErrorKind::Invalid, path: self.base.to_owned(), message }
    }

    fn ratcheted(&mut self, node: &Node, pair: Pair<'_>) -> Outcome {
        let mut outcome = self.value(node, pair);
        if !outcome.errors.is_empty() && pair.unchanged() {
            outcome.errors.clear();
        }
        outcome
    }

    fn value(&mut self, node: &Node, pair: Pair<'_>) -> Outcome {
        let mut outcome = Outcome { errors: FieldErrors::new(), matches: 1 };
        let value = pair.new;
        match self.type_error(node, value) {
            Some(error) => outcome.errors.push(error),
            None => outcome.matches += 1,
        }
        let checks = &node.checks;
        if value.is_null() {
            self.enumeration(checks, value, &mut outcome);
            return outcome;
        }
        outcome.merge(self.alternatives(checks, pair));
        match value {
            Value::String(text) => {
                self.string(node, text, value, &mut outcome);
                self.enumeration(checks, value, &mut outcome);
            }
            Value::Number(_) => {
                self.range(node, value, &mut outcome);
                self.number(checks, value, &mut outcome);
                self.enumeration(checks, value, &mut outcome);
            }
            Value::Array(list) => {
                self.array(node, list, pair, &mut outcome);
                self.enumeration(checks, value, &mut outcome);
            }
            Value::Object(map) => {
                self.enumeration(checks, value, &mut outcome);
                outcome.merge(self.object(node, map, pair));
            }
            Value::Bool(_) | Value::Null => self.enumeration(checks, value, &mut outcome),
        }
        outcome
    }

    fn type_error(&self, node: &Node, value: &Value) -> Option<FieldError> {
        let types: &[&str] = if node.int_or_string { &["integer", "string"] } else { &[&node.ty] };
        let typed = types.iter().any(|t| !t.is_empty());
        if !typed && node.format.is_empty() {
            return None;
        }
        let expected = types.join(",");
        let (got, format) = match value {
            Value::Null if typed && !node.nullable => return Some(self.wrong_type(&expected, "null")),
            Value::Null => return None,
            Value::Bool(_) => ("boolean", ""),
            Value::String(_) => ("string", ""),
            Value::Array(_) => ("array", ""),
            Value::Object(_) => ("object", ""),
            Value::Number(n) if n.as_i64().is_none() => ("number", "float64"),
            Value::Number(_) => ("integer", "int64"),
        };
        let has = |ty: &str| types.contains(&ty);
        let whole_float = got == "number" && has("integer") && value.as_f64().is_some_and(is_whole);
        let int_as_number = got == "integer" && has("number");
        let fits = has(got) || whole_float || int_as_number;
        let texty = matches!(value, Value::String(_) | Value::Array(_));
        if !node.format.is_empty() {
            if !texty && !fits && format != &*node.format {
                return Some(self.wrong_type(&node.format, format));
            }
            if texty && !has("number") && !has("integer") {
                return None;
            }
        }
        (typed && !fits).then(|| self.wrong_type(&expected, got))
    }

    fn alternatives(&mut self, checks: &Checks, pair: Pair<'_>) -> Outcome {
        let mut outcome = Outcome::default();
        if !checks.any_of.is_empty() {
            let mut best: Option<Outcome> = None;
            let mut fits = false;
            for node in &checks.any_of {
                let tried = self.value(node, pair);
                if tried.errors.is_empty() {
                    fits = true;
                    best = Some(tried);
                    break;
                }
                if best.as_ref().is_none_or(|b| tried.matches > b.matches) {
                    best = Some(tried);
                }
            }
            if !fits {
                outcome.errors.push(self.composite("must validate at least one schema (anyOf)"));
            }
            best.into_iter().for_each(|best| outcome.merge(best));
        }
        if !checks.one_of.is_empty() {
            self.exactly_one(&checks.one_of, pair, &mut outcome);
        }
        if !checks.all_of.is_empty() {
            let mut fitting = 0;
            for node in &checks.all_of {
                let tried = self.value(node, pair);
                fitting += usize::from(tried.errors.is_empty());
                outcome.merge(tried);
            }
            if fitting != checks.all_of.len() {
                let none = if fitting == 0 { ". None validated" } else { "" };
                outcome.errors.push(self.composite(&format!("must validate all the schemas (allOf){none}")));
            }
        }
        if let Some(node) = &checks.not
            && self.value(node, pair).errors.is_empty()
        {
            outcome.errors.push(self.composite("must not validate the schema (not)"));
        }
        outcome.matches += 1;
        outcome
    }

    fn exactly_one(&mut self, nodes: &[Node], pair: Pair<'_>, outcome: &mut Outcome) {
        let mut fitting = 0;
        let mut best: Option<Outcome> = None;
        let mut first: Option<Outcome> = None;
        for node in nodes {
            let tried = self.value(node, pair);
            if tried.errors.is_empty() {
                fitting += 1;
                best = None;
                first.get_or_insert(tried);
            } else if fitting == 0 && best.as_ref().is_none_or(|b| tried.matches > b.matches) {
                best = Some(tried);
            }
        }
        if fitting == 1 {
            first.into_iter().for_each(|first| outcome.merge(first));
            return;
        }
        let found = match fitting {
            0 => "Found none valid".to_owned(),
            n => format!("Found {n} valid alternatives"),
        };
        outcome.errors.push(self.composite(&format!("must validate one and only one schema (oneOf). {found}")));
        best.into_iter().for_each(|best| outcome.merge(best));
    }

    fn string(&self, node: &Node, text: &str, value: &Value, outcome: &mut Outcome) {
        let checks = &node.checks;
        let length = text.chars().count() as i64;
        if let Some(max) = checks.max_length.filter(|max| length > *max) {
            outcome.errors.push(FieldError::too_long(self.path(), usize::try_from(max).unwrap_or(0)));
        } else if let Some(min) = checks.min_length.filter(|min| length < *min) {
            outcome.errors.push(self.invalid(value, &format!("should be at least {min} chars long")));
        } else if let Some((pattern, _)) = checks.pattern.as_ref().filter(|(_, regex)| !regex.is_match(text)) {
            outcome.errors.push(self.invalid(value, &format!("should match '{pattern}'")));
        } else {
            outcome.matches += 1;
        }
        if !node.format.is_empty() {
            if formats::matches(&node.format, text) {
                outcome.matches += 1;
            } else {
                outcome.errors.push(self.wrong_type(&node.format, text));
            }
        }
    }

    /// Whether a number fits into what its type and format are kept in.
    fn range(&self, node: &Node, value: &Value, outcome: &mut Outcome) {
        if &*node.ty != "integer" {
            return;
        }
        let whole = value.as_i64().or_else(|| value.as_f64().filter(|f| is_whole(*f)).map(|f| f as i64));
        let fits = match &*node.format {
            "int32" => whole.is_some_and(|n| i32::try_from(n).is_ok()),
            "uint32" => whole.is_some_and(|n| u32::try_from(n).is_ok()),
            _ => whole.is_some(),
        };
        if !fits {
            let format = match &*node.format {
                "" => "(default format)".to_owned(),
                format => format!("with format {format}"),
            };
            let message =
                format!("Invalid value: \"\": Checked value must be of type integer {format} in {}", self.name);
            let path = self.base.to_owned();
            outcome.errors.push(FieldError { kind: FieldErrorKind::Invalid, path, message });
        }
    }

    fn number(&self, checks: &Checks, value: &Value, outcome: &mut Outcome) {
        let Some(number) = value.as_f64() else { return };
        if let Some(factor) = checks.multiple_of {
            let times = if factor.abs() < 1.0 { 1.0 / factor * number } else { number / factor };
            if factor <= 0.0 {
                let detail =
                    format!("factor MultipleOf declared for {} must be positive: {}", self.name, go::float(factor));
                outcome.errors.push(FieldError::invalid(self.path(), &go::printable(&factor.into()), &detail));
            } else if !is_whole(times) {
                outcome.errors.push(self.invalid(value, &format!("should be a multiple of {}", go::float(factor))));
            }
        }
        if let Some(max) = checks.maximum {
            let (wrong, how) = match checks.exclusive_maximum {
                true => (number >= max, "less than"),
                false => (number > max, "less than or equal to"),
            };
            if wrong {
                outcome.errors.push(self.invalid(value, &format!("should be {how} {}", go::float(max))));
            }
        }
        if let Some(min) = checks.minimum {
            let (wrong, how) = match checks.exclusive_minimum {
                true => (number <= min, "greater than"),
                false => (number < min, "greater than or equal to"),
            };
            if wrong {
                outcome.errors.push(self.invalid(value, &format!("should be {how} {}", go::float(min))));
            }
        }
        outcome.matches += 1;
    }

    fn array(&mut self, node: &Node, list: &[Value], pair: Pair<'_>, outcome: &mut Outcome) {
        let length = self.name.len();
        if let Some(items) = &node.items {
            let elements = pair.elements(node);
            for (index, item) in list.iter().enumerate() {
                self.name.push_str(&format!("[{index}]"));
                outcome.merge(self.ratcheted(items, elements.pair(item)));
                self.name.truncate(length);
            }
        }
        let checks = &node.checks;
        let size = list.len() as i64;
        if let Some(min) = checks.min_items.filter(|min| size < *min) {
            outcome.errors.push(self.invalid(&size.into(), &format!("should have at least {min} items")));
        }
        if let Some(max) = checks.max_items.filter(|max| size > *max) {
            outcome.errors.push(FieldError::too_many(self.path(), list.len(), usize::try_from(max).unwrap_or(0)));
        }
        let mut seen = HashSet::new();
        if checks.unique_items && !list.iter().all(|item| seen.insert(item)) {
            outcome.errors.push(self.invalid(&Value::String(String::new()), "shouldn't contain duplicates"));
        }
        outcome.matches += 1;
    }

    fn object(&mut self, node: &Node, map: &Map<String, Value>, pair: Pair<'_>) -> Outcome {
        let mut outcome = Outcome::default();
        let size = map.len() as i64;
        if let Some(min) = node.checks.min_properties.filter(|min| size < *min) {
            outcome.errors.push(self.invalid(&size.into(), &format!("should have at least {min} properties")));
            return outcome;
        }
        if let Some(max) = node.checks.max_properties.filter(|max| size > *max) {
            outcome.errors.push(FieldError::too_many(self.path(), map.len(), usize::try_from(max).unwrap_or(0)));
            return outcome;
        }
        let length = self.name.len();
        for (key, value) in map {
            let child = match node.properties.get(key.as_str()) {
                Some(child) => {
                    if length > 0 {
                        self.name.push('.');
                    }
                    child
                }
                None => {
                    let Some(Additional::Schema(child)) = &node.additional else { continue };
                    self.name.push('.');
                    child
                }
            };
            self.name.push_str(key);
            outcome.merge(self.ratcheted(child, pair.key(key, value)));
            self.name.truncate(length);
        }
        for required in node.required.iter().filter(|name| !map.contains_key(&***name)) {
            self.name.push('.');
            self.name.push_str(required);
            outcome.errors.push(FieldError::required(self.path(), ""));
            self.name.truncate(length);
        }
        outcome
    }

    fn enumeration(&self, checks: &Checks, value: &Value, outcome: &mut Outcome) {
        if checks.allowed.is_empty() || checks.allows(value) {
            outcome.matches += 1;
            return;
        }
        // A long list is not told whole: it would be told again for every value that is not in it.
        let texts: Vec<String> = checks
            .allowed
            .iter()
            .take(MAX_SHOWN)
            .map(|allowed| allowed.as_str().map_or_else(|| go::printable(allowed).to_string(), str::to_owned))
            .collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        outcome.errors.push(FieldError::not_supported(self.path(), &go::printable(value), &texts));
    }
}

/// Whether a float is an integer that JSON can carry, give or take rounding.
fn is_whole(value: f64) -> bool {
    const LARGEST: f64 = 9_007_199_254_740_991.0;
    if !value.is_finite() || value.abs() > LARGEST {
        return false;
    }
    let nearest = value.round();
    value == nearest || ((value - nearest).abs() / (value.abs() + nearest.abs())) < 1e-9
}
