//! What an error of SQLite means to a caller.

use std::io;

use rusqlite::{ErrorCode, ffi};

use super::journal::Failed;
use crate::Error;

/// When it happened decides whether something may already have been written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum During {
    Read,
    /// Before `COMMIT`: rolled back for sure.
    Write,
    /// In `COMMIT`: the log may or may not have reached the disk.
    Commit,
}

pub(super) fn reading(error: rusqlite::Error) -> Error {
    explain(&error, During::Read)
}

pub(super) fn explain(error: &rusqlite::Error, during: During) -> Error {
    let Some(inner) = error.sqlite_error() else {
        return Error::Unusable(format!("the store holds something unexpected: {error}. {RESTORE}"));
    };
    match inner.code {
        // A full disk is told apart before anything of the group counts: SQLite rolls back and the file stays whole.
        ErrorCode::DiskFull => Error::Full(error.to_string()),
        ErrorCode::SystemIoFailure if inner.extended_code == ffi::SQLITE_IOERR_SHMSIZE => {
            Error::Full(error.to_string())
        }
        ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => {
            Error::Unusable(format!("the store's file is damaged: {error}. {RESTORE}"))
        }
        _ if during == During::Commit => Error::Unknown(error.to_string()),
        _ => Error::Unavailable(error.to_string()),
    }
}

impl Failed {
    pub(super) fn explain(&self) -> Error {
        match self {
            Self::Write(error) if error.kind() == io::ErrorKind::StorageFull => Error::Full(error.to_string()),
            Self::Write(error) => Error::Unavailable(error.to_string()),
            Self::Sync(error) => Error::Unknown(error.to_string()),
        }
    }
}

pub(super) const RESTORE: &str =
    "Nothing was changed. Restore the directory from a backup, or move it away to start with an empty store";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_a_caller_can_rely_on() {
        let cases = [
            (ffi::SQLITE_FULL, During::Write, "Full"),
            (ffi::SQLITE_FULL, During::Commit, "Full"),
            (ffi::SQLITE_IOERR_SHMSIZE, During::Write, "Full"),
            (ffi::SQLITE_IOERR_FSYNC, During::Commit, "Unknown"),
            (ffi::SQLITE_IOERR_WRITE, During::Commit, "Unknown"),
            (ffi::SQLITE_IOERR_WRITE, During::Write, "Unavailable"),
            (ffi::SQLITE_IOERR_READ, During::Read, "Unavailable"),
            (ffi::SQLITE_CORRUPT, During::Read, "Unusable"),
            (ffi::SQLITE_NOTADB, During::Read, "Unusable"),
        ];
        for (code, during, expected) in cases {
            let error = explain(&rusqlite::Error::SqliteFailure(ffi::Error::new(code), None), during);
            assert!(format!("{error:?}").starts_with(expected), "{code} while {during:?}: {error:?}");
        }
    }
}
