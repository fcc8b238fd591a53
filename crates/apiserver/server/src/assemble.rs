//! What a server consists of, whether it listens or lives inside another one.

use std::{net::SocketAddr, sync::Arc};

use audit::Audit;
use cache::{Cache, Observer};
use flow::{Inflight, Limits};
use identity::Identity;
use tokio::sync::watch;

use crate::{
    Mount, Plugins, Protocol, Server, admission::Registry, aggregation::Aggregation, authorize::Authorization,
    exports::Exports, flows::Flows, kinds::Kinds, metrics::Metrics, onward::Kubelets, openapi::Documents, owner::Owner,
    range::Range, webhooks::Reach, workspaces::Workspaces,
};

/// What is known of the objects besides the objects: kept true by observers of the cache, so made before it.
pub struct Index {
    pub kinds: Arc<Kinds>,
    pub authorization: Arc<Authorization>,
    pub admission: Arc<Registry>,
    pub aggregation: Arc<Aggregation>,
    pub flows: Arc<Flows>,
    pub workspaces: Arc<Workspaces>,
    pub exports: Arc<Exports>,
}

impl Index {
    /// `provides` says that our own kinds of placement are at home here.
    pub fn new(provides: bool) -> Self {
        Self {
            kinds: Arc::new(Kinds::new(provides)),
            authorization: Arc::default(),
            admission: Arc::default(),
            aggregation: Arc::default(),
            flows: Arc::default(),
            workspaces: Arc::default(),
            exports: Arc::default(),
        }
    }

    pub fn observers(&self) -> Vec<Observer> {
        vec![
            self.kinds.clone().observer(),
            self.authorization.observer(),
            self.admission.observer(),
            self.aggregation.observer(),
            self.flows.observer(),
            self.workspaces.observer(),
            self.exports.observer(),
        ]
    }
}

/// How a server meets those who ask.
pub struct Front {
    pub identity: Arc<Identity>,
    pub plugins: Plugins,
    pub audit: Option<Arc<Audit>>,
    pub kubelets: Kubelets,
    pub shutdown: watch::Receiver<bool>,
    pub address: SocketAddr,
    pub limits: Limits,
    pub mounts: Vec<Arc<dyn Mount>>,
    pub protocols: Vec<Arc<dyn Protocol>>,
    pub owner: Option<Arc<dyn Owner>>,
    pub shared_store: bool,
    pub services: Range,
    pub reach: Reach,
}

impl Server {
    pub(crate) fn assemble(cache: Arc<Cache>, index: Index, front: Front) -> Self {
        Self {
            cache,
            kinds: index.kinds,
            exports: index.exports,
            identity: front.identity,
            authorization: index.authorization,
            admission: index.admission,
            aggregation: index.aggregation,
            flows: index.flows,
            plugins: front.plugins,
            workspaces: index.workspaces,
            conversions: Default::default(),
            reach: Arc::new(front.reach),
            turns: Default::default(),
            inflight: Inflight::new(&front.limits),
            slow: Default::default(),
            openapi: Documents::default(),
            metrics: Metrics::default(),
            health: Default::default(),
            audit: front.audit,
            kubelets: front.kubelets,
            shutdown: front.shutdown,
            address: front.address,
            more_metrics: Default::default(),
            limits: front.limits,
            mounts: front.mounts,
            protocols: front.protocols,
            owner: front.owner,
            shared_store: front.shared_store,
            services: front.services,
        }
    }
}
