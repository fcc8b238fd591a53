//! The way from the center to an edge's own API: `/clusters/<workspace>:<SyncTarget>-mb/…`.
//!
//! The center dials nobody. It asks the edge, over its session, to open a stream ([`link::Message::Open`]), and speaks HTTP/1.1 on
//! it as a client: one stream for each request. Who asks is decided here and told to the edge, which decides again.

pub(crate) mod caller;
mod tickets;

use std::{sync::Arc, time::Duration};

use flow::body::Body;
use futures::future::BoxFuture;
use http::{HeaderMap, HeaderValue, Method, Request, Response, header};
use identity::User;
use kinds::EdgeId;
use link::{
    Message,
    transport::{self, Stream, paths},
};
use schema::status::{Result, Status};
use server::mount::AnyBody;
use server::{Mount, Mounted, Server, onward};
use tokio::sync::oneshot;

use crate::{Fleet, target};
use tickets::{Place, Tickets};

/// A ticket is good for so long; an edge that is there takes a round trip.
const PATIENCE: Duration = Duration::from_secs(10);

/// The tunnels of a fleet.
#[derive(Default)]
pub struct Tunnels(Arc<Tickets<oneshot::Sender<Stream>>>);

impl Tunnels {
    /// An edge is gone: whoever speaks with it is told so at once.
    pub fn end(&self, edge: &EdgeId) {
        self.0.end(edge);
    }
}

/// Where people ask.
pub struct Mailboxes(pub Arc<Fleet>);

impl Mount for Mailboxes {
    fn takes(&self, cluster: &str, path: &str) -> bool {
        let edge = EdgeId::of_mailbox(cluster).filter(|_| !path.starts_with(paths::PREFIX));
        edge.is_some_and(|edge| self.0.edges.get(&edge).is_some())
    }

    /// Which edges there are is not for everybody to find out.
    fn hides(&self, server: &Server, user: &User, cluster: &str, (method, headers): (&Method, &HeaderMap)) -> bool {
        let Some(edge) = EdgeId::of_mailbox(cluster) else { return false };
        let right = caller::right(&edge, method, onward::is_upgrade(headers));
        let may_ask = || server.may(user, headers, &edge.workspace, &right);
        let none = HeaderMap::new();
        let may_know = || caller::knowing(&edge).any(|right| server.may(user, &none, &edge.workspace, &right));
        !may_ask() && !may_know()
    }

    fn serve(&self, server: Arc<Server>, asked: Mounted) -> BoxFuture<'static, Result<Response<Body>>> {
        Box::pin(through(self.0.clone(), server, asked))
    }
}

/// Where edges bring the streams that they were asked for.
pub struct Ends(pub Arc<Fleet>);

impl Mount for Ends {
    fn takes(&self, _cluster: &str, path: &str) -> bool {
        path == paths::TUNNEL
    }

    fn is_for_edges(&self) -> bool {
        true
    }

    fn serve(&self, _server: Arc<Server>, asked: Mounted) -> BoxFuture<'static, Result<Response<Body>>> {
        let fleet = self.0.clone();
        Box::pin(async move {
            let edge = fleet.edge_of(&asked.user)?;
            let shown = asked.request.headers().get(paths::TICKET).and_then(|value| value.to_str().ok());
            let ticket = shown.and_then(|text| u128::from_str_radix(text, 16).ok());
            let waits = ticket.and_then(|ticket| fleet.tunnels.0.redeem(&edge, ticket));
            let nobody = || Status::new(404, "NotFound", "nobody waits for a stream with this ticket");
            let waits = waits.ok_or_else(nobody)?;
            let (response, stream) = transport::accept_stream(asked.request);
            let _ = waits.send(stream);
            Ok(response.map(Body::Other))
        })
    }
}

async fn through(fleet: Arc<Fleet>, server: Arc<Server>, asked: Mounted) -> Result<Response<Body>> {
    let edge = EdgeId::of_mailbox(&asked.cluster).ok_or_else(Status::no_such_path)?;
    let right = caller::right(&edge, asked.request.method(), onward::is_upgrade(asked.request.headers()));
    let user = server.allow(asked.user, &asked.request, &edge.workspace, &right)?;
    pass(fleet, server, &edge, user, asked.request, &asked.path).await
}

/// What else belongs to a request that is passed on.
pub(crate) struct Also {
    /// It ends when this does.
    pub until: BoxFuture<'static, ()>,
    /// Kept until it has ended.
    pub keep: Box<dyn Send>,
}

/// Passes a request on to an edge, in the name of somebody who may ask it. The edge decides once more.
pub(crate) async fn pass(
    fleet: Arc<Fleet>,
    server: Arc<Server>,
    edge: &EdgeId,
    user: User,
    request: Request<AnyBody>,
    path: &str,
) -> Result<Response<Body>> {
    let also = Also { until: Box::pin(std::future::pending()), keep: Box::new(()) };
    pass_with(fleet, server, edge, user, request, path, also).await
}

pub(crate) async fn pass_with(
    fleet: Arc<Fleet>,
    server: Arc<Server>,
    edge: &EdgeId,
    user: User,
    request: Request<AnyBody>,
    path: &str,
    also: Also,
) -> Result<Response<Body>> {
    if user.is_in(identity::authenticate::UNAUTHENTICATED) {
        return Err(Status::unauthorized());
    }
    let mut request = onto_the_stream(request, path)?;
    let user = caller::abroad(user, edge)?;
    if !identity::vouch(&user, request.headers_mut()) {
        return Err(Status::bad_request("the name of the user, or of one of their groups, cannot be told to the edge"));
    }
    let (place, stream) = open(&fleet, &server, edge).await?;
    let (mut stop, mut ended) = (server.shutdown.clone(), place.ended.clone());
    let end = async move {
        tokio::select! {
            _ = stop.wait_for(|down| *down) => {}
            _ = ended.wait_for(|ended| *ended) => {}
            () = also.until => {}
        }
    };
    let lost = |error| Status::unavailable(format!("the edge {edge} went away while it was asked: {error}"));
    let response = onward::pass(stream, request, Box::pin(end)).await.map_err(lost)?;
    // The place is taken until the answer has ended, however long that takes.
    let place: Box<dyn Send> = Box::new((place, also.keep));
    match response.extensions().get::<flow::extensions::Upgraded>() {
        Some(upgraded) => upgraded.keep(place),
        None => return Ok(response.map(|body| body.until_end(place))),
    }
    Ok(response)
}

async fn open(
    fleet: &Arc<Fleet>,
    server: &Arc<Server>,
    edge: &EdgeId,
) -> Result<(Place<oneshot::Sender<Stream>>, Stream)> {
    let ticket: u128 = rand::random();
    let (waits, stream) = oneshot::channel();
    let crowded = || Status::too_many_requests(format!("too many are speaking with the edge {edge} already"), 1);
    let place = fleet.tunnels.0.take(edge, ticket, waits).ok_or_else(crowded)?;
    let session = fleet.edges.get(edge).and_then(|edge| edge.session()).filter(|live| live.facts().connected);
    let Some(session) = session else { return Err(away(fleet, server, edge)) };
    // Behind what is being sent: an edge that is catching up over a slow line answers all the same.
    let opened = async {
        session.sender.send(Message::Open { ticket }).await.ok()?;
        stream.await.ok()
    };
    match tokio::time::timeout(PATIENCE, opened).await {
        Ok(Some(stream)) => Ok((place, stream)),
        Ok(None) => Err(away(fleet, server, edge)),
        Err(_) => {
            let seconds = PATIENCE.as_secs();
            Err(Status::unavailable(format!("the edge {edge} is connected, but opened no tunnel in {seconds} s")))
        }
    }
}

/// Since when an edge is not connected, as far as anybody knows.
pub(crate) fn away_since(fleet: &Fleet, server: &Server, edge: &EdgeId) -> Option<String> {
    let lost = fleet.edges.get(edge).and_then(|edge| edge.lost()).map(|lost| clock::at(lost.at));
    lost.or_else(|| {
        let found = server.cache.get(target::COLLECTION, &format!("{}//{}", edge.workspace, edge.name))?.value();
        let ready = target::condition(&found, "Ready").filter(|ready| ready["status"] == "False")?;
        Some(ready["lastTransitionTime"].as_str()?.to_owned())
    })
}

/// Nothing is said about when to come again: kubectl would wait for it without a word.
fn away(fleet: &Fleet, server: &Server, edge: &EdgeId) -> Status {
    if fleet.is_connected(edge) {
        return Status::unavailable(format!("the edge {edge} has just connected anew: ask again"));
    }
    let elsewhere = if server.has_shared_store() { " to this center" } else { "" };
    let since = away_since(fleet, server, edge);
    let since = since.map_or_else(|| ", and was never seen".to_owned(), |since| format!(" since {since}"));
    Status::unavailable(format!("the edge {edge} is not connected{elsewhere}{since}"))
}

/// The request as the edge's own API shall see it.
fn onto_the_stream(request: Request<AnyBody>, path: &str) -> Result<Request<AnyBody>> {
    let (mut parts, body) = request.into_parts();
    let query = parts.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let host = parts.uri.authority().and_then(|authority| HeaderValue::from_str(authority.as_str()).ok());
    parts.uri = format!("{path}{query}").parse().map_err(|_| Status::bad_request("the path is not valid"))?;
    parts.version = http::Version::HTTP_11;
    caller::undress(&mut parts.headers);
    if !onward::is_upgrade(&parts.headers) {
        parts.headers.remove(header::CONNECTION);
        parts.headers.remove(header::UPGRADE);
    }
    if !parts.headers.contains_key(header::HOST) {
        parts.headers.insert(header::HOST, host.unwrap_or_else(|| HeaderValue::from_static("edge")));
    }
    Ok(Request::from_parts(parts, body))
}
