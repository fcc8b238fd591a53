//! The files on disk: how they are made, locked, opened and checked.

use std::{
    fs::{DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Read, Seek, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use rusqlite::{Connection, OpenFlags, OptionalExtension, config::DbConfig};

use super::{
    SqliteOptions,
    fault::{self, During, RESTORE},
    journal::{self, Journal},
    recovery::{self, InJournal},
    reserve::Reserve,
};
use crate::{Batch, Error, Revision};

pub(super) const FILE: &str = "store.db";
const LOCK: &str = "store.lock";
/// 2: there may be a journal. 3: `meta` names the journal that is in use.
const VERSION: i64 = 3;
/// "SELV": tells our files from other SQLite files.
const APPLICATION: i64 = 0x5345_4c56;
const PAGE: u64 = 4096;

/// The low bits of a row's number count the changes of one commit.
const INDEX_BITS: u32 = 16;
pub(super) const MAX_OPS: usize = 1 << INDEX_BITS;

/// Up to this size the whole structure is checked at every start, which takes a few milliseconds. Damage in a larger
/// file shows when it is read, which a server does with everything as it starts.
const CHECK_BYTES: u64 = 16 << 20;

/// The value comes last, so that the other columns can be read without walking through a large one. A row without a
/// value is a deletion; `previous` is the row that this one replaces, 0 if none. `meta` holds `oldest` (revision),
/// `newest` (revision, as of the last compaction), `trimmed` (row) and `journal` (the id of the journal that may have
/// what the file has not; 0 if there is none).
const TABLES: &str = "
    CREATE TABLE log (row INTEGER PRIMARY KEY, previous INTEGER NOT NULL, created INTEGER NOT NULL, key TEXT NOT NULL, value BLOB);
    CREATE TABLE live (key TEXT PRIMARY KEY, row INTEGER NOT NULL, created INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
    INSERT INTO meta VALUES ('oldest', 0), ('newest', 0), ('trimmed', 0), ('journal', 0);
";

/// An opened store, before its threads run.
pub(super) struct Opened {
    pub(super) db: Connection,
    pub(super) dir: PathBuf,
    pub(super) path: PathBuf,
    /// Held as long as the store is open. The kernel lets go of it when the process ends, however it ends.
    pub(super) lock: File,
    pub(super) journal: Option<Journal>,
    /// The id of the journal that the file names, 0 if none.
    pub(super) named: u64,
    pub(super) supports_journal: bool,
    pub(super) reserve: Reserve,
    /// Acknowledged writes are lost, and that was accepted: revisions have to go on behind them.
    pub(super) has_lost: bool,
    /// What the journal has and the file has not.
    pub(super) unsettled: Vec<Batch>,
    pub(super) newest: Revision,
    pub(super) settled: Revision,
    pub(super) oldest: Revision,
    /// The log is trimmed up to this row.
    pub(super) trimmed: i64,
}

pub(super) fn first_row(revision: Revision) -> i64 {
    (revision << INDEX_BITS).cast_signed()
}

pub(super) fn revision_of(row: i64) -> Revision {
    row.cast_unsigned() >> INDEX_BITS
}

/// The oldest and the newest revision that this state of the file can show.
pub(super) fn bounds(db: &Connection) -> rusqlite::Result<(Revision, Revision)> {
    let last = db.prepare_cached("SELECT max(row) FROM log")?.query_row([], |row| row.get::<_, Option<i64>>(0))?;
    let (oldest, newest) = (meta(db, "oldest")?, meta(db, "newest")?);
    Ok((oldest.cast_unsigned(), newest.cast_unsigned().max(revision_of(last.unwrap_or(0)))))
}

fn meta(db: &Connection, name: &str) -> rusqlite::Result<i64> {
    db.prepare_cached("SELECT value FROM meta WHERE name = ?1")?.query_row([name], |row| row.get(0))
}

pub(super) fn set_meta(db: &Connection, name: &str, value: i64) -> rusqlite::Result<()> {
    db.prepare_cached("UPDATE meta SET value = ?2 WHERE name = ?1")?.execute((name, value))?;
    Ok(())
}

pub(super) fn open(dir: &Path, options: &SqliteOptions) -> Result<Opened, Error> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(|error| Error::Unusable(format!("cannot make the data directory {}: {error}", dir.display())))?;
    let lock = lock(dir)?;
    let mut reserve = Reserve::open(dir);
    // SQLite needs a little room to open a file. On a full disk that is what the reserve is for.
    let files = loop {
        match open_files(dir, options) {
            Err(Error::Full(_)) if reserve.give_up() => {}
            opened => break opened?,
        }
    };
    reserve.restore();
    let Files { db, path, journal, named, supports_journal, unsettled, settled, oldest, trimmed, has_lost } = files;
    let newest = unsettled.last().map_or(settled, |batch| batch.revision);
    Ok(Opened {
        db,
        dir: dir.to_owned(),
        path,
        lock,
        journal,
        named,
        supports_journal,
        reserve,
        has_lost,
        unsettled,
        newest,
        settled,
        oldest,
        trimmed,
    })
}

/// What opening the files finds.
struct Files {
    db: Connection,
    path: PathBuf,
    journal: Option<Journal>,
    named: u64,
    supports_journal: bool,
    unsettled: Vec<Batch>,
    settled: Revision,
    oldest: Revision,
    trimmed: i64,
    has_lost: bool,
}

fn open_files(dir: &Path, options: &SqliteOptions) -> Result<Files, Error> {
    let path = dir.join(FILE);
    let mut is_copy = false;
    if path.try_exists().map_err(|error| cannot_use(dir, &error))? {
        is_copy = check_header(&path)?;
    } else {
        create(dir, &path)?;
    }
    let db = connect(&path).map_err(|error| damaged(&path, &error))?;
    check_owner(&db, &path)?;
    let broken = |error| damaged(&path, &error);
    // Until it is clear that nothing is missing, the WAL stays as it is.
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(broken)?;
    check_structure(&db, &path)?;
    if let Some(bytes) = options.max_bytes {
        let pages = i64::try_from(bytes / PAGE).unwrap_or(i64::MAX);
        db.pragma_update(None, "max_page_count", pages).map_err(|error| damaged(&path, &error))?;
    }
    let (oldest, settled) = bounds(&db).map_err(broken)?;
    let trimmed = meta(&db, "trimmed").map_err(broken)?;
    // A store of version 2 has no note.
    let named = meta(&db, "journal").optional().map_err(broken)?.unwrap_or(0).cast_unsigned();
    if named != 0 {
        // It was not closed in order.
        check_keys(&db, &path)?;
    }
    let InJournal { journal, unsettled, damage } = recovery::read_journal(dir, dir, named, settled, is_copy)?;
    let has_lost = damage.is_some();
    if let Some(damage) = damage {
        if !options.accept_lost_writes {
            return Err(Error::Unusable(format!("{damage}. {LOST}. {RESTORE}. {ACCEPT}")));
        }
        tracing::warn!(
            %damage,
            revision = settled + unsettled.len() as Revision,
            "writes that were acknowledged may be lost, which was accepted; the store goes on with what is there"
        );
    }
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false).map_err(broken)?;
    recover(&db, &path)?;
    let supports_journal = upgrade(&db);
    Ok(Files { db, path, journal, named, supports_journal, unsettled, settled, oldest, trimmed, has_lost })
}

const LOST: &str = "Writes that were acknowledged may be missing, so the store is not opened";
const ACCEPT: &str = "To go on without the missing writes instead, start once with --accept-lost-writes";

fn lock(dir: &Path) -> Result<File, Error> {
    let path = dir.join(LOCK);
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(|error| cannot_use(dir, &error))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut pid = String::new();
            // Only to help: the message is right without it.
            let _ = file.read_to_string(&mut pid);
            let who = if pid.trim().is_empty() { String::new() } else { format!(" (process {})", pid.trim()) };
            return Err(Error::Unusable(format!(
                "another selvedge{who} is using the data directory {}. Stop it, or choose another directory",
                dir.display()
            )));
        }
        Err(TryLockError::Error(error)) => return Err(cannot_use(dir, &error)),
    }
    let write_pid = |file: &mut File| -> io::Result<()> {
        file.set_len(0)?;
        file.rewind()?;
        writeln!(file, "{}", std::process::id())
    };
    // A full disk must not keep the store from being read.
    if let Err(error) = write_pid(&mut file) {
        tracing::debug!(%error, "the lock file does not name this process");
    }
    Ok(file)
}

/// Somebody holds the lock.
pub(super) fn is_locked(dir: &Path) -> bool {
    let file = OpenOptions::new().read(true).write(true).open(dir.join(LOCK));
    file.is_ok_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock)))
}

fn cannot_use(dir: &Path, error: &io::Error) -> Error {
    Error::Unusable(format!(
        "cannot write in the data directory {}: {error}. Give this user the right to write there, or choose another directory",
        dir.display()
    ))
}

/// SQLite takes an empty file for a new database. For us a file that is there was once whole, so it must be so still.
/// Says whether the file is a copy that `VACUUM INTO` made: a server's own file is in WAL mode.
fn check_header(path: &Path) -> Result<bool, Error> {
    let mut header = [0; 20];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut header));
    match read {
        Ok(()) if header.starts_with(b"SQLite format 3\0") => Ok(header[18] == 1),
        Ok(()) => {
            Err(Error::Unusable(format!("{} is not a store: its first bytes are foreign. {RESTORE}", path.display())))
        }
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            Err(Error::Unusable(format!("{} is cut off. {RESTORE}", path.display())))
        }
        Err(error) => Err(Error::Unusable(format!("cannot read {}: {error}. {RESTORE}", path.display()))),
    }
}

/// Made under another name and moved into place when whole: a crash leaves a store or none.
fn create(dir: &Path, path: &Path) -> Result<(), Error> {
    for part in [dir.join(format!("{FILE}-wal")), dir.join(journal::FILE)] {
        if part.try_exists().unwrap_or(false) {
            return Err(Error::Unusable(format!(
                "{} is there, but {} which it belongs to is missing. {RESTORE}",
                part.display(),
                path.display()
            )));
        }
    }
    let unfinished = dir.join(format!("{FILE}.new"));
    for leftover in [unfinished.clone(), dir.join(format!("{FILE}.new-journal"))] {
        match std::fs::remove_file(leftover) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(cannot_use(dir, &error)),
            _ => {}
        }
    }
    let make = || -> rusqlite::Result<()> {
        let db = Connection::open(&unfinished)?;
        db.pragma_update(None, "page_size", PAGE.cast_signed())?;
        db.pragma_update(None, "application_id", APPLICATION)?;
        db.execute_batch(&format!("BEGIN; {TABLES} PRAGMA user_version = {VERSION}; COMMIT"))?;
        db.close().map_err(|(_, error)| error)
    };
    make().map_err(|error| match fault::explain(&error, During::Write) {
        full @ Error::Full(_) => full,
        _ => Error::Unusable(format!("cannot make a store in {}: {error}", dir.display())),
    })?;
    let place = || -> io::Result<()> {
        File::open(&unfinished)?.sync_all()?;
        std::fs::set_permissions(&unfinished, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
        std::fs::rename(&unfinished, path)?;
        File::open(dir)?.sync_all()
    };
    place().map_err(|error| cannot_use(dir, &error))
}

pub(super) fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    db.busy_timeout(Duration::from_secs(5))?;
    // Nothing is written by a connection before `check_owner` has seen that the file is ours, but for the mode below.
    db.set_prepared_statement_cache_capacity(32);
    db.pragma_update(None, "synchronous", "FULL")?;
    db.pragma_update(None, "wal_autocheckpoint", 0)?;
    db.pragma_update(None, "cache_size", -4096)?;
    Ok(db)
}

fn check_owner(db: &Connection, path: &Path) -> Result<(), Error> {
    let number = |pragma: &str| {
        db.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0)).map_err(|error| damaged(path, &error))
    };
    if number("application_id")? != APPLICATION {
        let path = path.display();
        return Err(Error::Unusable(format!("{path} is a SQLite file, but not a selvedge store. {RESTORE}")));
    }
    let version = number("user_version")?;
    if version > VERSION {
        return Err(Error::Unusable(format!(
            "{} was written by a newer selvedge: its format is version {version}, this one knows up to version {VERSION}. \
             Use the newer selvedge",
            path.display()
        )));
    }
    db.pragma_update(None, "journal_mode", "WAL").map_err(|error| damaged(path, &error))
}

/// From now on an older selvedge, which would not understand the journal, leaves the store alone. Not possible on a
/// full disk.
fn upgrade(db: &Connection) -> bool {
    let version = db.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0));
    if version.is_ok_and(|version| version == VERSION) {
        return true;
    }
    let upgraded = db.execute_batch(&format!(
        "BEGIN IMMEDIATE; INSERT OR IGNORE INTO meta VALUES ('journal', 0); PRAGMA user_version = {VERSION}; COMMIT"
    ));
    if upgraded.is_err() && !db.is_autocommit() {
        let _ = db.execute_batch("ROLLBACK");
    }
    upgraded.is_ok()
}

/// Looks whether the file is whole.
fn check_structure(db: &Connection, path: &Path) -> Result<(), Error> {
    if std::fs::metadata(path).map(|meta| meta.len()).unwrap_or(0) > CHECK_BYTES {
        return Ok(());
    }
    let finding = db
        .query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0))
        .optional()
        .map_err(|error| damaged(path, &error))?;
    match finding.filter(|finding| finding != "ok") {
        Some(finding) => Err(Error::Unusable(format!("{} is damaged: {finding}. {RESTORE}", path.display()))),
        None => Ok(()),
    }
}

/// Looks whether every key leads to its newest row. SQLite's own check does not compare what is in two tables.
fn check_keys(db: &Connection, path: &Path) -> Result<(), Error> {
    if std::fs::metadata(path).map(|meta| meta.len()).unwrap_or(0) > CHECK_BYTES {
        return Ok(());
    }
    let odd = "SELECT live.key FROM live LEFT JOIN log ON log.row = live.row
               WHERE log.key IS NOT live.key OR log.value IS NULL OR log.created IS NOT live.created LIMIT 1";
    let found = db.query_row(odd, [], |row| row.get_ref(0).map(|_| ())).optional();
    match found.map_err(|error| damaged(path, &error))? {
        Some(()) => {
            Err(Error::Unusable(format!("{} is damaged: a key does not lead to its value. {RESTORE}", path.display())))
        }
        None => Ok(()),
    }
}

/// Brings what a crash has left in the WAL into the file.
fn recover(db: &Connection, path: &Path) -> Result<(), Error> {
    // On a full disk this fails. Then the WAL is simply kept: everything in it can be read.
    let moved = db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0));
    let clean = match moved {
        Ok(busy) => busy == 0,
        Err(error) => match fault::explain(&error, During::Write) {
            Error::Full(_) => false,
            _ => return Err(damaged(path, &error)),
        },
    };
    let pages = db.pragma_query_value(None, "page_count", |row| row.get::<_, i64>(0));
    let expected = pages.map_err(|error| damaged(path, &error))?.cast_unsigned() * PAGE;
    let size = std::fs::metadata(path).map(|meta| meta.len()).unwrap_or(0);
    if clean && size < expected {
        return Err(Error::Unusable(format!(
            "{} is cut off: it has {size} bytes and should have {expected}. {RESTORE}",
            path.display()
        )));
    }
    Ok(())
}

fn damaged(path: &Path, error: &rusqlite::Error) -> Error {
    match fault::explain(error, During::Read) {
        full @ Error::Full(_) => full,
        _ => Error::Unusable(format!("{} cannot be used: {error}. {RESTORE}", path.display())),
    }
}
