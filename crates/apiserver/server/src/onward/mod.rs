//! Requests that are answered where a pod runs: logs, exec, attach, port-forward and proxies. This server decides who may,
//! finds the way, and passes bytes on in both directions without understanding them.

mod destination;
mod endpoints;
mod inside;
mod kubelet;
mod linger;
mod links;
mod metrics;
mod options;
mod pass;

use flow::body::Body;
use http::{HeaderMap, HeaderName, Method, Response, Uri, header, request::Parts};
use request::{ROOT, Target, Verb};
use schema::status::{Result, Status};

use crate::{admission, call::Call, kinds::Kind, mount::AnyBody, respond};

pub use destination::Io;
use destination::{Destination, Trust};
pub use inside::Node;
pub use kubelet::{Kubelets, unverified};
pub use linger::Lingering;
pub use metrics::{METRICS, metrics};
pub use pass::{is_upgrade, pass, relay};

/// Whether a request is passed on.
pub fn concerns(kind: &Kind, target: &Target) -> bool {
    matches!(
        (&*kind.collection, target.subresource.as_str()),
        ("core/pods", "log" | "exec" | "attach" | "portforward" | "proxy") | ("core/services" | "core/nodes", "proxy")
    ) && !target.name.is_empty()
        && kind.resource.namespaced != target.namespace.is_empty()
}

/// Answers somebody who may ask. The answer may go on for as long as both ends like.
pub async fn answer(call: &Call, verb: Verb, parts: Parts, body: AnyBody) -> Result<Response<Body>> {
    let sub = call.target.subresource.as_str();
    let known = call.kind.resource.subresource(sub).ok_or_else(Status::no_such_path)?;
    if verb != Verb::Options && !known.verbs.iter().any(|v| &**v == verb.name()) {
        return Err(Status::method_not_allowed());
    }
    if !call.target.rest.is_empty() && sub != "proxy" {
        return Err(Status::no_such_path());
    }
    // Who writes nodes and the status of pods says where this server connects to. In workspaces those are tenants.
    if call.cluster != ROOT || call.view.is_some() {
        let why = "no node serves this workspace here: logs, exec, attach, port-forward and proxy are answered by the edge where \
             the pod runs, also through its mailbox /clusters/<workspace>:<edge>-mb";
        return Err(Status::new(501, "NotImplemented", why));
    }
    call.server.catch_up().await?;
    if sub == "log" {
        return log(call).await;
    }
    if call.dry_run() {
        return Err(Status::bad_request("dryRun is not supported"));
    }
    let mut connect = options::of(call)?;
    admission::review(call, admission::Operation::Connect, &mut connect, None).await?;
    if sub == "proxy" {
        return proxy(call, parts, body).await;
    }
    if verb == Verb::Get {
        // A browser can open a WebSocket with GET only, and whoever may look is not yet somebody who may do.
        let attributes = crate::authorize::of_target(Verb::Create, &call.target);
        call.server.authorize(&call.user, &call.cluster, &attributes)?;
    }
    let destination = destination::of_stream(call, &connect)?;
    if !is_upgrade(&parts.headers) {
        return Err(Status::bad_request("Upgrade request required"));
    }
    let failed = |why: String| Status::new(500, "", format!("error dialing backend: {why}"));
    send(call, &destination, onward_parts(parts), body, true).await.map_err(failed)
}

async fn log(call: &Call) -> Result<Response<Body>> {
    let Some(destination) = destination::of_log(call)? else {
        // Nothing has run yet, so there is nothing to be read.
        let mut response = Response::new(Body::empty());
        *response.status_mut() = http::StatusCode::NO_CONTENT;
        return Ok(response);
    };
    let (mut parts, ()) = http::Request::new(()).into_parts();
    parts.method = Method::GET;
    let failed = |why: String| Status::new(500, "", format!("Get \"{}\": {why}", destination.url()));
    let response = send(call, &destination, parts, pass::nothing(), false).await.map_err(failed)?;
    if !(200..=206).contains(&response.status().as_u16()) {
        let code = response.status().as_u16();
        let text = pass::beginning(response.into_body()).await;
        return Err(options::log_failure(code, &text, &call.target.name));
    }
    let mut plain = respond::build(200, "text/plain", Body::empty());
    plain.extensions_mut().insert(flow::extensions::LongRunning);
    Ok(plain.map(|_| response.into_body()))
}

async fn proxy(call: &Call, parts: Parts, body: AnyBody) -> Result<Response<Body>> {
    let (before, tail) = tail(&parts.uri, &call.target);
    let query = parts.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let path = if tail.is_empty() { "/".to_owned() } else { tail.to_owned() };
    let destination = destination::of_proxy(call, format!("{path}{query}")).await?;
    if tail.is_empty() && matches!(parts.method, Method::GET | Method::HEAD) {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = http::StatusCode::MOVED_PERMANENTLY;
        let location = format!("{before}/{query}");
        let location = location.try_into().map_err(|_| Status::bad_request("the path is not valid"))?;
        response.headers_mut().insert(header::LOCATION, location);
        return Ok(response);
    }
    let upgrade = is_upgrade(&parts.headers);
    let prefix = before.to_owned();
    let mut parts = onward_parts(parts);
    if let Ok(uri) = format!("{prefix}{path}").parse() {
        parts.headers.insert(HeaderName::from_static("x-forwarded-uri"), uri);
    }
    if let Some(host) = parts.headers.get(header::HOST).cloned() {
        parts.headers.insert(HeaderName::from_static("x-forwarded-host"), host);
    }
    parts.headers.insert(HeaderName::from_static("x-forwarded-proto"), http::HeaderValue::from_static("https"));
    let failed = |why: String| Status::unavailable(format!("error trying to reach service: {why}"));
    let mut response = send(call, &destination, parts, body, upgrade).await.map_err(failed)?;
    let headers = response.headers_mut();
    for header in ["credentials", "headers", "methods", "origin"] {
        headers.remove(format!("access-control-allow-{header}"));
    }
    let location = headers.get(header::LOCATION).and_then(|value| value.to_str().ok());
    if let Some(location) = location.and_then(|location| destination.behind(location, &prefix)?.try_into().ok()) {
        headers.insert(header::LOCATION, location);
    }
    if upgrade {
        return Ok(response);
    }
    let behind = prefix.clone();
    Ok(links::rewrite(response, &prefix, Box::new(move |link| destination.behind(link, &behind))))
}

async fn send(
    call: &Call,
    destination: &Destination,
    mut parts: Parts,
    body: AnyBody,
    upgrade: bool,
) -> std::result::Result<Response<Body>, String> {
    let tls = match destination.trust {
        Trust::Plain | Trust::Inside => None,
        Trust::Anybody => Some(call.server.kubelets.anybody()?),
        Trust::Kubelet { verified } => Some(call.server.kubelets.tls(call.server.identity.pki(), verified)?),
    };
    let io = match call.server.kubelets.inside() {
        Some(node) if destination.trust == Trust::Inside => node.connect(),
        _ => destination.dial(tls).await?,
    };
    parts.uri = destination.path.parse::<Uri>().map_err(|error| error.to_string())?;
    parts.version = http::Version::HTTP_11;
    if parts.headers.get(header::HOST).is_none() || upgrade {
        let host = destination.authority().try_into().map_err(|_| "the address is not valid".to_owned())?;
        parts.headers.insert(header::HOST, host);
    }
    if !upgrade {
        parts.headers.remove(header::UPGRADE);
        parts.headers.remove(header::CONNECTION);
        parts.extensions.remove::<hyper::upgrade::OnUpgrade>();
    }
    let request = http::Request::from_parts(parts, body);
    let mut stop = call.server.shutdown.clone();
    let stopped = async move { drop(stop.wait_for(|down| *down).await) };
    pass(io, request, Box::pin(stopped)).await.map_err(|error| error.to_string())
}

/// What of a request concerns whom it is passed on to: not who was let in by us, nor by which right.
pub(crate) fn onward_parts(mut parts: Parts) -> Parts {
    let ours = |name: &HeaderName| {
        let name = name.as_str();
        name == "authorization" || name.starts_with("impersonate-") || name.starts_with("x-remote-")
    };
    strip(&mut parts.headers, ours);
    parts
}

/// Takes out headers, and those that concern only one connection, but for what an upgrade needs.
pub fn strip(headers: &mut HeaderMap, also: impl Fn(&HeaderName) -> bool) {
    const OF_ONE_CONNECTION: [&str; 7] = [
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
    ];
    let gone: Vec<HeaderName> =
        headers.keys().filter(|name| OF_ONE_CONNECTION.contains(&name.as_str()) || also(name)).cloned().collect();
    for name in gone {
        headers.remove(name);
    }
}

/// A path up to `proxy`, and what is behind it, as it came.
fn tail<'a>(uri: &'a Uri, target: &Target) -> (&'a str, &'a str) {
    let path = uri.path();
    let workspace = if path.starts_with("/clusters/") { 2 } else { 0 };
    let namespace = if target.namespace.is_empty() { 0 } else { 2 };
    // api, v1, resource, name, proxy: each behind its slash.
    let nth = workspace + namespace + 5;
    let end = path.match_indices('/').nth(nth).map_or(path.len(), |(at, _)| at);
    path.split_at(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use request::{Path, Route};

    #[test]
    fn what_is_behind_a_proxy_stays_as_it_came() {
        for (path, before, behind) in [
            ("/api/v1/nodes/n/proxy", "/api/v1/nodes/n/proxy", ""),
            ("/api/v1/nodes/n/proxy/", "/api/v1/nodes/n/proxy", "/"),
            ("/api/v1/nodes/n/proxy/pods/", "/api/v1/nodes/n/proxy", "/pods/"),
            ("/api/v1/namespaces/a/pods/http:p:80/proxy/x%20y", "/api/v1/namespaces/a/pods/http:p:80/proxy", "/x%20y"),
            (
                "/clusters/root/api/v1/namespaces/a/services/s/proxy/b/c",
                "/clusters/root/api/v1/namespaces/a/services/s/proxy",
                "/b/c",
            ),
        ] {
            let Route::Resource(target) = Path::parse(path).unwrap().route else { panic!("{path}") };
            assert_eq!(tail(&path.parse().unwrap(), &target), (before, behind), "{path}");
        }
    }

    #[test]
    fn nobody_is_shown_who_we_let_in() {
        let (mut parts, ()) = http::Request::new(()).into_parts();
        for name in
            ["authorization", "impersonate-user", "impersonate-extra-a", "x-remote-group", "te", "cookie", "upgrade"]
        {
            parts.headers.insert(HeaderName::from_static(name), http::HeaderValue::from_static("x"));
        }
        let mut left: Vec<String> = onward_parts(parts).headers.keys().map(|name| name.to_string()).collect();
        left.sort();
        assert_eq!(left, ["cookie", "upgrade"]);
    }
}
