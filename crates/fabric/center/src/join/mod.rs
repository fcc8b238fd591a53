//! Joining: an edge comes with a token and a key, and leaves with a certificate; later it renews that by itself.
//!
//! One path (`Link/Join`) for three questions, told apart by what is sent: nothing asks for the center's authority, which the edge
//! holds against the token's pin; a token and a signing request join; a signing request from a known edge renews.

mod target;
mod token;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use flow::body::Body;
use futures::future::BoxFuture;
use http::{HeaderValue, Method, Request, Response, header};
use http_body_util::{BodyExt, Full};
use identity::{User, signing};
use kinds::{EdgeId, JoinReply, JoinRequest, join};
use link::transport::paths;
use schema::status::{Result, Status};
use serde_json::Value;
use server::{Mount, Mounted, Server};

use crate::{
    GROUP,
    bodies::{Bodies, Bounds},
};
pub use target::{REVOKED, credential_of, is_welcome, not_welcome};
pub use token::{New, is_forgotten, secret, shown};

/// What somebody may send who has no credentials yet.
const BOUNDS: Bounds = Bounds { bytes: 64 << 10, time: Duration::from_secs(10) };
/// At most this many requests to join are read at a time, and so many wait.
const AT_ONCE: usize = 16;
const MAY_WAIT: usize = 256;
/// As often is a use of a token taken again because somebody else took one in between. Each time somebody got through.
const TRIES: usize = 1000;

/// For [`server::Options::mounts`].
pub struct Joining(Arc<Bodies>);

impl Default for Joining {
    fn default() -> Self {
        Self(Arc::new(Bodies::new(AT_ONCE, MAY_WAIT)))
    }
}

impl Mount for Joining {
    fn takes(&self, _cluster: &str, path: &str) -> bool {
        path == paths::JOIN
    }

    fn is_for_edges(&self) -> bool {
        true
    }

    fn is_open(&self, _path: &str) -> bool {
        true
    }

    fn serve(&self, server: Arc<Server>, asked: Mounted) -> BoxFuture<'static, Result<Response<Body>>> {
        let bodies = self.0.clone();
        Box::pin(async move {
            let (method, body) = (asked.request.method().clone(), asked.request.into_body());
            if method != Method::POST {
                return Err(Status::method_not_allowed());
            }
            let (body, _seat) = bodies.read(body, BOUNDS).await?;
            let asks = read(&body)?;
            let reply = answer(&server, &asked.user, &asks).await?;
            let text = serde_json::to_vec(&reply).map_err(Status::internal)?;
            let mut response = Response::new(Body::Full(Some(text.into())));
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            Ok(response)
        })
    }
}

fn read(bytes: &[u8]) -> Result<JoinRequest> {
    if bytes.is_empty() {
        return Ok(JoinRequest::default());
    }
    let unreadable = |error| Status::bad_request(format!("this is no request to join: {error}"));
    serde_json::from_slice(bytes).map_err(unreadable)
}

async fn answer(server: &Arc<Server>, user: &User, asks: &JoinRequest) -> Result<JoinReply> {
    let now = clock::unix();
    let mut reply =
        JoinReply { certificate_authority: server.identity.ca_pem().to_owned(), time: now, ..JoinReply::default() };
    let Some(pem) = &asks.request else { return Ok(reply) };
    let request = signing::Request::of_pem(pem.as_bytes())
        .map_err(|why| Status::bad_request(format!("the signing request cannot be read: {why}")))?;
    let (edge, credential) = match &asks.token {
        Some(token) => admit(server, asks, token, now).await?,
        None => again(server, user).await?,
    };
    let seconds = server.identity.lifetimes().edge;
    let signed = server.identity.pki().sign_edge(&request, &edge.user(), &credential, seconds, now);
    let certificate = signed.map_err(Status::internal)?;
    reply.ends = identity::pki::ends(&certificate);
    reply.certificate = Some(certificate);
    Ok(reply)
}

/// An edge that is known already wants a new certificate.
async fn again(server: &Arc<Server>, user: &User) -> Result<(EdgeId, String)> {
    let edge = Some(user).filter(|user| user.is_in(GROUP)).and_then(|user| EdgeId::of_user(&user.name));
    let Some(edge) = edge else {
        return Err(Status::new(
            401,
            "Unauthorized",
            "who joins needs a token: `selvedge join-token create` makes one",
        ));
    };
    let found = target::get(server, &edge).await?;
    if !found.as_ref().is_some_and(|target| is_welcome(user, target)) {
        return Err(not_welcome(&edge));
    }
    Ok((edge, user.uid.clone()))
}

/// Somebody comes with a token.
async fn admit(server: &Arc<Server>, asks: &JoinRequest, token: &str, now: i64) -> Result<(EdgeId, String)> {
    let edge = EdgeId::new(&asks.workspace, &asks.name);
    if signing::edge_of(&edge.user()).is_none() {
        return Err(Status::bad_request(format!(
            "{:?} is no name of an edge: lower-case letters, digits, dashes and dots",
            asks.name
        )));
    }
    let unknown = || refused(token::Refusal::Unknown);
    let (id, secret) = token.split_once('.').ok_or_else(unknown)?;
    // It becomes part of a path.
    if id.is_empty() || !id.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit()) {
        return Err(unknown());
    }
    let path = format!(
        "/clusters/{}/api/v1/namespaces/{}/secrets/{}{id}",
        edge.workspace,
        join::TOKEN_NAMESPACE,
        join::TOKEN_PREFIX
    );
    let mut prepared = None;
    for _ in 0..TRIES {
        let stored = match call(server, Method::GET, &path, None).await {
            Err(status) if status.code == 404 => return Err(unknown()),
            found => found?,
        };
        let grant = token::judge(&stored, secret, &edge.name, &asks.labels, now).map_err(refused)?;
        // Whatever could fail is tried before the token is used.
        let plan = match prepared.take() {
            Some(plan) => plan,
            None => target::prepare(server, &edge, &grant).await?,
        };
        match call(server, Method::PUT, &path, Some(&token::used_once(stored))).await {
            Err(status) if status.code == 409 => prepared = Some(plan),
            Err(status) if status.code == 404 => return Err(unknown()),
            Err(status) => return Err(status),
            Ok(_) => {
                let credential = plan.carry_out(server).await?;
                tracing::info!(%edge, token = id, "an edge joined");
                return Ok((edge, credential));
            }
        }
    }
    Err(Status::too_many_requests("too many join with this token at once", 1))
}

fn refused(why: token::Refusal) -> Status {
    let reason = match why {
        token::Refusal::Unknown => "TokenUnknown",
        token::Refusal::Expired(_) => "TokenExpired",
        token::Refusal::UsedUp => "TokenUsedUp",
        token::Refusal::OtherName(..) | token::Refusal::OtherLabel(..) | token::Refusal::LabelNotAllowed(..) => {
            "TokenForOther"
        }
        token::Refusal::Damaged(_) => "TokenDamaged",
    };
    Status::new(403, reason, why.to_string())
}

/// The center's own hand, through its own API.
async fn call(server: &Arc<Server>, method: Method, path: &str, body: Option<&Value>) -> Result<Value> {
    let kind = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    let bytes = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::CONTENT_TYPE, kind)
        .header(header::USER_AGENT, "selvedge-join")
        .body(Full::new(bytes))
        .map_err(Status::internal)?;
    let response = server.clone().request_as(User::itself(), request).await;
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let value: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    if (200..300).contains(&code) {
        return Ok(value);
    }
    let message = value["message"].as_str().unwrap_or("the center could not do it").to_owned();
    let reason = match code {
        404 => "NotFound",
        409 => "Conflict",
        422 => "Invalid",
        403 => "Forbidden",
        _ => "InternalError",
    };
    Err(Status::new(code, reason, message))
}
