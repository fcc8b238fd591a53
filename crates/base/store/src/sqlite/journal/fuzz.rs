//! The laws of journal records, for the fuzzer.

use super::{
    batches,
    sectors::{self, EMPTY, FIRST, Position, SECTOR, SIZE},
};
use crate::Revision;

const ID: u64 = 7;

/// Takes bytes for the body of a record, and for sectors. Fails with the law that was broken.
#[doc(hidden)]
pub fn check_journal_record(input: &[u8]) -> Result<(), String> {
    let decoded = batches::decode(input);
    if let Some(batches) = &decoded {
        let mut again = Vec::new();
        batches.iter().for_each(|batch| batches::encode(batch, &mut again));
        if again != input {
            return Err(format!("{batches:?} is not encoded as it was decoded"));
        }
    }
    let first = decoded.as_ref().and_then(|batches| batches.first()).map_or(1, |batch| batch.revision);
    let settled = first.saturating_sub(1);
    let mut journal = EMPTY.repeat(SIZE / SECTOR);
    journal.splice(..2 * SECTOR, [sectors::header(ID), sectors::mark(ID, settled)].concat());

    // Whole sectors with this body: what is found is what was decoded, or damage.
    let (mut body, mut framed) = (Vec::new(), Vec::new());
    sectors::begin_body(&mut body);
    body.extend_from_slice(input);
    let next = Position { sector: FIRST, base: settled, number: 0 };
    if sectors::frame(ID, next, &mut body, &mut framed).is_some() {
        let mut bytes = journal.clone();
        bytes.splice(FIRST * SECTOR..FIRST * SECTOR + framed.len(), framed.iter().copied());
        let found = sectors::read(&bytes, ID, settled);
        let follows = |revision: Revision, at: usize| revision == settled + 1 + at as Revision;
        let fits = |batches: &Vec<_>| !batches.is_empty();
        let expected = decoded
            .filter(fits)
            .filter(|batches| batches.iter().enumerate().all(|(at, batch)| follows(batch.revision, at)));
        match expected {
            Some(batches) if found.batches != batches || found.damage.is_some() => {
                return Err(format!("wrote {batches:?}, found {:?} ({:?})", found.batches, found.damage));
            }
            None if found.damage.is_none() => return Err(format!("no damage, and found {:?}", found.batches)),
            _ => {}
        }
    }

    // The bytes themselves in the place of sectors: nothing is found in them.
    let length = input.len().min(SIZE - FIRST * SECTOR);
    let mut bytes = journal;
    if let Some(raw) = input.get(..length) {
        bytes.splice(FIRST * SECTOR..FIRST * SECTOR + length, raw.iter().copied());
    }
    match sectors::read(&bytes, ID, settled).batches {
        found if found.is_empty() => Ok(()),
        found => Err(format!("found {found:?} in bytes that no journal has written")),
    }
}
