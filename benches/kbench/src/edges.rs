//! Many edges in one process: links to a Selvedge center with certificates that its own authority signs, each driven by the link's own
//! machine over a hash tree without contents. Measures what an edge costs the center, how long one change takes to all of them,
//! and what it is like when all come back at once.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use http::Method;
use link::transport::{Dial, Identity, Line, Proxy};
use link::{
    EdgeInput as Input, EdgeOutput as Output, EdgeStatus, HashTree, Holding, Key, Position, Report, Tree, Version,
};
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::client::{Client, Result, Target};
use crate::objects::{collection, configmap, filler, run_id};
use crate::stats::{ProcMeter, Samples};
use crate::{Common, JSON};

const NAMESPACE: &str = "default";
const TARGETS: &str = "/apis/workload.kcp.io/v1alpha1/synctargets";

/// Where a certificate says its user's uid.
const UID: [u64; 8] = [1, 3, 6, 1, 4, 1, 57683, 2];

pub(crate) struct Plan {
    /// Where the center's authority lies: its data directory.
    pub(crate) data_dir: String,
    /// Whose objects the edges hold.
    pub(crate) workspace: String,
    pub(crate) timeout: Duration,
    /// The edges come one after the other within this time.
    pub(crate) ramp: Duration,
}

/// What all edges of a run have in common.
#[derive(Default)]
struct Fleet {
    online: AtomicU64,
    /// How many hold the object that the change is made to, in its newest form.
    acked: AtomicU64,
    dials: AtomicU64,
    bytes: AtomicU64,
    wanted: std::sync::Mutex<Option<(String, Vec<u8>)>>,
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
    wait(plan, "edges are online", || fleet.online.load(Relaxed), all).await?;
    let connected = begun.elapsed();
    // Statuses are written, buffers are given back.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let after = rss(c);

    let meter = ProcMeter::start(&c.pid);
    let revision = revision(&mut client).await?;
    let payload = filler(c.size);
    *fleet.wanted.lock().unwrap_or_else(|e| e.into_inner()) =
        Some((format!("core/configmaps/{NAMESPACE}/{name}"), payload.clone().into_bytes()));
    let body = configmap(&name, &run, json!({"n": "1", "payload": payload}), None);
    let begun = Instant::now();
    client.call(Method::PUT, &format!("{path}/{name}"), JSON, Some((JSON, body))).await?;
    let written = begun.elapsed();
    wait(plan, "edges have acked the change", || fleet.acked.load(Relaxed), all).await?;
    let acked = begun.elapsed();
    tokio::time::sleep(Duration::from_millis(500)).await;
    let writes = self::revision(&mut client).await? - revision;
    let (_, change_cost) = meter.finish();

    let (bytes, dials) = (fleet.bytes.swap(0, Relaxed), fleet.dials.swap(0, Relaxed));
    let stop = Arc::new(AtomicBool::new(false));
    let asking = tokio::spawn(ask(target.clone(), format!("{path}/{name}"), stop.clone()));
    let meter = ProcMeter::start(&c.pid);
    let begun = Instant::now();
    storm.send_replace(1);
    wait(plan, "edges have lost their links", || all - fleet.online.load(Relaxed), all).await?;
    wait(plan, "edges are back", || fleet.online.load(Relaxed), all).await?;
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

async fn wait(plan: &Plan, what: &str, count: impl Fn() -> u64, all: u64) -> Result<()> {
    let end = Instant::now() + plan.timeout;
    while count() < all {
        if Instant::now() > end {
            return Err(format!("after {} s only {} of {all} {what}", plan.timeout.as_secs(), count()).into());
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
async fn revision(client: &mut Client) -> Result<u64> {
    let answer = client.call(Method::GET, "/metrics", "*/*", None).await?;
    let text = String::from_utf8_lossy(&answer);
    let line = text.lines().find_map(|line| line.strip_prefix("selvedge_revision "));
    Ok(line.ok_or("the center does not say its revision in /metrics")?.trim().parse()?)
}

/// Of the center, in KiB.
fn rss(c: &Common) -> u64 {
    let own = std::process::id();
    let (_, all) = ProcMeter::start(&c.pid).finish();
    all.iter().filter(|process| process.pid != own).map(|process| process.rss_kib_after).sum()
}

struct Authority {
    roots: Vec<CertificateDer<'static>>,
    issuer: Issuer<'static, KeyPair>,
    /// One key for all: making thousands takes longer than the run.
    key: KeyPair,
}

impl Authority {
    fn read(data_dir: &Path) -> Result<Self> {
        let read = |name: &str| std::fs::read_to_string(data_dir.join("pki").join(name));
        let certificate = read("ca.crt")?;
        let issuer = Issuer::from_ca_cert_pem(&certificate, KeyPair::from_pem(&read("ca.key")?)?)?;
        let roots = vec![CertificateDer::from_pem_slice(certificate.as_bytes())?];
        Ok(Self { roots, issuer, key: KeyPair::generate()? })
    }

    fn dial(&self, url: &str, user: &str, uid: &str) -> Result<Dial> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, user);
        params.distinguished_name.push(DnType::OrganizationName, "system:edges");
        params.distinguished_name.push(DnType::CustomDnType(UID.to_vec()), uid);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&self.key, &self.issuer)?;
        let key = PrivateKeyDer::from_pem_slice(self.key.serialize_pem().as_bytes())?;
        let identity = Identity { chain: vec![certificate.der().clone()], key };
        Ok(Dial::new(url, &self.roots, Some(identity), Proxy::none())?)
    }
}

/// What an edge remembers: hashes alone.
#[derive(Default)]
struct Disk {
    tree: HashTree,
    seen: Option<Position>,
}

impl Tree for Disk {
    fn count(&self) -> u64 {
        self.tree.count()
    }
    fn root(&self) -> u128 {
        self.tree.root()
    }
    fn range(&self, from: u64, to: u64, visit: &mut dyn FnMut(u64, &Key, u128)) {
        self.tree.range(from, to, visit);
    }
}

impl Holding for Disk {
    fn seen(&self) -> Option<Position> {
        self.seen
    }
    fn floor(&self) -> Version {
        Version::default()
    }
    fn report(&self, _key: &str) -> Option<Report> {
        None
    }
}

async fn edge(fleet: Arc<Fleet>, dial: Dial, seed: u64, wait: Duration, mut storm: watch::Receiver<u64>) {
    let begun = Instant::now();
    let mut machine = link::Edge::new(0, seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let (mut disk, mut link): (Disk, Option<Line>) = Default::default();
    let (mut online, mut has_it) = (false, false);
    tokio::time::sleep(wait).await;
    let mut ticks = tokio::time::interval(Duration::from_millis(500));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let mut inputs = vec![tokio::select! {
            _ = ticks.tick() => Input::Tick,
            _ = storm.changed(), if link.is_some() => {
                link = None;
                Input::Disconnected
            }
            message = async { match &mut link { Some(line) => line.next().await, None => std::future::pending().await } } => {
                match message {
                    Some(Ok(message)) => Input::Received(message),
                    _ => {
                        link = None;
                        Input::Disconnected
                    }
                }
            }
        }];
        while let Some(input) = inputs.pop() {
            for output in machine.handle(begun.elapsed().as_millis() as u64, input, &disk) {
                match output {
                    Output::Dial => {
                        fleet.dials.fetch_add(1, Relaxed);
                        inputs.push(match dial.session().await {
                            Ok(opened) => {
                                link = Some(opened);
                                Input::Connected
                            }
                            Err(_) => Input::Disconnected,
                        });
                    }
                    Output::Send(message) => {
                        if let Some(line) = &link {
                            let _ = line.send(message).await;
                        }
                    }
                    Output::Apply { ticket, batch } => {
                        for (key, content) in &batch.changes {
                            match content {
                                Some(content) => disk.tree.insert(key, content),
                                None => disk.tree.remove(key),
                            }
                            has_it |= content.as_ref().is_some_and(|content| fleet.is_wanted(key, content));
                        }
                        disk.seen = Some(batch.position);
                        inputs.push(Input::Applied { ticket });
                    }
                    Output::Disconnect => {
                        if let Some(line) = link.take() {
                            fleet.bytes.fetch_add(line.traffic().1, Relaxed);
                        }
                    }
                    Output::Status(status) => {
                        let now = matches!(status, EdgeStatus::Online);
                        if matches!(status, EdgeStatus::Online | EdgeStatus::Offline) && now != online {
                            online = now;
                            fleet.online.fetch_add(if now { 1 } else { u64::MAX }, Relaxed);
                        }
                    }
                    Output::ReportsAcked { .. } => {}
                }
            }
        }
        if std::mem::take(&mut has_it) {
            fleet.acked.fetch_add(1, Relaxed);
        }
    }
}

impl Fleet {
    fn is_wanted(&self, key: &str, content: &[u8]) -> bool {
        let wanted = self.wanted.lock().unwrap_or_else(|e| e.into_inner());
        wanted
            .as_ref()
            .is_some_and(|(wanted, payload)| key == wanted && memchr::memmem::find(content, payload).is_some())
    }
}
