//! When values are the same, and which of two is less.

use std::cmp::Ordering;

use super::meter::Meter;
use super::value::Value;
use super::{Evaluated, Failure, no_overload};

/// Whether two values are the same, however long that takes.
pub fn equal(a: &Value, b: &Value) -> bool {
    matches!(same(a, b, &mut |_| Ok::<(), ()>(())), Ok(true))
}

/// The same within a budget. Values that contain one another many times are larger than what they are made of, so that
/// what is compared beyond the values themselves is charged.
pub fn equal_within(a: &Value, b: &Value, meter: &mut Meter) -> Result<bool, Failure> {
    let mut free = Meter::size_of(a) + Meter::size_of(b) + 1;
    same(a, b, &mut |cost| {
        let covered = free.min(cost);
        free -= covered;
        meter.charge(cost - covered)
    })
}

fn same<E>(a: &Value, b: &Value, step: &mut dyn FnMut(u64) -> Result<(), E>) -> Result<bool, E> {
    step(1)?;
    Ok(match (a, b) {
        (Value::Null, Value::Null) => true,
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::String(a), Value::String(b)) => {
            a.len() == b.len() && {
                step(a.len() as u64 / 10)?;
                a == b
            }
        }
        (Value::Bytes(a), Value::Bytes(b)) => {
            a.len() == b.len() && {
                step(a.len() as u64 / 10)?;
                a == b
            }
        }
        (Value::List(a), Value::List(b)) => {
            if a.len() != b.len() {
                return Ok(false);
            }
            for (a, b) in a.iter().zip(b.iter()) {
                if !same(a, b, step)? {
                    return Ok(false);
                }
            }
            true
        }
        (Value::Map(a), Value::Map(b)) => {
            if a.len() != b.len() {
                return Ok(false);
            }
            for (key, a) in a.iter() {
                match b.get(key) {
                    Some(b) if same(a, b, step)? => {}
                    _ => return Ok(false),
                }
            }
            true
        }
        (Value::Duration(a), Value::Duration(b)) => a == b,
        (Value::Timestamp(a), Value::Timestamp(b)) => a == b,
        (Value::Type(a), Value::Type(b)) => a == b,
        (Value::Opaque(a), Value::Opaque(b)) => a == b,
        (Value::Optional(Some(a)), Value::Optional(Some(b))) => same(a, b, step)?,
        (Value::Optional(a), Value::Optional(b)) => a.is_none() && b.is_none(),
        _ => compare(a, b) == Some(Ordering::Equal),
    })
}

/// The order of two values; `None` where there is none, as for lists and what is not a number.
pub fn compare(a: &Value, b: &Value) -> Option<Ordering> {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => Some(a.cmp(b)),
        (Value::UInt(a), Value::UInt(b)) => Some(a.cmp(b)),
        (Value::Int(a), Value::UInt(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
        (Value::UInt(a), Value::Int(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
        (Value::Float(a), Value::Float(b)) => a.partial_cmp(b),
        (Value::Float(a), Value::Int(b)) => a.partial_cmp(&(*b as f64)),
        (Value::Int(a), Value::Float(b)) => (*a as f64).partial_cmp(b),
        (Value::Float(a), Value::UInt(b)) => a.partial_cmp(&(*b as f64)),
        (Value::UInt(a), Value::Float(b)) => (*a as f64).partial_cmp(b),
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        (Value::Bytes(a), Value::Bytes(b)) => Some(a.cmp(b)),
        (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
        (Value::Duration(a), Value::Duration(b)) => Some(a.cmp(b)),
        (Value::Timestamp(a), Value::Timestamp(b)) => Some(a.cmp(b)),
        _ => None,
    }
}

/// `<`, `<=`, `>` and `>=`. Nothing is less or greater than what is not a number.
pub fn ordered(name: &str, a: &Value, b: &Value) -> Evaluated {
    let number = |v: &Value| matches!(v, Value::Int(_) | Value::UInt(_) | Value::Float(_));
    let Some(order) = compare(a, b) else {
        return if number(a) && number(b) { Ok(Value::Bool(false)) } else { no_overload() };
    };
    Ok(Value::Bool(match name {
        "_<_" => order.is_lt(),
        "_<=_" => order.is_le(),
        "_>_" => order.is_gt(),
        _ => order.is_ge(),
    }))
}
