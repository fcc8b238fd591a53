//! How clients show certificates, and who vouches for them.

use std::sync::Arc;

use rustls::{
    DigitallySignedStruct, DistinguishedName, RootCertStore,
    client::danger::HandshakeSignatureValid,
    crypto::CryptoProvider,
    pki_types::{CertificateDer, UnixTime, pem::PemObject},
    server::{
        WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
};

/// Asks clients for a certificate and checks that they have its key. Whether anybody vouches for it is decided for each
/// request, where the client can be told in words.
#[derive(Debug)]
pub(super) struct AskOnly {
    hints: Vec<DistinguishedName>,
    provider: Arc<CryptoProvider>,
}

impl AskOnly {
    /// Clients are told which authorities are known, so that they choose a certificate of one.
    pub(super) fn new(known: &RootCertStore, provider: &Arc<CryptoProvider>) -> Self {
        Self { hints: known.subjects(), provider: provider.clone() }
    }
}

impl ClientCertVerifier for AskOnly {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

pub(super) fn certificates_of(pem: &str) -> Result<Vec<CertificateDer<'static>>, rustls::Error> {
    let found = CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>();
    found.map_err(|e| rustls::Error::General(e.to_string()))
}

pub(super) fn roots_of(certificates: Vec<CertificateDer<'static>>) -> Result<Arc<RootCertStore>, rustls::Error> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        roots.add(certificate)?;
    }
    Ok(Arc::new(roots))
}

pub(super) fn client_verifier(
    roots: Arc<RootCertStore>,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, rustls::Error> {
    WebPkiClientVerifier::builder_with_provider(roots, provider.clone())
        .allow_unauthenticated()
        .build()
        .map_err(|e| rustls::Error::General(e.to_string()))
}
