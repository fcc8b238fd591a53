//! Connections to one webhook: resolved anew each time, then TLS.

use std::{
    future::Future,
    io::{self, IoSlice},
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll},
};

use cache::Cache;
use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::{
    client::legacy::connect::{Connected, Connection},
    rt::TokioIo,
};
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::{address::Address, reach::Reach, trust};

#[derive(Clone)]
pub struct Connector(Arc<Inner>);

struct Inner {
    address: Address,
    /// Weak, as what the cache tells of its changes is what holds connectors.
    cache: Weak<Cache>,
    tls: TlsConnector,
    name: ServerName<'static>,
    /// What may be connected to. Nothing: whatever is named.
    reach: Option<Arc<Reach>>,
}

impl Connector {
    pub fn new(
        address: Address,
        tls: Arc<ClientConfig>,
        cache: &Arc<Cache>,
        reach: Option<Arc<Reach>>,
    ) -> Result<Self, String> {
        let name = address.server_name();
        let name = ServerName::try_from(name.clone()).map_err(|_| format!("{name:?} is no name of a server"))?;
        let tls = TlsConnector::from(tls);
        Ok(Self(Arc::new(Inner { address, cache: Arc::downgrade(cache), tls, name, reach })))
    }
}

impl Connector {
    /// A connection that no pool has.
    pub async fn dial(&self) -> io::Result<TlsStream<TcpStream>> {
        self.0.connect().await
    }
}

impl Inner {
    async fn connect(&self) -> io::Result<TlsStream<TcpStream>> {
        let cache = self.cache.upgrade().ok_or_else(|| io::Error::other("the server is shutting down"))?;
        let socket = self.address.resolve(&cache, self.reach.as_deref()).await?;
        let tcp = TcpStream::connect(socket).await.map_err(|error| {
            let why = match error.kind() {
                io::ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
                _ => error.to_string(),
            };
            io::Error::other(format!("dial tcp {socket}: {why}"))
        })?;
        let _ = tcp.set_nodelay(true);
        self.tls.connect(self.name.clone(), tcp).await.map_err(|error| {
            let known = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
            match known.map(|known| trust::describe(known, &self.name.to_str())) {
                Some(text) => io::Error::other(text),
                None => error,
            }
        })
    }
}

impl tower_service::Service<Uri> for Connector {
    type Response = Stream;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Stream>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let inner = self.0.clone();
        Box::pin(async move { Ok(Stream(TokioIo::new(inner.connect().await?))) })
    }
}

/// A TLS connection that says which HTTP it speaks.
pub struct Stream(TokioIo<TlsStream<TcpStream>>);

impl Connection for Stream {
    fn connected(&self) -> Connected {
        match self.0.inner().get_ref().1.alpn_protocol() {
            Some(b"h2") => Connected::new().negotiated_h2(),
            _ => Connected::new(),
        }
    }
}

impl Read for Stream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl Write for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(cx, bufs)
    }
}
