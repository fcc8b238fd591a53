//! What a journal says after torn writes and after damage.

use std::path::Path;

use bytes::Bytes;

use super::{sectors::SECTORS, *};
use crate::{Entry, Event};

const ID: u64 = 77;

fn put(revision: Revision, bytes: usize) -> Arc<Batch> {
    let entry = |key: &str, created| Entry {
        key: key.into(),
        value: Bytes::from(vec![b'v'; bytes]),
        created,
        modified: revision,
    };
    let events =
        vec![Event::Put(entry("a", revision)), Event::Delete { key: "b".into(), revision }, Event::Put(entry("ç", 1))];
    Arc::new(Batch { revision, events })
}

fn open(dir: &Path, settled: Revision) -> (Journal, Found) {
    match Journal::open(dir, ID, settled).unwrap() {
        Opened::Ours(journal, found) => (journal, found),
        _ => panic!("it is not ours"),
    }
}

fn revisions(found: &Found) -> Vec<Revision> {
    for batch in &found.batches {
        let bytes = batch.events.iter().find_map(|event| match event {
            Event::Put(entry) => Some(entry.value.len()),
            Event::Delete { .. } => None,
        });
        assert_eq!(batch, &*put(batch.revision, bytes.unwrap()));
    }
    found.batches.iter().map(|batch| batch.revision).collect()
}

/// What is found behind a revision in a journal that is whole.
fn found(dir: &Path, settled: Revision) -> Vec<Revision> {
    let (_, found) = open(dir, settled);
    assert_eq!(found.damage, None);
    revisions(&found)
}

/// What is said of these bytes.
fn said(bytes: &[u8], settled: Revision) -> (Vec<Revision>, Option<String>) {
    let found = sectors::read(bytes, ID, settled);
    (revisions(&found), found.damage)
}

#[test]
fn reads_what_was_appended_and_goes_on_behind_it() {
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(Journal::open(dir.path(), ID, 0).unwrap(), Opened::Missing));
    let mut journal = Journal::make(dir.path(), ID, 0).unwrap();
    assert_eq!(found(dir.path(), 0), [0; 0]);
    assert!(journal.append(&[put(1, 10), put(2, 0)]).unwrap());
    assert!(journal.append(&[put(3, 5000)]).unwrap());
    assert_eq!(found(dir.path(), 0), [1, 2, 3]);
    let (mut again, _) = open(dir.path(), 0);
    assert!(again.append(&[put(4, 7)]).unwrap());
    assert_eq!(found(dir.path(), 0), [1, 2, 3, 4]);
    assert_eq!(std::fs::metadata(dir.path().join(FILE)).unwrap().len(), SIZE as u64);
    // The file has it all: nothing follows.
    assert_eq!(found(dir.path(), 4), [0; 0]);
    assert!(matches!(Journal::open(dir.path(), 0, 4).unwrap(), Opened::Foreign(Some(0))));
    assert!(matches!(Journal::open(dir.path(), 5, 4).unwrap(), Opened::Foreign(Some(0))));
}

#[test]
fn says_when_it_is_full_and_begins_anew() {
    let dir = tempfile::tempdir().unwrap();
    let mut journal = Journal::make(dir.path(), ID, 0).unwrap();
    let mut revision = 0;
    while journal.append(&[put(revision + 1, 50_000)]).unwrap() {
        revision += 1;
    }
    assert_eq!(revision, 12);
    assert!(journal.room() < 100_000);
    assert_eq!(found(dir.path(), 0), (1..=12).collect::<Vec<_>>());
    // The others, of the same length, are still there behind it: they do not follow.
    journal.restart(12);
    assert_eq!(found(dir.path(), 12), [0; 0]);
    assert!(journal.append(&[put(13, 50_000)]).unwrap());
    assert_eq!(found(dir.path(), 12), [13]);
    assert!(!journal.append(&[put(14, SIZE)]).unwrap());
    assert_eq!(found(dir.path(), 12), [13]);
    journal.wipe(13).unwrap();
    let wiped = std::fs::read(dir.path().join(FILE)).unwrap();
    assert!(wiped[2 * SECTOR..].chunks(SECTOR).all(|sector| sector == EMPTY));
    assert_eq!(found(dir.path(), 13), [0; 0]);
}

/// The bytes before and after the last of some records was written, and the sectors that it has. With `old`, an earlier
/// round is below them.
fn last_write(old: bool, bytes: usize) -> (Vec<u8>, Vec<u8>, std::ops::Range<usize>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE);
    let mut journal = Journal::make(dir.path(), ID, 0).unwrap();
    let mut settled = 0;
    if old {
        while journal.append(&[put(settled + 1, 777)]).unwrap() {
            settled += 1;
        }
        journal.restart(settled);
        journal.mark(settled);
    }
    journal.append(&[put(settled + 1, 100)]).unwrap();
    journal.append(&[put(settled + 2, 900)]).unwrap();
    let before = std::fs::read(&path).unwrap();
    let first = journal.next.sector;
    journal.append(&[put(settled + 3, bytes)]).unwrap();
    (before, std::fs::read(&path).unwrap(), first..journal.next.sector)
}

/// A power cut while the last record is written leaves any of its sectors as they were. That is not damage, and what
/// came before stays.
#[test]
fn a_torn_record_ends_it_without_a_word() {
    for old in [false, true] {
        let (before, after, record) = last_write(old, 1500);
        let settled = marked(&after);
        let count = record.len();
        assert!((6..12).contains(&count), "{count}");
        for which in 0..(1_usize << count) - 1 {
            let mut torn = before.clone();
            for (_, at) in record.clone().enumerate().filter(|(index, _)| which & (1 << index) != 0) {
                torn[at * SECTOR..(at + 1) * SECTOR].copy_from_slice(&after[at * SECTOR..(at + 1) * SECTOR]);
            }
            assert_eq!(said(&torn, settled), (vec![settled + 1, settled + 2], None), "sectors {which:b}");
        }
        assert_eq!(said(&after, settled), (vec![settled + 1, settled + 2, settled + 3], None));
    }
}

fn marked(bytes: &[u8]) -> Revision {
    sectors::marked(bytes, ID).unwrap()
}

/// Wherever something is changed that counts, that is noticed; and whatever is not noticed has lost nothing.
#[test]
fn damage_to_any_record_is_noticed() {
    for (old, bytes) in [(false, 100), (true, 100), (true, 1500)] {
        let (_, whole, record) = last_write(old, bytes);
        let settled = marked(&whole);
        let all = vec![settled + 1, settled + 2, settled + 3];
        type Damage = fn(&mut [u8]);
        let damages: [Damage; 3] = [|sector| sector[40] ^= 1, |sector| sector.fill(0), |sector| sector.fill(0x5a)];
        for at in 0..SECTORS {
            // All sectors that count, and some behind them.
            if at > record.end + 3 && at % 97 != 0 {
                continue;
            }
            for damage in damages {
                let mut bytes = whole.clone();
                damage(&mut bytes[at * SECTOR..(at + 1) * SECTOR]);
                let (found, damage) = said(&bytes, settled);
                assert!(damage.is_some() || found == all, "sector {at}: {found:?}");
                assert_eq!(damage.is_some(), at <= record.end, "sector {at}");
            }
        }
        for byte in 0..SECTOR {
            let mut bytes = whole.clone();
            bytes[record.start * SECTOR + byte] ^= 0x10;
            assert!(said(&bytes, settled).1.is_some(), "a bit turned in byte {byte}");
        }
        for length in [0, 1, SECTOR, record.start * SECTOR, SIZE - 1] {
            assert!(said(&whole[..length], settled).1.is_some(), "cut to {length}");
        }
        // A sector that has its old content again, which no crash does to what was synced: a later record shows it.
        let mut bytes = whole.clone();
        bytes[FIRST * SECTOR..(FIRST + 1) * SECTOR].copy_from_slice(&EMPTY);
        assert!(said(&bytes, settled).1.unwrap().contains("missing"));
    }
}

#[test]
fn a_file_that_went_back_is_noticed() {
    let (_, whole, _) = last_write(true, 100);
    let settled = marked(&whole);
    assert!(said(&whole, settled - 1).1.unwrap().contains("ends at revision"));
    let dir = tempfile::tempdir().unwrap();
    let journal = Journal::make(dir.path(), ID, 4).unwrap();
    assert_eq!(found(dir.path(), 4), [0; 0]);
    journal.mark(9);
    let (_, said) = open(dir.path(), 8);
    assert!(said.damage.unwrap().contains("revision 9 was written, but the store ends at revision 8"));
    assert_eq!(found(dir.path(), 9), [0; 0]);
}

/// A record that could not be synced is written again in its place, perhaps with other content, and that may be torn.
#[test]
fn a_second_attempt_that_is_torn_is_not_taken_for_either() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE);
    let mut journal = Journal::make(dir.path(), ID, 0).unwrap();
    journal.append(&[put(1, 700)]).unwrap();
    let one = std::fs::read(&path).unwrap();
    for bytes in [700, 701, 1400] {
        journal.restart(0);
        let mut second = (*put(1, bytes)).clone();
        second.events.reverse();
        journal.append(&[Arc::new(second)]).unwrap();
        let two = std::fs::read(&path).unwrap();
        for at in FIRST..journal.next.sector {
            let mut torn = two.clone();
            torn[at * SECTOR..(at + 1) * SECTOR].copy_from_slice(&one[at * SECTOR..(at + 1) * SECTOR]);
            if torn != two {
                assert_eq!(said(&torn, 0), (vec![], None), "sector {at}");
            }
        }
    }
}

#[test]
fn the_first_format_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let batches: Vec<Batch> = (1..4).map(|revision| (*put(revision, 100)).clone()).collect();
    std::fs::write(dir.path().join(FILE), write_first([7; 16], &batches)).unwrap();
    assert!(matches!(Journal::open(dir.path(), 0, 1).unwrap(), Opened::First(found) if found == batches));
    std::fs::write(dir.path().join(FILE), [0; 4096]).unwrap();
    assert!(matches!(Journal::open(dir.path(), 0, 1).unwrap(), Opened::Foreign(None)));
}
