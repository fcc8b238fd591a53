//! What others ask about kinds that a workspace has from an export.

use cache::object::Object;
use serde_json::Value;

use super::{SCHEMAS, index, schema};
use crate::{Server, kinds::bound};

/// Where the objects of a resource lie that a workspace has from an export.
pub fn bound_collection(server: &Server, workspace: &str, group: &str, resource: &str) -> Option<Box<str>> {
    let index = server.exports.read();
    let mut bindings = index.bindings_in(workspace).map(|(_, binding)| binding);
    let found = bindings.find_map(|binding| binding.brings(group, resource))?;
    Some(bound::collection(group, resource, &found.identity))
}

/// The kinds that an APIBinding brings, each as the CustomResourceDefinition that it would be; without the server's own.
pub fn bound_definitions(server: &Server, binding: &Object) -> Vec<Value> {
    let value = binding.value();
    let (provider, _) = index::reference(binding.cluster(), &value);
    let bound = value["status"]["boundResources"].as_array().into_iter().flatten();
    let definition = |one: &Value| {
        let group = one["group"].as_str().unwrap_or_default();
        let name = one["schema"]["name"].as_str().filter(|_| !schema::is_ours(group))?;
        let found = server.cache.get(SCHEMAS, &index::key(provider, name))?;
        Some(schema::definition(&found.value()))
    };
    bound.filter_map(definition).collect()
}
