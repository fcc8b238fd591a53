//! TLS of clients.

use std::sync::Arc;

use rustls::{
    ClientConfig, RootCertStore,
    client::{Resumption, WebPkiServerVerifier},
    crypto::CryptoProvider,
};

use crate::{
    Error, Identity, Trust, narrow_provider, provider,
    verify::{Check, ServerVerifier},
};

/// Builds the TLS configuration of a client.
#[derive(Clone, Debug)]
pub struct Client {
    trust: Trust,
    provider: Arc<CryptoProvider>,
    is_narrow: bool,
    identity: Option<Identity>,
    alpn: Vec<Vec<u8>>,
    resumable: Option<usize>,
}

impl Client {
    pub fn new(trust: Trust) -> Self {
        Self { trust, provider: provider(), is_narrow: false, identity: None, alpn: Vec::new(), resumable: None }
    }

    /// Shows this certificate to servers that ask for one.
    pub fn identity(self, identity: impl Into<Option<Identity>>) -> Self {
        Self { identity: identity.into(), ..self }
    }

    /// Protocols that are offered, the preferred one first.
    pub fn alpn(self, protocols: &[&[u8]]) -> Self {
        Self { alpn: protocols.iter().map(|protocol| protocol.to_vec()).collect(), ..self }
    }

    /// For a server that is this program too: TLS 1.3 with [`narrow_provider`].
    pub fn narrow(self) -> Self {
        Self { provider: narrow_provider(), is_narrow: true, ..self }
    }

    pub fn provider(self, provider: Arc<CryptoProvider>) -> Self {
        Self { provider, ..self }
    }

    /// Keeps this many sessions for resumption, instead of the 256 that rustls keeps. Clones of a configuration share
    /// them.
    pub fn resumable_sessions(self, number: usize) -> Self {
        Self { resumable: Some(number), ..self }
    }

    pub fn build(self) -> Result<ClientConfig, Error> {
        let builder = ClientConfig::builder_with_provider(self.provider.clone());
        let builder = match self.is_narrow {
            true => builder.with_protocol_versions(&[&rustls::version::TLS13])?,
            false => builder.with_safe_default_protocol_versions()?,
        };
        let provider = self.provider;
        let builder = match check(self.trust, &provider)? {
            Checked::ByRustls(roots) => builder.with_root_certificates(roots),
            Checked::ByUs(check) => {
                let verifier = ServerVerifier { check, provider };
                builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
            }
        };
        let mut config = match self.identity {
            Some(identity) => builder.with_client_auth_cert(identity.chain, identity.key)?,
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = self.alpn;
        if let Some(number) = self.resumable {
            config.resumption = Resumption::in_memory_sessions(number);
        }
        Ok(config)
    }
}

/// The same configuration for other protocols. Sessions are resumed from one to the other.
pub fn with_alpn(config: &ClientConfig, protocols: &[&[u8]]) -> ClientConfig {
    let mut config = config.clone();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    config
}

enum Checked {
    ByRustls(Arc<RootCertStore>),
    ByUs(Check),
}

fn check(trust: Trust, provider: &Arc<CryptoProvider>) -> Result<Checked, Error> {
    let chain = |roots| WebPkiServerVerifier::builder_with_provider(roots, provider.clone()).build();
    Ok(Checked::ByUs(match trust {
        Trust::Roots(roots) => return Ok(Checked::ByRustls(roots)),
        Trust::RootsForAnyName(roots) => Check::Chain { roots },
        Trust::RootsOrListed(listed) => {
            // A certificate that cannot be an authority may still be shown itself.
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(listed.iter().cloned());
            Check::ChainOrListed { chain: chain(Arc::new(roots))?, listed }
        }
        Trust::RootsIfIssuer(roots) => Check::ChainIfIssuer { issuers: roots.subjects(), chain: chain(roots)? },
        Trust::Pinned(pin) => Check::Pinned(pin),
        Trust::Anyone => Check::Nothing,
    }))
}
