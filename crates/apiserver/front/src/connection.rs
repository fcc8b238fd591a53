//! One connection, from its TLS handshake to its end.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use clock::rarely::Rarely;
use futures::FutureExt;
use hyper::service::service_fn;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::conn::auto,
};
use identity::{AUTHENTICATED, Peer};
use server::Server;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Notify, Semaphore},
    time::Instant,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use crate::{
    connections::{ConnectionSlot, ConnectionTable},
    inline_executor::InlineExecutor,
    stopped, write_coalescing,
};

static CONNECTION: tasks::Kind = tasks::Kind::new("connection");

/// A client has this long from when it connects until the head of its first request is there, and later for the head
/// of each request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Concurrent streams and window sizes of an HTTP/2 connection of a peer without a certificate.
const MAX_STREAMS_OF_STRANGERS: u32 = 100;
const STREAM_WINDOW_OF_STRANGERS: u32 = 256 << 10;
const CONNECTION_WINDOW_OF_STRANGERS: u32 = 1 << 20;
/// The same of a peer with a certificate.
const MAX_STREAMS: u32 = 1000;
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 4 << 20;
/// Nothing is accepted for this long after an accept has failed, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const MAX_PAUSE: Duration = Duration::from_secs(1);
/// At most this many handshakes are worked on at one time, so that open connections are served between them. A handshake
/// that waits for a slow client gives its turn to the next one after a while.
const MAX_HANDSHAKES: usize = 16;
const HANDSHAKE_TURN: Duration = Duration::from_millis(50);
/// Requests under way have this long to finish when the server stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Accepts connections until the server stops, then waits for those that are open.
pub async fn accept(server: Arc<Server>, listener: TcpListener, tls: TlsAcceptor, connections: Arc<ConnectionTable>) {
    static NOT_ACCEPTED: Rarely = Rarely::new();
    static TURNED_AWAY: Rarely = Rarely::new();
    let mut shutdown = server.shutdown.clone();
    let turns = Arc::new(Semaphore::new(MAX_HANDSHAKES));
    let mut pause = FIRST_PAUSE;
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
                    pause = (pause * 2).min(MAX_PAUSE);
                    continue;
                }
            },
            () = stopped(&mut shutdown) => break,
        };
        pause = FIRST_PAUSE;
        let before = connections.turned_away();
        let slot = connections.enter(from);
        if connections.turned_away() != before
            && let Some(times) = TURNED_AWAY.due()
        {
            tracing::warn!(times, %from, "too many connections: those of clients that have not said who they are were closed");
        }
        let Some(slot) = slot else { continue };
        let serving = serve(server.clone(), stream, from, tls.clone(), turns.clone(), slot.clone());
        slot.served_by(tasks::spawn_short(&CONNECTION, serving).abort_handle());
    }
    drop(listener);
    // Every connection sees the shutdown itself and ends when its requests have.
    tokio::time::timeout(DRAIN_TIMEOUT, async {
        while connections.taken() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .unwrap_or_else(|_| tracing::warn!("some requests did not finish in time"));
}

/// The stream after its handshake, and how long the client waited for its turn.
async fn shake_hands(
    stream: TcpStream,
    tls: TlsAcceptor,
    turns: Arc<Semaphore>,
    slot: &ConnectionSlot,
) -> Option<(TlsStream<TcpStream>, Duration)> {
    // A silent client takes no turn.
    stream.readable().await.ok()?;
    slot.work();
    let asked = Instant::now();
    let turn = turns.acquire_owned().await.ok()?;
    let waited = asked.elapsed();
    let mut accept = std::pin::pin!(tls.accept(stream));
    let done = tokio::select! {
        done = accept.as_mut() => Some(done),
        () = tokio::time::sleep(HANDSHAKE_TURN) => None,
    };
    drop(turn);
    slot.wait();
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
    slot: Arc<ConnectionSlot>,
) {
    let _ = stream.set_nodelay(true);
    let mut shutdown = server.shutdown.clone();
    let deadline = Instant::now() + HEAD_TIMEOUT;
    // On the heap, as the connection itself below: what is needed only for a while would take its room for as long as the
    // connection lasts, and there are thousands.
    let shaken = Box::pin(tokio::time::timeout_at(deadline, async {
        tokio::select! {
            shaken = shake_hands(stream, tls, turns, &slot) => shaken,
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
    let protocol = server.protocols().iter().find(|protocol| asked == Some(protocol.name()));
    let who = (has_certificate || protocol.is_some())
        .then(|| server.identity.authenticate(&peer, &http::HeaderMap::new(), request::ROOT, &*server.cache));
    let user = who.as_ref().and_then(|who| who.as_ref().ok());
    if let (Some(user), Some(limit)) = (user, &server.limits.connections_of)
        && user.is_in(limit.group)
        && !slot.know_user(&user.name, limit.connections)
    {
        return tracing::debug!(%from, user = user.name, "a user has too many connections; this one is closed");
    }
    if user.is_some_and(|user| user.is_in(AUTHENTICATED)) {
        slot.know();
    }
    if let (Some(protocol), Some(who)) = (protocol, who) {
        // What is spoken there sees to itself: whom it does not know it sends away.
        slot.know();
        let speak = protocol.speak(server.clone(), who, stream);
        // A task of its own, as this one has room for all that HTTP needs.
        tasks::spawn_short(protocol.task(), async move {
            speak.await;
            drop(slot);
        });
        return;
    }
    let begun = Arc::new(Begun::default());
    let (max_streams, window, windows) = match slot.is_known() {
        true => (MAX_STREAMS, STREAM_WINDOW, CONNECTION_WINDOW),
        false => (MAX_STREAMS_OF_STRANGERS, STREAM_WINDOW_OF_STRANGERS, CONNECTION_WINDOW_OF_STRANGERS),
    };
    let service = {
        let (server, begun) = (server.clone(), begun.clone());
        service_fn(move |mut request| {
            let (server, peer, slot) = (server.clone(), peer.clone(), slot.clone());
            begun.mark();
            if let Some(audit) = &server.audit {
                audit.begin(&mut request, from);
            }
            let counted = (!slot.is_known()).then(|| slot.request());
            server.handle(request, peer.clone(), slot.clone()).map(move |response| {
                if let Some(counted) = counted {
                    if peer.has_proved() {
                        slot.know_guest();
                    }
                    drop(counted);
                }
                Ok::<_, std::convert::Infallible>(response)
            })
        })
    };
    let executor = InlineExecutor::default();
    let mut http = auto::Builder::new(executor.clone());
    http.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(128 << 10).half_close(false);
    http.http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(max_streams)
        .max_header_list_size(64 << 10)
        .initial_stream_window_size(window)
        .initial_connection_window_size(windows)
        .max_send_buf_size(1 << 20)
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(20));
    let (stream, driver) = write_coalescing::coalesced(stream);
    let mut connection = Box::pin(http.serve_connection_with_upgrades(TokioIo::new(stream), service).into_owned());
    drop(http);
    // On the heap as well: it is over with the first request.
    let first = Box::pin(async {
        tokio::select! {
            biased;
            ended = driver.drive(connection.as_mut(), &executor) => Some(Some(ended)),
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
            ended = driver.drive(connection.as_mut(), &executor) => ended,
            () = stopped(&mut shutdown) => {
                connection.as_mut().graceful_shutdown();
                driver.drive(connection.as_mut(), &executor).await
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
