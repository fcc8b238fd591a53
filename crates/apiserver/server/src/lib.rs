//! The Kubernetes API over HTTP: the same server at the center and on every edge.

mod admission;
mod aggregation;
mod apart;
mod assemble;
mod authorize;
mod call;
mod controllers;
mod deadline;
mod discovery;
mod dispatch;
pub mod embedded;
mod exports;
mod flows;
mod health;
pub mod internal;
mod kinds;
pub mod local;
mod metrics;
pub mod mount;
mod negotiate;
mod nonresource;
pub mod onward;
mod openapi;
pub mod owner;
pub mod range;
mod render;
pub mod replica;
mod reply;
mod respond;
mod start;
mod subresources;
mod traces;
mod trusted;
mod turns;
mod types;
mod verbs;
mod warnings;
mod webhooks;
pub mod workspaces;
mod yaml;

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, OnceLock},
};

use cache::Cache;
use schema::status::Status;
use store::Store;
use tokio::sync::watch;

use kinds::Kinds;

pub use admission::Plugins;
pub use dispatch::Also;
pub use exports::{BINDINGS, bound_collection, bound_definitions, offer};
pub use mount::{Mount, Mounted, Protocol};
pub use nonresource::VERSION as KUBERNETES_VERSION;
pub use start::{Prepared, prepare};
pub use webhooks::Network;

/// What a server is started with.
pub struct Options {
    pub data_dir: PathBuf,
    pub listen: SocketAddr,
    pub store: Arc<dyn Store>,
    /// Other servers write to the same store: reads ask it how far it is.
    pub shared_store: bool,
    /// Further names and addresses for the serving certificate.
    pub extra_names: Vec<String>,
    pub identity: identity::Options,
    pub limits: flow::Limits,
    /// Which steps of admission are on.
    pub plugins: Plugins,
    /// Without it nothing is written down.
    pub audit: Option<audit::Options>,
    /// What else is served on the port.
    pub mounts: Vec<Arc<dyn Mount>>,
    /// What else than HTTP is spoken there.
    pub protocols: Vec<Arc<dyn Protocol>>,
    /// Who else sees every change of an object.
    pub observers: Vec<cache::Observer>,
    /// Serves the kinds of placement, as a center does. An edge has no use for them.
    pub provides: bool,
    /// Takes the finalizers of claims and volumes away that nobody uses: for servers beside which no controllers of volumes run.
    pub releases_storage: bool,
    /// Who decides on changes of what is another's; without one, everything is this server's own.
    pub owner: Option<Arc<dyn owner::Owner>>,
    /// Where the addresses of Services come from.
    pub services: range::Range,
    /// Addresses that webhooks of tenants may lead to although they are this machine's or its link's.
    pub webhook_addresses: Vec<Network>,
}

impl Options {
    /// A server on a port of the loopback that is free, with nothing special about it.
    pub fn new(data_dir: impl Into<PathBuf>, store: Arc<dyn Store>) -> Self {
        Self {
            data_dir: data_dir.into(),
            listen: (std::net::Ipv4Addr::LOCALHOST, 0).into(),
            store,
            shared_store: false,
            extra_names: Vec::new(),
            identity: identity::Options::default(),
            limits: flow::Limits::default(),
            plugins: Plugins::default(),
            audit: None,
            mounts: Vec::new(),
            protocols: Vec::new(),
            observers: Vec::new(),
            provides: true,
            releases_storage: true,
            owner: None,
            services: range::Range::default(),
            webhook_addresses: Vec::new(),
        }
    }
}

/// Adds lines to `/metrics`.
type WriteMetrics = Box<dyn Fn(&mut String) + Send + Sync>;

pub struct Server {
    pub cache: Arc<Cache>,
    pub kinds: Arc<Kinds>,
    pub exports: Arc<exports::Exports>,
    pub identity: Arc<identity::Identity>,
    pub authorization: Arc<authorize::Authorization>,
    pub admission: Arc<admission::Registry>,
    pub aggregation: Arc<aggregation::Aggregation>,
    pub flows: Arc<flows::Flows>,
    pub plugins: Plugins,
    pub workspaces: Arc<workspaces::Workspaces>,
    pub conversions: webhooks::Conversions,
    reach: Arc<webhooks::Reach>,
    /// Writers where quotas count take turns.
    pub turns: admission::quota::Turns,
    pub inflight: flow::Inflight,
    pub slow: apart::Slow,
    pub openapi: openapi::Documents,
    pub metrics: metrics::Metrics,
    pub health: health::Health,
    pub audit: Option<Arc<audit::Audit>>,
    pub kubelets: onward::Kubelets,
    pub shutdown: watch::Receiver<bool>,
    pub address: SocketAddr,
    pub limits: flow::Limits,
    /// Metrics of what stands in front of the server.
    more_metrics: OnceLock<WriteMetrics>,
    mounts: Vec<Arc<dyn Mount>>,
    protocols: Vec<Arc<dyn Protocol>>,
    owner: Option<Arc<dyn owner::Owner>>,
    shared_store: bool,
    services: range::Range,
}

/// What to do when an address cannot be listened on.
fn listen_advice(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::AddrNotAvailable => {
            "This machine has no such address: name one of its own, or 0.0.0.0 for all of them"
        }
        std::io::ErrorKind::PermissionDenied => "Ports below 1024 are for root: choose another one",
        _ => "Is something else using the port? Port 0 picks a free one",
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Store(#[from] store::Error),
    #[error("cannot listen on {address}: {error}. {}", listen_advice(.error))]
    Listen { address: SocketAddr, error: std::io::Error },
    #[error(transparent)]
    Identity(#[from] identity::Error),
    #[error(transparent)]
    Audit(#[from] audit::Error),
    #[error("the objects that every center has could not be made: {0}")]
    Prepare(Status),
}

impl Server {
    /// What else than HTTP is spoken on the port.
    pub fn protocols(&self) -> &[Arc<dyn Protocol>] {
        &self.protocols
    }

    /// Adds metrics to `/metrics`, each with its HELP and TYPE lines. Only the first call counts.
    pub fn add_metrics(&self, write: impl Fn(&mut String) + Send + Sync + 'static) {
        let _ = self.more_metrics.set(Box::new(write));
    }

    fn mounts(&self) -> &[Arc<dyn Mount>] {
        &self.mounts
    }

    /// Other servers write to the same store.
    pub fn has_shared_store(&self) -> bool {
        self.shared_store
    }

    /// With a store of its own, a server has seen everything that was ever acknowledged. With a shared one it asks.
    pub async fn catch_up(&self) -> Result<(), Status> {
        if self.shared_store {
            let newest = self.cache.store().revision().await.map_err(|error| unavailable(&error))?;
            self.cache.catch_up(newest).await.map_err(|error| unavailable(&error))?;
        }
        Ok(())
    }
}

/// What the store's keys of a resource begin with, for whoever treats some resources in a way of their own.
pub fn store_prefix(group: &str, resource: &str) -> String {
    format!("{}/", kinds::collection_name(group, resource))
}

/// A store that cannot do its work, as a client is told.
pub fn unavailable(error: &store::Error) -> Status {
    match error {
        store::Error::Full(_) => Status::new(507, "InsufficientStorage", error.to_string()),
        store::Error::Unknown(_) | store::Error::Unavailable(_) => {
            Status::unavailable(error.to_string()).retry_after(1)
        }
        store::Error::Closed => Status::unavailable("the server is shutting down").retry_after(1),
        _ => Status::internal(error),
    }
}
