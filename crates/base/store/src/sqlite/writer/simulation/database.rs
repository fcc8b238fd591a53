//! A model of SQLite in WAL mode: what its tables have, and what of that survives.
//!
//! With `synchronous=FULL`, a `COMMIT` that succeeds is on the disk, and is seen whole or not at all. One that fails
//! may have written its frames to the page cache, to the disk, or to neither. A process that opens the database then
//! sees them or not, and makes durable what it sees. The next `COMMIT` takes their place in the WAL.

use std::{cell::RefCell, collections::BTreeMap};

use bytes::Bytes;
use rusqlite::ffi;

use super::{
    super::{
        super::schema,
        database::{Database, Live},
    },
    disk::{Chance, Failure, SharedChance},
};
use crate::{Entry, Event, Revision};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    previous: i64,
    created: Revision,
    key: String,
    value: Option<Bytes>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tables {
    pub(super) log: BTreeMap<i64, Row>,
    live: BTreeMap<String, Live>,
    meta: BTreeMap<String, i64>,
}

impl Tables {
    pub(super) fn meta(&self, name: &str) -> i64 {
        self.meta.get(name).copied().unwrap_or(0)
    }

    /// As `schema::bounds` computes it.
    pub(super) fn newest(&self) -> Revision {
        let last = self.log.keys().next_back().map_or(0, |row| schema::revision_of(*row));
        last.max(self.meta("newest").cast_unsigned())
    }

    pub(super) fn events(&self, revision: Revision) -> Vec<Event> {
        let rows = self.log.range(schema::first_row(revision)..schema::first_row(revision + 1));
        rows.map(|(_, row)| match &row.value {
            None => Event::Delete { key: row.key.clone(), revision },
            Some(value) => Event::Put(Entry {
                key: row.key.clone(),
                value: value.clone(),
                created: row.created,
                modified: revision,
            }),
        })
        .collect()
    }

    /// Every key with its value, revision and creation.
    pub(super) fn entries(&self) -> BTreeMap<String, (Revision, Revision, Bytes)> {
        let entry = |(key, live): (&String, &Live)| {
            let value = self.log.get(&live.row).and_then(|row| row.value.clone());
            (key.clone(), (schema::revision_of(live.row), live.created, value.expect("a key without its row")))
        };
        self.live.iter().map(entry).collect()
    }
}

struct Inner {
    /// As the connection sees it.
    tables: Tables,
    transaction: Option<Tables>,
    /// What the disk has for certain.
    disk: Tables,
    /// What a failed `COMMIT` may have left behind: in the page cache, and on the disk.
    left_in_cache: Option<Tables>,
    left_on_disk: Option<Tables>,
}

pub(super) struct ModelDatabase {
    inner: RefCell<Inner>,
    chance: SharedChance,
    /// `COMMIT` does not sync.
    is_synchronous_normal: bool,
}

fn failed(code: i32) -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)
}

impl ModelDatabase {
    pub(super) fn new(chance: SharedChance, is_synchronous_normal: bool) -> Self {
        Self::with(Tables::default(), chance, is_synchronous_normal)
    }

    fn with(tables: Tables, chance: SharedChance, is_synchronous_normal: bool) -> Self {
        let disk = tables.clone();
        let inner = Inner { tables, transaction: None, disk, left_in_cache: None, left_on_disk: None };
        Self { inner: RefCell::new(inner), chance, is_synchronous_normal }
    }

    /// What the next process finds.
    pub(super) fn after_crash(&self, has_power_failed: bool) -> Self {
        let inner = self.inner.borrow();
        let tables = match has_power_failed {
            true => inner.left_on_disk.as_ref().unwrap_or(&inner.disk),
            false => inner.left_in_cache.as_ref().unwrap_or(&inner.tables),
        };
        Self::with(tables.clone(), self.chance.clone(), self.is_synchronous_normal)
    }

    pub(super) fn tables(&self) -> Tables {
        self.inner.borrow().tables.clone()
    }

    /// A statement within a transaction. SQLite sometimes rolls back when it fails.
    fn statement<T>(&self, work: impl FnOnce(&mut Tables) -> T) -> rusqlite::Result<T> {
        let mut inner = self.inner.borrow_mut();
        let mut chance = self.chance.borrow_mut();
        let code = match chance.fails() {
            None if chance.full > 0 && chance.one_in(8) && chance.is_full() => ffi::SQLITE_FULL,
            None => return Ok(work(inner.transaction.as_mut().expect("a transaction is open"))),
            Some(_) => ffi::SQLITE_IOERR_WRITE,
        };
        chance.note("a statement failed");
        if chance.one_in(2) {
            inner.transaction = None;
        }
        Err(failed(code))
    }
}

impl Inner {
    fn leave_behind(&mut self, chance: &mut Chance, transaction: &Tables) {
        match chance.below(4) {
            0 => {}
            1 => self.left_in_cache = Some(transaction.clone()),
            2 => {
                self.left_in_cache = Some(transaction.clone());
                self.left_on_disk = Some(transaction.clone());
            }
            // What an earlier one left is overwritten, and no more than that.
            _ => (self.left_in_cache, self.left_on_disk) = (None, None),
        }
    }
}

impl Database for ModelDatabase {
    fn begin(&self) -> rusqlite::Result<()> {
        let mut inner = self.inner.borrow_mut();
        if self.chance.borrow_mut().fails().is_some() {
            return Err(failed(ffi::SQLITE_IOERR_READ));
        }
        assert!(inner.transaction.is_none(), "a transaction within a transaction");
        inner.transaction = Some(inner.tables.clone());
        Ok(())
    }

    fn commit(&self) -> rusqlite::Result<()> {
        let mut inner = self.inner.borrow_mut();
        let mut chance = self.chance.borrow_mut();
        let failure = chance.sync_fails();
        let is_full = failure.is_none() && chance.is_full();
        let transaction = inner.transaction.take().expect("a transaction is open");
        if failure == Some(Failure::Crashed) {
            if chance.one_in(2) {
                inner.leave_behind(&mut chance, &transaction);
            }
            return Err(failed(ffi::SQLITE_IOERR_WRITE));
        }
        if is_full {
            // The last frame, which makes it count, had no space.
            chance.note("no space for a COMMIT");
            if chance.one_in(2) {
                (inner.left_in_cache, inner.left_on_disk) = (None, None);
            }
            return Err(failed(ffi::SQLITE_FULL));
        }
        if failure.is_some() {
            inner.leave_behind(&mut chance, &transaction);
            chance.note(if inner.left_in_cache.is_some() {
                "a failed COMMIT is in the WAL"
            } else {
                "a failed COMMIT is not in the WAL"
            });
            return Err(failed(ffi::SQLITE_IOERR_FSYNC));
        }
        if !self.is_synchronous_normal || chance.one_in(4) {
            inner.disk = transaction.clone();
        }
        inner.tables = transaction;
        (inner.left_in_cache, inner.left_on_disk) = (None, None);
        Ok(())
    }

    fn rollback(&self) -> rusqlite::Result<()> {
        self.inner.borrow_mut().transaction = None;
        Ok(())
    }

    fn is_in_transaction(&self) -> bool {
        self.inner.borrow().transaction.is_some()
    }

    fn look_up(&self, key: &str) -> rusqlite::Result<Option<Live>> {
        self.statement(|tables| tables.live.get(key).copied())
    }

    fn put(&self, row: i64, key: &str, value: &[u8], live: Option<Live>) -> rusqlite::Result<Revision> {
        let created = live.map_or(schema::revision_of(row), |live| live.created);
        self.statement(|tables| {
            let previous = live.map_or(0, |live| live.row);
            tables.log.insert(
                row,
                Row { previous, created, key: key.to_owned(), value: Some(Bytes::copy_from_slice(value)) },
            );
            tables.live.insert(key.to_owned(), Live { row, created });
            created
        })
    }

    fn delete(&self, row: i64, key: &str, live: Option<Live>) -> rusqlite::Result<()> {
        self.statement(|tables| {
            let (previous, created) = live.map_or((0, 0), |live| (live.row, live.created));
            tables.log.insert(row, Row { previous, created, key: key.to_owned(), value: None });
            tables.live.remove(key);
        })
    }

    fn set_meta(&self, name: &str, value: i64) -> rusqlite::Result<()> {
        self.statement(|tables| {
            tables.meta.insert(name.to_owned(), value);
        })
    }

    fn trim(&self, after: i64, end: i64, limit: usize) -> rusqlite::Result<i64> {
        self.statement(|tables| {
            let slice: Vec<_> =
                tables.log.range(after + 1..end).take(limit).map(|(at, row)| (*at, row.clone())).collect();
            for (at, row) in &slice {
                tables.log.remove(&row.previous);
                if row.value.is_none() {
                    tables.log.remove(at);
                }
            }
            slice.last().filter(|_| slice.len() == limit).map_or(end - 1, |last| last.0)
        })
    }
}
