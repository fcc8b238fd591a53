//! SPDY/3.1 from the side of a server, as Kubernetes' clients speak it: streams that the client opens, and nothing else.
//!
//! Windows are told to whoever wants to know them, but what is sent here does not wait for them: the clients that there are never open one
//! again. What the connection underneath takes is what there is of flow control, as upstream has it.

pub mod connection;
mod dictionary;
pub mod frame;
pub mod headers;
pub mod session;

/// Why a session cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    #[error("the other end does not keep to the protocol")]
    Protocol,
    #[error("headers that cannot be unpacked")]
    Headers,
    #[error("a frame that is too large")]
    TooBig,
}
