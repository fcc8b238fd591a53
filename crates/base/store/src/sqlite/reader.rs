//! Reading: a bounded pool of connections, and the queries that run on them.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use rusqlite::{Connection, OpenFlags, Row, Transaction, named_params};
use tokio::sync::Semaphore;

use super::{fault, schema};
use crate::{Batch, Entry, Error, Event, Page, Range, Revision};

/// A watcher that reads from the log takes about this much at once; a commit is never split.
const CHUNK_BYTES: usize = 1 << 20;
const CHUNK_BATCHES: usize = 512;

/// Connections are made when first needed and then kept.
pub(super) struct Readers {
    path: PathBuf,
    permits: Semaphore,
    idle: Arc<Mutex<Vec<Connection>>>,
}

// === impl Readers ===

impl Readers {
    pub(super) fn new(path: PathBuf, count: usize) -> Self {
        Self { path, permits: Semaphore::new(count.max(1)), idle: Arc::default() }
    }

    /// Runs `read` in a read transaction on a blocking thread: it sees one state of the file, whatever is written
    /// meanwhile.
    pub(super) async fn run<T, F>(&self, read: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&Transaction<'_>) -> Result<T, Error> + Send + 'static,
    {
        let _permit = self.permits.acquire().await.map_err(|_| Error::Closed)?;
        let (path, idle) = (self.path.clone(), Arc::clone(&self.idle));
        let task = tokio::task::spawn_blocking(move || {
            let kept = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let mut db = match kept {
                Some(db) => db,
                None => connect(&path).map_err(fault::reading)?,
            };
            let result = db.transaction().map_err(fault::reading).and_then(|snapshot| read(&snapshot));
            idle.lock().unwrap_or_else(PoisonError::into_inner).push(db);
            result
        });
        task.await.map_err(|error| Error::Unavailable(format!("a read was broken off: {error}")))?
    }

    /// Closes what is idle; connections in use close with their last read.
    pub(super) fn close(&self) {
        self.permits.close();
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

fn connect(path: &std::path::Path) -> rusqlite::Result<Connection> {
    // Read-write, because a reader in WAL mode takes part in the shared index; the pragma keeps it from changing data.
    let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    db.busy_timeout(std::time::Duration::from_secs(5))?;
    db.pragma_update(None, "query_only", true)?;
    db.pragma_update(None, "cache_size", -512)?;
    Ok(db)
}

/// The entries of `range` as of `at`. `unsettled` is what the file may not have yet.
pub(super) fn range(
    db: &Connection,
    range: &Range,
    limit: usize,
    at: Option<Revision>,
    unsettled: &[Arc<Batch>],
) -> Result<Page, Error> {
    let (oldest, settled) = schema::bounds(db).map_err(fault::reading)?;
    let newest = unsettled.last().map_or(settled, |batch| batch.revision.max(settled));
    let revision = at.unwrap_or(newest);
    if revision < oldest {
        return Err(Error::Compacted { asked: revision, oldest });
    }
    if revision > newest {
        return Err(Error::Future { asked: revision, newest });
    }
    let mut page = Page { revision, entries: Vec::new(), more: false };
    if range.is_empty() {
        return Ok(page);
    }
    let later = changed(range, unsettled, settled, revision);
    // One more than asked for tells whether there are more; and each that has changed may be gone.
    let fetch = i64::try_from(limit.saturating_add(later.len())).ok().filter(|_| limit > 0);
    let fetch = fetch.map_or(-1, |fetch| fetch.saturating_add(1));
    let read = if revision >= settled { read_live(db, range, fetch) } else { read_past(db, range, fetch, revision) };
    page.entries = read.map_err(fault::reading)?;
    if !later.is_empty() {
        page.entries.retain(|entry| !later.contains_key(entry.key.as_str()));
        page.entries.extend(later.into_values().flatten().cloned());
        page.entries.sort_unstable_by(|a, b| a.key.cmp(&b.key));
    }
    if limit > 0 && page.entries.len() > limit {
        page.entries.truncate(limit);
        page.more = true;
    }
    Ok(page)
}

/// What became of the keys that changed after `settled`, up to `at`; `None` if they were deleted.
fn changed<'a>(
    range: &Range,
    unsettled: &'a [Arc<Batch>],
    settled: Revision,
    at: Revision,
) -> BTreeMap<&'a str, Option<&'a Entry>> {
    let batches = unsettled.iter().filter(|batch| batch.revision > settled && batch.revision <= at);
    let events = batches.flat_map(|batch| &batch.events).filter(|event| range.contains(event.key()));
    let state = events.map(|event| match event {
        Event::Put(entry) => (entry.key.as_str(), Some(entry)),
        Event::Delete { key, .. } => (key.as_str(), None),
    });
    state.collect()
}

fn read_live(db: &Connection, range: &Range, fetch: i64) -> rusqlite::Result<Vec<Entry>> {
    // The cross join fixes the order: along the live keys, from each to its row in the log. Without an upper end the
    // statement is another one, because an `OR` would keep SQLite from stopping at the end of the range.
    let mut statement = db.prepare_cached(if range.end.is_empty() {
        "SELECT live.key, live.row, live.created, log.value FROM live CROSS JOIN log ON log.row = live.row
         WHERE live.key >= :start AND :end = '' ORDER BY live.key LIMIT :fetch"
    } else {
        "SELECT live.key, live.row, live.created, log.value FROM live CROSS JOIN log ON log.row = live.row
         WHERE live.key >= :start AND live.key < :end ORDER BY live.key LIMIT :fetch"
    })?;
    let entries = statement
        .query_map(named_params! { ":start": range.start, ":end": range.end, ":fetch": fetch }, entry)?
        .collect::<Result<_, _>>()?;
    Ok(entries)
}

/// Keys that were not touched since are read as they are. Of those that were, the first row behind the revision names
/// the row that it replaced: that one was live at the revision.
fn read_past(db: &Connection, range: &Range, fetch: i64, at: Revision) -> rusqlite::Result<Vec<Entry>> {
    let mut seen = db.prepare_cached(
        "SELECT key, row FROM live
         WHERE key >= :start AND (:end = '' OR key < :end) AND row < :cut
         UNION ALL
         SELECT key, previous FROM (
             SELECT key, previous, min(row) FROM log
             WHERE row >= :cut AND key >= :start AND (:end = '' OR key < :end) GROUP BY key)
         WHERE previous <> 0
         ORDER BY 1 LIMIT :fetch",
    )?;
    let mut version = db.prepare_cached("SELECT key, row, created, value FROM log WHERE row = ?1")?;
    let cut = schema::first_row(at + 1);
    let params = named_params! { ":start": range.start, ":end": range.end, ":cut": cut, ":fetch": fetch };
    let rows = seen.query_map(params, |row| row.get::<_, i64>(1))?.collect::<Result<Vec<_>, _>>()?;
    rows.into_iter().map(|row| version.query_row([row], entry)).collect()
}

fn entry(row: &Row<'_>) -> rusqlite::Result<Entry> {
    Ok(Entry {
        key: row.get(0)?,
        modified: schema::revision_of(row.get(1)?),
        created: row.get::<_, i64>(2)?.cast_unsigned(),
        value: Bytes::copy_from_slice(row.get_ref(3)?.as_blob()?),
    })
}

/// A piece of the log.
pub(super) struct Changes {
    pub(super) batches: Vec<Batch>,
    /// Everything up to this revision was looked at.
    pub(super) upto: Revision,
}

/// The next commits after `after`, as far as they touch `range`.
pub(super) fn changes(db: &Connection, range: &Range, after: Revision) -> Result<Changes, Error> {
    let (oldest, newest) = schema::bounds(db).map_err(fault::reading)?;
    if after < oldest {
        return Err(Error::Compacted { asked: after, oldest });
    }
    read_changes(db, range, after, newest).map_err(fault::reading)
}

fn read_changes(db: &Connection, range: &Range, after: Revision, newest: Revision) -> rusqlite::Result<Changes> {
    let mut statement = db.prepare_cached("SELECT key, row, created, value FROM log WHERE row >= ?1 ORDER BY row")?;
    let mut rows = statement.query([schema::first_row(after + 1)])?;
    let mut changes = Changes { batches: Vec::new(), upto: after };
    let (mut bytes, mut looked) = (0, 0);
    while let Some(row) = rows.next()? {
        let revision = schema::revision_of(row.get(1)?);
        if revision != changes.upto {
            if bytes >= CHUNK_BYTES || changes.batches.len() >= CHUNK_BATCHES || looked >= 16 * CHUNK_BATCHES {
                return Ok(changes);
            }
            changes.upto = revision;
        }
        looked += 1;
        let key = row.get_ref(0)?.as_str()?;
        if !range.contains(key) {
            continue;
        }
        let event = match row.get_ref(3)?.as_blob_or_null()? {
            None => Event::Delete { key: key.to_owned(), revision },
            Some(value) => {
                bytes += value.len();
                Event::Put(entry(row)?)
            }
        };
        match changes.batches.last_mut().filter(|batch| batch.revision == revision) {
            Some(batch) => batch.events.push(event),
            None => changes.batches.push(Batch { revision, events: vec![event] }),
        }
    }
    changes.upto = newest;
    Ok(changes)
}
