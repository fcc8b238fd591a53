//! What keeps the API's own promises: default objects, namespaces, definitions, garbage.
//!
//! Each controller is a task with a queue of names. The cache's observers fill the queues; nothing polls.

mod account_tokens;
mod aggregation;
mod bootstrap;
mod certificates;
mod definitions;
mod expiry;
mod garbage;
mod housekeeping;
mod namespaces;
mod policies;
mod protection;
pub mod queue;
mod quota;
mod tend;

use std::sync::Arc;

use cache::{Change, Observer};
use tokio::task::AbortHandle;

use crate::Server;

/// The queues, made before the cache is loaded so that they miss nothing.
pub struct Controllers {
    namespaces: queue::Queue,
    definitions: queue::Queue,
    cluster_roles: queue::Queue,
    requests: queue::Queue,
    policies: queue::Queue,
    account_tokens: queue::Queue,
    /// Told of what happens to bootstrap tokens.
    bootstrap_tokens: tokio::sync::Notify,
    quotas: quota::Quotas,
    protection: protection::Protection,
    garbage: garbage::Garbage,
}

impl Controllers {
    /// `releases_storage`: no controllers of volumes run beside this server.
    pub fn new(releases_storage: bool) -> Arc<Self> {
        Arc::new(Self {
            namespaces: queue::Queue::default(),
            definitions: queue::Queue::default(),
            cluster_roles: queue::Queue::default(),
            requests: queue::Queue::default(),
            policies: queue::Queue::default(),
            account_tokens: queue::Queue::default(),
            bootstrap_tokens: tokio::sync::Notify::new(),
            quotas: quota::Quotas::default(),
            protection: protection::Protection::new(releases_storage),
            garbage: garbage::Garbage::default(),
        })
    }

    pub fn observer(self: &Arc<Self>) -> Observer {
        let controllers = self.clone();
        Box::new(move |collection: &str, change: &Arc<Change>| {
            match collection {
                "core/namespaces" => controllers.namespaces.push(&change.object.key),
                crate::kinds::DEFINITIONS => controllers.definitions.push(&change.object.key),
                aggregation::ROLES => controllers.cluster_roles.push(change.object.cluster()),
                policies::POLICIES => controllers.policies.push(&change.object.key),
                certificates::REQUESTS => controllers.requests.push(&change.object.key),
                _ => {}
            }
            // What every namespace has comes back, and comes back as it was.
            let furniture = matches!(
                (collection, change.object.name()),
                ("core/serviceaccounts", "default") | ("core/configmaps", "kube-root-ca.crt")
            );
            if furniture && change.kind != cache::ChangeKind::Added {
                let object = &change.object;
                controllers.namespaces.push(&format!("{}//{}", object.cluster(), object.namespace()));
            }
            // Whatever happens inside a namespace that is going away may have been what it waited for.
            if change.kind == cache::ChangeKind::Deleted {
                controllers.namespaces.push_if_waiting(&change.object);
            }
            account_tokens::observe(&controllers, collection, change);
            if expiry::concerns(collection, change.object.name()) {
                controllers.bootstrap_tokens.notify_one();
            }
            controllers.quotas.observe(collection, change);
            controllers.protection.observe(collection, change);
            controllers.garbage.observe(collection, change);
        })
    }

    /// Starts what runs in the background. It ends when the server stops.
    pub fn start(self: &Arc<Self>, server: &Arc<Server>) {
        let start =
            |name: &'static str, controller: futures::future::BoxFuture<'static, ()>| named(server, name, controller);
        start("namespace-controller", Box::pin(namespaces::run(self.clone(), server.clone())));
        for _ in 0..DEFINING {
            start("apiextensions-controllers", Box::pin(definitions::run(self.clone(), server.clone())));
        }
        start("clusterrole-aggregation-controller", Box::pin(aggregation::run(self.clone(), server.clone())));
        start("certificate-controller", Box::pin(certificates::run(self.clone(), server.clone())));
        start("admission-policy-controller", Box::pin(policies::run(self.clone(), server.clone())));
        start("service-account-token-controller", Box::pin(account_tokens::run(self.clone(), server.clone())));
        start("bootstrap-token-controller", Box::pin(expiry::run(self.clone(), server.clone())));
        start("certificate-renewal-controller", Box::pin(tend::run(server.clone())));
        start("resourcequota-controller", Box::pin(quota::run(self.clone(), server.clone())));
        protection::start(self, server);
        start("garbage-collector-controller", Box::pin(garbage::run(self.clone(), server.clone())));
        start("workspace-controller", Box::pin(crate::workspaces::run(server.clone())));
        start("storage-housekeeping", Box::pin(housekeeping::run(server.clone())));
        start("priority-and-fairness-config-controller", Box::pin(crate::flows::run(server.clone())));
        crate::aggregation::start(server);
    }
}

/// Workspaces whose definitions are brought to order at the same time.
const DEFINING: usize = 4;

/// Runs a controller until the server stops: what it would do after that, a store that is closed refuses.
pub fn background(server: &Server, controller: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
    let mut stop = server.shutdown.clone();
    let task = tokio::spawn(async move {
        tokio::select! {
            biased;
            // The sender is gone only if the server is.
            _ = stop.wait_for(|stop| *stop) => {}
            () = controller => {}
        }
    });
    task.abort_handle()
}

/// The same for one that runs for as long as the server does: `/livez` and `/readyz` fail if it ends.
pub fn named(server: &Server, name: &'static str, controller: impl Future<Output = ()> + Send + 'static) {
    server.health.watch(name, background(server, controller));
}

pub use bootstrap::{authentication, prepare};
pub use namespaces::root_ca;
