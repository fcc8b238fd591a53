//! Answers over HTTP.

use std::io;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::Frame;
use serde_json::Value;
use tokio::sync::mpsc;

pub type Body = UnsyncBoxBody<Bytes, io::Error>;

fn whole(code: StatusCode, kind: &'static str, body: Bytes) -> Response<Body> {
    let mut response = Response::new(Full::new(body).map_err(|never| match never {}).boxed_unsync());
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

pub fn text(code: StatusCode, text: impl Into<String>) -> Response<Body> {
    whole(code, "text/plain; charset=utf-8", text.into().into())
}

pub fn html(text: String) -> Response<Body> {
    whole(StatusCode::OK, "text/html; charset=utf-8", text.into())
}

pub fn metrics(text: String) -> Response<Body> {
    whole(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", text.into())
}

pub fn json(value: &Value) -> Response<Body> {
    whole(StatusCode::OK, "application/json", value.to_string().into())
}

/// Without a body: what follows is another protocol.
pub fn empty(response: Response<()>) -> Response<Body> {
    response.map(|()| Full::default().map_err(|never| match never {}).boxed_unsync())
}

/// As it comes. An error breaks it off, so that nobody takes it for the whole.
pub fn stream(kind: &'static str, pieces: mpsc::Receiver<Result<Bytes, io::Error>>) -> Response<Body> {
    let frames = futures::stream::unfold(pieces, |mut pieces| async move {
        let piece = pieces.recv().await?;
        Some((piece.map(Frame::data), pieces))
    });
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
