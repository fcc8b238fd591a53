//! Mailboxes: `/clusters/root:espw:<inventory>-mb-<uid of the SyncTarget>/…` shows what an edge shall hold and what it said became of it,
//! as a workspace of its own, although no copy of it is stored. The roles of `root:espw` say who may look.
//!
//! What is shown lies in a small server in memory, made when somebody looks, kept up while somebody does.

mod contents;
mod keep;
mod open;
mod refuse;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use flow::body::Body;
use futures::future::BoxFuture;
use http::{HeaderValue, Method, Request, Response, header::WARNING};
use http_body_util::Full;
use identity::{Attributes, User};
use kinds::mailbox::{self, PROVIDER};
use link::transport::paths;
use schema::status::{Result, Status};
use server::{Mount, Mounted, Server, onward};

use crate::{
    Fleet,
    bodies::Bounds,
    edges::Edge,
    tunnel::{self, caller},
};

pub use open::Open;

/// A question of what somebody may must have arrived whole within this time.
const BOUNDS: Bounds = Bounds { bytes: 256 << 10, time: Duration::from_secs(10) };

/// Where people look.
pub struct Looking(pub Arc<Fleet>);

impl Mount for Looking {
    fn takes(&self, cluster: &str, path: &str) -> bool {
        mailbox::of_path(cluster).is_some() && !path.starts_with(paths::PREFIX)
    }

    fn serve(&self, server: Arc<Server>, asked: Mounted) -> BoxFuture<'static, Result<Response<Body>>> {
        Box::pin(answer(self.0.clone(), server, asked))
    }
}

/// What is answered by the edge itself.
fn is_for_edge(attributes: &Attributes) -> bool {
    match attributes.group.as_str() {
        "" => matches!(
            (attributes.resource.as_str(), attributes.subresource.as_str()),
            ("pods", "log" | "exec" | "attach" | "portforward" | "proxy") | ("services" | "nodes", "proxy")
        ),
        group => group == onward::METRICS && !attributes.resource.is_empty(),
    }
}

async fn answer(fleet: Arc<Fleet>, server: Arc<Server>, asked: Mounted) -> Result<Response<Body>> {
    let mut attributes = asked.attributes()?;
    let for_edge = is_for_edge(&attributes);
    if for_edge && onward::is_upgrade(asked.request.headers()) {
        // Whoever may look is not yet somebody who may do, and exec is opened with GET.
        attributes.verb = "create".to_owned();
    }
    let user = server.allow(asked.user, &asked.request, PROVIDER, &attributes)?;
    let edge = fleet.of_mailbox(&asked.cluster).and_then(|id| fleet.edges.get(&id)).ok_or_else(|| {
        let name = mailbox::of_path(&asked.cluster).unwrap_or_default();
        Status::not_found("tenancy.kcp.io", "workspaces", name)
    })?;
    if for_edge {
        return tunnel::pass(fleet, server, &edge.id, user, asked.request, &asked.path).await;
    }
    if attributes.group == "authorization.k8s.io" && attributes.verb == "create" {
        return review(&fleet, server, user, &asked.path, asked.request).await;
    }
    let mailbox = Open::at(&fleet, &server, &edge).await?;
    let readable = matches!(attributes.subresource.as_str(), "" | "status" | "scale");
    match *asked.request.method() {
        Method::GET if readable => {}
        Method::HEAD if attributes.resource.is_empty() => {}
        _ => return Err(refuse::refusal(&edge.id, mailbox.server(), &attributes)),
    }
    let query = asked.request.uri().query().map(|query| format!("?{query}")).unwrap_or_default();
    let mut headers = asked.request.into_parts().0.headers;
    caller::undress(&mut headers);
    let response = mailbox.read(&format!("{}{query}", asked.path), headers).await;
    let mut response = response.ok_or_else(|| Status::bad_request("the path is not valid"))?;
    if !attributes.resource.is_empty()
        && let Some(warning) = away(&fleet, &server, &edge)
    {
        response.headers_mut().append(WARNING, warning);
    }
    Ok(response)
}

/// What somebody may do in a mailbox, they may do in the workspace that says so for all of them.
async fn review(
    fleet: &Fleet,
    server: Arc<Server>,
    user: User,
    path: &str,
    request: Request<server::mount::AnyBody>,
) -> Result<Response<Body>> {
    let (mut parts, body) = request.into_parts();
    let (body, _seat) = fleet.bodies.read(body, BOUNDS).await?;
    caller::undress(&mut parts.headers);
    let query = parts.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let uri = format!("/clusters/{PROVIDER}{path}{query}");
    parts.uri = uri.parse().map_err(|_| Status::bad_request("the path is not valid"))?;
    Ok(server.request_as(user, Request::from_parts(parts, Full::<Bytes>::new(body.into()))).await)
}

/// What is said beside an answer while the edge is not there.
fn away(fleet: &Fleet, server: &Server, edge: &Edge) -> Option<HeaderValue> {
    if fleet.is_connected(&edge.id) {
        return None;
    }
    let since = tunnel::away_since(fleet, server, &edge.id).map_or_else(String::new, |since| format!(" since {since}"));
    let text = format!(
        "299 - \"the edge {} is offline{since}: this is what it shall hold, with the status of then\"",
        edge.id
    );
    HeaderValue::from_str(&text).ok()
}
