//! A version's schema as OpenAPI documents show it.

use codec::openapi::{Dialect, Models};
use schema::json_schema::text;
use serde_json::{Map, Value, json};

use super::definition::{Definition, Version};

const API_VERSION: &str = "APIVersion defines the versioned schema of this representation of an object. Servers should \
    convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources";
const KIND: &str = "Kind is a string value representing the REST resource this object represents. Servers may infer this \
    from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";
const METADATA: &str = "Standard object's metadata. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";
const LIST_METADATA: &str = "Standard list metadata. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";

/// A resource that is embedded in another has these descriptions.
const EMBEDDED_API_VERSION: &str = "apiVersion defines the versioned schema of this representation of an object. More \
    info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources";
const EMBEDDED_KIND: &str = "kind is a string value representing the type of this object. In CamelCase. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";

fn reference(dialect: Dialect, name: &str) -> Value {
    json!({ "$ref": dialect.reference(name) })
}

/// In v3 a reference with a description beside it is wrapped.
fn described(dialect: Dialect, name: &str, description: &str) -> Value {
    let mut value = match dialect {
        Dialect::V2 => reference(dialect, name),
        Dialect::V3 => json!({ "allOf": [reference(dialect, name)] }),
    };
    value["description"] = description.into();
    value
}

impl Definition {
    /// The name of a version's schema in OpenAPI: `com.example.v1.Gadget`.
    pub fn model_name(&self, version: &str, kind: &str) -> String {
        let mut parts: Vec<&str> = self.group.split('.').collect();
        parts.reverse();
        format!("{}.{version}.{kind}", parts.join("."))
    }

    /// The schemas that a document has of a version: the object's and its list's. Without `fields` the object's schema
    /// names none but those of every object, for documents that have no room for more.
    pub fn openapi(&self, version: &Version, dialect: Dialect, fields: bool) -> Models {
        let name = self.model_name(&version.name, &self.names.kind);
        let list = self.list_model(version, &name, dialect);
        let object = if fields { self.object_model(version, dialect) } else { self.bare_model(version, dialect) };
        let list_name = self.model_name(&version.name, &self.names.list_kind);
        Models { object: (name, object), list: (list_name, list) }
    }

    fn bare_model(&self, version: &Version, dialect: Dialect) -> Value {
        let mut model = Map::from_iter([("type".to_owned(), json!("object"))]);
        // Clients of v2 take a schema with fields for all there is.
        if dialect == Dialect::V3 {
            model.insert("x-kubernetes-preserve-unknown-fields".to_owned(), json!(true));
            add_object_fields(&mut model, dialect);
        }
        self.finish(model, version, &self.names.kind)
    }

    fn object_model(&self, version: &Version, dialect: Dialect) -> Value {
        let bare = dialect == Dialect::V2 && version.body().root.preserve_unknown;
        let raw = version.raw();
        let mut model = match raw.as_object() {
            Some(raw) if !bare => published(raw, dialect),
            _ => Map::from_iter([("type".to_owned(), json!("object"))]),
        };
        if !bare && raw.is_object() {
            add_object_fields(&mut model, dialect);
        }
        self.finish(model, version, &self.names.kind)
    }

    fn list_model(&self, version: &Version, item: &str, dialect: Dialect) -> Value {
        let plural = &self.names.plural;
        let items = json!({
            "type": "array", "items": reference(dialect, item),
            "description": format!("List of {plural}. More info: \
                https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md"),
        });
        let meta = described(dialect, "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta", LIST_METADATA);
        let mut fields = Map::from_iter([("items".to_owned(), items), ("metadata".to_owned(), meta)]);
        add_type_meta(&mut fields);
        let description = format!("{} is a list of {}", self.names.list_kind, self.names.kind);
        let model = Map::from_iter([
            ("type".to_owned(), json!("object")),
            ("description".to_owned(), description.into()),
            ("required".to_owned(), json!(["items"])),
            ("properties".to_owned(), Value::Object(fields)),
        ]);
        self.finish(model, version, &self.names.list_kind)
    }

    fn finish(&self, mut model: Map<String, Value>, version: &Version, kind: &str) -> Value {
        let gvk = json!([{ "group": self.group, "version": version.name, "kind": kind }]);
        model.insert("x-kubernetes-group-version-kind".to_owned(), gvk);
        if !version.selectable_fields.is_empty() {
            let fields: Vec<Value> = version
                .selectable_fields
                .iter()
                .map(|path| json!({ "fieldPath": path.trim_start_matches('.') }))
                .collect();
            model.insert("x-kubernetes-selectable-fields".to_owned(), fields.into());
        }
        Value::Object(model)
    }
}

/// Adds the fields of every object, over whatever the definition says of them.
fn add_object_fields(model: &mut Map<String, Value>, dialect: Dialect) {
    let mut fields = match model.remove("properties") {
        Some(Value::Object(fields)) => fields,
        _ => Map::new(),
    };
    let meta = described(dialect, "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta", METADATA);
    fields.insert("metadata".to_owned(), meta);
    add_type_meta(&mut fields);
    model.insert("properties".to_owned(), Value::Object(fields));
}

fn add_type_meta(properties: &mut Map<String, Value>) {
    properties.insert("apiVersion".to_owned(), json!({ "type": "string", "description": API_VERSION }));
    properties.insert("kind".to_owned(), json!({ "type": "string", "description": KIND }));
}

/// What v2 cannot say is left out of it, with everything that hangs on it. Defaults are left out as well.
const NOT_IN_V2: &[&str] = &["nullable", "allOf", "anyOf", "oneOf", "not", "default"];

fn published(raw: &Map<String, Value>, dialect: Dialect) -> Map<String, Value> {
    let flag = |key: &str| raw.get(key).and_then(Value::as_bool).unwrap_or(false);
    let mut model = Map::new();
    for (key, value) in raw {
        if dialect == Dialect::V2 && NOT_IN_V2.contains(&key.as_str()) {
            continue;
        }
        // A flag that is not set is as good as none.
        if *value == Value::Bool(false) && !matches!(key.as_str(), "default" | "example" | "additionalProperties") {
            continue;
        }
        let value = match (key.as_str(), value) {
            ("properties", Value::Object(map)) => {
                map.iter().map(|(name, schema)| (name.clone(), published_value(schema, dialect))).collect()
            }
            ("items" | "additionalProperties", schema @ Value::Object(_)) => published_value(schema, dialect),
            _ => value.clone(),
        };
        model.insert(key.clone(), value);
    }
    match dialect {
        Dialect::V2 => fit_v2(&mut model, raw),
        Dialect::V3 if flag("x-kubernetes-int-or-string") => unfold(&mut model),
        Dialect::V3 => {}
    }
    if flag("x-kubernetes-embedded-resource")
        && !(dialect == Dialect::V2 && flag("x-kubernetes-preserve-unknown-fields"))
    {
        embed(&mut model, dialect);
    }
    model
}

fn published_value(schema: &Value, dialect: Dialect) -> Value {
    schema.as_object().map_or_else(|| schema.clone(), |map| Value::Object(published(map, dialect)))
}

/// kubectl checks values by these schemas: what it cannot follow must look free to it.
fn fit_v2(model: &mut Map<String, Value>, raw: &Map<String, Value>) {
    let flag = |map: &Map<String, Value>, key: &str| map.get(key).and_then(Value::as_bool).unwrap_or(false);
    let (nullable, preserve) = (flag(raw, "nullable"), flag(raw, "x-kubernetes-preserve-unknown-fields"));
    if nullable || preserve {
        model.remove("items");
        model.remove("properties");
    }
    let lost_items = text(model, "type") == "array" && !model.contains_key("items");
    if nullable || lost_items || (preserve && text(model, "type") == "object") {
        model.remove("type");
    }
    let child = |name: &str| raw.get("properties").and_then(|p| p.get(name)).and_then(Value::as_object);
    if let Some(Value::Array(required)) = model.get_mut("required") {
        required.retain(|name| !name.as_str().and_then(child).is_some_and(|schema| flag(schema, "nullable")));
        if required.is_empty() {
            model.remove("required");
        }
    }
    let values = raw.get("additionalProperties").and_then(Value::as_object);
    if values.is_some_and(|values| flag(values, "nullable")) {
        model.remove("required");
    }
}

/// A field that may be a number or a text says so in plain OpenAPI too, unless it already does.
fn unfold(model: &mut Map<String, Value>) {
    let either = json!([{ "type": "integer" }, { "type": "string" }]);
    let first = model.get("allOf").and_then(|all| all.pointer("/0/anyOf"));
    match model.get("anyOf") {
        Some(any) if *any == either => {}
        _ if first == Some(&either) => {}
        None => {
            model.insert("anyOf".to_owned(), either);
        }
        Some(_) => {
            let mut all = match model.remove("allOf") {
                Some(Value::Array(all)) => all,
                _ => Vec::new(),
            };
            all.insert(0, json!({ "anyOf": either }));
            model.insert("allOf".to_owned(), Value::Array(all));
        }
    }
}

fn embed(model: &mut Map<String, Value>, dialect: Dialect) {
    add_object_fields(model, dialect);
    for (field, description) in [("apiVersion", EMBEDDED_API_VERSION), ("kind", EMBEDDED_KIND)] {
        model["properties"][field]["description"] = description.into();
    }
    let required = model.entry("required").or_insert_with(|| json!([]));
    if let Some(list) = required.as_array_mut() {
        for key in ["kind", "apiVersion"] {
            if !list.iter().any(|v| v.as_str() == Some(key)) {
                list.push(key.into());
            }
        }
    }
}
