//! Quantities: `quantity('1Gi')`.

use std::cmp::Ordering;

use schema::quantity::Quantity;

use super::super::value::{Opaque, Value};
use super::super::{Evaluated, error, no_overload};

fn made(quantity: Quantity) -> Value {
    Value::opaque(Opaque::Quantity(quantity))
}

pub fn parse(text: &str) -> Evaluated {
    Quantity::parse(text).map(made).or_else(|why| error(why.to_string()))
}

pub fn method(name: &str, of: &Quantity, args: &[Value]) -> Evaluated {
    let other = match args {
        [] => None,
        [Value::Int(n)] if matches!(name, "add" | "sub") => Some(Quantity::from_int(*n)),
        [Value::Opaque(other)] => match &**other {
            Opaque::Quantity(other) => Some(other.clone()),
            _ => return no_overload(),
        },
        _ => return no_overload(),
    };
    match (name, other) {
        ("sign", None) => Ok(Value::Int(of.cmp(&Quantity::zero()) as i64)),
        ("isInteger", None) => Ok(of.as_int().is_some().into()),
        ("asInteger", None) => {
            of.as_int().map_or_else(|| error("cannot convert value to integer"), |n| Ok(Value::Int(n)))
        }
        ("asApproximateFloat", None) => Ok(Value::Float(of.approximate())),
        ("add", Some(other)) => {
            let mut sum = of.clone();
            sum.add(&other);
            Ok(made(sum))
        }
        ("sub", Some(other)) => {
            let mut rest = of.clone();
            rest.sub(&other);
            Ok(made(rest))
        }
        ("compareTo", Some(other)) => Ok(Value::Int(of.cmp(&other) as i64)),
        ("isGreaterThan", Some(other)) => Ok((of.cmp(&other) == Ordering::Greater).into()),
        ("isLessThan", Some(other)) => Ok((of.cmp(&other) == Ordering::Less).into()),
        _ => no_overload(),
    }
}
