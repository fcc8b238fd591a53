//! The listening socket: TLS, HTTP/1.1 and HTTP/2, and an orderly end.

use std::{
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use audit::Audit;
use cache::Cache;
use clock::rarely::Rarely;
use futures::{FutureExt, future::BoxFuture};
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::conn::auto,
};
use identity::{AUTHENTICATED, Identity, Peer, shared};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::{Notify, Semaphore, watch},
    time::Instant,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use crate::{
    Error, Options, Server,
    assemble::{Front, Index},
    controllers,
    controllers::Controllers,
    onward::{Kubelets, Lingering},
    places::Place,
    streams::Streams,
    webhooks::Reach,
    wire,
};

/// A client has this long from when it connects until the head of its first request is there, and later for the head
/// of each request.
const HEAD: Duration = Duration::from_secs(10);
/// Files that are kept for the store, for webhooks, kubelets and whatever else is no connection of a client.
const OTHER_FILES: usize = 128;
/// What a peer that has shown no certificate may have under way and unread on one HTTP/2 connection. With certificates
/// it is more.
const STREAMS_OF_STRANGERS: u32 = 100;
const WINDOW_OF_STRANGERS: u32 = 256 << 10;
const WINDOWS_OF_STRANGERS: u32 = 1 << 20;
const STREAMS: u32 = 1000;
const WINDOW: u32 = 1 << 20;
const WINDOWS: u32 = 4 << 20;
/// How long nothing is accepted after an accept has failed, at first and at most.
const PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// The group of edges: each may have a few connections only.
const EDGES: &str = "system:edges";
/// At most this many handshakes are worked on at one time, so that those who are connected already are heard between them however many
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
        shared::join(&*options.store, &options.data_dir.join("pki"), clock::unix()).await?;
    }
    let names = [options.extra_names.as_slice(), &[options.services.first().to_string()]].concat();
    let identity = Identity::open(&options.data_dir, address, &names, &options.identity, options.shared_store)?;
    let kubelets = Kubelets::open(options.identity.kubelet_authority.as_deref())?;
    let audit = options.audit.map(Audit::open).transpose()?;
    let protocols = options.protocols.iter().map(|protocol| protocol.name());
    let tls = TlsAcceptor::from(identity.tls(protocols, options.limits.sessions)?);
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
    static NOT_ACCEPTED: Rarely = Rarely::new();
    static TURNED_AWAY: Rarely = Rarely::new();
    let mut shutdown = server.shutdown.clone();
    let places = server.places.clone();
    let turns = Arc::new(Semaphore::new(HANDSHAKES));
    let mut pause = PAUSE;
    loop {
        let (stream, from) = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, from)) => (stream, from.ip()),
                Err(error) => {
                    // Usually too many open files: wait for some to close rather than spin.
                    if let Some(times) = NOT_ACCEPTED.due() {
                        tracing::warn!(%error, times, "cannot accept connections; trying again until it works");
                    }
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    continue;
                }
            },
            () = stopped(&mut shutdown) => break,
        };
        pause = PAUSE;
        let before = places.turned_away();
        let place = places.enter(from);
        if places.turned_away() != before
            && let Some(times) = TURNED_AWAY.due()
        {
            tracing::warn!(times, %from, "too many connections: those of clients that have not said who they are were closed");
        }
        let Some(place) = place else { continue };
        let serving = serve(server.clone(), stream, from, tls.clone(), turns.clone(), place.clone());
        place.served_by(tokio::spawn(serving).abort_handle());
    }
    drop(listener);
    // Every connection sees the shutdown itself and ends when its requests have.
    tokio::time::timeout(DRAIN, async {
        while places.taken() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .unwrap_or_else(|_| tracing::warn!("some requests did not finish in time"));
}

/// At most this many connections there can be: fewer than asked for where the system allows fewer open files.
pub(crate) fn room(wanted: usize) -> usize {
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let files = files.map_or(usize::MAX, |files| usize::try_from(files).unwrap_or(usize::MAX));
    wanted.min(files.saturating_sub(OTHER_FILES).max(files / 2)).max(1)
}

/// The stream, once both sides know whom they speak with, and how long the client waited for its turn.
async fn shake_hands(
    stream: TcpStream,
    tls: TlsAcceptor,
    turns: Arc<Semaphore>,
    place: &Place,
) -> Option<(TlsStream<TcpStream>, Duration)> {
    // Who says nothing takes no turn.
    stream.readable().await.ok()?;
    place.work();
    let asked = Instant::now();
    let turn = turns.acquire_owned().await.ok()?;
    let waited = asked.elapsed();
    let mut accept = std::pin::pin!(tls.accept(stream));
    let done = tokio::select! {
        done = accept.as_mut() => Some(done),
        () = tokio::time::sleep(TURN) => None,
    };
    drop(turn);
    place.wait();
    let done = match done {
        Some(done) => done,
        None => accept.await,
    };
    Some((done.inspect_err(|error| tracing::debug!(%error, "a TLS handshake failed")).ok()?, waited))
}

async fn serve(
    server: Arc<Server>,
    stream: TcpStream,
    from: IpAddr,
    tls: TlsAcceptor,
    turns: Arc<Semaphore>,
    place: Arc<Place>,
) {
    let _ = stream.set_nodelay(true);
    let mut shutdown = server.shutdown.clone();
    let deadline = Instant::now() + HEAD;
    // On the heap, as the connection itself below: what is needed only for a while would take its room for as long as the
    // connection lasts, and there are thousands.
    let shaken = Box::pin(tokio::time::timeout_at(deadline, async {
        tokio::select! {
            shaken = shake_hands(stream, tls, turns, &place) => shaken,
            () = stopped(&mut shutdown) => None,
        }
    }))
    .await;
    let Ok(Some((stream, waited))) = shaken else { return };
    // The time in which the client waited for the server is not the client's.
    let deadline = deadline + waited;
    let chain = stream.get_ref().1.peer_certificates().map(<[_]>::to_vec).unwrap_or_default();
    let has_certificate = !chain.is_empty();
    let peer = Arc::new(Peer::new(chain));
    let asked = stream.get_ref().1.alpn_protocol();
    let protocol = server.protocols.iter().find(|protocol| asked == Some(protocol.name()));
    let who = (has_certificate || protocol.is_some())
        .then(|| server.identity.authenticate(&peer, &http::HeaderMap::new(), request::ROOT, &*server.cache));
    let user = who.as_ref().and_then(|who| who.as_ref().ok());
    let edge = user.filter(|user| user.is_in(EDGES));
    if edge.is_some_and(|edge| !place.know_edge(&edge.name)) {
        return tracing::debug!(%from, "an edge has too many connections; this one is closed");
    }
    if user.is_some_and(|user| user.is_in(AUTHENTICATED)) {
        place.know();
    }
    if let (Some(protocol), Some(who)) = (protocol, who) {
        // What is spoken there sees to itself: whom it does not know it sends away.
        place.know();
        let speak = protocol.speak(server.clone(), who, stream);
        // A task of its own: this one has room for all that HTTP needs.
        tokio::spawn(async move {
            speak.await;
            drop(place);
        });
        return;
    }
    let begun = Arc::new(Begun::default());
    let (streams_at_once, window, windows) = match place.is_known() {
        true => (STREAMS, WINDOW, WINDOWS),
        false => (STREAMS_OF_STRANGERS, WINDOW_OF_STRANGERS, WINDOWS_OF_STRANGERS),
    };
    let service = {
        let (server, begun) = (server.clone(), begun.clone());
        service_fn(move |mut request| {
            let (server, peer, place) = (server.clone(), peer.clone(), place.clone());
            begun.mark();
            if let Some(audit) = &server.audit {
                audit.begin(&mut request, from);
            }
            let counted = (!place.is_known()).then(|| place.request());
            server.handle(request, peer.clone(), place.clone()).map(move |response| {
                if let Some(counted) = counted {
                    if peer.has_proved() {
                        place.know_guest();
                    }
                    drop(counted);
                }
                Ok::<_, std::convert::Infallible>(response)
            })
        })
    };
    let streams = Streams::default();
    let mut http = auto::Builder::new(streams.clone());
    http.http1().timer(TokioTimer::new()).header_read_timeout(HEAD).max_buf_size(128 << 10).half_close(false);
    http.http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(streams_at_once)
        .max_header_list_size(64 << 10)
        .initial_stream_window_size(window)
        .initial_connection_window_size(windows)
        .max_send_buf_size(1 << 20)
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(20));
    let (wire, driver) = wire::gathered(stream);
    let mut connection = Box::pin(http.serve_connection_with_upgrades(TokioIo::new(wire), service).into_owned());
    drop(http);
    // On the heap as well: it is over with the first request.
    let first = Box::pin(async {
        tokio::select! {
            biased;
            ended = driver.drive(connection.as_mut(), &streams) => Some(Some(ended)),
            () = begun.wait() => Some(None),
            () = tokio::time::sleep_until(deadline) => None,
            () = stopped(&mut shutdown) => None,
        }
    })
    .await;
    let ended = match first {
        // No request came in time, or none will be answered any more.
        None => return,
        Some(Some(ended)) => ended,
        Some(None) => tokio::select! {
            ended = driver.drive(connection.as_mut(), &streams) => ended,
            () = stopped(&mut shutdown) => {
                connection.as_mut().graceful_shutdown();
                driver.drive(connection.as_mut(), &streams).await
            }
        },
    };
    if let Err(error) = ended {
        report_end(&*error, from);
    }
}

/// Says why a connection ended early. A client that resets requests as fast as it makes them is worth a warning, but
/// not one for each connection.
fn report_end(error: &(dyn std::error::Error + 'static), from: IpAddr) {
    static RESETS: Rarely = Rarely::new();
    let mut cause = Some(error);
    while let Some(at) = cause {
        if at.source().is_none() && at.to_string().contains("excessive load") {
            if let Some(times) = RESETS.due() {
                tracing::warn!(times, %from, "HTTP/2 connections were closed because their clients reset too many requests");
            }
            return;
        }
        cause = at.source();
    }
    tracing::debug!(%error, "a connection ended early");
}

/// Whether the first request of a connection is there.
#[derive(Default)]
struct Begun {
    is: AtomicBool,
    changed: Notify,
}

impl Begun {
    fn mark(&self) {
        if !self.is.load(Relaxed) {
            self.is.store(true, Relaxed);
            self.changed.notify_one();
        }
    }

    async fn wait(&self) {
        self.changed.notified().await;
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
        http.timer(TokioTimer::new()).header_read_timeout(HEAD).max_buf_size(128 << 10).half_close(false);
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
