//! The center's end: streams that come in on the API's port.

use std::{convert::Infallible, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, header};
use http_body_util::{BodyExt, Empty, combinators::UnsyncBoxBody};

use super::{
    BoxError, GRPC,
    line::{Line, LineSender},
    pipe::Pipe,
    stream::Stream,
};

pub type ResponseBody = UnsyncBoxBody<Bytes, Infallible>;

/// Takes a session: the response to give, and the line that it carries. What is no gRPC is answered with the `Err`.
pub fn accept<B>(request: Request<B>) -> Result<(Response<ResponseBody>, Line), Response<ResponseBody>>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let (parts, body) = request.into_parts();
    let kind = parts.headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    if parts.method != Method::POST || !kind.starts_with(GRPC) {
        return Err(refuse(12, "the link takes POST requests of application/grpc"));
    }
    if !matches!(header_text(&parts.headers, "grpc-encoding"), "" | "identity" | "gzip") {
        return Err(refuse(12, "messages may be compressed with gzip only"));
    }
    let pipe = Arc::new(Pipe::default());
    let mut response = Response::new(pipe.body(true).boxed_unsync());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(GRPC));
    say_compression(headers);
    let sender = LineSender::new(pipe, speaks_gzip(&parts.headers));
    Ok((response, Line::new(sender, body.map_err(Into::into).boxed_unsync())))
}

/// Takes a stream of bytes.
pub fn accept_stream<B>(request: Request<B>) -> (Response<ResponseBody>, Stream)
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let pipe = Arc::new(Pipe::default());
    let response = Response::new(pipe.body(false).boxed_unsync());
    (response, Stream::new(pipe, request.into_body().map_err(Into::into).boxed_unsync()))
}

/// A refusal in gRPC's own way: all in the headers. The code is gRPC's.
pub fn refuse(code: u32, message: &str) -> Response<ResponseBody> {
    let mut response = Response::new(Empty::new().boxed_unsync());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(GRPC));
    headers.insert("grpc-status", code.into());
    let message: String = message.chars().filter(|c| (' '..='~').contains(c)).collect();
    if let Ok(message) = message.parse() {
        headers.insert("grpc-message", message);
    }
    response
}

pub(super) fn say_compression(headers: &mut HeaderMap) {
    headers.insert("grpc-encoding", HeaderValue::from_static("gzip"));
}

/// Who compresses can read what is compressed; saying it twice would be said again at every reconnect.
pub(super) fn speaks_gzip(headers: &HeaderMap) -> bool {
    header_text(headers, "grpc-encoding") == "gzip"
        || header_text(headers, "grpc-accept-encoding").split(',').any(|one| one.trim() == "gzip")
}

fn header_text<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default()
}
