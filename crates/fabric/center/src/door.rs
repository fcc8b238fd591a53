//! Where sessions of edges come in: on the API's port, by the name of the link's protocol.

use std::sync::Arc;

use futures::future::BoxFuture;
use identity::User;
use identity::pki::ends_der;
use link::transport::{self, Line, Refusal};
use schema::status::{Result, Status};
use server::mount::TlsStream;
use server::{Protocol, Server};

use crate::{
    Fleet,
    edges::Edge,
    session::{self, Credential},
};

pub struct Sessions(pub Arc<Fleet>);

impl Sessions {
    /// The edge that asks and what its certificate says, if it is let in.
    fn let_in(&self, who: Result<User>, stream: &TlsStream) -> Result<(Arc<Edge>, Credential)> {
        let user = who?;
        if self.0.history().is_none() {
            return Err(Status::unavailable("the center is starting").retry_after(1));
        }
        let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        let ends = certificate.and_then(|certificate| ends_der(certificate)).unwrap_or_default();
        Ok((self.0.known(&user)?, Credential { text: user.uid, ends }))
    }
}

impl Protocol for Sessions {
    fn name(&self) -> &'static [u8] {
        transport::PROTOCOL
    }

    fn task(&self) -> &'static tasks::Kind {
        static SESSION: tasks::Kind = tasks::Kind::new("link-session");
        &SESSION
    }

    fn speak(&self, server: Arc<Server>, who: Result<User>, stream: TlsStream) -> BoxFuture<'static, ()> {
        let fleet = self.0.clone();
        match self.let_in(who, &stream) {
            Ok((edge, credential)) => Box::pin(session::run(fleet, server, edge, credential, Line::over(stream))),
            Err(status) => Box::pin(async move {
                let after = status.details.map_or(0, |details| details.retry_after_seconds);
                let retry_after = (after > 0).then_some(after.into());
                let refusal = Refusal { code: status.code, message: status.message, retry_after };
                transport::refuse(stream, &refusal).await;
            }),
        }
    }
}
