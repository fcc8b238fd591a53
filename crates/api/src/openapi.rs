//! OpenAPI v2 and v3 documents, made from the schema and the catalogue.
//!
//! A document is large when it is made and rarely asked for: keep its serialized form at most.

mod custom;
mod definition;
mod paths;
mod protobuf;

use serde_json::{Map, Value, json};

use crate::catalogue::{KUBERNETES_VERSION, Resource, Subresource, api_version};
use crate::schema::{Schema, TypeId};
use definition::Definitions;
use paths::Paths;
pub use protobuf::v2_protobuf;

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
    /// The OpenAPI v3 schema of a CustomResourceDefinition.
    Custom(&'a Value),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dialect {
    V2,
    V3,
}

impl Dialect {
    fn reference(self, name: &str) -> String {
        match self {
            Self::V2 => format!("#/definitions/{name}"),
            Self::V3 => format!("#/components/schemas/{name}"),
        }
    }
}

/// The built-in resources of one group and version.
pub fn builtin_resources<'a>(group: &'a str, version: &'a str) -> impl Iterator<Item = OpenApiResource<'static>> + 'a {
    let resources = crate::catalogue::builtin().iter();
    let resources = resources.filter(move |r| &*r.group == group && &*r.version == version);
    resources.filter_map(|resource| Some(OpenApiResource { resource, schema: Definition::BuiltIn(resource.ty?) }))
}

/// The v3 document of one group and version.
pub fn v3<'a>(
    schema: &Schema,
    group_version: (&str, &str),
    resources: impl Iterator<Item = OpenApiResource<'a>>,
) -> Value {
    let mut definitions = Definitions::new(schema, Dialect::V3, Some(group_version));
    let (paths, custom) = describe(schema, Dialect::V3, resources, &mut definitions);
    let mut schemas = definitions.finish();
    schemas.extend(custom);
    let security = json!({"BearerToken": {
        "description": "Bearer Token authentication", "in": "header", "name": "authorization", "type": "apiKey"}});
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": KUBERNETES_VERSION},
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": security},
    })
}

/// The v2 document of all resources.
pub fn v2<'a>(schema: &Schema, resources: impl Iterator<Item = OpenApiResource<'a>>) -> Value {
    let mut definitions = Definitions::new(schema, Dialect::V2, None);
    let (paths, custom) = describe(schema, Dialect::V2, resources, &mut definitions);
    let mut found = definitions.finish();
    found.extend(custom);
    let security = json!({"BearerToken": {
        "description": "Bearer Token authentication", "in": "header", "name": "authorization", "type": "apiKey"}});
    json!({
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": KUBERNETES_VERSION},
        "paths": paths,
        "definitions": found,
        "securityDefinitions": security,
        "security": [{"BearerToken": []}],
    })
}

/// Paths of the resources, and definitions of the custom ones among them.
fn describe<'a>(
    schema: &Schema,
    dialect: Dialect,
    resources: impl Iterator<Item = OpenApiResource<'a>>,
    definitions: &mut Definitions<'_>,
) -> (Map<String, Value>, Map<String, Value>) {
    let mut all = Map::new();
    let mut custom_definitions = Map::new();
    for name in ["DeleteOptions", "Status", "Patch", "WatchEvent", "APIResourceList"] {
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
            Definition::Custom(raw) => {
                custom::define(resource, raw, dialect, definitions, &mut custom_definitions);
                let list = custom::name(resource, &format!("{}List", resource.kind));
                (custom::name(resource, &resource.kind), list, true)
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
        paths.write(&mut all);
    }
    (all, custom_definitions)
}

/// The key of a group version's document in the v3 index: `api/v1`, `apis/apps/v1`.
pub fn index_key(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{}", api_version(group, version)) }
}

#[cfg(test)]
mod tests;
