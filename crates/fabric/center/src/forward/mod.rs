//! Writes that clients made on edges: each is done here as that client, with all that holds for a write made here.
//!
//! Whoever somebody is on the edge, here they are `edge:<workspace>:<name>:<user>`, in no group but those that the edge has put
//! them in, each with the same beginning. So they may do what somebody here has allowed just them.

mod request;
mod user;

use std::{
    sync::{Arc, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use cache::object::Object;
use flow::body::Body;
use futures::future::BoxFuture;
use http::{Response, header};
use http_body_util::{BodyExt, Limited};
use identity::{Attributes, User};
use kinds::{
    EdgeId, ObjectKey,
    forward::{Change, Done, Forward, MOST, PATH, STALE, Said, hexadecimal},
};
use placement::projection;
use schema::status::{Cause, Result, Status, qualified};
use serde_json::{Value, json};
use server::internal::Internal;
use server::{Also, Mount, Mounted, Server};
use store::{Commit, Compare, Op};
use tokio::{sync::OwnedSemaphorePermit, time::Instant};

use crate::{Fleet, bodies::Bounds, bound, edges::Edge, refused::EVENT};

/// One record for each edge with the last of the writes that waited there.
pub const REPLAYED: &str = "edge.selvedge.dev/_replayed";
/// An edge has so long to say what it wants.
const ARRIVAL: Duration = Duration::from_secs(30);
/// At most this many objects with writes that were not taken are remembered of an edge, by so much of their names.
const NAMED: usize = 16;
const LONGEST_NAME: usize = 512;
const BOUNDS: Bounds = Bounds { bytes: MOST, time: ARRIVAL };

pub struct Forwards(pub Arc<Fleet>);

impl Mount for Forwards {
    fn takes(&self, _cluster: &str, path: &str) -> bool {
        path == PATH
    }

    fn is_for_edges(&self) -> bool {
        true
    }

    fn serve(&self, server: Arc<Server>, asked: Mounted) -> BoxFuture<'static, Result<Response<Body>>> {
        let fleet = self.0.clone();
        Box::pin(async move {
            let edge = fleet.known(&asked.user)?;
            let (said, seats) = receive(&fleet, &edge, asked).await?;
            let answer = match said {
                Said::Standing { mut standing } => {
                    // It is kept for as long as the edge is: no more of it than is shown.
                    standing.objects.truncate(NAMED);
                    standing.objects.iter_mut().for_each(|name| *name = name.chars().take(LONGEST_NAME).collect());
                    *edge.writes.lock().unwrap_or_else(PoisonError::into_inner) = Some(standing);
                    fleet.statuses.push(&edge.id, Duration::ZERO);
                    json!({})
                }
                Said::Write(write) => {
                    // Before that nobody knows what the edge holds, and would refuse it for good.
                    let begun = tokio::time::timeout(ARRIVAL, fleet.placing.wait()).await;
                    begun.map_err(|_| {
                        Status::new(503, "ServiceUnavailable", "the center is still starting; try again")
                    })?;
                    let workspace = source(&fleet, &edge.id, &write.key);
                    // Whether or not the edge still listens: what was begun is finished and remembered.
                    let decided = tokio::spawn(async move {
                        let _seats = seats;
                        let waited = (!write.id.is_empty()).then(|| (write.key.clone(), write.user.name.clone()));
                        let decided = decide(&fleet, &server, &edge.id, &workspace, *write).await;
                        if let (Some((key, user)), Err(status)) = (waited, &decided) {
                            tell(&fleet, &server, &workspace, &edge.id, &key, &user, status).await;
                        }
                        decided
                    });
                    let decided = decided.await.map_err(Status::internal)?;
                    json!(decided?)
                }
            };
            let mut response = Response::new(Bytes::from(answer.to_string()).into());
            response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
            Ok(response)
        })
    }
}

/// What an edge says, with the seats that it takes: one of the edge's own, so that none keeps the others from being
/// heard, and one of all.
async fn receive(
    fleet: &Fleet,
    edge: &Edge,
    asked: Mounted,
) -> Result<(Said, (OwnedSemaphorePermit, OwnedSemaphorePermit))> {
    if asked.request.method() != http::Method::POST {
        return Err(Status::method_not_allowed());
    }
    let own = edge.forwards().seat(Instant::now() + BOUNDS.time).await?;
    let (body, seat) = fleet.bodies.read(asked.request.into_body(), BOUNDS).await?;
    let said = serde_json::from_slice(&body);
    Ok((said.map_err(|_| Status::bad_request("this is no write that an edge forwards"))?, (own, seat)))
}

/// The workspace of the object that an edge holds under a key. None, if it holds none; it may have deleted it by this very write.
fn source(fleet: &Fleet, edge: &EdgeId, key: &str) -> Arc<str> {
    fleet.placing.source(edge, key).map(|source| source.workspace).unwrap_or_default()
}

/// Decides on a write that comes from this edge, to an object that it has from that workspace.
async fn decide(fleet: &Fleet, server: &Arc<Server>, edge: &EdgeId, workspace: &str, write: Forward) -> Result<Done> {
    let key = ObjectKey::parse(&write.key).filter(|key| !key.namespace.contains('/'));
    let key = key.ok_or_else(|| Status::bad_request(format!("{:?} names no object", write.key)))?;
    server.catch_up().await?;
    let user = user::user_of(server, edge, &write.user)?;
    match once(fleet, server, edge, workspace, &key, &user, &write).await {
        // The same write may be under way a second time, as the edge lost its link in between.
        Err(status) if matches!(status.code, 404 | 409) => {
            replayed(fleet, server, edge, &key, workspace, &write).ok_or(status)
        }
        decided => decided,
    }
}

async fn once(
    fleet: &Fleet,
    server: &Arc<Server>,
    edge: &EdgeId,
    workspace: &str,
    key: &ObjectKey<'_>,
    user: &User,
    write: &Forward,
) -> Result<Done> {
    if let Some(done) = replayed(fleet, server, edge, key, workspace, write) {
        return Ok(done);
    }
    let found = bound::source(server, workspace, key);
    let held = found.and_then(|object| Some((projected(fleet, edge, key, &object)?, object)));
    let Some(((hash, _), object)) = held else {
        return Err(not_held(key));
    };
    if hexadecimal(hash) != write.precondition {
        return Err(stale(key));
    }
    let value = object.value();
    if write.verb == "deletecollection" {
        let may = server.enter(user, workspace);
        let may = may.and_then(|()| server.authorize(user, workspace, &collection_of(key, &value)));
        may.map_err(|status| advised(status, edge, user, workspace))?;
    }
    let mut request = request::request(workspace, key, &object, &value, write)?;
    if !write.id.is_empty() {
        request.extensions_mut().insert(Also(vec![remember(edge, &json!({"id": write.id}))]));
    }
    let response = server.clone().request_as(user.clone(), request).await;
    let (code, warnings, body) = read(response).await;
    if !(200..300).contains(&code) {
        return Err(refused(code, &body, key, edge, user, workspace));
    }
    if write.dry_run {
        return Ok(Done { hash: write.precondition.clone(), content: None, warnings });
    }
    let content = match write.change {
        // Others may have gone on since: what it answered with is what this write came to.
        Change::Patch(_) => fleet.placing.made_of(edge, key, body),
        _ => current(fleet, server, edge, key, workspace),
    };
    let done = Done { warnings, ..done(key, content) };
    if !write.id.is_empty() {
        let mut record = json!({"id": write.id, "hash": done.hash});
        record["content"] = done.content.clone().unwrap_or_default();
        note(server, edge, &write.id, &record).await;
    }
    Ok(done)
}

/// Notes the outcome of a write, unless the edge has gone on to another. Without it the write is still known to be done.
async fn note(server: &Server, edge: &EdgeId, id: &str, record: &Value) {
    let Some(noted) = server.cache.get(REPLAYED, &edge.to_string()) else { return };
    if noted.value()["id"] == id {
        let compare = Compare { key: format!("{REPLAYED}/{edge}"), modified: noted.revision };
        let commit = Commit { compares: vec![compare], ops: vec![remember(edge, record)] };
        let _ = server.cache.store().commit(commit).await;
    }
}

fn projected(fleet: &Fleet, edge: &EdgeId, key: &ObjectKey<'_>, object: &Object) -> Option<(u128, Bytes)> {
    let content = fleet.placing.made_of(edge, key, object.value())?;
    Some((link::entry_hash(&key.to_string(), &content), content))
}

/// What the edge is to hold now.
fn current(fleet: &Fleet, server: &Server, edge: &EdgeId, key: &ObjectKey<'_>, workspace: &str) -> Option<Bytes> {
    let object = bound::source(server, workspace, key)?;
    fleet.placing.made_of(edge, key, object.value())
}

fn done(key: &ObjectKey<'_>, content: Option<Bytes>) -> Done {
    let Some(content) = content else { return Done::default() };
    let hash = hexadecimal(link::entry_hash(&key.to_string(), &content));
    Done { hash, content: serde_json::from_slice(&content).ok(), warnings: Vec::new() }
}

/// A write that waited and was done already, though the edge never heard of it.
fn replayed(
    fleet: &Fleet,
    server: &Server,
    edge: &EdgeId,
    key: &ObjectKey<'_>,
    workspace: &str,
    write: &Forward,
) -> Option<Done> {
    if write.id.is_empty() {
        return None;
    }
    let record = server.cache.get(REPLAYED, &edge.to_string())?.value();
    if record["id"] != write.id.as_str() {
        return None;
    }
    let content = record.get("content").filter(|content| content.is_object()).cloned();
    Some(match record["hash"].as_str() {
        Some(hash) => Done { hash: hash.to_owned(), content, warnings: Vec::new() },
        // The center crashed between the write and the note of its outcome.
        None => done(key, current(fleet, server, edge, key, workspace)),
    })
}

/// Edges replay one write after the other, so the last one is enough to remember.
fn remember(edge: &EdgeId, record: &Value) -> Op {
    Op::Put { key: format!("{REPLAYED}/{edge}"), value: record.to_string().into() }
}

fn collection_of(key: &ObjectKey<'_>, value: &Value) -> Attributes {
    let (group, version) = schema::catalogue::split_api_version(value["apiVersion"].as_str().unwrap_or_default());
    Attributes {
        verb: "deletecollection".into(),
        group: group.to_owned(),
        version: version.to_owned(),
        resource: resource(key).1.to_owned(),
        namespace: key.namespace.to_owned(),
        ..Attributes::default()
    }
}

fn resource<'a>(key: &ObjectKey<'a>) -> (&'a str, &'a str) {
    let (group, resource) = key.collection.split_once('/').unwrap_or_default();
    (if group == "core" { "" } else { group }, resource)
}

async fn read(response: http::Response<flow::body::Body>) -> (u16, Vec<String>, Value) {
    let warnings = response.headers().get_all(header::WARNING).iter();
    let warnings = warnings.filter_map(|value| warning(value.to_str().ok()?)).collect();
    let code = response.status().as_u16();
    let body = Limited::new(response.into_body(), MOST).collect().await.map(|body| body.to_bytes());
    (code, warnings, body.ok().and_then(|body| serde_json::from_slice(&body).ok()).unwrap_or_default())
}

/// The text of a Warning header: `299 - "text"`.
fn warning(header: &str) -> Option<String> {
    let text = header.split_once('"')?.1.strip_suffix('"')?;
    Some(text.replace("\\\"", "\"").replace("\\\\", "\\"))
}

fn not_held(key: &ObjectKey<'_>) -> Status {
    let (group, resource) = resource(key);
    let message =
        format!("{} {:?} not found: it is not among what this edge is to hold", qualified(group, resource), key.name);
    Status::new(404, "NotFound", message).about(group, resource, key.name)
}

fn stale(key: &ObjectKey<'_>) -> Status {
    let (group, resource) = resource(key);
    let why = "it is another one at the center by now than the one that the edge had when this was written";
    let cause = Cause { reason: STALE.into(), message: why.into(), field: String::new() };
    Status::conflict(group, resource, key.name, why).with_causes(vec![cause])
}

/// What the client on the edge is told: what was said here, and what to do about a refusal.
fn refused(code: u16, body: &Value, key: &ObjectKey<'_>, edge: &EdgeId, user: &User, workspace: &str) -> Status {
    let status = Status::from_value(code, body);
    match code {
        // Nobody names versions but us.
        409 if status.reason == "Conflict" => stale(key),
        403 => advised(status, edge, user, workspace),
        _ => status,
    }
}

fn advised(mut status: Status, edge: &EdgeId, user: &User, workspace: &str) -> Status {
    status.message = format!(
        "{} (the center decides on this object: in its workspace {workspace:?} somebody has to allow it to {:?}, or to all of the \
         edge with the group {:?})",
        status.message,
        user.name,
        edge.local("system:authenticated")
    );
    status
}

/// An Event on the object that a write which waited did not change.
async fn tell(
    fleet: &Fleet,
    server: &Arc<Server>,
    workspace: &str,
    edge: &EdgeId,
    key: &str,
    user: &str,
    status: &Status,
) {
    let state = match status.code {
        409 => "OfflineWriteConflict",
        400 | 403 | 404 | 405 | 413 | 415 | 422 => "OfflineWriteRefused",
        _ => return,
    };
    let Some(key) = ObjectKey::parse(key) else { return };
    let found = bound::source(server, workspace, &key);
    if found.is_none() || !fleet.told.may_tell(server, workspace, edge, &key.to_string(), EVENT + 1000) {
        return;
    }
    let Some(value) = found.map(|object| object.value()).filter(|_| projection::may_belong(&key)) else { return };
    let namespace = if key.namespace.is_empty() { "default" } else { key.namespace };
    let short: String = key.name.chars().take(200).filter(|c| *c != ':').collect();
    let message =
        format!("a write of {:?} on edge {edge} that waited for its link was not taken: {}", user, status.message);
    let now = clock::now();
    let event = json!({"metadata": {"name": format!("{short}.{:016x}", rand::random::<u64>()), "namespace": namespace},
        "involvedObject": {"apiVersion": value["apiVersion"], "kind": value["kind"], "namespace": key.namespace, "name": key.name,
            "uid": value["metadata"]["uid"], "resourceVersion": value["metadata"]["resourceVersion"]},
        "type": "Warning", "reason": state, "message": message.chars().take(1000).collect::<String>(), "count": 1,
        "source": {"component": "selvedge-fleet"}, "firstTimestamp": now, "lastTimestamp": now});
    let hand = Internal::new(server, workspace, "selvedge-fleet");
    let told = match hand.kind("", "v1", "events") {
        Ok(kind) => hand.ensure(&kind, namespace, event).await,
        Err(status) => Err(status),
    };
    if let Err(error) = told {
        tracing::warn!(%edge, error = error.message, "no Event could be made of a write that was not taken");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_read() {
        assert_eq!(warning(r#"299 - "say \"no\"""#).as_deref(), Some("say \"no\""));
        assert_eq!(warning("nonsense"), None);
    }
}
