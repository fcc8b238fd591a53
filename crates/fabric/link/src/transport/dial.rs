//! Connecting to the center: host name, proxy, TLS.

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

/// Timeout of the TCP connection to one address, and of looking the host up.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Idle time before TCP keepalive probes. They find dead peers and keep the state of firewalls.
const KEEPALIVE_TIME: Duration = Duration::from_secs(30);

/// The way to a center. It is kept between connections, so that TLS sessions are resumed.
#[derive(Clone)]
pub struct Dial {
    host: String,
    port: u16,
    /// Prefix of request paths, without a slash at the end.
    prefix: String,
    calls: Arc<ClientConfig>,
    sessions: Arc<ClientConfig>,
    proxy: Proxy,
}

impl Dial {
    /// Trusts centers that these authorities signed, and shows a client certificate if there is one.
    pub fn new(
        center: &str,
        roots: &[CertificateDer<'static>],
        identity: Option<Identity>,
        proxy: Proxy,
    ) -> Result<Self, Error> {
        Self::over(center, tls::client_config(roots, identity).map_err(Error::Identity)?, proxy)
    }

    /// Trusts any center: only for data that is checked against a pin afterwards.
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
        // The URL may name a workspace. The edge's workspace is in its token and certificate.
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

    /// Opens a session. A refusal arrives as its first message.
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
                let asked = timeout(HANDSHAKE_TIMEOUT, proxy::ask(stream, &through, &address)).await;
                asked.unwrap_or_else(|_| Err(through.silent()))?
            }
            None => dial(&self.host, self.port).await?,
        };
        let name = ServerName::try_from(self.host.clone());
        let name = name.map_err(|_| Error::Url { url: self.host.clone(), why: "this is no name of a host" })?;
        let shaken = timeout(HANDSHAKE_TIMEOUT, TlsConnector::from(tls.clone()).connect(name, stream)).await;
        let slow = |_| Error::Timeout { address: address.clone(), seconds: HANDSHAKE_TIMEOUT.as_secs() };
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

/// Connects to the first address of the host that answers.
async fn dial(host: &str, port: u16) -> Result<TcpStream, Error> {
    let address = || if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    let unreachable = |error| Error::Unreachable { address: address(), error };
    let slow = || Error::Timeout { address: address(), seconds: CONNECT_TIMEOUT.as_secs() };
    let found = timeout(CONNECT_TIMEOUT, lookup_host((host, port))).await.map_err(|_| slow())?.map_err(unreachable)?;
    let mut last = None;
    for one in found {
        match timeout(CONNECT_TIMEOUT, TcpStream::connect(one)).await {
            Ok(Ok(stream)) => {
                let _ = stream.set_nodelay(true);
                let keepalive =
                    socket2::TcpKeepalive::new().with_time(KEEPALIVE_TIME).with_interval(KEEPALIVE_TIME / 3);
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
