//! What `/metrics` shows.

use std::{
    fmt::Write,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use crate::Server;

const VERBS: [&str; 8] = ["get", "watch", "create", "update", "patch", "delete", "head", "other"];
const CLASSES: usize = 6;
/// Upper bounds in microseconds.
const BUCKETS: [u64; 10] = [500, 1_000, 2_500, 5_000, 10_000, 25_000, 100_000, 500_000, 2_500_000, 10_000_000];

/// Counters per verb and class of answer. Plain atomics: a request costs three additions.
pub struct Metrics {
    requests: [[AtomicU64; CLASSES]; VERBS.len()],
    seconds: [[AtomicU64; BUCKETS.len() + 1]; VERBS.len()],
    micros: [AtomicU64; VERBS.len()],
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            requests: std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0))),
            seconds: std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0))),
            micros: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

impl Metrics {
    pub fn observe(&self, verb: &str, code: u16, took: Duration) {
        let verb = VERBS.iter().position(|v| *v == verb).unwrap_or(VERBS.len() - 1);
        let class = usize::from(code / 100).min(CLASSES - 1);
        self.requests[verb][class].fetch_add(1, Relaxed);
        let micros = took.as_micros() as u64;
        let bucket = BUCKETS.iter().position(|b| micros <= *b).unwrap_or(BUCKETS.len());
        self.seconds[verb][bucket].fetch_add(1, Relaxed);
        self.micros[verb].fetch_add(micros, Relaxed);
    }

    /// In the OpenMetrics text format.
    pub fn text(&self, server: &Server) -> Vec<u8> {
        let mut out = String::new();
        out.push_str("# HELP apiserver_request Requests answered, by verb and class of code.\n# TYPE apiserver_request counter\n");
        for (v, verb) in VERBS.iter().enumerate() {
            for class in 1..CLASSES {
                let count = self.requests[v][class].load(Relaxed);
                if count > 0 {
                    let _ = writeln!(out, "apiserver_request_total{{verb=\"{verb}\",code=\"{class}xx\"}} {count}");
                }
            }
        }
        out.push_str("# HELP apiserver_request_duration_seconds Time to the first byte of an answer.\n# TYPE apiserver_request_duration_seconds histogram\n");
        for (v, verb) in VERBS.iter().enumerate() {
            let mut sum = 0;
            for (b, bound) in BUCKETS.iter().enumerate() {
                sum += self.seconds[v][b].load(Relaxed);
                let bound = *bound as f64 / 1e6;
                let _ =
                    writeln!(out, "apiserver_request_duration_seconds_bucket{{verb=\"{verb}\",le=\"{bound}\"}} {sum}");
            }
            sum += self.seconds[v][BUCKETS.len()].load(Relaxed);
            let total = self.micros[v].load(Relaxed) as f64 / 1e6;
            let _ = writeln!(out, "apiserver_request_duration_seconds_bucket{{verb=\"{verb}\",le=\"+Inf\"}} {sum}");
            let _ = writeln!(out, "apiserver_request_duration_seconds_count{{verb=\"{verb}\"}} {sum}");
            let _ = writeln!(out, "apiserver_request_duration_seconds_sum{{verb=\"{verb}\"}} {total}");
        }
        out.push_str(
            "# HELP apiserver_storage_objects Stored objects, by resource.\n# TYPE apiserver_storage_objects gauge\n",
        );
        let mut names = server.cache.names();
        names.sort();
        for name in names {
            let count = server.cache.collection(&name).count();
            let _ = writeln!(out, "apiserver_storage_objects{{resource=\"{name}\"}} {count}");
        }
        server.workspaces.metrics(&mut out);
        let _ = writeln!(
            out,
            "# HELP selvedge_revision The newest revision that readers see.\n# TYPE selvedge_revision gauge\nselvedge_revision {}",
            server.cache.revision()
        );
        if let Some(write) = server.more_metrics.get() {
            write(&mut out);
        }
        server.inflight.text(&mut out);
        server.flows.text(server.inflight.seats(), &mut out);
        if let Some(audit) = &server.audit {
            audit.text(&mut out);
        }
        for mount in server.mounts() {
            mount.metrics(&mut out);
        }
        tasks_text(&mut out);
        out.push_str("# EOF\n");
        out.into_bytes()
    }
}

/// The counts of this process's tasks, by name.
fn tasks_text(out: &mut String) {
    let counts = tasks::counts();
    let mut show = |name: &str, help: &str, kind: &str, of: fn(&tasks::Counts) -> u64| {
        let metric = name.strip_suffix("_total").unwrap_or(name);
        let _ = writeln!(out, "# HELP {metric} {help}\n# TYPE {metric} {kind}");
        for count in &counts {
            let _ = writeln!(out, "{name}{{task=\"{}\"}} {}", count.name, of(count));
        }
    };
    show("selvedge_tasks", "Tasks that run, by name.", "gauge", |count| count.running.max(0).unsigned_abs());
    show("selvedge_task_panics_total", "Panics of tasks, by name.", "counter", |count| count.panics);
    let help = "Restarts of tasks after a panic or an error, by name.";
    show("selvedge_task_restarts_total", help, "counter", |count| count.restarts);
}
