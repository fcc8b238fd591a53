//! Which kinds this server knows: the built-in ones and our own everywhere, custom and bound ones per workspace.

pub mod bound;
pub mod names;
pub mod system;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, LazyLock, PoisonError, RwLock},
};

use rules::convert;
use rules::crd::{Definition, Light};
use schema::catalogue::Resource;
use schema::{Schema, TypeId, catalogue};
use serde_json::Value;
use store::Revision;

use crate::{
    cache::{Change, ChangeKind},
    exports,
    object::Object,
};
use bound::{Bound, Schemas};

/// One resource in one version.
#[derive(Clone)]
pub struct Kind {
    pub resource: Resource,
    /// `apps/v1`.
    pub api_version: String,
    /// Where its objects lie: `apps/deployments`; versions of one kind share it.
    pub collection: Box<str>,
    /// The group and version in which they lie there.
    pub stored_group: String,
    pub stored_version: String,
    pub custom: Option<Custom>,
    /// The hash that tells the export it comes from; empty if it comes from none.
    pub identity: Box<str>,
}

#[derive(Clone)]
pub struct Custom {
    pub definition: Arc<Definition>,
    /// Index into the definition's versions.
    pub version: usize,
    /// Objects written after this revision were pruned and defaulted by this very schema.
    pub since: Revision,
}

impl Kind {
    /// One whose objects somebody else serves: it is shown, and nothing of it lies here.
    pub fn elsewhere(resource: Resource) -> Self {
        Self {
            api_version: resource.api_version(),
            collection: collection_name(&resource.group, &resource.resource),
            stored_group: resource.group.to_string(),
            stored_version: resource.version.to_string(),
            resource,
            custom: None,
            identity: "".into(),
        }
    }

    pub fn name(&self) -> &str {
        &self.resource.kind
    }

    pub fn group(&self) -> &str {
        &self.resource.group
    }

    pub fn plural(&self) -> &str {
        &self.resource.resource
    }

    /// The structure of its objects.
    pub fn schema(&self) -> Option<(SchemaOf, TypeId)> {
        match &self.custom {
            Some(custom) => custom.version().map(|version| {
                let body = version.body();
                let ty = body.ty;
                (SchemaOf::Custom(body), ty)
            }),
            None => self.resource.ty.map(|ty| (SchemaOf::BuiltIn(schema::builtin()), ty)),
        }
    }

    pub fn is_definition(&self) -> bool {
        &*self.collection == DEFINITIONS
    }

    /// Objects lie in another version than this one.
    pub fn is_converted(&self) -> bool {
        *self.resource.version != *self.stored_version || *self.resource.group != *self.stored_group
    }

    pub fn list_kind(&self) -> String {
        match &self.custom {
            Some(custom) => custom.definition.names.list_kind.to_string(),
            None => format!("{}List", self.resource.kind),
        }
    }

    /// Where an object lies in its collection.
    pub fn key(&self, cluster: &str, namespace: &str, name: &str) -> String {
        format!("{cluster}/{namespace}/{name}")
    }

    /// Where an object lies in the store.
    pub fn store_key(&self, key: &str) -> String {
        format!("{}/{key}", self.collection)
    }
}

/// The schema of a kind. That of a custom one may be given up while nobody uses it, and is shared as long as somebody
/// does.
pub enum SchemaOf {
    BuiltIn(&'static Schema),
    Custom(Arc<rules::crd::Body>),
}

impl std::ops::Deref for SchemaOf {
    type Target = Schema;

    fn deref(&self) -> &Schema {
        match self {
            Self::BuiltIn(schema) => schema,
            Self::Custom(body) => &body.schema,
        }
    }
}

impl Custom {
    pub fn version(&self) -> Option<&rules::crd::Version> {
        self.definition.versions.get(self.version)
    }
}

pub fn collection_name(group: &str, resource: &str) -> Box<str> {
    let group = if group.is_empty() { "core" } else { group };
    format!("{group}/{resource}").into()
}

type ByPath = HashMap<(Box<str>, Box<str>, Box<str>), Arc<Kind>>;

static BUILTIN: LazyLock<Vec<Arc<Kind>>> = LazyLock::new(|| {
    let kind = |resource: &Resource| {
        let (group, version) = convert::storage(&resource.group, &resource.resource);
        Arc::new(Kind {
            api_version: resource.api_version(),
            collection: collection_name(group, &resource.resource),
            stored_group: group.to_owned(),
            stored_version: version.to_owned(),
            resource: resource.clone(),
            custom: None,
            identity: Box::default(),
        })
    };
    catalogue::builtin().iter().map(kind).collect()
});

static BUILTIN_BY_PATH: LazyLock<ByPath> = LazyLock::new(|| BUILTIN.iter().map(|k| (path_of(k), k.clone())).collect());

fn path_of(kind: &Kind) -> (Box<str>, Box<str>, Box<str>) {
    (kind.resource.group.clone(), kind.resource.version.clone(), kind.resource.resource.clone())
}

/// The custom and bound kinds of one workspace.
#[derive(Clone, Default)]
pub struct Workspace {
    by_path: ByPath,
    /// By the definition's name, in which order they are shown.
    definitions: BTreeMap<Box<str>, Vec<Arc<Kind>>>,
    /// By the binding's name.
    bound: BTreeMap<Box<str>, Vec<Arc<Bound>>>,
    /// Changes whenever a definition or a binding does.
    pub generation: u64,
}

pub struct Kinds {
    workspaces: RwLock<HashMap<Box<str>, Arc<Workspace>>>,
    pub schemas: Schemas,
    /// The names that definitions have been given.
    pub names: names::Names,
    /// Offers the kinds of placement to its workspaces, as a center does.
    provides: bool,
}

impl Default for Kinds {
    fn default() -> Self {
        Self::new(true)
    }
}

pub const DEFINITIONS: &str = "apiextensions.k8s.io/customresourcedefinitions";

impl Kinds {
    pub fn new(provides: bool) -> Self {
        Self { workspaces: RwLock::default(), schemas: Schemas::default(), names: names::Names::default(), provides }
    }

    pub fn builtin() -> &'static [Arc<Kind>] {
        &BUILTIN
    }

    pub fn find(&self, cluster: &str, group: &str, version: &str, resource: &str) -> Option<Arc<Kind>> {
        let path = (group.into(), version.into(), resource.into());
        if let Some(kind) = BUILTIN_BY_PATH.get(&path) {
            return Some(kind.clone());
        }
        let is = |k: &&Arc<Kind>| *k.resource.version == *version && k.plural() == resource;
        if let Some(kind) = system::served(cluster, self.provides, group).find(is) {
            return Some(kind.clone());
        }
        let workspace = self.workspace(cluster)?;
        if let Some(kind) = workspace.by_path.get(&path) {
            return Some(kind.clone());
        }
        let bound = workspace.bound().find(|b| *b.group == *group && *b.resource == *resource)?;
        self.schemas.kinds(bound).iter().find(|k| *k.resource.version == *version).cloned()
    }

    /// By kind instead of by resource, as owner references and manifests name things.
    pub fn find_kind(&self, cluster: &str, api_version: &str, kind: &str) -> Option<Arc<Kind>> {
        let is = |k: &&Arc<Kind>| k.api_version == api_version && &*k.resource.kind == kind;
        if let Some(found) = BUILTIN.iter().find(is) {
            return Some(found.clone());
        }
        let group = catalogue::split_api_version(api_version).0;
        if let Some(found) = system::served(cluster, self.provides, group).find(is) {
            return Some(found.clone());
        }
        let workspace = self.workspace(cluster)?;
        let bound = workspace.bound().filter(|b| *b.group == *group).flat_map(|b| self.schemas.kinds(b));
        workspace.by_path.values().chain(bound).find(is).cloned()
    }

    pub fn workspace(&self, cluster: &str) -> Option<Arc<Workspace>> {
        self.workspaces.read().unwrap_or_else(PoisonError::into_inner).get(cluster).cloned()
    }

    /// Built-in kinds in upstream's order, then our own, then bound ones, then custom ones.
    pub fn all(&self, cluster: &str) -> Vec<Arc<Kind>> {
        let mut kinds = BUILTIN.clone();
        kinds.extend(system::all(cluster, self.provides, false).cloned());
        kinds.extend(self.own(cluster, |_| true));
        kinds
    }

    /// What there is where nobody speaks of workspaces: the same without our own.
    pub fn plain(&self, cluster: &str) -> Vec<Arc<Kind>> {
        let mut kinds = BUILTIN.clone();
        kinds.extend(self.own(cluster, |group| !system::is_ours(group)));
        kinds
    }

    /// All kinds whose objects live in namespaces.
    pub fn namespaced(&self, cluster: &str) -> Vec<Arc<Kind>> {
        let ours = system::all(cluster, self.provides, true);
        let mut kinds: Vec<_> = BUILTIN.iter().chain(ours).filter(|k| k.resource.namespaced).cloned().collect();
        kinds.extend(self.own(cluster, |_| true).into_iter().filter(|k| k.resource.namespaced));
        kinds
    }

    pub fn of_group(&self, cluster: &str, group: &str) -> Vec<Arc<Kind>> {
        let ours = system::served(cluster, self.provides, group);
        let mut kinds: Vec<_> = BUILTIN.iter().chain(ours).filter(|k| k.group() == group).cloned().collect();
        kinds.extend(self.own(cluster, |one| one == group));
        kinds
    }

    /// What a workspace has by its bindings and definitions, of groups that are wanted. What it has anyway is not among it.
    fn own(&self, cluster: &str, wanted: impl Fn(&str) -> bool) -> Vec<Arc<Kind>> {
        let Some(workspace) = self.workspace(cluster) else { return Vec::new() };
        let custom = workspace.definitions.values().flatten().filter(|k| wanted(k.group()));
        let custom: Vec<_> = custom.cloned().collect();
        let taken = |b: &Bound| {
            custom.iter().any(|k| *k.resource.group == *b.group && k.plural() == &*b.resource)
                || system::served(cluster, self.provides, &b.group).any(|k| k.plural() == &*b.resource)
        };
        let bound = workspace.bound().filter(|b| wanted(&b.group) && !taken(b));
        let mut kinds: Vec<_> = bound.flat_map(|b| self.schemas.kinds(b).iter().cloned()).collect();
        kinds.extend(custom);
        kinds
    }

    /// Any version of a resource, the preferred one first. The resource may also be named as in its collection.
    pub fn any_version(&self, cluster: &str, group: &str, resource: &str) -> Option<Arc<Kind>> {
        let is = |k: &Kind| k.plural() == resource || k.collection.ends_with(&format!("/{resource}"));
        self.of_group(cluster, group).into_iter().find(|k| is(k))
    }

    /// A version of a kind that a binding brought.
    pub fn of_binding(&self, cluster: &str, binding: &str, group: &str, resource: &str) -> Option<Arc<Kind>> {
        let workspace = self.workspace(cluster)?;
        let bound = workspace.bound.get(binding)?.iter().find(|b| *b.group == *group && *b.resource == *resource)?;
        self.schemas.kinds(bound).first().cloned()
    }

    /// The names that bindings have taken in a group, as definitions beside which another has to find its own.
    pub fn bound_names(&self, cluster: &str, group: &str) -> Vec<Value> {
        let Some(workspace) = self.workspace(cluster) else { return Vec::new() };
        let mine = workspace.bound().filter(|b| *b.group == *group);
        mine.filter_map(|b| self.schemas.kinds(b).first()).map(|kind| system::names_of(kind)).collect()
    }

    /// Who else has one of these names in a workspace: something that a binding cannot bring any more.
    pub fn taken(&self, cluster: &str, binding: &str, provider: &str, definition: &Definition) -> Option<String> {
        let group = &*definition.group;
        let offered = provider == system::PROVIDER && system::is_exported(group);
        if catalogue::groups().iter().any(|g| *g.name == *group) || system::is_ours(group) && !offered {
            return Some(format!("the group {group} belongs to the server"));
        }
        let clash = |kind: &Kind| {
            kind.group() == group
                && (*kind.resource.resource == *definition.names.plural
                    || *kind.resource.kind == *definition.names.kind)
        };
        let workspace = self.workspace(cluster)?;
        let crd = workspace.definitions.iter().find(|(_, kinds)| kinds.iter().any(|k| clash(k)));
        if let Some((name, _)) = crd {
            return Some(format!("the CustomResourceDefinition {name} has that name here"));
        }
        let others = workspace.bound.iter().filter(|(name, _)| &***name != binding);
        let other = |bound: &[Arc<Bound>]| bound.iter().any(|b| self.schemas.kinds(b).iter().any(|k| clash(k)));
        others
            .into_iter()
            .find(|(_, bound)| other(bound))
            .map(|(name, _)| format!("the APIBinding {name} has that name here"))
    }

    /// A version of the kind that this very definition brought; a definition whose names were taken has none.
    pub fn of_definition(&self, cluster: &str, name: &str) -> Option<Arc<Kind>> {
        self.workspace(cluster)?.definitions.get(name)?.first().cloned()
    }

    pub fn observer(self: Arc<Self>) -> crate::cache::Observer {
        Box::new(move |collection: &str, change: &Arc<Change>| self.observe(collection, change))
    }

    /// Keeps the custom kinds true: called for every change, before anybody is told of it.
    fn observe(&self, collection: &str, change: &Change) {
        let there = change.kind != ChangeKind::Deleted;
        match collection {
            DEFINITIONS => self.see_definition(&change.object, there && change.object.acts_here()),
            exports::BINDINGS => self.see_binding(&change.object, there),
            exports::SCHEMAS => self.schemas.set(&change.object, there),
            _ => {}
        }
    }

    fn see_definition(&self, object: &Object, there: bool) {
        let light = if there { Light::read(&object.json) } else { Light::default() };
        self.names.set(object, &light);
        let before = self.workspace(object.cluster());
        let before = before.and_then(|workspace| workspace.definitions.get(object.name()).cloned());
        let kinds = if there { compile(light, object, before.as_ref()) } else { Vec::new() };
        if kinds.is_empty() && before.is_none() {
            return;
        }
        self.alter(object.cluster(), |workspace| {
            let was = if kinds.is_empty() {
                workspace.definitions.remove(object.name())
            } else {
                workspace.definitions.insert(object.name().into(), kinds.clone())
            };
            for kind in was.into_iter().flatten() {
                let path = path_of(&kind);
                if workspace.by_path.get(&path).is_some_and(|there| Arc::ptr_eq(there, &kind)) {
                    workspace.by_path.remove(&path);
                }
            }
            for kind in kinds {
                workspace.by_path.insert(path_of(&kind), kind);
            }
            true
        });
    }

    fn see_binding(&self, object: &Object, there: bool) {
        self.alter(object.cluster(), |workspace| {
            let before = workspace.bound.get(object.name()).map(Vec::as_slice).unwrap_or_default();
            let now = if there { bound::of_binding(&self.schemas, object, before) } else { Vec::new() };
            let same = now.len() == before.len() && now.iter().zip(before).all(|(a, b)| Arc::ptr_eq(a, b));
            if same {
                return false;
            }
            if now.is_empty() {
                workspace.bound.remove(object.name());
            } else {
                workspace.bound.insert(object.name().into(), now);
            }
            true
        });
    }

    /// Replaces what is known of a workspace, if the change says that there is something new.
    fn alter(&self, cluster: &str, change: impl FnOnce(&mut Workspace) -> bool) {
        let mut workspaces = self.workspaces.write().unwrap_or_else(PoisonError::into_inner);
        match workspaces.get_mut(cluster) {
            // It is copied only if somebody looks at it just now.
            Some(there) => {
                let workspace = Arc::make_mut(there);
                if change(workspace) {
                    workspace.generation += 1;
                }
            }
            None => {
                let mut workspace = Workspace::default();
                if change(&mut workspace) {
                    workspace.generation += 1;
                    workspaces.insert(cluster.into(), Arc::new(workspace));
                }
            }
        }
    }
}

impl Workspace {
    fn bound(&self) -> impl Iterator<Item = &Arc<Bound>> {
        self.bound.values().flatten()
    }
}

/// The served versions of an established definition. What stayed the same is taken from before: the compiled schemas,
/// and the revision since which a schema holds.
fn compile(light: Light, object: &Object, before: Option<&Vec<Arc<Kind>>>) -> Vec<Arc<Kind>> {
    if !light.is_established() {
        return Vec::new();
    }
    let mut definition = match Definition::of(light) {
        Ok(definition) => definition,
        Err(errors) => {
            let name = object.name();
            tracing::warn!(name, ?errors, "a stored CustomResourceDefinition does not compile and is not served");
            return Vec::new();
        }
    };
    let before = before.map(Vec::as_slice).unwrap_or_default();
    let custom_of = |version: &str| {
        let kind = before.iter().find(|kind| *kind.resource.version == *version)?;
        kind.custom.as_ref().and_then(|custom| Some((custom.since, custom.version()?)))
    };
    for version in &mut definition.versions {
        if let Some((_, was)) = custom_of(&version.name) {
            version.share(was);
        }
    }
    let mut kinds = kinds_of(&Arc::new(definition), object.revision, None);
    for custom in kinds.iter_mut().filter_map(Arc::get_mut).filter_map(|kind| kind.custom.as_mut()) {
        let Some(version) = custom.version() else { continue };
        if let Some((since, was)) = custom_of(&version.name)
            && version.is_like(was)
        {
            custom.since = since;
        }
    }
    kinds
}

/// The kinds of the served versions of a definition, which hold since that revision. Those of an export have its identity.
fn kinds_of(definition: &Arc<Definition>, since: Revision, identity: Option<&str>) -> Vec<Arc<Kind>> {
    let stored = definition.versions.iter().find(|v| v.storage).map(|v| v.name.to_string()).unwrap_or_default();
    let kind = |resource: Resource| {
        let version = definition.versions.iter().position(|v| v.name == resource.version)?;
        Some(Arc::new(Kind {
            api_version: resource.api_version(),
            collection: match identity {
                Some(identity) => bound::collection(&resource.group, &resource.resource, identity),
                None => collection_name(&resource.group, &resource.resource),
            },
            identity: identity.unwrap_or_default().into(),
            stored_group: resource.group.to_string(),
            stored_version: stored.clone(),
            custom: Some(Custom { definition: definition.clone(), version, since }),
            resource,
        }))
    };
    definition.resources().into_iter().filter_map(kind).collect()
}
