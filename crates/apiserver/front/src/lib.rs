//! The listening socket: TLS, HTTP/1.1 and HTTP/2, other protocols by ALPN, and an orderly end.
//!
//! * [`start`] binds the address, prepares a [`server::Server`] and accepts connections.
//! * `connection` serves one connection from its handshake to its end.
//! * `connections` is the table of open connections: how many there may be, and which one gives way.
//! * `write_coalescing`, `inline_executor` and `poll_once` together make a lone HTTP/2 request cheap: it is polled inside
//!   the connection's task, and its response leaves in one write.

mod connection;
mod connections;
mod inline_executor;
mod poll_once;
mod write_coalescing;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use server::{Error, Options, Server};
use tokio::{net::TcpListener, sync::watch, task::JoinHandle};
use tokio_rustls::TlsAcceptor;

use connections::ConnectionTable;

/// The store has this long to be closed, and so has the audit log.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Files that are kept for the store, for webhooks, kubelets and whatever else is no connection of a client.
const RESERVED_FILES: usize = 128;

/// A server that accepts connections. Dropping it does not stop it; [`stop`](Self::stop) does.
pub struct Running {
    pub server: Arc<Server>,
    pub address: SocketAddr,
    stop: watch::Sender<bool>,
    ended: JoinHandle<()>,
}

/// Loads the store, makes or reads the identity, and listens. Returns when requests are being served.
pub fn start(options: Options) -> BoxFuture<'static, Result<Running, Error>> {
    // Boxed, so that not every caller has the whole of it compiled once more for itself.
    Box::pin(begin(options))
}

async fn begin(options: Options) -> Result<Running, Error> {
    let failed = |error| Error::Listen { address: options.listen, error };
    let listener = TcpListener::bind(options.listen).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let prepared = server::prepare(options, address).await?;
    let (server, tls) = (prepared.server.clone(), TlsAcceptor::from(prepared.tls.clone()));
    let connections = ConnectionTable::new(max_connections(server.limits.connections));
    let counted = connections.clone();
    server.add_metrics(move |out| counted.text(out));
    let accepting = connection::accept(server.clone(), listener, tls, connections);
    let ended = tasks::spawn_short("accept", accepting);
    Ok(Running { server, address, stop: prepared.run(), ended })
}

/// The number of connections that there can be: fewer than asked for where the system allows fewer open files.
fn max_connections(wanted: usize) -> usize {
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let files = files.map_or(usize::MAX, |files| usize::try_from(files).unwrap_or(usize::MAX));
    wanted.min(files.saturating_sub(RESERVED_FILES).max(files / 2)).max(1)
}

impl Running {
    /// Takes no more requests, ends watches, lets the others finish, closes the store.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        if let Err(error) = self.ended.await {
            tracing::error!(%error, "the accept loop did not end well");
        }
        let seconds = CLOSE_TIMEOUT.as_secs();
        if tokio::time::timeout(CLOSE_TIMEOUT, self.server.cache.store().close()).await.is_err() {
            tracing::warn!("the store was not closed within {seconds} s; what was acknowledged is durable");
        }
        if let Some(audit) = &self.server.audit
            && tokio::time::timeout(CLOSE_TIMEOUT, audit.close()).await.is_err()
        {
            tracing::warn!("the audit log was not written within {seconds} s");
        }
    }
}

/// Waits until the server is told to stop.
async fn stopped(shutdown: &mut watch::Receiver<bool>) {
    let _ = shutdown.wait_for(|down| *down).await;
}
