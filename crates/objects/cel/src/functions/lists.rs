//! Functions of lists.

use std::cmp::Ordering;
use std::sync::Arc;

use super::super::compare::{compare, equal_within};
use super::super::eval;
use super::super::meter::Meter;
use super::super::value::Value;
use super::super::{Evaluated, Failure, error, no_overload};

pub fn method(name: &str, of: &Arc<Vec<Value>>, args: &[Value], meter: &mut Meter) -> Evaluated {
    match (name, args) {
        ("size", []) => Ok(Value::Int(of.len() as i64)),
        ("isSorted", []) => is_sorted(of, meter),
        ("sum", []) => sum(of),
        ("min", []) => extreme("min", Ordering::Greater, of, meter),
        ("max", []) => extreme("max", Ordering::Less, of, meter),
        ("indexOf", [item]) => position(of, item, meter).map(place),
        ("lastIndexOf", [item]) => last_position(of, item, meter).map(place),
        ("join", []) => join(of, "", meter),
        ("join", [Value::String(by)]) => join(of, by, meter),
        ("slice", [Value::Int(from), Value::Int(to)]) => slice(of, *from, *to),
        ("flatten", []) => flatten(of, 1, meter),
        ("flatten", [Value::Int(depth)]) => flatten(of, *depth, meter),
        ("sort", []) => sort(of, meter),
        ("reverse", []) => Ok(Value::list(of.iter().rev().cloned().collect())),
        ("distinct", []) => distinct(of, meter),
        ("first", []) => Ok(Value::Optional(of.first().cloned().map(Arc::new))),
        ("last", []) => Ok(Value::Optional(of.last().cloned().map(Arc::new))),
        ("unwrapOpt", []) => unwrap(of),
        _ => no_overload(),
    }
}

/// `optional.unwrap`: what is there.
pub fn unwrap(of: &[Value]) -> Evaluated {
    let mut out = Vec::new();
    for item in of {
        match item {
            Value::Optional(inner) => out.extend(inner.as_ref().map(|inner| (**inner).clone())),
            _ => return no_overload(),
        }
    }
    Ok(Value::list(out))
}

/// `lists.range`.
pub fn range(count: i64) -> Value {
    Value::list((0..count).map(Value::Int).collect())
}

fn place(found: Option<usize>) -> Value {
    Value::Int(found.map_or(-1, |at| at as i64))
}

/// Where something is in a list.
pub fn position(of: &[Value], item: &Value, meter: &mut Meter) -> Result<Option<usize>, Failure> {
    for (at, other) in of.iter().enumerate() {
        if equal_within(other, item, meter)? {
            return Ok(Some(at));
        }
    }
    Ok(None)
}

fn last_position(of: &[Value], item: &Value, meter: &mut Meter) -> Result<Option<usize>, Failure> {
    for (at, other) in of.iter().enumerate().rev() {
        if equal_within(other, item, meter)? {
            return Ok(Some(at));
        }
    }
    Ok(None)
}

/// What comparing each element with another once costs beyond the length of the list.
fn charge_elements(of: &[Value], times: u64, meter: &mut Meter) -> Result<(), Failure> {
    let size = of.iter().map(Meter::size_of).fold(0, u64::saturating_add);
    meter.charge(size.saturating_mul(times))
}

fn comparable(value: &Value) -> bool {
    compare(value, value).is_some() || matches!(value, Value::Float(_))
}

fn is_sorted(of: &[Value], meter: &mut Meter) -> Evaluated {
    charge_elements(of, 1, meter)?;
    if !of.iter().all(comparable) {
        return no_overload();
    }
    Ok((!of.windows(2).any(|pair| compare(&pair[0], &pair[1]) == Some(Ordering::Greater))).into())
}

fn sum(of: &[Value]) -> Evaluated {
    let Some((first, rest)) = of.split_first() else { return Ok(Value::Int(0)) };
    if !matches!(first, Value::Int(_) | Value::UInt(_) | Value::Float(_) | Value::Duration(_)) {
        return no_overload();
    }
    rest.iter().try_fold(first.clone(), |sum, next| eval::arithmetic("_+_", &sum, next))
}

/// The least or greatest element: `worse` is how one compares that gives way to the next.
fn extreme(name: &str, worse: Ordering, of: &[Value], meter: &mut Meter) -> Evaluated {
    charge_elements(of, 1, meter)?;
    if !of.iter().all(comparable) {
        return no_overload();
    }
    let best = of.iter().reduce(|best, next| if compare(best, next) == Some(worse) { next } else { best });
    best.cloned().map_or_else(|| error(format!("{name} called on empty list")), Ok)
}

fn join(of: &[Value], by: &str, meter: &mut Meter) -> Evaluated {
    let mut parts = Vec::with_capacity(of.len());
    for item in of {
        let Value::String(text) = item else {
            let shown = super::standard::text_of(item).unwrap_or_default();
            return error(format!("join: invalid input: {shown}"));
        };
        meter.charge_bytes(text.len())?;
        parts.push(&**text);
    }
    Ok(parts.join(by).into())
}

fn slice(of: &[Value], from: i64, to: i64) -> Evaluated {
    let wrong = |why: String| error(format!("cannot slice({from}, {to}), {why}"));
    if from < 0 || to < 0 {
        return wrong("negative indexes not supported".to_owned());
    }
    if from > to {
        return wrong("start index must be less than or equal to end index".to_owned());
    }
    match usize::try_from(from).ok().zip(usize::try_from(to).ok()).and_then(|(from, to)| of.get(from..to)) {
        Some(part) => Ok(Value::list(part.to_vec())),
        None => wrong(format!("list is length {}", of.len())),
    }
}

fn flatten(of: &[Value], depth: i64, meter: &mut Meter) -> Evaluated {
    fn add(of: &[Value], depth: i64, out: &mut Vec<Value>, meter: &mut Meter) -> Result<(), Failure> {
        for item in of {
            match item {
                Value::List(inner) if depth > 0 => {
                    meter.charge(inner.len() as u64)?;
                    add(inner, depth - 1, out, meter)?;
                }
                item => out.push(item.clone()),
            }
        }
        Ok(())
    }
    if depth < 0 {
        return error("level must be non-negative");
    }
    let mut out = Vec::with_capacity(of.len());
    add(of, depth, &mut out, meter)?;
    Ok(Value::list(out))
}

/// Sorts by keys of the same type.
pub fn sorted(mut pairs: Vec<(Value, Value)>, meter: &mut Meter) -> Result<Vec<Value>, Failure> {
    let Some((_, first)) = pairs.first() else { return Ok(Vec::new()) };
    if !comparable(first) {
        return error("list elements must be comparable");
    }
    let ty = first.type_name();
    if pairs.iter().any(|(_, key)| key.type_name() != ty) {
        return error("list elements must have the same type");
    }
    let rounds = u64::from(usize::BITS - pairs.len().leading_zeros());
    let size = pairs.iter().map(|(_, key)| Meter::size_of(key)).fold(0, u64::saturating_add);
    meter.charge(size.saturating_mul(rounds))?;
    pairs.sort_by(|(_, a), (_, b)| compare(a, b).unwrap_or_else(|| numbers_last(a, b)));
    Ok(pairs.into_iter().map(|(item, _)| item).collect())
}

/// A total order for what is not a number.
fn numbers_last(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Float(a), Value::Float(b)) => b.is_nan().cmp(&a.is_nan()),
        _ => Ordering::Equal,
    }
}

fn sort(of: &[Value], meter: &mut Meter) -> Evaluated {
    sorted(of.iter().map(|item| (item.clone(), item.clone())).collect(), meter).map(Value::list)
}

fn distinct(of: &[Value], meter: &mut Meter) -> Evaluated {
    let mut kept: Vec<Value> = Vec::new();
    for item in of {
        // Each is compared with all that were kept.
        meter.charge(kept.len() as u64 / 2)?;
        if position(&kept, item, meter)?.is_none() {
            kept.push(item.clone());
        }
    }
    Ok(Value::list(kept))
}

pub mod sets {
    //! `sets.contains`, `sets.equivalent` and `sets.intersects`: lists as sets.

    use super::{Evaluated, Failure, Meter, Value, no_overload, position};

    pub fn call(name: &str, args: &[Value], meter: &mut Meter) -> Evaluated {
        let [Value::List(a), Value::List(b)] = args else { return no_overload() };
        let answer = match name {
            "contains" => contains(a, b, meter)?,
            "equivalent" => contains(a, b, meter)? && contains(b, a, meter)?,
            "intersects" => {
                let mut found = false;
                for item in a.iter() {
                    meter.charge(b.len() as u64)?;
                    found = found || position(b, item, meter)?.is_some();
                }
                found
            }
            _ => return no_overload(),
        };
        Ok(answer.into())
    }

    fn contains(all: &[Value], some: &[Value], meter: &mut Meter) -> Result<bool, Failure> {
        for item in some {
            meter.charge(all.len() as u64)?;
            if position(all, item, meter)?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
