//! Proxies in front of this server: they have authenticated a user themselves and say so in headers. They are believed only
//! with a certificate of an authority that is for them alone; without one, the headers are nothing.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use http::{HeaderMap, HeaderName, HeaderValue};
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

/// Says in headers who a user is: what [`user`] reads. False if a name holds what no header can.
pub fn vouch(user: &User, headers: &mut HeaderMap) -> bool {
    let mut say = |name: &str, value: &str| {
        let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::from_bytes(value.as_bytes())) else {
            return false;
        };
        // Blanks around a value get lost on the way, and one name would become another.
        if value.as_bytes().trim_ascii().len() != value.len() {
            return false;
        }
        headers.append(name, value);
        true
    };
    let mut said = say(USER, &user.name) && (user.uid.is_empty() || say(UID, &user.uid));
    said = said && user.groups.iter().all(|group| say(GROUP, group));
    said && user.extra.iter().all(|(key, values)| {
        let name = format!("{EXTRA}{}", escape(key));
        values.iter().all(|value| say(&name, value))
    })
}

/// Names of headers have no capitals and few signs.
fn escape(key: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.' | b'_');
    key.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02x}") }).collect()
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
    let mut user = User { name, uid: first(UID), groups, extra, ..User::default() };
    user.join(AUTHENTICATED);
    Some(user)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn who_is_vouched_for_is_who_is_read(
            name in "[!-~ä]([ -~ä]{0,18}[!-~ä])?", uid in "[a-z0-9-]{0,8}", groups in proptest::collection::vec("[!-~]{1,12}", 0..4),
            extra in proptest::collection::btree_map("\\PC{1,12}", proptest::collection::vec("[!-~ä]{1,8}", 1..3), 0..3),
        ) {
            let mut user = User { name, uid, groups, extra, ..User::default() };
            user.join(AUTHENTICATED);
            let mut headers = HeaderMap::new();
            prop_assert!(vouch(&user, &mut headers));
            prop_assert_eq!(super::user(&headers), Some(user));
        }
    }

    #[test]
    fn what_no_header_can_hold_is_not_said() {
        for name in ["a\r\nx-remote-group: system:masters", " admin", "admin\t", "\u{0}"] {
            assert!(!vouch(&User { name: name.into(), ..User::default() }, &mut HeaderMap::new()), "{name:?}");
        }
    }
}
