//! Label selectors: what they hold, how they match, how they are written.

use std::fmt;

use serde_json::Value;

use super::parse;
use crate::field::{FieldError, FieldErrors};
use crate::names;
use crate::status::Status;

/// A conjunction of requirements. Without any it matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
    nothing: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    pub key: String,
    pub operator: Operator,
    /// Sorted, once it is part of a selector.
    pub values: Vec<String>,
}

/// Each object of a list is held against each term, so a request may not bring any number of them. An `in` with many
/// values is one.
pub const MAX_TERMS: usize = 100;

pub(super) fn too_many_terms(what: &str, got: usize) -> Status {
    Status::bad_request(format!(
        "the {what} selector has {got} terms; at most {MAX_TERMS} are allowed. Use fewer, or list without it and select in the client"
    ))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    Equals,
    DoubleEquals,
    NotEquals,
    In,
    NotIn,
    Exists,
    DoesNotExist,
    GreaterThan,
    LessThan,
}

impl LabelSelector {
    /// Reads the text of a `labelSelector` parameter.
    pub fn parse(text: &str) -> Result<Self, Status> {
        let requirements = parse::parse(text).map_err(Status::bad_request)?;
        if requirements.len() > MAX_TERMS {
            return Err(too_many_terms("label", requirements.len()));
        }
        Ok(Self::from_requirements(requirements))
    }

    /// Reads a `metav1.LabelSelector` object. Null selects nothing, an empty object everything.
    pub fn from_value(selector: &Value) -> Result<Self, Status> {
        if selector.is_null() {
            return Ok(Self::nothing());
        }
        let mut requirements = Vec::new();
        for (key, value) in selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten() {
            let value = value.as_str().unwrap_or_default().to_owned();
            requirements.push(Requirement::new(key, Operator::Equals, vec![value]).map_err(Status::bad_request)?);
        }
        for expression in selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
            requirements.push(from_expression(expression)?);
        }
        Ok(Self::from_requirements(requirements))
    }

    /// Equality with every pair, unchecked, as for a Service's `spec.selector`.
    pub fn from_pairs<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let pair = |(key, value): (&str, &str)| Requirement {
            key: key.to_owned(),
            operator: Operator::Equals,
            values: vec![value.to_owned()],
        };
        Self::from_requirements(pairs.into_iter().map(pair).collect())
    }

    pub fn everything() -> Self {
        Self::default()
    }

    pub fn nothing() -> Self {
        Self { requirements: Vec::new(), nothing: true }
    }

    /// Whether it restricts nothing.
    pub fn is_empty(&self) -> bool {
        !self.nothing && self.requirements.is_empty()
    }

    pub fn matches_nothing(&self) -> bool {
        self.nothing
    }

    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    pub fn matches<S: AsRef<str>>(&self, label: impl Fn(&str) -> Option<S>) -> bool {
        !self.nothing && self.requirements.iter().all(|r| r.matches(label(&r.key)))
    }

    /// Matches the labels of an object.
    pub fn matches_object(&self, object: &Value) -> bool {
        self.matches_labels(object.pointer("/metadata/labels").unwrap_or(&Value::Null))
    }

    /// Matches a map of labels.
    pub fn matches_labels(&self, labels: &Value) -> bool {
        self.matches(|key| labels.get(key).and_then(Value::as_str))
    }

    fn from_requirements(mut requirements: Vec<Requirement>) -> Self {
        for requirement in &mut requirements {
            // So that a value is found in a long list without looking at all of it.
            requirement.values.sort_unstable();
        }
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Self { requirements, nothing: false }
    }
}

fn from_expression(expression: &Value) -> Result<Requirement, Status> {
    let text = |name: &str| expression.get(name).and_then(Value::as_str).unwrap_or_default();
    let operator = match text("operator") {
        "In" => Operator::In,
        "NotIn" => Operator::NotIn,
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        other => return Err(Status::bad_request(format!("{other:?} is not a valid label selector operator"))),
    };
    let values = expression.get("values").and_then(Value::as_array).into_iter().flatten();
    let values = values.filter_map(Value::as_str).map(str::to_owned).collect();
    Requirement::new(text("key"), operator, values).map_err(Status::bad_request)
}

impl Requirement {
    /// A checked requirement, or what is wrong with it.
    pub fn new(key: &str, operator: Operator, values: Vec<String>) -> Result<Self, String> {
        let mut errors = FieldErrors::new();
        let complaints = names::qualified_name(key);
        if !complaints.is_empty() {
            errors.push(FieldError::invalid("key", &key.into(), &complaints.join("; ")));
        }
        let wrong_count = match operator {
            Operator::In | Operator::NotIn if values.is_empty() => {
                Some("for 'in', 'notin' operators, values set can't be empty")
            }
            Operator::Equals | Operator::DoubleEquals | Operator::NotEquals if values.len() != 1 => {
                Some("exact-match compatibility requires one single value")
            }
            Operator::Exists | Operator::DoesNotExist if !values.is_empty() => {
                Some("values set must be empty for exists and does not exist")
            }
            Operator::GreaterThan | Operator::LessThan if values.len() != 1 => {
                Some("for 'Gt', 'Lt' operators, exactly one value is required")
            }
            _ => None,
        };
        if let Some(problem) = wrong_count {
            errors.push(FieldError::invalid("values", &values.clone().into(), problem));
        }
        if matches!(operator, Operator::GreaterThan | Operator::LessThan) {
            for (i, value) in values.iter().enumerate() {
                if integer(value).is_none() {
                    let problem = "for 'Gt', 'Lt' operators, the value must be an integer";
                    errors.push(FieldError::invalid(format!("values[{i}]"), &value.as_str().into(), problem));
                }
            }
        }
        for (i, value) in values.iter().enumerate() {
            let complaints = names::label_value(value);
            if !complaints.is_empty() {
                let path = format!("values[{i}][{key}]");
                errors.push(FieldError::invalid(path, &value.as_str().into(), &complaints.join("; ")));
            }
        }
        if errors.is_empty() {
            Ok(Self { key: key.to_owned(), operator, values })
        } else {
            Err(FieldError::join(&errors))
        }
    }

    fn matches<S: AsRef<str>>(&self, value: Option<S>) -> bool {
        let value = value.as_ref().map(AsRef::as_ref);
        let listed = |v: &str| match self.values.as_slice() {
            [one] => one == v,
            many => many.binary_search_by(|have| have.as_str().cmp(v)).is_ok(),
        };
        let compare = |holds: fn(i64, i64) -> bool| {
            let bound = self.values.first().and_then(|v| integer(v));
            value.and_then(integer).zip(bound).is_some_and(|(v, bound)| holds(v, bound))
        };
        match self.operator {
            Operator::In | Operator::Equals | Operator::DoubleEquals => value.is_some_and(listed),
            Operator::NotIn | Operator::NotEquals => !value.is_some_and(listed),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::GreaterThan => compare(|v, bound| v > bound),
            Operator::LessThan => compare(|v, bound| v < bound),
        }
    }
}

/// Go's `strconv.ParseInt(s, 10, 64)`.
fn integer(text: &str) -> Option<i64> {
    text.parse().ok()
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, requirement) in self.requirements.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            requirement.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut values: Vec<&str> = self.values.iter().map(String::as_str).collect();
        values.sort_unstable();
        let (key, values) = (&self.key, values.join(","));
        match self.operator {
            Operator::Equals => write!(f, "{key}={values}"),
            Operator::DoubleEquals => write!(f, "{key}=={values}"),
            Operator::NotEquals => write!(f, "{key}!={values}"),
            Operator::In => write!(f, "{key} in ({values})"),
            Operator::NotIn => write!(f, "{key} notin ({values})"),
            Operator::Exists => f.write_str(key),
            Operator::DoesNotExist => write!(f, "!{key}"),
            Operator::GreaterThan => write!(f, "{key}>{values}"),
            Operator::LessThan => write!(f, "{key}<{values}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn matches(selector: &str, labels: Value) -> bool {
        LabelSelector::parse(selector).unwrap().matches_labels(&labels)
    }

    #[test]
    fn matching() {
        for (selector, labels, expected) in [
            ("", json!({}), true),
            ("a", json!({"a": ""}), true),
            ("a", json!({}), false),
            ("!a", json!({}), true),
            ("!a", json!({"a": "x"}), false),
            ("a=x", json!({"a": "x"}), true),
            ("a=x,b=y", json!({"a": "x"}), false),
            ("a!=x", json!({}), true),
            ("a!=x", json!({"a": "x"}), false),
            ("a=", json!({"a": ""}), true),
            ("a in (x,y)", json!({"a": "y"}), true),
            ("a in (x,y)", json!({}), false),
            ("a notin (x,y)", json!({}), true),
            ("a notin (x,y)", json!({"a": "x"}), false),
            ("a in ()", json!({"a": ""}), true),
            ("a>2", json!({"a": "10"}), true),
            ("a>2", json!({"a": "ten"}), false),
            ("a<2", json!({"a": "-1"}), true),
            ("a<2", json!({}), false),
        ] {
            assert_eq!(matches(selector, labels.clone()), expected, "{selector} on {labels}");
        }
    }

    #[test]
    fn canonical_text() {
        for (text, canonical) in [
            ("", ""),
            ("b , a", "a,b"),
            ("x in (b,a,,b)", "x in (,a,b)"),
            ("z==1,y!=2,x=3", "x=3,y!=2,z==1"),
            ("a notin (q)", "a notin (q)"),
            ("!n.io/a,m>1,l<4", "l<4,m>1,!n.io/a"),
            ("in in (in, notin)", "in in (in,notin)"),
        ] {
            assert_eq!(LabelSelector::parse(text).unwrap().to_string(), canonical, "{text}");
        }
    }

    #[test]
    fn selector_objects() {
        let selector = LabelSelector::from_value(&json!({"matchLabels": {"b": "1", "a": "2"}, "matchExpressions": [
            {"key": "c", "operator": "In", "values": ["y", "x"]}, {"key": "aa", "operator": "DoesNotExist"}]}));
        assert_eq!(selector.unwrap().to_string(), "a=2,!aa,b=1,c in (x,y)");
        assert!(LabelSelector::from_value(&json!({})).unwrap().is_empty());
        let nothing = LabelSelector::from_value(&Value::Null).unwrap();
        assert!(!nothing.is_empty() && !nothing.matches_labels(&json!({})));
        let wrong = LabelSelector::from_value(&json!({"matchExpressions": [{"key": "a", "operator": "Near"}]}));
        assert_eq!(wrong.unwrap_err().message, r#""Near" is not a valid label selector operator"#);
        let empty = LabelSelector::from_value(&json!({"matchExpressions": [{"key": "a", "operator": "In"}]}));
        assert_eq!(
            empty.unwrap_err().message,
            "values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty"
        );
    }

    proptest! {
        #[test]
        fn never_panics_and_reparses_to_itself(text in "[a-c=!(),<>0-9 in\u{e9}\0]{0,24}") {
            if let Ok(selector) = LabelSelector::parse(&text) {
                let again = LabelSelector::parse(&selector.to_string());
                prop_assert_eq!(again.map(|s| s.to_string()), Ok(selector.to_string()));
            }
        }
    }
}
