//! ServiceAccount tokens: JSON Web Tokens that name an account, and the object they are bound to.

use std::sync::Arc;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use super::{Error, keys::Keys};

/// Who issues tokens, and for whom they are unless a request says otherwise: upstream's usual name of the API server.
pub const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
/// The workspace whose tokens do not name it.
pub(super) const ROOT: &str = "root";
/// Clocks may differ by this many seconds.
pub const LEEWAY: i64 = 60;
/// No token is longer; far more than anybody needs.
const MAX_LENGTH: usize = 16 << 10;

/// An object by name and identity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reference {
    pub name: String,
    pub uid: String,
}

/// What a token says. Times are in seconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    /// The workspace of the account.
    pub cluster: String,
    pub namespace: String,
    pub account: Reference,
    pub pod: Option<Reference>,
    pub node: Option<Reference>,
    pub secret: Option<Reference>,
    pub audiences: Vec<String>,
    pub issued: i64,
    pub expires: i64,
    pub id: String,
    /// The client was expected to have renewed the token by then.
    pub warn_after: Option<i64>,
}

/// A token whose signature is right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verified {
    Bound(Claims),
    /// From a Secret: it has no end and no audience, and is good while the Secret holds it.
    Legacy(Claims),
}

/// Who issues tokens that lie in Secrets.
const LEGACY_ISSUER: &str = "kubernetes/serviceaccount";

/// Why a token is not good. Clients are only told that it is not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Not one of ours: another kind of token perhaps.
    #[error("the token was not issued by this server")]
    Foreign,
    #[error("the token's signature is wrong")]
    Signature,
    #[error("service account token has expired")]
    Expired,
    #[error("service account token is not valid yet")]
    Early,
    #[error("token audiences {given:?} is invalid for the target audiences {wanted:?}")]
    Audience { given: Vec<String>, wanted: Vec<String> },
    #[error("service account token has been invalidated")]
    Invalidated,
    #[error("the server's keys cannot be used: {0}")]
    Keys(String),
}

impl Claims {
    pub fn user_name(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.account.name)
    }

    fn to_value(&self) -> Value {
        let reference = |r: &Reference| {
            // A pod may name a node that does not exist, and then there is no uid.
            if r.uid.is_empty() { json!({"name": r.name}) } else { json!({"name": r.name, "uid": r.uid}) }
        };
        let mut own = json!({"namespace": self.namespace, "serviceaccount": reference(&self.account)});
        for (name, bound) in [("pod", &self.pod), ("node", &self.node), ("secret", &self.secret)] {
            if let Some(bound) = bound {
                own[name] = reference(bound);
            }
        }
        if let Some(at) = self.warn_after {
            own["warnafter"] = at.into();
        }
        if self.cluster != ROOT {
            own["clusterName"] = self.cluster.as_str().into();
        }
        json!({
            "iss": ISSUER, "sub": self.user_name(), "aud": self.audiences, "exp": self.expires, "iat": self.issued,
            "nbf": self.issued, "jti": self.id, "kubernetes.io": own,
        })
    }

    fn is_good(&self, audiences: &[String], now: i64) -> Result<(), Refused> {
        if self.expires.saturating_add(LEEWAY) < now {
            return Err(Refused::Expired);
        }
        if self.issued.saturating_sub(LEEWAY) > now {
            return Err(Refused::Early);
        }
        if !self.audiences.iter().any(|a| audiences.contains(a)) {
            return Err(Refused::Audience { given: self.audiences.clone(), wanted: audiences.to_vec() });
        }
        Ok(())
    }

    fn from_value(value: &Value) -> Option<Self> {
        let own = value.get("kubernetes.io")?;
        let text = |value: &Value, name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
        let reference = |name: &str| {
            let r = own.get(name)?;
            Some(Reference { name: text(r, "name")?, uid: text(r, "uid").unwrap_or_default() })
        };
        let audiences = match value.get("aud")? {
            Value::String(one) => vec![one.clone()],
            many => many.as_array()?.iter().filter_map(|a| a.as_str().map(str::to_owned)).collect(),
        };
        let claims = Self {
            cluster: text(own, "clusterName").unwrap_or_else(|| ROOT.to_owned()),
            namespace: text(own, "namespace")?,
            account: reference("serviceaccount")?,
            pod: reference("pod"),
            node: reference("node"),
            secret: reference("secret"),
            audiences,
            issued: value.get("nbf").or_else(|| value.get("iat"))?.as_i64()?,
            expires: value.get("exp")?.as_i64()?,
            id: text(value, "jti").unwrap_or_default(),
            warn_after: own.get("warnafter").and_then(Value::as_i64),
        };
        (value.get("iss")? == ISSUER && text(value, "sub")? == claims.user_name()).then_some(claims)
    }
}

/// Where the claims of a token in a Secret are, and what they are called.
fn legacy_claim(name: &str) -> String {
    format!("kubernetes.io/serviceaccount/{name}")
}

impl Claims {
    fn to_legacy(&self) -> Value {
        let secret = self.secret.as_ref().map(|s| s.name.as_str()).unwrap_or_default();
        let mut value = json!({"iss": LEGACY_ISSUER, "sub": self.user_name()});
        for (name, content) in [
            ("namespace", self.namespace.as_str()),
            ("secret.name", secret),
            ("service-account.name", &self.account.name),
            ("service-account.uid", &self.account.uid),
        ] {
            value[legacy_claim(name)] = content.into();
        }
        if self.cluster != ROOT {
            value["kubernetes.io/clusterName"] = self.cluster.as_str().into();
        }
        value
    }

    fn from_legacy(value: &Value) -> Option<Self> {
        let text = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
        let claim = |name: &str| text(&legacy_claim(name));
        let claims = Self {
            cluster: text("kubernetes.io/clusterName").unwrap_or_else(|| ROOT.to_owned()),
            namespace: claim("namespace")?,
            account: Reference { name: claim("service-account.name")?, uid: claim("service-account.uid")? },
            secret: Some(Reference { name: claim("secret.name")?, uid: String::new() }),
            ..Self::default()
        };
        (text("iss")? == LEGACY_ISSUER && text("sub")? == claims.user_name()).then_some(claims)
    }
}

/// Issues and checks tokens.
pub struct Tokens {
    keys: Arc<Keys>,
    audiences: Vec<String>,
}

impl Tokens {
    pub fn new(keys: Arc<Keys>) -> Self {
        Self { keys, audiences: vec![ISSUER.to_owned()] }
    }

    /// The audiences of tokens for this server.
    pub fn audiences(&self) -> &[String] {
        &self.audiences
    }

    pub fn keys(&self) -> &Arc<Keys> {
        &self.keys
    }

    pub fn issue(&self, claims: &Claims) -> Result<String, Error> {
        self.sign(&claims.to_value(), claims.issued)
    }

    /// A token for a Secret.
    pub fn issue_legacy(&self, claims: &Claims, now: i64) -> Result<String, Error> {
        self.sign(&claims.to_legacy(), now)
    }

    fn sign(&self, claims: &Value, now: i64) -> Result<String, Error> {
        let key = self.keys.signer(now)?;
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let header = json!({"alg": "RS256", "kid": key.id()});
        let signed = format!("{}.{}", part(&header), part(claims));
        let signature = URL_SAFE_NO_PAD.encode(key.sign(signed.as_bytes())?);
        Ok(format!("{signed}.{signature}"))
    }

    /// What a good token says. Whether the objects it names still exist is not known here.
    pub fn verify(&self, token: &str, audiences: &[String], now: i64) -> Result<Verified, Refused> {
        let (signed, signature) = token.rsplit_once('.').ok_or(Refused::Foreign)?;
        let (header, claims) = signed.split_once('.').ok_or(Refused::Foreign)?;
        if token.len() > MAX_LENGTH {
            return Err(Refused::Foreign);
        }
        let header = decode(header).ok_or(Refused::Foreign)?;
        let said = decode(claims).ok_or(Refused::Foreign)?;
        let claims = match Claims::from_value(&said) {
            Some(claims) => Verified::Bound(claims),
            None => Claims::from_legacy(&said).map(Verified::Legacy).ok_or(Refused::Foreign)?,
        };
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| Refused::Signature)?;
        // The algorithm is ours to choose, never the token's.
        if header.get("alg").and_then(Value::as_str) != Some("RS256") {
            return Err(Refused::Signature);
        }
        let keys = self.keys.all(now).map_err(|e| Refused::Keys(e.to_string()))?;
        let id = header.get("kid").and_then(Value::as_str);
        let mut candidates = keys.iter().filter(|key| id.is_none_or(|id| key.id() == id));
        if !candidates.any(|key| key.verify(signed.as_bytes(), &signature)) {
            return Err(Refused::Signature);
        }
        if let Verified::Bound(claims) = &claims {
            claims.is_good(audiences, now)?;
        }
        Ok(claims)
    }

    /// The JSON Web Key Set with which others can check tokens.
    pub fn jwks(&self, now: i64) -> Result<Value, Error> {
        let keys = self.keys.all(now)?;
        Ok(json!({"keys": keys.iter().map(|key| key.jwk()).collect::<Vec<_>>()}))
    }
}

/// The key that a token says it was signed with.
pub fn key_of(token: &str) -> Option<String> {
    decode(token.split('.').next()?)?.get("kid")?.as_str().map(str::to_owned)
}

fn decode(part: &str) -> Option<Value> {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok()
}

/// The issuer's OpenID discovery document. `server` is where clients reach this server.
pub fn openid_configuration(server: &str) -> Value {
    json!({
        "issuer": ISSUER,
        "jwks_uri": format!("{server}/openid/v1/jwks"),
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["RS256"],
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn tokens(dir: &std::path::Path) -> Tokens {
        Tokens::new(Keys::open(dir, 0, 1000).unwrap())
    }

    pub(crate) fn claims() -> Claims {
        Claims {
            cluster: ROOT.to_owned(),
            namespace: "ns".to_owned(),
            account: Reference { name: "robot".to_owned(), uid: "u1".to_owned() },
            audiences: vec![ISSUER.to_owned()],
            issued: 1000,
            expires: 4600,
            id: "j1".to_owned(),
            ..Claims::default()
        }
    }

    #[test]
    fn issued_tokens_are_good_until_they_end() {
        let dir = tempfile::tempdir().unwrap();
        let tokens = tokens(dir.path());
        let mut claims = claims();
        claims.pod = Some(Reference { name: "p".to_owned(), uid: "u2".to_owned() });
        claims.node = Some(Reference { name: "n".to_owned(), uid: String::new() });
        claims.warn_after = Some(2000);
        claims.cluster = "root:org".to_owned();
        let token = tokens.issue(&claims).unwrap();
        let verify = |token: &str, now| tokens.verify(token, tokens.audiences(), now);
        assert_eq!(verify(&token, 1000), Ok(Verified::Bound(claims.clone())));
        assert_eq!(verify(&token, 4600 + LEEWAY), Ok(Verified::Bound(claims.clone())));
        assert_eq!(verify(&token, 4600 + LEEWAY + 1), Err(Refused::Expired));
        assert_eq!(verify(&token, 1000 - LEEWAY - 1), Err(Refused::Early));
        assert!(matches!(tokens.verify(&token, &["x".to_owned()], 1000), Err(Refused::Audience { .. })));

        tokens.keys().rotate(1500).unwrap();
        assert_eq!(verify(&token, 1500), Ok(Verified::Bound(claims)), "tokens of the old key stay good");
        assert_eq!(tokens.jwks(0).unwrap()["keys"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn tokens_of_secrets_have_no_end() {
        let dir = tempfile::tempdir().unwrap();
        let tokens = tokens(dir.path());
        let secret = Some(Reference { name: "s".to_owned(), uid: String::new() });
        let legacy = Claims { secret, audiences: vec![], issued: 0, expires: 0, id: String::new(), ..claims() };
        let token = tokens.issue_legacy(&legacy, 1000).unwrap();
        assert_eq!(tokens.verify(&token, tokens.audiences(), i64::MAX), Ok(Verified::Legacy(legacy)));
        assert_eq!(key_of(&token).unwrap(), tokens.keys().signer(1000).unwrap().id());
    }

    #[test]
    fn changed_tokens_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let tokens = tokens(dir.path());
        let token = tokens.issue(&claims()).unwrap();
        let parts: Vec<&str> = token.split('.').collect();
        let mut other = claims();
        other.account.name = "admin".to_owned();
        let forged = URL_SAFE_NO_PAD.encode(other.to_value().to_string());
        let none = URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#);
        for (token, expected) in [
            (format!("{}.{forged}.{}", parts[0], parts[2]), Refused::Signature),
            (format!("{none}.{}.", parts[1]), Refused::Signature),
            (format!("{none}.{}.{}", parts[1], parts[2]), Refused::Signature),
            (format!("{}.{}.AAAA", parts[0], parts[1]), Refused::Signature),
            ("nonsense".to_owned(), Refused::Foreign),
            ("a.b.c".to_owned(), Refused::Foreign),
            (String::new(), Refused::Foreign),
            ("x.".repeat(20_000), Refused::Foreign),
        ] {
            assert_eq!(tokens.verify(&token, tokens.audiences(), 1000), Err(expected));
        }
        let elsewhere = tempfile::tempdir().unwrap();
        let others = self::tokens(elsewhere.path());
        assert_eq!(others.verify(&token, others.audiences(), 1000), Err(Refused::Signature));
    }
}
