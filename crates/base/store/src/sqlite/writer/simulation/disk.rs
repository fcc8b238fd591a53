//! A disk and a page cache that lose, reorder and refuse writes, for the journal.
//!
//! - A write reaches the page cache; the disk gets its sectors in any order, some time before a sync returns.
//! - A sync that fails has written some of them. The kernel takes all of them for written afterwards (fsyncgate).
//! - A process that is killed leaves the page cache; a power cut leaves what the disk has.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    io,
    rc::Rc,
};

use super::super::super::journal::{JournalDir, JournalFile};

pub(super) const SECTOR: usize = 512;
const SECTORS_PER_PAGE: usize = 8;

/// Random numbers, the number of operations until a crash, and how often operations fail. Shared by disk and database.
pub(super) struct Chance {
    random: u64,
    /// In so many operations the process ends: none later has an effect.
    pub(super) crash_in: Option<u64>,
    pub(super) has_crashed: bool,
    /// Of 1,000 operations, so many fail.
    pub(super) failures: u64,
    /// Of 1,000 operations that need space, so many find none.
    pub(super) full: u64,
    /// Of 1,000 syncs and commits, so many fail besides.
    pub(super) sync_failures: u64,
    pub(super) happened: BTreeMap<&'static str, u64>,
}

pub(super) type SharedChance = Rc<RefCell<Chance>>;

impl Chance {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d,
            crash_in: None,
            has_crashed: false,
            failures: 0,
            full: 0,
            sync_failures: 0,
            happened: BTreeMap::new(),
        }
    }

    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) % end.max(1)
    }

    pub(super) fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    pub(super) fn note(&mut self, what: &'static str) {
        *self.happened.entry(what).or_default() += 1;
    }

    /// Every operation begins with this.
    pub(super) fn fails(&mut self) -> Option<Failure> {
        if self.crash_in == Some(0) {
            self.has_crashed = true;
        }
        self.crash_in = self.crash_in.map(|left| left.saturating_sub(1));
        if self.has_crashed {
            return Some(Failure::Crashed);
        }
        if self.below(1_000) < self.failures {
            return Some(Failure::Error);
        }
        None
    }

    /// A sync begins with this.
    pub(super) fn sync_fails(&mut self) -> Option<Failure> {
        self.fails().or_else(|| (self.below(1_000) < self.sync_failures).then_some(Failure::Error))
    }

    pub(super) fn is_full(&mut self) -> bool {
        self.below(1_000) < self.full
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// The process has ended: the operation was not even begun.
    Crashed,
    Error,
}

fn error() -> io::Error {
    io::Error::other("the disk fails")
}

#[derive(Clone, Default)]
struct FileState {
    cache: Vec<u8>,
    disk: Vec<u8>,
    /// Sectors that a sync would write.
    dirty: BTreeSet<usize>,
    /// Sectors that were not written anew since a sync failed: no sync that succeeds says anything about them.
    untrusted: BTreeSet<usize>,
    /// The file is in the directory on the disk.
    is_linked: bool,
}

#[derive(Clone)]
pub(super) struct Disk {
    file: Rc<RefCell<Option<FileState>>>,
    chance: SharedChance,
    /// Syncs succeed and do nothing.
    never_syncs: bool,
}

impl Disk {
    pub(super) fn new(chance: SharedChance, never_syncs: bool) -> Self {
        Self { file: Rc::default(), chance, never_syncs }
    }

    /// The power is cut: each sector that was not synced is there or not.
    pub(super) fn lose_power(&self) {
        let mut chance = self.chance.borrow_mut();
        let mut held = self.file.borrow_mut();
        let Some(file) = held.as_mut() else { return };
        file.write_some(&mut chance);
        file.dirty.clear();
        file.untrusted.clear();
        file.cache = file.disk.clone();
        if !file.is_linked && chance.one_in(2) {
            *held = None;
        } else if let Some(file) = held.as_mut() {
            file.is_linked = true;
        }
    }

    /// Some sectors are not known to be on the disk, although a sync has succeeded since they were written.
    pub(super) fn is_untrusted(&self) -> bool {
        self.file.borrow().as_ref().is_some_and(|file| !file.untrusted.is_empty())
    }
}

impl FileState {
    fn write_some(&mut self, chance: &mut Chance) {
        if self.disk.len() != self.cache.len() && chance.one_in(2) {
            self.disk.resize(self.cache.len(), 0);
        }
        // Mostly few of the sectors, or all but few: that is what tears a record.
        let keep = [0, 1, 5, 9, 10][chance.below(5) as usize];
        for at in self.dirty.clone() {
            if chance.below(10) < keep {
                self.write_sector(at);
            }
        }
    }

    fn write_sector(&mut self, at: usize) {
        let range = at * SECTOR..((at + 1) * SECTOR).min(self.cache.len());
        if range.start >= range.end {
            return;
        }
        if self.disk.len() < range.end {
            self.disk.resize(range.end, 0);
        }
        self.disk[range.clone()].copy_from_slice(&self.cache[range]);
    }

    fn sync(&mut self) {
        self.disk.resize(self.cache.len(), 0);
        for at in std::mem::take(&mut self.dirty) {
            self.write_sector(at);
        }
    }
}

impl Disk {
    fn with<T>(&self, work: impl FnOnce(&mut FileState, &mut Chance) -> io::Result<T>) -> io::Result<T> {
        let mut held = self.file.borrow_mut();
        let file = held.as_mut().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        work(file, &mut self.chance.borrow_mut())
    }
}

impl JournalFile for Disk {
    fn read(&self, limit: usize) -> io::Result<Vec<u8>> {
        self.with(|file, chance| match chance.fails() {
            Some(_) => Err(error()),
            None => Ok(file.cache[..file.cache.len().min(limit)].to_vec()),
        })
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.with(|file, chance| {
            let failure = chance.fails();
            let is_full = failure.is_none() && chance.is_full();
            let count = bytes.len() / SECTOR;
            let written = match failure {
                Some(Failure::Crashed) => return Err(error()),
                Some(Failure::Error) => chance.below(count as u64) as usize * SECTOR,
                None if is_full => chance.below(count as u64) as usize * SECTOR,
                None => bytes.len(),
            };
            let at = at as usize;
            let end = at + written;
            if file.cache.len() < end {
                file.cache.resize(end, 0);
            }
            file.cache[at..end].copy_from_slice(&bytes[..written]);
            // The kernel writes whole pages.
            let pages = at / SECTOR / SECTORS_PER_PAGE..end.div_ceil(SECTOR).div_ceil(SECTORS_PER_PAGE);
            for sector in pages.start * SECTORS_PER_PAGE..pages.end * SECTORS_PER_PAGE {
                file.dirty.insert(sector);
                file.untrusted.remove(&sector);
            }
            if chance.one_in(if file.dirty.len() < 128 { 4 } else { 128 }) {
                file.write_some(chance);
            }
            if is_full {
                chance.note("no space for the journal");
                return Err(io::ErrorKind::StorageFull.into());
            }
            if failure.is_some() {
                chance.note("a write to the journal failed");
                return Err(error());
            }
            Ok(())
        })
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.with(|file, chance| {
            if chance.fails().is_some() {
                return Err(error());
            }
            if chance.is_full() {
                return Err(io::ErrorKind::StorageFull.into());
            }
            file.cache.resize(bytes as usize, 0);
            Ok(())
        })
    }

    fn sync(&self) -> io::Result<()> {
        self.with(|file, chance| match chance.sync_fails() {
            Some(Failure::Crashed) => Err(error()),
            Some(Failure::Error) => {
                chance.note("a sync of the journal failed");
                file.write_some(chance);
                // Taken for written, although some were not.
                let unknown = std::mem::take(&mut file.dirty);
                file.untrusted.extend(unknown);
                Err(error())
            }
            None => {
                if !self.never_syncs {
                    file.sync();
                }
                Ok(())
            }
        })
    }
}

impl JournalDir for Disk {
    type File = Self;

    fn exists(&self) -> io::Result<bool> {
        Ok(self.file.borrow().is_some())
    }

    fn open(&self) -> io::Result<Option<Self>> {
        if self.chance.borrow_mut().fails().is_some() {
            return Err(error());
        }
        Ok(self.file.borrow().is_some().then(|| self.clone()))
    }

    fn create(&self) -> io::Result<Self> {
        if self.chance.borrow_mut().fails().is_some() {
            return Err(error());
        }
        self.file.borrow_mut().get_or_insert_default();
        Ok(self.clone())
    }

    fn remove(&self) -> io::Result<()> {
        if self.chance.borrow_mut().fails().is_some() {
            return Err(error());
        }
        *self.file.borrow_mut() = None;
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut chance = self.chance.borrow_mut();
        if chance.fails().is_some() {
            return Err(error());
        }
        if let Some(file) = self.file.borrow_mut().as_mut() {
            file.is_linked = true;
        }
        Ok(())
    }
}
