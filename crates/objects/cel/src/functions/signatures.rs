//! What the checker knows of functions: which there are, and what they answer.

use super::super::types::Type;
use super::super::value::Value;
use super::{function, regex};

/// Whether a text that is written out in an expression is one that the function can take.
pub fn accepts_literal(name: &str, literal: &str) -> bool {
    match name {
        "matches" => regex::matches("", literal).is_ok(),
        "timestamp" | "duration" => function(name, &[Value::from(literal)]).is_ok(),
        _ => true,
    }
}

/// What the checker learns of a function.
pub enum Found {
    /// There is such a function; `None` if not for these arguments.
    Type(Option<Type>),
    Nothing,
}

/// What a function of the libraries that is called on nothing answers: `Unknown` is let pass everywhere.
fn library_function(name: &str) -> Option<Type> {
    Some(match name {
        "isIP" | "isCIDR" | "isURL" | "isQuantity" | "isSemver" => Type::Bool,
        "url" | "ip" | "cidr" | "quantity" | "semver" => Type::Unknown,
        _ => return None,
    })
}

/// The same for what is called on a value.
fn library_method(name: &str) -> Option<Type> {
    let strings = || Type::List(Box::new(Type::Text));
    Some(match name {
        "isSorted"
        | "isInteger"
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
        "sum" | "min" | "max" | "slice" | "sort" | "flatten" | "reverse" | "distinct" | "first" | "last" | "ip"
        | "getQuery" | "masked" | "add" | "sub" | "validate" | "value" | "orValue" | "or" | "hasValue"
        | "unwrapOpt" => Type::Unknown,
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
        _ => match (library_function(name), library_method(name)) {
            (Some(ty), _) => Found::Type(Some(ty)),
            // There is such a function, but not one that is called like this.
            (None, Some(_)) => Found::Type(None),
            (None, None) => Found::Nothing,
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
        _ => match (library_method(name), library_function(name)) {
            (Some(ty), _) => Found::Type(Some(ty)),
            (None, Some(_)) => Found::Type(None),
            (None, None) => Found::Nothing,
        },
    }
}

/// Functions whose names have a dot, by the part before it.
pub fn qualified_type(prefix: &str, name: &str, args: &[Type]) -> Option<Type> {
    Some(match (prefix, name, args) {
        ("optional", "none", []) => Type::Optional(Box::new(Type::Unknown)),
        ("optional", "of" | "ofNonZeroValue", [of]) => Type::Optional(Box::new(of.clone())),
        ("optional", "unwrap", [_]) => Type::List(Box::new(Type::Unknown)),
        ("sets", ..) | ("ip", "isCanonical", _) => Type::Bool,
        ("math", "isNaN" | "isInf" | "isFinite", _) => Type::Bool,
        ("math" | "lists" | "format", ..) => Type::Unknown,
        ("base64", "encode", _) | ("strings", "quote", _) | ("jsonpatch", "escapeKey", _) => Type::Text,
        ("base64", "decode", _) => Type::Bytes,
        _ => return None,
    })
}
