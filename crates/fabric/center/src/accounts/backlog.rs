//! Sources that wait for their statuses to be read. Pure.
//!
//! A refresh of a source reads the last report of each of its edges. The number of reports that are read in a second is
//! limited for all sources together, so that statuses that change all the time on many edges do not take the center's
//! time. A source that has to wait is refreshed later, in the order in which the sources came.

use std::{
    collections::{HashSet, VecDeque},
    time::{Duration, Instant},
};

use placement::account::Source;

/// At most 10,000 reports are read in a second.
const TIME_FOR_EACH: Duration = Duration::from_micros(100);
/// Sources that are taken at once have at most so many reports, unless one source alone has more.
const MAX_BATCH: usize = 1000;

#[derive(Default)]
pub struct Backlog {
    order: VecDeque<Source>,
    waiting: HashSet<Source>,
    /// Nothing is taken before this time.
    pause: Option<Instant>,
}

impl Backlog {
    pub fn push(&mut self, source: Source) {
        if self.waiting.insert(source.clone()) {
            self.order.push_back(source);
        }
    }

    /// The sources that may be refreshed now. `cost`: the number of reports that the refresh of a source reads.
    pub fn take(&mut self, now: Instant, cost: impl Fn(&Source) -> usize) -> Vec<Source> {
        if self.pause.is_some_and(|pause| now < pause) {
            return Vec::new();
        }
        let (mut taken, mut spent) = (Vec::new(), 0);
        while let Some(next) = self.order.pop_front() {
            let cost = cost(&next);
            if spent > 0 && spent + cost > MAX_BATCH {
                self.order.push_front(next);
                break;
            }
            self.waiting.remove(&next);
            taken.push(next);
            spent += cost;
        }
        self.pause = Some(now + TIME_FOR_EACH * u32::try_from(spent).unwrap_or(u32::MAX));
        taken
    }

    /// When something can be taken.
    pub fn next(&self) -> Option<Instant> {
        self.pause.filter(|_| !self.order.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(n: usize) -> Source {
        ("root".into(), format!("apps/deployments/a/{n}").into())
    }

    #[test]
    fn reports_are_read_at_a_limited_rate_and_every_source_has_its_turn() {
        let (mut backlog, start) = (Backlog::default(), Instant::now());
        (0..100).for_each(|n| backlog.push(source(n)));
        let (mut now, mut rounds, mut seen) = (start, 0, Vec::new());
        while let Some(at) = backlog.next().or_else(|| (rounds == 0).then_some(start)) {
            now = at;
            let taken = backlog.take(now, |_| 500);
            assert!(taken.len() <= 2);
            // A source that comes again, as its statuses change all the time, waits behind the others.
            taken.iter().filter(|_| rounds < 10).for_each(|one| backlog.push(one.clone()));
            seen.extend(taken);
            rounds += 1;
        }
        assert_eq!(seen.len(), 120);
        assert_eq!(seen.iter().take(100).collect::<HashSet<_>>().len(), 100);
        assert_eq!(
            now - start,
            TIME_FOR_EACH * 500 * 118,
            "the last two are taken when the time of the others is over"
        );
    }

    #[test]
    fn a_source_that_waits_is_there_once_and_one_without_reports_waits_for_nobody() {
        let (mut backlog, now) = (Backlog::default(), Instant::now());
        (0..5000).for_each(|n| backlog.push(source(n % 2500)));
        assert_eq!(backlog.take(now, |_| 0).len(), 2500);
        assert_eq!(backlog.next(), None);
        backlog.push(source(1));
        backlog.push(source(2));
        assert_eq!(backlog.take(now, |_| 10_000), [source(1)], "one that has too many is taken alone");
        assert_eq!(backlog.next(), Some(now + Duration::from_secs(1)));
        assert!(backlog.take(now, |_| 0).is_empty());
    }
}
