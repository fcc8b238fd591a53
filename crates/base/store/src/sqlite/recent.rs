//! The newest batches, kept in memory: those that the file does not have yet, and so many more that watchers which keep
//! up need no disk.

use std::{collections::VecDeque, sync::Arc};

use crate::{Batch, Event, Revision};

/// Enough for a watcher to miss a few hundred milliseconds of full load. The values are shared with whoever committed
/// them, so most of these bytes are not ours alone.
const MAX_BATCHES: usize = 1024;
const MAX_BYTES: usize = 2 << 20;

pub(super) struct Recent {
    /// Every batch after this revision is here. Each revision has exactly one batch.
    floor: Revision,
    /// The file has everything up to this revision; what follows has only the journal, and stays.
    settled: Revision,
    batches: VecDeque<Arc<Batch>>,
    bytes: usize,
}

impl Recent {
    pub(super) fn new(settled: Revision) -> Self {
        Self { floor: settled, settled, batches: VecDeque::new(), bytes: 0 }
    }

    pub(super) fn push(&mut self, batch: Arc<Batch>) {
        self.bytes += size(&batch);
        self.batches.push_back(batch);
        self.evict(MAX_BATCHES, MAX_BYTES);
    }

    /// The file has everything up to this revision.
    pub(super) fn settle(&mut self, revision: Revision) {
        self.settled = revision;
        self.evict(MAX_BATCHES, MAX_BYTES);
    }

    /// Revisions go on behind this one, which the file has. What was here before is the past.
    pub(super) fn skip_to(&mut self, revision: Revision) {
        self.batches.clear();
        (self.floor, self.settled, self.bytes) = (revision, revision, 0);
    }

    /// What only the journal has.
    pub(super) fn unsettled(&self) -> Vec<Arc<Batch>> {
        self.after(self.settled, usize::MAX).unwrap_or_default()
    }

    /// Lets go of all that the file has: watchers have seen it, or read it from disk.
    pub(super) fn forget(&mut self) {
        self.evict(0, 0);
        self.batches.shrink_to_fit();
    }

    fn evict(&mut self, max_batches: usize, max_bytes: usize) {
        while self.batches.len() > max_batches || self.bytes > max_bytes {
            let Some(oldest) = self.batches.pop_front_if(|oldest| oldest.revision <= self.settled) else { break };
            self.bytes -= size(&oldest);
            self.floor = oldest.revision;
        }
    }

    /// At most `limit` batches behind `after`; `None` when some of them are no longer here.
    pub(super) fn after(&self, after: Revision, limit: usize) -> Option<Vec<Arc<Batch>>> {
        let skip = usize::try_from(after.checked_sub(self.floor)?).ok()?;
        Some(self.batches.iter().skip(skip).take(limit).cloned().collect())
    }
}

fn size(batch: &Batch) -> usize {
    let of = |event: &Event| match event {
        Event::Put(entry) => entry.key.len() + entry.value.len(),
        Event::Delete { key, .. } => key.len(),
    };
    batch.events.iter().map(|event| 64 + of(event)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forgets_the_oldest_and_says_so() {
        let mut recent = Recent::new(5);
        for revision in 6..=5 + 2 * MAX_BATCHES as u64 {
            recent.push(Arc::new(Batch { revision, events: vec![] }));
            recent.settle(revision);
        }
        let floor = 5 + MAX_BATCHES as u64;
        assert!(recent.after(floor - 1, 10).is_none());
        let next = recent.after(floor, 2).unwrap();
        assert_eq!(next.iter().map(|batch| batch.revision).collect::<Vec<_>>(), [floor + 1, floor + 2]);
        assert!(recent.after(floor + MAX_BATCHES as u64, 2).unwrap().is_empty());
    }

    #[test]
    fn goes_on_after_all_was_forgotten() {
        let mut recent = Recent::new(5);
        let batch = |revision| Arc::new(Batch { revision, events: vec![] });
        recent.forget();
        assert!(recent.after(5, 1).unwrap().is_empty());
        recent.push(batch(6));
        recent.settle(6);
        recent.forget();
        assert!(recent.after(5, 1).is_none());
        recent.push(batch(7));
        assert_eq!(recent.after(6, 1).unwrap()[0].revision, 7);
    }

    #[test]
    fn keeps_what_the_file_does_not_have() {
        let mut recent = Recent::new(5);
        for revision in 6..=5 + 2 * MAX_BATCHES as u64 {
            recent.push(Arc::new(Batch { revision, events: vec![] }));
        }
        recent.forget();
        assert_eq!(recent.unsettled().len(), 2 * MAX_BATCHES);
        assert_eq!(recent.after(5, 1).unwrap()[0].revision, 6);
        recent.settle(10);
        assert!(recent.after(9, 1).is_none());
        assert_eq!(recent.unsettled()[0].revision, 11);
        recent.settle(5 + 2 * MAX_BATCHES as u64);
        assert!(recent.unsettled().is_empty());
        recent.forget();
        assert!(recent.batches.is_empty() && recent.bytes == 0);
    }

    #[test]
    fn is_bounded_in_bytes() {
        let mut recent = Recent::new(0);
        for revision in 1..=10 {
            let key = "k".repeat(MAX_BYTES / 4);
            recent.push(Arc::new(Batch { revision, events: vec![Event::Delete { key, revision }] }));
            recent.settle(revision);
        }
        assert!(recent.bytes <= MAX_BYTES);
        assert!(recent.after(7, 9).is_some());
        assert!(recent.after(6, 9).is_none());
    }
}
