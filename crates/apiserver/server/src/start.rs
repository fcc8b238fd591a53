//! Opens the store and the identity, and builds a server that is ready to answer. Listening is the business of `front`.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use audit::Audit;
use cache::Cache;
use identity::{Identity, shared};
use tokio::sync::watch;

use crate::{
    Error, Options, Server,
    assemble::{Front, Index},
    controllers::{self, Controllers},
    onward::Kubelets,
    webhooks::Reach,
};

/// How often writing the kubeconfig is tried again after the disk was full.
const PUBLISH_INTERVAL: Duration = Duration::from_secs(5);
/// The code that a client gets when the disk is full.
const INSUFFICIENT_STORAGE: u16 = 507;

/// A server whose state is loaded. Its controllers do not run yet.
pub struct Prepared {
    pub server: Arc<Server>,
    pub tls: Arc<rustls::ServerConfig>,
    controllers: Arc<Controllers>,
    stop: watch::Sender<bool>,
}

impl Prepared {
    /// Starts the controllers. Sending `true` stops the server.
    pub fn run(self) -> watch::Sender<bool> {
        self.controllers.start(&self.server);
        self.server.exports.start(&self.server);
        self.stop
    }
}

/// Loads the store, makes or reads the identity, and creates the objects that every server has.
pub async fn prepare(options: Options, address: SocketAddr) -> Result<Prepared, Error> {
    if options.shared_store {
        shared::join(&*options.store, &options.data_dir.join("pki"), clock::unix()).await?;
    }
    let names = [options.extra_names.as_slice(), &[options.services.first().to_string()]].concat();
    let identity = Identity::open(&options.data_dir, address, &names, &options.identity, options.shared_store)?;
    let kubelets = Kubelets::open(options.identity.kubelet_authority.as_deref())?;
    let audit = options.audit.map(Audit::open).transpose()?;
    let protocols = options.protocols.iter().map(|protocol| protocol.name());
    let tls = identity.tls(protocols, options.limits.sessions)?;
    let index = Index::new(options.provides);
    let controllers = Controllers::new(options.releases_storage);
    let mut observers = index.observers();
    observers.push(controllers.observer());
    if options.shared_store {
        observers.push(shared::observer(identity.tokens().keys().clone()));
    }
    observers.extend(options.observers);
    let cache = Cache::load(options.store.clone(), observers, options.limits.history).await?;
    let (stop, shutdown) = watch::channel(false);
    let front = Front {
        identity: Arc::new(identity),
        plugins: options.plugins,
        audit,
        kubelets,
        shutdown,
        address,
        limits: options.limits,
        mounts: options.mounts,
        protocols: options.protocols,
        owner: options.owner,
        shared_store: options.shared_store,
        services: options.services,
        reach: Reach { allowed: options.webhook_addresses },
    };
    let server = Arc::new(Server::assemble(cache, index, front));
    let spaces = server.workspaces.clone();
    let requests = move |workspace: &str| spaces.limits(workspace).requests;
    server.inflight.set_limit_of(Box::new(move |workspace| requests(workspace).and_then(|n| n.try_into().ok())));
    let fresh = server.cache.revision() == 0;
    match controllers::prepare(&server, request::ROOT).await {
        // A full disk can still be read, and something has to be deleted before more can be written.
        Err(status) if status.code == INSUFFICIENT_STORAGE && !fresh => {
            tracing::warn!(%status, "the objects that every server has could not be brought up to date");
        }
        prepared => prepared.map_err(Error::Prepare)?,
    }
    if fresh {
        server.cache.begin_here();
    }
    server.exports.prepare(&server.cache);
    match server.identity.publish(address) {
        Err(error) if error.is_full() => {
            tracing::warn!(%error, "the kubeconfig is not up to date; trying again");
            tasks::spawn_short("publish-kubeconfig", publish_later(server.clone()));
        }
        published => published?,
    }
    Ok(Prepared { server, tls, controllers, stop })
}

/// Writes the kubeconfig when there is room for it.
async fn publish_later(server: Arc<Server>) {
    let mut shutdown = server.shutdown.clone();
    loop {
        tokio::select! {
            () = tokio::time::sleep(PUBLISH_INTERVAL) => {}
            _ = shutdown.wait_for(|down| *down) => return,
        }
        if server.identity.publish(server.address).is_ok() {
            return;
        }
    }
}

/// A server that does not listen, for tests.
#[cfg(test)]
pub mod testing {
    use super::*;

    pub struct Running {
        pub server: Arc<Server>,
        stop: watch::Sender<bool>,
    }

    pub async fn start(options: Options) -> Result<Running, Error> {
        // Nothing listens there. The address is only shown, as in the Service `kubernetes`.
        let address = (options.listen.ip(), 6443).into();
        let prepared = prepare(options, address).await?;
        Ok(Running { server: prepared.server.clone(), stop: prepared.run() })
    }

    impl Running {
        pub async fn stop(self) {
            self.stop.send_replace(true);
            self.server.cache.store().close().await;
        }
    }
}
