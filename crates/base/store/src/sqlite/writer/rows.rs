//! The rows of a commit.

use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension};

use super::{Task, schema};
use crate::{Batch, Entry, Event, Op, Outcome, Revision};

/// A key's newest row.
#[derive(Clone, Copy)]
pub(super) struct Live {
    row: i64,
    created: Revision,
}

/// One commit within the group's transaction. It sees what the commits before it in the group have done.
pub(super) fn apply(
    db: &Connection,
    Task { commit, apart, .. }: &Task,
    newest: &mut Revision,
    batches: &mut Vec<Arc<Batch>>,
) -> rusqlite::Result<Outcome> {
    let mut found = Vec::with_capacity(commit.compares.len());
    for compare in &commit.compares {
        let live = look_up(db, &compare.key)?;
        let modified = live.map_or(0, |live| schema::revision_of(live.row));
        if modified != compare.modified {
            return Ok(Outcome::Conflict { key: compare.key.clone(), found: modified });
        }
        found.push(live);
    }
    let at_once = if *apart { 1 } else { commit.ops.len().max(1) };
    for ops in commit.ops.chunks(at_once) {
        let revision = *newest + 1;
        let mut events = Vec::with_capacity(ops.len());
        for op in ops {
            // Nearly always the key was just compared; with many compares, asking again is quicker than searching them.
            let known = commit.compares.iter().take(16).position(|compare| compare.key == op.key());
            let live = match known.and_then(|position| found.get(position)) {
                Some(live) => *live,
                None => look_up(db, op.key())?,
            };
            let row = schema::first_row(revision) + events.len() as i64;
            if let Some(event) = write_row(db, op, row, live)? {
                events.push(event);
            }
        }
        if !events.is_empty() {
            *newest = revision;
            batches.push(Arc::new(Batch { revision, events }));
        }
    }
    Ok(Outcome::Committed(*newest))
}

pub(super) fn look_up(db: &Connection, key: &str) -> rusqlite::Result<Option<Live>> {
    db.prepare_cached("SELECT row, created FROM live WHERE key = ?1")?
        .query_row([key], |row| Ok(Live { row: row.get(0)?, created: row.get::<_, i64>(1)?.cast_unsigned() }))
        .optional()
}

fn write_row(db: &Connection, op: &Op, row: i64, live: Option<Live>) -> rusqlite::Result<Option<Event>> {
    let revision = schema::revision_of(row);
    match (op, live) {
        (Op::Put { key, value }, live) => {
            let created = write_put(db, row, key, value, live)?;
            Ok(Some(Event::Put(Entry { key: key.clone(), value: value.clone(), created, modified: revision })))
        }
        (Op::Delete { key }, Some(_)) => {
            write_delete(db, row, key, live)?;
            Ok(Some(Event::Delete { key: key.clone(), revision }))
        }
        (Op::Delete { .. }, None) => Ok(None),
    }
}

/// Returns the revision in which the key was created.
pub(super) fn write_put(
    db: &Connection,
    row: i64,
    key: &str,
    value: &[u8],
    live: Option<Live>,
) -> rusqlite::Result<Revision> {
    let created = live.map_or(schema::revision_of(row), |live| live.created);
    log(db, row, live, created, key, Some(value))?;
    if live.is_some() {
        db.prepare_cached("UPDATE live SET row = ?2 WHERE key = ?1")?.execute((key, row))?;
    } else {
        let mut insert = db.prepare_cached("INSERT INTO live (key, row, created) VALUES (?1, ?2, ?3)")?;
        insert.execute((key, row, created.cast_signed()))?;
    }
    Ok(created)
}

pub(super) fn write_delete(db: &Connection, row: i64, key: &str, live: Option<Live>) -> rusqlite::Result<()> {
    log(db, row, live, live.map_or(0, |live| live.created), key, None)?;
    db.prepare_cached("DELETE FROM live WHERE key = ?1")?.execute([key])?;
    Ok(())
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
