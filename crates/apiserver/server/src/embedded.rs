//! A server inside another one: no port, no identity, nothing that it does by itself. What it serves is what it is told, in memory,
//! and gone with it. It asks nobody who they are: whoever passes requests on has done that.

use std::sync::Arc;

use bytes::Bytes;
use cache::Cache;
use flow::body::Body;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::Full;
use identity::User;
use request::ROOT;
use store::{Commit, MemoryStore, Outcome, Revision, Store};

use crate::{
    Plugins, Server,
    assemble::{Front, Index},
    mount::Mount,
    onward::Kubelets,
    webhooks::Conversions,
};

/// Dropping it ends all that belongs to it.
pub struct Embedded {
    server: Arc<Server>,
    store: Arc<MemoryStore>,
}

impl Embedded {
    /// One whose revisions begin behind this one. It ends its watches when its host stops. Mounts are seen in its discovery.
    pub async fn within(host: &Server, revision: Revision, mounts: Vec<Arc<dyn Mount>>) -> Result<Self, store::Error> {
        let store = Arc::new(MemoryStore::beginning_at(revision));
        let index = Index::new(false);
        // Nobody but its host asks it, so roles, policies and workspaces are nothing but objects here.
        let cache = Cache::load(store.clone(), vec![index.kinds.clone().observer()], host.limits.history).await?;
        let front = Front {
            identity: host.identity.clone(),
            plugins: Plugins::default(),
            audit: None,
            kubelets: Kubelets::default(),
            shutdown: host.shutdown.clone(),
            address: host.address,
            limits: host.limits.clone(),
            mounts,
            protocols: Vec::new(),
            owner: None,
            shared_store: false,
            services: host.services,
            reach: Default::default(),
        };
        let mut server = Server::assemble(cache, index, front);
        // What it shows comes from elsewhere, and nobody there decides whom this process connects to.
        server.conversions = Conversions::none();
        server.aggregation.leave_alone();
        Ok(Self { server: Arc::new(server), store })
    }

    pub fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// Makes a change at no earlier revision than this. False if one of its compares does not hold.
    pub async fn commit(&self, commit: Commit, at_least: Revision) -> Result<bool, store::Error> {
        self.store.next_is_at_least(at_least);
        let Outcome::Committed(revision) = self.store.commit(commit).await? else { return Ok(false) };
        self.server.cache.wait_for(revision).await;
        // The cache remembers what watchers need.
        self.store.compact(revision).await?;
        Ok(true)
    }

    /// Nobody was told of anything yet: whoever has seen an earlier revision has seen it elsewhere.
    pub fn begin_here(&self) {
        self.server.cache.begin_here();
    }

    /// Answers a request for reading, to a path without a workspace, whoever asks.
    pub async fn read(&self, path_and_query: &str, headers: HeaderMap) -> Option<Response<Body>> {
        let mut request = Request::new(Full::new(Bytes::new()));
        *request.method_mut() = Method::GET;
        // By the name of a workspace, where our own kinds are announced too.
        *request.uri_mut() = format!("/clusters/{ROOT}{path_and_query}").parse().ok()?;
        *request.headers_mut() = headers;
        Some(self.server.clone().request_as(User::itself(), request).await)
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.store.shut();
    }
}
