//! Where the center is and how to get there: name, proxy, TLS.

use std::{sync::Arc, time::Duration};

use http::Uri;
use rustls::{
    ClientConfig,
    pki_types::{CertificateDer, ServerName},
};
use tokio::{
    net::{TcpStream, lookup_host},
    time::timeout,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::{
    PROTOCOL,
    error::Error,
    line::Line,
    proxy::{self, Proxy},
    tls::{self, Identity},
};

/// For each address, and for the handshake.
const CONNECT: Duration = Duration::from_secs(5);
const HANDSHAKE: Duration = Duration::from_secs(10);
/// A connection that nothing is heard of for this long is asked; without an answer it ends. Also keeps the state of firewalls.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// How to reach a center. Keep it: TLS sessions are resumed from one connection to the next.
#[derive(Clone)]
pub struct Dial {
    host: String,
    port: u16,
    /// What the paths of requests begin with, without a slash at the end.
    prefix: String,
    calls: Arc<ClientConfig>,
    sessions: Arc<ClientConfig>,
    proxy: Proxy,
}

impl Dial {
    /// To a center that one of these authorities vouches for, with a certificate if there is one already.
    pub fn new(
        center: &str,
        roots: &[CertificateDer<'static>],
        identity: Option<Identity>,
        proxy: Proxy,
    ) -> Result<Self, Error> {
        Self::over(center, tls::client_config(roots, identity).map_err(Error::Identity)?, proxy)
    }

    /// To whoever answers: only for fetching what is checked against a pin afterwards.
    pub fn unverified(center: &str, proxy: Proxy) -> Result<Self, Error> {
        Self::over(center, tls::observe().map_err(Error::Identity)?, proxy)
    }

    pub fn over(center: &str, tls: ClientConfig, proxy: Proxy) -> Result<Self, Error> {
        let wrong = |why| Error::Url { url: center.to_owned(), why };
        let uri: Uri = center.parse().map_err(|_| wrong("it should look like https://center.example:6443"))?;
        if uri.scheme_str() != Some("https") {
            return Err(wrong("it has to begin with https://"));
        }
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(|| wrong("it names no host"))?;
        // A URL of a workspace is fine: which workspace an edge belongs to is said by its token and its certificate.
        let path = uri.path();
        let prefix = path.find("/clusters/").map_or(path, |at| &path[..at]).trim_end_matches('/');
        Ok(Self {
            host: host.trim_start_matches('[').trim_end_matches(']').to_owned(),
            port: uri.port_u16().unwrap_or(443),
            prefix: prefix.to_owned(),
            sessions: Arc::new(tls::speaking(&tls, PROTOCOL)),
            calls: Arc::new(tls),
            proxy,
        })
    }

    /// Host and port.
    pub fn address(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Opens a session. Whether the center takes it is said on it.
    pub async fn session(&self) -> Result<Line, Error> {
        self.connect(&self.sessions).await.map(Line::over)
    }

    /// A connection for HTTP/2.
    pub(super) async fn call(&self) -> Result<TlsStream<TcpStream>, Error> {
        self.connect(&self.calls).await
    }

    async fn connect(&self, tls: &Arc<ClientConfig>) -> Result<TlsStream<TcpStream>, Error> {
        let address = self.address();
        let stream = match self.proxy.used_for(&self.host, self.port)? {
            Some(through) => {
                let stream = dial(through.host(), through.port()).await.map_err(|error| through.unreachable(&error))?;
                let asked = timeout(HANDSHAKE, proxy::ask(stream, &through, &address)).await;
                asked.unwrap_or_else(|_| Err(through.silent()))?
            }
            None => dial(&self.host, self.port).await?,
        };
        let name = ServerName::try_from(self.host.clone());
        let name = name.map_err(|_| Error::Url { url: self.host.clone(), why: "this is no name of a host" })?;
        let shaken = timeout(HANDSHAKE, TlsConnector::from(tls.clone()).connect(name, stream)).await;
        let slow = |_| Error::Timeout { address: address.clone(), seconds: HANDSHAKE.as_secs() };
        let stream = shaken.map_err(slow)?.map_err(|error| of_handshake(&address, error))?;
        match stream.get_ref().1.alpn_protocol() {
            Some(agreed) if tls.alpn_protocols.iter().any(|asked| asked == agreed) => Ok(stream),
            _ => Err(Error::NotACenter(address)),
        }
    }
}

impl std::fmt::Debug for Dial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dial").field("address", &self.address()).finish_non_exhaustive()
    }
}

/// To the first address of the host that answers.
async fn dial(host: &str, port: u16) -> Result<TcpStream, Error> {
    let address = || if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    let unreachable = |error| Error::Unreachable { address: address(), error };
    let slow = || Error::Timeout { address: address(), seconds: CONNECT.as_secs() };
    let found = timeout(CONNECT, lookup_host((host, port))).await.map_err(|_| slow())?.map_err(unreachable)?;
    let mut last = None;
    for one in found {
        match timeout(CONNECT, TcpStream::connect(one)).await {
            Ok(Ok(stream)) => {
                let _ = stream.set_nodelay(true);
                let keepalive = socket2::TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE / 3);
                let _ = socket2::SockRef::from(&stream).set_tcp_keepalive(&keepalive);
                return Ok(stream);
            }
            Ok(Err(error)) => last = Some(unreachable(error)),
            Err(_) => last = Some(slow()),
        }
    }
    Err(last.unwrap_or_else(|| unreachable(std::io::Error::other("the name has no address"))))
}

fn of_handshake(address: &str, error: std::io::Error) -> Error {
    let address = address.to_owned();
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(tls) => Error::Tls { address, error: tls.clone() },
        None => Error::Unreachable { address, error },
    }
}
