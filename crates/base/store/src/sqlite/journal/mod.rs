//! The journal makes a group of commits durable before the database has it, with one short write and one sync.
//!
//! While writes come in quick succession, SQLite's transaction stays open and the journal makes each group durable.
//! When the journal is full, or no write came for a while, the transaction is committed and the journal begins anew in
//! the same place. So hundreds of rows share the pages that they dirty, and no block has to be allocated. After a
//! crash, what is in the journal and not in the database is applied again.
//!
//! The database's `meta` table has the journal's id from before the first record until the store is closed in order. So
//! a journal that is missing, cut off or damaged after a crash is noticed, and not taken for an empty one.

mod batches;
mod first;
mod fuzz;
mod medium;
mod sectors;

#[cfg(test)]
mod tests;

use std::{fs::File, io, sync::Arc};

use aws_lc_rs::rand;

use self::sectors::{EMPTY, FIRST, Position, SECTOR, SIZE};
use crate::{Batch, Revision};

#[cfg(test)]
pub(super) use first::write as write_first;
pub use fuzz::check_journal_record;
pub(super) use medium::{JournalDir, JournalFile};
pub(super) use sectors::Found;

pub(super) const FILE: &str = "store.journal";
/// How much is written at once when the journal is wiped.
const WIPE_BYTES: usize = 8 * SECTOR;

pub(super) struct Journal<F = File> {
    file: F,
    id: u64,
    next: Position,
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

/// What is found in the journal's place when the store is opened.
pub(super) enum Opened<F = File> {
    Missing,
    /// A journal of the first format, with its commits.
    First(Vec<Batch>),
    /// A journal of another store, or one that was never finished. With a revision that it follows, if it has records.
    Foreign(Option<Revision>),
    Ours(Journal<F>, Found),
}

/// An id that no other journal has.
pub(super) fn new_id() -> io::Result<u64> {
    let mut id = [0; 8];
    rand::fill(&mut id).map_err(|_| io::Error::other("no random number could be had"))?;
    // Positive as SQLite counts.
    Ok((u64::from_le_bytes(id) >> 1).max(1))
}

/// Writes and syncs once more what the journal's file has: afterwards it is durable what a reader of the file sees.
/// Syncing alone is not enough, because the kernel does not write again what it failed to write.
pub(super) fn sync_again<D: JournalDir + ?Sized>(dir: &D) -> io::Result<()> {
    let Some(file) = dir.open()? else { return Ok(()) };
    let bytes = file.read(usize::MAX)?;
    file.write_at(&bytes, 0)?;
    file.sync()
}

// === impl Journal ===

impl<F: JournalFile> Journal<F> {
    /// Looks at the journal in `dir`. `id` is the one that the database names, 0 if none; `settled` is the database's
    /// last revision.
    pub(super) fn open<D: JournalDir<File = F> + ?Sized>(dir: &D, id: u64, settled: Revision) -> io::Result<Opened<F>> {
        let Some(file) = dir.open()? else { return Ok(Opened::Missing) };
        let bytes = file.read(SIZE + 1)?;
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
        let journal = Self { file, id, next: found.next, body: Vec::new(), framed: Vec::new() };
        Ok(Opened::Ours(journal, found))
    }

    /// Allocates the whole file now, so that later writes need no space. Whatever was there is gone: the database has
    /// everything up to `settled`.
    pub(super) fn make<D: JournalDir<File = F> + ?Sized>(dir: &D, id: u64, settled: Revision) -> io::Result<Self> {
        let is_new = !dir.exists()?;
        let file = dir.create()?;
        let next = Position { sector: FIRST, base: settled, number: 0 };
        let journal = Self { file, id, next, body: Vec::new(), framed: Vec::new() };
        let made = journal.file.set_len(SIZE as u64).and_then(|()| journal.wipe(settled));
        let made = made.and_then(|()| dir.sync());
        if made.is_err() && is_new {
            // A part of a journal would only take space that others need. The database does not name it yet.
            let _ = dir.remove();
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
        if let Err(error) = self.file.write_at(&self.framed, at) {
            // So that nothing that begins like a record is there. If this fails, too, the record is not whole either.
            let _ = self.file.write_at(&EMPTY, at);
            return Err(Failed::Write(error));
        }
        self.file.sync().map_err(Failed::Sync)?;
        (self.next.sector, self.next.number) = (self.next.sector + count, self.next.number + 1);
        Ok(true)
    }

    /// The database has everything up to this revision: the next record is the first again.
    pub(super) fn restart(&mut self, settled: Revision) {
        self.next = Position { sector: FIRST, base: settled, number: 0 };
    }

    /// Notes that the database has everything up to this revision. To be called when it has, for commits that were
    /// never in the journal: so that a database, or its WAL, that has lost them is noticed. The note is not synced: the
    /// kernel writes it soon, or with the next record.
    pub(super) fn mark(&self, settled: Revision) {
        let mark = sectors::mark(self.id, settled);
        if let Err(error) = self.file.write_at(&mark, SECTOR as u64) {
            tracing::debug!(%error, "the journal does not say how far the database is");
        }
    }

    /// Finds out whether the journal can be written: writes and syncs the mark that it has anyway.
    pub(super) fn probe(&self, settled: Revision) -> io::Result<()> {
        self.file.write_at(&sectors::mark(self.id, settled), SECTOR as u64)?;
        self.file.sync()
    }

    /// Overwrites the whole journal, so that nothing that was in it can be read any more.
    pub(super) fn wipe(&self, settled: Revision) -> io::Result<()> {
        let mut piece: Vec<u8> = EMPTY.repeat(WIPE_BYTES / SECTOR);
        let front = [sectors::header(self.id), sectors::mark(self.id, settled)].concat();
        piece.iter_mut().zip(&front).for_each(|(to, from)| *to = *from);
        self.file.write_at(&piece, 0)?;
        let piece: Vec<u8> = EMPTY.repeat(WIPE_BYTES / SECTOR);
        // The kernel keeps a file in folios as long as what was first written, or read, and goes through a whole one
        // for every record. So the pieces are short.
        for at in (WIPE_BYTES..SIZE).step_by(WIPE_BYTES) {
            self.file.write_at(&piece, at as u64)?;
        }
        self.file.sync()
    }

    /// Gives back memory that only writing needs.
    pub(super) fn rest(&mut self) {
        (self.body, self.framed) = (Vec::new(), Vec::new());
    }
}
