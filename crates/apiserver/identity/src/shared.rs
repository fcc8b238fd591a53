//! Several servers over one store are one server: they have one authority and the same signing keys. These lie in the store,
//! beside the objects and not among them: no kind has this name, so no client can read them. Where the store is sealed,
//! so are they.

use std::{path::Path, sync::Arc};

use cache::{ChangeKind, Observer, object};
use serde_json::json;
use store::{Commit, Compare, Op, Outcome, Range, Store};

use super::{Error, files, front_proxy, keys, keys::Keys, pki};

/// The collection in the store. No resource can have this name, not even one that somebody defines.
pub const FILES: &str = "identity.selvedge.dev/_files";
const TRIES: usize = 5;

fn store_key(name: &str) -> String {
    format!("{FILES}/root//{name}")
}

fn entry(name: &str, text: &str) -> Op {
    let value =
        json!({"kind": "File", "apiVersion": "identity.selvedge.dev/v1", "metadata": {"name": name}, "text": text});
    Op::Put { key: store_key(name), value: object::encode(&value) }
}

/// A file, if the name is one of ours.
fn is_ours(name: &str) -> bool {
    matches!(name, "ca.crt" | "ca.key" | "admin.token") || front_proxy::FILES.contains(&name) || keys::is_name(name)
}

/// Takes over the identity that is in the store, or puts ours there as the first.
pub async fn join(store: &dyn Store, dir: &Path, now: i64) -> Result<(), Error> {
    for _ in 0..TRIES {
        let found = read(store).await?;
        files::make_dir(dir)?;
        for (name, text) in &found {
            let path = dir.join(name);
            if files::read(&path)?.as_deref() != Some(text.as_str()) {
                files::write(&path, text.as_bytes())?;
            }
        }
        let mut mine = Vec::new();
        if found.is_empty() {
            mine = pki::found(dir, now)?;
            mine.extend(keys::found(dir, now)?);
        }
        // Stores that an earlier version began have no authority for the front proxy.
        if !found.iter().any(|(name, _)| front_proxy::FILES.contains(&name.as_str())) {
            mine.extend(front_proxy::found(dir, now)?);
        }
        if mine.is_empty() {
            return Ok(());
        }
        let mut commit = Commit::default();
        for (name, text) in &mine {
            commit.compares.push(Compare { key: store_key(name), modified: 0 });
            commit.ops.push(entry(name, text));
        }
        if let Outcome::Committed(_) = store.commit(commit).await? {
            return Ok(());
        }
    }
    Err(Error::Key("the identity in the store changes faster than it can be read".to_owned()))
}

async fn read(store: &dyn Store) -> Result<Vec<(String, String)>, Error> {
    let page = store.range(Range::prefix(&format!("{FILES}/")), 1000, None).await?;
    let file = |entry: &store::Entry| {
        let name = entry.key.rsplit('/').next().filter(|name| is_ours(name))?.to_owned();
        let value: serde_json::Value = serde_json::from_slice(&entry.value).ok()?;
        Some((name, value["text"].as_str()?.to_owned()))
    };
    Ok(page.entries.iter().filter_map(file).collect())
}

/// Makes a key known to the other servers. False if one of that name was there first.
pub async fn publish(store: &dyn Store, name: &str, pem: &str) -> Result<bool, Error> {
    let commit = Commit { compares: vec![Compare { key: store_key(name), modified: 0 }], ops: vec![entry(name, pem)] };
    Ok(matches!(store.commit(commit).await?, Outcome::Committed(_)))
}

pub async fn withdraw(store: &dyn Store, name: &str) -> Result<(), Error> {
    let commit = Commit { compares: Vec::new(), ops: vec![Op::Delete { key: store_key(name) }] };
    store.commit(commit).await.map(|_| ()).map_err(Error::from)
}

/// Follows what other servers do with the keys.
pub fn observer(keys: Arc<Keys>) -> Observer {
    Box::new(move |collection, change| {
        if collection != FILES || !keys::is_name(change.object.name()) {
            return;
        }
        let name = change.object.name();
        let done = match change.kind {
            ChangeKind::Deleted => keys.forget(name),
            _ => keys.adopt(name, change.object.value()["text"].as_str().unwrap_or_default()),
        };
        if let Err(error) = done {
            tracing::error!(%error, name, "a key of another server could not be taken over");
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_second_server_is_the_first() {
        let plural = FILES.split('/').next_back().unwrap();
        assert!(!schema::names::dns1035_label(plural).is_empty(), "a definition could serve the keys");
        let store = store::MemoryStore::default();
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        join(&store, one.path(), 100).await.unwrap();
        join(&store, two.path(), 200).await.unwrap();
        for name in ["ca.crt", "ca.key", "admin.token", "front-proxy-ca.key", "service-account-100.key"] {
            let text = |dir: &Path| std::fs::read_to_string(dir.join(name)).unwrap();
            assert_eq!(text(one.path()), text(two.path()), "{name}");
        }
        assert!(!two.path().join("service-account-200.key").exists());
        let (name, pem, _) = keys::generate(300).unwrap();
        assert!(publish(&store, &name, &pem).await.unwrap());
        assert!(!publish(&store, &name, &pem).await.unwrap(), "somebody was first");
        assert_eq!(read(&store).await.unwrap().len(), 7);
        withdraw(&store, &name).await.unwrap();
        assert_eq!(read(&store).await.unwrap().len(), 6);
    }
}
