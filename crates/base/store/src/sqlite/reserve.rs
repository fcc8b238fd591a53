//! Room on the disk that is kept for what must work when the disk is full: to start, and to delete.
//!
//! The reserve is a file that holds nothing but its place. It is given up a slice at a time, and restored when there is room again.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rustix::fs::{FallocateFlags, fallocate, fstatvfs};

const FILE: &str = "store.reserve";
const SIZE: u64 = 4 << 20;
/// Enough for what SQLite needs to open a file, or for a few deletions.
const SLICE: u64 = 256 << 10;
/// The reserve is restored from what is free besides this.
const AMPLE: u64 = 2 << 20;
/// While the reserve is not whole, other writes need so much free room.
const LEAST: u64 = 1 << 20;
/// With less free room than this, the WAL is kept short: moving it into the file may need as much room again.
const TIGHT: u64 = 32 << 20;
/// How long an answer about free room is good.
const FRESH: Duration = Duration::from_millis(250);

pub(super) struct Reserve {
    path: PathBuf,
    length: u64,
    /// Some of it was given up and is not restored yet. A disk that never had room for it is no reason to refuse anything.
    is_spent: bool,
    free: Option<(Instant, u64)>,
}

// === impl Reserve ===

impl Reserve {
    pub(super) fn open(dir: &Path) -> Self {
        let path = dir.join(FILE);
        let length = path.metadata().ok().map(|meta| meta.len());
        let is_spent = length.is_some_and(|length| length < SIZE);
        Self { path, length: length.unwrap_or(0).min(SIZE), is_spent, free: None }
    }

    pub(super) fn is_spent(&self) -> bool {
        self.is_spent
    }

    /// Gives up a slice. `false`: there is none left.
    pub(super) fn give_up(&mut self) -> bool {
        if self.length == 0 {
            return false;
        }
        let length = self.length.saturating_sub(SLICE);
        let given = OpenOptions::new().write(true).open(&self.path).and_then(|file| file.set_len(length));
        match given {
            Ok(()) => {
                (self.length, self.is_spent, self.free) = (length, true, None);
                tracing::warn!(left = length, "the disk is full: room that was kept for deletions is used");
                true
            }
            Err(error) => {
                tracing::warn!(%error, file = %self.path.display(), "the room that is kept for deletions cannot be used");
                false
            }
        }
    }

    /// Takes its place again if there is room. What was given up comes back by slices, as far as there is room; the
    /// first time it is all or nothing.
    pub(super) fn restore(&mut self) {
        if self.length == SIZE {
            return;
        }
        let room = self.measure().saturating_sub(AMPLE) / SLICE * SLICE;
        let length = self.length.saturating_add(room).min(SIZE);
        if length == self.length || length < SIZE && !self.is_spent {
            return;
        }
        match self.allocate(length) {
            Ok(()) => {
                (self.length, self.free) = (length, None);
                if length == SIZE && std::mem::replace(&mut self.is_spent, false) {
                    tracing::info!("there is room on the disk again");
                }
            }
            Err(error) => tracing::debug!(%error, file = %self.path.display(), "no room could be kept for deletions"),
        }
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(&self.path)?;
        let allocated = fallocate(&file, FallocateFlags::empty(), 0, length);
        if allocated.is_err() {
            let _ = file.set_len(self.length);
        }
        Ok(allocated?)
    }

    /// There is room for writes that are not deletions.
    pub(super) fn has_room(&mut self) -> bool {
        !self.is_spent || self.measure() >= LEAST
    }

    /// The disk may be full soon.
    pub(super) fn is_tight(&mut self) -> bool {
        self.measure() < TIGHT
    }

    /// The disk has room, whatever the reserve is.
    pub(super) fn measures_room(&mut self) -> bool {
        self.measure() >= LEAST
    }

    /// Bytes that are free on the disk; all, if that is not known.
    fn measure(&mut self) -> u64 {
        match self.free {
            Some((at, free)) if at.elapsed() < FRESH => free,
            _ => {
                let dir = self.path.parent().unwrap_or(Path::new("."));
                let stat = File::open(dir).and_then(|dir| Ok(fstatvfs(&dir)?));
                let free = stat.map_or(u64::MAX, |stat| stat.f_bavail.saturating_mul(stat.f_frsize));
                self.free = Some((Instant::now(), free));
                free
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_given_up_by_slices_and_restored() {
        let dir = tempfile::tempdir().unwrap();
        let mut reserve = Reserve::open(dir.path());
        assert!(!reserve.is_spent() && !reserve.give_up());
        reserve.free = Some((Instant::now(), AMPLE + SIZE - 1));
        reserve.restore();
        assert!(!reserve.is_spent() && !dir.path().join(FILE).exists(), "a disk that never had room for it");
        reserve.free = None;
        reserve.restore();
        let length = || dir.path().join(FILE).metadata().unwrap().len();
        assert_eq!(length(), SIZE);
        assert!(reserve.give_up() && reserve.is_spent());
        assert_eq!(length(), SIZE - SLICE);
        let mut again = Reserve::open(dir.path());
        assert!(again.is_spent());
        assert_eq!((0..).take_while(|_| again.give_up()).count(), 15);
        assert_eq!(length(), 0);
        again.free = Some((Instant::now(), LEAST - 1));
        assert!(!again.has_room());
        again.free = Some((Instant::now(), AMPLE + SLICE - 1));
        again.restore();
        assert_eq!((length(), again.is_spent()), (0, true));
        again.free = Some((Instant::now(), AMPLE + 2 * SLICE + 1));
        again.restore();
        assert_eq!(length(), 2 * SLICE, "a part is better than nothing when the disk is full again");
        assert!(again.is_spent() && again.has_room(), "there is no room for all of it");
        assert!(again.give_up());
        again.free = None;
        again.restore();
        assert!(!again.is_spent());
        assert_eq!(length(), SIZE);
    }
}
