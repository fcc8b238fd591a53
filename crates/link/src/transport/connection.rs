//! One HTTP/2 connection from an edge to its center, and what is opened on it.

use std::{convert::Infallible, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, Uri, header, uri::PathAndQuery};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use hyper::{body::Incoming, client::conn::http2};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite, BufWriter},
    sync::watch,
};

use super::{
    AnyBody, GRPC,
    accept::{say_compression, speaks_gzip},
    dial::Dial,
    error::{Code, Error},
    line::{Line, LineSender},
    paths,
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
/// A refusal's words are not longer.
const MAX_REFUSAL: usize = 64 << 10;

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// The connection lives while somebody holds it, or something that was opened on it.
#[derive(Clone)]
pub struct Connection {
    requests: http2::SendRequest<Body>,
    base: Arc<Base>,
    ended: watch::Receiver<bool>,
    end: Arc<watch::Sender<bool>>,
}

struct Base {
    authority: String,
    prefix: String,
}

impl Connection {
    pub async fn open(dial: &Dial) -> Result<Self, Error> {
        // What begins a connection is written in small pieces, and TLS would seal each by itself.
        let stream = BufWriter::with_capacity(PIECES, dial.connect().await?);
        Self::over(stream, dial.address(), dial.prefix()).await
    }

    /// On something that is connected already.
    pub async fn over<S>(io: S, authority: String, prefix: &str) -> Result<Self, Error>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (end, mut told) = watch::channel(false);
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
        let (has_ended, ended) = watch::channel(false);
        tokio::spawn(async move {
            tokio::select! {
                _ = connection => {}
                // Nobody is left to tell it: it ends by itself, with its last stream.
                Ok(_) = told.wait_for(|end| *end) => {}
            }
            has_ended.send_replace(true);
        });
        let base = Arc::new(Base { authority, prefix: prefix.to_owned() });
        Ok(Self { requests, base, ended, end: Arc::new(end) })
    }

    /// Opens the session. Answers when the center has taken it.
    pub async fn session(&self) -> Result<Line, Error> {
        let pipe = Arc::new(Pipe::default());
        let mut request = self.post(paths::SESSION, pipe.body(false).boxed_unsync())?;
        let headers = request.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(GRPC));
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
        say_compression(headers);
        let sender = LineSender::new(pipe, false);
        let response = taken(self.answer(request).await?).await?;
        sender.compress(speaks_gzip(response.headers()));
        Ok(Line::new(sender, any(response.into_body())))
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
        let mut request = self.post(path, pipe.body(false).boxed_unsync())?;
        request.headers_mut().extend(headers);
        let response = taken(self.answer(request).await?).await?;
        Ok(Stream::new(pipe, any(response.into_body())))
    }

    /// Waits until the connection has ended, however.
    pub async fn closed(&self) {
        let mut ended = self.ended.clone();
        // An error means that its task is gone.
        let _ = ended.wait_for(|ended| *ended).await;
    }

    pub fn is_closed(&self) -> bool {
        *self.ended.borrow() || self.requests.is_closed()
    }

    /// Ends it at once, with everything that is open on it.
    pub fn close(&self) {
        self.end.send_replace(true);
    }

    async fn answer(&self, request: Request<Body>) -> Result<Response<Incoming>, Error> {
        let mut requests = self.requests.clone();
        let late = |_| Error::Timeout { address: self.base.authority.clone(), seconds: ANSWER.as_secs() };
        let sent = async {
            requests.ready().await?;
            requests.send_request(request).await
        };
        tokio::time::timeout(ANSWER, sent).await.map_err(late)?.map_err(|e| Error::Lost(e.into()))
    }

    fn post(&self, path: &str, body: Body) -> Result<Request<Body>, Error> {
        let path = path.parse().map_err(|_| Error::Url { url: path.to_owned(), why: "this is no path" })?;
        let mut request = Request::new(body);
        *request.method_mut() = http::Method::POST;
        *request.uri_mut() = self.uri(&path)?;
        Ok(request)
    }

    fn uri(&self, path: &PathAndQuery) -> Result<Uri, Error> {
        let Base { authority, prefix } = &*self.base;
        let built =
            Uri::builder().scheme("https").authority(authority.as_str()).path_and_query(format!("{prefix}{path}"));
        built
            .build()
            .map_err(|_| Error::Url { url: format!("{authority}{prefix}{path}"), why: "it cannot be put together" })
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("to", &self.base.authority).finish_non_exhaustive()
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

/// Refusals in words, whether they are gRPC's or the API's.
async fn taken(response: Response<Incoming>) -> Result<Response<Incoming>, Error> {
    let (status, headers) = (response.status(), response.headers());
    let text = |name: &str| headers.get(name).and_then(|v| v.to_str().ok()).map(str::to_owned);
    let grpc = text("grpc-status").and_then(|code| code.parse::<u32>().ok()).filter(|code| *code != 0);
    let retry_after = text("retry-after").and_then(|s| s.parse().ok()).map(Duration::from_secs);
    match (status.as_u16(), grpc) {
        (200..=299, None) => Ok(response),
        (200..=299, Some(code)) => {
            let message = text("grpc-message").unwrap_or_else(|| "the center refuses, without a reason".to_owned());
            Err(Error::Refused { code: Code::of_grpc(code), message, retry_after })
        }
        (code, _) => {
            let body = http_body_util::Limited::new(response.into_body(), MAX_REFUSAL).collect().await;
            let said = body.map(|body| body.to_bytes()).unwrap_or_default();
            let read = serde_json::from_slice::<serde_json::Value>(&said).ok();
            let message = read.and_then(|status| Some(status.get("message")?.as_str()?.to_owned()));
            let message = message.unwrap_or_else(|| format!("the center answers with {status}"));
            Err(Error::Refused { code: Code(code), message, retry_after })
        }
    }
}
