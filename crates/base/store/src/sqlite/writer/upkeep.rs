//! What a writer does besides commits: compaction, trimming, room on a full disk, a look whether writes work.

use std::{
    collections::VecDeque,
    io,
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use rusqlite::Connection;

use super::{
    super::{
        fault::{self, During},
        journal::{self, Journal},
        schema,
    },
    SAMPLE, Writer,
};
use crate::{Error, Revision};

/// Rows that are trimmed alone, when there is nothing else to do.
const TRIM_IDLE: usize = 512;
/// So far behind the last revision that is known a store goes on which has lost some.
const GAP: Revision = 1 << 20;
/// Free pages of the file that are room enough for a usual write.
const FREE_PAGES: i64 = 64;

impl Writer {
    /// Does some work, and makes room for it if there is none. What frees room may use the reserve.
    pub(super) fn with_room<T>(
        &mut self,
        frees: bool,
        work: impl Fn(&mut Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        loop {
            match work(self) {
                Err(Error::Full(_)) if self.make_room(frees) => {}
                done => return done,
            }
        }
    }

    /// `false`: there is nothing more to be done about it.
    fn make_room(&mut self, frees: bool) -> bool {
        if self.relieved.is_none_or(|at| at.elapsed() >= Duration::from_secs(1)) {
            // The WAL begins anew in the room that it has when all of it is in the file.
            self.relieved = Some(Instant::now());
            self.checkpoints.relieve(&self.db);
            return true;
        }
        frees && self.reserve.give_up()
    }

    /// While the reserve is not whole, what is left is for deletions.
    pub(super) fn has_room(&mut self) -> bool {
        let free = |db: &Connection| db.pragma_query_value(None, "freelist_count", |row| row.get::<_, i64>(0));
        self.reserve.has_room() || free(&self.db).is_ok_and(|pages| pages >= FREE_PAGES)
    }

    /// Whether writes work, as far as can be known. Writes something only if the last write has failed.
    pub(in super::super) fn check(&mut self) -> Result<(), Error> {
        match &self.failed {
            None => return Ok(()),
            Some(error @ Error::Full(_)) if !self.reserve.measures_room() => return Err(error.clone()),
            Some(Error::Full(_)) => {}
            Some(_) => self.probe()?,
        }
        self.failed = None;
        Ok(())
    }

    /// A write that changes nothing.
    fn probe(&mut self) -> Result<(), Error> {
        self.within(|writer| schema::set_meta(&writer.db, "newest", writer.newest.cast_signed()))?;
        self.settle()?;
        match &self.journal {
            Some(journal) => journal.probe(self.settled).map_err(|error| Error::Unavailable(error.to_string())),
            None => Ok(()),
        }
    }

    /// Goes on far behind what was lost: no revision is given out twice, and who watches from before begins anew.
    pub(super) fn skip_lost(&mut self) -> Result<(), Error> {
        self.settle()?;
        let next = self.newest + GAP;
        self.within(|writer| {
            schema::set_meta(&writer.db, "oldest", next.cast_signed())?;
            schema::set_meta(&writer.db, "newest", next.cast_signed())?;
            schema::set_meta(&writer.db, "journal", 0)
        })?;
        self.end()?;
        (self.noted, self.journal) = (0, None);
        (self.newest, self.settled, self.oldest) = (next, next, next);
        self.samples = VecDeque::from([(Instant::now(), next)]);
        self.shared.recent().skip_to(next);
        self.shared.oldest.store(next, Ordering::Release);
        self.shared.newest.send_replace(next);
        Ok(())
    }

    /// Only says from where on history counts; the rows go later, a few at a time.
    pub(in super::super) fn compact(&mut self, revision: Revision) -> Result<(), Error> {
        if revision <= self.oldest {
            return Ok(());
        }
        if revision > self.newest {
            return Err(Error::Future { asked: revision, newest: self.newest });
        }
        self.within(|writer| {
            schema::set_meta(&writer.db, "oldest", revision.cast_signed())?;
            // Trimming may take away the row of the newest revision, which must not be given out again.
            schema::set_meta(&writer.db, "newest", writer.newest.cast_signed())
        })?;
        // So that readers see it, too.
        self.settle()?;
        self.oldest = revision;
        self.shared.oldest.store(revision, Ordering::Release);
        self.shared.wake();
        Ok(())
    }

    pub(super) fn trim_is_due(&self) -> bool {
        self.trimmed + 1 < schema::first_row(self.oldest + 1)
    }

    pub(super) fn trim_alone(&mut self) {
        if let Err(error) = self.with_room(true, Self::trim_some) {
            self.is_stuck = true;
            tracing::warn!(%error, "old history could not be trimmed; trying again later");
        }
    }

    fn trim_some(&mut self) -> Result<(), Error> {
        self.trimmed = self.within(|writer| writer.trim(TRIM_IDLE))?;
        self.settle()
    }

    /// When nobody has written for a while: what was written last is read from the file if anybody still wants it, as pages of it are.
    pub(super) fn rest(&mut self) {
        if std::mem::replace(&mut self.at_rest, true) {
            return;
        }
        self.shared.recent().forget();
        self.journal.as_mut().map(Journal::rest);
        if let Err(error) = self.db.execute_batch("PRAGMA shrink_memory") {
            tracing::debug!(%error, "memory that is not needed stays");
        }
    }

    /// Trims all that is due, and writes the file anew so that no free page remembers what was there.
    pub(in super::super) fn scrub(&mut self) -> Result<(), Error> {
        while self.trim_is_due() {
            self.trim_some()?;
        }
        self.settle()?;
        self.db.execute_batch("VACUUM").map_err(|error| fault::explain(&error, During::Write))?;
        self.wipe_journal().map_err(|error| Error::Unavailable(format!("the journal could not be wiped: {error}")))?;
        self.checkpoints.empty(&self.db)
    }

    fn wipe_journal(&self) -> io::Result<()> {
        if let Some(journal) = &self.journal {
            return journal.wipe(self.settled);
        }
        // One that an earlier run has left.
        if !self.dir.join(journal::FILE).try_exists()? {
            return Ok(());
        }
        let id = if self.noted == 0 { Journal::new_id()? } else { self.noted };
        Journal::make(&self.dir, id, self.settled).map(|_| ())
    }

    /// Takes away what the next rows up to the oldest kept revision have replaced, and deletions, which have been told.
    /// Each row is looked at once, however many there are behind it.
    pub(super) fn trim(&self, limit: usize) -> rusqlite::Result<i64> {
        let end = schema::first_row(self.oldest + 1);
        let mut rows = self.db.prepare_cached(
            "SELECT row, previous, value IS NULL FROM log WHERE row > ?1 AND row < ?2 ORDER BY row LIMIT ?3",
        )?;
        let mut remove = self.db.prepare_cached("DELETE FROM log WHERE row = ?1")?;
        let slice = rows
            .query_map((self.trimmed, end, limit.cast_signed() as i64), |row| {
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
        let trimmed = slice.last().filter(|_| slice.len() == limit).map_or(end - 1, |last| last.0);
        schema::set_meta(&self.db, "trimmed", trimmed)?;
        Ok(trimmed)
    }

    /// Compacts what is older than both limits of the options.
    pub(super) fn age(&mut self) {
        let now = Instant::now();
        if self.samples.back().is_some_and(|(at, _)| now - *at < SAMPLE.min(self.options.keep_for)) {
            return;
        }
        self.reserve.restore();
        let (keep_for, keep_revisions) = match self.reserve.is_spent() {
            // What was deleted takes room until it is forgotten, too.
            true => (SAMPLE.min(self.options.keep_for), 0),
            false => (self.options.keep_for, self.options.keep_revisions),
        };
        self.samples.push_back((now, self.newest));
        let mut aged = 0;
        while let Some(&(at, revision)) = self.samples.front()
            && now - at >= keep_for
        {
            aged = revision;
            self.samples.pop_front();
        }
        let target = aged.min(self.newest.saturating_sub(keep_revisions));
        if target > self.oldest
            && let Err(error) = self.with_room(true, |writer| writer.compact(target))
        {
            tracing::warn!(%error, "old history could not be compacted; trying again later");
        }
    }
}
