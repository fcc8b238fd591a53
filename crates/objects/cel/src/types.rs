//! Types of expressions, and how a schema gives them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use schema::json_schema::{Additional, Node};

use super::json::escape;

#[derive(Clone, Debug, PartialEq)]
pub enum Type {
    /// Any type, known only when evaluated.
    Dyn,
    /// Not known to us: whatever is done with it is let pass.
    Unknown,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    Text,
    Bytes,
    Duration,
    Timestamp,
    List(Box<Type>),
    Map(Box<Type>, Box<Type>),
    Object(Arc<Object>),
    Optional(Box<Type>),
}

/// An object with declared fields.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    pub name: String,
    pub fields: BTreeMap<String, Type>,
}

impl Object {
    /// Whether it is a type of which expressions make objects. Its fields are not declared.
    pub fn is_message(&self) -> bool {
        self.name == "JSONPatch" || self.name == "Object" || self.name.starts_with("Object.")
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dyn | Self::Unknown => f.write_str("dyn"),
            Self::Null => f.write_str("null"),
            Self::Bool => f.write_str("bool"),
            Self::Int => f.write_str("int"),
            Self::Uint => f.write_str("uint"),
            Self::Double => f.write_str("double"),
            Self::Text => f.write_str("string"),
            Self::Bytes => f.write_str("bytes"),
            Self::Duration => f.write_str("duration"),
            Self::Timestamp => f.write_str("timestamp"),
            Self::List(of) => write!(f, "list({of})"),
            Self::Map(key, value) => write!(f, "map({key}, {value})"),
            Self::Object(object) => f.write_str(&object.name),
            Self::Optional(of) => write!(f, "optional_type({of})"),
        }
    }
}

impl Type {
    /// The type of `Object{}`, `Object.spec{}` and `JSONPatch{}`.
    pub fn message(name: &str) -> Self {
        Self::Object(Arc::new(Object { name: name.to_owned(), fields: BTreeMap::new() }))
    }

    pub fn open(&self) -> bool {
        matches!(self, Self::Dyn | Self::Unknown)
    }

    /// Whether one may stand where the other is expected.
    pub fn fits(&self, other: &Type) -> bool {
        match (self, other) {
            (a, b) if a.open() || b.open() => true,
            (Self::List(a), Self::List(b)) | (Self::Optional(a), Self::Optional(b)) => a.fits(b),
            (Self::Map(k, v), Self::Map(l, w)) => k.fits(l) && v.fits(w),
            // Objects and messages may be null; scalars may not.
            (Self::Null, Self::Object(_) | Self::Optional(_) | Self::Duration | Self::Timestamp) => true,
            (Self::Object(_) | Self::Optional(_) | Self::Duration | Self::Timestamp, Self::Null) => true,
            (a, b) => a == b,
        }
    }

    /// The type of what a schema describes; `None` where rules cannot reach.
    pub fn of(node: &Node, resource: bool, name: &str) -> Option<Self> {
        if node.int_or_string {
            return Some(Self::Dyn);
        }
        Some(match &*node.ty {
            "boolean" => Self::Bool,
            "integer" => Self::Int,
            "number" => Self::Double,
            "string" => match &*node.format {
                "byte" => Self::Bytes,
                "duration" => Self::Duration,
                "date" | "date-time" | "datetime" => Self::Timestamp,
                _ => Self::Text,
            },
            "array" => {
                let items = node.items.as_ref()?;
                Self::List(Box::new(Self::of(items, items.embedded, &format!("{name}.@items"))?))
            }
            "object" => Self::object(node, resource || node.embedded, name)?,
            _ => return None,
        })
    }

    fn object(node: &Node, resource: bool, name: &str) -> Option<Self> {
        match &node.additional {
            Some(Additional::Schema(values)) => {
                let values = Self::of(values, values.embedded, &format!("{name}.@elem"))?;
                return Some(Self::Map(Box::new(Self::Text), Box::new(values)));
            }
            Some(Additional::Any) if node.properties.is_empty() => {
                return Some(Self::Map(Box::new(Self::Text), Box::new(Self::Dyn)));
            }
            _ => {}
        }
        let mut fields = BTreeMap::new();
        for (key, child) in &node.properties {
            if let (Some(escaped), Some(ty)) = (escape(key), Self::of(child, child.embedded, &format!("{name}.{key}")))
            {
                fields.insert(escaped, ty);
            }
        }
        if resource {
            let meta = ["name", "generateName"].map(|key| (key.to_owned(), Self::Text));
            let meta = Object { name: format!("{name}.metadata"), fields: meta.into() };
            fields.insert("apiVersion".to_owned(), Self::Text);
            fields.insert("kind".to_owned(), Self::Text);
            fields.insert("metadata".to_owned(), Self::Object(Arc::new(meta)));
        }
        Some(Self::Object(Arc::new(Object { name: name.to_owned(), fields })))
    }
}
