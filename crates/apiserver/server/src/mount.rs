//! What others serve on the API's port: the link's sessions and streams, mailboxes. The server authenticates who asks; the rest is theirs.

use std::sync::Arc;

use bytes::Bytes;
use flow::body::Body;
use futures::future::BoxFuture;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use identity::{Attributes, User};
use request::{Path, Query, Route, Verb};
use schema::catalogue::Resource;
use schema::status::{Result, Status};

use crate::{Server, authorize};

/// A request's body, from whatever connection it comes.
pub type AnyBody = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

pub trait Mount: Send + Sync + 'static {
    /// Whether requests to this path are answered here. The path is the one behind `/clusters/<cluster>`.
    fn takes(&self, cluster: &str, path: &str) -> bool;

    /// Whether somebody whom the server does not know may ask here: whoever joins has no credentials yet.
    fn is_open(&self, _path: &str) -> bool {
        false
    }

    /// Whether a path shall look as if nothing were there to somebody who may not know of it. It is then answered as
    /// any other path of a workspace that does not exist.
    fn hides(&self, _server: &Server, _user: &User, _cluster: &str, _asked: (&Method, &HeaderMap)) -> bool {
        false
    }

    /// Whether only edges ask here. It is then up to the mount which of their certificates are still good, and what the
    /// others are told.
    fn is_for_edges(&self) -> bool {
        false
    }

    /// Adds what `/metrics` shall show of it, each metric with its HELP and TYPE lines.
    fn metrics(&self, _out: &mut String) {}

    /// What discovery shall show of it in a workspace.
    fn resources(&self, _cluster: &str) -> Vec<Resource> {
        Vec::new()
    }

    /// Answers one. Nothing was authorised yet: [`Server::allow`] does that.
    fn serve(&self, server: Arc<Server>, asked: Mounted) -> BoxFuture<'static, Result<Response<Body>>>;
}

/// A connection as it came in.
pub type TlsStream = tokio_rustls::server::TlsStream<tokio::net::TcpStream>;

/// Something else than HTTP that is spoken on the port, by whoever asks for it when TLS is agreed on.
pub trait Protocol: Send + Sync + 'static {
    /// Its name in ALPN.
    fn name(&self) -> &'static [u8];

    /// What its tasks are called in logs and metrics.
    fn task(&self) -> &'static tasks::Kind;

    /// Speaks it until the connection ends; when the server stops, it has to end. Who is at the other end, or why that is not known.
    fn speak(&self, server: Arc<Server>, who: Result<User>, stream: TlsStream) -> BoxFuture<'static, ()>;
}

/// A request that a mount answers.
pub struct Mounted {
    /// Who sent it. Impersonation was not looked at.
    pub user: User,
    pub cluster: String,
    /// Behind `/clusters/<cluster>`, still encoded as it came.
    pub path: String,
    /// With the upgrade of its connection, if it asks for one, in its extensions.
    pub request: Request<AnyBody>,
}

impl Mounted {
    /// What is asked for behind the workspace, as roles name it: a resource, or a path.
    pub fn attributes(&self) -> Result<Attributes> {
        let (method, path) = (self.request.method(), Path::parse(&self.path)?);
        // A workspace within a workspace is not behind it, but beside it.
        if self.path.starts_with("/clusters/") || path.view.is_some() {
            return Err(Status::no_such_path());
        }
        let Route::Resource(target) = path.route else { return Ok(authorize::of_path(method, &self.path)) };
        let query = Query::parse(self.request.uri().query());
        let verb = Verb::of(method, &target, &query).ok_or_else(Status::method_not_allowed)?;
        Ok(authorize::of_request(verb, &target, &query))
    }
}
