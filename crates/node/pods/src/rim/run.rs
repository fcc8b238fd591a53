//! The runner: one watch of the node's pods, a worker for each, and what the runtime has of them.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use backoff::{Retries, Schedule};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client,
    runtime::{WatchStreamExt, watcher},
};
use tasks::Tasks;
use tokio::{
    sync::{mpsc, watch},
    task::{Id, JoinSet},
    time::Instant,
};
use tracing::Instrument;

use super::{
    clock::Clock,
    events::Recorder,
    files,
    inbox::Inbox,
    lister::{self, Listed},
    logs, node,
    orphans::{self, Orphans},
    services::Catalog,
    sources::Sources,
    worker::{Shared, Worker},
};
use crate::{
    Pods,
    admit::{self, Refusal, Room},
    machine::{Note, Setting},
    resources,
    runtime::{Container, Runtime},
    spec,
};

const PRUNE_EVERY: Duration = Duration::from_secs(600);
/// After this time a worker is told again what it knows, in case something was lost without a trace.
const TELL_AGAIN: Duration = Duration::from_secs(50);

#[derive(Clone)]
pub struct Options {
    /// The node's name.
    pub node: String,
    /// Volumes lie below `pods/`, logs below `logs/`.
    pub data_dir: PathBuf,
    /// As `system:node:<name>`.
    pub client: Client,
    pub runtime: Arc<dyn Runtime>,
    /// The node's own address.
    pub address: IpAddr,
    /// Where the node answers for logs and the like, if it does on a port.
    pub port: Option<u16>,
    /// Labels for the Node, besides those that every node has.
    pub labels: BTreeMap<String, String>,
    /// Variables that every container gets unless it has its own.
    pub environment: Vec<(String, String)>,
    /// Where pods are told that the API is, if not at the address of its Service.
    pub api: Option<SocketAddr>,
    /// What answers for the names of Services, if anything does.
    pub resolver: Option<SocketAddr>,
    pub max_pods: u32,
    /// Where others find the pods.
    pub pods: Pods,
}

/// The wait before a pod gets another worker after the last one panicked, and before a task of the runner restarts.
const RESTART: Schedule = Schedule::new(Duration::from_millis(100), MAX_RESTART_WAIT);
const MAX_RESTART_WAIT: Duration = Duration::from_secs(60);
/// The tasks of the runner are dropped where they wait, which takes no time.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// A pod that has a worker, or will have the next one soon.
struct Entry {
    inbox: Arc<Inbox>,
    pod: Arc<Pod>,
    requests: BTreeMap<String, i64>,
    told: (Duration, Vec<Container>),
    /// News that the next worker needs as well, should this one panic.
    refusal: Option<Refusal>,
    is_gone: bool,
}

struct Runner {
    shared: Arc<Shared>,
    machine: node::Machine,
    room: watch::Receiver<Room>,
    entries: BTreeMap<String, Entry>,
    workers: JoinSet<()>,
    /// The pod of each worker, by uid.
    pods: HashMap<Id, String>,
    /// Pods whose worker panicked, by uid.
    panicked: Retries<String, Instant>,
    listed: Listed,
    orphans: Orphans,
    /// The API has said once which pods there are: what belongs to none of them is nobody's.
    is_read: bool,
}

/// Runs the node's pods until the shutdown. Containers go on without it, and are found again.
pub async fn run(options: Options, mut stop: watch::Receiver<bool>) {
    let tasks = Tasks::following(stop.clone());
    let group = tasks.clone();
    tasks.spawn_until_shutdown("node-rim", RESTART, move || run_all(options.clone(), StopOnDrop(group.group())));
    // An error says that the sender is gone: then the process is stopping as well.
    let _ = stop.wait_for(|stop| *stop).await;
    tasks.stop(STOP_TIMEOUT).await;
}

/// Tasks that are of no use without the runner, also if that panicked.
struct StopOnDrop(Tasks);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.begin_stop();
    }
}

async fn run_all(options: Options, tasks: StopOnDrop) {
    let tasks = &tasks.0;
    for dir in ["pods", "logs"] {
        if let Err(error) = tokio::fs::create_dir_all(options.data_dir.join(dir)).await {
            tracing::error!(%error, path = %options.data_dir.join(dir).display(), "cannot make a directory for pods");
        }
    }
    let clock = Clock::new();
    let version = options.runtime.version();
    let machine = node::Machine::look(&options.data_dir, &version, options.max_pods);
    let recorder = Recorder::start(options.client.clone(), &options.node, tasks);
    let (tell_room, room) = watch::channel(Room::default());
    let catalog = Arc::new(Catalog::new(options.api));
    let scheme = version.split_once("://").map_or(version.as_str(), |(scheme, _)| scheme).to_owned();
    let shared = Arc::new(Shared {
        clock,
        setting: Arc::new(Setting { host: options.address, scheme }),
        sources: Sources::new(options.client.clone(), tasks.clone()),
        catalog: catalog.clone(),
        recorder: recorder.clone(),
        allocatable: machine.capacity.clone(),
        environment: options.environment.clone().into(),
        options: options.clone(),
    });
    let (tell, lists) = mpsc::channel(1);
    let (ours, its) = (options.clone(), machine.clone());
    tasks.spawn_until_shutdown("node-status", RESTART, move || {
        node::keep(ours.clone(), its.clone(), recorder.clone(), tell_room.clone())
    });
    let client = options.client.clone();
    tasks.spawn_until_shutdown("node-catalog", RESTART, move || {
        let (catalog, client) = (catalog.clone(), client.clone());
        async move { catalog.follow(client).await }
    });
    let runtime = options.runtime.clone();
    tasks.spawn_until_shutdown("container-lister", RESTART, move || lister::list(runtime.clone(), clock, tell.clone()));
    let runner = Runner {
        shared,
        machine,
        room,
        entries: BTreeMap::new(),
        workers: JoinSet::new(),
        pods: HashMap::new(),
        panicked: Retries::new(RESTART),
        listed: (Duration::ZERO, Vec::new()),
        orphans: Orphans::default(),
        is_read: false,
    };
    runner.run(lists).await;
}

impl Runner {
    async fn run(mut self, mut lists: mpsc::Receiver<Listed>) {
        // Nothing is decided before it is known what runs already, and which node this is.
        let Some(first) = lists.recv().await else { return };
        self.listed = first;
        let _ = self.room.clone().wait_for(|room| !room.name.is_empty()).await;
        let options = &self.shared.options;
        let config = watcher::Config::default().fields(&format!("spec.nodeName={}", options.node));
        let mut pods = watcher(Api::<Pod>::all(options.client.clone()), config).default_backoff().boxed();
        let mut at_first: Vec<Pod> = Vec::new();
        let mut prune = tokio::time::interval(PRUNE_EVERY);
        loop {
            let looks_again = async {
                if self.orphans.is_empty() {
                    std::future::pending::<()>().await;
                }
                tokio::time::sleep(orphans::LOOK_AGAIN).await;
            };
            let next_restart = self.panicked.next();
            let restarts = async {
                match next_restart {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                event = pods.next() => match event {
                    None => return,
                    Some(Ok(watcher::Event::Init)) => at_first.clear(),
                    Some(Ok(watcher::Event::InitApply(pod))) => at_first.push(pod),
                    Some(Ok(watcher::Event::InitDone)) => self.take_all(std::mem::take(&mut at_first)).await,
                    Some(Ok(watcher::Event::Apply(pod))) => self.take(pod).await,
                    Some(Ok(watcher::Event::Delete(pod))) => self.lose(Arc::new(pod)),
                    Some(Err(error)) => tracing::warn!(%error, "cannot watch the node's pods"),
                },
                Some(listed) = lists.recv() => {
                    self.listed = listed;
                    self.tell();
                    self.end_orphans();
                }
                Some(ended) = self.workers.join_next_with_id() => match ended {
                    Ok((id, ())) => self.worker_ended(id),
                    Err(error) => self.worker_panicked(error.id()),
                },
                () = restarts => self.restart_workers(),
                () = looks_again => self.end_orphans(),
                _ = prune.tick() => {
                    let (data, known) = (self.shared.options.data_dir.clone(), self.entries.keys().cloned().collect());
                    tasks::spawn_blocking("prune-logs", move || logs::prune(&data, &known));
                }
            }
        }
    }

    /// All pods there are: whoever is not among them is gone.
    async fn take_all(&mut self, mut pods: Vec<Pod>) {
        let there: BTreeSet<String> = pods.iter().map(|pod| spec::uid(pod).to_owned()).collect();
        let gone: Vec<Arc<Pod>> =
            self.entries.iter().filter(|(uid, _)| !there.contains(*uid)).map(|(_, entry)| entry.pod.clone()).collect();
        for pod in gone {
            self.lose(pod);
        }
        // Who was first comes first, also when there is no room for all.
        pods.sort_by(|a, b| a.metadata.creation_timestamp.cmp(&b.metadata.creation_timestamp));
        for pod in pods {
            self.take(pod).await;
        }
        if !self.is_read {
            self.is_read = true;
            self.clean();
            self.end_orphans();
        }
    }

    async fn take(&mut self, mut pod: Pod) {
        // Nobody here reads it, and it is a large part of the object.
        pod.metadata.managed_fields = None;
        let (pod, uid) = (Arc::new(pod.clone()), spec::uid(&pod).to_owned());
        if let Some(entry) = self.entries.get_mut(&uid) {
            entry.pod = pod.clone();
            entry.inbox.put(|news| news.pod = Some(pod));
            return;
        }
        let containers = self.containers_of(&uid);
        let refusal = if containers.is_empty() && is_active(&pod) { self.check(&pod).await.err() } else { None };
        if let Some(refusal) = &refusal {
            tracing::info!(pod = spec::name(&pod), reason = refusal.reason, "a pod was refused");
            let reason = known_reason(&refusal.reason);
            let note = Note { is_warning: true, container: None, reason, message: refusal.message.clone() };
            self.shared.recorder.of_pod(&pod, note);
        }
        let (inbox, requests) = (Arc::new(Inbox::default()), resources::requests(&pod));
        let told = (self.listed.0, containers);
        self.entries.insert(uid.clone(), Entry { inbox, pod, requests, told, refusal, is_gone: false });
        self.start_worker(uid);
    }

    /// Starts a worker for an entry. It learns what runs of the pod already, as after a restart of the process.
    fn start_worker(&mut self, uid: String) {
        let told = (self.listed.0, self.containers_of(&uid));
        let Some(entry) = self.entries.get_mut(&uid) else { return };
        entry.told = told.clone();
        entry.inbox.put(|news| {
            news.containers = Some(told);
            news.refusal.clone_from(&entry.refusal);
            news.is_gone = entry.is_gone;
        });
        let (namespace, name) = (spec::namespace(&entry.pod).to_owned(), spec::name(&entry.pod).to_owned());
        let worker = Worker::new(self.shared.clone(), entry.inbox.clone(), entry.pod.clone());
        let span = tracing::info_span!("pod", namespace, name);
        let worker = self.workers.spawn(tasks::watched("pod-worker", worker.run().instrument(span)));
        self.pods.insert(worker.id(), uid);
    }

    fn worker_ended(&mut self, id: Id) {
        if let Some(uid) = self.pods.remove(&id) {
            self.entries.remove(&uid);
            self.panicked.succeeded(&uid);
        }
    }

    /// The containers of the pod go on. The next worker finds them.
    fn worker_panicked(&mut self, id: Id) {
        let Some(uid) = self.pods.remove(&id) else { return };
        let now = Instant::now();
        self.panicked.forget_older(MAX_RESTART_WAIT, now);
        let wait = self.panicked.failed(uid.clone(), now).as_secs_f32();
        tracing::error!(uid, "the worker of a pod panicked; the pod gets another one in {wait} s");
    }

    fn restart_workers(&mut self) {
        for uid in self.panicked.take(Instant::now()) {
            self.start_worker(uid);
        }
    }

    async fn check(&mut self, pod: &Pod) -> Result<(), Refusal> {
        let others: Vec<&BTreeMap<String, i64>> =
            self.entries.values().filter(|entry| !has_ended(&entry.pod)).map(|entry| &entry.requests).collect();
        let room = self.room.borrow().clone();
        let refused = match admit::admit(pod, &others, &room) {
            Err(refusal) if refusal.reason == "NodeAffinity" => refusal,
            other => return other,
        };
        // Somebody may have labelled the node a moment ago.
        let options = &self.shared.options;
        match node::look_again(&options.client, &options.node, &self.machine).await {
            Some(room) => admit::admit(pod, &others, &room),
            None => Err(refused),
        }
    }

    fn lose(&mut self, pod: Arc<Pod>) {
        if let Some(entry) = self.entries.get_mut(spec::uid(&pod)) {
            entry.pod = pod.clone();
            entry.is_gone = true;
            entry.inbox.put(|news| {
                news.pod = Some(pod);
                news.is_gone = true;
            });
        }
    }

    fn containers_of(&self, uid: &str) -> Vec<Container> {
        self.listed.1.iter().filter(|container| container.id.pod == uid).cloned().collect()
    }

    /// Tells every worker what the runtime has of its pod, if that is news.
    fn tell(&mut self) {
        let asked = self.listed.0;
        let mut by_pod: BTreeMap<&str, Vec<&Container>> = BTreeMap::new();
        for container in &self.listed.1 {
            by_pod.entry(&container.id.pod).or_default().push(container);
        }
        for (uid, entry) in &mut self.entries {
            let now = by_pod.remove(uid.as_str()).unwrap_or_default();
            let is_same =
                now.len() == entry.told.1.len() && now.iter().zip(&entry.told.1).all(|(now, told)| *now == told);
            if is_same && asked < entry.told.0 + TELL_AGAIN {
                continue;
            }
            entry.told = (asked, now.into_iter().cloned().collect());
            let told = entry.told.clone();
            entry.inbox.put(|news| news.containers = Some(told));
        }
    }

    fn end_orphans(&mut self) {
        if !self.is_read {
            return;
        }
        let known: BTreeSet<String> = self.entries.keys().cloned().collect();
        for deed in self.orphans.decide(&self.listed.1, &known, self.shared.clock.mono()) {
            let options = &self.shared.options;
            tasks::spawn_short("orphan", orphans::act(options.runtime.clone(), options.data_dir.clone(), deed));
        }
    }

    /// Directories of pods that nobody knows any more.
    fn clean(&self) {
        let known: BTreeSet<String> = self
            .entries
            .keys()
            .cloned()
            .chain(self.listed.1.iter().map(|container| container.id.pod.clone()))
            .collect();
        let data = self.shared.options.data_dir.clone();
        tasks::spawn_blocking("prune-pods", move || {
            for entry in std::fs::read_dir(data.join("pods")).into_iter().flatten().flatten() {
                if let Some(uid) = entry.file_name().to_str().filter(|name| !known.contains(*name)) {
                    files::remove(&data, uid);
                }
            }
        });
    }
}

fn has_ended(pod: &Pod) -> bool {
    spec::is_terminal(spec::phase(pod))
}

/// Whether a pod is to be run.
fn is_active(pod: &Pod) -> bool {
    !has_ended(pod) && pod.metadata.deletion_timestamp.is_none()
}

/// Events have reasons that are known at compile time.
fn known_reason(reason: &str) -> &'static str {
    match reason {
        "OutOfcpu" => "OutOfcpu",
        "OutOfmemory" => "OutOfmemory",
        "OutOfpods" => "OutOfpods",
        "NodeAffinity" => "NodeAffinity",
        _ => "OutOfResource",
    }
}
