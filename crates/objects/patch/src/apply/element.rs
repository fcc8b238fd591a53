//! One step of a field path: a field, a list element by its keys or by its value, or an index.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;

use schema::go;
use serde_json::{Map, Number, Value};

/// A step from a container to something in it. Borrows from the object or the `fieldsV1` it was read from.
#[derive(Clone, Debug)]
pub enum PathElement<'a> {
    /// `f:name`
    Field(Cow<'a, str>),
    /// `k:{"name":"c"}`, sorted by name.
    Key(Vec<(Cow<'a, str>, Literal<'a>)>),
    /// `v:"x"`: an element of a set.
    Value(Literal<'a>),
    /// `i:3`
    Index(i64),
}

/// A key's or a set element's value; nearly always a string.
#[derive(Clone, Debug)]
pub enum Literal<'a> {
    Text(Cow<'a, str>),
    Other(Cow<'a, Value>),
}

impl<'a> PathElement<'a> {
    pub fn field(name: &'a str) -> Self {
        Self::Field(Cow::Borrowed(name))
    }

    /// Reads a member name of `fieldsV1`. `None` is a kind of step that this version does not know and leaves out.
    pub fn parse(text: &'a str) -> Result<Option<Self>, String> {
        let Some((kind, rest)) = text.split_at_checked(2) else {
            return Err("key must be 2 characters long:".to_owned());
        };
        Ok(Some(match kind {
            "f:" => Self::field(rest),
            "v:" => Self::Value(Literal::parse(rest)?),
            "k:" => Self::Key(match plain_key(rest) {
                Some(only) => vec![only],
                None => {
                    let fields: Map<String, Value> = serde_json::from_str(rest).map_err(|e| e.to_string())?;
                    fields.into_iter().map(|(name, value)| (Cow::Owned(name), Literal::owned(value))).collect()
                }
            }),
            "i:" => Self::Index(rest.parse().map_err(|_| format!("parsing {}: invalid syntax", go::quote(rest)))?),
            _ if kind.ends_with(':') => return Ok(None),
            _ => return Err(format!("missing colon: {text}")),
        }))
    }

    /// The member name in `fieldsV1`.
    pub fn serialize(&self) -> String {
        match self {
            Self::Field(name) => ["f:", name].concat(),
            Self::Key(fields) => {
                let mut out = String::from("k:{");
                for (i, (name, value)) in fields.iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    push_json_string(&mut out, name);
                    out.push(':');
                    value.push_json(&mut out);
                }
                out.push('}');
                out
            }
            Self::Value(value) => {
                let mut out = String::from("v:");
                value.push_json(&mut out);
                out
            }
            Self::Index(index) => format!("i:{index}"),
        }
    }

    pub fn into_owned(self) -> PathElement<'static> {
        match self {
            Self::Field(name) => PathElement::Field(Cow::Owned(name.into_owned())),
            Self::Key(fields) => PathElement::Key(
                fields.into_iter().map(|(n, v)| (Cow::Owned(n.into_owned()), v.into_owned())).collect(),
            ),
            Self::Value(value) => PathElement::Value(value.into_owned()),
            Self::Index(index) => PathElement::Index(index),
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Value(_) => 2,
            Self::Index(_) => 3,
        }
    }
}

impl<'a> Literal<'a> {
    pub fn of(value: &'a Value) -> Self {
        match value {
            Value::String(text) => Self::Text(Cow::Borrowed(text)),
            other => Self::Other(Cow::Borrowed(other)),
        }
    }

    fn owned(value: Value) -> Self {
        match value {
            Value::String(text) => Self::Text(Cow::Owned(text)),
            other => Self::Other(Cow::Owned(other)),
        }
    }

    fn parse(text: &'a str) -> Result<Self, String> {
        let plain = text.strip_prefix('"').and_then(|t| t.strip_suffix('"')).filter(|t| is_plain(t));
        match plain {
            Some(plain) => Ok(Self::Text(Cow::Borrowed(plain))),
            None => serde_json::from_str(text).map(Self::owned).map_err(|e| e.to_string()),
        }
    }

    fn push_json(&self, out: &mut String) {
        match self {
            Self::Text(text) => push_json_string(out, text),
            Self::Other(value) => out.push_str(&value.to_string()),
        }
    }

    fn into_owned(self) -> Literal<'static> {
        match self {
            Self::Text(text) => Literal::Text(Cow::Owned(text.into_owned())),
            Self::Other(value) => Literal::Other(Cow::Owned(value.into_owned())),
        }
    }
}

/// Reads `{"name":"value"}`, which most keys are, without copying.
fn plain_key(text: &str) -> Option<(Cow<'_, str>, Literal<'_>)> {
    let (name, value) = text.strip_prefix("{\"")?.strip_suffix("\"}")?.split_once("\":\"")?;
    (is_plain(name) && is_plain(value)).then_some((Cow::Borrowed(name), Literal::Text(Cow::Borrowed(value))))
}

/// Whether JSON writes these characters as they are.
fn is_plain(text: &str) -> bool {
    text.bytes().all(|b| b >= 0x20 && b != b'"' && b != b'\\')
}

fn push_json_string(out: &mut String, text: &str) {
    if is_plain(text) {
        out.reserve(text.len() + 2);
        out.push('"');
        out.push_str(text);
        out.push('"');
    } else {
        out.push_str(&Value::from(text).to_string());
    }
}

impl Ord for PathElement<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Field(a), Self::Field(b)) => a.cmp(b),
            (Self::Key(a), Self::Key(b)) => a.cmp(b),
            (Self::Value(a), Self::Value(b)) => a.cmp(b),
            (Self::Index(a), Self::Index(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for PathElement<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for PathElement<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for PathElement<'_> {}

impl Ord for Literal<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Text(a), Self::Text(b)) => a.cmp(b),
            (Self::Other(a), Self::Other(b)) => compare_values(a, b),
            (Self::Text(_), Self::Other(b)) => 1.cmp(&value_rank(b)),
            (Self::Other(a), Self::Text(_)) => value_rank(a).cmp(&1),
        }
    }
}

impl PartialOrd for Literal<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Literal<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Literal<'_> {}

fn value_rank(value: &Value) -> i32 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

/// Upstream's order of values: numbers by size whatever their spelling, then strings, booleans, lists, maps, null.
fn compare_values(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => compare_numbers(a, b),
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Array(a), Value::Array(b)) => {
            a.iter().zip(b).map(|(a, b)| compare_values(a, b)).find(|o| o.is_ne()).unwrap_or(a.len().cmp(&b.len()))
        }
        (Value::Object(a), Value::Object(b)) => a
            .iter()
            .zip(b)
            .map(|((ka, va), (kb, vb))| ka.cmp(kb).then_with(|| compare_values(va, vb)))
            .find(|o| o.is_ne())
            .unwrap_or(a.len().cmp(&b.len())),
        _ => value_rank(a).cmp(&value_rank(b)),
    }
}

/// By exact value, so that the order is total: integers are not rounded to floats.
fn compare_numbers(a: &Number, b: &Number) -> Ordering {
    let whole = |n: &Number| match (n.as_i64(), n.as_u64(), n.as_f64()) {
        (Some(n), _, _) => Some(i128::from(n)),
        (_, Some(n), _) => Some(i128::from(n)),
        #[allow(clippy::cast_possible_truncation, reason = "a whole number below 1e30 fits")]
        (_, _, Some(n)) if n.fract() == 0.0 && n.abs() < 1e30 => Some(n as i128),
        _ => None,
    };
    match (whole(a), whole(b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        _ => a.as_f64().unwrap_or(0.0).total_cmp(&b.as_f64().unwrap_or(0.0)),
    }
}

/// Whether two values are the same; 1 and 1.0 are.
pub(super) fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(x), Value::Number(y)) => x == y || compare_values(a, b).is_eq(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|((ka, va), (kb, vb))| ka == kb && same(va, vb))
        }
        _ => a == b,
    }
}

impl fmt::Display for PathElement<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(fields) => {
                f.write_str("[")?;
                for (i, (name, value)) in fields.iter().enumerate() {
                    let comma = if i > 0 { "," } else { "" };
                    write!(f, "{comma}{name}={value}")?;
                }
                f.write_str("]")
            }
            Self::Value(value) => write!(f, "[={value}]"),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

impl fmt::Display for Literal<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(&go::quote(text)),
            Self::Other(value) => match &**value {
                Value::Null => f.write_str("null"),
                other => f.write_str(&go::plain(other)),
            },
        }
    }
}
