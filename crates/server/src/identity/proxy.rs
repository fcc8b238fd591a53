//! Proxies in front of this server: they have authenticated a user themselves and say so in headers. They are believed only
//! with a certificate of an authority that is for them alone; without one, the headers are nothing.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use http::HeaderMap;
use rustls::{crypto::CryptoProvider, server::danger::ClientCertVerifier};

use super::{
    Error,
    authenticate::{AUTHENTICATED, User},
    files,
    tls::{certificates_of, client_verifier, roots_of},
};

const USER: &str = "x-remote-user";
const UID: &str = "x-remote-uid";
const GROUP: &str = "x-remote-group";
const EXTRA: &str = "x-remote-extra-";

pub struct Proxies {
    pub pem: String,
    /// Common names of proxies; none named: all that the authority has signed.
    pub names: Vec<String>,
    verifier: Arc<dyn ClientCertVerifier>,
}

impl Proxies {
    pub fn read(path: &Path, names: &[String], provider: &Arc<CryptoProvider>) -> Result<Self, Error> {
        let wrong = |why: String| Error::Configuration { path: path.to_owned(), why };
        let pem = files::read(path)?.ok_or_else(|| wrong("there is no such file".to_owned()))?;
        let found = certificates_of(&pem).map_err(|e| wrong(e.to_string()))?;
        if found.is_empty() {
            return Err(wrong("it holds no certificate".to_owned()));
        }
        let verifier = client_verifier(roots_of(found)?, provider)?;
        Ok(Self { pem, names: names.to_vec(), verifier })
    }

    pub fn verifier(&self) -> &Arc<dyn ClientCertVerifier> {
        &self.verifier
    }

    pub fn knows(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|known| known == name)
    }
}

/// The user that a proxy speaks for; `None` if it speaks for itself.
pub fn user(headers: &HeaderMap) -> Option<User> {
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let first = |name: &str| headers.get(name).map(text).unwrap_or_default();
    let name = first(USER);
    if name.is_empty() {
        return None;
    }
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (header, value) in headers {
        if let Some(key) = header.as_str().strip_prefix(EXTRA) {
            extra.entry(super::impersonate::unescape(key)).or_default().push(text(value));
        }
    }
    let groups = headers.get_all(GROUP).iter().map(text).collect();
    let mut user = User { name, uid: first(UID), groups, extra };
    user.join(AUTHENTICATED);
    Some(user)
}
