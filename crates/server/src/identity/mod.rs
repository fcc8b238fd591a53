//! Who is who: the server's own certificates and keys, and the users behind requests.

pub mod authenticate;
pub mod authorize;
mod controller_policy;
mod error;
mod escalation;
mod files;
pub mod impersonate;
pub mod keys;
pub mod kubeconfig;
pub mod node_authorizer;
pub mod nodes;
pub mod pki;
pub mod pod_references;
pub mod policy;
pub mod rbac;
pub mod reviews;
pub mod signing;
pub mod token;
pub mod token_request;

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use api::status::{Result, Status};
use http::HeaderMap;
use serde_json::Value;

pub use authenticate::{Authenticator, Bound, Found, Lookup, Peer, User};
pub use authorize::{Attributes, Authorizer, Decision};
pub use error::Error;

use keys::Keys;
use pki::Pki;
use token::Tokens;

/// Everything a server needs to be itself and to know others.
pub struct Identity {
    pki: Pki,
    authenticator: Authenticator,
    kubeconfig: PathBuf,
    address: SocketAddr,
}

impl Identity {
    /// Reads the identity below `data_dir`, or makes it on the first start. `address` is where the server listens.
    pub fn open(data_dir: &Path, address: SocketAddr, extra_names: &[String]) -> Result<Self, Error> {
        let now = now();
        let dir = data_dir.join("pki");
        // The first random number takes tens of milliseconds, while entropy is gathered: better now than for the first client.
        let warm_up = || aws_lc_rs::rand::fill(&mut [0; 8]);
        std::thread::Builder::new().name("warm-up".to_owned()).spawn(warm_up).map_err(|e| Error::Key(e.to_string()))?;
        // Making the first key takes longest, and nobody needs it at once.
        let keys = Keys::open(&dir, now)?;
        let names = pki::serving_names(address.ip(), hostname().as_deref(), extra_names);
        let pki = Pki::open(&dir, &names, now)?;
        let authenticator = Authenticator::new(Tokens::new(keys), pki.token().to_owned());
        Ok(Self { pki, authenticator, kubeconfig: data_dir.join("admin.kubeconfig"), address })
    }

    /// Tells the administrator where the API is: the last step before requests are served.
    pub fn publish(&self, address: SocketAddr) -> Result<(), Error> {
        let server = kubeconfig::server_url(address, None);
        kubeconfig::write(&self.kubeconfig, &server, self.pki.ca_pem(), self.pki.admin())
    }

    pub fn pki(&self) -> &Pki {
        &self.pki
    }

    pub fn ca_pem(&self) -> &str {
        self.pki.ca_pem()
    }

    pub fn tls(&self) -> Result<Arc<rustls::ServerConfig>, Error> {
        self.pki.tls().map(Arc::new)
    }

    /// The user behind a request, before impersonation.
    pub fn authenticate(&self, peer: &Peer, headers: &HeaderMap, lookup: &dyn Lookup) -> Result<User> {
        self.authenticator.authenticate(peer, headers, lookup, now())
    }

    pub fn authenticator(&self) -> &Authenticator {
        &self.authenticator
    }

    pub fn tokens(&self) -> &Tokens {
        self.authenticator.tokens()
    }

    pub fn openid_configuration(&self) -> Value {
        token::openid_configuration(&kubeconfig::server_url(self.address, None))
    }

    pub fn jwks(&self) -> Result<Value> {
        self.tokens().jwks(now()).map_err(Status::internal)
    }
}

/// Seconds since 1970.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

fn hostname() -> Option<String> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").or_else(|_| fs::read_to_string("/etc/hostname")).ok()?;
    let name = name.trim();
    (!name.is_empty()).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_start_is_quick_and_leaves_a_kubeconfig() {
        let dir = tempfile::tempdir().unwrap();
        let address = "127.0.0.1:6443".parse().unwrap();
        let started = std::time::Instant::now();
        let identity = Identity::open(dir.path(), address, &[]).unwrap();
        identity.tls().unwrap();
        identity.publish(address).unwrap();
        // Far above what it takes even in a debug build, far below making an RSA key on a slow machine.
        assert!(started.elapsed().as_millis() < 2000, "{:?}", started.elapsed());
        let text = fs::read_to_string(dir.path().join("admin.kubeconfig")).unwrap();
        assert!(text.contains("https://127.0.0.1:6443"));
        assert_eq!(identity.jwks().unwrap()["keys"][0]["alg"], "RS256");
        assert!(identity.openid_configuration()["jwks_uri"].as_str().unwrap().ends_with("/openid/v1/jwks"));
    }
}
