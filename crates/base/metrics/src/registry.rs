//! The registry.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use prometheus_client::{
    encoding::{EncodeMetric, text},
    metrics::{counter::Counter, gauge::Gauge},
    registry::Registry as Inner,
};

use crate::{Family, Histogram, Scrape, scrape::Collected};

/// The metrics of a server. A clone is a handle to the same registry.
#[derive(Clone, Debug, Default)]
pub struct Registry(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    inner: Inner,
    names: BTreeSet<&'static str>,
}

impl Registry {
    pub fn new() -> Self {
        Self::default()
    }

    /// A number that only grows. The name ends in `_total`.
    pub fn counter(&self, name: &'static str, help: &'static str) -> Counter {
        self.add(name, help, Counter::default())
    }

    /// A number that goes up and down.
    pub fn gauge(&self, name: &'static str, help: &'static str) -> Gauge {
        self.add(name, help, Gauge::default())
    }

    /// Durations, by upper bounds in seconds.
    pub fn histogram(&self, name: &'static str, help: &'static str, bounds: &'static [f64]) -> Histogram {
        self.add(name, help, Histogram::of_durations(bounds))
    }

    /// Whole numbers, such as sizes, by upper bounds.
    pub fn number_histogram(&self, name: &'static str, help: &'static str, bounds: &'static [f64]) -> Histogram {
        self.add(name, help, Histogram::of_numbers(bounds))
    }

    /// Counters with labels, at most `max_series`.
    pub fn counter_family<const N: usize>(
        &self,
        name: &'static str,
        help: &'static str,
        labels: [&'static str; N],
        max_series: usize,
    ) -> Family<Counter, N> {
        self.add(name, help, Family::new(labels, max_series, Counter::default))
    }

    /// Gauges with labels, at most `max_series`.
    pub fn gauge_family<const N: usize>(
        &self,
        name: &'static str,
        help: &'static str,
        labels: [&'static str; N],
        max_series: usize,
    ) -> Family<Gauge, N> {
        self.add(name, help, Family::new(labels, max_series, Gauge::default))
    }

    /// Histograms of durations with labels, at most `max_series`, each with as many lines as bounds and three more.
    pub fn histogram_family<const N: usize>(
        &self,
        name: &'static str,
        help: &'static str,
        labels: [&'static str; N],
        max_series: usize,
        bounds: &'static [f64],
    ) -> Family<Histogram, N> {
        self.add(name, help, Family::new(labels, max_series, move || Histogram::of_durations(bounds)))
    }

    /// Calls a function at every scrape. It must not use this registry, and should hold what it reads weakly.
    pub fn collect(&self, function: impl Fn(&mut Scrape<'_>) + Send + Sync + 'static) {
        self.state().inner.register_collector(Box::new(Collected(function)));
    }

    /// All metrics as OpenMetrics text, first those that are counted and then those that are computed.
    pub fn encode(&self) -> String {
        let mut out = String::new();
        if let Err(error) = text::encode(&mut out, &self.state().inner) {
            tracing::error!(%error, "some metrics could not be shown");
        }
        out
    }

    fn add<M>(&self, name: &'static str, help: &'static str, metric: M) -> M
    where
        M: EncodeMetric + Clone + Send + Sync + std::fmt::Debug + 'static,
    {
        // The encoder appends both.
        let (name, help) = (name.strip_suffix("_total").unwrap_or(name), help.strip_suffix('.').unwrap_or(help));
        let mut state = self.state();
        // Scrapers refuse all metrics if one comes twice.
        if state.names.insert(name) {
            state.inner.register(name, help, metric.clone());
        } else {
            tracing::error!(name, "a metric is registered twice; the second one is not shown");
        }
        metric
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_help_are_shown_as_they_were_given() {
        let registry = Registry::new();
        registry.counter("events_total", "Events written.").inc_by(2);
        registry.gauge("open", "Open connections").set(-1);
        let expected = "# HELP events Events written.\n# TYPE events counter\nevents_total 2\n\
            # HELP open Open connections.\n# TYPE open gauge\nopen -1\n# EOF\n";
        assert_eq!(registry.encode(), expected);
    }

    #[test]
    fn a_name_is_shown_once() {
        let registry = Registry::new();
        registry.counter("events_total", "Events.").inc();
        registry.clone().counter("events_total", "Events.").inc_by(5);
        assert_eq!(
            registry.encode().lines().filter(|line| line.starts_with("events_total")).collect::<Vec<_>>(),
            ["events_total 1"]
        );
    }
}
