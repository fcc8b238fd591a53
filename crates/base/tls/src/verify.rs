//! The verifiers: one for certificates of servers, one for certificates of clients.

use std::sync::Arc;

use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_cert_signed_by_trust_anchor, verify_server_name,
    },
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::{
        ParsedCertificate,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
};

use crate::Fingerprint;

/// What is checked of a server's certificate besides the signature of the handshake.
#[derive(Debug)]
pub(crate) enum Check {
    Chain { roots: Arc<RootCertStore> },
    ChainOrListed { chain: Arc<WebPkiServerVerifier>, listed: Vec<CertificateDer<'static>> },
    ChainIfIssuer { chain: Arc<WebPkiServerVerifier>, issuers: Vec<DistinguishedName> },
    Pinned(Fingerprint),
    Nothing,
}

#[derive(Debug)]
pub(crate) struct ServerVerifier {
    pub(crate) check: Check,
    pub(crate) provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match &self.check {
            Check::Chain { roots } => {
                let parsed = ParsedCertificate::try_from(certificate)?;
                let algorithms = self.provider.signature_verification_algorithms.all;
                verify_server_cert_signed_by_trust_anchor(&parsed, roots, intermediates, now, algorithms)?;
            }
            Check::ChainOrListed { chain, listed } => {
                let usual = chain.verify_server_cert(certificate, intermediates, name, ocsp, now);
                if usual.is_ok() || !listed.contains(certificate) {
                    return usual;
                }
                verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
                verify_time(certificate, now)?;
            }
            Check::ChainIfIssuer { chain, issuers } => {
                if is_issued_by(certificate, issuers) {
                    return chain.verify_server_cert(certificate, intermediates, name, ocsp, now);
                }
            }
            Check::Pinned(pin) => {
                if Fingerprint::of(certificate) != *pin {
                    return Err(CertificateError::ApplicationVerificationFailure.into());
                }
            }
            Check::Nothing => {}
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

fn is_issued_by(certificate: &CertificateDer<'_>, issuers: &[DistinguishedName]) -> bool {
    // A certificate that cannot be read names nobody. Its signature is checked nevertheless.
    let Ok((_, parsed)) = x509_parser::parse_x509_certificate(certificate) else { return false };
    issuers.iter().any(|issuer| issuer.as_ref() == parsed.issuer().as_raw())
}

fn verify_time(certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), Error> {
    let parsed = x509_parser::parse_x509_certificate(certificate);
    let (_, parsed) = parsed.map_err(|_| CertificateError::BadEncoding)?;
    let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    if parsed.validity().not_before.timestamp() > seconds {
        return Err(CertificateError::NotValidYet.into());
    }
    if parsed.validity().not_after.timestamp() < seconds {
        return Err(CertificateError::Expired.into());
    }
    Ok(())
}

/// Asks clients for a certificate and checks that they have its key. A client may have none. The chain is left to the
/// application, which can answer in words.
#[derive(Debug)]
pub(crate) struct ClientVerifier {
    /// Clients are told which authorities are known, so that they choose a certificate of one.
    pub(crate) hints: Vec<DistinguishedName>,
    pub(crate) provider: Arc<CryptoProvider>,
}

impl ClientCertVerifier for ClientVerifier {
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
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
