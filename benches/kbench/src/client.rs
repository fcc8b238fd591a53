//! A thin HTTP client for one Kubernetes API server.
//!
//! One [`Client`] is one TCP connection, opened on first use and reopened
//! after a failure. HTTP/2 is used when the server negotiates it over TLS
//! (as client-go does); otherwise HTTP/1.1. A clone of an open HTTP/2 client
//! shares its connection.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::CipherSuite;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

pub(crate) type Error = Box<dyn std::error::Error + Send + Sync>;
pub(crate) type Result<T> = std::result::Result<T, Error>;

/// Where and how to connect; shared by every client of a run.
pub(crate) struct Target {
    base: String,
    host: String,
    port: u16,
    tls: Option<tokio_rustls::TlsConnector>,
    authorization: Option<HeaderValue>,
}

#[derive(Clone, Default)]
pub(crate) struct TargetOptions {
    pub(crate) url: String,
    pub(crate) token: Option<String>,
    pub(crate) insecure: bool,
    pub(crate) ca: Option<String>,
    pub(crate) cert: Option<String>,
    pub(crate) key: Option<String>,
    pub(crate) http1: bool,
}

impl Target {
    pub(crate) fn new(o: &TargetOptions) -> Result<Arc<Target>> {
        let uri: Uri = o.url.parse()?;
        let https = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err("--url must begin with http:// or https://".into()),
        };
        let host = uri.host().ok_or("--url has no host")?.trim_matches(['[', ']']).to_string();
        let port = uri.port_u16().unwrap_or(if https { 443 } else { 80 });
        let authorization = match &o.token {
            Some(t) => {
                let mut v = HeaderValue::from_str(&format!("Bearer {}", t.trim()))?;
                v.set_sensitive(true);
                Some(v)
            }
            None => None,
        };
        Ok(Arc::new(Target {
            base: o.url.trim_end_matches('/').to_string(),
            host,
            port,
            tls: if https { Some(tls_connector(o)?) } else { None },
            authorization,
        }))
    }
}

fn tls_connector(o: &TargetOptions) -> Result<tokio_rustls::TlsConnector> {
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    // What client-go offers first, and so what all Kubernetes clients speak.
    provider.cipher_suites.sort_by_key(|offered| offered.suite() != CipherSuite::TLS13_AES_128_GCM_SHA256);
    let provider = Arc::new(provider);
    let builder =
        rustls::ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
    let builder = if o.insecure {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(AcceptAny(provider)))
    } else {
        let mut roots = rustls::RootCertStore::empty();
        let ca = o.ca.as_ref().ok_or("https needs --ca FILE or --insecure")?;
        for cert in CertificateDer::pem_file_iter(ca)? {
            roots.add(cert?)?;
        }
        builder.with_root_certificates(roots)
    };
    let mut config = match (&o.cert, &o.key) {
        (Some(cert), Some(key)) => {
            let chain = CertificateDer::pem_file_iter(cert)?.collect::<std::result::Result<_, _>>()?;
            builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_file(key)?)?
        }
        (None, None) => builder.with_no_client_auth(),
        _ => return Err("--cert and --key go together".into()),
    };
    config.alpn_protocols =
        if o.http1 { vec![b"http/1.1".to_vec()] } else { vec![b"h2".to_vec(), b"http/1.1".to_vec()] };
    Ok(Arc::new(config).into())
}

/// Accepts every server certificate (`--insecure`).
#[derive(Debug)]
struct AcceptAny(Arc<rustls::crypto::CryptoProvider>);

impl ServerCertVerifier for AcceptAny {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &rustls::DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &rustls::DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

enum Conn {
    H1(http1::SendRequest<Full<Bytes>>),
    H2(http2::SendRequest<Full<Bytes>>),
}

/// One connection to the target.
pub(crate) struct Client {
    target: Arc<Target>,
    conn: Option<Conn>,
}

impl Clone for Client {
    fn clone(&self) -> Self {
        let conn = match &self.conn {
            Some(Conn::H2(s)) => Some(Conn::H2(s.clone())),
            _ => None,
        };
        Client { target: self.target.clone(), conn }
    }
}

/// A reply whose status was not the one wanted.
#[derive(Debug)]
pub(crate) struct StatusError {
    pub(crate) status: StatusCode,
    pub(crate) body: String,
}

impl fmt::Display for StatusError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.status, self.body.chars().take(300).collect::<String>())
    }
}

impl std::error::Error for StatusError {}

impl Client {
    pub(crate) fn new(target: &Arc<Target>) -> Client {
        Client { target: target.clone(), conn: None }
    }

    /// Opens the connection now, so that the first request does not pay for it.
    pub(crate) async fn connect(&mut self) -> Result<()> {
        let t = &self.target;
        let tcp = TcpStream::connect((t.host.as_str(), t.port)).await?;
        tcp.set_nodelay(true)?;
        self.conn = Some(match &t.tls {
            None => handshake_h1(tcp).await?,
            Some(tls) => {
                let stream = tls.connect(ServerName::try_from(t.host.clone())?, tcp).await?;
                if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
                    handshake_h2(stream).await?
                } else {
                    handshake_h1(stream).await?
                }
            }
        });
        Ok(())
    }

    pub(crate) fn protocol(&self) -> &'static str {
        match self.conn {
            Some(Conn::H1(_)) => "http/1.1",
            Some(Conn::H2(_)) => "h2",
            None => "none",
        }
    }

    /// Sends one request and returns the reply with its body not yet read.
    pub(crate) async fn send(
        &mut self,
        method: Method,
        path: &str,
        accept: &'static str,
        body: Option<(&'static str, Bytes)>,
    ) -> Result<Response<Incoming>> {
        let usable = match &mut self.conn {
            Some(Conn::H1(s)) => s.ready().await.is_ok(),
            Some(Conn::H2(s)) => s.ready().await.is_ok(),
            None => false,
        };
        if !usable {
            self.connect().await?;
        }
        let h2 = matches!(self.conn, Some(Conn::H2(_)));
        let t = &self.target;
        let mut req = Request::builder().method(method).header(header::ACCEPT, accept);
        req = if h2 {
            req.uri(format!("{}{}", t.base, path))
        } else {
            req.uri(path).header(header::HOST, format!("{}:{}", t.host, t.port))
        };
        if let Some(a) = &t.authorization {
            req = req.header(header::AUTHORIZATION, a.clone());
        }
        let payload = match body {
            Some((content_type, b)) => {
                req = req.header(header::CONTENT_TYPE, content_type);
                b
            }
            None => Bytes::new(),
        };
        let req = req.body(Full::new(payload))?;
        let reply = match &mut self.conn {
            Some(Conn::H1(s)) => s.send_request(req).await,
            Some(Conn::H2(s)) => s.send_request(req).await,
            None => return Err("no connection".into()),
        };
        if reply.is_err() {
            self.conn = None;
        }
        Ok(reply?)
    }

    /// Sends one request, reads the whole reply, and fails unless it is 2xx.
    pub(crate) async fn call(
        &mut self,
        method: Method,
        path: &str,
        accept: &'static str,
        body: Option<(&'static str, Bytes)>,
    ) -> Result<Bytes> {
        let reply = self.send(method, path, accept, body).await?;
        let status = reply.status();
        let bytes = reply.into_body().collect().await?.to_bytes();
        if status.is_success() {
            Ok(bytes)
        } else {
            let body = String::from_utf8_lossy(&bytes).into_owned();
            Err(StatusError { status, body }.into())
        }
    }

    /// Sends one GET and reads the reply without keeping it: returns its length.
    pub(crate) async fn drain(&mut self, path: &str, accept: &'static str) -> Result<usize> {
        let reply = self.send(Method::GET, path, accept, None).await?;
        let status = reply.status();
        let mut body = reply.into_body();
        let mut n = 0;
        while let Some(frame) = body.frame().await {
            if let Ok(data) = frame?.into_data() {
                n += data.len();
            }
        }
        if status.is_success() { Ok(n) } else { Err(StatusError { status, body: format!("{n} bytes") }.into()) }
    }
}

async fn handshake_h1<S>(stream: S) -> Result<Conn>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (send, conn) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(async move {
        let _ = conn.await;
    });
    Ok(Conn::H1(send))
}

async fn handshake_h2<S>(stream: S) -> Result<Conn>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (send, conn) = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(4 << 20)
        .initial_connection_window_size(16 << 20)
        .max_frame_size(1 << 20)
        .handshake(TokioIo::new(stream))
        .await?;
    tokio::spawn(async move {
        let _ = conn.await;
    });
    Ok(Conn::H2(send))
}
