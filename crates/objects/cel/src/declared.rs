//! Types of expressions as the structure of a kind declares them, built-in or custom.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use schema::{Schema, Shape, TypeId};

use super::json::escape;
use super::types::{Object, Type};

impl Type {
    /// The type of objects of a kind. `name` is what it is called in messages.
    pub fn declared(schema: &Schema, ty: TypeId, name: &str) -> Self {
        Declaring { schema, known: HashMap::new(), open: Vec::new() }.of(ty, name)
    }
}

struct Declaring<'s> {
    schema: &'s Schema,
    /// A type that is used in several places has the name of the first.
    known: HashMap<TypeId, Type>,
    /// Types that contain the one that is being declared.
    open: Vec<TypeId>,
}

impl Declaring<'_> {
    fn of(&mut self, ty: TypeId, name: &str) -> Type {
        match self.schema.shape(ty) {
            Shape::Boolean => Type::Bool,
            Shape::Integer { .. } => Type::Int,
            Shape::Number => Type::Double,
            Shape::String | Shape::Duration => Type::Text,
            Shape::Bytes => Type::Bytes,
            Shape::Time | Shape::MicroTime => Type::Timestamp,
            // What has several forms is known only when it is evaluated.
            Shape::Any | Shape::IntOrString | Shape::Quantity => Type::Dyn,
            Shape::FieldsV1 => object(name, BTreeMap::new()),
            Shape::Array { items, .. } => Type::List(Box::new(self.of(*items, &format!("{name}.@items")))),
            Shape::Map { values, .. } => {
                Type::Map(Box::new(Type::Text), Box::new(self.of(*values, &format!("{name}.@elem"))))
            }
            Shape::Struct(fields) if fields.preserve_unknown || fields.embedded => Type::Dyn,
            Shape::Struct(fields) => {
                if let Some(known) = self.known.get(&ty) {
                    return known.clone();
                }
                if self.open.contains(&ty) {
                    // A type that contains itself has no fields there, as upstream has it.
                    return object(name, BTreeMap::new());
                }
                self.open.push(ty);
                let declared = fields.fields.iter().filter_map(|field| {
                    let escaped = escape(&field.name)?;
                    Some((escaped, self.of(field.ty, &format!("{name}.{}", field.name))))
                });
                let made = object(name, declared.collect());
                self.open.pop();
                self.known.insert(ty, made.clone());
                made
            }
        }
    }
}

fn object(name: &str, fields: BTreeMap<String, Type>) -> Type {
    Type::Object(Arc::new(Object { name: name.to_owned(), fields }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Environment, Expression};
    use schema::builtin;

    fn checked(kind: (&str, &str, &str), expression: &str) -> Result<Type, String> {
        let ty = builtin().of_kind(kind.0, kind.1, kind.2).expect("a built-in kind");
        let object = Type::declared(builtin(), ty, kind.2);
        Expression::compile(expression, &Environment::new([("object".to_owned(), object)])).map(|(_, ty)| ty)
    }

    #[test]
    fn built_in_kinds_declare_their_fields() {
        let deployment = ("apps", "v1", "Deployment");
        for (expression, expected) in [
            ("object.spec.replicas > 1", Type::Bool),
            ("object.metadata.name", Type::Text),
            ("object.metadata.labels['a']", Type::Text),
            ("object.metadata.creationTimestamp", Type::Timestamp),
            ("object.spec.template.spec.containers.all(c, c.image.startsWith('a'))", Type::Bool),
            ("object.spec.strategy.rollingUpdate.maxSurge", Type::Dyn),
            ("object.spec.template.spec.containers[0].resources.limits['cpu']", Type::Dyn),
            ("has(object.spec.template.spec.__namespace__) ", Type::Unknown),
        ] {
            match (checked(deployment, expression), expected) {
                (Ok(found), expected) => assert_eq!(found, expected, "{expression}"),
                (Err(why), Type::Unknown) => assert!(why.contains("undefined field"), "{why}"),
                (Err(why), _) => panic!("{expression}: {why}"),
            }
        }
        for (expression, expected) in [
            ("object.spec.replicas > '1'", "found no matching overload for '_>_' applied to '(int, string)'"),
            ("object.spec.replica > 1", "undefined field 'replica'"),
            ("object.spec.template.spec.containers.all(c, c.imag == 'a')", "undefined field 'imag'"),
            ("'replicas: ' + object.spec.replicas", "found no matching overload for '_+_' applied to '(string, int)'"),
        ] {
            let why = checked(deployment, expression).expect_err(expression);
            assert!(why.contains(expected), "{expression}: {why}");
        }
    }

    #[test]
    fn a_type_that_contains_itself_ends() {
        let definition = ("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
        assert!(checked(definition, "object.spec.versions[0].schema.openAPIV3Schema.type == 'object'").is_ok());
    }
}
