//! What edges report: under keys of their own in the store, read from there by whoever wants them. They are no objects, so the server's
//! cache does not hold them: ten thousand edges report more than fits into memory.

use bytes::{BufMut, Bytes, BytesMut};
use link::{Report, Version};
use store::{Commit, Compare, Op, Outcome, Range, Store};

/// Behind it lies `<uid of the SyncTarget>/<key of the object>`.
const REPORTS: &str = "~reports/";
/// The same without an object: below which version reports are void.
const FLOORS: &str = "~floors/";
/// etcd takes at most 128 operations and as many compares in one commit.
const AT_ONCE: usize = 100;
const TRIES: usize = 10;
const PAGE: usize = 500;

/// Stores what is newer than what is there. Answers with the revision at which all of it is durable.
pub async fn save(store: &dyn Store, uid: &str, reports: &[Report]) -> Result<u64, store::Error> {
    let mut durable = 0;
    for some in reports.chunks(AT_ONCE) {
        durable = save_at_once(store, uid, some).await?.max(durable);
    }
    Ok(if reports.is_empty() { store.revision().await? } else { durable })
}

async fn save_at_once(store: &dyn Store, uid: &str, reports: &[Report]) -> Result<u64, store::Error> {
    for _ in 0..TRIES {
        let mut commit = Commit::default();
        for (n, report) in reports.iter().enumerate() {
            // Of several reports of one object the newest counts.
            let newer =
                |(m, other): (usize, &Report)| other.key == report.key && (other.version, m) > (report.version, n);
            if reports.iter().enumerate().any(newer) {
                continue;
            }
            let key = format!("{REPORTS}{uid}/{}", report.key);
            let found = store.get(&key).await?;
            if found
                .as_ref()
                .and_then(|entry| decode(&entry.value))
                .is_some_and(|(version, _)| version > report.version)
            {
                continue;
            }
            commit.compares.push(Compare { key: key.clone(), modified: found.map_or(0, |entry| entry.modified) });
            commit.ops.push(match &report.state {
                Some(state) => Op::Put { key, value: encode(report.version, state) },
                None => Op::Delete { key },
            });
        }
        if let Outcome::Committed(revision) = store.commit(commit).await? {
            return Ok(revision);
        }
    }
    Err(store::Error::Unavailable("others write the same reports all the time".to_owned()))
}

/// What came before this version is void. Whether that is news.
pub async fn void_below(store: &dyn Store, uid: &str, floor: Version) -> Result<bool, store::Error> {
    let key = format!("{FLOORS}{uid}");
    let known = store.get(&key).await?.and_then(|entry| decode(&entry.value)).map(|(version, _)| version);
    if known >= Some(floor) || (known.is_none() && floor == Version::default()) {
        return Ok(false);
    }
    delete(store, &format!("{REPORTS}{uid}/"), |version| version < floor).await?;
    let ops = vec![Op::Put { key, value: encode(floor, b"") }];
    store.commit(Commit { compares: Vec::new(), ops }).await.map(|_| true)
}

/// Nobody will ask for them any more.
pub async fn forget(store: &dyn Store, uid: &str) -> Result<(), store::Error> {
    delete(store, &format!("{REPORTS}{uid}/"), |_| true).await?;
    let ops = vec![Op::Delete { key: format!("{FLOORS}{uid}") }];
    store.commit(Commit { compares: Vec::new(), ops }).await.map(drop)
}

/// Whose reports are in the store.
pub async fn owners(store: &dyn Store) -> Result<Vec<String>, store::Error> {
    let (mut owners, mut range) = (Vec::new(), Range::prefix(REPORTS));
    loop {
        let page = store.range(range.clone(), 1, None).await?;
        let uid =
            page.entries.first().and_then(|entry| Some(entry.key.strip_prefix(REPORTS)?.split_once('/')?.0.to_owned()));
        let Some(uid) = uid else { return Ok(owners) };
        range.start = Range::prefix(&format!("{REPORTS}{uid}/")).end;
        owners.push(uid);
    }
}

/// The latest state of one object at an edge.
pub async fn get(store: &dyn Store, uid: &str, key: &str) -> Result<Option<Report>, store::Error> {
    let entry = store.get(&format!("{REPORTS}{uid}/{key}")).await?;
    Ok(entry.and_then(|entry| report(uid, &entry)))
}

/// All that an edge reports, in pages: those behind the key `after`.
pub async fn list(store: &dyn Store, uid: &str, after: &str, limit: usize) -> Result<Vec<Report>, store::Error> {
    let mut range = Range::prefix(&format!("{REPORTS}{uid}/"));
    if !after.is_empty() {
        range.start = format!("{REPORTS}{uid}/{after}\0");
    }
    let page = store.range(range, limit, None).await?;
    Ok(page.entries.iter().filter_map(|entry| report(uid, entry)).collect())
}

fn report(uid: &str, entry: &store::Entry) -> Option<Report> {
    let key = entry.key.strip_prefix(REPORTS)?.strip_prefix(uid)?.strip_prefix('/')?;
    let (version, state) = decode(&entry.value)?;
    Some(Report { key: key.into(), version, state: Some(state) })
}

async fn delete(store: &dyn Store, prefix: &str, which: impl Fn(Version) -> bool) -> Result<(), store::Error> {
    let mut range = Range::prefix(prefix);
    loop {
        let page = store.range(range.clone(), PAGE, None).await?;
        let Some(last) = page.entries.last() else { return Ok(()) };
        range.start = format!("{}\0", last.key);
        let void = |entry: &store::Entry| decode(&entry.value).is_none_or(|(version, _)| which(version));
        let ops: Vec<Op> = page
            .entries
            .iter()
            .filter(|entry| void(entry))
            .map(|entry| Op::Delete { key: entry.key.clone() })
            .collect();
        for some in ops.chunks(AT_ONCE) {
            store.commit(Commit { compares: Vec::new(), ops: some.to_vec() }).await?;
        }
        if !page.more {
            return Ok(());
        }
    }
}

fn encode(version: Version, state: &[u8]) -> Bytes {
    let mut value = BytesMut::with_capacity(16 + state.len());
    value.put_u64(version.epoch);
    value.put_u64(version.counter);
    value.put_slice(state);
    value.freeze()
}

fn decode(value: &Bytes) -> Option<(Version, Bytes)> {
    let (epoch, rest) = value.split_first_chunk::<8>()?;
    let (counter, _) = rest.split_first_chunk::<8>()?;
    let version = Version { epoch: u64::from_be_bytes(*epoch), counter: u64::from_be_bytes(*counter) };
    Some((version, value.slice(16..)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::MemoryStore;

    fn one(key: &str, counter: u64, state: Option<&'static str>) -> Report {
        Report { key: key.into(), version: Version { epoch: 1, counter }, state: state.map(Bytes::from) }
    }

    async fn states(store: &MemoryStore, uid: &str) -> Vec<(String, String)> {
        let text = |r: &Report| (r.key.to_string(), String::from_utf8(r.state.clone().unwrap().to_vec()).unwrap());
        list(store, uid, "", 0).await.unwrap().iter().map(text).collect()
    }

    fn pairs(all: &[(&str, &str)]) -> Vec<(String, String)> {
        all.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
    }

    #[tokio::test]
    async fn the_newest_wins_whatever_comes_late() {
        let store = MemoryStore::default();
        let first = save(&store, "u", &[one("a", 1, Some("1")), one("b", 2, Some("2"))]).await.unwrap();
        assert_eq!(first, 1, "one commit");
        save(&store, "u", &[one("a", 5, Some("5"))]).await.unwrap();
        let late = save(&store, "u", &[one("a", 4, Some("4"))]).await.unwrap();
        assert_eq!(late, 2, "nothing to write is durable already");
        save(&store, "u", &[one("b", 6, None), one("c", 8, Some("8")), one("c", 7, Some("7"))]).await.unwrap();
        save(&store, "v", &[one("a", 1, Some("v"))]).await.unwrap();
        assert_eq!(states(&store, "u").await, pairs(&[("a", "5"), ("c", "8")]));
        assert_eq!(get(&store, "u", "a").await.unwrap(), Some(one("a", 5, Some("5"))));
        assert_eq!(list(&store, "u", "a", 1).await.unwrap(), [one("c", 8, Some("8"))]);
        assert_eq!(owners(&store).await.unwrap(), ["u", "v"]);
        forget(&store, "u").await.unwrap();
        assert_eq!(owners(&store).await.unwrap(), ["v"]);
    }

    #[tokio::test]
    async fn what_is_below_the_floor_goes_once() {
        let store = MemoryStore::default();
        let many: Vec<Report> = (0..250).map(|n| one(&format!("k{n:03}"), n, Some("x"))).collect();
        save(&store, "u", &many).await.unwrap();
        void_below(&store, "u", Version { epoch: 1, counter: 240 }).await.unwrap();
        assert_eq!(states(&store, "u").await.len(), 10);
        let revision = store.revision().await.unwrap();
        void_below(&store, "u", Version { epoch: 1, counter: 240 }).await.unwrap();
        void_below(&store, "new", Version::default()).await.unwrap();
        assert_eq!(store.revision().await.unwrap(), revision, "an edge that comes again costs nothing");
    }
}
