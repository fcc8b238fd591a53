//! The rows of a commit.

use std::sync::Arc;

use super::{
    Task,
    database::{Database, Live},
    schema,
};
use crate::{Batch, Entry, Event, Op, Outcome, Revision};

/// One commit within the group's transaction. It sees what the commits before it in the group have done.
pub(super) fn apply(
    db: &impl Database,
    Task { commit, apart, .. }: &Task,
    newest: &mut Revision,
    batches: &mut Vec<Arc<Batch>>,
) -> rusqlite::Result<Outcome> {
    let mut found = Vec::with_capacity(commit.compares.len());
    for compare in &commit.compares {
        let live = db.look_up(&compare.key)?;
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
                None => db.look_up(op.key())?,
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

fn write_row(db: &impl Database, op: &Op, row: i64, live: Option<Live>) -> rusqlite::Result<Option<Event>> {
    let revision = schema::revision_of(row);
    match (op, live) {
        (Op::Put { key, value }, live) => {
            let created = db.put(row, key, value, live)?;
            Ok(Some(Event::Put(Entry { key: key.clone(), value: value.clone(), created, modified: revision })))
        }
        (Op::Delete { key }, Some(_)) => {
            db.delete(row, key, live)?;
            Ok(Some(Event::Delete { key: key.clone(), revision }))
        }
        (Op::Delete { .. }, None) => Ok(None),
    }
}

/// Writes the rows of a commit that was applied before, in a transaction that was not committed.
pub(super) fn replay(db: &impl Database, batch: &Batch) -> rusqlite::Result<()> {
    for (event, index) in batch.events.iter().zip(0..) {
        let live = db.look_up(event.key())?;
        let row = schema::first_row(batch.revision) + index;
        match event {
            Event::Put(entry) => db.put(row, &entry.key, &entry.value, live).map(|_| ())?,
            Event::Delete { key, .. } => db.delete(row, key, live)?,
        }
    }
    Ok(())
}
