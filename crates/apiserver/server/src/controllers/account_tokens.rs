//! Secrets of type `kubernetes.io/service-account-token`: filled with a token that lasts as long as they do, and gone with
//! their account.

use std::{sync::Arc, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use cache::object::Object;
use cache::{Change, ChangeKind};
use identity::token::{Claims, Reference};
use schema::selector::scan;
use schema::status::Result;
use serde_json::{Value, json};

use super::Controllers;
use crate::{Server, internal::Internal, verbs::delete::Options};

pub const SECRETS: &str = "core/secrets";
const ACCOUNTS: &str = "core/serviceaccounts";
const TYPE: &str = "kubernetes.io/service-account-token";
const NAME: &str = "kubernetes.io/service-account.name";
const UID: &str = "kubernetes.io/service-account.uid";
const RETRY: Duration = Duration::from_secs(2);
/// One manifest may make the Secret before its account.
const PATIENCE: i64 = 5;

/// Whether a Secret holds such a token.
pub fn is_ours(json: &[u8]) -> bool {
    scan::string_at(json, &["type"]).is_some_and(|kind| kind == TYPE)
}

pub fn observe(controllers: &Controllers, collection: &str, change: &Change) {
    let gone = change.kind == ChangeKind::Deleted;
    match collection {
        SECRETS if !gone && is_ours(&change.object.json) => controllers.account_tokens.push(&change.object.key),
        // A namespace stands for the Secrets in it.
        ACCOUNTS if gone => {
            controllers.account_tokens.push(&format!("{}/{}/", change.object.cluster(), change.object.namespace()));
        }
        _ => {}
    }
}

pub async fn run(controllers: Arc<Controllers>, server: Arc<Server>) {
    loop {
        let key = controllers.account_tokens.pop().await;
        if key.ends_with('/') {
            let snapshot = server.cache.snapshot(SECRETS);
            let ours = snapshot.items.range(&key, "").filter(|secret| is_ours(&secret.json));
            ours.for_each(|secret| controllers.account_tokens.push(&secret.key));
            continue;
        }
        let Some(secret) = server.cache.get(SECRETS, &key).filter(|secret| is_ours(&secret.json)) else { continue };
        let done = handle(&server, &secret).await;
        if let Err(error) = &done {
            tracing::warn!(secret = &*key, %error, "the token of a Secret could not be made; trying again");
        }
        if !matches!(done, Ok(true)) {
            let again = controllers.clone();
            controllers.account_tokens.again(key, move |key| again.account_tokens.push(key), RETRY);
        }
    }
}

/// True if nothing is left to do.
async fn handle(server: &Arc<Server>, object: &Object) -> Result<bool> {
    let secret = object.value();
    let (cluster, namespace) = (object.cluster(), object.namespace());
    let hand = Internal::new(server, cluster, "kube-controller-manager");
    let kind = hand.kind("", "v1", "secrets")?;
    let text = |value: &Value, field: &str| value[field].as_str().unwrap_or_default().to_owned();
    let (name, said) = (text(&secret["metadata"]["annotations"], NAME), text(&secret["metadata"]["annotations"], UID));
    let account = server.cache.get(ACCOUNTS, &format!("{cluster}/{namespace}/{name}"));
    let uid = account.map(|account| text(&account.value()["metadata"], "uid"));
    let Some(uid) = uid.filter(|uid| said.is_empty() || said == *uid) else {
        let made = text(&secret["metadata"], "creationTimestamp").parse::<jiff::Timestamp>();
        if said.is_empty() && made.is_ok_and(|made| made.as_second() + PATIENCE > clock::unix()) {
            return Ok(false);
        }
        return hand.delete(&kind, object, &Options::background()).await.map(|()| true);
    };
    let data = |field: &str| STANDARD.decode(text(&secret["data"], field)).unwrap_or_default();
    let mut wanted = json!({});
    if said.is_empty() || data("token").is_empty() {
        let claims = Claims {
            cluster: cluster.to_owned(),
            namespace: namespace.to_owned(),
            account: Reference { name, uid: uid.clone() },
            secret: Some(Reference { name: object.name().to_owned(), uid: String::new() }),
            ..Claims::default()
        };
        let tokens = server.identity.tokens();
        let token = tokens.issue_legacy(&claims, clock::unix()).map_err(schema::status::Status::internal)?;
        wanted["token"] = STANDARD.encode(token).into();
    }
    for (field, content) in [("ca.crt", server.identity.ca_pem()), ("namespace", namespace)] {
        if data(field) != content.as_bytes() {
            wanted[field] = STANDARD.encode(content).into();
        }
    }
    if wanted.as_object().is_some_and(|map| map.is_empty()) {
        return Ok(true);
    }
    let edit = |value: &mut Value| {
        value["metadata"]["annotations"][UID] = uid.as_str().into();
        if !value["data"].is_object() {
            value["data"] = json!({});
        }
        for (field, content) in wanted.as_object().into_iter().flatten() {
            value["data"][field] = content.clone();
        }
    };
    hand.change(&kind, namespace, object.name(), "", edit).await.map(|_| true)
}
