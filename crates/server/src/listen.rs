//! The listening socket: TLS, HTTP/1.1 and HTTP/2, and an orderly end.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::conn::auto,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, watch},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use crate::{
    Error, Options, Server,
    assemble::{Front, Index},
    audit::Audit,
    cache::Cache,
    controllers::{self, Controllers},
    identity::{Identity, Peer, shared},
    onward::{Kubelets, Lingering},
    streams::Streams,
    wire,
};

/// A client has this long to shake hands, and to send its headers.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// So many handshakes are worked on at one time, so that those who are connected already are heard between them however many
/// come at once. One that waits for a slow client gives its turn to the next after a while.
const HANDSHAKES: usize = 16;
const TURN: Duration = Duration::from_millis(50);
/// Requests under way have this long to finish when the server stops.
const DRAIN: Duration = Duration::from_secs(10);
/// The store has this long to be closed, and so has the audit log.
const CLOSE: Duration = Duration::from_secs(5);
/// How often a file is tried again for which there was no room.
const PUBLISH: Duration = Duration::from_secs(5);
/// What a client is told when the disk is full.
const FULL: u16 = 507;

/// A server that accepts connections. Dropping it does not stop it; [`stop`](Self::stop) does.
pub struct Running {
    pub server: Arc<Server>,
    pub address: SocketAddr,
    stop: watch::Sender<bool>,
    ended: tokio::task::JoinHandle<()>,
}

/// Loads the store, makes or reads the identity, and listens. Answers when requests are being served.
pub fn start(options: Options) -> BoxFuture<'static, Result<Running, Error>> {
    // Boxed for the same reason as what answers requests ([`Server::handle`]).
    Box::pin(begin(options))
}

async fn begin(options: Options) -> Result<Running, Error> {
    let listener =
        TcpListener::bind(options.listen).await.map_err(|error| Error::Listen { address: options.listen, error })?;
    let address = listener.local_addr().map_err(|error| Error::Listen { address: options.listen, error })?;
    if options.shared_store {
        shared::join(&*options.store, &options.data_dir.join("pki"), crate::clock::unix()).await?;
    }
    let names = [options.extra_names.as_slice(), &[options.services.first().to_string()]].concat();
    let identity = Identity::open(&options.data_dir, address, &names, &options.identity, options.shared_store)?;
    let kubelets = Kubelets::open(options.identity.kubelet_authority.as_deref())?;
    let audit = options.audit.map(Audit::open).transpose()?;
    let protocols = options.protocols.iter().map(|protocol| protocol.name());
    let tls = TlsAcceptor::from(identity.tls(protocols, options.limits.sessions)?);
    let index = Index::new(options.provides);
    let controllers = Controllers::new();
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
    };
    let server = Arc::new(Server::assemble(cache, index, front));
    let spaces = server.workspaces.clone();
    let requests = move |workspace: &str| spaces.limits(workspace).requests;
    server.inflight.set_limit_of(Box::new(move |workspace| requests(workspace).and_then(|n| n.try_into().ok())));
    let fresh = server.cache.revision() == 0;
    match controllers::prepare(&server, crate::request::ROOT).await {
        // What is there can be read, and something has to be deleted before more can be written.
        Err(status) if status.code == FULL && !fresh => {
            tracing::warn!(%status, "what every server has could not be brought up to date");
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
            tokio::spawn(publish_later(server.clone()));
        }
        published => published?,
    }
    let ended = tokio::spawn(accept(server.clone(), listener, tls));
    controllers.start(&server);
    server.exports.start(&server);
    Ok(Running { server, address, stop, ended })
}

/// Writes the kubeconfig when there is room for it.
async fn publish_later(server: Arc<Server>) {
    let mut shutdown = server.shutdown.clone();
    loop {
        tokio::select! {
            () = tokio::time::sleep(PUBLISH) => {}
            () = stopped(&mut shutdown) => return,
        }
        if server.identity.publish(server.address).is_ok() {
            return;
        }
    }
}

impl Running {
    /// Takes no more requests, ends watches, lets the others finish, closes the store.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        if let Err(error) = self.ended.await {
            tracing::error!(%error, "the accept loop did not end well");
        }
        if tokio::time::timeout(CLOSE, self.server.cache.store().close()).await.is_err() {
            tracing::warn!("the store was not closed within {} s; what was acknowledged is durable", CLOSE.as_secs());
        }
        if let Some(audit) = &self.server.audit
            && tokio::time::timeout(CLOSE, audit.close()).await.is_err()
        {
            tracing::warn!("the audit log was not written within {} s", CLOSE.as_secs());
        }
    }
}

async fn accept(server: Arc<Server>, listener: TcpListener, tls: TlsAcceptor) {
    let mut shutdown = server.shutdown.clone();
    let room = Arc::new(Semaphore::new(server.limits.connections));
    let turns = Arc::new(Semaphore::new(HANDSHAKES));
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Usually too many open files: wait for some to close rather than spin.
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
            () = stopped(&mut shutdown) => break,
        };
        let Ok(place) = room.clone().try_acquire_owned() else { continue };
        let (server, tls) = (server.clone(), tls.clone());
        tokio::spawn(serve(server, stream, tls, turns.clone(), Arc::new(place)));
    }
    drop(listener);
    // Every connection sees the shutdown itself and ends when its requests have.
    tokio::time::timeout(DRAIN, async {
        while room.available_permits() < server.limits.connections {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .unwrap_or_else(|_| tracing::warn!("some requests did not finish in time"));
}

/// The stream, once both sides know whom they speak with.
async fn shake_hands(stream: TcpStream, tls: TlsAcceptor, turns: Arc<Semaphore>) -> Option<TlsStream<TcpStream>> {
    // Who says nothing takes no turn.
    stream.readable().await.ok()?;
    let turn = turns.acquire_owned().await.ok()?;
    let mut accept = std::pin::pin!(tls.accept(stream));
    tokio::select! {
        done = accept.as_mut() => return done.ok(),
        () = tokio::time::sleep(TURN) => drop(turn),
    }
    accept.await.ok()
}

async fn serve(
    server: Arc<Server>,
    stream: TcpStream,
    tls: TlsAcceptor,
    turns: Arc<Semaphore>,
    place: Arc<OwnedSemaphorePermit>,
) {
    let _ = stream.set_nodelay(true);
    let from = stream.peer_addr().map_or(std::net::Ipv4Addr::UNSPECIFIED.into(), |address| address.ip());
    // On the heap, as the connection itself below: what is needed only for a while would take its room for as long as the
    // connection lasts, and there are thousands.
    let shaken = Box::pin(tokio::time::timeout(HANDSHAKE, shake_hands(stream, tls, turns))).await;
    let Ok(Some(stream)) = shaken else { return };
    let chain = stream.get_ref().1.peer_certificates().map(<[_]>::to_vec).unwrap_or_default();
    let peer = Arc::new(Peer::new(chain));
    let asked = stream.get_ref().1.alpn_protocol();
    if let Some(protocol) = server.protocols.iter().find(|protocol| asked == Some(protocol.name())) {
        let who = server.identity.authenticate(&peer, &http::HeaderMap::new(), crate::request::ROOT, &*server.cache);
        let speak = protocol.speak(server.clone(), who, stream);
        // A task of its own: this one has room for all that HTTP needs.
        tokio::spawn(async move {
            speak.await;
            drop(place);
        });
        return;
    }
    let mut shutdown = server.shutdown.clone();
    let service = {
        let server = server.clone();
        service_fn(move |mut request| {
            let (server, peer, place) = (server.clone(), peer.clone(), place.clone());
            if let Some(audit) = &server.audit {
                audit.begin(&mut request, from);
            }
            server.handle(request, peer, place).map(Ok::<_, std::convert::Infallible>)
        })
    };
    let streams = Streams::default();
    let mut http = auto::Builder::new(streams.clone());
    http.http1().timer(TokioTimer::new()).header_read_timeout(HANDSHAKE).max_buf_size(128 << 10).half_close(false);
    http.http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(1000)
        .max_header_list_size(64 << 10)
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(4 << 20)
        .max_send_buf_size(1 << 20)
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(20));
    let (wire, driver) = wire::gathered(stream);
    let mut connection = Box::pin(http.serve_connection_with_upgrades(TokioIo::new(wire), service).into_owned());
    drop(http);
    let ended = tokio::select! {
        ended = driver.drive(connection.as_mut(), &streams) => ended,
        () = stopped(&mut shutdown) => {
            connection.as_mut().graceful_shutdown();
            driver.drive(connection.as_mut(), &streams).await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}

impl Server {
    /// Serves HTTP/1.1 on a byte stream until it ends. Whoever is at the other end has authenticated those who ask, and says
    /// who they are in X-Remote- headers: what a trusted proxy does, and what is believed on no other way in.
    pub async fn serve_trusted<T>(self: Arc<Self>, stream: T)
    where
        T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (peer, mut shutdown) = (Arc::new(Peer::vouching()), self.shutdown.clone());
        // What a stream was upgraded to lives on without HTTP: it is the same stream all the same.
        let (alive, mut over) = tokio::sync::mpsc::channel::<std::convert::Infallible>(1);
        let alive = Arc::new(alive);
        let service = service_fn(move |mut request| {
            let (server, peer, alive) = (self.clone(), peer.clone(), alive.clone());
            if let Some(audit) = &server.audit {
                audit.begin(&mut request, std::net::Ipv4Addr::UNSPECIFIED.into());
            }
            server.handle(request, peer, alive).map(Ok::<_, std::convert::Infallible>)
        });
        let mut http = http1::Builder::new();
        // A header for each group that somebody is in.
        http.max_headers(1000);
        http.timer(TokioTimer::new()).header_read_timeout(HANDSHAKE).max_buf_size(128 << 10).half_close(false);
        let mut connection =
            Box::pin(http.serve_connection(TokioIo::new(Lingering::new(stream)), service).with_upgrades());
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = stopped(&mut shutdown) => {
                connection.as_mut().graceful_shutdown();
                connection.as_mut().await
            }
        };
        drop(connection);
        over.recv().await;
        if let Err(error) = ended {
            tracing::debug!(%error, "a trusted stream ended early");
        }
    }
}

/// Waits for the server to be told to stop.
async fn stopped(shutdown: &mut watch::Receiver<bool>) {
    let _ = shutdown.wait_for(|down| *down).await;
}
