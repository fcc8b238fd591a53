//! What can go wrong between dialling and the first message, told apart so that each can be said in its own words.

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

/// What kind of refusal it is, in HTTP's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code(pub u16);

impl Error {
    /// Whether waiting may help: nobody answers, or who answers is overrun.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Timeout { .. } | Self::Lost(_) | Self::NotACenter(_) => true,
            Self::Proxy(error) => error.may_pass(),
            Self::Refused { code, .. } => matches!(code.0, 429 | 500..=504 | 507),
            Self::Url { .. } | Self::Tls { .. } | Self::Identity(_) | Self::Frame(_) => false,
        }
    }
}
