//! Our own kinds as workspaces find them: an APIExport for each of their groups, in the workspace of the edge service provider.
//!
//! What is served of them comes with the server; the schemas here are for people and clients to read, named by a hash of their text, so
//! that a server that has learnt something new shows it and nobody else has to compare.

use std::{collections::BTreeMap, sync::Arc};

use request::ROOT;
use schema::status::Result;
use serde_json::{Value, json};

use super::{EXPORTS, GROUP, SCHEMAS, VERSION, admit::FINALIZER, identity};
use crate::{
    Server,
    internal::Internal,
    kinds::{Kind, system},
    verbs::delete::Options,
    workspaces,
};

pub use system::PROVIDER;

const MANAGER: &str = "selvedge";

/// Makes the workspace, what it exports, and the bindings of `root`, as far as they are not there.
pub async fn offer(server: &Arc<Server>) -> Result<()> {
    let root = Internal::new(server, ROOT, MANAGER);
    let spaces = root.kind(workspaces::GROUP, workspaces::VERSION, "workspaces")?;
    let name = workspaces::path::name(PROVIDER);
    let of_type = json!({"name": "universal", "path": ROOT});
    root.ensure(&spaces, "", json!({"metadata": {"name": name}, "spec": {"type": of_type}})).await?;
    export(&Internal::new(server, PROVIDER, MANAGER)).await?;
    let types = root.kind(workspaces::GROUP, workspaces::VERSION, "workspacetypes")?;
    let bindings = root.kind(GROUP, VERSION, "apibindings")?;
    let mut wanted: Vec<Wanted<'_>> = workspaces::placement_types().into_iter().map(|one| (&types, "", one)).collect();
    wanted.extend(exports().into_keys().map(|group| (&bindings, "", binding(group))));
    root.make_missing(&wanted).await
}

/// Kind, namespace, object.
type Wanted<'a> = (&'a Arc<Kind>, &'a str, Value);

/// By which a workspace gets the kinds of one of our groups.
fn binding(group: &str) -> Value {
    json!({"metadata": {"name": group, "finalizers": [FINALIZER]},
        "spec": {"reference": {"export": {"path": PROVIDER, "name": group}}}})
}

/// What each export names, by its own name, which is that of the group.
fn exports() -> BTreeMap<&'static str, Vec<String>> {
    let mut all: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (group, name, text) in system::offered() {
        all.entry(group).or_default().push(schema_name(name, text));
    }
    all
}

async fn export(hand: &Internal) -> Result<()> {
    let (schemas, exports_kind) =
        (hand.kind(GROUP, VERSION, "apiresourceschemas")?, hand.kind(GROUP, VERSION, "apiexports")?);
    let (namespaces, secrets) = (hand.kind("", "v1", "namespaces")?, hand.kind("", "v1", "secrets")?);
    let all = exports();
    let mut wanted: Vec<Wanted<'_>> = Vec::new();
    for (_, name, text) in system::offered() {
        let name = schema_name(name, text);
        if hand.get(&schemas, "", &name).is_none()
            && let Some(schema) = schema(&name, text)
        {
            wanted.push((&schemas, "", schema));
        }
    }
    for (group, names) in all.iter().filter(|(group, _)| hand.get(&exports_kind, "", group).is_none()) {
        wanted.push((&namespaces, "", json!({"metadata": {"name": identity::NAMESPACE}})));
        wanted.push((&secrets, identity::NAMESPACE, identity::secret(group)));
        let at = json!({"secretRef": {"namespace": identity::NAMESPACE, "name": group}});
        let spec = json!({"latestResourceSchemas": names, "identity": at});
        wanted.push((&exports_kind, "", json!({"metadata": {"name": group}, "spec": spec})));
    }
    hand.make_missing(&wanted).await?;
    follow(hand, &schemas, &exports_kind, &all).await
}

/// A server that has learnt something new since the exports were made says so.
async fn follow(
    hand: &Internal,
    schemas: &Arc<Kind>,
    exports: &Arc<Kind>,
    all: &BTreeMap<&str, Vec<String>>,
) -> Result<()> {
    for (group, names) in all {
        let names = json!(names);
        let differs = |value: &Value| value["spec"]["latestResourceSchemas"] != names;
        if hand.get(exports, "", group).is_some_and(|export| differs(&export.value())) {
            hand.change(exports, "", group, "", |value| value["spec"]["latestResourceSchemas"] = names.clone()).await?;
        }
    }
    let old = |name: &str| {
        let of = super::schema::resource_of(name).filter(|(_, group)| system::is_exported(group));
        of.is_some_and(|(_, group)| !all.get(group).is_some_and(|names| names.iter().any(|one| one == name)))
    };
    let snapshot = hand.server().cache.snapshot(SCHEMAS);
    for object in snapshot.items.range(&format!("{PROVIDER}/"), "").filter(|object| old(object.name())) {
        hand.delete(schemas, object, &Options::background()).await?;
    }
    Ok(())
}

/// `v1a2b3c4d.edgeplacements.edge.kcp.io`
fn schema_name(name: &str, text: &str) -> String {
    // FNV-1a: nobody attacks it, it only has to differ when the text does.
    let hash = text.bytes().fold(0x811c_9dc5u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    format!("v{hash:08x}.{name}")
}

/// The definition as an APIResourceSchema.
fn schema(name: &str, text: &'static str) -> Option<Value> {
    let crd = system::definition(text)?;
    let mut spec = json!({"group": crd["spec"]["group"], "names": crd["spec"]["names"], "scope": crd["spec"]["scope"]});
    let mut versions = crd["spec"]["versions"].clone();
    for version in versions.as_array_mut().into_iter().flatten() {
        version["schema"] = version["schema"]["openAPIV3Schema"].take();
    }
    spec["versions"] = versions;
    Some(json!({"metadata": {"name": name}, "spec": spec}))
}

/// What is needed for our own kinds to be there is nobody's to delete.
pub fn is_fixed(collection: &str, cluster: &str, value: &Value) -> bool {
    let name = value["metadata"]["name"].as_str().unwrap_or_default();
    match (collection, cluster) {
        (EXPORTS, PROVIDER) => system::is_exported(name),
        (super::BINDINGS, ROOT) => {
            let (provider, export) = super::index::reference(ROOT, value);
            provider == PROVIDER && system::is_exported(export)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_exported_is_what_is_served() {
        let all = exports();
        let groups: Vec<&&str> = all.keys().collect();
        assert_eq!(groups, [&"edge.kcp.io", &"edge.selvedge.dev", &"scheduling.kcp.io", &"workload.kcp.io"]);
        assert_eq!(all.values().map(Vec::len).sum::<usize>(), system::offered().count());
        for (group, name, text) in system::offered() {
            let shown = schema_name(name, text);
            assert_eq!(super::super::schema::resource_of(&shown).unwrap().1, group);
            let schema = schema(&shown, text).unwrap();
            // All that is wrong with it is that it is ours, and that our rules may cost more by estimate than those of tenants.
            let mut errors = super::super::schema::validate(&schema, None);
            errors.retain(|error| !rules::crd::is_about_cost(error));
            assert_eq!(errors.iter().map(|e| e.path.to_string()).collect::<Vec<_>>(), ["spec.group"], "{shown}");
            let definition = rules::crd::Definition::compile(&super::super::schema::definition(&schema)).unwrap();
            assert_eq!(system::bound(group, &definition.names.plural).len(), definition.versions.len());
        }
    }

    #[tokio::test]
    async fn a_server_that_has_learnt_something_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(store::MemoryStore::default());
        let running = crate::start::testing::start(crate::Options::new(dir.path(), store)).await.unwrap();
        let server = &running.server;
        offer(server).await.unwrap();
        let hand = Internal::new(server, PROVIDER, MANAGER);
        let (schemas, kind) = (
            hand.kind(GROUP, VERSION, "apiresourceschemas").unwrap(),
            hand.kind(GROUP, VERSION, "apiexports").unwrap(),
        );
        let named = |name: &str| hand.get(&kind, "", name).unwrap().value()["spec"]["latestResourceSchemas"].clone();
        let (now, old) = (named("scheduling.kcp.io"), "v0.locations.scheduling.kcp.io");
        // As a center of before has left it.
        let mut schema = hand.get(&schemas, "", now[0].as_str().unwrap()).unwrap().value();
        schema["metadata"] = json!({"name": old});
        hand.make_missing(&[(&schemas, "", schema)]).await.unwrap();
        let edit = |value: &mut Value| value["spec"]["latestResourceSchemas"] = json!([old]);
        hand.change(&kind, "", "scheduling.kcp.io", "", edit).await.unwrap();
        offer(server).await.unwrap();
        assert_eq!(named("scheduling.kcp.io"), now);
        assert!(hand.get(&schemas, "", old).is_none());
        let ours = |object: &&Arc<cache::object::Object>| object.cluster() == PROVIDER;
        let written = || server.cache.snapshot(SCHEMAS).items.range("", "").filter(ours).map(|o| o.revision).max();
        let before = written();
        offer(server).await.unwrap();
        assert_eq!(written(), before, "what is right stays as it is");
        running.stop().await;
    }

    #[test]
    fn what_stays() {
        let named = |name: &str| json!({"metadata": {"name": name}});
        assert!(is_fixed(EXPORTS, PROVIDER, &named("edge.kcp.io")));
        assert!(!is_fixed(EXPORTS, PROVIDER, &named("mine.io")) && !is_fixed(EXPORTS, "root:a", &named("edge.kcp.io")));
        let mut one = binding("edge.kcp.io");
        assert!(is_fixed(super::super::BINDINGS, ROOT, &one) && !is_fixed(super::super::BINDINGS, "root:a", &one));
        one["spec"]["reference"]["export"]["path"] = "root:a".into();
        assert!(!is_fixed(super::super::BINDINGS, ROOT, &one));
    }
}
