//! The database as commits need it. The simulation puts a model in SQLite's place.

use rusqlite::{Connection, OptionalExtension};

use super::super::schema;
use crate::Revision;

/// A key's newest row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Live {
    pub(super) row: i64,
    pub(super) created: Revision,
}

pub(super) trait Database {
    fn begin(&self) -> rusqlite::Result<()>;

    /// Durable when this returns without an error. After an error it may be there or not, until the next commit.
    fn commit(&self) -> rusqlite::Result<()>;

    fn rollback(&self) -> rusqlite::Result<()>;

    /// SQLite ends a transaction by itself after some errors.
    fn is_in_transaction(&self) -> bool;

    fn look_up(&self, key: &str) -> rusqlite::Result<Option<Live>>;

    /// Returns the revision in which the key was created.
    fn put(&self, row: i64, key: &str, value: &[u8], live: Option<Live>) -> rusqlite::Result<Revision>;

    fn delete(&self, row: i64, key: &str, live: Option<Live>) -> rusqlite::Result<()>;

    fn set_meta(&self, name: &str, value: i64) -> rusqlite::Result<()>;

    /// Removes what the rows behind `after` and before `end` have replaced, and deletions, which have been told. Looks
    /// at `limit` rows at most, and at each row once. Returns the last row that it looked at.
    fn trim(&self, after: i64, end: i64, limit: usize) -> rusqlite::Result<i64>;
}

impl Database for Connection {
    fn begin(&self) -> rusqlite::Result<()> {
        run(self, "BEGIN IMMEDIATE")
    }

    fn commit(&self) -> rusqlite::Result<()> {
        run(self, "COMMIT")
    }

    fn rollback(&self) -> rusqlite::Result<()> {
        run(self, "ROLLBACK")
    }

    fn is_in_transaction(&self) -> bool {
        !self.is_autocommit()
    }

    fn look_up(&self, key: &str) -> rusqlite::Result<Option<Live>> {
        self.prepare_cached("SELECT row, created FROM live WHERE key = ?1")?
            .query_row([key], |row| Ok(Live { row: row.get(0)?, created: row.get::<_, i64>(1)?.cast_unsigned() }))
            .optional()
    }

    fn put(&self, row: i64, key: &str, value: &[u8], live: Option<Live>) -> rusqlite::Result<Revision> {
        let created = live.map_or(schema::revision_of(row), |live| live.created);
        log(self, row, live, created, key, Some(value))?;
        if live.is_some() {
            self.prepare_cached("UPDATE live SET row = ?2 WHERE key = ?1")?.execute((key, row))?;
        } else {
            let mut insert = self.prepare_cached("INSERT INTO live (key, row, created) VALUES (?1, ?2, ?3)")?;
            insert.execute((key, row, created.cast_signed()))?;
        }
        Ok(created)
    }

    fn delete(&self, row: i64, key: &str, live: Option<Live>) -> rusqlite::Result<()> {
        log(self, row, live, live.map_or(0, |live| live.created), key, None)?;
        self.prepare_cached("DELETE FROM live WHERE key = ?1")?.execute([key])?;
        Ok(())
    }

    fn set_meta(&self, name: &str, value: i64) -> rusqlite::Result<()> {
        schema::set_meta(self, name, value)
    }

    fn trim(&self, after: i64, end: i64, limit: usize) -> rusqlite::Result<i64> {
        let mut rows = self.prepare_cached(
            "SELECT row, previous, value IS NULL FROM log WHERE row > ?1 AND row < ?2 ORDER BY row LIMIT ?3",
        )?;
        let mut remove = self.prepare_cached("DELETE FROM log WHERE row = ?1")?;
        let slice = rows
            .query_map((after, end, limit.cast_signed() as i64), |row| {
                Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, bool>(2)?))
            })?
            .collect::<Result<Vec<_>, _>>()?;
        for &(row, previous, deletion) in &slice {
            if previous != 0 {
                remove.execute([previous])?;
            }
            if deletion {
                remove.execute([row])?;
            }
        }
        Ok(slice.last().filter(|_| slice.len() == limit).map_or(end - 1, |last| last.0))
    }
}

fn run(db: &Connection, sql: &str) -> rusqlite::Result<()> {
    db.prepare_cached(sql).and_then(|mut statement| statement.execute([])).map(|_| ())
}

fn log(
    db: &Connection,
    row: i64,
    live: Option<Live>,
    created: Revision,
    key: &str,
    value: Option<&[u8]>,
) -> rusqlite::Result<()> {
    let mut log =
        db.prepare_cached("INSERT INTO log (row, previous, created, key, value) VALUES (?1, ?2, ?3, ?4, ?5)")?;
    log.execute((row, live.map_or(0, |live| live.row), created.cast_signed(), key, value))?;
    Ok(())
}
