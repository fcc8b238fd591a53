//! Who is who: the server's own certificates and keys, and the users behind requests.

pub mod authenticate;
pub mod authorize;
pub mod bootstrap_token;
mod controller_policy;
mod error;
mod escalation;
mod files;
pub mod front_proxy;
pub mod impersonate;
pub mod keys;
pub mod kubeconfig;
mod lookup;
pub mod node_authorizer;
pub mod nodes;
mod options;
pub mod pki;
pub mod pod_references;
pub mod policy;
mod proxy;
pub mod rbac;
pub mod reviews;
pub mod shared;
pub mod signing;
mod subject;
mod tls;
pub mod token;
mod token_file;
pub mod token_request;
mod user;

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use http::HeaderMap;
use schema::status::{Result, Status};
use serde_json::Value;

pub use authenticate::{AUTHENTICATED, Authenticator, Bound, Found, Lookup, Peer, User};
pub use authorize::{Attributes, Authorizer, Decision};
pub use error::Error;
pub use options::{Lifetimes, Options};
pub use policy::KUBELET_CLIENT;
pub use proxy::vouch;
pub use shared::FILES as SHARED_FILES;
pub use user::{ITSELF, Mark};

use keys::Keys;
use pki::Pki;
use proxy::Proxies;
use token::Tokens;
use token_file::FixedTokens;

/// Everything a server needs to be itself and to know others.
pub struct Identity {
    pki: Pki,
    authenticator: Authenticator,
    kubeconfig: PathBuf,
    address: SocketAddr,
    extra_names: Vec<String>,
    lifetimes: Lifetimes,
    modes: impersonate::Modes,
}

impl Identity {
    /// Reads the identity below `data_dir`, or makes it on the first start. `address` is where the server listens; `shared`
    /// says that other servers have the same keys.
    pub fn open(
        data_dir: &Path,
        address: SocketAddr,
        extra_names: &[String],
        options: &Options,
        shared: bool,
    ) -> Result<Self, Error> {
        let now = now();
        let dir = data_dir.join("pki");
        // The first random number takes tens of milliseconds, while entropy is gathered: better now than for the first client.
        let warm_up = || aws_lc_rs::rand::fill(&mut [0; 8]);
        std::thread::Builder::new().name("warm-up".to_owned()).spawn(warm_up).map_err(|e| Error::Key(e.to_string()))?;
        // Making the first key takes longest, and nobody needs it at once.
        let keys = Keys::open(&dir, if shared { keys::SETTLE } else { 0 }, now)?;
        let names = pki::serving_names(address.ip(), hostname().as_deref(), extra_names);
        let pki = Pki::open(&dir, &names, options.lifetimes, now)?;
        let mut authenticator = Authenticator::new(Tokens::new(keys), pki.token().to_owned());
        authenticator.anonymous = options.anonymous;
        authenticator.clients = Some(pki.clients()?);
        if let Some(path) = &options.token_file {
            authenticator.fixed = FixedTokens::read(path)?;
        }
        if let Some(path) = &options.proxy_authority {
            authenticator.proxies = Some(Proxies::read(path, &options.proxy_names, pki.provider())?);
        }
        Ok(Self {
            pki,
            authenticator,
            kubeconfig: data_dir.join("admin.kubeconfig"),
            address,
            extra_names: extra_names.to_vec(),
            lifetimes: options.lifetimes,
            modes: impersonate::Modes::default(),
        })
    }

    /// How those who act as others were last allowed to.
    pub fn modes(&self) -> &impersonate::Modes {
        &self.modes
    }

    /// Tells the administrator where the API is: the last step before requests are served.
    pub fn publish(&self, address: SocketAddr) -> Result<(), Error> {
        // In a workspace that is named, clients find out about workspaces, edges and what else Kubernetes does not know.
        let server = kubeconfig::server_url(address, Some(request::ROOT));
        kubeconfig::write(&self.kubeconfig, &server, self.pki.ca_pem(), &self.pki.admin())
    }

    /// Renews the certificates that near their end, or no longer name this machine.
    pub fn renew(&self) -> Result<(), Error> {
        let names = pki::serving_names(self.address.ip(), hostname().as_deref(), &self.extra_names);
        if self.pki.renew(&names, now())? {
            self.publish(self.address)?;
        }
        Ok(())
    }

    pub fn lifetimes(&self) -> &Lifetimes {
        &self.lifetimes
    }

    pub fn pki(&self) -> &Pki {
        &self.pki
    }

    pub fn ca_pem(&self) -> &str {
        self.pki.ca_pem()
    }

    /// TLS for HTTP and whatever else is spoken, with so many sessions that can be resumed.
    pub fn tls<'a>(
        &self,
        protocols: impl Iterator<Item = &'a [u8]>,
        sessions: usize,
    ) -> Result<Arc<rustls::ServerConfig>, Error> {
        let more = self.authenticator.proxies().map(|proxies| proxies.pem.as_str()).unwrap_or_default();
        let mut tls = self.pki.tls(more, sessions)?;
        tls.alpn_protocols.extend(protocols.map(<[u8]>::to_vec));
        Ok(Arc::new(tls))
    }

    /// The user behind a request to a workspace, before impersonation.
    pub fn authenticate(&self, peer: &Peer, headers: &HeaderMap, cluster: &str, lookup: &dyn Lookup) -> Result<User> {
        self.authenticator.authenticate(peer, headers, cluster, lookup, now())
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
        let identity = Identity::open(dir.path(), address, &[], &Options::default(), false).unwrap();
        identity.tls(std::iter::empty(), 16).unwrap();
        identity.publish(address).unwrap();
        // Far above what it takes even in a debug build, far below making an RSA key on a slow machine.
        assert!(started.elapsed().as_millis() < 2000, "{:?}", started.elapsed());
        let text = fs::read_to_string(dir.path().join("admin.kubeconfig")).unwrap();
        assert!(text.contains("https://127.0.0.1:6443/clusters/root\""));
        assert_eq!(identity.jwks().unwrap()["keys"][0]["alg"], "RS256");
        assert!(identity.openid_configuration()["jwks_uri"].as_str().unwrap().ends_with("/openid/v1/jwks"));
    }
}
