//! What a join token allows, as its Secret says. Pure.

use std::collections::BTreeMap;

use kinds::join::{TOKEN_TYPE, hex};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Why somebody may not join.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error(
        "the center knows no such join token: it was deleted, or is not whole; `selvedge join-token create` makes one"
    )]
    Unknown,
    #[error("the join token expired at {0}; `selvedge join-token create` makes another")]
    Expired(String),
    #[error("the join token is used up; `selvedge join-token create --uses N` makes one for N edges")]
    UsedUp,
    #[error("the join token is for the edge {0}, not for {1}")]
    OtherName(String, String),
    #[error("the join token gives {0}={1}, and the edge wants {0}={2}")]
    OtherLabel(String, String, String),
    #[error(
        "the join token does not let the edge bring the label {0}={1}; leave it out of --labels, or make a token that does: `selvedge join-token \
         create … --allow-labels {0}`"
    )]
    LabelNotAllowed(String, String),
    #[error("the join token is damaged at the center: {0} of its Secret cannot be read")]
    Damaged(&'static str),
}

/// What a token gives to an edge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// The token is for this very edge, by its name.
    pub by_name: bool,
    /// For the SyncTarget: those of the token, and those that the edge wants.
    pub labels: BTreeMap<String, String>,
    /// Those of the token alone.
    pub given: BTreeMap<String, String>,
}

/// The hash of a token's secret, as it is kept.
pub fn hash(secret: &str) -> String {
    hex(&Sha256::digest(secret.as_bytes()))
}

/// Whether an edge with this name and these labels may join. `secret` is what it came with.
pub fn judge(
    stored: &Value,
    secret: &str,
    name: &str,
    wanted: &BTreeMap<String, String>,
    now: i64,
) -> Result<Grant, Refusal> {
    let kept = data(stored, "secret-hash").unwrap_or_default();
    let going = stored["metadata"].get("deletionTimestamp").is_some();
    // Hashes may be compared as they are: who can tell from the time how far they agree learns nothing of the secret.
    if stored["type"] != TOKEN_TYPE || going || kept != hash(secret) {
        return Err(Refusal::Unknown);
    }
    let expiration = data(stored, "expiration").unwrap_or_default();
    let ends: jiff::Timestamp = expiration.parse().map_err(|_| Refusal::Damaged("expiration"))?;
    if ends.as_second() <= now {
        return Err(Refusal::Expired(expiration));
    }
    if uses(stored).ok_or(Refusal::Damaged("uses"))? == 0 {
        return Err(Refusal::UsedUp);
    }
    let given = parse_labels(&data(stored, "labels").unwrap_or_default()).ok_or(Refusal::Damaged("labels"))?;
    let of = data(stored, "name").unwrap_or_default();
    if !of.is_empty() && of != name {
        return Err(Refusal::OtherName(of, name.to_owned()));
    }
    let allowed = data(stored, "allowed-labels").unwrap_or_default();
    let allows = |key: &str, value: &str| {
        let mut all = allowed.split(',').filter(|one| !one.is_empty());
        all.any(|one| one.split_once('=').map_or(one == key, |pair| pair == (key, value)))
    };
    for (key, value) in wanted.iter().filter(|(key, _)| !given.contains_key(*key)) {
        if !allows(key, value) {
            return Err(Refusal::LabelNotAllowed(key.clone(), value.clone()));
        }
    }
    for (key, value) in &given {
        if let Some(other) = wanted.get(key).filter(|other| *other != value) {
            return Err(Refusal::OtherLabel(key.clone(), value.clone(), other.clone()));
        }
    }
    let mut labels = wanted.clone();
    labels.extend(given.clone());
    Ok(Grant { by_name: !of.is_empty(), labels, given })
}

fn uses(stored: &Value) -> Option<u32> {
    data(stored, "uses")?.parse().ok()
}

/// The Secret with one use less.
pub fn used_once(mut stored: Value) -> Value {
    let left = uses(&stored).unwrap_or_default().saturating_sub(1);
    stored["data"]["uses"] = encode(&left.to_string()).into();
    stored
}

/// `a=b,c=d`
fn parse_labels(text: &str) -> Option<BTreeMap<String, String>> {
    let pairs = text.split(',').filter(|pair| !pair.is_empty());
    pairs.map(|pair| pair.split_once('=').map(|(k, v)| (k.to_owned(), v.to_owned()))).collect()
}

fn data(secret: &Value, key: &str) -> Option<String> {
    use base64::Engine;
    let encoded = secret["data"][key].as_str()?;
    let bytes = base64::engine::general_purpose::STANDARD.decode(encoded).ok()?;
    String::from_utf8(bytes).ok()
}

fn encode(text: &str) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(text)
}

/// What a token's Secret is made of.
pub struct New<'a> {
    pub id: &'a str,
    pub secret: &'a str,
    /// One SyncTarget's name, or labels for any.
    pub name: Option<&'a str>,
    pub labels: &'a BTreeMap<String, String>,
    /// What else an edge may bring: keys of labels, or keys with the only value that they may have.
    pub allowed: &'a [String],
    pub expires: i64,
    pub uses: u32,
}

/// The Secret to create in `kube-system` of the workspace.
pub fn secret(new: &New<'_>) -> Value {
    let labels: Vec<String> = new.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let expiration = jiff::Timestamp::from_second(new.expires).map(|at| at.to_string()).unwrap_or_default();
    json!({"apiVersion": "v1", "kind": "Secret", "type": TOKEN_TYPE,
        "metadata": {"name": format!("{}{}", kinds::join::TOKEN_PREFIX, new.id), "namespace": kinds::join::TOKEN_NAMESPACE},
        "stringData": {"secret-hash": hash(new.secret), "name": new.name.unwrap_or_default(), "labels": labels.join(","),
            "allowed-labels": new.allowed.join(","), "expiration": expiration, "uses": new.uses.to_string()}})
}

/// One line of `selvedge join-token list`.
pub fn shown(stored: &Value, now: i64) -> Option<[String; 5]> {
    let name = stored["metadata"]["name"].as_str()?.strip_prefix(kinds::join::TOKEN_PREFIX)?.to_owned();
    let expiration = data(stored, "expiration").unwrap_or_default();
    let ended = expiration.parse::<jiff::Timestamp>().map_or(true, |at| at.as_second() <= now);
    let left = uses(stored).unwrap_or_default();
    let state = if ended {
        "expired"
    } else if left == 0 {
        "used up"
    } else {
        "good"
    };
    let of = data(stored, "name").filter(|of| !of.is_empty());
    let whom = of.or_else(|| data(stored, "labels")).unwrap_or_default();
    Some([name, whom, left.to_string(), expiration, state.to_owned()])
}

/// Whether a token ended so long ago that nobody wonders any more why it does not work.
pub fn is_forgotten(stored: &Value, now: i64) -> bool {
    let ends = data(stored, "expiration").and_then(|at| at.parse::<jiff::Timestamp>().ok());
    stored["type"] == TOKEN_TYPE && ends.is_some_and(|at| at.as_second() < now - 7 * 24 * 3600)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_800_000_000;

    fn labels(text: &str) -> BTreeMap<String, String> {
        parse_labels(text).unwrap()
    }

    fn stored(name: Option<&str>, given: &str, uses: u32, expires: i64) -> Value {
        stored_with(name, given, "more,size=s", uses, expires)
    }

    fn stored_with(name: Option<&str>, given: &str, allowed: &str, uses: u32, expires: i64) -> Value {
        let labels = labels(given);
        let allowed: Vec<String> = allowed.split(',').map(str::to_owned).collect();
        let mut made = secret(&New { id: "a", secret: "s", name, labels: &labels, allowed: &allowed, expires, uses });
        let plain = made["stringData"].as_object().unwrap().clone();
        for (key, value) in &plain {
            made["data"][key] = encode(value.as_str().unwrap()).into();
        }
        made
    }

    #[test]
    fn who_may_join() {
        let ask = |stored: &Value, secret: &str, name: &str, wanted: &str| {
            judge(stored, secret, name, &labels(wanted), NOW).map(|grant| (grant.by_name, grant.labels))
        };
        let one = stored(Some("florin"), "", 1, NOW + 60);
        assert_eq!(ask(&one, "s", "florin", "more=b,size=s"), Ok((true, labels("more=b,size=s"))));
        let not_allowed = |key: &str, value: &str| Err(Refusal::LabelNotAllowed(key.into(), value.into()));
        assert_eq!(ask(&one, "s", "florin", "a=b"), not_allowed("a", "b"));
        assert_eq!(ask(&one, "s", "florin", "size=l"), not_allowed("size", "l"));
        // Tokens that say nothing of it allow nothing, also those that were made before there was anything to say.
        let mut bare = stored_with(Some("florin"), "a=b", "", 1, NOW + 60);
        assert_eq!(ask(&bare, "s", "florin", "more=1"), not_allowed("more", "1"));
        bare["data"].as_object_mut().unwrap().remove("allowed-labels");
        assert_eq!(ask(&bare, "s", "florin", "more=1"), not_allowed("more", "1"));
        assert_eq!(ask(&bare, "s", "florin", "a=b"), Ok((true, labels("a=b"))));
        assert_eq!(ask(&one, "s", "guilder", ""), Err(Refusal::OtherName("florin".into(), "guilder".into())));
        assert_eq!(ask(&one, "x", "florin", ""), Err(Refusal::Unknown));
        assert_eq!(ask(&used_once(one.clone()), "s", "florin", ""), Err(Refusal::UsedUp));
        assert_eq!(ask(&used_once(used_once(one.clone())), "s", "florin", ""), Err(Refusal::UsedUp));
        // Only who has the token learns what is wrong with it.
        assert_eq!(ask(&used_once(one.clone()), "x", "florin", ""), Err(Refusal::Unknown));
        let old = stored(Some("florin"), "", 1, NOW);
        assert!(matches!(ask(&old, "s", "florin", ""), Err(Refusal::Expired(_))));
        assert_eq!(ask(&old, "x", "florin", ""), Err(Refusal::Unknown));
        let many = stored(None, "env=prod,a=b", 9, NOW + 60);
        assert_eq!(ask(&many, "s", "x", "more=1"), Ok((false, labels("env=prod,a=b,more=1"))));
        assert!(matches!(ask(&many, "s", "x", "env=test"), Err(Refusal::OtherLabel(..))));
        let mut other = one.clone();
        other["type"] = "Opaque".into();
        assert_eq!(ask(&other, "s", "florin", ""), Err(Refusal::Unknown));
        let mut going = one.clone();
        going["metadata"]["deletionTimestamp"] = "now".into();
        assert_eq!(ask(&going, "s", "florin", ""), Err(Refusal::Unknown));
        for field in ["expiration", "uses"] {
            let mut damaged = one.clone();
            damaged["data"][field] = encode("x").into();
            assert_eq!(ask(&damaged, "s", "florin", ""), Err(Refusal::Damaged(field)));
        }
        assert!(!one.to_string().contains(r#""s""#) && !one.to_string().contains(&encode("s")), "only a hash is kept");
    }

    #[test]
    fn tokens_are_shown() {
        assert_eq!(shown(&stored(Some("florin"), "", 2, NOW + 1), NOW).unwrap()[1..3], ["florin", "2"]);
        assert_eq!(shown(&stored(None, "a=b", 0, NOW + 1), NOW).unwrap()[4], "used up");
        assert_eq!(shown(&stored(None, "a=b", 0, NOW), NOW).unwrap()[4], "expired");
        assert!(is_forgotten(&stored(None, "a=b", 0, NOW - 8 * 24 * 3600), NOW));
        assert!(!is_forgotten(&stored(None, "a=b", 0, NOW - 3600), NOW));
    }
}
