//! One request over one byte stream, and its answer back: a body as it comes, or an upgraded connection whose bytes are copied
//! both ways until one end has had enough or this server stops.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use flow::body::{Body, BoxError};
use flow::extensions::{LongRunning, Upgraded};
use futures::future::BoxFuture;
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body::{Frame, SizeHint};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::{body::Incoming, client::conn::http1, upgrade::OnUpgrade};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use super::linger;
use crate::mount::AnyBody;

const GONE: &str = "the other end is gone, or the server is shutting down";

/// Whether the headers ask for another protocol.
pub fn is_upgrade(headers: &HeaderMap) -> bool {
    let tokens = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    headers.contains_key(header::UPGRADE)
        && tokens.flat_map(|value| value.split(',')).any(|token| token.trim().eq_ignore_ascii_case("upgrade"))
}

/// No body.
pub fn nothing() -> AnyBody {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// The first part of a body: as much as anybody reads of a refusal.
pub async fn beginning(body: Body) -> String {
    match Limited::new(body, 50_000).collect().await {
        Ok(whole) => String::from_utf8_lossy(&whole.to_bytes()).into_owned(),
        Err(error) => error.to_string(),
    }
}

/// Sends a request and passes on what is answered. An upgrade of the connection that the request came by, if it asks for one,
/// is in its extensions. When `stop` has come, everything ends.
pub async fn pass<T>(
    io: T,
    mut request: Request<AnyBody>,
    mut stop: BoxFuture<'static, ()>,
) -> Result<Response<Body>, BoxError>
where
    T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let client = request.extensions_mut().remove::<OnUpgrade>();
    let (mut sender, connection) = http1::handshake(TokioIo::new(io)).await?;
    // Ends with whoever waits for the answer, or reads it.
    let connection = Running(tokio::spawn(connection.with_upgrades()).abort_handle());
    let mut response = tokio::select! {
        response = sender.send_request(request) => response?,
        () = &mut stop => return Err(GONE.into()),
    };
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let upgraded = Upgraded::default();
        if let Some(client) = client {
            let server = hyper::upgrade::on(&mut response);
            tokio::spawn(copy(client, server, connection, stop, upgraded.clone()));
        }
        let mut response = response.map(|_| Body::empty());
        response.extensions_mut().insert(upgraded);
        return Ok(response);
    }
    Ok(relay(response, stop, Some(connection)))
}

/// An answer as it is passed on: without what concerns the connection that it came by.
pub fn relay(
    response: Response<Incoming>,
    stop: BoxFuture<'static, ()>,
    connection: Option<Running>,
) -> Response<Body> {
    let (mut parts, body) = response.into_parts();
    super::strip(&mut parts.headers, |name| *name == header::CONNECTION || *name == header::UPGRADE);
    parts.extensions.clear();
    parts.extensions.insert(LongRunning);
    parts.version = http::Version::HTTP_11;
    let body = Passing { body, stop, _connection: connection };
    Response::from_parts(parts, Body::Passed(body.boxed_unsync()))
}

/// A connection that is served for as long as this is held.
pub struct Running(tokio::task::AbortHandle);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A body that ends with an error when this server stops: its reader must not take that for the whole.
struct Passing {
    body: Incoming,
    stop: BoxFuture<'static, ()>,
    _connection: Option<Running>,
}

impl http_body::Body for Passing {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = self.get_mut();
        if this.stop.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Some(Err(GONE.into())));
        }
        Pin::new(&mut this.body).poll_frame(cx).map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Copies until there is no more, and says so. From an end that does not listen any more it is read on: a connection that is dropped
/// while something is unread is reset, and takes with it what was sent the other way.
async fn one_way(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) -> io::Result<u64> {
    let copied = tokio::io::copy(&mut from, &mut to).await;
    let _ = to.shutdown().await;
    if copied.is_err() {
        let _ = tokio::io::copy(&mut from, &mut tokio::io::sink()).await;
    }
    copied
}

async fn copy(client: OnUpgrade, server: OnUpgrade, connection: Running, stop: BoxFuture<'static, ()>, kept: Upgraded) {
    let copied = async {
        let (client, server) = tokio::try_join!(client, server).map_err(io::Error::other)?;
        let (from_client, to_client) = tokio::io::split(TokioIo::new(client));
        let (from_server, to_server) = tokio::io::split(TokioIo::new(server));
        let mut up = std::pin::pin!(one_way(from_client, to_server));
        let mut down = std::pin::pin!(one_way(from_server, to_client));
        // Whoever leaves first ends it for both, but what was said before is still heard.
        tokio::select! {
            copied = &mut up => tokio::time::timeout(linger::PATIENCE, down).await.unwrap_or(Ok(0)).and(copied),
            copied = &mut down => tokio::time::timeout(linger::PATIENCE, up).await.unwrap_or(Ok(0)).and(copied),
            () = stop => Ok(0),
        }
    };
    if let Err(error) = copied.await {
        tracing::debug!(%error, "an upgraded connection ended early");
    }
    drop((connection, kept));
}
