//! Keeps the server's own identity fresh while it runs: certificates before they end, signing keys when their time has come
//! or a new one lies beside the old.

use std::{sync::Arc, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use identity::{Error, keys, shared, token};
use schema::selector::scan;
use tokio::time::Instant;

use super::account_tokens;
use crate::Server;

/// How often the directory is looked at for new keys.
const LOOK: Duration = Duration::from_secs(5);
const PRUNE: Duration = Duration::from_secs(3600);

pub async fn run(server: Arc<Server>) {
    let every = Duration::from_secs(server.identity.lifetimes().look_every());
    let (mut renewed, mut pruned) = (Instant::now(), Instant::now());
    loop {
        tokio::time::sleep(LOOK.min(every)).await;
        if renewed.elapsed() >= every {
            renewed = Instant::now();
            report(server.identity.renew());
        }
        report(tend_keys(&server).await);
        if pruned.elapsed() >= PRUNE {
            pruned = Instant::now();
            report(prune(&server).await);
        }
    }
}

fn report(done: Result<(), Error>) {
    if let Err(error) = done {
        tracing::error!(%error, "the server's identity could not be renewed; trying again");
    }
}

async fn tend_keys(server: &Arc<Server>) -> Result<(), Error> {
    let keys = server.identity.tokens().keys();
    let (store, is_shared) = (server.cache.store(), server.has_shared_store());
    for name in keys.refresh()? {
        tracing::info!(name, "a new key for ServiceAccount tokens");
        if is_shared {
            shared::publish(&**store, &name, &keys.text(&name)?).await?;
        }
    }
    let Some(at) = keys.due(server.identity.lifetimes().signing_key, clock::unix()) else { return Ok(()) };
    // Making one takes long enough to be in the way of others.
    let making = keys.clone();
    let made = move || if is_shared { keys::generate(at).map(Some) } else { making.rotate(at).map(|_| None) };
    let made = tokio::task::spawn_blocking(made).await.map_err(|e| Error::Key(e.to_string()))??;
    match made {
        // All servers try; they take over what the first of them has put there, and so does this one.
        Some((name, pem, _)) => _ = shared::publish(&**store, &name, &pem).await?,
        None => tracing::info!("the key for ServiceAccount tokens was rotated"),
    }
    Ok(())
}

/// Old keys go when no token can be left that they have signed. Those in Secrets have no end, so they are looked for.
async fn prune(server: &Arc<Server>) -> Result<(), Error> {
    let keys = server.identity.tokens().keys();
    let is_used = |id: &str| {
        let snapshot = server.cache.snapshot(account_tokens::SECRETS);
        snapshot.items.range("", "").filter(|secret| account_tokens::is_ours(&secret.json)).any(|secret| {
            let token = scan::string_at(&secret.json, &["data", "token"]).and_then(|text| STANDARD.decode(&*text).ok());
            let token = token.and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
            token::key_of(&token).as_deref() == Some(id)
        })
    };
    for name in keys.prune(server.identity.lifetimes().token, clock::unix(), is_used)? {
        tracing::info!(name, "an old key for ServiceAccount tokens is no longer needed");
        if server.has_shared_store() {
            shared::withdraw(&**server.cache.store(), &name).await?;
        }
    }
    Ok(())
}
