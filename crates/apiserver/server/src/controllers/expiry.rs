//! What has had its time: bootstrap tokens that have ended, requests for certificates that nobody needs any more. And what
//! bootstrap tokens vouch for: where the cluster is.

use std::{sync::Arc, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use cache::object::Object;
use identity::{bootstrap_token, kubeconfig, pki};
use request::ROOT;
use schema::status::Result;
use serde_json::{Value, json};

use super::{Controllers, certificates::REQUESTS};
use crate::{Server, internal::Internal, verbs::delete::Options};

const EVERY: Duration = Duration::from_secs(10);
/// Upstream's times, in seconds: how long a request is kept that was answered, and one that was not.
const ANSWERED: i64 = 3600;
const WAITING: i64 = 24 * 3600;
/// The ConfigMap that says where the cluster is, and what signatures in it begin with.
const INFO: &str = "cluster-info";
const PUBLIC: &str = "kube-public";
const SIGNATURE: &str = "jws-kubeconfig-";

/// Whether a change is about a bootstrap token or what it vouches for.
pub fn concerns(collection: &str, name: &str) -> bool {
    match collection {
        "core/secrets" => name.starts_with(bootstrap_token::PREFIX),
        "core/configmaps" => name == INFO,
        _ => false,
    }
}

pub async fn run(controllers: Arc<Controllers>, server: Arc<Server>) {
    loop {
        // Several changes that come together are looked at once.
        let _ = tokio::time::timeout(EVERY, controllers.bootstrap_tokens.notified()).await;
        if let Err(error) = sweep(&server).await {
            tracing::warn!(%error, "what has had its time could not be cleaned up; trying again");
        }
        if let Err(error) = vouch(&server).await {
            tracing::warn!(%error, "cluster-info could not be signed; trying again");
        }
    }
}

async fn sweep(server: &Arc<Server>) -> Result<()> {
    let now = clock::unix();
    for (_, object) in
        bootstrap_tokens(server, "").into_iter().filter(|(secret, _)| bootstrap_token::has_ended(secret, now))
    {
        remove(server, "", "secrets", &object).await?;
    }
    for object in server.cache.snapshot(REQUESTS).items.range("", "") {
        if is_over(&object.value(), now) {
            remove(server, "certificates.k8s.io", "certificatesigningrequests", object).await?;
        }
    }
    Ok(())
}

async fn remove(server: &Arc<Server>, group: &str, resource: &str, object: &Object) -> Result<()> {
    let hand = Internal::new(server, object.cluster(), "kube-controller-manager");
    hand.delete(&hand.kind(group, "v1", resource)?, object, &Options::background()).await
}

/// The bootstrap tokens of one workspace (empty: of all).
fn bootstrap_tokens(server: &Server, cluster: &str) -> Vec<(Value, Arc<Object>)> {
    let prefix = if cluster.is_empty() { String::new() } else { format!("{cluster}/{}/", bootstrap_token::HOME) };
    let snapshot = server.cache.snapshot("core/secrets");
    let named = snapshot.items.range(&prefix, "").filter(|secret| {
        secret.name().starts_with(bootstrap_token::PREFIX) && secret.namespace() == bootstrap_token::HOME
    });
    named
        .map(|object| (object.value(), object.clone()))
        .filter(|(secret, _)| bootstrap_token::is_token(secret))
        .collect()
}

/// Whether nobody waits for a request any more.
fn is_over(request: &Value, now: i64) -> bool {
    let time = |text: &Value| text.as_str().and_then(|t| t.parse::<jiff::Timestamp>().ok()).map(|t| t.as_second());
    let status = &request["status"];
    let certificate = status["certificate"].as_str().unwrap_or_default();
    if !certificate.is_empty() {
        let pem = STANDARD.decode(certificate).ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
        if pki::ends(&pem).is_some_and(|end| end <= now) {
            return true;
        }
    }
    let conditions: Vec<&Value> = status["conditions"].as_array().into_iter().flatten().collect();
    let since = |kind: &str| {
        let found = conditions.iter().find(|condition| condition["type"] == kind)?;
        time(&found["lastUpdateTime"])
    };
    let older = |at: Option<i64>, than: i64| at.is_some_and(|at| at + than <= now);
    let made = time(&request["metadata"]["creationTimestamp"]);
    older(since("Denied"), ANSWERED)
        || older(since("Failed"), ANSWERED)
        || older(since("Approved"), if certificate.is_empty() { WAITING } else { ANSWERED })
        || conditions.is_empty() && older(made, WAITING)
}

/// `cluster-info` in `kube-public` says where the cluster is and by which authority to know it; each token that may sign
/// vouches for it, so that whoever holds the token can believe it.
async fn vouch(server: &Arc<Server>) -> Result<()> {
    let now = clock::unix();
    let signers =
        bootstrap_tokens(server, ROOT).into_iter().filter_map(|(secret, _)| bootstrap_token::signs(&secret, now));
    let signers: Vec<(String, String)> = signers.collect();
    let hand = Internal::new(server, ROOT, "kube-controller-manager");
    let kind = hand.kind("", "v1", "configmaps")?;
    let Some(have) = hand.get(&kind, PUBLIC, INFO) else {
        if signers.is_empty() {
            return Ok(());
        }
        let config = kubeconfig::cluster_info(&kubeconfig::server_url(server.address, None), server.identity.ca_pem());
        let value = json!({"metadata": {"name": INFO}, "data": {"kubeconfig": config}});
        return hand.ensure(&kind, PUBLIC, value).await;
    };
    let have = have.value();
    let content = have["data"]["kubeconfig"].as_str().unwrap_or_default();
    let mut data = have["data"].as_object().cloned().unwrap_or_default();
    data.retain(|field, _| !field.starts_with(SIGNATURE));
    for (id, key) in signers.iter().filter(|_| !content.is_empty()) {
        data.insert(format!("{SIGNATURE}{id}"), bootstrap_token::signature(content, id, key).into());
    }
    if have["data"].as_object() == Some(&data) || data.is_empty() {
        return Ok(());
    }
    let edit = |value: &mut Value| value["data"] = Value::Object(data.clone());
    hand.change(&kind, PUBLIC, INFO, "", edit).await.map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_kept_for_a_while() {
        let request = |conditions: Value, certificate: &str| {
            json!({"metadata": {"creationTimestamp": "1970-01-01T00:00:00Z"},
                "status": {"conditions": conditions, "certificate": STANDARD.encode(certificate)}})
        };
        let condition = |kind: &str| json!([{"type": kind, "lastUpdateTime": "1970-01-01T00:00:00Z"}]);
        for (request, lasts) in [
            (request(json!([]), ""), WAITING),
            (request(condition("Approved"), ""), WAITING),
            (request(condition("Approved"), "certificate"), ANSWERED),
            (request(condition("Denied"), ""), ANSWERED),
            (request(condition("Failed"), ""), ANSWERED),
        ] {
            assert!(!is_over(&request, lasts - 1), "{request}");
            assert!(is_over(&request, lasts), "{request}");
        }
    }
}
