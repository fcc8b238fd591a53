//! The server for clients in the same process: a service as client libraries take one, with no socket in between.
//!
//! What is asked through it is authorised and audited like everybody's requests: whoever makes one says as whom.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use flow::body::Body;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use identity::User;
use tower_service::Service;

use crate::Server;

#[derive(Clone)]
pub struct Local {
    server: Arc<Server>,
    user: User,
}

impl Local {
    pub fn new(server: &Arc<Server>, user: User) -> Self {
        Self { server: server.clone(), user }
    }
}

impl<B> Service<Request<B>> for Local
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<Body>;
    type Error = B::Error;
    type Future = BoxFuture<'static, Result<Response<Body>, B::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), B::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (server, user) = (self.server.clone(), self.user.clone());
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let body = Full::new(body.collect().await?.to_bytes());
            Ok(server.request_as(user, Request::from_parts(parts, body)).await)
        })
    }
}
