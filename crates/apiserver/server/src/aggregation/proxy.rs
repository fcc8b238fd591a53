//! Passes requests on to remote API servers.

use std::{sync::Arc, time::Duration};

use flow::Level;
use flow::body::{Arriving, Body};
use http::{HeaderValue, Method, Request, Response, Uri, header, request::Parts};
use http_body_util::BodyExt;
use identity::{User, vouch};
use request::{Path, Query, Route, Verb};
use schema::status::{Result, Status};

use super::Remote;
use crate::{Server, authorize, flows::Slot, mount::AnyBody, onward, respond, workspaces::seen_from};

/// How long a remote server may take to begin its answer, unless it is asked for something that goes on.
const LIMIT: Duration = Duration::from_secs(60);

impl Server {
    /// Answers a request by passing it on to the server that is registered for it, if the sender may ask for that.
    pub(crate) async fn pass_to_remote(
        self: Arc<Self>,
        remote: Arc<Remote>,
        path: Path,
        query: Query,
        sender: User,
        request: Request<Arriving>,
    ) -> Result<Response<Body>> {
        let cluster = path.cluster;
        let (attributes, verb) = match &path.route {
            Route::Resource(target) => {
                let verb = Verb::of(request.method(), target, &query).ok_or_else(Status::method_not_allowed)?;
                (authorize::of_request(verb, target, &query), Some((verb, target)))
            }
            Route::Discovery { .. } => (authorize::of_path(request.method(), "/apis"), None),
            Route::Other(other) => (authorize::of_path(request.method(), other), None),
        };
        let user = self.allow(sender, &request, &cluster, &attributes)?;
        let level = verb.map_or(Level::Read, |(verb, target)| flow::level(&user, &cluster, verb, target));
        // The seat is held until the remote server begins to answer: what it goes on to send costs little here.
        let slot = request.extensions().get::<Slot>().cloned().unwrap_or_default();
        let _seat = self.seat(level, &cluster, &user, slot.class(), 1).await?;
        if !remote.is_available() {
            return Ok(unavailable("service unavailable"));
        }
        let goes_on = matches!(verb, Some((Verb::Watch, _))) || onward::is_upgrade(request.headers());
        let (parts, body) = request.into_parts();
        let parts = onward::onward_parts(parts);
        let user = seen_from(&user, &cluster).into_owned();
        let sent = send(&self, &remote, &user, parts, body.map_err(Into::into).boxed_unsync());
        let sent = match goes_on {
            true => sent.await,
            false => tokio::time::timeout(LIMIT, sent)
                .await
                .unwrap_or_else(|_| Err(format!("no answer within {} seconds", LIMIT.as_secs()))),
        };
        Ok(sent.unwrap_or_else(|why| unavailable(&format!("error trying to reach service: {why}"))))
    }
}

/// What upstream's aggregator says when there is nobody to ask.
fn unavailable(why: &str) -> Response<Body> {
    respond::build(503, "text/plain; charset=utf-8", bytes::Bytes::from(format!("{why}\n")).into())
}

/// Sends a request in a user's name, whatever the headers said of users before. The error can be told to anybody who
/// may write APIServices.
pub async fn send(
    server: &Arc<Server>,
    remote: &Remote,
    user: &User,
    mut parts: Parts,
    body: AnyBody,
) -> std::result::Result<Response<Body>, String> {
    let clients = remote.clients(server)?;
    if !vouch(user, &mut parts.headers) {
        return Err("the name or a group of the user holds what no header can".to_owned());
    }
    let path = behind(&parts.uri).to_owned();
    let mut stop = server.shutdown.clone();
    let stopped = Box::pin(async move { drop(stop.wait_for(|down| *down).await) });
    parts.headers.remove(header::HOST);
    if onward::is_upgrade(&parts.headers) {
        parts.uri = path.parse().map_err(|_| "the path is not valid".to_owned())?;
        parts.version = http::Version::HTTP_11;
        let host: Uri = remote.url("/").parse().map_err(|_| "the address is not valid".to_owned())?;
        let host = host.authority().map(|authority| authority.as_str().to_owned()).unwrap_or_default();
        let host = HeaderValue::try_from(host).map_err(|_| "the address is not valid".to_owned())?;
        parts.headers.insert(header::HOST, host);
        let io = clients.single.dial().await.map_err(|error| remote.failure(&error))?;
        let passed = onward::pass(io, Request::from_parts(parts, body), stopped).await;
        return passed.map_err(|error| remote.failure(&*error));
    }
    parts.headers.remove(header::CONNECTION);
    parts.headers.remove(header::UPGRADE);
    parts.extensions = http::Extensions::default();
    parts.version = http::Version::default();
    parts.uri = remote.url(&path).parse().map_err(|_| "the path is not valid".to_owned())?;
    // A request without a body says so: chunks of nothing would look like one.
    let has_body = !http_body::Body::is_end_stream(&body) && !matches!(parts.method, Method::GET | Method::HEAD);
    let body =
        if has_body { body } else { http_body_util::Empty::new().map_err(|never| match never {}).boxed_unsync() };
    if !has_body {
        parts.headers.remove(header::CONTENT_LENGTH);
    }
    let response = clients.pooled.request(Request::from_parts(parts, body)).await;
    let response = response.map_err(|error| remote.failure(&error))?;
    Ok(onward::relay(response, stopped, None))
}

/// Path and query without the workspace, as they came.
fn behind(uri: &Uri) -> &str {
    let all = uri.path_and_query().map_or("/", |path| path.as_str());
    let Some(rest) = all.strip_prefix("/clusters/") else { return all };
    rest.find('/').map_or("/", |at| &rest[at..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remote_servers_know_nothing_of_workspaces() {
        for (path, want) in [
            ("/apis/g/v1/things?watch=1", "/apis/g/v1/things?watch=1"),
            ("/clusters/root:a/apis/g/v1/things/x%20y?a=b", "/apis/g/v1/things/x%20y?a=b"),
        ] {
            assert_eq!(behind(&path.parse().unwrap()), want);
        }
    }
}
