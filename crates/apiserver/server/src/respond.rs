//! From a verb's reply to an HTTP response.

use std::sync::Arc;

use flow::body::Body;
use http::{
    HeaderValue, Response,
    header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WARNING},
};
use schema::status::{Result, Status};

use crate::{
    call::Call,
    kinds::Kind,
    negotiate::{Accept, Format, Shape},
    render,
    reply::Reply,
    subresources::scale,
    workspaces::wildcard,
};

pub async fn reply(call: &Call, reply: Reply) -> Response<Body> {
    let response = match make(&call.kind, call.accept, call, reply).await {
        Ok(response) => response,
        // What cannot be given the shape that was asked for is told in JSON.
        Err(status) => failure(&status, Format::Json),
    };
    prettily(call, with_warnings(call, response))
}

/// The client wants JSON over several lines, which has to be read and written again.
pub fn is_pretty(call: &Call) -> bool {
    let agent = call.header("user-agent");
    let wanted = match call.query.get("pretty") {
        "" => ["curl", "Wget", "Mozilla/5.0"].iter().any(|a| agent.starts_with(a)),
        value => matches!(value, "1" | "t" | "T" | "true" | "TRUE" | "True"),
    };
    wanted && call.accept.format == Format::Json
}

/// People read JSON better over several lines: those who ask for it, and those whose client shows that they are people.
fn prettily(call: &Call, response: Response<Body>) -> Response<Body> {
    if !is_pretty(call) {
        return response;
    }
    response.map(|body| match body {
        Body::Full(Some(json)) => render::pretty(&json).into(),
        other => other,
    })
}

async fn make(kind: &Arc<Kind>, accept: Accept, call: &Call, reply: Reply) -> Result<Response<Body>> {
    let content_type = accept.format.content_type();
    match reply {
        Reply::Object { code, object } => {
            let object = if call.view.is_some() { wildcard::annotated(&object) } else { object };
            let body = render::object(kind, accept, render::include_object(accept, &call.query)?, &object)?;
            Ok(build(code, content_type, body.into()))
        }
        Reply::Value { code, value } => {
            let value = match accept.shape {
                Shape::Table if value["kind"] == "Scale" => {
                    scale::table(&value, render::include_object(accept, &call.query)?, clock::unix())
                }
                Shape::Partial if value["kind"] != "Status" => render::partial_of(&value),
                Shape::PartialList if value["kind"] != "Status" => return Err(render::no_list(kind)),
                _ => value,
            };
            Ok(build(code, content_type, render::value(&value, accept.format)?.into()))
        }
        Reply::List(list) => {
            let body = render::list(kind, accept, render::include_object(accept, &call.query)?, list).await?;
            Ok(build(200, content_type, body))
        }
        Reply::Watch(stream) => {
            let content_type = match (accept.format, accept.shape) {
                (Format::Protobuf, _) => "application/vnd.kubernetes.protobuf;stream=watch",
                (_, Shape::Object | Shape::Table | Shape::Partial | Shape::PartialList) => "application/json",
            };
            Ok(build(200, content_type, Body::Stream(stream)))
        }
    }
}

/// A failure as a Status object. Formats that cannot carry it fall back to JSON.
pub fn failure(status: &Status, format: Format) -> Response<Body> {
    let value = status.to_value();
    let (body, format) = match render::value(&value, format) {
        Ok(body) => (body, format),
        Err(_) => (serde_json::to_vec(&value).unwrap_or_default().into(), Format::Json),
    };
    let mut response = build(status.code, format.content_type(), body.into());
    let seconds = status.details.as_ref().map_or(0, |d| d.retry_after_seconds);
    if seconds > 0 {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// The same with the warnings that were collected on the way.
pub fn call_failure(call: &Call, status: &Status) -> Response<Body> {
    prettily(call, with_warnings(call, failure(status, call.accept.format)))
}

pub fn build(code: u16, content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

fn with_warnings(call: &Call, mut response: Response<Body>) -> Response<Body> {
    let warnings = call.warnings.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    for warning in warnings.iter() {
        if let Ok(value) = HeaderValue::from_str(&format!("299 - {}", quoted(warning))) {
            response.headers_mut().append(WARNING, value);
        }
    }
    response
}

fn quoted(text: &str) -> String {
    let clean: String = text.chars().filter(|c| !c.is_control()).take(4096).collect();
    format!("\"{}\"", clean.replace('\\', "\\\\").replace('"', "\\\""))
}
