//! Which servers a client accepts.

use std::{fmt, sync::Arc};

use rustls::{RootCertStore, pki_types::CertificateDer};

/// SHA-256 of a certificate in DER.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    pub fn of(certificate: &CertificateDer<'_>) -> Self {
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, certificate);
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest.as_ref());
        Self(bytes)
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Which servers a client accepts. The signature of the handshake is checked in every case.
#[derive(Clone, Debug)]
pub enum Trust {
    /// Those with a certificate that these authorities have signed, for the name that is connected to.
    Roots(Arc<RootCertStore>),
    /// Those with a certificate that these authorities have signed, for whatever name.
    RootsForAnyName(Arc<RootCertStore>),
    /// As [`Trust::Roots`], and besides those that show one of these certificates itself, for the name that is
    /// connected to and in its time. People make such certificates with `openssl req -x509`, which says that they are
    /// authorities.
    RootsOrListed(Vec<CertificateDer<'static>>),
    /// Those whose certificate names one of these authorities as its issuer are checked as with [`Trust::Roots`]. All
    /// others are accepted.
    RootsIfIssuer(Arc<RootCertStore>),
    /// The one with exactly this certificate, whatever its name and time.
    Pinned(Fingerprint),
    /// Everyone: for asking whether something answers, or for fetching what is checked by other means.
    Anyone,
}
