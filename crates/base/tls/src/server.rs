//! TLS of servers.

use std::sync::Arc;

use rustls::{
    RootCertStore, ServerConfig,
    crypto::CryptoProvider,
    server::{ResolvesServerCert, ServerSessionMemoryCache, WebPkiClientVerifier, danger::ClientCertVerifier},
};

use crate::{Error, provider, verify::ClientVerifier};

/// Whether clients are asked for a certificate.
#[derive(Clone, Debug, Default)]
pub enum Clients {
    #[default]
    NotAsked,
    /// Clients may show a certificate and must have its key. They are told that these authorities are known. Whether
    /// one of them signed it is not checked in the handshake: see [`client_verifier`].
    Asked(Arc<RootCertStore>),
    /// Clients must show a certificate that these authorities have signed.
    Required(Arc<RootCertStore>),
}

/// Builds the TLS configuration of a server.
#[derive(Clone, Debug)]
pub struct Server {
    certificate: Arc<dyn ResolvesServerCert>,
    clients: Clients,
    provider: Arc<CryptoProvider>,
    alpn: Vec<Vec<u8>>,
    resumable: Option<usize>,
}

impl Server {
    /// A server that shows what this resolver chooses, such as `rustls::sign::SingleCertAndKey` or one that renews.
    pub fn new(certificate: Arc<dyn ResolvesServerCert>) -> Self {
        Self { certificate, clients: Clients::NotAsked, provider: provider(), alpn: Vec::new(), resumable: None }
    }

    pub fn clients(self, clients: Clients) -> Self {
        Self { clients, ..self }
    }

    /// Protocols that are spoken, the preferred one first.
    pub fn alpn(self, protocols: &[&[u8]]) -> Self {
        Self { alpn: protocols.iter().map(|protocol| protocol.to_vec()).collect(), ..self }
    }

    pub fn provider(self, provider: Arc<CryptoProvider>) -> Self {
        Self { provider, ..self }
    }

    /// Keeps this many sessions in memory for resumption and gives each client one ticket. A session takes about a
    /// kilobyte here. Stateless tickets would carry the client's certificate over the wire each time.
    pub fn resumable_sessions(self, number: usize) -> Self {
        Self { resumable: Some(number), ..self }
    }

    pub fn build(self) -> Result<ServerConfig, Error> {
        let builder =
            ServerConfig::builder_with_provider(self.provider.clone()).with_safe_default_protocol_versions()?;
        let builder = match self.clients {
            Clients::NotAsked => builder.with_no_client_auth(),
            Clients::Asked(known) => {
                let verifier = ClientVerifier { hints: known.subjects(), provider: self.provider };
                builder.with_client_cert_verifier(Arc::new(verifier))
            }
            Clients::Required(roots) => {
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, self.provider).build()?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut config = builder.with_cert_resolver(self.certificate);
        config.alpn_protocols = self.alpn;
        if let Some(number) = self.resumable {
            config.session_storage = ServerSessionMemoryCache::new(number);
            config.send_tls13_tickets = 1;
        }
        Ok(config)
    }
}

/// Checks certificates of clients after the handshake, for servers that only ask for them.
pub fn client_verifier(roots: Arc<RootCertStore>) -> Result<Arc<dyn ClientCertVerifier>, Error> {
    Ok(WebPkiClientVerifier::builder_with_provider(roots, provider()).allow_unauthenticated().build()?)
}
