//! Certificates and keys from PEM.

use std::{path::Path, sync::Arc};

use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    sign::CertifiedKey,
};

use crate::{Error, provider};

/// Where distributions keep the authorities that everybody trusts.
const SYSTEM_FILES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// A certificate with those that vouch for it, and its key.
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

impl Identity {
    /// All certificates of one text and the first key of the other.
    pub fn from_pem(certificates: &str, key: &str) -> Result<Self, Error> {
        let chain = crate::certificates(certificates)?;
        if chain.is_empty() {
            return Err(Error::NoCertificate);
        }
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|error| Error::Pem(error.to_string()))?;
        Ok(Self { chain, key })
    }

    /// In the form that a server shows. It is an error if the key is not the certificate's.
    pub fn certified(&self) -> Result<CertifiedKey, Error> {
        Ok(CertifiedKey::from_der(self.chain.clone(), self.key.clone_key(), &provider())?)
    }
}

/// All certificates of a text, perhaps none. Anything else that is PEM is passed over.
pub fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, Error> {
    let found = CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>();
    found.map_err(|error| Error::Pem(error.to_string()))
}

/// Authorities to trust. A certificate that cannot be one is an error.
pub fn roots(certificates: impl IntoIterator<Item = CertificateDer<'static>>) -> Result<Arc<RootCertStore>, Error> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        roots.add(certificate)?;
    }
    Ok(Arc::new(roots))
}

/// The authorities that the system trusts: those of the file that `SSL_CERT_FILE` names, or of the distribution's.
/// What is not readable in that file is left out.
pub fn system_certificates() -> Vec<CertificateDer<'static>> {
    let named = std::env::var("SSL_CERT_FILE").ok();
    first_readable(named.as_deref().into_iter().chain(SYSTEM_FILES).map(Path::new))
}

fn first_readable<'a>(mut files: impl Iterator<Item = &'a Path>) -> Vec<CertificateDer<'static>> {
    let found = files.find_map(|path| CertificateDer::pem_file_iter(path).ok());
    found.map(|found| found.filter_map(Result::ok).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(name: &str) -> (String, String) {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
        (made.cert.pem(), made.signing_key.serialize_pem())
    }

    #[test]
    fn an_identity_has_its_certificates_and_the_right_key() {
        let ((one, key), (other, other_key)) = (made("a"), made("b"));
        let identity = Identity::from_pem(&format!("{one}{other}"), &key).unwrap();
        assert_eq!(identity.clone().chain.len(), 2);
        assert!(identity.certified().is_ok());
        assert!(Identity::from_pem(&one, &other_key).unwrap().certified().is_err(), "the key is another's");
        assert!(matches!(Identity::from_pem(&key, &key), Err(Error::NoCertificate)));
        assert!(matches!(Identity::from_pem(&one, "nothing"), Err(Error::Pem(_))));
        assert!(matches!(Identity::from_pem("-----BEGIN CERTIFICATE-----\n!", &key), Err(Error::Pem(_))));
    }

    #[test]
    fn the_first_file_that_is_there_counts() {
        let dir = tempfile::tempdir().unwrap();
        let (file, missing) = (dir.path().join("there"), dir.path().join("missing"));
        let (one, _) = made("a");
        std::fs::write(&file, format!("{one}-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n{one}"))
            .unwrap();
        assert_eq!(first_readable([&*missing, &*file].into_iter()).len(), 2);
        assert_eq!(first_readable([&*missing].into_iter()).len(), 0);
    }

    #[test]
    fn roots_are_read() {
        let (one, _) = made("a");
        assert_eq!(roots(certificates(&one).unwrap()).unwrap().len(), 1);
        assert!(roots([CertificateDer::from(vec![1, 2, 3])]).is_err());
    }
}
