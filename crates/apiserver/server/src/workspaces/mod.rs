//! Workspaces: logical clusters inside each other, each with objects, kinds, roles and accounts of its own.
//!
//! A `Workspace` object in `root:org` stands for the workspace `root:org:team`. What is known of all of them is kept here,
//! from the cache's own changes: which there are, which are going away, how much is in them.

mod birth;
mod death;
mod enter;
mod lifecycle;
pub mod light;
pub mod path;
mod types;
mod usage;
pub mod wildcard;

use std::{
    collections::HashMap,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{
            AtomicBool, AtomicI64, AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
};

use schema::selector::scan;
use serde_json::Value;
use store::Revision;

pub use birth::{complete, delete, found, judge_type, keep};
pub use enter::{CONTROLLERS, confine, named_in, reaches_all, review_from, seen_from};
pub use lifecycle::run;
pub use path::is_inside;
pub use types::placement_types;
pub use usage::{Limits, Room, is_internal};

use crate::controllers::queue::Queue;
use cache::{Change, ChangeKind, Observer};
use request::ROOT;

pub const GROUP: &str = "tenancy.kcp.io";
pub const VERSION: &str = "v1alpha1";
pub const WORKSPACES: &str = "tenancy.kcp.io/workspaces";
const BINDINGS: &str = "apis.kcp.io/apibindings";
pub const TYPES: &str = "tenancy.kcp.io/workspacetypes";
/// Holds a Workspace object until everything in its workspace is gone.
pub const FINALIZER: &str = "core.kcp.io/logicalcluster";

/// The uid of the object that stands for a workspace: another one after it was made anew.
pub fn uid(server: &crate::Server, path: &str) -> Option<String> {
    let object = server.cache.get(WORKSPACES, &path::object_key(path)?)?;
    scan::string_at(&object.json, &["metadata", "uid"]).map(std::borrow::Cow::into_owned)
}

pub struct Workspaces {
    spaces: RwLock<HashMap<Box<str>, Arc<Space>>>,
    /// The limits that types set, by the keys of the types. Types without limits are not here.
    limits: RwLock<HashMap<Box<str>, Limits>>,
    /// Keys of Workspace objects that have to be looked after.
    queue: Queue,
}

/// One workspace. Also made for what lies in a workspace that nobody has told of yet, as when a store is loaded.
#[derive(Default)]
struct Space {
    path: Box<str>,
    parent: Option<Arc<Space>>,
    /// When that object was made, and when the last one went.
    born: AtomicU64,
    died: AtomicU64,
    /// Of the object that stands for it; 0: there is none, and so no such workspace.
    revision: AtomicU64,
    leaving: AtomicBool,
    /// The key of its type.
    of_type: RwLock<Box<str>>,
    /// What is in it and below it.
    objects: AtomicI64,
    bytes: AtomicI64,
    /// What is being written just now.
    more_objects: AtomicI64,
    more_bytes: AtomicI64,
}

impl Default for Workspaces {
    fn default() -> Self {
        let root = Space { path: ROOT.into(), revision: AtomicU64::new(1), ..Space::default() };
        *root.of_type.write().unwrap_or_else(PoisonError::into_inner) = "root//root".into();
        let spaces = RwLock::new(HashMap::from([(ROOT.into(), Arc::new(root))]));
        Self { spaces, limits: RwLock::default(), queue: Queue::default() }
    }
}

impl Workspaces {
    pub fn observer(self: &Arc<Self>) -> Observer {
        let workspaces = self.clone();
        Box::new(move |collection: &str, change: &Arc<Change>| workspaces.observe(collection, change))
    }

    /// `root` always exists.
    pub fn exists(&self, path: &str) -> bool {
        self.get(path)
            .is_some_and(|space| space.upwards().all(|s| s.revision() != 0 && (s.parent.is_some() || &*s.path == ROOT)))
    }

    /// It is being deleted with everything inside.
    pub fn is_leaving(&self, path: &str) -> bool {
        self.get(path).is_some_and(|space| space.leaving.load(Relaxed))
    }

    /// The revision at which a workspace began. What was in another one of that path before is nobody's to see any more.
    pub fn born(&self, path: &str) -> Revision {
        self.get(path).map_or(0, |space| space.born.load(Relaxed))
    }

    /// For those who stay in a workspace for long, as watches do: whether it is still the same one.
    pub fn stay(&self, path: &str) -> Stay {
        let space = self.get(path).filter(|_| path != ROOT);
        Stay(space.map(|space| (space.born.load(Relaxed), space)))
    }

    /// How many there are besides `root`.
    pub fn count(&self) -> usize {
        self.spaces.read().unwrap_or_else(PoisonError::into_inner).len() - 1
    }

    fn get(&self, path: &str) -> Option<Arc<Space>> {
        self.spaces.read().unwrap_or_else(PoisonError::into_inner).get(path).cloned()
    }

    /// The same, made if it is not there, with all that it lies in.
    fn space(&self, path: &str) -> Arc<Space> {
        if let Some(found) = self.get(path) {
            return found;
        }
        let parent = path::parent(path).map(|parent| self.space(parent));
        let mut spaces = self.spaces.write().unwrap_or_else(PoisonError::into_inner);
        let new = || Arc::new(Space { path: path.into(), parent, ..Space::default() });
        spaces.entry(path.into()).or_insert_with(new).clone()
    }

    fn observe(&self, collection: &str, change: &Change) {
        let object = &change.object;
        match collection {
            WORKSPACES => self.note_workspace(change),
            // Bindings are what a new workspace may wait for.
            BINDINGS => self.queue.push(&path::object_key(object.cluster()).unwrap_or_default()),
            TYPES => self.note_type(&object.key, (change.kind != ChangeKind::Deleted).then(|| object.value())),
            _ => {}
        }
        // Counters and the like are no objects.
        if collection.starts_with("-/") {
            return;
        }
        let space = self.space(object.cluster());
        let gone = change.kind == ChangeKind::Deleted;
        let now = if gone { 0 } else { object.json.len() as i64 };
        let before = change.previous.as_ref().map_or(0, |old| old.json.len() as i64);
        let objects = i64::from(!gone) - i64::from(change.previous.is_some());
        space.add(objects, now - before);
        if gone && space.leaving.load(Relaxed) {
            // It may have been the last that the workspace waited for.
            if let Some(key) = path::object_key(&space.path) {
                self.queue.push(&key);
            }
        }
        if gone {
            self.forget_empty(&space);
        }
    }

    fn note_workspace(&self, change: &Change) {
        let object = &change.object;
        let Some(path) = path::of_object(&object.key).filter(|_| !light::is_light(object)) else { return };
        let space = self.space(&path);
        if change.kind == ChangeKind::Deleted {
            space.revision.store(0, Relaxed);
            space.died.store(object.revision, Relaxed);
            space.born.store(0, Release);
            space.leaving.store(false, Relaxed);
            self.queue.push(&object.key);
            self.forget_empty(&space);
            return;
        }
        let leaving = scan::raw_at(&object.json, &["metadata", "deletionTimestamp"]).is_some();
        let text = |path: &[&str]| scan::string_at(&object.json, path).unwrap_or_default();
        let of_type = format!("{}//{}", text(&["spec", "type", "path"]), text(&["spec", "type", "name"]));
        *space.of_type.write().unwrap_or_else(PoisonError::into_inner) = of_type.into();
        space.leaving.store(leaving, Relaxed);
        space.born.store(object.created, Relaxed);
        space.revision.store(object.revision, Relaxed);
        if leaving || text(&["status", "phase"]) != lifecycle::READY {
            self.queue.push(&object.key);
        }
    }

    fn note_type(&self, key: &str, value: Option<Value>) {
        let limits = value.map(|value| Limits::of_type(&value)).unwrap_or_default();
        let mut all = self.limits.write().unwrap_or_else(PoisonError::into_inner);
        match limits == Limits::default() {
            true => drop(all.remove(key)),
            false => drop(all.insert(key.into(), limits)),
        }
    }

    /// A workspace that does not exist and holds nothing is not kept.
    fn forget_empty(&self, space: &Space) {
        if space.revision() == 0 && space.objects.load(Relaxed) == 0 {
            self.spaces.write().unwrap_or_else(PoisonError::into_inner).remove(&space.path);
        }
    }
}

/// See [`Workspaces::stay`].
pub struct Stay(Option<(Revision, Arc<Space>)>);

impl Stay {
    /// If it has ended: what came after this revision is another one's.
    pub fn until(&self) -> Option<Revision> {
        let (born, space) = self.0.as_ref()?;
        (space.born.load(Acquire) != *born).then(|| space.died.load(Relaxed))
    }
}

impl Space {
    fn revision(&self) -> Revision {
        self.revision.load(Relaxed)
    }

    /// It, what it lies in, and so on up to `root`.
    fn upwards(self: &Arc<Self>) -> impl Iterator<Item = Arc<Space>> {
        std::iter::successors(Some(self.clone()), |space| space.parent.clone())
    }

    fn add(&self, objects: i64, bytes: i64) {
        let mut space = Some(self);
        while let Some(here) = space {
            here.objects.fetch_add(objects, Relaxed);
            here.bytes.fetch_add(bytes, Relaxed);
            space = here.parent.as_deref();
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use bytes::Bytes;
    use serde_json::json;

    use super::*;
    use cache::object;
    use cache::object::Object;

    pub fn change(kind: ChangeKind, key: &str, value: &Value, previous: Option<&Arc<Change>>) -> Arc<Change> {
        let json = if kind == ChangeKind::Deleted { Bytes::new() } else { object::encode(value) };
        let object = Arc::new(Object::new(key.into(), json, 1, 2));
        Arc::new(Change { kind, object, previous: previous.map(|c| c.object.clone()), message: Default::default() })
    }

    fn workspace(of_type: &str) -> Value {
        json!({"metadata": {"name": "x"}, "spec": {"type": {"path": "root", "name": of_type}}, "status": {"phase": "Ready"}})
    }

    #[test]
    fn they_exist_by_their_objects_and_count_what_is_in_them() {
        let all = Arc::new(Workspaces::default());
        let see = all.observer();
        assert!(all.exists("root") && !all.exists("root:a") && !all.exists("other"));
        // A store is loaded in the order of its keys: content comes before the workspaces.
        let map = change(ChangeKind::Added, "root:a:b/ns/m", &json!({"data": {"x": "y"}}), None);
        see("core/configmaps", &map);
        assert!(!all.exists("root:a:b"));
        let a = change(ChangeKind::Added, "root//a", &workspace("universal"), None);
        let b = change(ChangeKind::Added, "root:a//b", &workspace("universal"), None);
        see(WORKSPACES, &b);
        assert!(!all.exists("root:a:b"), "it lies in nothing yet");
        see(WORKSPACES, &a);
        assert!(all.exists("root:a:b") && all.exists("root:a") && all.count() == 2);
        let (stay, in_root) = (all.stay("root:a:b"), all.stay("root"));
        assert!(stay.until().is_none() && all.born("root:a:b") == 1 && all.born("root") == 0);
        let objects = |path: &str| all.get(path).map_or(0, |s| s.objects.load(Relaxed));
        assert_eq!(["root", "root:a", "root:a:b"].map(objects), [3, 2, 1]);
        let bytes = |path: &str| all.get(path).map_or(0, |s| s.bytes.load(Relaxed));
        assert_eq!(bytes("root:a:b"), map.object.json.len() as i64);

        see("core/configmaps", &change(ChangeKind::Deleted, "root:a:b/ns/m", &json!({}), Some(&map)));
        see(WORKSPACES, &change(ChangeKind::Deleted, "root:a//b", &json!({}), Some(&b)));
        assert!(!all.exists("root:a:b") && all.get("root:a:b").is_none() && stay.until() == Some(2));
        see(WORKSPACES, &b);
        assert!(stay.until() == Some(2) && in_root.until().is_none(), "another one of the same path is another one");
        see(WORKSPACES, &change(ChangeKind::Deleted, "root:a//b", &json!({}), Some(&b)));
        see(WORKSPACES, &change(ChangeKind::Deleted, "root//a", &json!({}), Some(&a)));
        assert_eq!((all.count(), objects("root"), bytes("root")), (0, 0, 0));
    }

    #[test]
    fn leaving_is_known_at_once() {
        let all = Arc::new(Workspaces::default());
        let mut value = workspace("universal");
        let there = change(ChangeKind::Added, "root//a", &value, None);
        all.observe(WORKSPACES, &there);
        assert!(!all.is_leaving("root:a"));
        value["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        all.observe(WORKSPACES, &change(ChangeKind::Modified, "root//a", &value, Some(&there)));
        assert!(all.is_leaving("root:a") && all.exists("root:a"));
    }
}
