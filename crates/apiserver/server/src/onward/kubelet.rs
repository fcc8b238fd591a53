//! How this server is known to kubelets, and they to it.
//!
//! It shows a certificate of its own authority under the name that upstream's servers usually have. A kubelet's certificate is
//! checked if that authority signed it, or against the authority that was named for kubelets; a kubelet that signed its own
//! is taken as it is, as upstream does by default.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use identity::pki::Pki;
use identity::{Error, KUBELET_CLIENT};
use rustls::{
    ClientConfig, DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
};

use super::Node;

#[derive(Default)]
pub struct Kubelets {
    /// The authority that was named for kubelets, in PEM.
    authority: Option<String>,
    made: Mutex<Option<Made>>,
    inside: OnceLock<Arc<dyn Node>>,
}

#[derive(Clone)]
struct Made {
    verified: Arc<ClientConfig>,
    unverified: Arc<ClientConfig>,
    renew_at: i64,
}

impl Kubelets {
    pub fn open(authority: Option<&Path>) -> Result<Self, Error> {
        let Some(path) = authority else { return Ok(Self::default()) };
        let wrong = |why: String| Error::Configuration { path: PathBuf::from(path), why };
        let pem = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        if roots(&pem).map_err(wrong)?.is_empty() {
            return Err(wrong("it holds no certificate".to_owned()));
        }
        Ok(Self { authority: Some(pem), ..Self::default() })
    }

    /// From now on this node answers for itself, in this process.
    pub fn add_inside(&self, node: Arc<dyn Node>) {
        let _ = self.inside.set(node);
    }

    pub fn inside(&self) -> Option<&Arc<dyn Node>> {
        self.inside.get()
    }

    /// TLS towards kubelets, with a certificate that is made when it is first needed and renewed in time.
    pub fn tls(&self, pki: &Pki, verified: bool) -> Result<Arc<ClientConfig>, String> {
        let now = clock::unix();
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = match made.take().filter(|made| made.renew_at > now) {
            Some(made) => made,
            None => self.make(pki, now)?,
        };
        let made = made.insert(fresh);
        Ok(if verified { &made.verified } else { &made.unverified }.clone())
    }

    /// TLS towards whoever answers.
    pub fn anybody(&self) -> Result<Arc<ClientConfig>, String> {
        Ok(Arc::new(unverified()?.with_no_client_auth()))
    }

    fn make(&self, pki: &Pki, now: i64) -> Result<Made, String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let pair = pki.issue_client(KUBELET_CLIENT, "", now).map_err(|error| text(&error))?;
        let certificate = CertificateDer::from_pem_slice(pair.certificate.as_bytes()).map_err(|error| text(&error))?;
        let key = || PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).map_err(|error| text(&error));
        let provider = pki.provider();
        let config = |checked| -> Result<Arc<ClientConfig>, String> {
            let config = with_verifier(Verifier { checked, provider: provider.clone() }, provider)?;
            let config = config.with_client_auth_cert(vec![certificate.clone()], key()?);
            config.map(Arc::new).map_err(|error| text(&error))
        };
        let checked = match &self.authority {
            Some(authority) => vec![Authority::new(authority, true, provider)?],
            None => vec![Authority::new(pki.ca_pem(), false, provider)?],
        };
        let ends = identity::pki::ends(&pair.certificate).unwrap_or(now);
        let renew_at = now + (ends - now) / 2;
        Ok(Made { verified: config(checked)?, unverified: config(Vec::new())?, renew_at })
    }
}

/// A client's TLS that takes any certificate of the other end.
pub fn unverified() -> Result<rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert>, String> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    with_verifier(Verifier { checked: Vec::new(), provider: provider.clone() }, &provider)
}

fn with_verifier(
    verifier: Verifier,
    provider: &Arc<CryptoProvider>,
) -> Result<rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert>, String> {
    let builder = ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| error.to_string())?;
    Ok(builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)))
}

fn roots(pem: &str) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let certificate = certificate.map_err(|error| error.to_string())?;
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    Ok(roots)
}

/// One whose certificates are checked: all that come, or those that say they are of it.
#[derive(Debug)]
struct Authority {
    names: Vec<DistinguishedName>,
    all: bool,
    verifier: Arc<WebPkiServerVerifier>,
}

impl Authority {
    fn new(pem: &str, all: bool, provider: &Arc<CryptoProvider>) -> Result<Self, String> {
        let roots = roots(pem)?;
        let names = roots.subjects();
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build();
        Ok(Self { names, all, verifier: verifier.map_err(|error| error.to_string())? })
    }

    fn checks(&self, certificate: &CertificateDer<'_>) -> bool {
        let issuer = x509_parser::parse_x509_certificate(certificate).ok();
        self.all
            || issuer.is_some_and(|(_, parsed)| self.names.iter().any(|name| name.as_ref() == parsed.issuer().as_raw()))
    }
}

#[derive(Debug)]
struct Verifier {
    checked: Vec<Authority>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match self.checked.iter().find(|authority| authority.checks(end_entity)) {
            Some(authority) => authority.verifier.verify_server_cert(end_entity, intermediates, name, ocsp, now),
            None => Ok(ServerCertVerified::assertion()),
        }
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

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
