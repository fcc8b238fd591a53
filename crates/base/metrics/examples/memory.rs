//! Measures how much memory a registry takes, and how long counting and a scrape take.

use std::{fs, hint::black_box, time::Duration, time::Instant};

use selvedge_metrics::{Registry, SECONDS};

const REGISTRIES: u64 = 200;

fn anonymous() -> u64 {
    let status = fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Anonymous:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// 150 counters with the seven labels of requests, 20 histograms, 30 gauges: 200 series.
fn filled() -> Registry {
    let registry = Registry::new();
    let labels = ["verb", "group", "version", "resource", "subresource", "scope", "code"];
    let requests = registry.counter_family("requests_total", "Requests.", labels, 1000);
    for verb in ["get", "list", "watch", "create", "update", "patch", "delete", "apply", "truncate", "post"] {
        for resource in 0..15 {
            requests.with([verb, "storage", "v1", &format!("resource-{resource}"), "", "one", "200"]).inc();
        }
    }
    let took = registry.histogram_family("took_seconds", "Time.", ["verb", "resource"], 1000, SECONDS);
    (0..20).for_each(|n| took.with(["get", &format!("resource-{n}")]).observe(Duration::from_millis(n)));
    let gauges = registry.gauge_family("objects", "Objects.", ["resource"], 1000);
    (0..30).for_each(|n| _ = gauges.with([&format!("resource-{n}")]).set(n));
    registry
}

fn time(what: &str, times: u32, mut run: impl FnMut()) {
    let began = Instant::now();
    (0..times).for_each(|_| run());
    show(&format!("{what}: {:?}", began.elapsed() / times));
}

#[allow(clippy::print_stdout)]
fn show(text: &str) {
    println!("{text}");
}

fn main() {
    let first = filled();
    let before = anonymous();
    let all: Vec<Registry> = (0..REGISTRIES).map(|_| filled()).collect();
    show(&format!("a registry with 200 series takes {} bytes", (anonymous() - before) / REGISTRIES));
    drop(all);
    let labels = ["verb", "group", "version", "resource", "subresource", "scope", "code"];
    let requests = first.counter_family("more_total", "Requests.", labels, 1000);
    let values = ["create", "storage", "v1", "tables", "", "one", "201"];
    let (handle, took) = (requests.with(values), first.histogram("more_seconds", "Time.", SECONDS));
    time("counting with a handle", 10_000_000, || _ = handle.inc());
    time("counting with labels", 1_000_000, || _ = requests.with(black_box(values)).inc());
    time("observing a duration", 10_000_000, || took.observe(black_box(Duration::from_micros(700))));
    time("a scrape", 100, || _ = black_box(first.encode()));
}
