//! How an edge joins: the token that it comes with, what it asks, what it is told.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::names;

/// What `selvedge join-token create` prints: `<id>.<secret>.<pin>.<workspace>`. The center keeps a hash of the secret only.
#[derive(Clone, PartialEq, Eq)]
pub struct JoinToken {
    pub id: String,
    pub secret: String,
    /// SHA-256 of the public key of the center's authority, as kubeadm's `discovery-token-ca-cert-hash`.
    pub pin: [u8; 32],
    /// Where the edge's SyncTarget is.
    pub workspace: String,
}

/// The type of the Secrets that stand for tokens at the center.
pub const TOKEN_TYPE: &str = "edge.selvedge.dev/join-token";
/// Their namespace, and what their names begin with.
pub const TOKEN_NAMESPACE: &str = "kube-system";
pub const TOKEN_PREFIX: &str = "join-token-";

impl fmt::Display for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}.{}", self.id, self.secret, hex(&self.pin), self.workspace)
    }
}

impl fmt::Debug for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JoinToken({} for {})", self.id, self.workspace)
    }
}

impl std::str::FromStr for JoinToken {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WRONG: &str =
            "this is no join token: pass what `selvedge join-token create` prints at the center, whole and unchanged";
        let plain = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        let parts: Vec<&str> = text.trim().splitn(4, '.').collect();
        let [id, secret, pin, workspace] = parts[..] else { return Err(WRONG) };
        let pin = unhex(pin).ok_or(WRONG)?;
        let named = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b':';
        if !plain(id) || !plain(secret) || workspace.is_empty() || !workspace.bytes().all(named) {
            return Err(WRONG);
        }
        Ok(Self { id: id.to_owned(), secret: secret.to_owned(), pin, workspace: workspace.to_owned() })
    }
}

/// Bytes as lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let mut out = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (at, byte) in out.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(out)
}

/// What an edge sends. Nothing at all asks for the center's authority; a request alone, as an edge, for a new certificate.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct JoinRequest {
    /// Identifier and secret of the token: `<id>.<secret>`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    pub workspace: String,
    pub name: String,
    /// For the SyncTarget.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// A certificate signing request in PEM. Only its key counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
}

/// What it is told.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct JoinReply {
    /// All authorities to be trusted, in PEM.
    pub certificate_authority: String,
    /// The center's clock, in seconds since 1970.
    pub time: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
    /// When the certificate ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ends: Option<i64>,
}

/// What a certificate says to be good for one life of one SyncTarget: its uid, and what the last joining or revocation left
/// there ([`CREDENTIAL`](crate::names::CREDENTIAL)). It is the certificate's uid.
pub fn credential(uid: &str, of_target: Option<&str>) -> String {
    match of_target {
        Some(credential) => format!("{uid}.{credential}"),
        None => uid.to_owned(),
    }
}

/// The credential of an edge that was revoked: no certificate has it.
pub const REVOKED: &str = "revoked";

/// What a certificate has to say to be good for this SyncTarget. `None`: none is.
pub fn credential_of(target: &Value) -> Option<String> {
    let metadata = target.get("metadata")?;
    if metadata.get("deletionTimestamp").is_some() {
        return None;
    }
    let uid = metadata.get("uid")?.as_str()?;
    let of_target = metadata.get("annotations").and_then(|all| all.get(names::CREDENTIAL)).and_then(Value::as_str);
    (of_target != Some(REVOKED)).then(|| credential(uid, of_target))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_read_back() {
        let token =
            JoinToken { id: "abc123".into(), secret: "s3cret".into(), pin: [0xab; 32], workspace: "root:org-1".into() };
        assert_eq!(token.to_string().parse(), Ok(token.clone()));
        assert_eq!(format!(" {token}\n").parse(), Ok(token.clone()));
        assert!(!format!("{token:?}").contains("s3cret"));
        let pin = hex(&token.pin);
        for wrong in [
            "".to_owned(),
            "abc.def".to_owned(),
            format!("abc.def.{pin}"),
            format!("abc.def.{pin}."),
            format!("abc..{pin}.root"),
            format!("Abc.def.{pin}.root"),
            format!("abc.def.{}.root", &pin[1..]),
            format!("abc.def.{}.root", pin.replace('a', "é")),
            format!("abc.def.{pin}.root/../x"),
        ] {
            assert!(wrong.parse::<JoinToken>().is_err(), "{wrong}");
        }
    }
}
