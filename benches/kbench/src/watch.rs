//! Many watchers, and how long each event takes to reach them all.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use http::Method;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::client::{Client, Result, Target};
use crate::objects::{collection, configmap, connect_all, ensure_namespace, filler, report, run_id};
use crate::stats::{ProcMeter, Samples};
use crate::{Accept, Common, JSON, LABEL};

/// Marks, inside each written object, when it was written (µs since the run began).
pub(crate) const STAMP: &str = "kbstamp:";

pub(crate) async fn watch(
    target: &Arc<Target>,
    c: &Common,
    writers: usize,
    rate: u64,
    accept: Accept,
    timeout: Duration,
) -> Result<Value> {
    ensure_namespace(target, &c.namespace).await?;
    let run = run_id();
    let epoch = Instant::now();
    let path = collection(&c.namespace);
    let rv = {
        let probe = Client::new(target).call(Method::GET, &format!("{path}?limit=1"), JSON, None).await?;
        let v: Value = serde_json::from_slice(&probe)?;
        v["metadata"]["resourceVersion"].as_str().unwrap_or("").to_string()
    };
    let watch_path =
        format!("{path}?watch=true&resourceVersion={rv}&labelSelector={LABEL}%3D{run}&timeoutSeconds=3600");
    let clients = connect_all(target, c.clients.max(1), c.shared).await?;
    let protocol = clients[0].protocol();
    let opening = Instant::now();
    let mut watchers = JoinSet::new();
    let (opened_tx, mut opened_rx) = tokio::sync::mpsc::channel::<Result<()>>(c.clients.max(1));
    for mut client in clients {
        let (watch_path, opened, total) = (watch_path.clone(), opened_tx.clone(), c.count);
        watchers.spawn(async move {
            let mut s = Samples::default();
            let reply = match client.send(Method::GET, &watch_path, accept.header(), None).await {
                Ok(r) if r.status().is_success() => r,
                Ok(r) => {
                    let e = format!("watch answered {}", r.status());
                    let _ = opened.send(Err(e.clone().into())).await;
                    s.error(e);
                    return (s, Instant::now(), 0);
                }
                Err(e) => {
                    s.error(&e);
                    let _ = opened.send(Err(e)).await;
                    return (s, Instant::now(), 0);
                }
            };
            let _ = opened.send(Ok(())).await;
            let end = tokio::time::Instant::now() + timeout;
            let (bytes, last) = receive(reply.into_body(), total, epoch, end, &mut s).await;
            (s, last, bytes)
        });
    }
    drop(opened_tx);
    for _ in 0..c.clients.max(1) {
        opened_rx.recv().await.ok_or("a watcher stopped before it opened its watch")??;
    }
    let open_ms = opening.elapsed().as_secs_f64() * 1e3;

    let filler = filler(c.size);
    let next = Arc::new(AtomicU64::new(0));
    // Before the clock runs: shaking hands is no part of delivering events.
    let clients = connect_all(target, writers.max(1), false).await?;
    let meter = ProcMeter::start(&c.pid);
    let begun = Instant::now();
    let mut writing = JoinSet::new();
    for mut client in clients {
        let (next, run, filler, path, total) =
            (next.clone(), run.clone(), filler.clone(), path.clone(), c.count as u64);
        writing.spawn(async move {
            let mut s = Samples::default();
            loop {
                let i = next.fetch_add(1, Ordering::Relaxed);
                if i >= total {
                    return s;
                }
                if let Some(due) = (i * 1_000_000).checked_div(rate) {
                    tokio::time::sleep_until((begun + Duration::from_micros(due)).into()).await;
                }
                let stamp = format!("{STAMP}{:012};", epoch.elapsed().as_micros());
                let data = json!({ "stamp": stamp, "payload": filler });
                let body = configmap(&format!("kw-{run}-{i:06}"), &run, data, None);
                let t = Instant::now();
                match client.call(Method::POST, &path, JSON, Some((JSON, body))).await {
                    Ok(_) => s.ok(t.elapsed()),
                    Err(e) => s.error(e),
                }
            }
        });
    }
    let mut written = Samples::default();
    while let Some(s) = writing.join_next().await {
        written.merge(s?);
    }
    let write_seconds = begun.elapsed().as_secs_f64();
    let (mut all, mut bytes, mut last) = (Samples::default(), 0, begun);
    while let Some(r) = watchers.join_next().await {
        let (s, at, n) = r?;
        bytes += n;
        last = last.max(at);
        all.merge(s);
    }
    let end_to_end = last.duration_since(begun).as_secs_f64();
    let extra = json!({
        "command": "watch", "accept": accept.header(), "writers": writers, "rate": rate, "size": c.size,
        "events_written": written.len(), "write_errors": written.errors, "first_write_error": written.first_error,
        "write_latency_ms": written.summary(), "write_seconds": write_seconds, "open_watches_ms": open_ms,
        "deliveries_expected": c.clients.max(1) * c.count, "deliveries": all.len(),
        "end_to_end_seconds": end_to_end, "deliveries_per_second": all.len() as f64 / end_to_end,
        "bytes_received": bytes,
    });
    Ok(report(c, protocol, meter, &mut all, extra))
}

/// Reads a watch stream until `total` stamped events came or `end` passed.
/// Works on JSON and protobuf alike: it looks only for the stamps.
pub(crate) async fn receive(
    mut body: hyper::body::Incoming,
    total: usize,
    epoch: Instant,
    end: tokio::time::Instant,
    s: &mut Samples,
) -> (u64, Instant) {
    let finder = memchr::memmem::Finder::new(STAMP);
    let (mut pending, mut bytes, mut last) = (BytesMut::new(), 0, Instant::now());
    let stamp_len = STAMP.len() + 13;
    while s.len() < total {
        let frame = match tokio::time::timeout_at(end, body.frame()).await {
            Ok(Some(Ok(f))) => f,
            Ok(Some(Err(e))) => {
                s.error(e);
                break;
            }
            Ok(None) => {
                s.error("watch ended early");
                break;
            }
            Err(_) => {
                s.error(format!("timed out with {} of {total} events", s.len()));
                break;
            }
        };
        let Ok(data) = frame.into_data() else { continue };
        bytes += data.len() as u64;
        pending.extend_from_slice(&data);
        let now = epoch.elapsed();
        let mut from = 0;
        while let Some(at) = finder.find(&pending[from..]) {
            let at = from + at;
            if pending.len() < at + stamp_len {
                break;
            }
            let digits = &pending[at + STAMP.len()..at + stamp_len - 1];
            if let Some(us) = std::str::from_utf8(digits).ok().and_then(|d| d.parse::<u64>().ok()) {
                s.ok(now.saturating_sub(Duration::from_micros(us)));
                last = Instant::now();
            }
            from = at + stamp_len;
        }
        // Keep what may be the beginning of a stamp cut in two.
        let keep = (pending.len() - from).min(stamp_len - 1);
        let _ = pending.split_to(pending.len() - keep);
    }
    (bytes, last)
}
