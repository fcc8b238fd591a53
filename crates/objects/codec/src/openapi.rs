//! OpenAPI v2 and v3 documents, made from the schema and the catalogue.
//!
//! A document is large when it is made and rarely asked for: keep its serialized form at most.

mod definition;
mod meanings;
mod paths;
mod protobuf;

use std::collections::BTreeMap;

use schema::catalogue::{KUBERNETES_VERSION, Resource, Subresource, api_version};
use schema::{Schema, TypeId};
use serde::Serialize;
use serde_json::{Map, Value, json, value::RawValue};

use definition::Definitions;
use paths::Paths;

/// A resource that a document is to describe.
#[derive(Clone, Copy, Debug)]
pub struct OpenApiResource<'a> {
    pub resource: &'a Resource,
    pub schema: Definition<'a>,
}

/// Where the structure of a resource comes from.
#[derive(Clone, Copy, Debug)]
pub enum Definition<'a> {
    /// A type of the schema.
    BuiltIn(TypeId),
    /// A version of a CustomResourceDefinition, as it makes its schemas for the document's dialect.
    Custom(&'a Models),
}

/// The schemas of a custom resource, with their names: `com.example.stable.v1.CronTab` and `…CronTabList`.
#[derive(Clone, Debug)]
pub struct Models {
    pub object: (String, Value),
    pub list: (String, Value),
}

/// The version of OpenAPI that a document is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    V2,
    V3,
}

impl Dialect {
    pub fn reference(self, name: &str) -> String {
        match self {
            Self::V2 => format!("#/definitions/{name}"),
            Self::V3 => format!("#/components/schemas/{name}"),
        }
    }
}

/// The built-in resources of one group and version.
pub fn builtin_resources<'a>(group: &'a str, version: &'a str) -> impl Iterator<Item = OpenApiResource<'static>> + 'a {
    let resources = schema::catalogue::builtin().iter();
    let resources = resources.filter(move |r| &*r.group == group && &*r.version == version);
    resources.filter_map(|resource| Some(OpenApiResource { resource, schema: Definition::BuiltIn(resource.ty?) }))
}

/// The v3 document of one group and version, in JSON.
pub fn v3<'a>(
    schema: &Schema,
    group_version: (&str, &str),
    resources: impl Iterator<Item = OpenApiResource<'a>>,
) -> Vec<u8> {
    let resources: Vec<_> = resources.collect();
    // Documents about definitions are another server's in upstream, which says a little less.
    let defined = resources.iter().all(|r| matches!(r.schema, Definition::Custom(_)));
    let mut definitions = Definitions::new(schema, Dialect::V3, Some(group_version));
    if !defined {
        definitions.reference_named(RESOURCE_LIST);
        definitions.reference_named(WATCH_EVENT);
    }
    let (paths, custom) = describe(schema, Dialect::V3, resources.into_iter(), &mut definitions, raw);
    let mut schemas = definitions.finish();
    schemas.extend(custom);
    let (components, info) = match defined {
        true => (json!({"schemas": schemas}), json!({"title": "Kubernetes CRD Swagger", "version": "v0.1.0"})),
        false => (json!({"schemas": schemas, "securitySchemes": security()}), info()),
    };
    written(&V3 { components, info, openapi: "3.0.0", paths })
}

/// The v2 document of all resources, in JSON.
pub fn v2<'a>(schema: &Schema, resources: impl Iterator<Item = OpenApiResource<'a>>) -> Vec<u8> {
    let mut definitions = Definitions::new(schema, Dialect::V2, None);
    definitions.reference_named(RESOURCE_LIST);
    definitions.reference_named(WATCH_EVENT);
    let (paths, custom) = describe(schema, Dialect::V2, resources, &mut definitions, raw);
    let mut found = definitions.finish();
    found.extend(custom);
    written(&V2 {
        definitions: found,
        info: info(),
        paths,
        security: json!([{"BearerToken": []}]),
        security_definitions: security(),
        swagger: SWAGGER,
    })
}

/// The v2 document of all resources, in protobuf.
pub fn v2_protobuf<'a>(schema: &Schema, resources: impl Iterator<Item = OpenApiResource<'a>>) -> Vec<u8> {
    let mut definitions = Definitions::new(schema, Dialect::V2, None);
    definitions.reference_named(RESOURCE_LIST);
    definitions.reference_named(WATCH_EVENT);
    let encode = |item: Value| protobuf::path_item(&item);
    let (paths, custom) = describe(schema, Dialect::V2, resources, &mut definitions, encode);
    let mut found = definitions.finish();
    found.extend(custom);
    protobuf::document(SWAGGER, &info(), &paths, &found)
}

const SWAGGER: &str = "2.0";
/// What lists of resources and events of watches are, which only some servers describe.
const RESOURCE_LIST: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.APIResourceList";
const WATCH_EVENT: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent";

/// Fields in the order of their names, as the rest of a document is.
#[derive(Serialize)]
struct V3 {
    components: Value,
    info: Value,
    openapi: &'static str,
    paths: BTreeMap<String, Option<Box<RawValue>>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct V2 {
    definitions: Map<String, Value>,
    info: Value,
    paths: BTreeMap<String, Option<Box<RawValue>>>,
    security: Value,
    security_definitions: Value,
    swagger: &'static str,
}

fn info() -> Value {
    json!({"title": "Kubernetes", "version": KUBERNETES_VERSION})
}

fn security() -> Value {
    json!({"BearerToken": {
        "description": "Bearer Token authentication", "in": "header", "name": "authorization", "type": "apiKey"}})
}

/// A path as text. It takes a twentieth of the memory, and there may be thousands.
fn raw(item: Value) -> Option<Box<RawValue>> {
    serde_json::value::to_raw_value(&item).ok()
}

fn written(document: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(document).unwrap_or_default()
}

/// Paths of the resources, each as `keep` makes it, and definitions of the custom ones among them.
fn describe<'a, T>(
    schema: &Schema,
    dialect: Dialect,
    resources: impl Iterator<Item = OpenApiResource<'a>>,
    definitions: &mut Definitions<'_>,
    keep: impl Fn(Value) -> T,
) -> (BTreeMap<String, T>, Map<String, Value>) {
    let mut all = BTreeMap::new();
    let mut custom_definitions = Map::new();
    for name in ["DeleteOptions", "Status", "Patch"] {
        definitions.reference_named(&format!("io.k8s.apimachinery.pkg.apis.meta.v1.{name}"));
    }
    for OpenApiResource { resource, schema: source } in resources {
        let (object, list, custom) = match source {
            Definition::BuiltIn(ty) => {
                definitions.reference(ty);
                let list = schema.list_of(ty);
                if let Some(list) = list {
                    definitions.reference(list);
                }
                let name = schema.get(ty).name.to_string();
                (name.clone(), list.map_or(name, |l| schema.get(l).name.to_string()), false)
            }
            Definition::Custom(Models { object, list }) => {
                for name in ["ObjectMeta", "ListMeta"] {
                    definitions.reference_named(&format!("io.k8s.apimachinery.pkg.apis.meta.v1.{name}"));
                }
                custom_definitions.extend([object.clone(), list.clone()]);
                (object.0.clone(), list.0.clone(), true)
            }
        };
        let speaks = |s: &Subresource| match schema.of_kind(&s.group, &s.version, &s.kind) {
            Some(ty) => schema.get(ty).name.to_string(),
            None => object.clone(),
        };
        for subresource in &resource.subresources {
            if let Some(ty) = schema.of_kind(&subresource.group, &subresource.version, &subresource.kind) {
                definitions.reference(ty);
            }
        }
        let paths = Paths { dialect, resource, object: &object, list: &list, subresource: &speaks, custom };
        let mut written = Map::new();
        paths.write(&mut written);
        all.extend(written.into_iter().map(|(path, item)| (path, keep(item))));
    }
    (all, custom_definitions)
}

/// The key of a group version's document in the v3 index: `api/v1`, `apis/apps/v1`.
pub fn index_key(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{}", api_version(group, version)) }
}

#[cfg(test)]
mod tests;
