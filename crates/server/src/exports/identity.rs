//! Gives every export its identity, the hash of a secret key, and the address of its virtual workspace.

use std::{sync::Arc, time::Duration};

use api::status::Result;
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::{
    EXPORTS, Exports, GROUP, SECRETS, VERSION,
    conditions::{self, State},
};
use crate::{Server, clock, identity::kubeconfig, internal::Internal, object::Object};

/// Where the keys lie that nobody chose.
pub const NAMESPACE: &str = "kcp-system";
const RETRY: Duration = Duration::from_secs(1);

pub async fn run(exports: Arc<Exports>, server: Arc<Server>) {
    loop {
        let key = exports.exports.pop().await;
        let Some(object) = server.cache.get(EXPORTS, &key) else { continue };
        if !object.value()["metadata"]["deletionTimestamp"].is_null() {
            continue;
        }
        if let Err(error) = look_after(&server, &object).await {
            tracing::warn!(export = &*key, %error, "an APIExport could not be brought to order; trying again");
            let again = exports.clone();
            exports.exports.again(key, move |key| again.exports.push(key), RETRY);
        }
    }
}

async fn look_after(server: &Arc<Server>, object: &Object) -> Result<()> {
    let hand = Internal::new(server, object.cluster(), "kcp-apiexport");
    let kind = hand.kind(GROUP, VERSION, "apiexports")?;
    let value = object.value();
    let secret = &value["spec"]["identity"]["secretRef"];
    if secret.is_null() {
        make_secret(&hand, object.name()).await?;
        let edit = |value: &mut Value| {
            value["spec"]["identity"] = json!({"secretRef": {"namespace": NAMESPACE, "name": object.name()}});
        };
        // The change brings us here again.
        return hand.change(&kind, "", object.name(), "", edit).await.map(drop);
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let at = format!("{}/{}/{}", object.cluster(), text(&secret["namespace"]), text(&secret["name"]));
    let found = server.cache.get(SECRETS, &at).map(|secret| secret.value()["data"]["key"].clone());
    let key = found.as_ref().and_then(Value::as_str).and_then(|key| STANDARD.decode(key).ok());
    let address = kubeconfig::server_url(server.address, None);
    let url = format!("{address}/services/apiexport/{}/{}", object.cluster(), object.name());
    let status = judge(&value, key.as_deref(), &url, &clock::now());
    if status != value["status"] {
        hand.change(&kind, "", object.name(), "status", |value| value["status"] = status.clone()).await?;
    }
    Ok(())
}

/// The status of an export whose secret holds this key.
fn judge(export: &Value, key: Option<&[u8]>, url: &str, now: &str) -> Value {
    let mut status = if export["status"].is_object() { export["status"].clone() } else { json!({}) };
    let have = status["identityHash"].as_str().unwrap_or_default().to_owned();
    let state = match key.filter(|key| !key.is_empty()).map(hash) {
        None => State::Bad(
            "IdentityVerificationFailed",
            "the Secret named in spec.identity.secretRef is missing, or has no field \"key\"".to_owned(),
        ),
        Some(new) if !have.is_empty() && new != have => State::Bad(
            "IdentityVerificationFailed",
            "the key has changed. An identity cannot change, as bound objects belong to it: restore the key".to_owned(),
        ),
        Some(new) => {
            status["identityHash"] = new.into();
            State::Good
        }
    };
    let mut all = conditions::of(export);
    conditions::set(&mut all, "IdentityValid", &state, now);
    conditions::set(&mut all, "VirtualWorkspaceURLsReady", &State::Good, now);
    status["conditions"] = all.into();
    status["virtualWorkspaces"] = json!([{"url": url}]);
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
        export["status"] = judge(&export, None, "https://x", "t1");
        assert!(!valid(&export) && export["status"]["identityHash"].is_null());
        export["status"] = judge(&export, Some(b"secret"), "https://x", "t2");
        assert!(valid(&export));
        let hash = export["status"]["identityHash"].clone();
        assert_eq!(hash, "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b");
        assert_eq!(judge(&export, Some(b"secret"), "https://x", "t3"), export["status"], "nothing new");
        export["status"] = judge(&export, Some(b"other"), "https://x", "t4");
        assert!(!valid(&export) && export["status"]["identityHash"] == hash);
    }
}
