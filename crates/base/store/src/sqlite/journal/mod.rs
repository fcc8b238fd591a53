//! What is durable before the file has it: one short write and one sync for a group of commits.
//!
//! While much is written, SQLite's transaction stays open and the journal makes each group durable. When the journal is full, or there
//! is a lull, the transaction is committed and the journal begins anew in the same place: so hundreds of rows share the pages that
//! they dirty, and no block has to be allocated. After a crash, what is in the journal and not in the file is applied again.
//!
//! The file's `meta` table has the journal's id from before the first record until the store is closed in order. So a journal that
//! is missing, cut off or damaged after a crash is noticed, and not taken for an empty one.

mod batches;
mod first;
mod sectors;

#[cfg(test)]
mod tests;

use std::{
    fs::{File, OpenOptions},
    io::{self, Read},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
    sync::Arc,
};

use aws_lc_rs::rand;

use self::sectors::{EMPTY, FIRST, Place, SECTOR, SIZE};
use crate::{Batch, Revision};

#[cfg(test)]
pub(super) use first::write as write_first;
pub(super) use sectors::Found;

pub(super) const FILE: &str = "store.journal";
const PIECE: usize = 8 * SECTOR;

pub(super) struct Journal {
    file: File,
    id: u64,
    next: Place,
    body: Vec<u8>,
    framed: Vec<u8>,
}

/// Why a group is not in the journal.
#[derive(Debug)]
pub(super) enum Failed {
    /// It has not been written.
    Write(io::Error),
    /// It may have been written.
    Sync(io::Error),
}

/// What lies in the journal's place.
pub(super) enum Opened {
    Missing,
    /// Of the first format, with what it has.
    First(Vec<Batch>),
    /// Of another store, or nothing that was ever finished. With a revision that it follows, if it has records.
    Foreign(Option<Revision>),
    Ours(Journal, Found),
}

// === impl Journal ===

impl Journal {
    /// Looks at the journal in `dir`. `id` is the one that the file names, 0 if none; `settled` is the file's last revision.
    pub(super) fn open(dir: &Path, id: u64, settled: Revision) -> io::Result<Opened> {
        let mut file = match OpenOptions::new().read(true).write(true).open(dir.join(FILE)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Opened::Missing),
            opened => opened?,
        };
        let mut bytes = Vec::with_capacity(SIZE + 1);
        (&mut file).take(SIZE as u64 + 1).read_to_end(&mut bytes)?;
        let named = sectors::id(&bytes);
        if id == 0 || named.is_some_and(|named| named != id) {
            return Ok(match (named, first::read(&bytes)) {
                (None, Some(batches)) => Opened::First(batches),
                (None, None) => Opened::Foreign(None),
                (Some(named), _) => {
                    Opened::Foreign(sectors::newest_base(&bytes, named).max(sectors::marked(&bytes, named)))
                }
            });
        }
        let found = sectors::read(&bytes, id, settled);
        let journal = Self { file, id, next: found.place, body: Vec::new(), framed: Vec::new() };
        Ok(Opened::Ours(journal, found))
    }

    /// An id that no other journal has.
    pub(super) fn new_id() -> io::Result<u64> {
        let mut id = [0; 8];
        rand::fill(&mut id).map_err(|_| io::Error::other("no random number could be had"))?;
        // Positive as SQLite counts.
        Ok((u64::from_le_bytes(id) >> 1).max(1))
    }

    /// Takes its place on the disk now, so that later writes need none. Whatever was there is gone: `settled` says that the file has it.
    pub(super) fn make(dir: &Path, id: u64, settled: Revision) -> io::Result<Self> {
        let path = dir.join(FILE);
        let is_new = !path.try_exists()?;
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path)?;
        let next = Place { sector: FIRST, base: settled, number: 0 };
        let journal = Self { file, id, next, body: Vec::new(), framed: Vec::new() };
        let made = journal.file.set_len(SIZE as u64).and_then(|()| journal.wipe(settled));
        let made = made.and_then(|()| File::open(dir)?.sync_all());
        if made.is_err() && is_new {
            // A part of a journal would only take room from those who need it. The file does not name it yet.
            let _ = std::fs::remove_file(&path);
        }
        made.map(|()| journal)
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Bytes that a record may still have, next to a few for each event.
    pub(super) fn room(&self) -> usize {
        sectors::room(self.next)
    }

    /// Durable when this returns. `false`: there is no room.
    pub(super) fn append(&mut self, batches: &[Arc<Batch>]) -> Result<bool, Failed> {
        sectors::begin_body(&mut self.body);
        batches.iter().for_each(|batch| batches::encode(batch, &mut self.body));
        let Some(count) = sectors::frame(self.id, self.next, &mut self.body, &mut self.framed) else {
            return Ok(false);
        };
        let at = (self.next.sector * SECTOR) as u64;
        if let Err(error) = self.file.write_all_at(&self.framed, at) {
            // So that nothing that begins like a record is there. If this fails, too, the record is not whole either.
            let _ = self.file.write_all_at(&EMPTY, at);
            return Err(Failed::Write(error));
        }
        self.file.sync_data().map_err(Failed::Sync)?;
        (self.next.sector, self.next.number) = (self.next.sector + count, self.next.number + 1);
        Ok(true)
    }

    /// The file has everything up to this revision: the next record is the first again.
    pub(super) fn restart(&mut self, settled: Revision) {
        self.next = Place { sector: FIRST, base: settled, number: 0 };
    }

    /// Says that the file has everything up to this revision. To be called when it has, for what was never in the journal: so that a
    /// file, or its WAL, that has lost it is noticed. It is not synced: the kernel writes it soon, or with the next record.
    pub(super) fn mark(&self, settled: Revision) {
        let mark = sectors::mark(self.id, settled);
        if let Err(error) = self.file.write_all_at(&mark, SECTOR as u64) {
            tracing::debug!(%error, "the journal does not say how far the file is");
        }
    }

    /// Whether it can be written: writes what it says anyway.
    pub(super) fn probe(&self, settled: Revision) -> io::Result<()> {
        self.file.write_all_at(&sectors::mark(self.id, settled), SECTOR as u64)?;
        self.file.sync_data()
    }

    /// Nothing that was in it can be read any more.
    pub(super) fn wipe(&self, settled: Revision) -> io::Result<()> {
        let mut piece: Vec<u8> = EMPTY.repeat(PIECE / SECTOR);
        let front = [sectors::header(self.id), sectors::mark(self.id, settled)].concat();
        piece.iter_mut().zip(&front).for_each(|(to, from)| *to = *from);
        self.file.write_all_at(&piece, 0)?;
        let piece: Vec<u8> = EMPTY.repeat(PIECE / SECTOR);
        // The kernel keeps a file in pieces as long as what was first written, or read, and goes through a whole one for every record.
        for at in (PIECE..SIZE).step_by(PIECE) {
            self.file.write_all_at(&piece, at as u64)?;
        }
        self.file.sync_data()
    }

    /// Lets go of memory that only writing needs.
    pub(super) fn rest(&mut self) {
        (self.body, self.framed) = (Vec::new(), Vec::new());
    }
}
