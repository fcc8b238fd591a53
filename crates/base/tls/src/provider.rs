//! The cryptography.

use std::sync::{Arc, OnceLock};

use rustls::{
    CipherSuite,
    crypto::{CryptoProvider, aws_lc_rs},
};

/// What everything uses that speaks with programs of others. There is one for the whole process.
pub fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    PROVIDER.get_or_init(|| Arc::new(aws_lc_rs::default_provider())).clone()
}

/// For a link of which both ends are this program: one cipher suite and one key exchange, TLS 1.3 only. The first
/// messages of a handshake are shorter, as nothing else is offered.
pub fn narrow_provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    let narrow = || CryptoProvider {
        cipher_suites: vec![aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256],
        kx_groups: vec![aws_lc_rs::kx_group::X25519],
        ..aws_lc_rs::default_provider()
    };
    PROVIDER.get_or_init(|| Arc::new(narrow())).clone()
}

/// Offers this cipher suite before the others.
pub fn provider_preferring(suite: CipherSuite) -> Arc<CryptoProvider> {
    let mut provider = aws_lc_rs::default_provider();
    provider.cipher_suites.sort_by_key(|offered| offered.suite() != suite);
    Arc::new(provider)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_preferred_suite_comes_first_and_no_other_is_lost() {
        let wanted = CipherSuite::TLS13_AES_128_GCM_SHA256;
        let (usual, preferring) = (provider(), provider_preferring(wanted));
        assert_eq!(preferring.cipher_suites[0].suite(), wanted);
        assert_ne!(usual.cipher_suites[0].suite(), wanted);
        assert_eq!(preferring.cipher_suites.len(), usual.cipher_suites.len());
        assert!(Arc::ptr_eq(&usual, &provider()) && Arc::ptr_eq(&narrow_provider(), &narrow_provider()));
        assert_eq!((narrow_provider().cipher_suites.len(), narrow_provider().kx_groups.len()), (1, 1));
    }
}
