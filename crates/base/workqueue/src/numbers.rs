//! Counts of queues, as plain numbers.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

/// Upper bounds of the buckets of [`Durations`] in seconds: ten nanoseconds to a quarter of an hour, as in Kubernetes.
pub const DURATION_BOUNDS: [f64; 12] = [1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0, 1000.0];

/// A histogram of durations.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Durations {
    /// How many durations were at most as long as each of [`DURATION_BOUNDS`] and longer than the bound before. The
    /// last one has no bound.
    pub buckets: [u64; DURATION_BOUNDS.len() + 1],
    pub seconds: f64,
}

impl Durations {
    pub fn observe(&mut self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        let bucket = DURATION_BOUNDS.iter().position(|bound| seconds <= *bound).unwrap_or(DURATION_BOUNDS.len());
        self.buckets[bucket] += 1;
        self.seconds += seconds;
    }

    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    fn add(&mut self, other: &Self) {
        self.buckets.iter_mut().zip(other.buckets).for_each(|(count, more)| *count += more);
        self.seconds += other.seconds;
    }
}

/// The counts of one queue, or of all queues of one name. The comments name the metrics of Kubernetes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Numbers {
    /// The label `name`.
    pub name: &'static str,
    /// `workqueue_depth`: keys that are ready to be worked on.
    pub depth: usize,
    /// `workqueue_adds_total`: keys that became ready. An add of a key that is in the queue already is not counted.
    pub adds: u64,
    /// `workqueue_retries_total`: failed reconciles, each of which is retried.
    pub retries: u64,
    /// `workqueue_queue_duration_seconds`: from becoming ready to being worked on.
    pub queue_duration: Durations,
    /// `workqueue_work_duration_seconds`: of a reconcile.
    pub work_duration: Durations,
    /// `workqueue_unfinished_work_seconds`: the sum of how long the reconciles that run now have been running.
    pub unfinished_work: Duration,
    /// `workqueue_longest_running_processor_seconds`: how long the oldest reconcile that runs now has been running.
    pub longest_running: Duration,
}

impl Numbers {
    fn add(&mut self, other: &Self) {
        self.depth += other.depth;
        self.adds += other.adds;
        self.retries += other.retries;
        self.queue_duration.add(&other.queue_duration);
        self.work_duration.add(&other.work_duration);
        self.unfinished_work += other.unfinished_work;
        self.longest_running = self.longest_running.max(other.longest_running);
    }
}

/// A queue of any type of key.
pub(crate) trait Counted: Send + Sync {
    fn numbers(&self) -> Numbers;
}

/// All queues of this process. Those that are gone are removed when another one is made.
static QUEUES: Mutex<Vec<Weak<dyn Counted>>> = Mutex::new(Vec::new());

pub(crate) fn register(queue: Weak<dyn Counted>) {
    let mut queues = QUEUES.lock().unwrap_or_else(PoisonError::into_inner);
    queues.retain(|queue| queue.strong_count() > 0);
    queues.push(queue);
}

/// The counts of all queues of this process, by name. Queues of the same name are counted together.
pub fn numbers() -> Vec<Numbers> {
    let queues = QUEUES.lock().unwrap_or_else(PoisonError::into_inner);
    let alive: Vec<Arc<dyn Counted>> = queues.iter().filter_map(Weak::upgrade).collect();
    drop(queues);
    let mut by_name: BTreeMap<&'static str, Numbers> = BTreeMap::new();
    for numbers in alive.iter().map(|queue| queue.numbers()) {
        let name = numbers.name;
        by_name.entry(name).or_insert_with(|| Numbers { name, ..Numbers::default() }).add(&numbers);
    }
    by_name.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_fall_into_the_bucket_of_their_bound() {
        let mut durations = Durations::default();
        for seconds in [0.001, 0.0011, 5000.0] {
            durations.observe(Duration::from_secs_f64(seconds));
        }
        let mut expected = [0; 13];
        (expected[5], expected[6], expected[12]) = (1, 1, 1);
        assert_eq!((durations.buckets, durations.count()), (expected, 3));
        assert!((durations.seconds - 5000.0021).abs() < 1e-6);
    }
}
