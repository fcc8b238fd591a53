//! The journal's format, and what its bytes say after a crash. No I/O.
//!
//! The file is a row of sectors of 512 bytes, the unit that a disk writes wholly or not at all. Every sector has a
//! digest of its own, over its content, its place and the journal's id; a sector that was never used holds a fixed
//! pattern. So each sector is one of three things: what was written last, what was written there before, or damaged.
//! That tells a torn write from damage (docs/explanation/store.md has the reasoning).
//!
//! Sector 0 is the header, sector 1 the mark, and records follow. A record is a group of commits and fills whole
//! sectors, each of which says which record it belongs to: the revision that the round of records follows (`base`), the
//! record's number in the round, and the sector's place in the record.

use aws_lc_rs::digest;

use super::batches;
use crate::{Batch, Revision};

pub(super) const SECTOR: usize = 512;
/// Room for some hundred usual objects: enough that committing the transaction behind them is a small part of the work.
pub(super) const SECTORS: usize = 2560;
pub(super) const SIZE: usize = SECTOR * SECTORS;
/// The first sector of the first record.
pub(super) const FIRST: usize = 2;
const MARK: usize = 1;
const MAGIC: &[u8; 8] = b"SELVJNL2";
const STAMP: usize = 16;
const DIGEST: usize = 16;
const ROOM: usize = SECTOR - STAMP - DIGEST;
/// In front of a record's batches: their length, and a digest over the digests of the record's other sectors.
const HEAD: usize = 4 + DIGEST;

pub(super) type Sector = [u8; SECTOR];
type Digest = [u8; DIGEST];

/// What a sector holds that was never used, or not since the journal was wiped.
pub(super) const EMPTY: Sector = {
    let pattern = b"an empty sector\n";
    let mut sector = [0; SECTOR];
    let mut at = 0;
    while at < SECTOR {
        sector[at] = pattern[at % pattern.len()];
        at += 1;
    }
    sector
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    base: Revision,
    number: u32,
    index: u16,
    count: u16,
}

#[derive(Debug, PartialEq, Eq)]
enum Seen<'a> {
    Empty,
    Written(Stamp, &'a [u8]),
    Damaged,
}

/// Where the next record goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) sector: usize,
    pub(super) base: Revision,
    pub(super) number: u32,
}

/// What a journal says.
#[derive(Debug)]
pub(in super::super) struct Found {
    /// What follows the file's last revision.
    pub(in super::super) batches: Vec<Batch>,
    pub(super) next: Position,
    /// Why acknowledged writes may be missing, if so.
    pub(in super::super) damage: Option<String>,
}

// === writing ===

pub(super) fn header(id: u64) -> Sector {
    let mut sector = [0; SECTOR];
    sector[..8].copy_from_slice(MAGIC);
    sector[8..STAMP].copy_from_slice(&id.to_le_bytes());
    seal(&mut sector, id, 0);
    sector
}

/// Says that the file has everything up to this revision.
pub(super) fn mark(id: u64, settled: Revision) -> Sector {
    let mut sector = [0; SECTOR];
    sector[..8].copy_from_slice(&settled.to_le_bytes());
    seal(&mut sector, id, MARK);
    sector
}

/// How many bytes of batches still fit behind a position.
pub(super) fn room(next: Position) -> usize {
    (SECTORS.saturating_sub(next.sector) * ROOM).saturating_sub(HEAD)
}

/// The body of a record before it is framed.
pub(super) fn begin_body(body: &mut Vec<u8>) {
    body.clear();
    body.extend_from_slice(&[0; HEAD]);
}

/// Frames a body as sectors. `None`: there is no room for it. Otherwise says how many sectors it takes.
pub(super) fn frame(id: u64, next: Position, body: &mut [u8], sectors: &mut Vec<u8>) -> Option<usize> {
    let count = body.len().div_ceil(ROOM);
    if next.sector + count > SECTORS {
        return None;
    }
    let length = u32::try_from(body.len() - HEAD).ok()?;
    let stamp = |index: usize| {
        let (index, count) = (u16::try_from(index).ok()?, u16::try_from(count).ok()?);
        Some(Stamp { base: next.base, number: next.number, index, count })
    };
    sectors.clear();
    sectors.resize(count * SECTOR, 0);
    let mut others = digest::Context::new(&digest::SHA256);
    // The first sector names the digests of the others, so it is the last to be made.
    for index in (1..count).chain([0]) {
        if index == 0 {
            body.get_mut(..4)?.copy_from_slice(&length.to_le_bytes());
            body.get_mut(4..HEAD)?.copy_from_slice(&short(others.clone()));
        }
        let content = body.get(index * ROOM..body.len().min((index + 1) * ROOM))?;
        let sector: &mut Sector = sectors.get_mut(index * SECTOR..(index + 1) * SECTOR)?.try_into().ok()?;
        sector[..STAMP].copy_from_slice(&stamp(index)?.bytes());
        sector[STAMP + DIGEST..].get_mut(..content.len())?.copy_from_slice(content);
        let sum = seal(sector, id, next.sector + index);
        others.update(&sum);
    }
    Some(count)
}

fn seal(sector: &mut Sector, id: u64, at: usize) -> Digest {
    let sum = sum(sector, id, at);
    sector[STAMP..STAMP + DIGEST].copy_from_slice(&sum);
    sum
}

fn sum(sector: &Sector, id: u64, at: usize) -> Digest {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(&id.to_le_bytes());
    context.update(&(at as u64).to_le_bytes());
    context.update(&sector[..STAMP]);
    context.update(&sector[STAMP + DIGEST..]);
    short(context)
}

fn short(context: digest::Context) -> Digest {
    let mut short = [0; DIGEST];
    short.iter_mut().zip(context.finish().as_ref()).for_each(|(to, from)| *to = *from);
    short
}

impl Stamp {
    fn bytes(self) -> [u8; STAMP] {
        let mut bytes = [0; STAMP];
        bytes[..8].copy_from_slice(&self.base.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.number.to_le_bytes());
        bytes[12..14].copy_from_slice(&self.index.to_le_bytes());
        bytes[14..].copy_from_slice(&self.count.to_le_bytes());
        bytes
    }

    fn read(sector: &Sector) -> Self {
        let [base @ .., n0, n1, n2, n3, i0, i1, c0, c1] = *sector.first_chunk::<STAMP>().unwrap_or(&[0; STAMP]);
        Self {
            base: Revision::from_le_bytes(base),
            number: u32::from_le_bytes([n0, n1, n2, n3]),
            index: u16::from_le_bytes([i0, i1]),
            count: u16::from_le_bytes([c0, c1]),
        }
    }
}

// === reading ===

/// The id in a header that is whole.
pub(super) fn id(bytes: &[u8]) -> Option<u64> {
    let sector = bytes.first_chunk::<SECTOR>()?;
    let id = u64::from_le_bytes(*sector[8..STAMP].first_chunk()?);
    (sector.starts_with(MAGIC) && is_sealed(sector, id, 0)).then_some(id)
}

fn is_sealed(sector: &Sector, id: u64, at: usize) -> bool {
    sector[STAMP..STAMP + DIGEST] == sum(sector, id, at)
}

/// The revision that the file certainly has, as the mark says.
pub(super) fn marked(bytes: &[u8], id: u64) -> Option<Revision> {
    let sector = sector(bytes, MARK)?;
    is_sealed(sector, id, MARK).then(|| Revision::from_le_bytes(*sector.first_chunk().unwrap_or(&[0; 8])))
}

/// The highest revision that records of a journal follow. Damaged sectors do not count.
pub(super) fn newest_base(bytes: &[u8], id: u64) -> Option<Revision> {
    let base = |at| match see(bytes, id, at) {
        Seen::Written(stamp, _) => Some(stamp.base),
        _ => None,
    };
    (FIRST..SECTORS).filter_map(base).max()
}

fn sector(bytes: &[u8], at: usize) -> Option<&Sector> {
    bytes.get(at * SECTOR..)?.first_chunk()
}

fn see(bytes: &[u8], id: u64, at: usize) -> Seen<'_> {
    let Some(sector) = sector(bytes, at) else { return Seen::Damaged };
    if *sector == EMPTY {
        return Seen::Empty;
    }
    if !is_sealed(sector, id, at) {
        return Seen::Damaged;
    }
    Seen::Written(Stamp::read(sector), &sector[STAMP + DIGEST..])
}

/// What became of a record.
enum Record {
    Whole(Vec<Batch>, usize),
    /// It is not there, or was never wholly written: it was not acknowledged.
    Absent,
    Damaged(String),
}

/// What the journal `id` has that follows `settled`, the file's last revision. Everything up to the first damage is
/// found.
pub(super) fn read(bytes: &[u8], id: u64, settled: Revision) -> Found {
    let mut next = Position { sector: FIRST, base: settled, number: 0 };
    let mut found = Vec::new();
    let mut damage = None;
    loop {
        match record(bytes, id, next) {
            Record::Whole(batches, count) => {
                let first = settled + 1 + found.len() as Revision;
                if batches.iter().zip(first..).any(|(batch, revision)| batch.revision != revision) {
                    damage = Some(format!("its record {} does not follow revision {}", next.number, first - 1));
                    break;
                }
                found.extend(batches);
                (next.sector, next.number) = (next.sector + count, next.number + 1);
            }
            Record::Absent => break,
            Record::Damaged(why) => {
                damage = Some(why);
                break;
            }
        }
    }
    let newest = settled + found.len() as Revision;
    let damage = if bytes.len() != SIZE {
        Some(format!("has {} bytes and should have {SIZE}", bytes.len()))
    } else if self::id(bytes) != Some(id) {
        Some("is damaged: its header is not whole".to_owned())
    } else {
        match marked(bytes, id) {
            None => Some("is damaged: its mark is not whole".to_owned()),
            Some(marked) if marked > newest => {
                Some(format!("says that revision {marked} was written, but the store ends at revision {newest}"))
            }
            Some(_) => damage.or_else(|| out_of_order(bytes, id, next)),
        }
    };
    Found { batches: found, next, damage }
}

fn record(bytes: &[u8], id: u64, next: Position) -> Record {
    if next.sector >= SECTORS {
        return Record::Absent;
    }
    let damaged = |at: usize| Record::Damaged(format!("is damaged: sector {at} is not whole"));
    let (first, content) = match see(bytes, id, next.sector) {
        Seen::Written(stamp, content) => (stamp, content),
        Seen::Empty => return Record::Absent,
        // It may have been the beginning of a record that was acknowledged.
        Seen::Damaged => return damaged(next.sector),
    };
    if (first.base, first.number, first.index) != (next.base, next.number, 0) {
        return Record::Absent;
    }
    let count = usize::from(first.count);
    let mut body = content.to_vec();
    let mut others = digest::Context::new(&digest::SHA256);
    let mut broken = None;
    for index in 1..count {
        let at = next.sector + index;
        match see(bytes, id, at) {
            Seen::Written(stamp, content) if stamp == (Stamp { index: stamp.index, ..first }) => {
                if usize::from(stamp.index) != index {
                    return damaged(at);
                }
                others.update(sector(bytes, at).map(|sector| &sector[STAMP..STAMP + DIGEST]).unwrap_or_default());
                body.extend_from_slice(content);
            }
            // What was there before: so the record was not wholly written, and nobody was told that it was.
            Seen::Written(..) | Seen::Empty => return Record::Absent,
            Seen::Damaged => broken = broken.or(Some(at)),
        }
    }
    if let Some(at) = broken {
        return damaged(at);
    }
    let (Some(length), Some(sum)) = (body.first_chunk::<4>(), body.get(4..HEAD)) else { return damaged(next.sector) };
    if sum != short(others) {
        // Each sector is whole, but they are of two attempts to write this record: the second was not finished.
        return Record::Absent;
    }
    let length = u32::from_le_bytes(*length) as usize;
    match body.get(HEAD..HEAD + length).and_then(batches::decode) {
        Some(batches) if !batches.is_empty() => Record::Whole(batches, count),
        _ => damaged(next.sector),
    }
}

/// A record that is not there, although a later one is; or one that follows a revision that the file does not have.
fn out_of_order(bytes: &[u8], id: u64, next: Position) -> Option<String> {
    (FIRST..SECTORS).find_map(|at| {
        // The digest is worth computing only for a sector that would be out of order.
        let stamp = sector(bytes, at).filter(|sector| **sector != EMPTY).map(Stamp::read)?;
        let later = stamp.base > next.base || (stamp.base == next.base && stamp.number > next.number);
        if !later || !matches!(see(bytes, id, at), Seen::Written(..)) {
            return None;
        }
        Some(if stamp.base > next.base {
            format!("follows revision {}, but the store ends at revision {}", stamp.base, next.base)
        } else {
            format!("is damaged: record {} is missing, although record {} is there", next.number, stamp.number)
        })
    })
}
