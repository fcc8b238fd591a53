//! Metrics with labels.

use std::{
    collections::HashMap,
    fmt::{self, Debug},
    hash::{BuildHasher, RandomState},
    sync::{Arc, PoisonError, RwLock},
};

use prometheus_client::{
    encoding::{EncodeLabel, EncodeLabelSet, EncodeMetric, LabelSetEncoder, MetricEncoder},
    metrics::{MetricType, TypedMetric},
};

/// The value of every label of the series that counts what is above the limit.
pub const OTHER: &str = "other";

/// Metrics of one name, one for each set of values of `N` labels. A clone is the same family.
pub struct Family<M, const N: usize>(Arc<Inner<M, N>>);

struct Inner<M, const N: usize> {
    labels: [&'static str; N],
    max_series: usize,
    make: Box<dyn Fn() -> M + Send + Sync>,
    hasher: RandomState,
    series: RwLock<Series<M, N>>,
}

struct Series<M, const N: usize> {
    number: usize,
    /// By the hash of the values.
    by_hash: HashMap<u64, Vec<Entry<M, N>>>,
}

/// One series. Its values are kept in one piece, as there may be hundreds of series with many labels.
struct Entry<M, const N: usize> {
    text: Box<str>,
    /// Where each value ends.
    ends: [u32; N],
    metric: M,
}

impl<M, const N: usize> Clone for Family<M, N> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<M, const N: usize> Debug for Family<M, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Family").field("labels", &self.0.labels).finish_non_exhaustive()
    }
}

impl<M: Clone, const N: usize> Family<M, N> {
    pub(crate) fn new(
        labels: [&'static str; N],
        max_series: usize,
        make: impl Fn() -> M + Send + Sync + 'static,
    ) -> Self {
        let series = RwLock::new(Series { number: 0, by_hash: HashMap::new() });
        Self(Arc::new(Inner { labels, max_series, make: Box::new(make), hasher: RandomState::new(), series }))
    }

    /// The metric with these values. It is made if there is none. If there are as many as there may be, it is the one
    /// whose values are all [`OTHER`].
    pub fn with(&self, values: [&str; N]) -> M {
        let hash = self.0.hasher.hash_one(values);
        let known = self.0.series.read().unwrap_or_else(PoisonError::into_inner).find(hash, values);
        known.unwrap_or_else(|| self.make(hash, values))
    }

    /// Forgets the metric with these values: for what is gone and will not be counted again.
    pub fn remove(&self, values: [&str; N]) {
        let hash = self.0.hasher.hash_one(values);
        let mut series = self.0.series.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(entries) = series.by_hash.get_mut(&hash) {
            let before = entries.len();
            entries.retain(|entry| !entry.is(values));
            let removed = before - entries.len();
            if entries.is_empty() {
                series.by_hash.remove(&hash);
            }
            series.number -= removed;
        }
    }

    /// The number of series.
    pub fn len(&self) -> usize {
        self.0.series.read().unwrap_or_else(PoisonError::into_inner).number
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[cold]
    fn make(&self, hash: u64, values: [&str; N]) -> M {
        let mut series = self.0.series.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(metric) = series.find(hash, values) {
            return metric;
        }
        // The series of all others is the last one.
        if series.number + 1 >= self.0.max_series && values != [OTHER; N] {
            drop(series);
            return self.with([OTHER; N]);
        }
        let metric = (self.0.make)();
        let entries = series.by_hash.entry(hash).or_insert_with(|| Vec::with_capacity(1));
        entries.push(Entry::new(values, metric.clone()));
        series.number += 1;
        metric
    }
}

impl<M: Clone, const N: usize> Series<M, N> {
    fn find(&self, hash: u64, values: [&str; N]) -> Option<M> {
        let entries = self.by_hash.get(&hash)?;
        entries.iter().find(|entry| entry.is(values)).map(|entry| entry.metric.clone())
    }
}

impl<M, const N: usize> Entry<M, N> {
    fn new(values: [&str; N], metric: M) -> Self {
        let mut end = 0;
        let ends = values.map(|value| {
            end += value.len() as u32;
            end
        });
        Self { text: values.concat().into(), ends, metric }
    }

    fn values(&self) -> [&str; N] {
        let mut start = 0;
        self.ends.map(|end| {
            let value = self.text.get(start as usize..end as usize).unwrap_or_default();
            start = end;
            value
        })
    }

    fn is(&self, values: [&str; N]) -> bool {
        self.values() == values
    }
}

/// Labels and their values, as they are shown.
pub(crate) struct Labels<'a, V>(pub(crate) &'a [&'static str], pub(crate) &'a [V]);

impl<V: AsRef<str>> EncodeLabelSet for Labels<'_, V> {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> Result<(), fmt::Error> {
        self.0.iter().zip(self.1).try_for_each(|(label, value)| (*label, value.as_ref()).encode(encoder.encode_label()))
    }
}

impl<M, const N: usize> EncodeMetric for Family<M, N>
where
    M: Clone + EncodeMetric + TypedMetric,
{
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        let series = self.0.series.read().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<&Entry<M, N>> = series.by_hash.values().flatten().collect();
        all.sort_by_key(|entry| entry.values());
        all.into_iter().try_for_each(|entry| {
            let values = entry.values();
            let labels = Labels(&self.0.labels, &values);
            entry.metric.encode(encoder.encode_family(&labels)?)
        })
    }

    fn metric_type(&self) -> MetricType {
        M::TYPE
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::{OTHER, Registry};

    #[test]
    fn series_are_sorted_and_quoted() {
        let registry = Registry::new();
        let family = registry.counter_family("asked_total", "Asked.", ["verb", "path"], 10);
        for (verb, path) in [("put", "/"), ("get", "/b"), ("get", "/a\"\\\n")] {
            family.with([verb, path]).inc();
        }
        family.clone().with(["put", "/"]).inc();
        let expected = "# HELP asked Asked.\n# TYPE asked counter\n\
            asked_total{verb=\"get\",path=\"/a\\\"\\\\\\n\"} 1\nasked_total{verb=\"get\",path=\"/b\"} 1\n\
            asked_total{verb=\"put\",path=\"/\"} 2\n# EOF\n";
        assert_eq!(registry.encode(), expected);
        family.remove(["get", "/b"]);
        family.remove(["get", "unknown"]);
        assert_eq!((family.len(), registry.encode().contains("/b")), (2, false));
    }

    #[test]
    fn values_that_are_the_same_in_one_piece_are_told_apart() {
        let registry = Registry::new();
        let family = registry.counter_family("asked_total", "Asked.", ["a", "b"], 10);
        for values in [["xy", ""], ["x", "y"], ["", "xy"]] {
            family.with(values).inc();
        }
        assert_eq!(family.len(), 3);
        assert!(registry.encode().contains("asked_total{a=\"x\",b=\"y\"} 1\n"), "{}", registry.encode());
    }

    proptest! {
        #[test]
        fn there_are_never_more_series_than_the_limit_and_nothing_is_lost(
            limit in 1..6_usize, asked in proptest::collection::vec(0..12_u8, 0..60),
        ) {
            let registry = Registry::new();
            let family = registry.counter_family("asked_total", "Asked.", ["key"], limit);
            for key in &asked {
                family.with([&key.to_string()]).inc();
            }
            prop_assert!(family.len() <= limit);
            let text = registry.encode();
            let lines = text.lines().filter(|line| line.starts_with("asked_total"));
            let sum: usize = lines.map(|line| line.rsplit_once(' ').unwrap().1.parse::<usize>().unwrap()).sum();
            prop_assert_eq!(sum, asked.len());
            let mut different = asked.clone();
            different.sort_unstable();
            different.dedup();
            prop_assert_eq!(text.contains(OTHER), different.len() >= limit);
        }
    }
}
