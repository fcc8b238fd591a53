//! Errors between dialling and the first message, each with a message of its own.

use super::{BoxError, frame::FrameError, proxy::ProxyError};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{url:?} is no address of a center: {why}")]
    Url { url: String, why: &'static str },
    #[error("cannot reach {address}: {error}")]
    Unreachable { address: String, error: std::io::Error },
    #[error("{address} did not answer within {seconds} s")]
    Timeout { address: String, seconds: u64 },
    #[error(transparent)]
    Proxy(#[from] ProxyError),
    /// The TLS handshake failed; the reason can be looked into.
    #[error("the TLS handshake with {address} failed: {error}")]
    Tls { address: String, error: rustls::Error },
    #[error("{0} does not speak what a center speaks over TLS: is something between that terminates TLS?")]
    NotACenter(String),
    #[error("the link's own certificate or key cannot be used: {0}")]
    Identity(rustls::Error),
    #[error("the connection was lost: {0}")]
    Lost(BoxError),
    #[error("{message}")]
    Refused { code: Code, message: String, retry_after: Option<std::time::Duration> },
    #[error(transparent)]
    Frame(#[from] FrameError),
}

/// The HTTP status code of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code(pub u16);

impl Error {
    /// Whether a retry may help: the center is unreachable or overloaded.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Timeout { .. } | Self::Lost(_) | Self::NotACenter(_) => true,
            Self::Proxy(error) => error.may_pass(),
            Self::Refused { code, .. } => matches!(code.0, 429 | 500..=504 | 507),
            Self::Url { .. } | Self::Tls { .. } | Self::Identity(_) | Self::Frame(_) => false,
        }
    }
}
