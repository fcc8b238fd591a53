//! The link over real connections, on the API's port, over TLS that trusts only the center's own authority.
//!
//! The edge dials. Its session is a [`Line`]: messages ([`Message`](crate::Message)) in gRPC's framing on a TLS
//! connection of their own, which is requested by ALPN ([`PROTOCOL`]). Calls and byte streams go over HTTP/2
//! ([`Connection`], [`Stream`]), on a second connection that exists while it is needed. An idle link keeps no buffers:
//! queues are empty, and a compressor exists only while one message is encoded.

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

/// The ALPN protocol name of a session.
pub const PROTOCOL: &[u8] = b"selvedge-link";

/// HTTP paths of the link's streams and calls.
pub mod paths {
    pub const PREFIX: &str = "/selvedge.link.v1.Link/";
    pub const FORWARD: &str = "/selvedge.link.v1.Link/Forward";
    pub const TUNNEL: &str = "/selvedge.link.v1.Link/Tunnel";
    pub const JOIN: &str = "/selvedge.link.v1.Link/Join";
    /// Header of a tunnel with its ticket in 32 hexadecimal digits.
    pub const TICKET: &str = "selvedge-ticket";
}

/// The error of a request or response body.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
type AnyBody = http_body_util::combinators::UnsyncBoxBody<bytes::Bytes, BoxError>;

#[cfg(test)]
mod tests;
