//! A watcher's place in the log.

use std::{collections::VecDeque, sync::Arc};

use tokio::sync::watch;

use super::{Shared, reader};
use crate::{Batch, Error, Range, Revision};

/// How many batches a watcher takes out of the ring at once: enough to make the lock cheap, few enough to stay small.
const MAX_BATCHES_AT_ONCE: usize = 64;

pub(super) struct Cursor {
    shared: Arc<Shared>,
    changed: watch::Receiver<Revision>,
    range: Range,
    /// Everything up to here has been delivered or is in `ready`.
    seen: Revision,
    ready: VecDeque<Batch>,
}

impl Cursor {
    pub(super) fn new(shared: Arc<Shared>, range: Range, after: Revision) -> Self {
        let changed = shared.newest.subscribe();
        Self { shared, changed, range, seen: after, ready: VecDeque::new() }
    }

    pub(super) async fn next(&mut self) -> Result<Batch, Error> {
        loop {
            if let Some(batch) = self.ready.pop_front() {
                return Ok(batch);
            }
            // Marked as seen before looking: what comes later wakes us again.
            let newest = *self.changed.borrow_and_update();
            self.shared.check_open()?;
            self.shared.check_kept(self.seen)?;
            if self.seen >= newest {
                self.changed.changed().await.map_err(|_| Error::Closed)?;
                continue;
            }
            let recent = self.shared.recent().after(self.seen, MAX_BATCHES_AT_ONCE);
            match recent {
                Some(batches) => self.take(&batches),
                None => self.read().await?,
            }
        }
    }

    fn take(&mut self, batches: &[Arc<Batch>]) {
        for batch in batches {
            self.seen = batch.revision;
            let events: Vec<_> =
                batch.events.iter().filter(|event| self.range.contains(event.key())).cloned().collect();
            if !events.is_empty() {
                self.ready.push_back(Batch { revision: batch.revision, events });
            }
        }
    }

    async fn read(&mut self) -> Result<(), Error> {
        let (range, after) = (self.range.clone(), self.seen);
        let past = self.shared.readers.run(move |db| reader::changes(db, &range, after)).await?;
        self.shared.published(past.upto).await?;
        self.seen = past.upto;
        self.ready.extend(past.batches);
        Ok(())
    }
}
