//! Many edges in one process: links to a Selvedge center with certificates that its own authority signs, each driven by the link's own
//! machine over a hash tree without contents. Measures what an edge costs the center, how long one change takes to all of them,
//! and what it is like when all come back at once.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use http::Method;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::client::{Client, Result, Target};
use crate::objects::{collection, configmap, filler, run_id};
use crate::simulated::{Authority, Fleet, edge};
use crate::stats::{ProcMeter, Samples};
use crate::{Common, JSON};

const NAMESPACE: &str = "default";
const TARGETS: &str = "/apis/workload.kcp.io/v1alpha1/synctargets";

pub(crate) struct Plan {
    /// Where the center's authority lies: its data directory.
    pub(crate) data_dir: String,
    /// Whose objects the edges hold.
    pub(crate) workspace: String,
    pub(crate) timeout: Duration,
    /// The edges come one after the other within this time.
    pub(crate) ramp: Duration,
}

pub(crate) async fn edges(target: &Arc<Target>, c: &Common, plan: &Plan) -> Result<Value> {
    let run = run_id();
    let names: Vec<String> = (0..c.count).map(|n| format!("kb-{run}-{n:05}")).collect();
    let mut client = Client::new(target);
    // In the workspace that the edges hold, where every workspace has a namespace.
    let (name, path) = (format!("kb-{run}"), format!("/clusters/{}{}", plan.workspace, collection(NAMESPACE)));
    client.call(Method::POST, &path, JSON, Some((JSON, configmap(&name, &run, json!({"n": "0"}), None)))).await?;
    let uids = make_targets(target, c, plan, &names).await?;
    let authority = Authority::read(Path::new(&plan.data_dir))?;
    let before = rss(c);

    let fleet = Arc::new(Fleet::default());
    let (storm, _) = watch::channel(0u64);
    let begun = Instant::now();
    let mut tasks = JoinSet::new();
    for (n, name) in names.iter().enumerate() {
        let uid = uids.get(name).map(String::as_str).unwrap_or_default();
        let dial = authority.dial(&c.url, &format!("system:edge:root:{name}"), uid)?;
        let wait = plan.ramp * n as u32 / c.count.max(1) as u32;
        tasks.spawn(edge(fleet.clone(), dial, n as u64, wait, storm.subscribe()));
        if n % 50 == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    let all = c.count as u64;
    wait(plan.timeout, "edges are online", || fleet.online.load(Relaxed), all).await?;
    let connected = begun.elapsed();
    // Statuses are written, buffers are given back.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let after = rss(c);

    let meter = ProcMeter::start(&c.pid);
    let revision = revision(&mut client).await?;
    let payload = filler(c.size);
    fleet.want(format!("core/configmaps/{NAMESPACE}/{name}"), &payload);
    let body = configmap(&name, &run, json!({"n": "1", "payload": payload}), None);
    let begun = Instant::now();
    client.call(Method::PUT, &format!("{path}/{name}"), JSON, Some((JSON, body))).await?;
    let written = begun.elapsed();
    wait(plan.timeout, "edges have acked the change", || fleet.acked.load(Relaxed), all).await?;
    let acked = begun.elapsed();
    tokio::time::sleep(Duration::from_millis(500)).await;
    let writes = self::revision(&mut client).await? - revision;
    let (_, change_cost) = meter.finish();

    let (bytes, dials) = (fleet.bytes.swap(0, Relaxed), fleet.dials.swap(0, Relaxed));
    let stop = Arc::new(AtomicBool::new(false));
    let asking = tokio::spawn(ask(target.clone(), format!("{path}/{name}"), stop.clone()));
    let meter = ProcMeter::start(&c.pid);
    let begun = Instant::now();
    // Counted, as the first may be back before the last have lost theirs.
    let lost = fleet.lost.load(Relaxed);
    storm.send_replace(1);
    wait(plan.timeout, "edges have lost their links", || fleet.lost.load(Relaxed) - lost, all).await?;
    wait(plan.timeout, "edges are back", || fleet.online.load(Relaxed), all).await?;
    let back = begun.elapsed();
    stop.store(true, Relaxed);
    let mut asked = asking.await?;
    let (_, storm_cost) = meter.finish();
    let millis = |took: Duration| took.as_secs_f64() * 1e3;
    let per_edge = after.checked_sub(before).map(|kib| kib as f64 / all as f64);
    let (errors, first_error) = (asked.errors, asked.first_error.take());
    Ok(json!({
        "command": "edges", "edges": all, "connect_ms": millis(connected), "dials": dials, "bytes_received": bytes,
        "memory": {"before_kib": before, "after_kib": after, "per_edge_kib": per_edge},
        "change": {"written_ms": millis(written), "acked_by_all_ms": millis(acked), "store_writes": writes, "processes": change_cost},
        "storm": {"all_back_ms": millis(back), "dials": fleet.dials.load(Relaxed), "bytes_received": fleet.bytes.load(Relaxed),
            "api_ms": asked.summary(), "api_errors": errors, "api_first_error": first_error, "processes": storm_cost},
    }))
}

/// Gets one object over and over, with a pause: how the API feels meanwhile.
async fn ask(target: Arc<Target>, path: String, stop: Arc<AtomicBool>) -> Samples {
    let (mut client, mut samples) = (Client::new(&target), Samples::default());
    while !stop.load(Relaxed) {
        let begun = Instant::now();
        match client.call(Method::GET, &path, JSON, None).await {
            Ok(_) => samples.ok(begun.elapsed()),
            Err(error) => samples.error(error),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    samples
}

pub(crate) async fn wait(timeout: Duration, what: &str, count: impl Fn() -> u64, all: u64) -> Result<()> {
    let end = Instant::now() + timeout;
    while count() < all {
        if Instant::now() > end {
            return Err(format!("after {} s only {} of {all} {what}", timeout.as_secs(), count()).into());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

/// The uids of the SyncTargets by their names: a certificate has to say them.
async fn make_targets(
    target: &Arc<Target>,
    c: &Common,
    plan: &Plan,
    names: &[String],
) -> Result<HashMap<String, String>> {
    let mut tasks: JoinSet<Result<Vec<(String, String)>>> = JoinSet::new();
    for some in names.chunks(names.len().div_ceil(c.clients.max(8)).max(1)) {
        let (target, some, workspace) = (target.clone(), some.to_vec(), plan.workspace.clone());
        tasks.spawn(async move {
            let mut client = Client::new(&target);
            let mut made = Vec::new();
            for name in some {
                let body = json!({"apiVersion": "workload.kcp.io/v1alpha1", "kind": "SyncTarget", "metadata": {"name": name,
                    "annotations": {"edge.selvedge.dev/workspace": workspace}}});
                let answer = client.call(Method::POST, TARGETS, JSON, Some((JSON, body.to_string().into()))).await?;
                let answer: Value = serde_json::from_slice(&answer)?;
                made.push((name, answer["metadata"]["uid"].as_str().unwrap_or_default().to_owned()));
            }
            Ok(made)
        });
    }
    let mut all = HashMap::new();
    while let Some(done) = tasks.join_next().await {
        all.extend(done??);
    }
    Ok(all)
}

/// How many writes the center's store has seen.
pub(crate) async fn revision(client: &mut Client) -> Result<u64> {
    let answer = client.call(Method::GET, "/metrics", "*/*", None).await?;
    let text = String::from_utf8_lossy(&answer);
    let line = text.lines().find_map(|line| line.strip_prefix("selvedge_revision "));
    Ok(line.ok_or("the center does not say its revision in /metrics")?.trim().parse()?)
}

/// Of the center, in KiB.
pub(crate) fn rss(c: &Common) -> u64 {
    let own = std::process::id();
    let (_, all) = ProcMeter::start(&c.pid).finish();
    all.iter().filter(|process| process.pid != own).map(|process| process.rss_kib_after).sum()
}
