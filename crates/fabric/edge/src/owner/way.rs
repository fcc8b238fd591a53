//! The way to the center: one request, one answer.

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, header::CONTENT_TYPE};
use http_body_util::{BodyExt, Full, Limited};
use kinds::forward::{MOST, PATH};

use crate::Agent;

pub trait Way: Send + Sync + 'static {
    fn is_open(&self) -> bool;

    /// Sends a write. Answers with HTTP's code and a body.
    fn send(&self, body: Bytes) -> BoxFuture<'_, Result<(u16, Bytes), Lost>>;

    /// Waits until the way may have opened.
    fn opens(&self) -> BoxFuture<'_, ()>;
}

/// No answer came.
#[derive(Debug, PartialEq)]
pub enum Lost {
    /// There is no link, and nothing was sent.
    Away,
    /// The link broke: nobody here knows whether the center has it.
    Broke(String),
}

impl Way for Agent {
    fn is_open(&self) -> bool {
        self.link().borrow().as_ref().is_some_and(|connection| !connection.is_closed())
    }

    fn send(&self, body: Bytes) -> BoxFuture<'_, Result<(u16, Bytes), Lost>> {
        let connection = self.link().borrow().clone().filter(|connection| !connection.is_closed());
        Box::pin(async move {
            let connection = connection.ok_or(Lost::Away)?;
            let broke = |error: &dyn std::fmt::Display| Lost::Broke(error.to_string());
            let request = Request::post(PATH).header(CONTENT_TYPE, "application/json").body(Full::new(body));
            let request = request.map_err(|error| broke(&error))?;
            let response = connection.request(request).await.map_err(|error| broke(&error))?;
            let code = response.status().as_u16();
            let body = Limited::new(response.into_body(), MOST).collect().await.map_err(|error| broke(&error))?;
            Ok((code, body.to_bytes()))
        })
    }

    fn opens(&self) -> BoxFuture<'_, ()> {
        let mut link = self.link();
        Box::pin(async move {
            // An error means that the agent is gone, and nothing opens any more.
            if link.wait_for(|link| link.as_ref().is_some_and(|c| !c.is_closed())).await.is_err() {
                std::future::pending::<()>().await;
            }
        })
    }
}
