//! `math.*`.

use std::cmp::Ordering;

use super::super::compare::compare;
use super::super::value::Value;
use super::super::{Evaluated, error, no_overload};

pub fn call(name: &str, args: &[Value]) -> Evaluated {
    match (name, args) {
        ("greatest", args) => extreme("math.@max", Ordering::Less, args),
        ("least", args) => extreme("math.@min", Ordering::Greater, args),
        ("abs", [Value::Int(n)]) => n.checked_abs().map_or_else(|| error("integer overflow"), |n| Ok(Value::Int(n))),
        ("abs" | "sign", [Value::UInt(n)]) => Ok(Value::UInt(if name == "sign" { (*n).min(1) } else { *n })),
        ("sign", [Value::Int(n)]) => Ok(Value::Int(n.signum())),
        ("sign", [Value::Float(f)]) if *f == 0.0 => Ok(Value::Float(0.0)),
        ("sqrt", [Value::Int(n)]) => Ok(Value::Float((*n as f64).sqrt())),
        ("sqrt", [Value::UInt(n)]) => Ok(Value::Float((*n as f64).sqrt())),
        ("isNaN", [Value::Float(f)]) => Ok(f.is_nan().into()),
        ("isInf", [Value::Float(f)]) => Ok(f.is_infinite().into()),
        ("isFinite", [Value::Float(f)]) => Ok(f.is_finite().into()),
        (_, [Value::Float(f)]) => Ok(Value::Float(match name {
            "abs" => f.abs(),
            "sign" if f.is_nan() => *f,
            "sign" => f.signum(),
            "sqrt" => f.sqrt(),
            "ceil" => f.ceil(),
            "floor" => f.floor(),
            // Away from zero, as Go has it.
            "round" => f.round(),
            "trunc" => f.trunc(),
            _ => return no_overload(),
        })),
        ("bitNot", [Value::Int(n)]) => Ok(Value::Int(!n)),
        ("bitNot", [Value::UInt(n)]) => Ok(Value::UInt(!n)),
        ("bitShiftLeft" | "bitShiftRight", [_, Value::Int(bits)]) if *bits < 0 => {
            error(format!("math.{name}() negative offset: {bits}"))
        }
        ("bitShiftLeft", [Value::Int(n), Value::Int(bits)]) => Ok(Value::Int(shift_left(*n as u64, *bits) as i64)),
        ("bitShiftLeft", [Value::UInt(n), Value::Int(bits)]) => Ok(Value::UInt(shift_left(*n, *bits))),
        // The sign is a bit as any other.
        ("bitShiftRight", [Value::Int(n), Value::Int(bits)]) => Ok(Value::Int(shift_right(*n as u64, *bits) as i64)),
        ("bitShiftRight", [Value::UInt(n), Value::Int(bits)]) => Ok(Value::UInt(shift_right(*n, *bits))),
        (_, [Value::Int(a), Value::Int(b)]) => bits(name, *a as u64, *b as u64, |n| Value::Int(n as i64)),
        (_, [Value::UInt(a), Value::UInt(b)]) => bits(name, *a, *b, Value::UInt),
        _ => no_overload(),
    }
}

fn shift_left(n: u64, bits: i64) -> u64 {
    u32::try_from(bits).ok().and_then(|bits| n.checked_shl(bits)).unwrap_or(0)
}

fn shift_right(n: u64, bits: i64) -> u64 {
    u32::try_from(bits).ok().and_then(|bits| n.checked_shr(bits)).unwrap_or(0)
}

fn bits(name: &str, a: u64, b: u64, make: impl Fn(u64) -> Value) -> Evaluated {
    Ok(make(match name {
        "bitAnd" => a & b,
        "bitOr" => a | b,
        "bitXor" => a ^ b,
        _ => return no_overload(),
    }))
}

/// The least or greatest of the arguments, or of a list that is the only one.
fn extreme(name: &str, worse: Ordering, args: &[Value]) -> Evaluated {
    let numbers: &[Value] = match args {
        [Value::List(list)] => list,
        _ => args,
    };
    if !numbers.iter().all(|n| matches!(n, Value::Int(_) | Value::UInt(_) | Value::Float(_))) {
        return error(format!("no such overload: {name}"));
    }
    let best = numbers.iter().reduce(|best, next| if compare(best, next) == Some(worse) { next } else { best });
    best.cloned().map_or_else(|| error(format!("{name}(list) argument must not be empty")), Ok)
}
