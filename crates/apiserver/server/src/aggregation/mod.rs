//! The aggregation layer: API groups that other servers answer, registered by APIServices.
//!
//! An APIService with a `spec.service` is remote: requests to its group and version are authenticated and authorised
//! here and then proxied to the Service. The remote server is told who asks by `X-Remote-` headers, over a connection
//! that shows a certificate of the front proxy's authority. An APIService counts in its own workspace only. What this
//! server serves itself has local APIServices, which are kept in step with what is served.

mod check;
mod discovered;
mod local;
pub mod merge;
pub mod namespaces;
pub mod openapi;
mod proxy;
mod remote;

use std::{
    collections::HashMap,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
};

use cache::object::Object;
use cache::{Change, ChangeKind, Observer};
use request::{ROOT, Route};
use tokio::sync::Notify;

use crate::{
    Server,
    controllers::queue::Queue,
    controllers::{background, named},
    exports,
    kinds::DEFINITIONS,
};
pub use local::furnish;
pub use merge::Shown;
pub use remote::Remote;

pub const COLLECTION: &str = "apiregistration.k8s.io/apiservices";
/// A workspace other than root may have this many remote APIServices. This server asks each of them every now and then.
const MOST: usize = 32;

#[derive(Default)]
pub struct Aggregation {
    workspaces: RwLock<HashMap<Box<str>, Workspace>>,
    /// How many remote APIServices there are in all workspaces: most servers have none, and look no further.
    count: AtomicUsize,
    /// Tells that a remote APIService is new.
    added: Notify,
    /// Workspaces whose local APIServices are to be compared with what is served.
    locals: Queue,
    /// The root workspace has all of its local APIServices.
    registered: AtomicBool,
    pub cleanups: namespaces::Cleanups,
}

#[derive(Default)]
struct Workspace {
    remotes: Vec<Arc<Remote>>,
    /// How many local APIServices this server made there.
    managed: usize,
}

impl Aggregation {
    pub fn observer(self: &Arc<Self>) -> Observer {
        let aggregation = self.clone();
        Box::new(move |collection: &str, change: &Arc<Change>| aggregation.observe(collection, change))
    }

    fn observe(&self, collection: &str, change: &Change) {
        let cluster = change.object.cluster();
        match collection {
            COLLECTION => {
                self.set(change);
                self.compare_locals(cluster);
            }
            DEFINITIONS | exports::BINDINGS => self.compare_locals(cluster),
            "core/services" | "core/endpoints" => self.wake(&change.object, change.object.name()),
            "discovery.k8s.io/endpointslices" if self.count.load(Relaxed) > 0 => {
                let labels = ["labels", "kubernetes.io/service-name"];
                let service = schema::selector::scan::string_at(change.object.metadata(), &labels);
                self.wake(&change.object, service.as_deref().unwrap_or_default());
            }
            _ => {}
        }
    }

    /// Only workspaces that have local APIServices keep them.
    fn compare_locals(&self, cluster: &str) {
        if cluster == ROOT || self.is_furnished(cluster) {
            self.locals.push(cluster);
        }
    }

    fn is_furnished(&self, cluster: &str) -> bool {
        let workspaces = self.workspaces.read().unwrap_or_else(PoisonError::into_inner);
        workspaces.get(cluster).is_some_and(|workspace| workspace.managed > 0)
    }

    /// Takes over what an APIService says now.
    fn set(&self, change: &Change) {
        let object = &change.object;
        let exists = change.kind != ChangeKind::Deleted;
        let new = (exists && object.acts_here()).then(|| Remote::read(object)).flatten();
        let mut workspaces = self.workspaces.write().unwrap_or_else(PoisonError::into_inner);
        let workspace = workspaces.entry(object.cluster().into()).or_default();
        let was_managed = change.previous.as_deref().is_some_and(local::is_managed);
        let is_managed = exists && local::is_managed(object);
        workspace.managed = (workspace.managed + usize::from(is_managed)).saturating_sub(usize::from(was_managed));
        let at = workspace.remotes.iter().position(|known| *known.name == *object.name());
        let known = at.map(|at| workspace.remotes.swap_remove(at));
        self.count.fetch_sub(usize::from(known.is_some()), Relaxed);
        if let Some(new) = new {
            let kept = match known {
                Some(known) if known.is_same(&new) => {
                    known.set_available(new.is_available());
                    known
                }
                Some(known) => {
                    new.inherit(&known);
                    known.leave();
                    Arc::new(new)
                }
                None => Arc::new(new),
            };
            workspace.remotes.push(kept);
            self.count.fetch_add(1, Relaxed);
            self.added.notify_one();
        } else if let Some(known) = known {
            known.leave();
        }
        if workspace.remotes.is_empty() && workspace.managed == 0 {
            workspaces.remove(object.cluster());
        }
    }

    /// The Service of that name, or where it leads, has changed.
    fn wake(&self, object: &Object, service: &str) {
        if self.count.load(Relaxed) == 0 {
            return;
        }
        for remote in self.remotes(object.cluster()) {
            if *remote.service.namespace == *object.namespace() && *remote.service.name == *service {
                remote.wake();
            }
        }
    }

    /// The remote APIServices of a workspace.
    pub fn remotes(&self, cluster: &str) -> Vec<Arc<Remote>> {
        if self.count.load(Relaxed) == 0 {
            return Vec::new();
        }
        let workspaces = self.workspaces.read().unwrap_or_else(PoisonError::into_inner);
        workspaces.get(cluster).map(|workspace| workspace.remotes.clone()).unwrap_or_default()
    }

    /// Whether the workspace has too many, and this is none of the first.
    fn is_crowded_out(&self, remote: &Remote) -> bool {
        let before = |other: &&Arc<Remote>| other.name < remote.name;
        *remote.cluster != *ROOT && self.remotes(&remote.cluster).iter().filter(before).count() >= MOST
    }

    fn all(&self) -> Vec<Arc<Remote>> {
        let workspaces = self.workspaces.read().unwrap_or_else(PoisonError::into_inner);
        workspaces.values().flat_map(|workspace| workspace.remotes.iter().cloned()).collect()
    }

    /// Nobody makes local APIServices here, and none are missing.
    pub fn leave_alone(&self) {
        self.registered.store(true, Relaxed);
    }

    /// Whether the root workspace has all of its local APIServices.
    pub fn is_registered(&self) -> bool {
        self.registered.load(Relaxed)
    }

    /// The remote API that answers for a path.
    pub fn find(&self, server: &Server, cluster: &str, route: &Route) -> Option<Arc<Remote>> {
        if self.count.load(Relaxed) == 0 {
            return None;
        }
        let (group, version) = match route {
            Route::Resource(target) => (target.group.as_str(), target.version.as_str()),
            Route::Discovery { group, version, .. } => (group.as_str(), version.as_str()),
            Route::Other(path) => path.strip_prefix("/openapi/v3/apis/")?.split_once('/')?,
        };
        if group.is_empty() || version.is_empty() {
            return None;
        }
        let mut remotes = self.remotes(cluster).into_iter();
        let found = remotes.find(|remote| *remote.group == *group && *remote.version == *version)?;
        // What is served here is never given away: see `local`.
        let here = |kind: &Arc<crate::kinds::Kind>| *kind.resource.version == *version;
        (!server.kinds.of_group(cluster, group).iter().any(here)).then_some(found)
    }

    /// What discovery shows of the remote APIs of a workspace.
    pub fn shown(&self, server: &Server, cluster: &str) -> Vec<Shown> {
        let served = |remote: &Remote| {
            let kinds = server.kinds.of_group(cluster, &remote.group);
            kinds.iter().any(|kind| *kind.resource.version == *remote.version)
        };
        self.remotes(cluster).iter().filter(|remote| !served(remote)).map(|remote| remote.shown()).collect()
    }
}

/// Starts what runs in the background.
pub fn start(server: &Arc<Server>) {
    server.aggregation.locals.push(ROOT);
    named(server, "apiservice-registration-controller", local::run(server.clone()));
    named(server, "apiservice-status-available-controller", watch_over(server.clone()));
}

/// Gives every remote APIService a task that checks whether it is available.
async fn watch_over(server: Arc<Server>) {
    loop {
        for remote in server.aggregation.all() {
            if remote.begin() {
                background(&server, check::tend(server.clone(), remote));
            }
        }
        server.aggregation.added.notified().await;
    }
}
