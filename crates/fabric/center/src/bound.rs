//! Kinds that a workspace has from another one's export. Their objects lie apart at the center, by the export's identity; on the link and on
//! edges they are objects of a kind like any other, and the kind's definition, which the workspace has no object of, goes with them.

use std::sync::Arc;

use cache::object::Object;
use kinds::ObjectKey;
use placement::{Id, engine::Engine};
use server::{BINDINGS, Server, bound_collection, bound_definitions};

const DEFINITIONS: &str = "apiextensions.k8s.io/customresourcedefinitions";

/// The name that the link has for a collection.
pub fn plain(collection: &str) -> &str {
    collection.split(':').next().unwrap_or(collection)
}

/// The object of a workspace that a key of the link stands for.
pub fn source(server: &Server, workspace: &str, key: &ObjectKey<'_>) -> Option<Arc<Object>> {
    let local = format!("{workspace}/{}/{}", key.namespace, key.name);
    server.cache.get(key.collection, &local).or_else(|| {
        let (group, resource) = key.collection.split_once('/')?;
        server.cache.get(&bound_collection(server, workspace, group, resource)?, &local)
    })
}

/// Which definitions each binding stands for, as the engine was told.
#[derive(Default)]
pub struct Definitions(std::collections::HashMap<Id, Vec<String>>);

impl Definitions {
    /// A binding is there, is another, or is gone.
    pub fn set(&mut self, engine: &mut Engine, server: &Server, binding: &Object, gone: bool) {
        let id = Id::new(binding.cluster(), binding.name());
        let before = self.0.remove(&id).unwrap_or_default();
        let mut now = Vec::new();
        for definition in (!gone).then(|| bound_definitions(server, binding)).into_iter().flatten() {
            let Some(name) = definition["metadata"]["name"].as_str() else { continue };
            let json = serde_json::to_vec(&definition).unwrap_or_default().into();
            engine.set_object(&id.workspace, &definition_key(name), Some(&json), binding.revision);
            now.push(name.to_owned());
        }
        for name in before.iter().filter(|name| !now.contains(name)) {
            engine.set_object(&id.workspace, &definition_key(name), None, binding.revision);
        }
        if !now.is_empty() {
            self.0.insert(id, now);
        }
    }

    /// All bindings of a workspace.
    pub fn load(&mut self, engine: &mut Engine, server: &Server, workspace: &str) {
        self.0.retain(|id, _| *id.workspace != *workspace);
        for binding in server.cache.snapshot(BINDINGS).items.range(&format!("{workspace}/"), "") {
            self.set(engine, server, binding, false);
        }
    }
}

fn definition_key(name: &str) -> ObjectKey<'_> {
    ObjectKey { collection: DEFINITIONS, namespace: "", name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_on_the_link() {
        for (collection, name) in [
            ("core/configmaps", "core/configmaps"),
            ("weaving.example/looms:0123456789abcdef01234567", "weaving.example/looms"),
        ] {
            assert_eq!(plain(collection), name);
        }
    }
}
