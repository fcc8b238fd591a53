//! Bootstrap tokens: Secrets in `kube-system` with which a machine that has no certificate yet asks for one.

use aws_lc_rs::hmac;
use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use serde_json::{Value, json};

use super::authenticate::{AUTHENTICATED, User};

pub const PREFIX: &str = "bootstrap-token-";
pub const HOME: &str = "kube-system";
const TYPE: &str = "bootstrap.kubernetes.io/token";
const GROUP: &str = "system:bootstrappers";

/// Identifier and secret of a token that looks like one: `abcdef.0123456789abcdef`.
pub fn parse(token: &str) -> Option<(&str, &str)> {
    let (id, secret) = token.split_once('.')?;
    let plain = |text: &str| text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    (id.len() == 6 && secret.len() == 16 && plain(id) && plain(secret)).then_some((id, secret))
}

/// One entry of a Secret's data, decoded.
fn data(secret: &Value, key: &str) -> String {
    let encoded = secret["data"][key].as_str().unwrap_or_default();
    STANDARD.decode(encoded).ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default()
}

/// Whether the time of a token has come. One that cannot be read has come.
pub fn has_ended(secret: &Value, now: i64) -> bool {
    let text = data(secret, "expiration");
    !text.is_empty() && text.parse::<jiff::Timestamp>().map_or(true, |at| at.as_second() <= now)
}

pub fn is_token(secret: &Value) -> bool {
    secret["type"] == TYPE
}

/// Who comes with this token, if the Secret says that it is good for authentication.
pub fn user(secret: &Value, id: &str, given: &str, now: i64) -> Option<User> {
    let same =
        aws_lc_rs::constant_time::verify_slices_are_equal(data(secret, "token-secret").as_bytes(), given.as_bytes());
    let good = is_token(secret)
        && secret["metadata"]["deletionTimestamp"].is_null()
        && same.is_ok()
        && data(secret, "token-id") == id
        && !has_ended(secret, now)
        && data(secret, "usage-bootstrap-authentication") == "true";
    if !good {
        return None;
    }
    let extra = data(secret, "auth-extra-groups");
    let mut groups: Vec<String> = extra.split(',').filter(|g| !g.is_empty()).map(str::to_owned).collect();
    if !groups.iter().all(|group| is_bootstrap_group(group)) {
        return None;
    }
    groups.push(GROUP.to_owned());
    groups.sort();
    groups.dedup();
    let mut user = User { name: format!("system:bootstrap:{id}"), groups, ..User::default() };
    user.join(AUTHENTICATED);
    Some(user)
}

/// Nobody gets into other groups by a bootstrap token.
fn is_bootstrap_group(group: &str) -> bool {
    let Some(rest) = group.strip_prefix("system:bootstrappers:") else { return false };
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    rest.len() <= 256
        && rest.bytes().all(|b| plain(b) || b == b':' || b == b'-')
        && rest.bytes().last().is_some_and(plain)
}

/// Identifier and secret of a token that may vouch for the cluster's address.
pub fn signs(secret: &Value, now: i64) -> Option<(String, String)> {
    let (id, key) = (data(secret, "token-id"), data(secret, "token-secret"));
    let good = is_token(secret)
        && secret["metadata"]["deletionTimestamp"].is_null()
        && data(secret, "usage-bootstrap-signing") == "true"
        && !has_ended(secret, now)
        && !id.is_empty()
        && !key.is_empty();
    good.then_some((id, key))
}

/// A signature over `content` by which whoever knows the token can trust it: a JWS (HS256) without its payload.
pub fn signature(content: &str, id: &str, key: &str) -> String {
    let header = URL_SAFE_NO_PAD.encode(json!({"alg": "HS256", "kid": id}).to_string());
    let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode(content));
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes()), signed.as_bytes());
    format!("{header}..{}", URL_SAFE_NO_PAD.encode(tag.as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(entries: &[(&str, &str)]) -> Value {
        let mut secret = json!({"type": TYPE, "metadata": {}, "data": {"token-id": STANDARD.encode("abcdef"),
            "token-secret": STANDARD.encode("0123456789abcdef"), "usage-bootstrap-authentication": STANDARD.encode("true")}});
        for (key, value) in entries {
            secret["data"][key] = STANDARD.encode(value).into();
        }
        secret
    }

    #[test]
    fn tokens_and_their_users() {
        assert_eq!(parse("abcdef.0123456789abcdef"), Some(("abcdef", "0123456789abcdef")));
        for bad in
            ["", "abcdef", "abcde.0123456789abcdef", "ABCDEF.0123456789abcdef", "abcdef.0123456789abcde", "a.b.c"]
        {
            assert_eq!(parse(bad), None, "{bad}");
        }
        let who = |secret: &Value| user(secret, "abcdef", "0123456789abcdef", 1000).map(|u| u.groups.join(" "));
        assert_eq!(who(&secret(&[])).as_deref(), Some("system:bootstrappers system:authenticated"));
        let extra = secret(&[("auth-extra-groups", "system:bootstrappers:edge,system:bootstrappers:a-b")]);
        assert_eq!(
            who(&extra).as_deref(),
            Some("system:bootstrappers system:bootstrappers:a-b system:bootstrappers:edge system:authenticated")
        );
        assert!(who(&secret(&[("expiration", "1970-01-01T00:16:41Z")])).is_some());
        for bad in [
            &[("expiration", "1970-01-01T00:16:40Z")][..],
            &[("expiration", "soon")],
            &[("usage-bootstrap-authentication", "false")],
            &[("auth-extra-groups", "system:masters")],
            &[("auth-extra-groups", "system:bootstrappers:A")],
            &[("auth-extra-groups", "system:bootstrappers:")],
            &[("token-id", "fedcba")],
            &[("token-secret", "0123456789abcdeg")],
        ] {
            assert_eq!(who(&secret(bad)), None, "{bad:?}");
        }
        let mut opaque = secret(&[]);
        opaque["type"] = json!("Opaque");
        assert_eq!(who(&opaque), None);
    }

    #[test]
    fn what_is_signed_can_be_checked() {
        let made = signature("content", "abcdef", "0123456789abcdef");
        let parts: Vec<&str> = made.split('.').collect();
        assert_eq!((parts.len(), parts[1]), (3, ""));
        let header: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(parts[0]).unwrap()).unwrap();
        assert_eq!(header, json!({"alg": "HS256", "kid": "abcdef"}));
        let key = hmac::Key::new(hmac::HMAC_SHA256, b"0123456789abcdef");
        let signed = format!("{}.{}", parts[0], URL_SAFE_NO_PAD.encode("content"));
        hmac::verify(&key, signed.as_bytes(), &URL_SAFE_NO_PAD.decode(parts[2]).unwrap()).unwrap();
        assert_eq!(signs(&secret(&[]), 0), None);
        assert!(signs(&secret(&[("usage-bootstrap-signing", "true")]), 0).is_some());
    }
}
