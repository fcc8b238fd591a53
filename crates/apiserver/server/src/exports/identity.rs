//! Gives every export its identity, the hash of a secret key, and the address of its virtual workspace.

use std::{sync::Arc, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use cache::Cache;
use cache::object::Object;
use identity::kubeconfig;
use schema::status::Result;
use serde_json::{Value, json};

use super::{
    EXPORTS, Exports, GROUP, SECRETS, VERSION,
    conditions::{self, State},
};
use crate::{Server, internal::Internal};

/// Where the keys lie that nobody chose.
pub const NAMESPACE: &str = "kcp-system";
const RETRY: Duration = Duration::from_secs(1);
const VALID: &str = "IdentityValid";
const READY: &str = "VirtualWorkspaceURLsReady";

pub async fn run(exports: Arc<Exports>, server: Arc<Server>) {
    loop {
        let key = exports.exports.pop().await;
        let Some(object) = server.cache.get(EXPORTS, &key) else { continue };
        if !object.value()["metadata"]["deletionTimestamp"].is_null() {
            continue;
        }
        if let Err(error) = look_after(&exports, &server, &object).await {
            tracing::warn!(export = &*key, %error, "an APIExport could not be brought to order; trying again");
            let again = exports.clone();
            exports.exports.again(key, move |key| again.exports.push(key), RETRY);
        }
    }
}

/// Finds out the identities of all exports that there are. Until then, none has one.
pub fn verify_all(exports: &Exports, cache: &Cache) {
    // The second time it is known which hashes are whose.
    for _ in 0..2 {
        for object in cache.snapshot(EXPORTS).items.range("", "") {
            let value = object.value();
            let key = key_of(cache, object.cluster(), &value);
            let (_, identity) = identity(&value, key.as_deref(), |hash| exports.is_of_another(&object.key, hash));
            exports.verify(&object.key, identity.as_deref());
        }
    }
}

/// The key in the Secret that an export names.
fn key_of(cache: &Cache, cluster: &str, export: &Value) -> Option<Vec<u8>> {
    let secret = &export["spec"]["identity"]["secretRef"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let at = format!("{cluster}/{}/{}", text(&secret["namespace"]), text(&secret["name"]));
    let found = cache.get(SECRETS, &at)?.value()["data"]["key"].clone();
    STANDARD.decode(found.as_str()?).ok().filter(|key| !key.is_empty())
}

async fn look_after(exports: &Exports, server: &Arc<Server>, object: &Object) -> Result<()> {
    let hand = Internal::new(server, object.cluster(), "kcp-apiexport");
    let kind = hand.kind(GROUP, VERSION, "apiexports")?;
    let value = object.value();
    if value["spec"]["identity"]["secretRef"].is_null() {
        make_secret(&hand, object.name()).await?;
        let edit = |value: &mut Value| {
            value["spec"]["identity"] = json!({"secretRef": {"namespace": NAMESPACE, "name": object.name()}});
        };
        // The change brings us here again.
        return hand.change(&kind, "", object.name(), "", edit).await.map(drop);
    }
    let key = key_of(&server.cache, object.cluster(), &value);
    let (state, identity) = identity(&value, key.as_deref(), |hash| exports.is_of_another(&object.key, hash));
    exports.verify(&object.key, identity.as_deref());
    let address = kubeconfig::server_url(server.address, None);
    let url = format!("{address}/services/apiexport/{}/{}", object.cluster(), object.name());
    let status = status(&value, &state, identity, &url, &clock::now());
    if status != value["status"] {
        hand.change(&kind, "", object.name(), "status", |value| value["status"] = status.clone()).await?;
    }
    Ok(())
}

/// The identity of an export whose Secret holds this key, and how it stands with it. The hash in its status is only
/// compared: what has another key than it had serves nothing, as the objects that are bound belong to the old one. A
/// hash that is another export's was never its own: it was written by somebody whom an older server took for itself,
/// and the key says what is right.
fn identity(
    export: &Value,
    key: Option<&[u8]>,
    is_of_another: impl Fn(&str) -> bool,
) -> (State<'static>, Option<String>) {
    let known = export["status"]["identityHash"].as_str().unwrap_or_default();
    let why = match key.map(hash) {
        None => {
            "the Secret named in spec.identity.secretRef is missing, or has no field \"key\". Until it is restored, \
             nothing is served"
        }
        Some(new) if known.is_empty() || new == known || is_of_another(known) => return (State::Good, Some(new)),
        Some(_) => {
            "the key is not the one of status.identityHash. An identity cannot change, as bound objects belong to it: \
             restore the key, or make the APIExport anew. Until then, nothing is served"
        }
    };
    (State::Bad("IdentityVerificationFailed", why.to_owned()), None)
}

/// The status of an export. Nothing of the old one stays but the hash of a key that is not there, and since when
/// conditions hold.
fn status(export: &Value, state: &State<'_>, identity: Option<String>, url: &str, now: &str) -> Value {
    let mut status = json!({"virtualWorkspaces": [{"url": url}]});
    let hash = identity.map_or_else(|| export["status"]["identityHash"].clone(), Value::from);
    if hash.is_string() {
        status["identityHash"] = hash;
    }
    let mut all = conditions::of(export);
    all.retain(|one| one["type"] == VALID || one["type"] == READY);
    conditions::set(&mut all, VALID, state, now);
    conditions::set(&mut all, READY, &State::Good, now);
    status["conditions"] = all.into();
    status
}

fn hash(key: &[u8]) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, key);
    hex(digest.as_ref())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

async fn make_secret(hand: &Internal, name: &str) -> Result<()> {
    let namespaces = hand.kind("", "v1", "namespaces")?;
    hand.ensure(&namespaces, "", json!({"metadata": {"name": NAMESPACE}})).await?;
    let secrets = hand.kind("", "v1", "secrets")?;
    hand.ensure(&secrets, NAMESPACE, secret(name)).await
}

/// A new key for the export of this name.
pub fn secret(name: &str) -> Value {
    let key = STANDARD.encode(hex(&rand::random::<[u8; 32]>()));
    json!({"metadata": {"name": name}, "data": {"key": key}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_never_changes() {
        let mut export = json!({});
        let valid = |export: &Value| export["status"]["conditions"][0]["status"] == "True";
        let judge = |export: &Value, key: Option<&[u8]>, now: &str| {
            let (state, found) = identity(export, key, |_| false);
            (status(export, &state, found.clone(), "https://x", now), found)
        };
        let (now, found) = judge(&export, None, "t1");
        export["status"] = now;
        assert!(!valid(&export) && export["status"]["identityHash"].is_null() && found.is_none());
        let (now, found) = judge(&export, Some(b"secret"), "t2");
        export["status"] = now;
        assert!(valid(&export));
        let hash = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
        assert_eq!((&export["status"]["identityHash"], found.as_deref()), (&json!(hash), Some(hash)));
        assert_eq!(judge(&export, Some(b"secret"), "t3").0, export["status"], "nothing new");
        for key in [Some(&b"other"[..]), None] {
            let (now, found) = judge(&export, key, "t4");
            let now = json!({"status": now});
            assert!(!valid(&now) && now["status"]["identityHash"] == hash && found.is_none());
        }
    }

    /// The identity is that of the key or none, whatever the status says.
    #[test]
    fn a_forged_status_is_not_believed() {
        let mut export = json!({"status": {"identityHash": hash(b"of somebody else"), "anything": true, "conditions": [
            {"type": "IdentityValid", "status": "True", "lastTransitionTime": "t"},
            {"type": "Mine", "status": "True"}]}});
        let (state, found) = identity(&export, Some(b"mine"), |_| false);
        let now = status(&export, &state, found.clone(), "https://x", "t1");
        assert!(found.is_none() && now["conditions"][0]["status"] == "False");
        assert_eq!((now["conditions"].as_array().unwrap().len(), &now["anything"]), (2, &Value::Null));
        let theirs = |one: &str| one == hash(b"of somebody else");
        assert_eq!(identity(&export, Some(b"mine"), theirs).1, Some(hash(b"mine")), "known to be another's");
        assert_eq!(identity(&export, None, theirs).1, None);
        export["status"]["identityHash"] = Value::Null;
        assert_eq!(identity(&export, Some(b"mine"), |_| false).1, Some(hash(b"mine")));
    }
}
