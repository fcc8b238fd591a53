//! Functions of the language itself; those of the Kubernetes libraries are `kube-cel`'s.

use std::sync::Arc;

use kube_cel::cel::Value;
use kube_cel::cel::objects::Key;
use schema::go;
use schema::quantity::Quantity;

use super::Failure;
use super::call;
use super::eval::{matches, no_overload, none, optional, some};
use super::types::Type;

type Evaluated = Result<Value, Failure>;

const TYPE_NAMES: &[&str] =
    &["int", "uint", "double", "bool", "string", "bytes", "list", "map", "null_type", "type", "optional_type"];

pub fn is_type_name(name: &str) -> bool {
    TYPE_NAMES.contains(&name)
}

/// About what it takes to look at a value once, texts being cheaper than elements.
fn size_of(value: &Value) -> u64 {
    match value {
        Value::String(text) => text.len() as u64 / 10,
        Value::Bytes(bytes) => bytes.len() as u64 / 10,
        Value::List(list) => list.len() as u64,
        Value::Map(map) => map.map.len() as u64,
        _ => 0,
    }
}

/// What a call costs before it is made: mostly the size of what it is given, more where the answer may be larger.
pub fn cost(name: &str, of: Option<&Value>, args: &[Value]) -> u64 {
    let sizes = || of.into_iter().chain(args).map(size_of);
    match name {
        "replace" | "join" => sizes().map(|size| size + 1).fold(1, u64::saturating_mul),
        "find" | "findAll" => 1000 + sizes().sum::<u64>() * 10,
        "range" => args.iter().map(|a| if let Value::Int(n) = a { n.unsigned_abs() } else { 1 }).sum(),
        "format" => {
            // A precision makes as many digits as it says.
            let digits =
                |text: &str| text.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse::<u64>().ok()).sum();
            let precision = if let Some(Value::String(text)) = of { digits(text) } else { 0u64 };
            precision.saturating_add(sizes().sum())
        }
        _ => sizes().sum(),
    }
}

fn text(text: impl Into<String>) -> Value {
    Value::String(Arc::new(text.into()))
}

pub fn key_value(key: &Key) -> Value {
    match key {
        Key::Int(n) => Value::Int(*n),
        Key::Uint(n) => Value::UInt(*n),
        Key::Bool(flag) => Value::Bool(*flag),
        Key::String(text) => Value::String(text.clone()),
    }
}

fn failed(why: impl Into<String>) -> Evaluated {
    Err(Failure::Error(why.into()))
}

pub fn function(name: &str, args: &[Value]) -> Evaluated {
    match (name, args) {
        ("size", [of]) => size(of),
        ("matches", [Value::String(of), Value::String(pattern)]) => matches(of, pattern),
        ("dyn", [value]) => Ok(value.clone()),
        ("type", [value]) => Ok(text(type_name(value))),
        ("string", [value]) => to_text(value),
        ("int", [value]) => to_int(value),
        ("uint", [value]) => to_uint(value),
        ("double", [value]) => to_double(value),
        ("bool", [value @ Value::Bool(_)]) => Ok(value.clone()),
        ("bool", [Value::String(of)]) => match of.as_str() {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Value::Bool(true)),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Value::Bool(false)),
            _ => failed("Type conversion error from 'string' to 'bool'"),
        },
        ("bytes", [value @ Value::Bytes(_)]) => Ok(value.clone()),
        ("bytes", [Value::String(of)]) => Ok(Value::Bytes(Arc::new(of.as_bytes().to_vec()))),
        ("duration", [value @ Value::Duration(_)]) | ("timestamp", [value @ Value::Timestamp(_)]) => Ok(value.clone()),
        ("duration", [Value::String(of)]) => match schema::formats::parse_go_duration(of) {
            Some(nanos) => call::function("duration", &[text(format!("{nanos}ns"))]),
            None => failed(format!("time: invalid duration {}", go::quoted(of))),
        },
        ("timestamp", [Value::String(of)]) => call::function("timestamp", args).or_else(|_| {
            let of = go::quoted(of);
            failed(format!("parsing time {of} as \"2006-01-02T15:04:05Z07:00\": cannot parse {of} as \"2006\""))
        }),
        // The library's own parser has other words for what is wrong.
        ("quantity", [Value::String(of)]) => match Quantity::parse(of) {
            Ok(_) => call::function(name, args),
            Err(why) => failed(why.to_string()),
        },
        _ => call::function(name, args),
    }
}

pub fn qualified(prefix: &str, name: &str, args: &[Value]) -> Evaluated {
    match (prefix, name, args) {
        ("optional", "none", []) => Ok(none()),
        ("optional", "of", [value]) => Ok(some(value.clone())),
        ("optional", "ofNonZeroValue", [value]) => Ok(if is_zero(value) { none() } else { some(value.clone()) }),
        _ => call::qualified(prefix, name, args),
    }
}

pub fn method(name: &str, of: &Value, args: &[Value]) -> Evaluated {
    if let Some(inner) = optional(of) {
        return match (name, inner, args) {
            ("hasValue", inner, []) => Ok(Value::Bool(inner.is_some())),
            ("value", Some(inner), []) => Ok(inner),
            ("value", None, []) => failed("optional.none() dereference"),
            ("orValue", inner, [other]) => Ok(inner.unwrap_or_else(|| other.clone())),
            ("or", Some(_), [_]) => Ok(of.clone()),
            ("or", None, [other]) => Ok(other.clone()),
            _ => no_overload(),
        };
    }
    match (name, of, args) {
        ("size", of, []) => size(of),
        ("matches", Value::String(of), [Value::String(pattern)]) => matches(of, pattern),
        ("contains", Value::String(of), [Value::String(part)]) => Ok(Value::Bool(of.contains(part.as_str()))),
        ("startsWith", Value::String(of), [Value::String(part)]) => Ok(Value::Bool(of.starts_with(part.as_str()))),
        ("endsWith", Value::String(of), [Value::String(part)]) => Ok(Value::Bool(of.ends_with(part.as_str()))),
        _ => call::method(name, of, args),
    }
}

fn size(of: &Value) -> Evaluated {
    Ok(Value::Int(match of {
        Value::String(text) => text.chars().count(),
        Value::Bytes(bytes) => bytes.len(),
        Value::List(list) => list.len(),
        Value::Map(map) => map.map.len(),
        _ => return no_overload(),
    } as i64))
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) | Value::Int(0) | Value::UInt(0) => true,
        Value::Float(f) => *f == 0.0,
        Value::String(text) => text.is_empty(),
        Value::Bytes(bytes) => bytes.is_empty(),
        Value::List(list) => list.is_empty(),
        Value::Map(map) => map.map.is_empty(),
        _ => false,
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Int(_) => "int",
        Value::UInt(_) => "uint",
        Value::Float(_) => "double",
        Value::Bool(_) => "bool",
        Value::String(_) => "string",
        Value::Bytes(_) => "bytes",
        Value::List(_) => "list",
        Value::Map(_) => "map",
        Value::Null => "null_type",
        Value::Duration(_) => "google.protobuf.Duration",
        Value::Timestamp(_) => "google.protobuf.Timestamp",
        _ => "optional_type",
    }
}

fn to_text(value: &Value) -> Evaluated {
    match value {
        Value::String(_) => Ok(value.clone()),
        Value::Int(n) => Ok(text(n.to_string())),
        Value::UInt(n) => Ok(text(n.to_string())),
        Value::Float(f) => Ok(text(go::float(*f))),
        Value::Bool(flag) => Ok(text(flag.to_string())),
        Value::Bytes(bytes) => match String::from_utf8(bytes.to_vec()) {
            Ok(string) => Ok(text(string)),
            Err(_) => failed("invalid UTF-8 in bytes, cannot convert to string"),
        },
        other => call::function("string", std::slice::from_ref(other)).or_else(|_| {
            // Values of the libraries (quantities, addresses) say their text themselves.
            call::method("string", other, &[])
        }),
    }
}

fn to_int(value: &Value) -> Evaluated {
    match value {
        Value::Int(_) => Ok(value.clone()),
        Value::UInt(n) => i64::try_from(*n).map(Value::Int).or_else(|_| failed("integer overflow")),
        Value::Float(f) if f.is_finite() && f.abs() < 9.223_372_036_854_775e18 => Ok(Value::Int(*f as i64)),
        Value::Float(_) => failed("integer overflow"),
        Value::String(of) => match of.parse() {
            Ok(n) => Ok(Value::Int(n)),
            Err(_) => failed("type conversion error from 'string' to 'int'"),
        },
        other => call::function("int", std::slice::from_ref(other)),
    }
}

fn to_uint(value: &Value) -> Evaluated {
    match value {
        Value::UInt(_) => Ok(value.clone()),
        Value::Int(n) => u64::try_from(*n).map(Value::UInt).or_else(|_| failed("unsigned integer overflow")),
        Value::Float(f) if *f >= 0.0 && *f < 1.844_674_407_370_955e19 => Ok(Value::UInt(*f as u64)),
        Value::Float(_) => failed("unsigned integer overflow"),
        Value::String(of) => match of.parse() {
            Ok(n) => Ok(Value::UInt(n)),
            Err(_) => failed("type conversion error from 'string' to 'uint'"),
        },
        _ => no_overload(),
    }
}

fn to_double(value: &Value) -> Evaluated {
    match value {
        Value::Float(_) => Ok(value.clone()),
        Value::Int(n) => Ok(Value::Float(*n as f64)),
        Value::UInt(n) => Ok(Value::Float(*n as f64)),
        Value::String(of) => match of.parse() {
            Ok(f) => Ok(Value::Float(f)),
            Err(_) => failed("type conversion error from 'string' to 'double'"),
        },
        _ => no_overload(),
    }
}

/// Whether a text that is written out in an expression is one that the function can take.
pub fn accepts_literal(name: &str, literal: &str) -> bool {
    match name {
        "matches" => matches("", literal).is_ok(),
        "timestamp" | "duration" => function(name, &[text(literal.to_owned())]).is_ok(),
        _ => true,
    }
}

/// What the checker learns of a function.
pub enum Found {
    /// There is such a function; `None` if not for these arguments.
    Type(Option<Type>),
    Nothing,
}

/// What a function of the libraries answers, if we care to know: `Unknown` is let pass everywhere.
fn library(name: &str) -> Option<Type> {
    let strings = || Type::List(Box::new(Type::Text));
    Some(match name {
        "isSorted"
        | "isIP"
        | "isCIDR"
        | "isURL"
        | "isQuantity"
        | "isInteger"
        | "isSemver"
        | "isGreaterThan"
        | "isLessThan"
        | "containsIP"
        | "containsCIDR"
        | "isUnspecified"
        | "isLoopback"
        | "isLinkLocalMulticast"
        | "isLinkLocalUnicast"
        | "isGlobalUnicast" => Type::Bool,
        "indexOf" | "lastIndexOf" | "asInteger" | "compareTo" | "major" | "minor" | "patch" | "prefixLength"
        | "family" | "sign" | "getFullYear" | "getMonth" | "getDayOfYear" | "getDayOfMonth" | "getDate"
        | "getDayOfWeek" | "getHours" | "getMinutes" | "getSeconds" | "getMilliseconds" => Type::Int,
        "charAt" | "lowerAscii" | "upperAscii" | "replace" | "substring" | "trim" | "join" | "format" | "find"
        | "getScheme" | "getHost" | "getHostname" | "getPort" | "getEscapedPath" => Type::Text,
        "asApproximateFloat" => Type::Double,
        "split" | "findAll" => strings(),
        "sum" | "min" | "max" | "slice" | "sort" | "flatten" | "reverse" | "distinct" | "first" | "last" | "url"
        | "ip" | "cidr" | "quantity" | "semver" | "getQuery" | "masked" | "add" | "sub" | "validate"
        | "isCanonical" | "string" | "value" | "orValue" | "or" | "hasValue" => Type::Unknown,
        _ => return None,
    })
}

pub fn function_type(name: &str, args: &[Type]) -> Found {
    use Type::{Bool, Bytes, Double, Duration, Int, Text, Timestamp, Uint};
    let one_of = |allowed: &[Type], result: Type| match args {
        [of] => Found::Type((of.open() || allowed.contains(of)).then_some(result)),
        _ => Found::Type(None),
    };
    match (name, args) {
        ("size", [of]) => {
            Found::Type((of.open() || matches!(of, Text | Bytes | Type::List(_) | Type::Map(..))).then_some(Int))
        }
        ("dyn", [_]) => Found::Type(Some(Type::Dyn)),
        ("type", [_]) => Found::Type(Some(Type::Unknown)),
        ("matches", [of, pattern]) => Found::Type((of.fits(&Text) && pattern.fits(&Text)).then_some(Bool)),
        ("int", _) => one_of(&[Int, Uint, Double, Text, Timestamp, Duration], Int),
        ("uint", _) => one_of(&[Int, Uint, Double, Text], Uint),
        ("double", _) => one_of(&[Int, Uint, Double, Text], Double),
        ("bool", _) => one_of(&[Bool, Text], Bool),
        ("bytes", _) => one_of(&[Bytes, Text], Bytes),
        ("duration", _) => one_of(&[Duration, Text], Duration),
        ("timestamp", _) => one_of(&[Timestamp, Text, Int], Timestamp),
        ("string", [_]) => Found::Type(Some(Text)),
        ("size" | "dyn" | "type" | "matches" | "string", _) => Found::Type(None),
        _ => match library(name) {
            Some(ty) => Found::Type(Some(ty)),
            None => Found::Nothing,
        },
    }
}

pub fn method_type(name: &str, of: &Type, args: &[Type]) -> Found {
    use Type::{Bool, Int, Text};
    let texts = |count: usize| of.fits(&Text) && args.len() == count && args.iter().all(|a| a.fits(&Text));
    match (name, of) {
        ("hasValue", Type::Optional(_)) => Found::Type(args.is_empty().then_some(Bool)),
        ("value", Type::Optional(inner)) => Found::Type(args.is_empty().then(|| (**inner).clone())),
        ("orValue", Type::Optional(inner)) => match args {
            [other] if other.fits(inner) => {
                Found::Type(Some(if inner.open() { other.clone() } else { (**inner).clone() }))
            }
            _ => Found::Type(None),
        },
        ("or", Type::Optional(_)) => Found::Type((args.len() == 1).then(|| of.clone())),
        ("startsWith" | "endsWith" | "contains" | "matches", _) => Found::Type(texts(1).then_some(Bool)),
        ("size", _) => {
            let sized = of.open() || matches!(of, Text | Type::Bytes | Type::List(_) | Type::Map(..));
            Found::Type((sized && args.is_empty()).then_some(Int))
        }
        ("lowerAscii" | "upperAscii" | "trim", _) => Found::Type(texts(0).then_some(Text)),
        ("first" | "last", Type::List(item)) => Found::Type(Some(Type::Optional(item.clone()))),
        ("slice" | "sort" | "reverse" | "distinct", Type::List(_)) => Found::Type(Some(of.clone())),
        ("sum" | "min" | "max", Type::List(item)) => Found::Type(Some((**item).clone())),
        ("reverse", Text) => Found::Type(Some(Text)),
        ("all" | "exists" | "map" | "filter", _) => Found::Nothing,
        _ => match library(name) {
            Some(ty) => Found::Type(Some(ty)),
            None => Found::Nothing,
        },
    }
}

/// Functions whose names have a dot, by the part before it.
pub fn qualified_type(prefix: &str, name: &str, args: &[Type]) -> Option<Type> {
    Some(match (prefix, name, args) {
        ("optional", "none", []) => Type::Optional(Box::new(Type::Unknown)),
        ("optional", "of" | "ofNonZeroValue", [of]) => Type::Optional(Box::new(of.clone())),
        ("sets", ..) | ("ip" | "cidr", "isCanonical", _) => Type::Bool,
        ("math", "isNaN" | "isInf" | "isFinite", _) => Type::Bool,
        ("math" | "lists" | "format", ..) => Type::Unknown,
        ("base64", "encode", _) | ("strings", "quote", _) | ("jsonpatch", "escapeKey", _) => Type::Text,
        ("base64", "decode", _) => Type::Bytes,
        _ => return None,
    })
}
