//! The values that expressions compute with. A clone is cheap: large values are shared.

use std::cmp::Ordering;
use std::net::IpAddr;
use std::sync::Arc;

use schema::quantity::Quantity;

use super::compare;
use super::functions::formats::Format;
use super::functions::semver::Semver;
use super::functions::time::Time;
use super::functions::urls::Url;

/// A value. Two values are equal as `==` in an expression has it: `1`, `1u` and `1.0` are the same.
#[derive(Clone, Debug)]
pub enum Value {
    Null,
    Bool(bool),
    Int(i64),
    UInt(u64),
    Float(f64),
    String(Arc<str>),
    Bytes(Arc<[u8]>),
    List(Arc<Vec<Value>>),
    Map(Map),
    /// Nanoseconds.
    Duration(i64),
    Timestamp(Time),
    Optional(Option<Arc<Value>>),
    /// A type, by its name: the value of `int` and of `type(1)`.
    Type(&'static str),
    Opaque(Arc<Opaque>),
}

/// Values of the Kubernetes libraries. Expressions only reach them through functions.
#[derive(Clone, Debug, PartialEq)]
pub enum Opaque {
    Quantity(Quantity),
    Ip(IpAddr),
    /// An address, which may have bits beyond the prefix, and the length of the prefix.
    Cidr(IpAddr, u8),
    Url(Url),
    Semver(Semver),
    Format(&'static Format),
}

impl Opaque {
    fn type_name(&self) -> &'static str {
        match self {
            Self::Quantity(_) => "kubernetes.Quantity",
            Self::Ip(_) => "net.IP",
            Self::Cidr(..) => "net.CIDR",
            Self::Url(_) => "kubernetes.URL",
            Self::Semver(_) => "kubernetes.Semver",
            Self::Format(_) => "kubernetes.NamedFormat",
        }
    }
}

impl Value {
    pub fn list(items: Vec<Value>) -> Self {
        Self::List(Arc::new(items))
    }

    pub fn some(value: Value) -> Self {
        Self::Optional(Some(Arc::new(value)))
    }

    pub(crate) fn opaque(value: Opaque) -> Self {
        Self::Opaque(Arc::new(value))
    }

    /// The name of its type, as messages show it.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::UInt(_) => "uint",
            Self::Float(_) => "double",
            Self::String(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::Timestamp(_) => "google.protobuf.Timestamp",
            Self::Optional(_) => "optional_type",
            Self::Type(_) => "type",
            Self::Opaque(opaque) => opaque.type_name(),
        }
    }

    /// Elements, entries or bytes; 0 for anything else.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::String(text) => text.len(),
            Self::Bytes(bytes) => bytes.len(),
            Self::List(list) => list.len(),
            Self::Map(map) => map.len(),
            _ => 0,
        }
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        compare::equal(self, other)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::String(text.into())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::String(text.into())
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self::Bool(flag)
    }
}

/// A key of a map. A number is found whether it is signed or not.
#[derive(Clone, Debug)]
pub enum Key {
    Int(i64),
    Uint(u64),
    Bool(bool),
    String(Arc<str>),
}

impl Key {
    /// The key that a value is; `None` if maps have no such keys. A double stands for the integer that it equals.
    pub fn of(value: &Value) -> Option<Self> {
        Some(match value {
            Value::Int(n) => Self::Int(*n),
            Value::UInt(n) => Self::Uint(*n),
            Value::Bool(flag) => Self::Bool(*flag),
            Value::String(text) => Self::String(text.clone()),
            Value::Float(f) if f.fract() == 0.0 && f.abs() < 9_007_199_254_740_992.0 => Self::Int(*f as i64),
            _ => return None,
        })
    }

    pub fn value(&self) -> Value {
        match self {
            Self::Int(n) => Value::Int(*n),
            Self::Uint(n) => Value::UInt(*n),
            Self::Bool(flag) => Value::Bool(*flag),
            Self::String(text) => Value::String(text.clone()),
        }
    }

    fn number(&self) -> Option<i128> {
        match self {
            Self::Int(n) => Some((*n).into()),
            Self::Uint(n) => Some((*n).into()),
            _ => None,
        }
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Int(n) => n.fmt(f),
            Self::Uint(n) => n.fmt(f),
            Self::Bool(flag) => flag.fmt(f),
            Self::String(text) => text.fmt(f),
        }
    }
}

impl From<&str> for Key {
    fn from(text: &str) -> Self {
        Self::String(text.into())
    }
}

impl From<String> for Key {
    fn from(text: String) -> Self {
        Self::String(text.into())
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::String(a), Self::String(b)) => a.cmp(b),
            (Self::Bool(a), Self::Bool(b)) => a.cmp(b),
            // Numbers come before booleans, and those before texts.
            (Self::Bool(_), Self::String(_)) => Ordering::Less,
            (Self::String(_), Self::Bool(_)) => Ordering::Greater,
            (a, b) => match (a.number(), b.number()) {
                // `1` and `1u` are two keys.
                (Some(x), Some(y)) => x.cmp(&y).then(matches!(a, Self::Uint(_)).cmp(&matches!(b, Self::Uint(_)))),
                (Some(_), None) => Ordering::Less,
                _ => Ordering::Greater,
            },
        }
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Key {}

/// A map, sorted by key: Go's maps have no order, and ours makes the same object always give the same answer.
#[derive(Clone, Debug)]
pub struct Map(Arc<[(Key, Value)]>);

impl Map {
    /// Of two entries with the same key the later one is kept.
    pub fn new(mut entries: Vec<(Key, Value)>) -> Self {
        if !entries.is_sorted_by(|a, b| a.0 < b.0) {
            entries.reverse();
            entries.sort_by(|a, b| a.0.cmp(&b.0));
            entries.dedup_by(|later, kept| later.0 == kept.0);
        }
        Self(entries.into())
    }

    /// A key that more than one entry has.
    pub(crate) fn repeated(entries: &[(Key, Value)]) -> Option<&Key> {
        let mut keys: Vec<&Key> = entries.iter().map(|(key, _)| key).collect();
        keys.sort();
        keys.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0])
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn get(&self, key: &Key) -> Option<&Value> {
        self.find(|known| known.cmp(key)).or_else(|| match *key {
            Key::Int(n) => self.find(|known| known.cmp(&Key::Uint(u64::try_from(n).ok().unwrap_or(u64::MAX)))),
            Key::Uint(n) => self.find(|known| known.cmp(&Key::Int(i64::try_from(n).ok().unwrap_or(-1)))),
            _ => None,
        })
    }

    /// The value of a key that is a text.
    pub fn field(&self, name: &str) -> Option<&Value> {
        self.find(|known| match known {
            Key::String(text) => (**text).cmp(name),
            _ => Ordering::Less,
        })
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Key, &Value)> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    fn find(&self, order: impl Fn(&Key) -> Ordering) -> Option<&Value> {
        let at = self.0.binary_search_by(|(key, _)| order(key)).ok()?;
        self.0.get(at).map(|(_, value)| value)
    }
}
