//! The runner: one watch of the node's pods, a worker for each, and what the runtime has of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client,
    runtime::{WatchStreamExt, watcher},
};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
};

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
/// What a worker knows is told again after a while, in case something was lost without a trace.
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

/// A pod that has a worker.
struct Entry {
    inbox: Arc<Inbox>,
    pod: Arc<Pod>,
    requests: BTreeMap<String, i64>,
    told: (Duration, Vec<Container>),
}

struct Runner {
    shared: Arc<Shared>,
    machine: node::Machine,
    room: watch::Receiver<Room>,
    entries: BTreeMap<String, Entry>,
    workers: JoinSet<String>,
    listed: Listed,
    orphans: Orphans,
    /// The API has said once which pods there are: what belongs to none of them is nobody's.
    is_read: bool,
}

/// Runs the node's pods until told to stop. What runs goes on without it, and is found again.
pub async fn run(options: Options, mut stop: watch::Receiver<bool>) {
    tokio::select! {
        () = run_all(options) => {}
        _ = stop.wait_for(|stop| *stop) => {}
    }
}

async fn run_all(options: Options) {
    for dir in ["pods", "logs"] {
        if let Err(error) = tokio::fs::create_dir_all(options.data_dir.join(dir)).await {
            tracing::error!(%error, path = %options.data_dir.join(dir).display(), "cannot make a directory for pods");
        }
    }
    let clock = Clock::new();
    let version = options.runtime.version();
    let machine = node::Machine::look(&options.data_dir, &version, options.max_pods);
    let recorder = Recorder::start(options.client.clone(), options.node.clone());
    let (tell_room, room) = watch::channel(Room::default());
    let catalog = Arc::new(Catalog::new(options.api));
    let scheme = version.split_once("://").map_or(version.as_str(), |(scheme, _)| scheme).to_owned();
    let shared = Arc::new(Shared {
        clock,
        setting: Arc::new(Setting { host: options.address, scheme }),
        sources: Sources::new(options.client.clone()),
        catalog: catalog.clone(),
        recorder: recorder.clone(),
        allocatable: machine.capacity.clone(),
        environment: options.environment.clone().into(),
        options: options.clone(),
    });
    let (tell, lists) = mpsc::channel(1);
    let mut aside = JoinSet::new();
    aside.spawn(node::keep(options.clone(), machine.clone(), recorder, tell_room));
    let client = options.client.clone();
    aside.spawn(async move { catalog.follow(client).await });
    aside.spawn(lister::list(options.runtime.clone(), clock, tell));
    let runner = Runner {
        shared,
        machine,
        room,
        entries: BTreeMap::new(),
        workers: JoinSet::new(),
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
                Some(ended) = self.workers.join_next() => match ended {
                    Ok(uid) => _ = self.entries.remove(&uid),
                    Err(error) => tracing::error!(%error, "a pod's worker broke off; its containers are left alone"),
                },
                () = looks_again => self.end_orphans(),
                _ = prune.tick() => {
                    let (data, known) = (self.shared.options.data_dir.clone(), self.entries.keys().cloned().collect());
                    tokio::task::spawn_blocking(move || logs::prune(&data, &known));
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
        let inbox = Arc::new(Inbox::default());
        let told = (self.listed.0, containers);
        inbox.put(|news| {
            news.containers = Some(told.clone());
            news.refusal = refusal;
        });
        let worker = Worker::new(self.shared.clone(), inbox.clone(), pod.clone());
        let requests = resources::requests(&pod);
        self.entries.insert(uid.clone(), Entry { inbox, pod, requests, told });
        self.workers.spawn(async move {
            worker.run().await;
            uid
        });
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
            tokio::spawn(orphans::act(options.runtime.clone(), options.data_dir.clone(), deed));
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
        tokio::task::spawn_blocking(move || {
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
