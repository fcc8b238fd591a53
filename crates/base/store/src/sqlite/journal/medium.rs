//! The journal's file and its directory as the journal needs them. The simulation puts a disk that fails in their
//! place.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
};

use super::{FILE, SIZE};

pub(in super::super) trait JournalFile {
    /// The first `limit` bytes, or all if there are fewer.
    fn read(&self, limit: usize) -> io::Result<Vec<u8>>;

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()>;

    fn set_len(&self, bytes: u64) -> io::Result<()>;

    /// Makes durable what was written. After a failure it is not known what is on the disk, and a later success says
    /// nothing about what was written before: the kernel has given up on it.
    fn sync(&self) -> io::Result<()>;
}

pub(in super::super) trait JournalDir {
    type File: JournalFile;

    fn exists(&self) -> io::Result<bool>;

    /// `None`: there is no journal.
    fn open(&self) -> io::Result<Option<Self::File>>;

    /// Opens the journal, and makes an empty file if there is none.
    fn create(&self) -> io::Result<Self::File>;

    fn remove(&self) -> io::Result<()>;

    /// Makes durable that the file is there.
    fn sync(&self) -> io::Result<()>;
}

impl JournalFile for File {
    fn read(&self, limit: usize) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(limit.min(SIZE + 1));
        self.take(limit as u64).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.write_all_at(bytes, at)
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        Self::set_len(self, bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}

impl<T: AsRef<Path> + ?Sized> JournalDir for T {
    type File = File;

    fn exists(&self) -> io::Result<bool> {
        self.as_ref().join(FILE).try_exists()
    }

    fn open(&self) -> io::Result<Option<File>> {
        match OpenOptions::new().read(true).write(true).open(self.as_ref().join(FILE)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            opened => opened.map(Some),
        }
    }

    fn create(&self) -> io::Result<File> {
        let path = self.as_ref().join(FILE);
        OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
    }

    fn remove(&self) -> io::Result<()> {
        std::fs::remove_file(self.as_ref().join(FILE))
    }

    fn sync(&self) -> io::Result<()> {
        File::open(self)?.sync_all()
    }
}
