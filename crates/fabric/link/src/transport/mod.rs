//! The link over real connections, on the API's port, over TLS that trusts the center's own authority and nobody else.
//!
//! The edge dials. Its session is a [`Line`]: gRPC's framing of [`Message`](crate::Message) and nothing else, on a TLS connection that is asked for
//! by the name of the protocol ([`PROTOCOL`], ALPN). Calls and streams of bytes go over HTTP/2 ([`Connection`], [`Stream`]), on a second connection that is
//! there while it is needed. Nothing is kept for a link that is idle: queues are empty, compressors exist for as long as one message takes.

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

pub use accept::{ResponseBody, accept_stream};
pub use connection::Connection;
pub use dial::Dial;
pub use error::{Code, Error};
#[cfg(feature = "testing")]
pub(crate) use frame::{FrameDecoder, encode as encode_frame};
pub use frame::{FrameError, Refusal};
pub use line::{Gone, Line, LineSender, refuse};
pub use proxy::{Proxy, ProxyError};
pub use stream::Stream;
pub use tls::{Identity, client_config, observe};

/// What a session is called when TLS is agreed on.
pub const PROTOCOL: &[u8] = b"selvedge-link";

/// Where the streams and calls of the link are served.
pub mod paths {
    pub const PREFIX: &str = "/selvedge.link.v1.Link/";
    pub const FORWARD: &str = "/selvedge.link.v1.Link/Forward";
    pub const TUNNEL: &str = "/selvedge.link.v1.Link/Tunnel";
    pub const JOIN: &str = "/selvedge.link.v1.Link/Join";
    /// The header of a tunnel that says with which ticket it is opened, in 32 hexadecimal digits.
    pub const TICKET: &str = "selvedge-ticket";
}

/// Whatever a body fails with.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
type AnyBody = http_body_util::combinators::UnsyncBoxBody<bytes::Bytes, BoxError>;

#[cfg(test)]
mod tests;
