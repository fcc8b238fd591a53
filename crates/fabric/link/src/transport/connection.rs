//! HTTP/2 from an edge to its center, and what is opened on it.

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

/// The center has this long to answer the opening of a stream.
const ANSWER: Duration = Duration::from_secs(30);
/// What may come before it is read, of one stream and of all. The most that a link takes of an edge's memory when it is slow to read.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;
const SEND_BUFFER: usize = 64 << 10;
const PIECES: usize = 1 << 10;
/// A quiet connection is asked whether it still is one.
const PING: Duration = Duration::from_secs(30);
const PING_ANSWER: Duration = Duration::from_secs(20);
/// A connection that nobody uses stays for so long.
const IDLE: Duration = Duration::from_secs(60);
/// A refusal's words are not longer.
const MAX_REFUSAL: usize = 64 << 10;

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// A way to the center for calls and streams. A connection is there while something is open on it, and for a while after.
#[derive(Clone)]
pub struct Connection(Arc<Shared>);

struct Shared {
    /// Where to; nowhere else than where it was made for.
    dial: Option<Dial>,
    authority: String,
    prefix: String,
    open: Mutex<Option<Open>>,
    end: watch::Sender<bool>,
}

struct Open {
    requests: http2::SendRequest<Body>,
    used: Instant,
}

impl Connection {
    /// Connects when it is first needed.
    pub fn to(dial: &Dial) -> Self {
        Self::new(Some(dial.clone()), dial.address(), dial.prefix(), None)
    }

    /// Connects now.
    pub async fn open(dial: &Dial) -> Result<Self, Error> {
        let connection = Self::to(dial);
        connection.requests().await?;
        Ok(connection)
    }

    /// On something that is connected already.
    pub async fn over<S>(io: S, authority: String, prefix: &str) -> Result<Self, Error>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let connection = Self::new(None, authority, prefix, None);
        let open = Open { requests: connection.shake_hands(io).await?, used: Instant::now() };
        *connection.0.open.lock().await = Some(open);
        Ok(connection)
    }

    fn new(dial: Option<Dial>, authority: String, prefix: &str, open: Option<Open>) -> Self {
        let end = watch::channel(false).0;
        Self(Arc::new(Shared { dial, authority, prefix: prefix.to_owned(), open: Mutex::new(open), end }))
    }

    async fn shake_hands<S>(&self, io: S) -> Result<http2::SendRequest<Body>, Error>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let mut told = self.0.end.subscribe();
        let mut http = http2::Builder::new(Until(told.clone()));
        http.timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_frame_size(None)
            .max_send_buf_size(SEND_BUFFER)
            .max_concurrent_reset_streams(16)
            .keep_alive_interval(PING)
            .keep_alive_timeout(PING_ANSWER)
            .keep_alive_while_idle(true);
        let (requests, connection) = http.handshake(TokioIo::new(io)).await.map_err(|e| Error::Lost(e.into()))?;
        tokio::spawn(async move {
            tokio::select! {
                _ = connection => {}
                // Nobody is left to tell it: it ends by itself, with its last stream.
                Ok(_) = told.wait_for(|end| *end) => {}
            }
        });
        Ok(requests)
    }

    /// The connection that there is, or a new one.
    async fn requests(&self) -> Result<http2::SendRequest<Body>, Error> {
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
        // What begins a connection is written in small pieces, and TLS would seal each by itself.
        let stream = BufWriter::with_capacity(PIECES, dial.call().await?);
        let requests = self.shake_hands(stream).await?;
        *open = Some(Open { requests: requests.clone(), used: Instant::now() });
        tokio::spawn(let_go(Arc::downgrade(&self.0)));
        Ok(requests)
    }

    /// One request, one response, whatever its status. A path alone is enough for an address.
    pub async fn request(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, Error> {
        let (mut parts, body) = request.into_parts();
        if let Some(path) = parts.uri.path_and_query().filter(|_| parts.uri.authority().is_none()) {
            parts.uri = self.uri(path)?;
        }
        self.answer(Request::from_parts(parts, body.boxed_unsync())).await
    }

    /// A stream of bytes to this path. Answers when the center has taken it.
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

    /// Ends it at once, with everything that is open on it.
    pub fn close(&self) {
        self.0.end.send_replace(true);
    }

    async fn answer(&self, request: Request<Body>) -> Result<Response<Incoming>, Error> {
        let late = |_| Error::Timeout { address: self.0.authority.clone(), seconds: ANSWER.as_secs() };
        let sent = async {
            let mut requests = self.requests().await?;
            let sent = async {
                requests.ready().await?;
                requests.send_request(request).await
            };
            sent.await.map_err(|e| Error::Lost(e.into()))
        };
        tokio::time::timeout(ANSWER, sent).await.map_err(late)?
    }

    fn post(&self, path: &str, body: Body) -> Result<Request<Body>, Error> {
        let path = path.parse().map_err(|_| Error::Url { url: path.to_owned(), why: "this is no path" })?;
        let mut request = Request::new(body);
        *request.method_mut() = http::Method::POST;
        *request.uri_mut() = self.uri(&path)?;
        Ok(request)
    }

    fn uri(&self, path: &PathAndQuery) -> Result<Uri, Error> {
        let Shared { authority, prefix, .. } = &*self.0;
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

/// Gives a connection up that nobody has used for a while. What is open on it goes on.
async fn let_go(shared: Weak<Shared>) {
    loop {
        tokio::time::sleep(IDLE).await;
        let Some(shared) = shared.upgrade() else { return };
        let mut open = shared.open.lock().await;
        if open.as_ref().is_none_or(|open| open.used.elapsed() >= IDLE || open.requests.is_closed()) {
            *open = None;
            return;
        }
    }
}

/// Runs what a connection consists of until it is told to end: a stream that nobody reads would keep it otherwise.
#[derive(Clone)]
struct Until(watch::Receiver<bool>);

impl<F> hyper::rt::Executor<F> for Until
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

/// Refusals in the API's words.
async fn taken(response: Response<Incoming>) -> Result<Response<Incoming>, Error> {
    let (status, headers) = (response.status(), response.headers());
    if status.is_success() {
        return Ok(response);
    }
    let retry_after = headers.get(header::RETRY_AFTER).and_then(|v| v.to_str().ok()?.parse().ok());
    let retry_after = retry_after.map(Duration::from_secs);
    let body = http_body_util::Limited::new(response.into_body(), MAX_REFUSAL).collect().await;
    let said = body.map(|body| body.to_bytes()).unwrap_or_default();
    let read = serde_json::from_slice::<serde_json::Value>(&said).ok();
    let message = read.and_then(|status| Some(status.get("message")?.as_str()?.to_owned()));
    let message = message.unwrap_or_else(|| format!("the center answers with {status}"));
    Err(Error::Refused { code: Code(status.as_u16()), message, retry_after })
}
