//! TLS configuration and certificate verifiers. Everything in the program that speaks TLS gets its configuration here.
//!
//! - [`Client`] builds a `rustls::ClientConfig`. [`Trust`] says which servers it accepts.
//! - [`Server`] builds a `rustls::ServerConfig`. [`Clients`] says whether clients are asked for a certificate.
//! - [`provider`] is the cryptography, aws-lc-rs. [`narrow_provider`] is for links between two programs of ours.
//! - [`Identity`], [`certificates`] and [`roots`] read PEM.
//!
//! Every verifier here checks the signature of the handshake, also those that accept any certificate: the peer has
//! the key of the certificate that it shows. No other code of the program implements rustls' verifier traits.
//!
//! ```
//! use selvedge_tls::{Client, Trust};
//!
//! // For a peer that is asked whether it answers, not who it is.
//! let config = Client::new(Trust::Anyone).alpn(&[b"http/1.1"]).build()?;
//! assert_eq!(config.alpn_protocols, [b"http/1.1"]);
//! # Ok::<(), selvedge_tls::Error>(())
//! ```

mod client;
mod pem;
mod provider;
mod server;
mod trust;
mod verify;

pub use client::{Client, with_alpn};
pub use pem::{Identity, certificates, roots, system_certificates};
pub use provider::{narrow_provider, provider, provider_preferring};
pub use server::{Clients, Server, client_verifier};
pub use trust::{Fingerprint, Trust};

/// HTTP/2 and HTTP/1.1 in ALPN.
pub const HTTP2: &[u8] = b"h2";
pub const HTTP1: &[u8] = b"http/1.1";

#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Tls(#[from] rustls::Error),
    #[error(transparent)]
    Verifier(#[from] rustls::server::VerifierBuilderError),
    #[error("not a certificate or key in PEM: {0}")]
    Pem(String),
    #[error("there is no certificate in it")]
    NoCertificate,
}
