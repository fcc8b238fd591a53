//! Latency summaries, and CPU and memory of the processes under test.

use std::time::{Duration, Instant};

use serde::Serialize;

/// Latencies of the operations that succeeded, and the failures beside them.
#[derive(Default)]
pub(crate) struct Samples {
    micros: Vec<u64>,
    pub(crate) errors: u64,
    pub(crate) first_error: Option<String>,
}

impl Samples {
    pub(crate) fn ok(&mut self, took: Duration) {
        self.micros.push(took.as_micros() as u64);
    }

    pub(crate) fn error(&mut self, e: impl ToString) {
        self.errors += 1;
        self.first_error.get_or_insert_with(|| e.to_string());
    }

    pub(crate) fn merge(&mut self, other: Samples) {
        self.micros.extend(other.micros);
        self.errors += other.errors;
        if self.first_error.is_none() {
            self.first_error = other.first_error;
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.micros.len()
    }

    pub(crate) fn summary(&mut self) -> Latency {
        self.micros.sort_unstable();
        let at = |q: f64| match self.micros.len() {
            0 => 0.0,
            n => self.micros[((n - 1) as f64 * q).round() as usize] as f64 / 1000.0,
        };
        let mean = match self.micros.len() {
            0 => 0.0,
            n => self.micros.iter().sum::<u64>() as f64 / n as f64 / 1000.0,
        };
        Latency { mean, p50: at(0.5), p90: at(0.9), p99: at(0.99), max: at(1.0), min: at(0.0) }
    }
}

/// Milliseconds.
#[derive(Serialize)]
pub(crate) struct Latency {
    pub(crate) min: f64,
    pub(crate) mean: f64,
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
}

/// What a process used between [`ProcMeter::start`] and [`ProcMeter::finish`].
#[derive(Serialize)]
pub(crate) struct ProcUse {
    pub(crate) pid: u32,
    pub(crate) name: String,
    pub(crate) cpu_seconds: f64,
    pub(crate) rss_kib_before: u64,
    pub(crate) rss_kib_after: u64,
    pub(crate) rss_kib_peak: u64,
}

/// Reads /proc for the processes named with `--pid`, and for this one.
pub(crate) struct ProcMeter {
    begun: Instant,
    before: Vec<(u32, f64, u64)>,
}

impl ProcMeter {
    pub(crate) fn start(pids: &[u32]) -> ProcMeter {
        let mut all = pids.to_vec();
        all.push(std::process::id());
        let before = all.into_iter().filter_map(|p| Some((p, cpu_seconds(p)?, status_kib(p, "VmRSS:")?))).collect();
        ProcMeter { begun: Instant::now(), before }
    }

    pub(crate) fn finish(self) -> (f64, Vec<ProcUse>) {
        let wall = self.begun.elapsed().as_secs_f64();
        let used = self
            .before
            .into_iter()
            .filter_map(|(pid, cpu, rss)| {
                Some(ProcUse {
                    pid,
                    name: std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?.trim().to_string(),
                    cpu_seconds: cpu_seconds(pid)? - cpu,
                    rss_kib_before: rss,
                    rss_kib_after: status_kib(pid, "VmRSS:")?,
                    rss_kib_peak: status_kib(pid, "VmHWM:")?,
                })
            })
            .collect();
        (wall, used)
    }
}

/// User and system time of a process so far (clock ticks are 1/100 s on Linux).
fn cpu_seconds(pid: u32) -> Option<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let after_name = stat.rsplit_once(')')?.1;
    let mut fields = after_name.split_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) / 100.0)
}

fn status_kib(pid: u32, field: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|l| l.starts_with(field))?;
    line.split_whitespace().nth(1)?.parse().ok()
}
