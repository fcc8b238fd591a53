//! The functions of the language and of upstream's Kubernetes libraries, one file for each library.
//!
//! A function is found by its name and by the type of what it is called on. `signatures` says the same to the checker.

mod addresses;
mod encoders;
pub mod formats;
pub mod lists;
mod math;
mod printf;
mod quantities;
mod regex;
pub mod semver;
mod signatures;
pub mod standard;
mod strings;
pub mod time;
pub mod urls;

use super::meter::Meter;
use super::syntax::{Expr, Kind};
use super::value::{Opaque, Value};
use super::{Evaluated, error, no_overload};

pub use signatures::{Found, accepts_literal, function_type, method_type, qualified_type};

/// Names that are types when they stand alone.
const TYPE_NAMES: [&str; 19] = [
    "int",
    "uint",
    "double",
    "bool",
    "string",
    "bytes",
    "list",
    "map",
    "null_type",
    "type",
    "optional_type",
    "google.protobuf.Duration",
    "google.protobuf.Timestamp",
    "net.IP",
    "net.CIDR",
    "kubernetes.Quantity",
    "kubernetes.URL",
    "kubernetes.Semver",
    "kubernetes.NamedFormat",
];

/// The type that a name stands for.
pub fn type_named(name: &str) -> Option<&'static str> {
    TYPE_NAMES.into_iter().find(|known| *known == name)
}

/// The type whose name is a path: `google.protobuf.Duration`.
pub fn type_at(expr: &Expr) -> Option<&'static str> {
    fn is_path(expr: &Expr, path: &str) -> bool {
        match (&expr.kind, path.rsplit_once('.')) {
            (Kind::Ident(name), None) => name == path,
            (Kind::Select { of, field, optional: false }, Some((before, last))) => field == last && is_path(of, before),
            _ => false,
        }
    }
    TYPE_NAMES.into_iter().find(|name| name.contains('.') && is_path(expr, name))
}

/// What a call costs before it is made: mostly the size of what it is given, more where the answer may be larger.
pub fn cost(name: &str, of: Option<&Value>, args: &[Value]) -> u64 {
    let sizes = || of.into_iter().chain(args).map(Meter::size_of);
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

/// `name(args)`.
pub fn function(name: &str, args: &[Value]) -> Evaluated {
    match (name, args) {
        ("size", [of]) => size(of),
        ("dyn", [value]) => Ok(value.clone()),
        ("type", [value]) => Ok(Value::Type(value.type_name())),
        ("string" | "int" | "uint" | "double" | "bool" | "bytes" | "duration" | "timestamp", [value]) => {
            standard::convert(name, value)
        }
        ("matches", [Value::String(of), Value::String(pattern)]) => regex::matches(of, pattern).map(Value::Bool),
        ("semver" | "isSemver", [Value::String(text), Value::Bool(tolerant)]) => semver::call(name, text, *tolerant),
        ("semver" | "isSemver", [Value::String(text)]) => semver::call(name, text, false),
        (_, [Value::String(text)]) => match name {
            "quantity" => quantities::parse(text),
            "isQuantity" => Ok(quantities::parse(text).is_ok().into()),
            "ip" => addresses::parse_ip(text).map(|address| Value::opaque(Opaque::Ip(address))),
            "isIP" => Ok(addresses::parse_ip(text).is_ok().into()),
            "cidr" => addresses::parse_cidr(text).map(|(address, bits)| Value::opaque(Opaque::Cidr(address, bits))),
            "isCIDR" => Ok(addresses::parse_cidr(text).is_ok().into()),
            "url" => match urls::Url::parse(text) {
                Ok(url) => Ok(Value::opaque(Opaque::Url(url))),
                Err(why) => error(format!("URL parse error during conversion from string: {why}")),
            },
            "isURL" => Ok(urls::Url::parse_request(text).is_ok().into()),
            _ => no_overload(),
        },
        _ => no_overload(),
    }
}

/// `prefix.name(args)`, where the prefix is no value.
pub fn qualified(prefix: &str, name: &str, args: &[Value], meter: &mut Meter) -> Evaluated {
    match (prefix, name, args) {
        ("optional", "none", []) => Ok(Value::Optional(None)),
        ("optional", "of", [value]) => Ok(Value::some(value.clone())),
        ("optional", "ofNonZeroValue", [value]) if is_zero(value) => Ok(Value::Optional(None)),
        ("optional", "ofNonZeroValue", [value]) => Ok(Value::some(value.clone())),
        ("optional", "unwrap", [Value::List(list)]) => lists::unwrap(list),
        ("math", ..) => math::call(name, args),
        ("sets", ..) => lists::sets::call(name, args, meter),
        ("format", ..) => formats::call(name, args),
        ("base64", ..) => encoders::base64(name, args),
        ("lists", "range", [Value::Int(count)]) => Ok(lists::range(*count)),
        ("strings", "quote", [Value::String(text)]) => Ok(strings::quote(text)),
        ("jsonpatch", "escapeKey", [Value::String(text)]) => Ok(encoders::escape_key(text)),
        ("ip", "isCanonical", [Value::String(text)]) => addresses::is_canonical(text),
        _ => no_overload(),
    }
}

/// `of.name(args)`.
pub fn method(name: &str, of: &Value, args: &[Value], meter: &mut Meter) -> Evaluated {
    match of {
        Value::Optional(inner) => match (name, inner, args) {
            ("hasValue", inner, []) => Ok(Value::Bool(inner.is_some())),
            ("value", Some(inner), []) => Ok((**inner).clone()),
            ("value", None, []) => error("optional.none() dereference"),
            ("orValue", inner, [other]) => Ok(inner.as_ref().map_or_else(|| other.clone(), |inner| (**inner).clone())),
            ("or", Some(_), [Value::Optional(_)]) => Ok(of.clone()),
            ("or", None, [other @ Value::Optional(_)]) => Ok(other.clone()),
            _ => no_overload(),
        },
        Value::String(text) => strings::method(name, text, args, meter),
        Value::List(list) => lists::method(name, list, args, meter),
        Value::Bytes(_) | Value::Map(_) if name == "size" && args.is_empty() => size(of),
        Value::Duration(nanos) => time::duration_method(name, *nanos, args),
        Value::Timestamp(at) => time::timestamp_method(name, *at, args),
        Value::Opaque(opaque) => match &**opaque {
            Opaque::Quantity(quantity) => quantities::method(name, quantity, args),
            Opaque::Ip(address) => addresses::ip_method(name, *address, args),
            Opaque::Cidr(address, bits) => addresses::cidr_method(name, (*address, *bits), args),
            Opaque::Url(url) => urls::method(name, url, args),
            Opaque::Semver(version) => semver::method(name, version, args),
            Opaque::Format(format) => formats::method(name, format, args),
        },
        _ => no_overload(),
    }
}

fn size(of: &Value) -> Evaluated {
    match of {
        Value::String(text) => Ok(Value::Int(text.chars().count() as i64)),
        Value::Bytes(_) | Value::List(_) | Value::Map(_) => Ok(Value::Int(of.len() as i64)),
        _ => no_overload(),
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) | Value::Int(0) | Value::UInt(0) | Value::Duration(0) => true,
        Value::Optional(inner) => inner.is_none(),
        Value::Float(f) => *f == 0.0,
        Value::String(_) | Value::Bytes(_) | Value::List(_) | Value::Map(_) => value.len() == 0,
        _ => false,
    }
}
