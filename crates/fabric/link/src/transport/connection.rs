//! HTTP/2 from an edge to its center: calls and streams.

use std::{
    convert::Infallible,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, Uri, header, uri::PathAndQuery};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use hyper::{body::Incoming, client::conn::http2};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite, BufWriter},
    sync::{Mutex, watch},
};

use super::{
    AnyBody,
    dial::Dial,
    error::{Code, Error},
    pipe::Pipe,
    stream::Stream,
};

/// Limit of the time until the center answers a request or the opening of a stream.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
/// Flow-control windows of one stream and of the connection. They bound the memory of an edge that is slow to read.
const STREAM_WINDOW_BYTES: u32 = 256 << 10;
const CONNECTION_WINDOW_BYTES: u32 = 1 << 20;
const SEND_BUFFER_BYTES: usize = 64 << 10;
/// Buffer that joins the small writes of the HTTP/2 handshake.
const HANDSHAKE_BUFFER_BYTES: usize = 1 << 10;
/// Interval and timeout of HTTP/2 pings on an idle connection.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// A connection without requests is closed after this time.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Limit of the body of a refusal.
const MAX_REFUSAL_BYTES: usize = 64 << 10;

type RequestBody = UnsyncBoxBody<Bytes, Infallible>;

/// Calls and streams to the center. The TCP connection exists while something is open on it and until `IDLE_TIMEOUT`
/// after that.
#[derive(Clone)]
pub struct Connection(Arc<ConnectionShared>);

struct ConnectionShared {
    /// The way to connect again; `None` for a connection over a given stream.
    dial: Option<Dial>,
    authority: String,
    prefix: String,
    open: Mutex<Option<OpenConnection>>,
    end: watch::Sender<bool>,
}

struct OpenConnection {
    requests: http2::SendRequest<RequestBody>,
    used: Instant,
}

impl Connection {
    /// Connects at the first request.
    pub fn to(dial: &Dial) -> Self {
        Self::new(Some(dial.clone()), dial.address(), dial.prefix(), None)
    }

    /// Connects now.
    pub async fn open(dial: &Dial) -> Result<Self, Error> {
        let connection = Self::to(dial);
        connection.requests().await?;
        Ok(connection)
    }

    /// Uses a stream that is connected already.
    pub async fn over<S>(io: S, authority: String, prefix: &str) -> Result<Self, Error>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let connection = Self::new(None, authority, prefix, None);
        let open = OpenConnection { requests: connection.shake_hands(io).await?, used: Instant::now() };
        *connection.0.open.lock().await = Some(open);
        Ok(connection)
    }

    fn new(dial: Option<Dial>, authority: String, prefix: &str, open: Option<OpenConnection>) -> Self {
        let end = watch::channel(false).0;
        Self(Arc::new(ConnectionShared { dial, authority, prefix: prefix.to_owned(), open: Mutex::new(open), end }))
    }

    async fn shake_hands<S>(&self, io: S) -> Result<http2::SendRequest<RequestBody>, Error>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let mut told = self.0.end.subscribe();
        let mut http = http2::Builder::new(UntilClosed(told.clone()));
        http.timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_frame_size(None)
            .max_send_buf_size(SEND_BUFFER_BYTES)
            .max_concurrent_reset_streams(16)
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT)
            .keep_alive_while_idle(true);
        let (requests, connection) = http.handshake(TokioIo::new(io)).await.map_err(|e| Error::Lost(e.into()))?;
        tokio::spawn(async move {
            tokio::select! {
                _ = connection => {}
                // Without a sender the connection ends by itself, with its last stream.
                Ok(_) = told.wait_for(|end| *end) => {}
            }
        });
        Ok(requests)
    }

    /// The open connection, or a new one.
    async fn requests(&self) -> Result<http2::SendRequest<RequestBody>, Error> {
        let closed = || Error::Lost("the connection was closed".into());
        if self.is_closed() {
            return Err(closed());
        }
        let mut open = self.0.open.lock().await;
        if let Some(open) = open.as_mut().filter(|open| !open.requests.is_closed()) {
            open.used = Instant::now();
            return Ok(open.requests.clone());
        }
        let dial = self.0.dial.as_ref().ok_or_else(closed)?;
        // HTTP/2 begins with several small writes, and TLS would seal each of them separately.
        let stream = BufWriter::with_capacity(HANDSHAKE_BUFFER_BYTES, dial.call().await?);
        let requests = self.shake_hands(stream).await?;
        *open = Some(OpenConnection { requests: requests.clone(), used: Instant::now() });
        tokio::spawn(let_go(Arc::downgrade(&self.0)));
        Ok(requests)
    }

    /// Sends a request and returns the response with any status. The URI may be a path only.
    pub async fn request(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, Error> {
        let (mut parts, body) = request.into_parts();
        if let Some(path) = parts.uri.path_and_query().filter(|_| parts.uri.authority().is_none()) {
            parts.uri = self.uri(path)?;
        }
        self.answer(Request::from_parts(parts, body.boxed_unsync())).await
    }

    /// Opens a byte stream to this path. Returns when the center has accepted it.
    pub async fn stream(&self, path: &str, headers: HeaderMap) -> Result<Stream, Error> {
        let pipe = Arc::new(Pipe::default());
        let mut request = self.post(path, pipe.body().boxed_unsync())?;
        request.headers_mut().extend(headers);
        let response = taken(self.answer(request).await?).await?;
        Ok(Stream::new(pipe, any(response.into_body())))
    }

    pub fn is_closed(&self) -> bool {
        *self.0.end.borrow()
    }

    /// Closes the connection at once, with everything that is open on it.
    pub fn close(&self) {
        self.0.end.send_replace(true);
    }

    async fn answer(&self, request: Request<RequestBody>) -> Result<Response<Incoming>, Error> {
        let late = |_| Error::Timeout { address: self.0.authority.clone(), seconds: RESPONSE_TIMEOUT.as_secs() };
        let sent = async {
            let mut requests = self.requests().await?;
            let sent = async {
                requests.ready().await?;
                requests.send_request(request).await
            };
            sent.await.map_err(|e| Error::Lost(e.into()))
        };
        tokio::time::timeout(RESPONSE_TIMEOUT, sent).await.map_err(late)?
    }

    fn post(&self, path: &str, body: RequestBody) -> Result<Request<RequestBody>, Error> {
        let path = path.parse().map_err(|_| Error::Url { url: path.to_owned(), why: "this is no path" })?;
        let mut request = Request::new(body);
        *request.method_mut() = http::Method::POST;
        *request.uri_mut() = self.uri(&path)?;
        Ok(request)
    }

    fn uri(&self, path: &PathAndQuery) -> Result<Uri, Error> {
        let ConnectionShared { authority, prefix, .. } = &*self.0;
        let built =
            Uri::builder().scheme("https").authority(authority.as_str()).path_and_query(format!("{prefix}{path}"));
        built
            .build()
            .map_err(|_| Error::Url { url: format!("{authority}{prefix}{path}"), why: "it cannot be put together" })
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("to", &self.0.authority).finish_non_exhaustive()
    }
}

/// Gives up a connection without requests for `IDLE_TIMEOUT`. Open streams continue.
async fn let_go(shared: Weak<ConnectionShared>) {
    loop {
        tokio::time::sleep(IDLE_TIMEOUT).await;
        let Some(shared) = shared.upgrade() else { return };
        let mut open = shared.open.lock().await;
        if open.as_ref().is_none_or(|open| open.used.elapsed() >= IDLE_TIMEOUT || open.requests.is_closed()) {
            *open = None;
            return;
        }
    }
}

/// Runs the tasks of a connection until it is closed. Otherwise a stream without a reader would keep them alive.
#[derive(Clone)]
struct UntilClosed(watch::Receiver<bool>);

impl<F> hyper::rt::Executor<F> for UntilClosed
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, part: F) {
        let mut told = self.0.clone();
        tokio::spawn(async move {
            tokio::select! {
                _ = part => {}
                Ok(_) = told.wait_for(|end| *end) => {}
            }
        });
    }
}

fn any(body: Incoming) -> AnyBody {
    body.map_err(Into::into).boxed_unsync()
}

/// Turns an error status into a refusal with the message of the API.
async fn taken(response: Response<Incoming>) -> Result<Response<Incoming>, Error> {
    let (status, headers) = (response.status(), response.headers());
    if status.is_success() {
        return Ok(response);
    }
    let retry_after = headers.get(header::RETRY_AFTER).and_then(|v| v.to_str().ok()?.parse().ok());
    let retry_after = retry_after.map(Duration::from_secs);
    let body = http_body_util::Limited::new(response.into_body(), MAX_REFUSAL_BYTES).collect().await;
    let said = body.map(|body| body.to_bytes()).unwrap_or_default();
    let read = serde_json::from_slice::<serde_json::Value>(&said).ok();
    let message = read.and_then(|status| Some(status.get("message")?.as_str()?.to_owned()));
    let message = message.unwrap_or_else(|| format!("the center answers with {status}"));
    Err(Error::Refused { code: Code(status.as_u16()), message, retry_after })
}
