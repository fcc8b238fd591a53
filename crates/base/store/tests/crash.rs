//! `kill -9` at random moments: what was acknowledged is there, nothing twice, revisions never go back, and a watch
//! goes on without a gap. `SELVEDGE_CRASH_ROUNDS` sets how often (40 by default). And what is damaged then is noticed.
//!
//! The moments of the kills and the damage come from a seed, which is printed. `SELVEDGE_CRASH_SEED` sets it.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test may fail, and its child prints")]

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use futures::StreamExt;
use selvedge_store::{Commit, Compare, Event, Op, Outcome, Range, Revision, SqliteOptions, SqliteStore, Store};

const DIR: &str = "SELVEDGE_CRASH_DIR";
const BASE: &str = "SELVEDGE_CRASH_BASE";

/// Not a test of its own: what the killed process does. Without its environment it does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child() {
    let (Some(dir), Ok(base)) = (std::env::var_os(DIR), std::env::var(BASE)) else { return };
    let base: Revision = base.parse().unwrap();
    let store = Arc::new(SqliteStore::open(Path::new(&dir), SqliteOptions::default()).unwrap());
    println!();
    // Trimming goes on meanwhile.
    store.compact(base).await.unwrap();
    let writers: Vec<_> = (0..8).map(|writer| tokio::spawn(write(store.clone(), base, writer))).collect();
    for writer in writers {
        writer.await.unwrap();
    }
}

async fn write(store: Arc<SqliteStore>, base: Revision, writer: usize) {
    for n in 0_usize.. {
        let key = format!("{base}/{writer}/{n}");
        let create = Op::Put { key: key.clone(), value: Bytes::from(vec![b'x'; (n * 613 + writer * 97) % 6000]) };
        let counter = format!("counter/{writer}");
        let before = store.get(&counter).await.unwrap().map_or(0, |entry| entry.modified);
        let compares =
            vec![Compare { key: key.clone(), modified: 0 }, Compare { key: counter.clone(), modified: before }];
        let count = match n % 5 {
            4 => Op::Delete { key: counter },
            _ => Op::Put { key: counter, value: key.clone().into() },
        };
        match store.commit(Commit { compares, ops: vec![create, count] }).await.unwrap() {
            Outcome::Committed(revision) => writeln!(std::io::stdout().lock(), "ack {revision} {key}").unwrap(),
            conflict => panic!("{conflict:?}"),
        }
    }
}

#[test]
fn nothing_acknowledged_is_lost() {
    let rounds = std::env::var("SELVEDGE_CRASH_ROUNDS").map_or(40, |rounds| rounds.parse().unwrap());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mut dice = Dice::seeded();
    let mut known = BTreeMap::new();
    let mut base = 0;
    for round in 0..rounds {
        let acked = run_and_kill(dir.path(), base, &mut dice);
        known.extend(acked.iter().map(|(revision, key)| (key.clone(), *revision)));
        base = runtime.block_on(check(dir.path(), base, &acked, &known, round));
    }
    assert!(known.len() > rounds, "too few commits to mean anything: {}", known.len());
}

/// Places that are damaged: `SELVEDGE_DAMAGES` sets how many.
const DAMAGES: usize = 500;

/// After a kill, one of the files is damaged somewhere: then everything that was acknowledged is there, or the store is
/// not opened and says why. It never goes on with an older state without a word.
#[test]
fn damage_after_a_crash_loses_nothing_without_a_word() {
    let damages = std::env::var("SELVEDGE_DAMAGES").map_or(DAMAGES, |damages| damages.parse().unwrap());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (mut known, mut base) = (BTreeMap::new(), 0);
    let mut dice = Dice::seeded();
    let mut refused: BTreeMap<(&str, &str), (usize, usize)> = BTreeMap::new();
    const ROUNDS: usize = 10;
    for round in 0..ROUNDS {
        let acked = run_and_kill(dir.path(), base, &mut dice);
        known.extend(acked.iter().map(|(revision, key)| (key.clone(), *revision)));
        for _ in 0..damages / ROUNDS {
            let copy = tempfile::tempdir().unwrap();
            for file in ["store.db", "store.db-wal", "store.journal"] {
                if dir.path().join(file).exists() {
                    std::fs::copy(dir.path().join(file), copy.path().join(file)).unwrap();
                }
            }
            let file = dice.one(&["store.journal", "store.journal", "store.db-wal", "store.db"]);
            let how = dice.one(&["flip", "zero", "garbage", "cut", "delete", "empty"]);
            let Some(at) = damage(&copy.path().join(file), how, &mut dice) else { continue };
            let counts = refused.entry((file, how)).or_default();
            counts.0 += 1;
            match SqliteStore::open(copy.path(), SqliteOptions::default()) {
                Err(error) => {
                    let said = error.to_string();
                    assert!(said.contains("Restore") || said.contains("missing"), "{file} {how} at {at}: {said}");
                    counts.1 += 1;
                }
                Ok(store) => {
                    let last = acked.keys().next_back().copied().unwrap_or(base);
                    let what = format!("round {round}: {file} {how} at {at}");
                    let newest = runtime.block_on(store.revision()).unwrap();
                    assert!(newest >= last, "{what}: revision {newest} after {last} was acknowledged");
                    let Ok(page) = runtime.block_on(store.range(Range::all(), 0, None)) else { continue };
                    let modified: BTreeMap<_, _> = page.entries.iter().map(|e| (e.key.as_str(), e.modified)).collect();
                    for (key, revision) in &known {
                        assert_eq!(modified.get(key.as_str()), Some(revision), "{what}: {key}");
                    }
                }
            }
        }
        base = runtime.block_on(check(dir.path(), base, &acked, &known, round));
    }
    println!("damaged, refused: {refused:?}");
    let of_journal = refused.iter().filter(|((file, _), _)| *file == "store.journal");
    assert!(of_journal.map(|(_, (_, refused))| refused).sum::<usize>() > damages / 10, "{refused:?}");
}

/// Says where, if there is anything to damage.
fn damage(path: &Path, how: &str, dice: &mut Dice) -> Option<usize> {
    let mut bytes = std::fs::read(path).ok().filter(|bytes| !bytes.is_empty())?;
    // Often where something is written: files are mostly larger than what counts in them.
    let length = if dice.roll(2) == 0 { bytes.len() } else { bytes.len().min(64 << 10) };
    let at = dice.roll(length);
    let end = bytes.len().min(at + 1 + dice.roll(4096));
    match how {
        "flip" => bytes[at] ^= 1 << dice.roll(8),
        "zero" => {
            let page = at & !4095;
            let end = bytes.len().min(page + 4096);
            bytes[page..end].fill(0);
        }
        "garbage" => bytes[at..end].iter_mut().for_each(|byte| *byte = dice.roll(256) as u8),
        "cut" => bytes.truncate(at),
        "empty" => bytes.clear(),
        _ => {
            std::fs::remove_file(path).unwrap();
            return Some(0);
        }
    }
    std::fs::write(path, bytes).unwrap();
    Some(at)
}

/// The same numbers for the same seed.
struct Dice(u64);

impl Dice {
    /// From `SELVEDGE_CRASH_SEED`, or from the clock.
    fn seeded() -> Self {
        let clock = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_micros() as u64;
        let seed = std::env::var("SELVEDGE_CRASH_SEED").map_or_else(|_| clock(), |seed| seed.parse().unwrap());
        println!("SELVEDGE_CRASH_SEED={seed}");
        // A generator of this kind must not begin with 0.
        let mut dice = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        dice.roll(2);
        dice
    }

    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % sides as u64) as usize
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.roll(of.len())]
    }
}

/// The commits that the child had been told were done when it was killed.
fn run_and_kill(dir: &Path, base: Revision, dice: &mut Dice) -> BTreeMap<Revision, String> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["child", "--exact", "--nocapture"])
        .env(DIR, dir)
        .env(BASE, base.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut acked = BTreeMap::new();
    let mut line = String::new();
    // Mostly soon after the first commit; sometimes before it, while the store is being opened.
    let delay = Duration::from_micros(dice.roll(60_000) as u64);
    if dice.roll(8) != 0 {
        while acked.is_empty() {
            line.clear();
            assert!(lines.read_line(&mut line).unwrap() > 0, "the child ended by itself");
            note(&line, &mut acked);
        }
    }
    let killer = std::thread::spawn(move || {
        std::thread::sleep(delay);
        child.kill().unwrap();
        child.wait().unwrap()
    });
    // Read on meanwhile, or the child would wait for the pipe instead of writing.
    loop {
        line.clear();
        if lines.read_line(&mut line).unwrap() == 0 || !line.ends_with('\n') {
            break;
        }
        note(&line, &mut acked);
    }
    assert!(!killer.join().unwrap().success());
    acked
}

fn note(line: &str, acked: &mut BTreeMap<Revision, String>) {
    if let Some((revision, key)) = line.trim_end().strip_prefix("ack ").and_then(|rest| rest.split_once(' ')) {
        let twice = acked.insert(revision.parse().unwrap(), key.to_owned());
        assert_eq!(twice, None, "one revision was given out twice");
    }
}

/// Returns the newest revision.
async fn check(
    dir: &Path,
    base: Revision,
    acked: &BTreeMap<Revision, String>,
    known: &BTreeMap<String, Revision>,
    round: usize,
) -> Revision {
    let store = SqliteStore::open(dir, SqliteOptions::default()).unwrap();
    let newest = store.revision().await.unwrap();
    let last = acked.keys().next_back().copied().unwrap_or(base);
    assert!(newest >= last, "round {round}: revision {newest} after {last} was acknowledged");
    let page = store.range(Range::all(), 0, None).await.unwrap();
    let modified: BTreeMap<_, _> = page.entries.iter().map(|entry| (entry.key.as_str(), entry.modified)).collect();
    for (key, revision) in known {
        assert_eq!(modified.get(key.as_str()), Some(revision), "round {round}: {key}");
    }
    // From where the last round ended: each revision once, each acknowledged one with its key, whole.
    let mut watch = store.watch(Range::all(), base).await.unwrap();
    for revision in base + 1..=newest {
        let batch = watch.next().await.unwrap().unwrap();
        assert_eq!(batch.revision, revision, "round {round}: a gap or a duplicate");
        if let Some(key) = acked.get(&revision) {
            assert!(batch.events.iter().any(|event| matches!(event, Event::Put(entry) if &entry.key == key)));
        }
        assert!(!batch.events.is_empty() && batch.events.len() <= 2);
    }
    drop(watch);
    store.close().await;
    newest
}
