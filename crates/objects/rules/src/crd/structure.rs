//! From the rules of a version to the structure that decoding, patches and server-side apply walk.

use std::collections::HashSet;

use schema::json_schema::{Additional, Node};
use schema::{Field, ListType, Schema, Shape, Struct, TypeId};

/// Builds the arena of one version; the answer is the root, `apiVersion`, `kind` and `metadata` included.
pub(crate) fn build(root: &Node) -> (Schema, TypeId) {
    let mut schema = Schema::default();
    let mut builder = Builder { meta: None, schema: &mut schema };
    let root = builder.object(root, true);
    (schema, root)
}

struct Builder<'a> {
    schema: &'a mut Schema,
    meta: Option<TypeId>,
}

impl Builder<'_> {
    fn add(&mut self, shape: Shape) -> TypeId {
        self.schema.add("", shape)
    }

    fn node(&mut self, node: &Node) -> TypeId {
        if node.int_or_string {
            return self.add(Shape::IntOrString);
        }
        match &*node.ty {
            "boolean" => self.add(Shape::Boolean),
            "integer" => self.add(Shape::Integer { bits: if &*node.format == "int32" { 32 } else { 64 } }),
            "number" => self.add(Shape::Number),
            "string" => self.add(Shape::String),
            "array" => self.array(node),
            "object" => self.object(node, node.embedded),
            _ => self.add(Shape::Any),
        }
    }

    fn array(&mut self, node: &Node) -> TypeId {
        let items = match &node.items {
            Some(items) => self.node(items),
            None => self.add(Shape::Any),
        };
        let list = match node.list_type.as_deref() {
            Some("set") => ListType::Set,
            Some("map") => ListType::Map(node.list_map_keys.clone().into()),
            _ => ListType::Atomic,
        };
        self.add(Shape::Array { items, list })
    }

    fn object(&mut self, node: &Node, resource: bool) -> TypeId {
        if !resource && node.properties.is_empty() {
            match &node.additional {
                Some(Additional::Schema(values)) => {
                    let values = self.node(values);
                    return self.add(Shape::Map { values, atomic: node.is_atomic_map() });
                }
                Some(Additional::Any) => {
                    let values = self.add(Shape::Any);
                    return self.add(Shape::Map { values, atomic: node.is_atomic_map() });
                }
                None if node.preserve_unknown && !node.is_atomic_map() => return self.add(Shape::Any),
                None => {}
            }
        }
        let mut fields: Vec<Field> = Vec::new();
        let all_required: HashSet<&str> = node.required.iter().map(|name| &**name).collect();
        for (name, child) in &node.properties {
            if resource && matches!(&**name, "apiVersion" | "kind" | "metadata") {
                continue;
            }
            let ty = self.node(child);
            let required = all_required.contains(&**name);
            fields.push(Field {
                required,
                nullable: child.nullable,
                default: child.default.clone(),
                ..field(name, ty)
            });
        }
        if resource {
            let string = self.add(Shape::String);
            fields.push(field("apiVersion", string));
            fields.push(field("kind", string));
            let meta = self.object_meta();
            fields.push(field("metadata", meta));
        }
        fields.sort_by(|a, b| a.name.cmp(&b.name));
        self.add(Shape::Struct(Struct {
            fields: fields.into(),
            preserve_unknown: node.preserve_unknown,
            atomic: node.is_atomic_map(),
            embedded: node.embedded,
        }))
    }

    /// `metav1.ObjectMeta`, with the list types that its published schema marks.
    fn object_meta(&mut self) -> TypeId {
        if let Some(meta) = self.meta {
            return meta;
        }
        let string = self.add(Shape::String);
        let boolean = self.add(Shape::Boolean);
        let time = self.add(Shape::Time);
        let long = self.add(Shape::Integer { bits: 64 });
        let strings = self.add(Shape::Map { values: string, atomic: false });
        let string_set = self.add(Shape::Array { items: string, list: ListType::Set });
        let raw_fields = self.add(Shape::FieldsV1);
        let entry = self.structure(vec![
            ("apiVersion", string),
            ("fieldsType", string),
            ("fieldsV1", raw_fields),
            ("manager", string),
            ("operation", string),
            ("subresource", string),
            ("time", time),
        ]);
        let entries = self.add(Shape::Array { items: entry, list: ListType::Atomic });
        let owner = self.structure(vec![
            ("apiVersion", string),
            ("blockOwnerDeletion", boolean),
            ("controller", boolean),
            ("kind", string),
            ("name", string),
            ("uid", string),
        ]);
        if let Shape::Struct(s) = &mut self.schema.types[owner.0 as usize].shape {
            s.atomic = true;
        }
        let owners = self.add(Shape::Array { items: owner, list: ListType::Map(Box::new(["uid".into()])) });
        let meta = self.structure(vec![
            ("annotations", strings),
            ("creationTimestamp", time),
            ("deletionGracePeriodSeconds", long),
            ("deletionTimestamp", time),
            ("finalizers", string_set),
            ("generateName", string),
            ("generation", long),
            ("labels", strings),
            ("managedFields", entries),
            ("name", string),
            ("namespace", string),
            ("ownerReferences", owners),
            ("resourceVersion", string),
            ("selfLink", string),
            ("uid", string),
        ]);
        self.meta = Some(meta);
        meta
    }

    fn structure(&mut self, fields: Vec<(&str, TypeId)>) -> TypeId {
        let fields = fields.into_iter().map(|(name, ty)| field(name, ty)).collect();
        self.add(Shape::Struct(Struct { fields, ..Struct::default() }))
    }
}

fn field(name: &str, ty: TypeId) -> Field {
    Field { name: name.into(), ty, ..Field::default() }
}
