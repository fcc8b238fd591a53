//! What was in the revisions that edges hold, in the store: `~rollouts/<uid of the placement>/<revision>/<key of the object>`. They are no
//! objects, so the server's cache passes over them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bytes::Bytes;
use placement::{
    Key,
    engine::Saved,
    workspace::{Item, Tailor},
};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use store::{Commit, Op, Range, Store};

const ROLLOUTS: &str = "~rollouts/";
/// etcd takes at most 128 operations in one commit.
const AT_ONCE: usize = 100;
const PAGE: usize = 500;

#[derive(Serialize, Deserialize)]
struct Record<'a> {
    content: std::borrow::Cow<'a, str>,
    version: std::borrow::Cow<'a, str>,
    customizer: Option<std::borrow::Cow<'a, str>>,
    tailored: bool,
    bare: bool,
}

/// What stands for contents: equal ones have equal digests.
pub fn digest(items: &BTreeMap<Key, Item>) -> String {
    let mut hash = Sha256::new();
    let mut add = |part: &[u8]| {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    };
    for (key, item) in items {
        add(key.as_bytes());
        // Of a Namespace that shall only be there, the rest does not matter.
        add(if item.bare { b"" } else { &item.content });
        add(item.tailor.as_ref().map_or(&b""[..], |tailor| &tailor.json));
        add(&[u8::from(item.bare)]);
    }
    hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

fn prefix(uid: &str, revision: u64) -> String {
    format!("{ROLLOUTS}{uid}/{revision}/")
}

pub async fn save(
    store: &dyn Store,
    uid: &str,
    revision: u64,
    items: &BTreeMap<Key, Item>,
) -> Result<(), store::Error> {
    let prefix = prefix(uid, revision);
    let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned().into();
    let put = |(key, item): (&Key, &Item)| {
        let record = Record {
            content: text(&item.content),
            version: (&*item.version).into(),
            customizer: item.tailor.as_ref().map(|tailor| text(&tailor.json)),
            tailored: item.is_tailored,
            bare: item.bare,
        };
        let value = serde_json::to_vec(&record).unwrap_or_default().into();
        Op::Put { key: format!("{prefix}{key}"), value }
    };
    let ops: Vec<Op> = items.iter().map(put).collect();
    for some in ops.chunks(AT_ONCE) {
        store.commit(Commit { compares: Vec::new(), ops: some.to_vec() }).await?;
    }
    Ok(())
}

/// `None` if it is not all there.
pub async fn load(
    store: &dyn Store,
    uid: &str,
    revision: u64,
    wanted: &str,
) -> Result<Option<Arc<Saved>>, store::Error> {
    let prefix = prefix(uid, revision);
    let (mut items, mut range) = (BTreeMap::new(), Range::prefix(&prefix));
    loop {
        let page = store.range(range.clone(), PAGE, None).await?;
        for entry in &page.entries {
            let key = entry.key.strip_prefix(&prefix).map(Key::from);
            let record: Option<Record<'_>> = serde_json::from_slice(&entry.value).ok();
            let (Some(key), Some(record)) = (key, record) else { return Ok(None) };
            let tailor = record.customizer.map(|json| Arc::new(Tailor::new(json.into_owned().into())));
            let item = Item {
                content: record.content.into_owned().into(),
                version: record.version.as_ref().into(),
                tailor,
                is_tailored: record.tailored,
                bare: record.bare,
            };
            items.insert(key, item);
        }
        match page.entries.last().filter(|_| page.more) {
            Some(last) => range.start = format!("{}\0", last.key),
            None => break,
        }
    }
    Ok((digest(&items) == wanted).then(|| Arc::new(Saved::new(items))))
}

/// Deletes what is saved of a placement but these revisions.
pub async fn keep_only(store: &dyn Store, uid: &str, revisions: &BTreeSet<u64>) -> Result<(), store::Error> {
    let own = format!("{ROLLOUTS}{uid}/");
    let mut range = Range::prefix(&own);
    loop {
        let page = store.range(range.clone(), 1, None).await?;
        let number =
            page.entries.first().and_then(|entry| entry.key.strip_prefix(&own)?.split_once('/')?.0.parse().ok());
        let Some(number): Option<u64> = number else { return Ok(()) };
        let all = Range::prefix(&prefix(uid, number));
        range.start.clone_from(&all.end);
        if !revisions.contains(&number) {
            delete(store, all).await?;
        }
    }
}

async fn delete(store: &dyn Store, mut range: Range) -> Result<(), store::Error> {
    loop {
        let page = store.range(range.clone(), AT_ONCE, None).await?;
        let Some(last) = page.entries.last() else { return Ok(()) };
        range.start = format!("{}\0", last.key);
        let ops = page.entries.iter().map(|entry| Op::Delete { key: entry.key.clone() }).collect();
        store.commit(Commit { compares: Vec::new(), ops }).await?;
    }
}

/// Of which placements something is saved.
pub async fn owners(store: &dyn Store) -> Result<Vec<String>, store::Error> {
    let (mut owners, mut range) = (Vec::new(), Range::prefix(ROLLOUTS));
    loop {
        let page = store.range(range.clone(), 1, None).await?;
        let uid = page.entries.first().and_then(|entry| entry.key.strip_prefix(ROLLOUTS)?.split_once('/'));
        let Some(uid) = uid.map(|(uid, _)| uid.to_owned()) else { return Ok(owners) };
        range.start = Range::prefix(&format!("{ROLLOUTS}{uid}/")).end;
        owners.push(uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::MemoryStore;

    fn item(text: &str, customizer: Option<&str>, bare: bool) -> Item {
        let tailor = customizer.map(|json| Arc::new(Tailor::new(Bytes::from(json.to_owned()))));
        let content = Bytes::from(format!("{{\"data\":\"{text}\"}}"));
        Item { content, version: "v1".into(), is_tailored: tailor.is_some(), tailor, bare }
    }

    #[tokio::test]
    async fn what_was_saved_is_found_again_or_not_at_all() {
        let store = MemoryStore::default();
        let mut items: BTreeMap<Key, Item> = (0..250)
            .map(|n| (Key::from(format!("core/configmaps/a/c{n}")), item(&n.to_string(), None, false)))
            .collect();
        items.insert("core/namespaces//a".into(), item("n", None, true));
        items.insert("core/configmaps/a/z".into(), item("ä\"", Some("{\"replacements\":[]}"), false));
        let stands_for = digest(&items);
        save(&store, "u", 7, &items).await.unwrap();
        save(&store, "u", 70, &BTreeMap::new()).await.unwrap();
        let found = load(&store, "u", 7, &stands_for).await.unwrap();
        assert_eq!(found.map(|saved| saved.items().clone()), Some(items.clone()));
        assert_eq!(load(&store, "u", 7, "other").await.unwrap(), None);
        assert_eq!(load(&store, "u", 8, &stands_for).await.unwrap(), None);
        assert!(load(&store, "u", 8, &digest(&BTreeMap::new())).await.unwrap().is_some(), "nothing is whole");

        save(&store, "u", 8, &items).await.unwrap();
        save(&store, "v", 1, &items).await.unwrap();
        assert_eq!(owners(&store).await.unwrap(), ["u", "v"]);
        keep_only(&store, "u", &[8].into()).await.unwrap();
        assert_eq!(load(&store, "u", 7, &stands_for).await.unwrap(), None);
        assert!(load(&store, "u", 8, &stands_for).await.unwrap().is_some());
        keep_only(&store, "u", &BTreeSet::new()).await.unwrap();
        assert_eq!(owners(&store).await.unwrap(), ["v"]);
    }

    #[test]
    fn digests_differ_where_edges_would() {
        let of = |item: Item| digest(&[(Key::from("k"), item)].into());
        let plain = of(item("a", None, false));
        assert_eq!(plain, of(item("a", None, false)));
        for other in [item("b", None, false), item("a", Some("{}"), false), item("a", None, true)] {
            assert_ne!(plain, of(other));
        }
        assert_eq!(of(item("a", None, true)), of(item("b", None, true)));
    }
}
