//! Schemas of types, as OpenAPI documents have them.

use std::collections::BTreeSet;

use schema::catalogue;
use schema::{Field, Gvk, ListType, Presence, Schema, Shape, Struct, Type, TypeId};
use serde_json::{Map, Value, json};

use super::{Dialect, meanings};

/// Collects the definitions that a document refers to.
pub(super) struct Definitions<'a> {
    schema: &'a Schema,
    dialect: Dialect,
    /// The group and version of a v3 document.
    about: Option<(&'a str, &'a str)>,
    wanted: Vec<TypeId>,
    seen: BTreeSet<TypeId>,
}

impl<'a> Definitions<'a> {
    pub(super) fn new(schema: &'a Schema, dialect: Dialect, about: Option<(&'a str, &'a str)>) -> Self {
        Self { schema, dialect, about, wanted: Vec::new(), seen: BTreeSet::new() }
    }

    /// Asks for a type, and answers the reference to it.
    pub(super) fn reference(&mut self, ty: TypeId) -> Value {
        if self.seen.insert(ty) {
            self.wanted.push(ty);
        }
        json!({"$ref": self.dialect.reference(&self.schema.get(ty).name)})
    }

    pub(super) fn reference_named(&mut self, name: &str) -> Value {
        match self.schema.find(name) {
            Some(ty) => self.reference(ty),
            None => json!({"$ref": self.dialect.reference(name)}),
        }
    }

    /// All that was asked for, with what that refers to in turn.
    pub(super) fn finish(mut self) -> Map<String, Value> {
        let mut found = Map::new();
        while let Some(ty) = self.wanted.pop() {
            let definition = self.definition(ty);
            found.insert(self.schema.get(ty).name.to_string(), definition);
        }
        found
    }

    fn definition(&mut self, ty: TypeId) -> Value {
        let schema = self.schema;
        let ty = schema.get(ty);
        let mut definition = match &ty.shape {
            Shape::Struct(s) => self.object(s),
            shape => self.leaf(&ty.name, shape),
        };
        let kinds: Vec<Value> = self.kinds(ty).iter().map(gvk).collect();
        if !kinds.is_empty() {
            definition["x-kubernetes-group-version-kind"] = kinds.into();
        }
        meanings::describe(&ty.name, &mut definition);
        if let Some(union) = &ty.union {
            definition["x-kubernetes-unions"] = json!([union_of(union)]);
        }
        definition
    }

    fn object(&mut self, s: &Struct) -> Value {
        let mut properties = Map::new();
        let mut required = Vec::new();
        for field in &s.fields {
            properties.insert(field.name.to_string(), self.property(field));
            if field.required {
                let place = field.published.as_ref().map_or(0, |p| p.required_place);
                required.push((place, &field.name));
            }
        }
        required.sort();
        let mut object = json!({"type": "object"});
        if !properties.is_empty() {
            object["properties"] = properties.into();
        }
        if !required.is_empty() {
            object["required"] = required.iter().map(|(_, name)| Value::from(&***name)).collect();
        }
        if s.atomic {
            object["x-kubernetes-map-type"] = "atomic".into();
        }
        object
    }

    fn property(&mut self, field: &Field) -> Value {
        let schema = self.schema;
        let shape = schema.shape(field.ty);
        let mut property = self.type_of(field.ty, false);
        let published = field.published.as_deref();
        if let Shape::Array { list, .. } = shape {
            let marked = published.is_some_and(|p| p.atomic_list);
            match list {
                ListType::Atomic if marked => property["x-kubernetes-list-type"] = "atomic".into(),
                ListType::Atomic => {}
                ListType::Set => property["x-kubernetes-list-type"] = "set".into(),
                ListType::Map(keys) => {
                    property["x-kubernetes-list-type"] = "map".into();
                    property["x-kubernetes-list-map-keys"] = keys.iter().map(|k| Value::from(&**k)).collect();
                }
            }
        }
        if let Some(values) = published.and_then(|p| p.enumeration.as_deref()) {
            let values: Value = values.iter().map(|v| Value::from(&**v)).collect();
            match shape {
                Shape::Array { .. } => property["items"]["enum"] = values,
                Shape::Map { .. } => property["additionalProperties"]["enum"] = values,
                _ => property["enum"] = values,
            }
        }
        if let Some(patch) = &field.patch {
            let names = [(patch.merge, "merge"), (patch.replace, "replace"), (patch.retain_keys, "retainKeys")];
            let names: Vec<&str> = names.iter().filter(|(on, _)| *on).map(|(_, name)| *name).collect();
            property["x-kubernetes-patch-strategy"] = names.join(",").into();
            if let Some(key) = &patch.merge_key {
                property["x-kubernetes-patch-merge-key"] = (**key).into();
            }
        }
        if self.dialect == Dialect::V3 {
            let zero = if field.presence == Presence::Always { zero(shape) } else { None };
            if let Some(default) = field.default.clone().or(zero) {
                property["default"] = default;
            }
        }
        property
    }

    /// The type of a property, or of what a list or a map holds.
    fn type_of(&mut self, ty: TypeId, inner: bool) -> Value {
        let schema = self.schema;
        let Type { name, shape, .. } = schema.get(ty);
        if !name.is_empty() {
            let reference = self.reference(ty);
            let default = if inner { zero(shape) } else { None };
            return match (self.dialect, default) {
                (Dialect::V2, _) => reference,
                (Dialect::V3, Some(default)) => json!({"allOf": [reference], "default": default}),
                (Dialect::V3, None) if inner => reference,
                (Dialect::V3, None) => json!({"allOf": [reference]}),
            };
        }
        let mut found = match shape {
            Shape::Array { items, .. } => return json!({"type": "array", "items": self.type_of(*items, true)}),
            Shape::Map { values, atomic } => {
                let mut map = json!({"type": "object", "additionalProperties": self.type_of(*values, true)});
                if *atomic {
                    map["x-kubernetes-map-type"] = "atomic".into();
                }
                return map;
            }
            _ => self.leaf("", shape),
        };
        if inner
            && self.dialect == Dialect::V3
            && let Some(default) = zero(shape)
        {
            found["default"] = default;
        }
        found
    }

    fn leaf(&self, name: &str, shape: &Shape) -> Value {
        let v2 = self.dialect == Dialect::V2;
        match shape {
            Shape::Boolean => json!({"type": "boolean"}),
            Shape::Integer { bits: 32 } => json!({"type": "integer", "format": "int32"}),
            Shape::Integer { .. } => json!({"type": "integer", "format": "int64"}),
            Shape::Number => json!({"type": "number", "format": "double"}),
            Shape::Bytes => json!({"type": "string", "format": "byte"}),
            Shape::Quantity if !v2 => json!({"oneOf": [{"type": "string"}, {"type": "number"}]}),
            Shape::IntOrString if v2 => json!({"type": "string", "format": "int-or-string"}),
            Shape::IntOrString => {
                json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]})
            }
            Shape::Time | Shape::MicroTime => json!({"type": "string", "format": "date-time"}),
            Shape::String | Shape::Quantity | Shape::Duration => json!({"type": "string"}),
            Shape::FieldsV1 => json!({"type": "object"}),
            // JSON of any kind has no type; extensions and patches are objects.
            Shape::Any if name.contains(".JSON") || name.is_empty() => json!({}),
            _ => json!({"type": "object"}),
        }
    }

    /// The kinds of a type; those of every group are named for the groups of the document.
    fn kinds(&self, ty: &Type) -> Vec<Gvk> {
        if !ty.kinds.iter().any(|k| &*k.group == "*") {
            return ty.kinds.to_vec();
        }
        let kind = ty.name.rsplit('.').next().unwrap_or_default();
        let of = |group: &str, version: &str| Gvk { group: group.into(), version: version.into(), kind: kind.into() };
        match self.about {
            Some(("", version)) => vec![of("", version)],
            Some((group, version)) => vec![of("", "v1"), of(group, version)],
            None => {
                let mut groups: Vec<_> = catalogue::groups().iter().collect();
                groups.sort_by_key(|g| &g.name);
                groups.iter().flat_map(|g| g.versions.iter().map(|v| of(&g.name, v))).collect()
            }
        }
    }
}

pub(super) fn gvk(kind: &Gvk) -> Value {
    json!({"group": kind.group, "kind": kind.kind, "version": kind.version})
}

/// What Go writes when nothing was given, for types whose schema says so.
fn zero(shape: &Shape) -> Option<Value> {
    match shape {
        Shape::String => Some("".into()),
        Shape::Boolean => Some(false.into()),
        Shape::Integer { .. } | Shape::Number => Some(0.into()),
        Shape::Struct(_) => Some(json!({})),
        _ => None,
    }
}

/// `type:localhostProfile` names the discriminator and the fields that it chooses between.
fn union_of(text: &str) -> Value {
    let (discriminator, fields) = text.split_once(':').unwrap_or(("", text));
    let name = |field: &str| {
        let mut letters = field.chars();
        letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect::<String>())
    };
    let fields: Map<String, Value> = fields.split(',').map(|f| (f.to_owned(), name(f).into())).collect();
    let mut union = json!({"fields-to-discriminateBy": fields});
    if !discriminator.is_empty() {
        union["discriminator"] = discriminator.into();
    }
    union
}
