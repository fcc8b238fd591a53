//! Requests from a peer that vouches for its users: the other end of a tunnel, or a proxy in this process.

use std::{sync::Arc, time::Duration};

use futures::FutureExt;
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use identity::Peer;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::watch,
};

use crate::{Server, onward::Lingering};

/// The head of each request must arrive within this time.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

impl Server {
    /// Serves HTTP/1.1 on a byte stream until it ends. The peer has authenticated its users and names
    /// them in X-Remote- headers, as a trusted proxy does. Such headers are believed on no other connection.
    pub async fn serve_trusted<T>(self: Arc<Self>, stream: T)
    where
        T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (peer, mut shutdown) = (Arc::new(Peer::vouching()), self.shutdown.clone());
        // An upgraded stream lives on without HTTP; the connection lasts until it ends.
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
        // There is a header for each group of the user.
        http.max_headers(1000);
        http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(128 << 10).half_close(false);
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
