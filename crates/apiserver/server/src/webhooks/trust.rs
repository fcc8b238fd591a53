//! Whose certificates a webhook may show: those of its `caBundle`, or of the system's authorities when it has none.

use std::{path::Path, sync::Arc};

use base64::{Engine, engine::general_purpose::STANDARD};
use rustls::{
    CertificateError, ClientConfig, ConfigBuilder, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WantsClientCert, WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
    server::ParsedCertificate,
};
use x509_parser::prelude::FromDer;

/// Where distributions keep the authorities that everybody trusts.
const SYSTEM: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// TLS towards a webhook. `bundle` is its `caBundle`: PEM in base64, or nothing.
pub fn tls(bundle: &str) -> Result<Arc<ClientConfig>, String> {
    let mut config = verifying(bundle)?.with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// A client's TLS that checks the other end by a `caBundle`. Which certificate the client shows is still open.
pub fn verifying(bundle: &str) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, String> {
    let trusted = if bundle.is_empty() { of_system() } else { of_bundle(bundle)? };
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(trusted.iter().cloned());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .build()
        .map_err(|error| format!("unable to load root certificates: {error}"))?;
    let named = if bundle.is_empty() { Vec::new() } else { trusted };
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| error.to_string())?;
    Ok(builder.dangerous().with_custom_certificate_verifier(Arc::new(Verifier { verifier, named })))
}

fn of_bundle(bundle: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let unusable = || "unable to load root certificates: unable to parse bytes as PEM block".to_owned();
    let pem = STANDARD.decode(bundle).map_err(|_| unusable())?;
    let found: Vec<_> = CertificateDer::pem_slice_iter(&pem).filter_map(Result::ok).collect();
    if found.is_empty() { Err(unusable()) } else { Ok(found) }
}

fn of_system() -> Vec<CertificateDer<'static>> {
    let file = std::env::var("SSL_CERT_FILE").ok();
    let mut files = file.as_deref().into_iter().chain(SYSTEM).map(Path::new);
    let Some(found) = files.find_map(|path| CertificateDer::pem_file_iter(path).ok()) else { return Vec::new() };
    found.filter_map(Result::ok).collect()
}

/// The usual checks, and besides them one that people rely on: a self-signed certificate that the bundle itself holds is
/// trusted, even if it says that it is an authority, as what `openssl req -x509` makes does.
#[derive(Debug)]
struct Verifier {
    verifier: Arc<WebPkiServerVerifier>,
    named: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let usual = self.verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        if usual.is_ok() || !self.named.iter().any(|known| known == end_entity) {
            return usual;
        }
        verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
        let (_, parsed) = x509_parser::certificate::X509Certificate::from_der(end_entity)
            .map_err(|_| CertificateError::BadEncoding)?;
        let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        if parsed.validity().not_before.timestamp() > seconds {
            return Err(CertificateError::NotValidYet.into());
        }
        if parsed.validity().not_after.timestamp() < seconds {
            return Err(CertificateError::Expired.into());
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}

/// A failed handshake in the words that people search for.
pub fn describe(error: &Error, server_name: &str) -> String {
    let why = match error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "x509: certificate signed by unknown authority".to_owned()
        }
        Error::InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. }) => {
            "x509: certificate has expired or is not yet valid".to_owned()
        }
        Error::InvalidCertificate(CertificateError::NotValidForName) => {
            format!("x509: certificate is not valid for {server_name}")
        }
        Error::InvalidCertificate(CertificateError::NotValidForNameContext { presented, .. }) => {
            let shown = presented.iter().map(|name| name.split_once('(').map_or(name.as_str(), |(_, n)| n));
            let shown: Vec<&str> = shown.map(|n| n.trim_end_matches(')').trim_matches('"')).collect();
            match shown.is_empty() {
                true => "x509: certificate relies on legacy Common Name field, use SANs instead".to_owned(),
                false => format!("x509: certificate is valid for {}, not {server_name}", shown.join(", ")),
            }
        }
        Error::InvalidCertificate(other) => format!("x509: {other}"),
        other => return format!("tls: {other}"),
    };
    format!("tls: failed to verify certificate: {why}")
}
