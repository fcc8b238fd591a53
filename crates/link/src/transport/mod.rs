//! The link over a real connection: gRPC's framing of [`Message`](crate::Message) on HTTP/2, over TLS that trusts the center's own
//! authority and nobody else.
//!
//! The edge dials ([`Dial`], [`Connection`]); the center takes requests from its API's port ([`accept`], [`accept_stream`]). Both get a
//! [`Line`] of messages, or a [`Stream`] of bytes. Nothing is kept for a link that is idle: queues are empty, compressors exist for
//! as long as one message takes.

mod accept;
mod connection;
mod dial;
mod error;
mod frame;
mod line;
mod pipe;
mod proxy;
mod stream;
mod tls;

pub use accept::{ResponseBody, accept, accept_stream, refuse};
pub use connection::Connection;
pub use dial::Dial;
pub use error::{Code, Error};
pub use frame::FrameError;
pub use line::{Gone, Line, LineSender};
pub use proxy::{Proxy, ProxyError};
pub use stream::Stream;
pub use tls::{Identity, client_config, observe};

/// Where the streams and calls of the link are served.
pub mod paths {
    pub const PREFIX: &str = "/selvedge.link.v1.Link/";
    pub const SESSION: &str = "/selvedge.link.v1.Link/Session";
    pub const FORWARD: &str = "/selvedge.link.v1.Link/Forward";
    pub const TUNNEL: &str = "/selvedge.link.v1.Link/Tunnel";
    pub const JOIN: &str = "/selvedge.link.v1.Link/Join";
    /// The header of a tunnel that says with which ticket it is opened, in 32 hexadecimal digits.
    pub const TICKET: &str = "selvedge-ticket";
}

/// Whatever a body fails with.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
type AnyBody = http_body_util::combinators::UnsyncBoxBody<bytes::Bytes, BoxError>;

const GRPC: &str = "application/grpc";

#[cfg(test)]
mod tests;
