//! Conversions between the types of the language.

use super::super::value::{Opaque, Value};
use super::super::{Evaluated, error, no_overload};
use super::time;

/// `string`, `int`, `uint`, `double`, `bool`, `bytes`, `duration` and `timestamp`.
pub fn convert(to: &str, value: &Value) -> Evaluated {
    match (to, value) {
        ("string", value) => text_of(value).map_or_else(|| not_a_text(value), |text| Ok(text.into())),
        ("int", Value::Int(_))
        | ("uint", Value::UInt(_))
        | ("double", Value::Float(_))
        | ("bool", Value::Bool(_))
        | ("bytes", Value::Bytes(_))
        | ("duration", Value::Duration(_))
        | ("timestamp", Value::Timestamp(_)) => Ok(value.clone()),
        ("int", Value::UInt(n)) => i64::try_from(*n).map(Value::Int).or_else(|_| error("integer overflow")),
        ("int", Value::Float(f)) => match *f > i64::MIN as f64 && *f < i64::MAX as f64 {
            true => Ok(Value::Int(*f as i64)),
            false => error("integer overflow"),
        },
        ("int", Value::Duration(nanos)) => Ok(Value::Int(*nanos)),
        ("int", Value::Timestamp(time)) => Ok(Value::Int(time.seconds())),
        ("uint", Value::Int(n)) => u64::try_from(*n).map(Value::UInt).or_else(|_| error("unsigned integer overflow")),
        ("uint", Value::Float(f)) => match *f >= 0.0 && *f < 18_446_744_073_709_551_616.0 {
            true => Ok(Value::UInt(*f as u64)),
            false => error("unsigned integer overflow"),
        },
        ("double", Value::Int(n)) => Ok(Value::Float(*n as f64)),
        ("double", Value::UInt(n)) => Ok(Value::Float(*n as f64)),
        ("bytes", Value::String(text)) => Ok(Value::Bytes(text.as_bytes().into())),
        ("duration", Value::String(text)) => time::parse_duration(text),
        ("timestamp", Value::String(text)) => time::parse_timestamp(text).map(Value::Timestamp),
        ("timestamp", Value::Int(seconds)) => time::from_seconds(*seconds),
        (_, Value::String(text)) => {
            let read = match to {
                "int" => text.parse().ok().map(Value::Int),
                // A sign is none of an unsigned number.
                "uint" => text.parse().ok().filter(|_| !text.starts_with('+')).map(Value::UInt),
                "double" => read_double(text).map(Value::Float),
                "bool" => match &**text {
                    "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(Value::Bool(true)),
                    "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(Value::Bool(false)),
                    _ => None,
                },
                _ => return no_overload(),
            };
            read.map_or_else(|| error(format!("type conversion error from 'string' to '{to}'")), Ok)
        }
        _ => no_overload(),
    }
}

/// A number as Go reads it. Too large a number is none.
fn read_double(text: &str) -> Option<f64> {
    let number: f64 = text.parse().ok()?;
    let infinite = text.trim_start_matches(['+', '-']).to_ascii_lowercase().starts_with('i');
    (number.is_finite() || number.is_nan() || infinite).then_some(number)
}

fn not_a_text(value: &Value) -> Evaluated {
    match value {
        Value::Bytes(_) => error("invalid UTF-8 in bytes, cannot convert to string"),
        _ => no_overload(),
    }
}

/// What `string` makes of a value; `None` if there is no such conversion.
pub fn text_of(value: &Value) -> Option<String> {
    Some(match value {
        Value::String(text) => text.to_string(),
        Value::Int(n) => n.to_string(),
        Value::UInt(n) => n.to_string(),
        Value::Float(f) => double(*f),
        Value::Bool(flag) => flag.to_string(),
        Value::Bytes(bytes) => String::from_utf8(bytes.to_vec()).ok()?,
        Value::Duration(nanos) => time::show_duration(*nanos),
        Value::Timestamp(at) => time::show_timestamp(*at),
        Value::Opaque(opaque) => match &**opaque {
            Opaque::Ip(address) => address.to_string(),
            Opaque::Cidr(address, bits) => format!("{address}/{bits}"),
            _ => return None,
        },
        _ => return None,
    })
}

/// A double as Go's `%g` shows it: an exponent from a million on, and below a ten-thousandth.
pub fn double(f: f64) -> String {
    if f.is_nan() {
        return "NaN".to_owned();
    }
    if f.is_infinite() {
        return if f > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let text = format!("{f:e}");
    let Some((digits, exponent)) = text.split_once('e') else { return text };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if f == 0.0 || (-4..6).contains(&exponent) {
        return format!("{f}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}
