//! Values that are computed when they are asked for.

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, MetricEncoder},
    metrics::MetricType,
};

use crate::family::Labels;

/// Whole numbers above this are not exact as `f64`.
const EXACT: f64 = (1_u64 << 53) as f64;

/// One scrape, to which a function adds its metrics.
pub struct Scrape<'a> {
    encoder: DescriptorEncoder<'a>,
    result: fmt::Result,
}

/// The series of one metric of a scrape. Each has values for the same labels.
pub struct Samples<'a, const N: usize> {
    encoder: Option<MetricEncoder<'a>>,
    labels: [&'static str; N],
    is_counter: bool,
    result: &'a mut fmt::Result,
}

/// A number that is shown as a whole one if it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    Whole(i64),
    Real(f64),
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        match value.fract() == 0.0 && value.abs() < EXACT {
            true => Self::Whole(value as i64),
            false => Self::Real(value),
        }
    }
}

macro_rules! whole {
    ($($number:ty),*) => {$(
        impl From<$number> for Value {
            fn from(value: $number) -> Self {
                i64::try_from(value).map_or(Self::Real(value as f64), Self::Whole)
            }
        }
    )*};
}

whole!(i32, u32, i64, u64, usize);

impl<'a> Scrape<'a> {
    /// A gauge without labels, or the first of a family of gauges: see [`Samples::set`].
    pub fn gauge(&mut self, name: &'a str, help: &str) -> Samples<'_, 0> {
        self.samples(name, help, [], false)
    }

    pub fn gauge_family<const N: usize>(
        &mut self,
        name: &'a str,
        help: &str,
        labels: [&'static str; N],
    ) -> Samples<'_, N> {
        self.samples(name, help, labels, false)
    }

    pub fn counter(&mut self, name: &'a str, help: &str) -> Samples<'_, 0> {
        self.samples(name, help, [], true)
    }

    pub fn counter_family<const N: usize>(
        &mut self,
        name: &'a str,
        help: &str,
        labels: [&'static str; N],
    ) -> Samples<'_, N> {
        self.samples(name, help, labels, true)
    }

    fn samples<const N: usize>(
        &mut self,
        name: &'a str,
        help: &str,
        labels: [&'static str; N],
        is_counter: bool,
    ) -> Samples<'_, N> {
        let (name, kind) = match is_counter {
            true => (name.strip_suffix("_total").unwrap_or(name), MetricType::Counter),
            false => (name, MetricType::Gauge),
        };
        let encoder = self.encoder.encode_descriptor(name, help, None, kind);
        let encoder = encoder.map_err(|error| self.result = Err(error)).ok();
        Samples { encoder, labels, is_counter, result: &mut self.result }
    }
}

impl<const N: usize> Samples<'_, N> {
    /// Shows a series. Each set of values may come once.
    pub fn set(&mut self, values: [&str; N], value: impl Into<Value>) {
        let Some(encoder) = &mut self.encoder else { return };
        let written = match N {
            0 => write(encoder, value.into(), self.is_counter),
            _ => encoder
                .encode_family(&Labels(&self.labels, &values))
                .and_then(|mut encoder| write(&mut encoder, value.into(), self.is_counter)),
        };
        if written.is_err() {
            *self.result = written;
        }
    }
}

fn write(encoder: &mut MetricEncoder<'_>, value: Value, is_counter: bool) -> fmt::Result {
    use prometheus_client::encoding::NoLabelSet;
    match (value, is_counter) {
        (Value::Whole(whole), false) => encoder.encode_gauge(&whole),
        (Value::Real(real), false) => encoder.encode_gauge(&real),
        (Value::Whole(whole), true) => {
            encoder.encode_counter::<NoLabelSet, _, u64>(&u64::try_from(whole).unwrap_or_default(), None)
        }
        (Value::Real(real), true) => encoder.encode_counter::<NoLabelSet, _, u64>(&real.max(0.0), None),
    }
}

/// A function that adds its metrics to every scrape.
pub(crate) struct Collected<F>(pub(crate) F);

impl<F> fmt::Debug for Collected<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Collected")
    }
}

impl<F: Fn(&mut Scrape<'_>) + Send + Sync + 'static> Collector for Collected<F> {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut scrape = Scrape { encoder, result: Ok(()) };
        (self.0)(&mut scrape);
        scrape.result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Registry;

    #[test]
    fn what_is_computed_is_shown_as_what_is_counted() {
        let registry = Registry::new();
        registry.collect(|scrape| {
            let mut objects = scrape.gauge_family("objects", "Objects.", ["kind"]);
            objects.set(["tables"], 3_usize);
            objects.set(["rows"], 2.5);
            scrape.gauge("revision", "Revision.").set([], 7_u64);
            scrape.counter("lost_total", "Lost.").set([], 4_u32);
            scrape.counter_family("closed_total", "Closed.", ["how"]).set(["refused"], u64::MAX);
        });
        let expected = "# HELP objects Objects.\n# TYPE objects gauge\nobjects{kind=\"tables\"} 3\n\
            objects{kind=\"rows\"} 2.5\n# HELP revision Revision.\n# TYPE revision gauge\nrevision 7\n\
            # HELP lost Lost.\n# TYPE lost counter\nlost_total 4\n\
            # HELP closed Closed.\n# TYPE closed counter\nclosed_total{how=\"refused\"} 18446744073709553000.0\n\
            # EOF\n";
        assert_eq!(registry.encode(), expected);
    }

    #[test]
    fn numbers_are_whole_if_they_can_be() {
        assert_eq!(Value::from(3.0), Value::Whole(3));
        assert_eq!(Value::from(-0.5), Value::Real(-0.5));
        assert_eq!(Value::from(1e300), Value::Real(1e300));
        assert!(matches!(Value::from(f64::NAN), Value::Real(_)));
        assert_eq!(Value::from(i64::MIN), Value::Whole(i64::MIN));
    }
}
