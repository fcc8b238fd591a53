//! Metrics: a [`Registry`] that is passed to what counts something, and encoded when somebody scrapes.
//!
//! - [`Counter`], [`Gauge`] and [`Histogram`] are handles. Get them once, at start; counting is then one atomic
//!   addition (two for a histogram). A clone is the same metric.
//! - [`Family`] has one metric for each set of label values, and a limit. Keep the handles of label sets that are
//!   known at start; a lookup costs a hash and a read lock, and no allocation. Above the limit all label values are
//!   `other`.
//! - [`Registry::collect`] takes a function for values that are computed when they are asked for, such as the length
//!   of a list that somebody else keeps.
//!
//! There is no global registry: two servers in one process have two. The output is OpenMetrics text; see
//! [`CONTENT_TYPE`]. Names of counters are given as they are shown, with `_total`. A metric is shown from its
//! registration on, a series of a family from its first use on.
//!
//! ```
//! use std::time::Duration;
//! use selvedge_metrics::{Registry, SECONDS};
//!
//! let registry = Registry::new();
//! let requests = registry.counter_family("requests_total", "Requests answered.", ["verb", "code"], 100);
//! let took = registry.histogram("request_duration_seconds", "Time to the first byte.", SECONDS);
//! registry.collect(|scrape| scrape.gauge("open_files", "Open files.").set([], 3));
//!
//! let created = requests.with(["create", "201"]);
//! created.inc();
//! took.observe(Duration::from_millis(3));
//!
//! let text = registry.encode();
//! assert!(text.contains("# TYPE requests counter\nrequests_total{verb=\"create\",code=\"201\"} 1\n"), "{text}");
//! assert!(text.contains("request_duration_seconds_bucket{le=\"0.005\"} 1\n"), "{text}");
//! assert!(text.contains("open_files 3\n") && text.ends_with("# EOF\n"), "{text}");
//! ```

mod family;
mod histogram;
mod registry;
mod scrape;
mod tasks;

pub use family::{Family, OTHER};
pub use histogram::{Histogram, SECONDS};
pub use prometheus_client::metrics::{counter::Counter, gauge::Gauge};
pub use registry::Registry;
pub use scrape::{Samples, Scrape, Value};

/// The `Content-Type` of [`Registry::encode`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
