//! Calling webhooks: one HTTPS request with a JSON body and a JSON answer, within limits of time and size.

mod address;
mod connect;
mod endpoint;
mod trust;

pub use endpoint::Endpoint;
