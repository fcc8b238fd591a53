//! A definition without its schemas: what names, columns and conditions need, read without building the schemas in
//! memory.
//!
//! A schema of some megabytes takes tens of times its size as a tree of values. It stays text until somebody needs it.

use std::cell::RefCell;
use std::fmt;

use bytes::Bytes;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value, value::RawValue};

#[derive(Clone, Debug, Default)]
pub struct Light {
    /// Name, annotations, spec without the schemas of its versions, status.
    pub value: Value,
    /// `openAPIV3Schema` of each version, as JSON; empty where there is none.
    pub(super) schemas: Vec<Bytes>,
}

impl Light {
    /// Reads a stored definition, in one pass over its text. What is not of the right shape is left out.
    pub fn read(json: &Bytes) -> Self {
        let schemas = RefCell::default();
        let mut deserializer = serde_json::Deserializer::from_slice(json);
        let value = Part { level: Level::Top, schemas: &schemas }.deserialize(&mut deserializer);
        let slice = |raw: &&RawValue| json.slice_ref(raw.get().as_bytes());
        let schemas = schemas.into_inner().iter().map(|raw| raw.as_ref().map(slice).unwrap_or_default()).collect();
        value.map(|value| Self { value, schemas }).unwrap_or_default()
    }

    /// The same of a definition that is in memory already.
    pub fn of(crd: &Value) -> Self {
        let mut schemas = Vec::new();
        let mut spec = crd.get("spec").and_then(Value::as_object).cloned().unwrap_or_default();
        for version in spec.get_mut("versions").and_then(Value::as_array_mut).into_iter().flatten() {
            let schema = version.as_object_mut().and_then(|version| version.remove("schema"));
            let schema = schema.as_ref().and_then(|schema| schema.get("openAPIV3Schema"));
            schemas.push(schema.map(|schema| schema.to_string().into()).unwrap_or_default());
        }
        let mut value = Map::new();
        value.insert("metadata".to_owned(), crd.get("metadata").cloned().unwrap_or_default());
        value.insert("spec".to_owned(), spec.into());
        value.insert("status".to_owned(), crd.get("status").cloned().unwrap_or_default());
        Self { value: value.into(), schemas }
    }

    pub fn is_established(&self) -> bool {
        let conditions = self.value.pointer("/status/conditions").and_then(Value::as_array);
        conditions.into_iter().flatten().any(|c| c["type"] == "Established" && c["status"] == "True")
    }
}

/// Where in a definition we are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Top,
    Metadata,
    Spec,
    Versions,
    Version,
    Schema,
}

/// Builds a part of a definition, and keeps the text of schemas aside: one for each version.
#[derive(Clone, Copy)]
struct Part<'a, 'de> {
    level: Level,
    schemas: &'a RefCell<Vec<Option<&'de RawValue>>>,
}

impl<'de> DeserializeSeed<'de> for Part<'_, 'de> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Part<'_, 'de> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a part of a definition")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        loop {
            if self.level == Level::Versions {
                self.schemas.borrow_mut().push(None);
            }
            match access.next_element_seed(Self { level: Level::Version, ..self })? {
                Some(item) => items.push(item),
                None => break,
            }
        }
        // One was made for the version that did not come.
        self.schemas.borrow_mut().pop();
        Ok(items.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            let below = |level| Self { level, ..self };
            let value = match (self.level, key.as_str()) {
                (Level::Top, "metadata") => access.next_value_seed(below(Level::Metadata))?,
                (Level::Top, "spec") => access.next_value_seed(below(Level::Spec))?,
                (Level::Spec, "versions") => access.next_value_seed(below(Level::Versions))?,
                (Level::Version, "schema") => {
                    access.next_value_seed(below(Level::Schema))?;
                    continue;
                }
                (Level::Schema, "openAPIV3Schema") => {
                    let raw = access.next_value::<&RawValue>()?;
                    if let Some(place) = self.schemas.borrow_mut().last_mut() {
                        *place = Some(raw);
                    }
                    continue;
                }
                (Level::Top, "status") | (Level::Metadata, "name" | "annotations") => access.next_value()?,
                (Level::Spec | Level::Version, _) => access.next_value()?,
                _ => {
                    access.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn schemas_stay_text() {
        let crd = json!({
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "a.b", "managedFields": [{}], "annotations": {"x": "y"}},
            "spec": {"group": "b", "names": {"plural": "a"}, "versions": [
                {"name": "v1", "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "description": "\u{e9}\"q"}}},
                {"name": "v2"}]},
            "status": {"conditions": [{"type": "Established", "status": "True"}]},
        });
        let light = Light::read(&Bytes::from(crd.to_string()));
        assert_eq!(
            light.value,
            json!({
                "metadata": {"name": "a.b", "annotations": {"x": "y"}},
                "spec": {"group": "b", "names": {"plural": "a"}, "versions": [{"name": "v1", "storage": true}, {"name": "v2"}]},
                "status": {"conditions": [{"type": "Established", "status": "True"}]},
            })
        );
        let schema: Value = serde_json::from_slice(&light.schemas[0]).unwrap();
        assert_eq!(schema, crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]);
        assert!(light.schemas[1].is_empty() && light.is_established());
        assert_eq!(Light::of(&crd).schemas, light.schemas);
        assert!(!Light::read(&Bytes::from_static(b"[1]")).is_established());
    }
}
