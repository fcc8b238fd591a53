//! Placement at a size: so many registered edges, each with a Location, of which some are connected; one placement of a few objects on
//! all of them. Measures what it costs to edit an object, a placement, the labels of one Location, to read a mailbox, and to sum up
//! what an edge reports.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use http::Method;
use link::{Report, Version};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::client::{Client, Result, Target};
use crate::edges::{revision, rss, wait};
use crate::objects::{filler, run_id};
use crate::simulated::{Authority, Fleet, edge};
use crate::{Common, JSON};

const TARGETS: &str = "/apis/workload.kcp.io/v1alpha1/synctargets";
const LOCATIONS: &str = "/apis/scheduling.kcp.io/v1alpha1/locations";
const MERGE: &str = "application/merge-patch+json";
const PROVIDER: &str = "/clusters/root:espw";
/// What follows a change at a distance: statuses are written within five seconds.
const SETTLED: Duration = Duration::from_secs(6);

pub(crate) struct Plan {
    pub(crate) data_dir: String,
    pub(crate) workspace: String,
    pub(crate) timeout: Duration,
    pub(crate) connected: usize,
    pub(crate) objects: usize,
}

struct Run<'a> {
    client: Client,
    fleet: Arc<Fleet>,
    plan: &'a Plan,
    id: String,
}

pub(crate) async fn placement(target: &Arc<Target>, c: &Common, plan: &Plan) -> Result<Value> {
    let mut run = Run { client: Client::new(target), fleet: Arc::default(), plan, id: run_id() };
    let before = rss(c);
    run.declare(c.size).await?;
    let begun = Instant::now();
    let uids = run.register(target, c).await?;
    let registered = begun.elapsed();
    let connected = plan.connected.min(c.count);
    let begun = Instant::now();
    let _links = run.connect(c, &uids[..connected]).await?;
    let online = begun.elapsed();
    run.quiet().await?;
    let after = rss(c);

    let (key, path) = (run.key("all", 0), run.configmap("all", 0));
    let payload = filler(c.size + 1);
    let edited = run.change(connected, key.clone(), &payload, &path, json!({"data": {"payload": payload}})).await?;
    let expressions = json!([{"key": "bench", "operator": "In", "values": ["all", "more"]}]);
    let wider = json!({"spec": {"namespaceSelector": {"matchLabels": null, "matchExpressions": expressions}}});
    let path = run.at(&format!("/apis/edge.kcp.io/v1alpha1/edgeplacements/all-{}", run.id));
    let placed = run.change(connected, run.key("more", 0), "payload", &path, wider).await?;
    let path = format!("{LOCATIONS}/{}", run.name(0));
    let label = json!({"metadata": {"labels": {"special": run.id}}});
    let relabelled = run.change(1, run.key("special", 0), "payload", &path, label).await?;
    let failed = |error: crate::client::Error| json!({"error": error.to_string()});
    let mailbox = run.mailbox(&uids[0]).await.unwrap_or_else(failed);
    let summary = run.summary(&key).await.unwrap_or_else(failed);
    Ok(json!({
        "command": "placement", "edges": c.count, "connected": connected, "objects": plan.objects,
        "registered_ms": millis(registered), "online_ms": millis(online),
        "memory": {"before_kib": before, "after_kib": after, "end_kib": rss(c)},
        "edit": edited, "placement_edit": placed, "relabel": relabelled, "mailbox": mailbox, "summary": summary,
    }))
}

fn millis(took: Duration) -> f64 {
    took.as_secs_f64() * 1e3
}

impl Run<'_> {
    fn name(&self, n: usize) -> String {
        format!("kb-{}-{n:06}", self.id)
    }

    /// A path in the workspace of the objects.
    fn at(&self, path: &str) -> String {
        format!("/clusters/{}{path}", self.plan.workspace)
    }

    fn namespace(&self, which: &str) -> String {
        format!("{which}-{}", self.id)
    }

    fn configmap(&self, which: &str, n: usize) -> String {
        self.at(&format!("/api/v1/namespaces/{}/configmaps/c{n}", self.namespace(which)))
    }

    fn key(&self, which: &str, n: usize) -> String {
        format!("core/configmaps/{}/c{n}", self.namespace(which))
    }

    async fn post(&mut self, path: &str, object: Value) -> Result<Value> {
        let answer = self.client.call(Method::POST, path, JSON, Some((JSON, object.to_string().into()))).await?;
        Ok(serde_json::from_slice(&answer)?)
    }

    /// Three namespaces: one that is placed everywhere, one that will be, one for special Locations.
    async fn declare(&mut self, size: usize) -> Result<()> {
        for (which, count) in [("all", self.plan.objects.saturating_sub(1)), ("more", 1), ("special", 1)] {
            let namespace = self.namespace(which);
            let labels = json!({"bench": which});
            let object =
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}});
            self.post(&self.at("/api/v1/namespaces"), object).await?;
            for n in 0..count {
                let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("c{n}")},
                    "data": {"payload": filler(size)}});
                self.post(&self.at(&format!("/api/v1/namespaces/{namespace}/configmaps")), object).await?;
            }
        }
        for (which, labels) in [("all", json!({"bench": self.id})), ("special", json!({"special": self.id}))] {
            let object = json!({"apiVersion": "edge.kcp.io/v1alpha1", "kind": "EdgePlacement",
                "metadata": {"name": self.namespace(which)}, "spec": {"locationSelectors": [{"matchLabels": labels}],
                    "namespaceSelector": {"matchLabels": {"bench": which}}}});
            self.post(&self.at("/apis/edge.kcp.io/v1alpha1/edgeplacements"), object).await?;
        }
        Ok(())
    }

    /// SyncTargets and Locations; answers with the uids of the former.
    async fn register(&self, target: &Arc<Target>, c: &Common) -> Result<Vec<String>> {
        let clients = c.clients.max(16);
        let mut tasks: JoinSet<Result<Vec<(usize, String)>>> = JoinSet::new();
        for client in 0..clients {
            let (target, id, count) = (target.clone(), self.id.clone(), c.count);
            let names: Vec<(usize, String)> = (client..count).step_by(clients).map(|n| (n, self.name(n))).collect();
            tasks.spawn(async move {
                let (mut client, mut made) = (Client::new(&target), Vec::with_capacity(names.len()));
                for (n, name) in names {
                    let object = json!({"apiVersion": "workload.kcp.io/v1alpha1", "kind": "SyncTarget",
                        "metadata": {"name": name, "labels": {"id": name}}});
                    let body = Some((JSON, object.to_string().into()));
                    let answer = client.call(Method::POST, TARGETS, JSON, body).await?;
                    let answer: Value = serde_json::from_slice(&answer)?;
                    made.push((n, answer["metadata"]["uid"].as_str().unwrap_or_default().to_owned()));
                    let object = json!({"apiVersion": "scheduling.kcp.io/v1alpha1", "kind": "Location",
                        "metadata": {"name": name, "labels": {"bench": id}},
                        "spec": {"instanceSelector": {"matchLabels": {"id": name}}}});
                    let body = Some((JSON, object.to_string().into()));
                    client.call(Method::POST, LOCATIONS, JSON, body).await?;
                }
                Ok(made)
            });
        }
        let mut uids = vec![String::new(); c.count];
        while let Some(done) = tasks.join_next().await {
            for (n, uid) in done?? {
                uids[n] = uid;
            }
        }
        Ok(uids)
    }

    /// The links end when what is returned does.
    async fn connect(&self, c: &Common, uids: &[String]) -> Result<(JoinSet<()>, watch::Sender<u64>)> {
        let authority = Authority::read(Path::new(&self.plan.data_dir))?;
        let (storm, _) = watch::channel(0u64);
        let mut tasks = JoinSet::new();
        for (n, uid) in uids.iter().enumerate() {
            let dial = authority.dial(&c.url, &format!("system:edge:root:{}", self.name(n)), uid)?;
            // As fast as a center lets them in.
            let wait = Duration::from_micros(2_500) * n as u32;
            tasks.spawn(edge(self.fleet.clone(), dial, n as u64, wait, storm.subscribe()));
        }
        let all = uids.len() as u64;
        wait(self.plan.timeout, "edges are online", || self.fleet.online.load(Relaxed), all).await?;
        // The Namespace is one of the objects.
        let objects = all * self.plan.objects as u64;
        wait(self.plan.timeout, "objects are on their edges", || self.fleet.applied.load(Relaxed), objects).await?;
        Ok((tasks, storm))
    }

    /// Waits until nothing is written any more.
    async fn quiet(&mut self) -> Result<()> {
        let end = Instant::now() + self.plan.timeout;
        let mut last = 0;
        while Instant::now() < end {
            let now = revision(&mut self.client).await?;
            if now == last {
                return Ok(());
            }
            last = now;
            tokio::time::sleep(SETTLED).await;
        }
        Err("the center does not stop writing".into())
    }

    /// Patches something, and waits until so many edges have what follows from it.
    async fn change(&mut self, edges: usize, key: String, payload: &str, path: &str, patch: Value) -> Result<Value> {
        self.quiet().await?;
        let before = revision(&mut self.client).await?;
        self.fleet.want(key, payload);
        let begun = Instant::now();
        self.client.call(Method::PATCH, path, JSON, Some((MERGE, patch.to_string().into()))).await?;
        let written = begun.elapsed();
        wait(self.plan.timeout, "edges have taken the change", || self.fleet.acked.load(Relaxed), edges as u64).await?;
        let acked = begun.elapsed();
        let writes = revision(&mut self.client).await? - before;
        tokio::time::sleep(SETTLED).await;
        let later = revision(&mut self.client).await? - before;
        Ok(json!({"written_ms": millis(written), "acked_ms": millis(acked), "writes": writes, "writes_in_all": later}))
    }

    /// How long a list of a mailbox takes, at first and then.
    async fn mailbox(&mut self, uid: &str) -> Result<Value> {
        let path = format!("{PROVIDER}/apis/tenancy.kcp.io/v1alpha1/workspaces?limit=1");
        let answer: Value = serde_json::from_slice(&self.client.call(Method::GET, &path, JSON, None).await?)?;
        let name = answer["items"][0]["metadata"]["name"].as_str().unwrap_or_default();
        let Some((inventory, _)) = name.split_once("-mb-") else { return Err("there are no mailboxes".into()) };
        let path = format!("{PROVIDER}:{inventory}-mb-{uid}/api/v1/configmaps");
        let mut took = Vec::new();
        for _ in 0..21 {
            let begun = Instant::now();
            let answer: Value = serde_json::from_slice(&self.client.call(Method::GET, &path, JSON, None).await?)?;
            took.push(millis(begun.elapsed()));
            let found = answer["items"].as_array().map_or(0, Vec::len);
            if found < self.plan.objects - 1 {
                return Err(format!("a mailbox has only {found} ConfigMaps").into());
            }
        }
        let first = took.remove(0);
        took.sort_by(f64::total_cmp);
        Ok(json!({"first_ms": first, "median_ms": took[took.len() / 2]}))
    }

    /// How long it takes from a report of one edge until the sum over all of them shows it.
    async fn summary(&mut self, key: &str) -> Result<Value> {
        let name = self.namespace("all");
        let collectors = self.at("/apis/edge.selvedge.dev/v1alpha1/statuscollectors");
        let object = json!({"apiVersion": "edge.selvedge.dev/v1alpha1", "kind": "StatusCollector", "metadata": {"name": name},
            "spec": {"placement": name, "resource": {"apiGroup": "", "resource": "configmaps"},
                "combinedFields": [{"name": "sum", "type": "SUM", "subject": "has(obj.status) ? obj.status.n : 0"},
                    {"name": "all", "type": "COUNT"}]}});
        self.post(&collectors, object).await?;
        let path = self.at(&format!("/apis/edge.selvedge.dev/v1alpha1/combinedstatuses/{name}"));
        let mut took = Vec::new();
        for n in 1..=4u64 {
            let says = Report {
                key: key.into(),
                version: Version { epoch: 1, counter: n },
                state: Some(json!({"status": {"n": n * 1_000_003}}).to_string().into()),
            };
            let begun = Instant::now();
            self.fleet.says.send_replace(Some(says));
            let shown = (n * 1_000_003).to_string();
            loop {
                let found = self.client.call(Method::GET, &path, JSON, None).await.unwrap_or_default();
                if memchr::memmem::find(&found, shown.as_bytes()).is_some() {
                    break;
                }
                if begun.elapsed() > self.plan.timeout {
                    let found = String::from_utf8_lossy(&found).into_owned();
                    return Err(format!("the summary does not show what an edge reported: {found}").into());
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            took.push(millis(begun.elapsed()));
            tokio::time::sleep(SETTLED).await;
        }
        let first = took.remove(0);
        took.sort_by(f64::total_cmp);
        Ok(json!({"first_ms": first, "median_ms": took[took.len() / 2]}))
    }
}
