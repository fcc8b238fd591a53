//! Statuses of kinds of which nothing is known: what all edges agree on, the smaller number, and what is true on all of
//! them.

use serde_json::{Map, Value};

use super::{Reported, conditions};

/// No status is nested deeper than this as far as it is looked at.
const DEEPEST: usize = 16;

pub fn statuses(all: &[Reported<'_>]) -> Value {
    let nothing = Value::Object(Map::new());
    let found: Vec<&Value> = all.iter().map(|one| one.status.unwrap_or(&nothing)).collect();
    let mut status = match merged(&found, 0) {
        Some(Value::Object(status)) => status,
        _ => Map::new(),
    };
    status.remove("conditions");
    let conditions = conditions::all(all);
    if !conditions.is_empty() {
        status.insert("conditions".to_owned(), conditions.into());
    }
    Value::Object(status)
}

/// What several values have in common; `None` if that is nothing.
fn merged(all: &[&Value], depth: usize) -> Option<Value> {
    let first = *all.first()?;
    match first {
        _ if all.iter().all(|value| *value == first) => Some(first.clone()),
        Value::Bool(_) if all.iter().all(|value| value.is_boolean()) => Some(false.into()),
        Value::Number(_) if all.iter().all(|value| value.is_number()) => {
            let smaller = |a: &&&Value, b: &&&Value| a.as_f64().unwrap_or(0.0).total_cmp(&b.as_f64().unwrap_or(0.0));
            all.iter().min_by(smaller).map(|value| (*value).clone())
        }
        Value::Object(fields) if depth < DEEPEST => {
            let of = |name: &String| {
                let values: Option<Vec<&Value>> = all.iter().map(|value| value.get(name)).collect();
                Some((name.clone(), merged(&values?, depth + 1)?))
            };
            Some(Value::Object(fields.keys().filter_map(of).collect()))
        }
        _ => None,
    }
}
