//! What a writer does besides commits: compaction, trimming, room on a full disk, a check whether writes work.

use std::{
    collections::VecDeque,
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use rusqlite::Connection;

use super::{
    super::fault::{self, During},
    UPKEEP_INTERVAL, Writer,
};
use crate::{Error, Revision};

/// Rows that are trimmed at once when there is nothing else to do.
const TRIM_ROWS_WHEN_IDLE: usize = 512;
/// A store that has lost revisions goes on this far behind the last one that is known.
const LOST_REVISIONS_GAP: Revision = 1 << 20;
/// With this many free pages, the database file has room for a usual write.
const MIN_FREE_PAGES: i64 = 64;
/// The WAL is moved at most this often to make room.
const RELIEVE_INTERVAL: Duration = Duration::from_secs(1);

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
        if self.relieved.is_none_or(|at| at.elapsed() >= RELIEVE_INTERVAL) {
            // The WAL begins anew in the room that it has when all of it is in the file.
            self.relieved = Some(Instant::now());
            // Moving it may itself need room in the file. A slice of the reserve is well spent on that: without it, deletions
            // that are in the WAL free nothing, and the store stays full.
            if !self.checkpoints.relieve(&self.path.db) && self.reserve.give_up() {
                self.checkpoints.relieve(&self.path.db);
            }
            return true;
        }
        frees && self.reserve.give_up()
    }

    /// While the reserve is not whole, what is left is for deletions.
    pub(super) fn has_room(&mut self) -> bool {
        let free = |db: &Connection| db.pragma_query_value(None, "freelist_count", |row| row.get::<_, i64>(0));
        self.reserve.has_room() || free(&self.path.db).is_ok_and(|pages| pages >= MIN_FREE_PAGES)
    }

    /// Whether writes work, as far as can be known. Writes something only if the last write has failed.
    pub(in super::super) fn check(&mut self) -> Result<(), Error> {
        match &self.failed {
            None => return Ok(()),
            Some(error @ Error::Full(_)) if !self.reserve.measures_room() => return Err(error.clone()),
            Some(Error::Full(_)) => {}
            Some(_) => self.path.probe()?,
        }
        self.failed = None;
        Ok(())
    }

    /// Goes on far behind the lost revisions. No revision is given out twice, and clients that watch from before it are
    /// told to begin anew.
    pub(super) fn skip_lost(&mut self) -> Result<(), Error> {
        self.path.settle()?;
        let next = self.path.state.newest() + LOST_REVISIONS_GAP;
        self.path.skip_to(next)?;
        self.samples = VecDeque::from([(Instant::now(), next)]);
        self.shared.oldest.store(next, Ordering::Release);
        self.shared.newest.send_replace(next);
        Ok(())
    }

    /// Only says from where on history counts; the rows go later, a few at a time.
    pub(in super::super) fn compact(&mut self, revision: Revision) -> Result<(), Error> {
        let newest = self.path.state.newest();
        if revision <= self.path.state.oldest() {
            return Ok(());
        }
        if revision > newest {
            return Err(Error::Future { asked: revision, newest });
        }
        self.path.compact(revision)?;
        self.shared.oldest.store(revision, Ordering::Release);
        self.shared.wake();
        Ok(())
    }

    pub(super) fn trim_alone(&mut self) {
        if let Err(error) = self.with_room(true, |writer| writer.path.trim_some(TRIM_ROWS_WHEN_IDLE)) {
            self.path.state.background_failed();
            tracing::warn!(%error, "old history could not be trimmed; trying again later");
        }
    }

    /// When nothing was written for a while, memory is given back. A watcher that still wants recent commits reads them
    /// from the database, as it reads pages of it.
    pub(super) fn rest(&mut self) {
        self.path.rest();
        if let Err(error) = self.path.db.execute_batch("PRAGMA shrink_memory") {
            tracing::debug!(%error, "memory that is not needed stays");
        }
    }

    /// Trims all that is due, and writes the file anew so that no free page has what was there.
    pub(in super::super) fn scrub(&mut self) -> Result<(), Error> {
        while self.path.state.is_trim_due() {
            self.path.trim_some(TRIM_ROWS_WHEN_IDLE)?;
        }
        self.path.settle()?;
        self.path.db.execute_batch("VACUUM").map_err(|error| fault::explain(&error, During::Write))?;
        let wiped = self.path.wipe_journal();
        wiped.map_err(|error| Error::Unavailable(format!("the journal could not be wiped: {error}")))?;
        self.checkpoints.empty(&self.path.db)
    }

    /// Compacts what is older than both limits of the options.
    pub(super) fn age(&mut self) {
        let now = Instant::now();
        if self.samples.back().is_some_and(|(at, _)| now - *at < UPKEEP_INTERVAL.min(self.options.keep_for)) {
            return;
        }
        self.reserve.restore();
        let (keep_for, keep_revisions) = match self.reserve.is_spent() {
            // What was deleted takes room until it is forgotten, too.
            true => (UPKEEP_INTERVAL.min(self.options.keep_for), 0),
            false => (self.options.keep_for, self.options.keep_revisions),
        };
        self.samples.push_back((now, self.path.state.newest()));
        let mut aged = 0;
        while let Some(&(at, revision)) = self.samples.front()
            && now - at >= keep_for
        {
            aged = revision;
            self.samples.pop_front();
        }
        let target = aged.min(self.path.state.newest().saturating_sub(keep_revisions));
        if target > self.path.state.oldest()
            && let Err(error) = self.with_room(true, |writer| writer.compact(target))
        {
            tracing::warn!(%error, "old history could not be compacted; trying again later");
        }
    }
}
