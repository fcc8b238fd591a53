//! Joining a center: from a token to a certificate of one's own, which is renewed as long as the edge lives.
//!
//! The token names the center's authority by the hash of its key, so whoever answers in the center's place is found out before
//! the token's secret is sent. The edge's key never leaves the edge.

mod error;
mod member;
mod saved;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use http::{Request, header};
use http_body_util::{BodyExt, Full, Limited};
use kinds::{JoinReply, JoinRequest, JoinToken};
pub use link::transport::Proxy;
use link::transport::{Connection, Dial, paths};
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use serde_json::Value;
use sha2::{Digest, Sha256};

pub use error::Error;
pub use member::Member;
use saved::Saved;

const MAX_REPLY: usize = 1 << 20;
/// Certificates are issued as if this much earlier, for clocks that are behind.
const LENIENCE: i64 = 5 * 60;
/// Waiting for a center that does not answer: doubled each time, up to the longest.
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// What an edge is told at its start.
#[derive(Clone, Debug, Default)]
pub struct Ask {
    pub data_dir: PathBuf,
    /// Needed to join; later a center that has moved.
    pub center: Option<String>,
    pub token: Option<String>,
    pub name: Option<String>,
    /// For the SyncTarget.
    pub labels: BTreeMap<String, String>,
    pub proxy: Proxy,
}

/// Joins, unless the edge has joined already. A center that cannot be reached is waited for; everything else is an error.
pub async fn join(ask: &Ask) -> Result<Arc<Member>, Error> {
    let token = ask.token.as_deref().map(|text| text.parse::<JoinToken>().map_err(Error::Token)).transpose()?;
    if let Some(mut saved) = Saved::read(&ask.data_dir)? {
        let is_new = token.as_ref().is_some_and(|token| token.id != saved.token);
        if !is_new {
            if let Some(name) = ask.name.as_deref().filter(|name| *name != saved.name) {
                return Err(Error::OtherName { data: ask.data_dir.clone(), is: saved.name, asked: name.to_owned() });
            }
            if let Some(center) = ask.center.as_ref().filter(|center| **center != saved.center) {
                saved.center.clone_from(center);
                match saved.write(&ask.data_dir) {
                    // It is told again at every start.
                    Err(error) if error.is_full() => tracing::warn!(%error, "the center's new address is not kept"),
                    written => written?,
                }
            }
            return Member::new(saved, &ask.data_dir, ask.proxy.clone()).map(Arc::new);
        }
    }
    let (Some(center), Some(token), Some(name)) = (&ask.center, &token, &ask.name) else {
        return Err(Error::NotJoined { data: ask.data_dir.clone() });
    };
    let mut wait = FIRST_WAIT;
    let saved = loop {
        match first_time(ask, center, token, name).await {
            Err(error) if error.may_pass() => {
                tracing::warn!(%error, "cannot join yet; trying again in {} s", wait.as_secs_f32());
                tokio::time::sleep(wait.mul_f64(rand::random_range(0.5..1.0))).await;
                wait = (wait * 2).min(LONGEST_WAIT);
            }
            done => break done?,
        }
    };
    saved.write(&ask.data_dir)?;
    tracing::info!(center = saved.center, edge = saved.edge().to_string(), "joined");
    Member::new(saved, &ask.data_dir, ask.proxy.clone()).map(Arc::new)
}

async fn first_time(ask: &Ask, center: &str, token: &JoinToken, name: &str) -> Result<Saved, Error> {
    let connection = Connection::open(&Dial::unverified(center, ask.proxy.clone())?).await?;
    // Everybody may ask a center this.
    let reply = ask_center(&connection, &JoinRequest::default()).await.map_err(|error| match error {
        Error::Refused { message, may_pass: false } => Error::NotACenter { center: center.to_owned(), said: message },
        other => other,
    })?;
    connection.close();
    let authority = pinned(&reply.certificate_authority, &token.pin)
        .map_err(|shown| Error::OtherAuthority { center: center.to_owned(), shown })?;
    let now = now();
    if now < reply.time - LENIENCE {
        return Err(Error::Clock { here: now, center: reply.time });
    }
    let dial = Dial::new(center, &saved::certificates(&authority)?, None, ask.proxy.clone())?;
    let connection = Connection::open(&dial).await.map_err(|error| Error::of_handshake(error, now, reply.time))?;
    let (key, request) = new_key()?;
    let asks = JoinRequest {
        token: Some(format!("{}.{}", token.id, token.secret)),
        workspace: token.workspace.clone(),
        name: name.to_owned(),
        labels: ask.labels.clone(),
        request: Some(request),
    };
    let reply = ask_center(&connection, &asks).await?;
    connection.close();
    if reply.ends.is_some_and(|ends| now >= ends) {
        return Err(Error::Clock { here: now, center: reply.time });
    }
    let mut saved = Saved {
        center: center.to_owned(),
        workspace: token.workspace.clone(),
        name: name.to_owned(),
        token: token.id.clone(),
        ..Saved::default()
    };
    saved.take(reply, key, now)?;
    Ok(saved)
}

/// A new key in PEM, and a request to sign it. Who the edge is says the center.
fn new_key() -> Result<(String, String), Error> {
    let key = KeyPair::generate()?;
    let request = CertificateParams::default().serialize_request(&key)?.pem()?;
    Ok((key.serialize_pem(), request))
}

async fn ask_center(connection: &Connection, asks: &JoinRequest) -> Result<JoinReply, Error> {
    let body = serde_json::to_vec(asks).map_err(|error| Error::Answer(error.to_string()))?;
    let request = Request::post(paths::JOIN).header(header::CONTENT_TYPE, "application/json");
    let request = request.body(Full::new(Bytes::from(body))).map_err(|error| Error::Answer(error.to_string()))?;
    let response = connection.request(request).await?;
    let status = response.status();
    let retry = response.headers().get(header::RETRY_AFTER).is_some();
    let body = Limited::new(response.into_body(), MAX_REPLY).collect().await;
    let body = body.map_err(|error| Error::Answer(error.to_string()))?.to_bytes();
    if status.is_success() {
        return serde_json::from_slice(&body).map_err(|error| Error::Answer(error.to_string()));
    }
    let said: Value = serde_json::from_slice(&body).unwrap_or_default();
    match said["message"].as_str() {
        Some(message) => Err(Error::Refused {
            message: message.to_owned(),
            may_pass: retry || matches!(status.as_u16(), 429 | 500..=504),
        }),
        None => Err(Error::Answer(format!("it says {status}"))),
    }
}

/// Those authorities that the pin names, in PEM. If there are none, the pins of those that are there.
fn pinned(authorities: &str, pin: &[u8; 32]) -> Result<String, String> {
    let (mut good, mut seen) = (String::new(), Vec::new());
    for part in pem_parts(authorities) {
        match pin_of(&part) {
            Some(found) if found == *pin => good.push_str(&part),
            Some(found) => seen.push(kinds::join::hex(&found)),
            None => {}
        }
    }
    if good.is_empty() { Err(seen.join(", ")) } else { Ok(good) }
}

fn pem_parts(pem: &str) -> Vec<String> {
    const END: &str = "-----END CERTIFICATE-----";
    pem.split_inclusive(END).filter(|part| part.contains(END)).map(|part| format!("{}\n", part.trim())).collect()
}

/// SHA-256 of the public key of the first certificate in PEM.
pub fn pin_of(pem: &str) -> Option<[u8; 32]> {
    let der = CertificateDer::from_pem_slice(pem.as_bytes()).ok()?;
    let (_, certificate) = x509_parser::parse_x509_certificate(&der).ok()?;
    Some(Sha256::digest(certificate.public_key().raw).into())
}

/// Seconds since 1970.
fn now() -> i64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64)
}

/// Whether the edge with this data directory has joined.
pub fn has_joined(data_dir: &Path) -> bool {
    saved::path(data_dir).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authority() -> String {
        let key = KeyPair::generate().unwrap();
        CertificateParams::default().self_signed(&key).unwrap().pem()
    }

    #[test]
    fn only_what_the_pin_names_is_trusted() {
        let (a, b) = (authority(), authority());
        let pin = pin_of(&b).unwrap();
        assert_ne!(pin_of(&a), Some(pin));
        let both = format!("{a}# words\n{b}");
        let good = pinned(&both, &pin).unwrap();
        assert_eq!(pin_of(&good), Some(pin));
        assert_eq!(pem_parts(&good).len(), 1);
        assert_eq!(pinned(&a, &pin), Err(kinds::join::hex(&pin_of(&a).unwrap())));
        assert_eq!(pinned("", &pin), Err(String::new()));
        assert_eq!(pinned("-----BEGIN CERTIFICATE-----\nxx\n-----END CERTIFICATE-----", &pin), Err(String::new()));
    }

    #[tokio::test]
    async fn what_is_missing_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let ask = Ask { data_dir: dir.path().to_owned(), ..Ask::default() };
        assert!(matches!(join(&ask).await, Err(Error::NotJoined { .. })));
        let ask = Ask { token: Some("x.y".into()), ..ask };
        assert!(matches!(join(&ask).await, Err(Error::Token(_))));
    }
}
