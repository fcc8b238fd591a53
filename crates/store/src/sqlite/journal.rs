//! What is durable before the file has it: one short write and one sync for a group of commits.
//!
//! While much is written, SQLite's transaction stays open and the journal makes each group durable. When the journal is full, or there
//! is a lull, the transaction is committed and the journal begins anew in the same place: so hundreds of rows share the pages that
//! they dirty, and no block has to be allocated. After a crash, what is in the journal and not in the file is applied again.
//!
//! Every record's digest covers the one before it, and the first covers a random salt: what is left from earlier rounds, and what
//! somebody has stored to look like a record, never follows.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
    sync::Arc,
};

use aws_lc_rs::{digest, rand};
use bytes::Bytes;

use crate::{Batch, Entry, Event, Revision};

pub(super) const FILE: &str = "store.journal";
/// Room for a few hundred usual objects: enough that committing the transaction behind them is a small part of the work.
const SIZE: usize = 1 << 20;
const PIECE: usize = 4096;
const MAGIC: &[u8; 8] = b"SELVJNL1";
const HEADER: usize = MAGIC.len() + LINK;
const LINK: usize = 16;
const RECORD: usize = 4 + LINK;

type Link = [u8; LINK];

pub(super) struct Journal {
    file: File,
    /// Where the next record goes. At 0 it goes behind a new header.
    end: usize,
    /// The digest of the last record.
    link: Link,
    buffer: Vec<u8>,
}

/// Why a group is not in the journal.
#[derive(Debug)]
pub(super) enum Failed {
    /// It has not been written.
    Write(io::Error),
    /// It may have been written.
    Sync(io::Error),
}

// === impl Journal ===

impl Journal {
    /// The journal in `dir`, with the batches that it holds. `None` if there is none yet.
    pub(super) fn open(dir: &Path) -> io::Result<Option<(Self, Vec<Batch>)>> {
        let mut file = match OpenOptions::new().read(true).write(true).open(dir.join(FILE)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let mut bytes = Vec::with_capacity(SIZE);
        (&mut file).take(SIZE as u64).read_to_end(&mut bytes)?;
        let (batches, end, link) = read(&bytes);
        Ok(Some((Self { file, end, link, buffer: Vec::new() }, batches)))
    }

    /// Takes its place on the disk now, so that later writes need none.
    pub(super) fn make(dir: &Path) -> io::Result<Self> {
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(dir.join(FILE))?;
        let journal = Self { file, end: 0, link: [0; LINK], buffer: Vec::new() };
        journal.wipe()?;
        File::open(dir)?.sync_all()?;
        Ok(journal)
    }

    /// Bytes that a record may still have, next to a few for each event.
    pub(super) fn room(&self) -> usize {
        SIZE.saturating_sub(self.end.max(HEADER) + RECORD)
    }

    /// Durable when this returns. `false`: there is no room.
    pub(super) fn append(&mut self, batches: &[Arc<Batch>]) -> Result<bool, Failed> {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        let appended = self.append_with(batches, &mut buffer);
        self.buffer = buffer;
        appended
    }

    fn append_with(&mut self, batches: &[Arc<Batch>], buffer: &mut Vec<u8>) -> Result<bool, Failed> {
        let mut link = self.link;
        if self.end == 0 {
            rand::fill(&mut link).map_err(|_| Failed::Write(io::Error::other("no random number could be had")))?;
            buffer.extend_from_slice(MAGIC);
            buffer.extend_from_slice(&link);
        }
        let record = buffer.len();
        buffer.extend_from_slice(&[0; RECORD]);
        batches.iter().for_each(|batch| encode(batch, buffer));
        let body = record + RECORD;
        let Some(length) = u32::try_from(buffer.len() - body).ok().filter(|_| self.end + buffer.len() <= SIZE) else {
            return Ok(false);
        };
        let length = length.to_le_bytes();
        link = digest(&link, &length, buffer.get(body..).unwrap_or_default());
        if let Some(head) = buffer.get_mut(record..body) {
            head[..4].copy_from_slice(&length);
            head[4..].copy_from_slice(&link);
        }
        if let Err(error) = self.file.write_all_at(buffer, self.end as u64) {
            // So that nothing that begins like a record is there. If this fails, too, the record is not whole either.
            let _ = self.file.write_all_at(&[0; RECORD], (self.end + record) as u64);
            return Err(Failed::Write(error));
        }
        self.file.sync_data().map_err(Failed::Sync)?;
        (self.end, self.link) = (self.end + buffer.len(), link);
        Ok(true)
    }

    /// The file has everything: the next record is the first again.
    pub(super) fn restart(&mut self) {
        self.end = 0;
    }

    /// Nothing that was in it can be read any more.
    pub(super) fn wipe(&self) -> io::Result<()> {
        // The kernel keeps a file in pieces as long as what was first written, or read, and goes through a whole one for every record.
        for at in (0..SIZE).step_by(PIECE) {
            self.file.write_all_at(&[0; PIECE], at as u64)?;
        }
        self.file.sync_data()
    }

    /// Lets go of memory that only writing needs.
    pub(super) fn rest(&mut self) {
        self.buffer = Vec::new();
    }

    /// So that the next start need not read what the file has.
    pub(super) fn finish(self) {
        // It would skip all of it.
        let _ = self.file.write_all_at(&[0; MAGIC.len()], 0);
    }
}

fn digest(link: &Link, length: &[u8; 4], body: &[u8]) -> Link {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(link);
    context.update(length);
    context.update(body);
    let mut short = [0; LINK];
    short.iter_mut().zip(context.finish().as_ref()).for_each(|(to, from)| *to = *from);
    short
}

fn encode(batch: &Batch, buffer: &mut Vec<u8>) {
    let text = |bytes: &[u8], buffer: &mut Vec<u8>| {
        // What is longer than 4 GiB does not fit into the journal anyway.
        buffer.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
        buffer.extend_from_slice(bytes);
    };
    buffer.extend_from_slice(&batch.revision.to_le_bytes());
    buffer.extend_from_slice(&u32::try_from(batch.events.len()).unwrap_or(u32::MAX).to_le_bytes());
    for event in &batch.events {
        text(event.key().as_bytes(), buffer);
        match event {
            Event::Put(entry) => {
                buffer.extend_from_slice(&entry.created.to_le_bytes());
                text(&entry.value, buffer);
            }
            // No entry was created before the first revision.
            Event::Delete { .. } => buffer.extend_from_slice(&0_u64.to_le_bytes()),
        }
    }
}

/// What is there, where it ends and its last link. A record that is not whole ends it: it was never acknowledged.
fn read(bytes: &[u8]) -> (Vec<Batch>, usize, Link) {
    let mut batches = Vec::new();
    let mut rest = Reader(bytes);
    if rest.take(MAGIC.len()) != Some(MAGIC) {
        return (batches, 0, [0; LINK]);
    }
    let Some(mut link) = rest.array::<LINK>() else { return (batches, 0, [0; LINK]) };
    let mut end = HEADER;
    while let Some((found, follows, length)) = record(&mut rest, &link) {
        batches.extend(found);
        (end, link) = (end + RECORD + length, follows);
    }
    (batches, end, link)
}

fn record(rest: &mut Reader<'_>, link: &Link) -> Option<(Vec<Batch>, Link, usize)> {
    let length = rest.array::<4>()?;
    let follows = rest.array::<LINK>()?;
    let body = rest.take(u32::from_le_bytes(length) as usize)?;
    if body.is_empty() || digest(link, &length, body) != follows {
        return None;
    }
    let mut reader = Reader(body);
    let mut batches = Vec::new();
    while !reader.0.is_empty() {
        batches.push(reader.batch()?);
    }
    Some((batches, follows, body.len()))
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let length = u32::from_le_bytes(self.array()?);
        self.take(length as usize)
    }

    fn batch(&mut self) -> Option<Batch> {
        let revision = Revision::from_le_bytes(self.array()?);
        let count = u32::from_le_bytes(self.array()?);
        let events = (0..count).map(|_| self.event(revision)).collect::<Option<Vec<_>>>()?;
        Some(Batch { revision, events })
    }

    fn event(&mut self, revision: Revision) -> Option<Event> {
        let key = String::from_utf8(self.text()?.to_vec()).ok()?;
        match Revision::from_le_bytes(self.array()?) {
            0 => Some(Event::Delete { key, revision }),
            created => {
                let value = Bytes::copy_from_slice(self.text()?);
                Some(Event::Put(Entry { key, value, created, modified: revision }))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(revision: Revision, bytes: usize) -> Arc<Batch> {
        let entry = |key: &str, created| Entry {
            key: key.into(),
            value: Bytes::from(vec![b'v'; bytes]),
            created,
            modified: revision,
        };
        let events = vec![
            Event::Put(entry("a", revision)),
            Event::Delete { key: "b".into(), revision },
            Event::Put(entry("ç", 1)),
        ];
        Arc::new(Batch { revision, events })
    }

    fn found(dir: &Path) -> Vec<Revision> {
        let (_, batches) = Journal::open(dir).unwrap().unwrap();
        for batch in &batches {
            let bytes = batch.events.iter().find_map(|event| match event {
                Event::Put(entry) => Some(entry.value.len()),
                Event::Delete { .. } => None,
            });
            assert_eq!(batch, &*put(batch.revision, bytes.unwrap()));
        }
        batches.iter().map(|batch| batch.revision).collect()
    }

    #[test]
    fn reads_what_was_appended_and_goes_on_behind_it() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Journal::open(dir.path()).unwrap().is_none());
        let mut journal = Journal::make(dir.path()).unwrap();
        assert_eq!(found(dir.path()), [0; 0]);
        assert!(journal.append(&[put(1, 10), put(2, 0)]).unwrap());
        assert!(journal.append(&[put(3, 5000)]).unwrap());
        assert_eq!(found(dir.path()), [1, 2, 3]);
        let (mut again, _) = Journal::open(dir.path()).unwrap().unwrap();
        assert!(again.append(&[put(4, 7)]).unwrap());
        assert_eq!(found(dir.path()), [1, 2, 3, 4]);
        assert_eq!(std::fs::metadata(dir.path().join(FILE)).unwrap().len(), SIZE as u64);
        again.finish();
        assert_eq!(found(dir.path()), [0; 0]);
    }

    #[test]
    fn says_when_it_is_full_and_begins_anew() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = Journal::make(dir.path()).unwrap();
        let mut revision = 0;
        while journal.append(&[put(revision + 1, 50_000)]).unwrap() {
            revision += 1;
        }
        assert_eq!(revision, 10);
        assert!(journal.room() < 100_000);
        assert_eq!(found(dir.path()), (1..=10).collect::<Vec<_>>());
        // The others, of the same length, are still there behind it: they do not follow.
        journal.restart();
        assert!(journal.append(&[put(11, 50_000)]).unwrap());
        assert_eq!(found(dir.path()), [11]);
        assert!(!journal.append(&[put(12, SIZE)]).unwrap());
        assert_eq!(found(dir.path()), [11]);
        journal.wipe().unwrap();
        assert_eq!(std::fs::read(dir.path().join(FILE)).unwrap(), vec![0; SIZE]);
    }

    /// A power cut in the middle of a write, and bytes that a disk has lost: what was whole before stays, and the rest is not taken for anything.
    #[test]
    fn ends_where_it_is_torn() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = Journal::make(dir.path()).unwrap();
        journal.append(&[put(1, 100)]).unwrap();
        journal.append(&[put(2, 100)]).unwrap();
        let whole = journal.end;
        journal.append(&[put(3, 100)]).unwrap();
        let path = dir.path().join(FILE);
        let bytes = std::fs::read(&path).unwrap();
        for torn in whole..journal.end {
            let mut cut = bytes.clone();
            cut.truncate(torn);
            std::fs::write(&path, &cut).unwrap();
            assert_eq!(found(dir.path()), [1, 2], "cut at {torn}");
            let mut flipped = bytes.clone();
            flipped[torn] ^= 0x40;
            std::fs::write(&path, &flipped).unwrap();
            assert_eq!(found(dir.path()), [1, 2], "a bit turned at {torn}");
        }
        for torn in 0..HEADER {
            let mut flipped = bytes.clone();
            flipped[torn] ^= 1;
            std::fs::write(&path, &flipped).unwrap();
            assert_eq!(found(dir.path()), [0; 0]);
        }
    }
}
