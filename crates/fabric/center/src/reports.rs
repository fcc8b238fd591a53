//! What edges report: under keys of their own in the store, read from there by whoever wants them. They are no objects, so the server's
//! cache does not hold them: ten thousand edges report more than fits into memory.

use std::collections::BTreeMap;

use bytes::{BufMut, Bytes, BytesMut};
use link::{Key, Report, Version};
use store::{Commit, Compare, Op, Outcome, Range, Store};

use crate::allowance::{Decision, Ledger, Refusal, Standing, is_whole};

/// Behind it lies `<uid of the SyncTarget>/<key of the object>`.
const REPORTS: &str = "~reports/";
/// The same without an object: below which version reports are void.
const FLOORS: &str = "~floors/";
/// etcd takes at most 128 operations and as many compares in one commit.
const AT_ONCE: usize = 100;
const TRIES: usize = 10;
/// At most this many reports of one message are looked at.
const MOST_AT_ONCE: usize = 2000;
const PAGE: usize = 500;

/// An edge, and what it may report.
pub struct Source<'a> {
    /// Of the SyncTarget.
    pub uid: &'a str,
    /// How many objects it shall hold.
    pub held: usize,
    pub standing: &'a (dyn Fn(&str) -> Standing + Sync),
    /// Whether there is room for so many bytes more.
    pub room: &'a (dyn Fn(i64) -> Result<(), String> + Sync),
}

/// What became of some reports.
#[derive(Debug, Default, PartialEq)]
pub struct Saved {
    /// All of it is durable at this revision.
    pub revision: u64,
    pub refused: BTreeMap<Key, Refusal>,
}

impl Saved {
    /// Whether nothing was refused of this object.
    pub fn keeps(&self, key: &Key) -> bool {
        !self.refused.contains_key(key)
    }
}

/// Stores what is newer than what is there, as far as it may be reported, and brings the ledger up to date.
pub async fn save(
    store: &dyn Store,
    source: &Source<'_>,
    ledger: &mut Ledger,
    reports: &[Report],
) -> Result<Saved, store::Error> {
    let mut saved = Saved::default();
    // No edge says more at once; what is behind that is not even looked up.
    let (reports, surplus) = reports.split_at(reports.len().min(MOST_AT_ONCE));
    saved.refused.extend(surplus.iter().map(|report| (report.key.clone(), Refusal::TooMany)));
    for some in reports.chunks(AT_ONCE) {
        let (revision, refused) = save_at_once(store, source, ledger, some).await?;
        saved.revision = revision.max(saved.revision);
        saved.refused.extend(refused);
    }
    if reports.is_empty() {
        saved.revision = store.revision().await?;
    }
    Ok(saved)
}

async fn save_at_once(
    store: &dyn Store,
    source: &Source<'_>,
    ledger: &mut Ledger,
    reports: &[Report],
) -> Result<(u64, Vec<(Key, Refusal)>), store::Error> {
    for _ in 0..TRIES {
        let (mut commit, mut after, mut refused) = (Commit::default(), *ledger, Vec::new());
        for (n, report) in reports.iter().enumerate() {
            // Of several reports of one object the newest counts.
            let newer =
                |(m, other): (usize, &Report)| other.key == report.key && (other.version, m) > (report.version, n);
            if reports.iter().enumerate().any(newer) {
                continue;
            }
            let key = format!("{REPORTS}{}/{}", source.uid, report.key);
            let found = store.get(&key).await?;
            let known = found.as_ref().and_then(|entry| decode(&entry.value));
            if known.as_ref().is_some_and(|(version, _)| *version > report.version) {
                continue;
            }
            let known = known.map(|(_, state)| state);
            let standing = (source.standing)(&report.key);
            let mut decision = after.decide(report, known.as_deref(), standing, source.held);
            let more = report.state.as_ref().map_or(0, |state| state.len() as i64)
                - known.as_ref().map_or(0, |known| known.len() as i64);
            if decision == Decision::Keep
                && let Err(why) = (source.room)(after.bytes as i64 - ledger.bytes as i64 + more)
            {
                decision = Decision::Refuse(Refusal::NoRoom(why));
            }
            match decision {
                Decision::Nothing => continue,
                Decision::Refuse(why) => {
                    refused.push((report.key.clone(), why));
                    continue;
                }
                Decision::Keep | Decision::Delete => {}
            }
            if let Some(known) = &known {
                after.remove(known);
            }
            commit.compares.push(Compare { key: key.clone(), modified: found.map_or(0, |entry| entry.modified) });
            commit.ops.push(match &report.state {
                Some(state) => {
                    after.add(state);
                    Op::Put { key, value: encode(report.version, state) }
                }
                None => Op::Delete { key },
            });
        }
        if let Outcome::Committed(revision) = store.commit(commit).await? {
            *ledger = after;
            return Ok((revision, refused));
        }
    }
    Err(store::Error::Unavailable("others write the same reports all the time".to_owned()))
}

/// What the store has of an edge.
pub async fn measure(store: &dyn Store, uid: &str) -> Result<Ledger, store::Error> {
    let (mut ledger, mut after) = (Ledger::default(), String::new());
    loop {
        let page = list(store, uid, &after, PAGE).await?;
        page.iter().filter_map(|report| report.state.as_deref()).for_each(|state| ledger.add(state));
        match page.last() {
            Some(last) if page.len() == PAGE => after = last.key.to_string(),
            _ => return Ok(ledger),
        }
    }
}

/// Deletes what is of no use any more: reports of objects that the edge has nothing to do with.
pub async fn prune(store: &dyn Store, source: &Source<'_>) -> Result<Ledger, store::Error> {
    let (mut ledger, mut after) = (Ledger::default(), String::new());
    loop {
        let page = list(store, source.uid, &after, PAGE).await?;
        let mut ops = Vec::new();
        for report in &page {
            let state = report.state.as_deref().unwrap_or_default();
            let useful = match (source.standing)(&report.key) {
                Standing::Held => true,
                Standing::AskedFor => is_whole(state),
                Standing::Nothing => false,
            };
            match useful {
                true => ledger.add(state),
                false => ops.push(Op::Delete { key: format!("{REPORTS}{}/{}", source.uid, report.key) }),
            }
        }
        for some in ops.chunks(AT_ONCE) {
            store.commit(Commit { compares: Vec::new(), ops: some.to_vec() }).await?;
        }
        match page.last() {
            Some(last) if page.len() == PAGE => after = last.key.to_string(),
            _ => return Ok(ledger),
        }
    }
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

/// The same, with the revision of the store at which it was saved.
pub async fn get_at(store: &dyn Store, uid: &str, key: &str) -> Result<Option<(Report, u64)>, store::Error> {
    let entry = store.get(&format!("{REPORTS}{uid}/{key}")).await?;
    Ok(entry.and_then(|entry| Some((report(uid, &entry)?, entry.modified))))
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

    async fn save(store: &MemoryStore, uid: &str, reports: &[Report]) -> Result<u64, store::Error> {
        let (standing, room) = (|_: &str| Standing::Held, |_| Ok(()));
        let source = Source { uid, held: 1000, standing: &standing, room: &room };
        let mut ledger = measure(store, uid).await?;
        let saved = super::save(store, &source, &mut ledger, reports).await?;
        assert_eq!(ledger, measure(store, uid).await?, "the ledger says what is there");
        Ok(saved.revision)
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
    async fn what_may_not_be_reported_is_named_and_left_out() {
        let store = MemoryStore::default();
        let standing = |key: &str| if key.starts_with('h') { Standing::Held } else { Standing::Nothing };
        let room = |more: i64| if more > 40 { Err("full".to_owned()) } else { Ok(()) };
        let source = Source { uid: "u", held: 2, standing: &standing, room: &room };
        let mut ledger = Ledger::default();
        let long = "0123456789012345678901234567890";
        let reports =
            [one("h1", 1, Some(long)), one("invented", 2, Some("x")), one("h2", 3, Some(long)), one("gone", 4, None)];
        let saved = super::save(&store, &source, &mut ledger, &reports).await.unwrap();
        let why: Vec<(&str, usize)> = saved.refused.iter().map(|(key, why)| (&**key, why.reason())).collect();
        assert_eq!(why, [("h2", 4), ("invented", 0)]);
        assert!(saved.keeps(&"h1".into()) && !saved.keeps(&"h2".into()));
        assert_eq!(states(&store, "u").await, pairs(&[("h1", long)]));
        assert_eq!(ledger, measure(&store, "u").await.unwrap());
        let standing = |_: &str| Standing::Nothing;
        let pruned = prune(&store, &Source { standing: &standing, ..source }).await.unwrap();
        assert_eq!((pruned, states(&store, "u").await.len()), (Ledger::default(), 0));
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
