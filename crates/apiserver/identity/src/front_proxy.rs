//! The certificate authority by which aggregated API servers know this server.
//!
//! An aggregated API server believes the `X-Remote-` headers of a client whose certificate this authority signed for
//! one of the names in `requestheader-allowed-names`. The authority is not the one of clients: no certificate that a
//! client can ask for is good here. Each workspace has a name of its own, so a server that one workspace registered
//! does not believe what is proxied for another workspace.

use std::path::Path;

use aws_lc_rs::digest::{SHA256, digest};
use rustls::crypto::CryptoProvider;

use super::{
    Error, files,
    pki::{Authority, Pair, Purpose, issue, open_ca},
    token::ROOT,
};

const AUTHORITY: Authority = Authority {
    file: "front-proxy-ca",
    common_name: "selvedge-front-proxy-ca",
    loss: "together with the other front-proxy-ca file; aggregated API servers read the new one from the ConfigMap \
           kube-system/extension-apiserver-authentication",
};
const NAME: &str = "front-proxy-client";
/// A year. A new certificate is issued in good time, and whenever the server starts.
const SECONDS: i64 = 365 * 24 * 60 * 60;

pub struct FrontProxy {
    ca: Pair,
}

impl FrontProxy {
    pub(super) fn open(dir: &Path, now: i64, provider: &CryptoProvider) -> Result<Self, Error> {
        Ok(Self { ca: open_ca(dir, &AUTHORITY, now, provider)? })
    }

    /// The authority's certificate.
    pub fn pem(&self) -> &str {
        &self.ca.certificate
    }

    /// The certificate and key that this server shows for requests to a workspace.
    pub fn issue(&self, cluster: &str, now: i64) -> Result<Pair, Error> {
        issue(&self.ca, &Purpose::Client { name: &name(cluster), group: "" }, SECONDS, now)
    }
}

/// The common name under which requests to a workspace are proxied.
pub fn name(cluster: &str) -> String {
    if cluster == ROOT {
        return NAME.to_owned();
    }
    // Paths of workspaces may be longer than a common name.
    let hash = digest(&SHA256, cluster.as_bytes());
    let hex: String = hash.as_ref()[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{NAME}-{hex}")
}

/// The files that several servers over one store share, made if they are not there.
pub(super) fn found(dir: &Path, now: i64) -> Result<Vec<(String, String)>, Error> {
    files::make_dir(dir)?;
    let ca = open_ca(dir, &AUTHORITY, now, &rustls::crypto::aws_lc_rs::default_provider())?;
    Ok(FILES.into_iter().map(str::to_owned).zip([ca.certificate, ca.key]).collect())
}

/// The names of these files.
pub(super) const FILES: [&str; 2] = ["front-proxy-ca.crt", "front-proxy-ca.key"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workspace_has_a_short_name_of_its_own() {
        assert_eq!(name("root"), "front-proxy-client");
        assert_ne!(name("root:a"), name("root:b"));
        assert!(name(&"root:a".repeat(50)).len() <= 64);
    }

    #[test]
    fn the_authority_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let first = FrontProxy::open(dir.path(), 1_800_000_000, &provider).unwrap();
        let again = FrontProxy::open(dir.path(), 1_800_000_100, &provider).unwrap();
        assert_eq!(first.pem(), again.pem());
        assert!(first.issue("root:a", 1_800_000_000).unwrap().certificate.contains("BEGIN CERTIFICATE"));
    }
}
