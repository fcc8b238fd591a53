//! One GET, for probes and hooks: no connection is kept, no certificate is checked, as a kubelet does.

use std::{
    net::IpAddr,
    sync::{Arc, OnceLock},
    time::Duration,
};

use http_body_util::{BodyExt, Empty};
use hyper::{
    Request, StatusCode, Uri,
    body::Bytes,
    header::{ACCEPT, HOST, HeaderName, HeaderValue, LOCATION, USER_AGENT},
};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::{Container, HTTPGetAction};
use tls::{Client, Trust};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::{
    TlsConnector,
    rustls::{ClientConfig, pki_types::ServerName},
};

use super::probe::port_of;

/// The part of an answer that is read, for the log.
const MAX_BODY_BYTES: usize = 10 * 1024;
const MAX_REDIRECTS: usize = 10;

/// TLS or not, host, port and path of a request.
fn target(
    action: &HTTPGetAction,
    container: &Container,
    address: IpAddr,
) -> Result<(bool, String, u16, String), String> {
    let port = port_of(&action.port, container)?;
    let host = action.host.clone().filter(|host| !host.is_empty());
    let host = host.unwrap_or_else(|| match address {
        IpAddr::V6(address) => format!("[{address}]"),
        IpAddr::V4(address) => address.to_string(),
    });
    let is_tls = action.scheme.as_deref().is_some_and(|scheme| scheme.eq_ignore_ascii_case("https"));
    let mut path = action.path.clone().unwrap_or_else(|| "/".to_owned());
    if !path.starts_with('/') {
        path.insert(0, '/');
    }
    Ok((is_tls, host, port, path))
}

pub fn url(action: &HTTPGetAction, container: &Container, address: IpAddr) -> Result<String, String> {
    let (is_tls, host, port, path) = target(action, container, address)?;
    Ok(format!("{}://{host}:{port}{path}", if is_tls { "https" } else { "http" }))
}

/// Asks, and says what is wrong if the answer is not a success.
pub async fn get(action: &HTTPGetAction, container: &Container, address: IpAddr, agent: &str) -> Result<(), String> {
    let (is_tls, host, port, mut path) = target(action, container, address)?;
    for _ in 0..MAX_REDIRECTS {
        let (status, location, text) = one(action, &host, port, is_tls, &path, agent).await?;
        let onward = location.filter(|_| status.is_redirection()).and_then(|to| same_host(&to, &host, port));
        match onward {
            Some(next) => path = next,
            None if status.is_success() || status.is_redirection() => return Ok(()),
            None => {
                tracing::trace!(text, "a probe's answer");
                return Err(format!("HTTP probe failed with statuscode: {}", status.as_u16()));
            }
        }
    }
    Err(format!("stopped after {MAX_REDIRECTS} redirects"))
}

/// Where a redirect leads, if it stays where it was asked. Another host's answer says nothing of this container.
fn same_host(location: &str, host: &str, port: u16) -> Option<String> {
    let uri: Uri = location.parse().ok()?;
    let is_same = uri.host().is_none_or(|other| other == host && uri.port_u16().is_none_or(|other| other == port));
    is_same.then(|| uri.path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string))
}

type Answer = (StatusCode, Option<String>, String);

async fn one(
    action: &HTTPGetAction,
    host: &str,
    port: u16,
    is_tls: bool,
    path: &str,
    agent: &str,
) -> Result<Answer, String> {
    let name = host.trim_start_matches('[').trim_end_matches(']');
    let failed =
        |why: String| format!("Get \"{}://{host}:{port}{path}\": {why}", if is_tls { "https" } else { "http" });
    let stream = TcpStream::connect((name, port)).await.map_err(|error| failed(refused(host, port, &error)))?;
    let mut request =
        Request::builder().uri(path).body(Empty::<Bytes>::new()).map_err(|error| failed(error.to_string()))?;
    let headers = request.headers_mut();
    let fixed = [(USER_AGENT, agent.to_owned()), (HOST, format!("{host}:{port}")), (ACCEPT, "*/*".to_owned())];
    let own = action.http_headers.iter().flatten();
    let own = own.filter_map(|header| Some((HeaderName::try_from(&header.name).ok()?, header.value.clone())));
    for (name, value) in fixed.into_iter().chain(own) {
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(name, value);
        }
    }
    if is_tls {
        let server = ServerName::try_from(name.to_owned()).map_err(|error| failed(error.to_string()))?;
        let config = tls_config().map_err(|error| failed(error.to_string()))?;
        let stream =
            TlsConnector::from(config).connect(server, stream).await.map_err(|error| failed(error.to_string()))?;
        send(stream, request).await.map_err(failed)
    } else {
        send(stream, request).await.map_err(failed)
    }
}

async fn send<S>(stream: S, request: Request<Empty<Bytes>>) -> Result<Answer, String>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    let asking = async {
        let answer = sender.send_request(request).await.map_err(|error| error.to_string())?;
        let status = answer.status();
        let location = answer.headers().get(LOCATION).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let mut body = answer.into_body();
        let mut text = Vec::new();
        while let Some(Ok(frame)) = body.frame().await {
            text.extend(frame.data_ref().into_iter().flatten());
            if text.len() >= MAX_BODY_BYTES {
                break;
            }
        }
        text.truncate(MAX_BODY_BYTES);
        Ok((status, location, String::from_utf8_lossy(&text).into_owned()))
    };
    tokio::pin!(asking);
    tokio::select! {
        answer = &mut asking => answer,
        // The connection may be over before the answer is looked at.
        _ = connection => tokio::time::timeout(Duration::from_secs(1), asking).await.unwrap_or_else(|_| Err("EOF".to_owned())),
    }
}

pub fn refused(host: &str, port: u16, error: &std::io::Error) -> String {
    let why = match error.kind() {
        std::io::ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
        _ => error.to_string(),
    };
    format!("dial tcp {host}:{port}: {why}")
}

/// A probe asks whether a server answers, not which one: no certificate is checked. The signature of the handshake is,
/// so the server has the key of the certificate that it shows.
fn tls_config() -> Result<Arc<ClientConfig>, tls::Error> {
    static CONFIG: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    if let Some(config) = CONFIG.get() {
        return Ok(config.clone());
    }
    let config = Arc::new(Client::new(Trust::Anyone).build()?);
    Ok(CONFIG.get_or_init(|| config).clone())
}
