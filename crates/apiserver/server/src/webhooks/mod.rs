//! Calling webhooks: one HTTPS request with a JSON body and a JSON answer, within limits of time and size.

mod address;
mod connect;
pub mod convert;
mod endpoint;
mod reach;
mod trust;

pub(crate) use address::Address;
pub(crate) use connect::Connector;
pub(crate) use endpoint::{Failure, failure};
pub(crate) use trust::{describe, verifying};

pub use convert::Conversions;
pub use endpoint::Endpoint;
pub use reach::{Network, Reach};
