//! Histograms of atomic counts.

use std::{
    fmt::Error,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use prometheus_client::{
    encoding::{EncodeMetric, MetricEncoder, NoLabelSet},
    metrics::{MetricType, TypedMetric},
};

/// Upper bounds in seconds that suit most waiting: half a millisecond to ten seconds.
pub const SECONDS: &[f64] = &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5, 10.0];

const NANOS: f64 = 1e9;

/// Counts values by size. An observation is two additions and takes no lock.
#[derive(Clone, Debug)]
pub struct Histogram(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// Upper bounds as they are shown.
    bounds: &'static [f64],
    /// What one of what is shown is here: seconds are counted in nanoseconds.
    scale: f64,
    /// One more than bounds.
    buckets: Box<[AtomicU64]>,
    sum: AtomicU64,
}

impl Histogram {
    /// Of durations. The bounds are in seconds and ascend.
    pub fn of_durations(bounds: &'static [f64]) -> Self {
        Self::new(bounds, NANOS)
    }

    /// Of whole numbers, such as sizes. The bounds ascend.
    pub fn of_numbers(bounds: &'static [f64]) -> Self {
        Self::new(bounds, 1.0)
    }

    fn new(bounds: &'static [f64], scale: f64) -> Self {
        debug_assert!(bounds.is_sorted(), "the bounds of a histogram must ascend: {bounds:?}");
        let buckets = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self(Arc::new(Inner { bounds, scale, buckets, sum: AtomicU64::new(0) }))
    }

    pub fn observe(&self, took: Duration) {
        self.count(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }

    pub fn observe_number(&self, number: u64) {
        self.count(number);
    }

    fn count(&self, value: u64) {
        let Inner { bounds, scale, buckets, sum } = &*self.0;
        let shown = value as f64 / scale;
        let bucket = bounds.partition_point(|bound| *bound < shown);
        if let Some(bucket) = buckets.get(bucket) {
            bucket.fetch_add(1, Relaxed);
        }
        sum.fetch_add(value, Relaxed);
    }
}

impl EncodeMetric for Histogram {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), Error> {
        let Inner { bounds, scale, buckets, sum } = &*self.0;
        let bounds = bounds.iter().copied().chain([f64::INFINITY]);
        let counts: Vec<(f64, u64)> = bounds.zip(buckets.iter().map(|bucket| bucket.load(Relaxed))).collect();
        let count = counts.iter().map(|(_, count)| count).sum();
        encoder.encode_histogram::<NoLabelSet>(sum.load(Relaxed) as f64 / scale, count, &counts, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

impl TypedMetric for Histogram {
    const TYPE: MetricType = MetricType::Histogram;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Registry;

    #[test]
    fn a_value_on_a_bound_is_below_it() {
        let registry = Registry::new();
        let sizes = registry.number_histogram("sizes", "Sizes.", &[10.0, 100.0]);
        for size in [0, 10, 11, 100, 101, 5000] {
            sizes.observe_number(size);
        }
        let text = registry.encode();
        let lines =
            ["sizes_sum 5222.0", "sizes_count 6", "sizes_bucket{le=\"10.0\"} 2", "sizes_bucket{le=\"100.0\"} 4"];
        for line in lines.into_iter().chain(["# TYPE sizes histogram", "sizes_bucket{le=\"+Inf\"} 6"]) {
            assert!(text.lines().any(|known| known == line), "no {line} in {text}");
        }
    }

    #[test]
    fn durations_are_shown_in_seconds() {
        let registry = Registry::new();
        let took = registry.histogram("took_seconds", "Time.", SECONDS);
        took.clone().observe(Duration::from_micros(500));
        took.observe(Duration::from_millis(1500));
        took.observe(Duration::MAX / 2);
        let text = registry.encode();
        for line in
            ["took_seconds_bucket{le=\"0.0005\"} 1", "took_seconds_bucket{le=\"2.5\"} 2", "took_seconds_count 3"]
        {
            assert!(text.lines().any(|known| known == line), "no {line} in {text}");
        }
    }
}
