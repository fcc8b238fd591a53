//! Definitions of custom resources, from the schema of their CustomResourceDefinition.

use serde_json::{Map, Value, json};

use super::Dialect;
use super::definition::Definitions;
use crate::catalogue::Resource;

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// `com.example.stable.v1.CronTab` for `CronTab` in `stable.example.com/v1`.
pub(super) fn name(resource: &Resource, kind: &str) -> String {
    let group: Vec<&str> = resource.group.rsplit('.').collect();
    format!("{}.{}.{kind}", group.join("."), resource.version)
}

/// Adds the definitions of the kind and of its list.
pub(super) fn define(
    resource: &Resource,
    schema: &Value,
    dialect: Dialect,
    definitions: &mut Definitions<'_>,
    found: &mut Map<String, Value>,
) {
    let kind = |name: &str| json!([{"group": resource.group, "kind": name, "version": resource.version}]);
    let mut object = schema.clone();
    if dialect == Dialect::V2 {
        simplify(&mut object);
    }
    if !object.is_object() {
        object = json!({});
    }
    object["type"] = "object".into();
    object["x-kubernetes-group-version-kind"] = kind(&resource.kind);
    // A kind that keeps everything has no properties in v2.
    if object.get("x-kubernetes-preserve-unknown-fields").is_none() || object.get("properties").is_some() {
        let properties = &mut object["properties"];
        properties["apiVersion"] = json!({"type": "string"});
        properties["kind"] = json!({"type": "string"});
        properties["metadata"] = sited(definitions.reference_named(&format!("{META}.ObjectMeta")), dialect);
    }
    found.insert(name(resource, &resource.kind), object);

    let list = format!("{}List", resource.kind);
    let items = json!({"$ref": dialect.reference(&name(resource, &resource.kind))});
    let definition = json!({
        "type": "object", "required": ["items"], "x-kubernetes-group-version-kind": kind(&list),
        "properties": {
            "apiVersion": {"type": "string"}, "kind": {"type": "string"},
            "items": {"type": "array", "items": items},
            "metadata": sited(definitions.reference_named(&format!("{META}.ListMeta")), dialect),
        },
    });
    found.insert(name(resource, &list), definition);
}

fn sited(reference: Value, dialect: Dialect) -> Value {
    if dialect == Dialect::V3 { json!({"allOf": [reference]}) } else { reference }
}

/// Leaves out what version 2 of OpenAPI cannot say, as upstream does.
fn simplify(schema: &mut Value) {
    let Some(map) = schema.as_object_mut() else { return };
    for key in ["oneOf", "anyOf", "allOf", "not", "default"] {
        map.remove(key);
    }
    let on = |key: &str| map.get(key).and_then(Value::as_bool).unwrap_or(false);
    if on("nullable") || on("x-kubernetes-int-or-string") || on("x-kubernetes-preserve-unknown-fields") {
        for key in ["type", "items", "properties", "additionalProperties", "required", "nullable", "format"] {
            map.remove(key);
        }
    }
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = map.get_mut(key) {
            simplify(inner);
        }
    }
    if let Some(Value::Object(properties)) = map.get_mut("properties") {
        properties.values_mut().for_each(simplify);
    }
}
