//! TLS of the edge's end: the center's own authority, never the system's.

use std::sync::Arc;

use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore,
    client::{
        Resumption,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime},
};

pub const HTTP2: &[u8] = b"h2";

/// The edge's certificate, with those that vouch for it, and its key.
#[derive(Debug)]
pub struct Identity {
    pub chain: Vec<CertificateDer<'static>>,
    pub key: PrivateKeyDer<'static>,
}

impl Clone for Identity {
    fn clone(&self) -> Self {
        Self { chain: self.chain.clone(), key: self.key.clone_key() }
    }
}

/// Both ends are ours: what is offered is what is chosen, and every reconnect says less.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider {
        cipher_suites: vec![aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256],
        kx_groups: vec![aws_lc_rs::kx_group::X25519],
        ..aws_lc_rs::default_provider()
    })
}

/// Trusts only these roots.
pub fn client_config(
    roots: &[CertificateDer<'static>],
    identity: Option<Identity>,
) -> Result<ClientConfig, rustls::Error> {
    let mut store = RootCertStore::empty();
    for root in roots {
        store.add(root.clone())?;
    }
    let config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(store);
    let config = match identity {
        Some(identity) => config.with_client_auth_cert(identity.chain, identity.key)?,
        None => config.with_no_client_auth(),
    };
    Ok(ours(config))
}

/// Trusts whoever answers: for fetching what is checked against a pin afterwards, and for nothing else.
pub fn observe() -> Result<ClientConfig, rustls::Error> {
    let provider = provider();
    let config = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody(provider)))
        .with_no_client_auth();
    Ok(ours(config))
}

fn ours(mut config: ClientConfig) -> ClientConfig {
    config.alpn_protocols = vec![HTTP2.to_vec()];
    // There is one center: what resuming saves on the wire is worth two sessions' memory, not two hundred's.
    config.resumption = Resumption::in_memory_sessions(2);
    config
}

/// The same for something else to be spoken. Sessions of TLS are resumed from one to the other.
pub fn speaking(config: &ClientConfig, protocol: &[u8]) -> ClientConfig {
    let mut config = config.clone();
    config.alpn_protocols = vec![protocol.to_vec()];
    config
}

#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
