//! The structure of kinds: an arena of types that decoding, defaulting, patches, server-side apply and protobuf walk.
//!
//! The built-in kinds share one [`Schema`], loaded from a generated data file. Every version of a CustomResourceDefinition
//! has its own small one. Only structure lives here; value rules of custom resources (patterns, bounds, CEL) are in
//! [`rules::crd`], those of built-in kinds in [`rules::validate`].

mod builtin;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use serde_json::Value;

pub use builtin::builtin;

/// A place in a [`Schema`]'s arena.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TypeId(pub u32);

#[derive(Debug, Default)]
pub struct Schema {
    pub types: Vec<Type>,
    pub by_name: HashMap<Box<str>, TypeId>,
    /// Protobuf's view of the types, made when it is first needed.
    pub messages: OnceLock<Vec<crate::messages::Message>>,
}

/// The types of CustomResourceDefinitions that are a schema or something else. Their shape is [`Shape::Any`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchemaOr {
    Array,
    Bool,
    StringArray,
}

#[derive(Debug)]
pub struct Type {
    /// `io.k8s.api.core.v1.Pod`; empty for a type that was written in place.
    pub name: Box<str>,
    pub shape: Shape,
    /// The kinds that objects of this type have.
    pub kinds: Box<[Gvk]>,
    /// `x-kubernetes-unions`, as `discriminator:field,field`.
    pub union: Option<Box<str>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gvk {
    /// `*` for kinds that every group has (`DeleteOptions`, `WatchEvent`).
    pub group: Box<str>,
    pub version: Box<str>,
    pub kind: Box<str>,
}

#[derive(Debug)]
pub enum Shape {
    /// Any JSON value, kept as it is (`RawExtension`, `JSON`, `x-kubernetes-preserve-unknown-fields` without properties).
    Any,
    Boolean,
    Integer {
        bits: u8,
    },
    Number,
    String,
    /// A base64 string in JSON, bytes in protobuf.
    Bytes,
    IntOrString,
    Quantity,
    /// RFC 3339 to the second.
    Time,
    /// RFC 3339 with six digits of fraction.
    MicroTime,
    /// A Go duration as a string (`metav1.Duration`).
    Duration,
    /// `metav1.FieldsV1`: a JSON object here, raw bytes in protobuf.
    FieldsV1,
    Array {
        items: TypeId,
        list: ListType,
    },
    Map {
        values: TypeId,
        atomic: bool,
    },
    Struct(Struct),
}

#[derive(Debug, Default)]
pub struct Struct {
    /// Sorted by name.
    pub fields: Box<[Field]>,
    /// Fields that are not declared are kept (`x-kubernetes-preserve-unknown-fields` beside properties).
    pub preserve_unknown: bool,
    /// `x-kubernetes-map-type: atomic`: one owner for all of it.
    pub atomic: bool,
    /// `x-kubernetes-embedded-resource`: apiVersion, kind and metadata are implied.
    pub embedded: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListType {
    Atomic,
    Set,
    /// `x-kubernetes-list-map-keys`.
    Map(Box<[Box<str>]>),
}

#[derive(Debug, Default)]
pub struct Field {
    pub name: Box<str>,
    pub ty: TypeId,
    pub required: bool,
    /// Null is a value of its own (`nullable: true` in a CRD).
    pub nullable: bool,
    /// `default:` of the published schema or the CRD.
    pub default: Option<Value>,
    /// Strategic merge patch marks; `None` where upstream has none (lists are then replaced).
    pub patch: Option<PatchStrategy>,
    /// Protobuf field numbers from this message down through embedded messages that JSON shows inline; empty if unknown.
    pub numbers: Box<[u32]>,
    pub presence: Presence,
    /// What only error messages and published documents show.
    pub published: Option<Box<Published>>,
}

/// When a field is written: the Go struct's `omitempty` and pointers, seen from JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Presence {
    /// Left out when zero or empty.
    #[default]
    OmitEmpty,
    /// A pointer: absent, or kept whatever its value.
    Pointer,
    /// Always there: zero, empty, or null for a list or map that was not given.
    Always,
    /// A pointer that is always there: null when it was not given.
    Nullable,
}

#[derive(Debug, Default)]
pub struct Published {
    /// The Go type as decoding errors print it (`v1.Protocol`), where the shape does not tell.
    pub go_type: Option<Box<str>>,
    /// Of the field, or of the items of a list.
    pub enumeration: Option<Arc<[Box<str>]>>,
    /// `x-kubernetes-list-type: atomic` is written out, and not merely the default.
    pub atomic_list: bool,
    /// The place among the required fields, where they are not sorted.
    pub required_place: u8,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PatchStrategy {
    pub merge: bool,
    pub replace: bool,
    pub retain_keys: bool,
    pub merge_key: Option<Box<str>>,
}

impl Schema {
    pub fn get(&self, id: TypeId) -> &Type {
        &self.types[id.0 as usize]
    }

    pub fn shape(&self, id: TypeId) -> &Shape {
        &self.get(id).shape
    }

    pub fn find(&self, name: &str) -> Option<TypeId> {
        self.by_name.get(name).copied()
    }

    /// The type of a kind's objects.
    pub fn of_kind(&self, group: &str, version: &str, kind: &str) -> Option<TypeId> {
        let is_it = |k: &Gvk| &*k.kind == kind && &*k.version == version && &*k.group == group;
        let at = self.types.iter().position(|t| t.kinds.iter().any(is_it))?;
        u32::try_from(at).ok().map(TypeId)
    }

    /// The list type that goes with an object type: `…PodList` for `…Pod`.
    pub fn list_of(&self, object: TypeId) -> Option<TypeId> {
        let name = &self.get(object).name;
        if name.is_empty() { None } else { self.find(&format!("{name}List")) }
    }

    /// Which of the [`SchemaOr`] types this is, if any, and the type of its schema.
    pub fn schema_or(&self, id: TypeId) -> Option<(SchemaOr, TypeId)> {
        let (base, other) = self.get(id).name.rsplit_once("Or")?;
        let other = match other {
            "Array" => SchemaOr::Array,
            "Bool" => SchemaOr::Bool,
            "StringArray" => SchemaOr::StringArray,
            _ => return None,
        };
        Some((other, self.find(base)?))
    }

    /// Adds a type and answers its id; named types can then be found by name.
    pub fn add(&mut self, name: &str, shape: Shape) -> TypeId {
        let id = TypeId(u32::try_from(self.types.len()).unwrap_or(u32::MAX));
        self.types.push(Type { name: name.into(), shape, kinds: Box::default(), union: None });
        if !name.is_empty() {
            self.by_name.insert(name.into(), id);
        }
        id
    }

    /// The field of a struct type, if the type is a struct that declares it.
    pub fn field(&self, id: TypeId, name: &str) -> Option<&Field> {
        match self.shape(id) {
            Shape::Struct(s) => s.field(name),
            _ => None,
        }
    }
}

impl Struct {
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.binary_search_by(|f| f.name.as_ref().cmp(name)).ok().map(|i| &self.fields[i])
    }
}
