//! `runtime: cluster`: what the center sent is applied to a whole Kubernetes cluster, and what becomes of it there is shown here.
//!
//! The edge keeps its own store and API as always: everything from the center lands there first, and stays while the cluster is away.
//! What is to be done at the cluster is decided by a state machine without I/O ([`plan`]); this module carries it out.

mod answer;
mod follow;
mod found;
mod inward;
mod local;
mod order;
mod outward;
mod plan;
mod remote;
mod requests;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use cache::{ChangeKind, Observer};
use kinds::{EdgeId, ObjectKey};
use link::{Key, Millis};
use server::Server;
use tokio::{
    sync::{Notify, mpsc, watch},
    task::JoinHandle,
};

use crate::{
    Agent,
    book::{CLUSTER, HELD},
    show,
};
use follow::Followed;
use found::{Found, Mark};
use inward::Shown;
use plan::{Action, Outcome, Planner};
use remote::Remote;
use requests::Requests;

pub use remote::Way;

/// Who hears of the cluster's events waits while so many are not worked on.
const WAITING: usize = 64;
/// After so long without an answer everything begins anew, with credentials read anew.
const BEGIN_ANEW: Duration = Duration::from_secs(30);
/// Credentials that cannot be read are read again after so long.
const UNREADABLE: Duration = Duration::from_secs(5);
/// The ConfigMap in `kube-system` of the edge that says how it stands with the cluster.
const NAME: &str = "selvedge-cluster";

/// Something happened at the cluster.
enum Event {
    Listed {
        collection: String,
        found: Vec<(Key, Found, Shown)>,
    },
    Unlisted {
        collection: String,
        served: bool,
        reason: String,
    },
    Seen {
        key: Key,
        found: Found,
        shown: Shown,
    },
    Unseen {
        key: Key,
        found: Found,
    },
    /// A watch does not get through at the moment.
    Failing(String),
    Done {
        key: Key,
        done: requests::Done,
    },
}

pub struct Cluster {
    way: Way,
    agent: Arc<Agent>,
    /// Objects of the center's that have changed here.
    changed: Mutex<BTreeSet<Key>>,
    wake: Notify,
}

impl Cluster {
    pub fn new(way: Way, agent: Arc<Agent>) -> Arc<Self> {
        Arc::new(Self { way, agent, changed: Mutex::default(), wake: Notify::new() })
    }

    /// For the server that this works for, after the agent's own.
    pub fn observer(self: &Arc<Self>) -> Observer {
        let cluster = self.clone();
        Box::new(move |collection, change| {
            let object = &change.object;
            let key = match collection {
                HELD => Key::from(&*object.key),
                own if own.starts_with("edge.selvedge.dev/_") => return,
                _ => {
                    let local = object.key.strip_prefix(CLUSTER).and_then(|rest| rest.strip_prefix('/'));
                    let Some(local) = local.filter(|_| change.kind != ChangeKind::Deleted) else { return };
                    let key = format!("{collection}/{local}");
                    if !cluster.agent.holds(&key) {
                        return;
                    }
                    key.into()
                }
            };
            cluster.changed.lock().unwrap_or_else(PoisonError::into_inner).insert(key);
            cluster.wake.notify_one();
        })
    }

    fn take_changed(&self) -> BTreeSet<Key> {
        std::mem::take(&mut *self.changed.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Keeps the cluster as the center wants it, until `stop`.
    pub async fn run(self: Arc<Self>, server: Arc<Server>, edge: EdgeId, mut stop: watch::Receiver<bool>) {
        let mut state = State::default();
        loop {
            let wait = match Remote::open(&self.way).await {
                Ok(remote) => {
                    let mut work = Work::new(&self, &server, &edge, remote, &mut state);
                    tokio::select! {
                        () = work.run() => {}
                        _ = stop.wait_for(|stop| *stop) => {}
                    }
                    work.end();
                    Duration::ZERO
                }
                Err(error) => {
                    state.show(&server, "", "Away", &error).await;
                    UNREADABLE
                }
            };
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
            if *stop.borrow() {
                return;
            }
        }
    }
}

/// How it stands, as it was last shown.
#[derive(Default)]
struct State {
    state: &'static str,
    message: String,
    since: String,
}

impl State {
    async fn show(&mut self, server: &Arc<Server>, url: &str, state: &'static str, message: &str) {
        if self.state == state && self.message == message {
            return;
        }
        if self.state != state {
            self.since = clock::now();
            match state {
                "Away" => tracing::warn!(cluster = url, error = message, "the cluster is away; trying again"),
                _ => tracing::info!(cluster = url, "the cluster answers"),
            }
        }
        (self.state, self.message) = (state, message.to_owned());
        show::put(server, NAME, &[("state", state), ("message", message), ("server", url), ("since", &self.since)])
            .await;
    }
}

/// One go at it: from reading the credentials until they have to be read again.
struct Work<'a> {
    cluster: &'a Cluster,
    server: &'a Arc<Server>,
    edge: Arc<str>,
    remote: Remote,
    requests: Requests,
    state: &'a mut State,
    planner: Planner,
    started: Instant,
    watches: BTreeMap<String, JoinHandle<()>>,
    events: mpsc::Sender<Event>,
    inbox: mpsc::Receiver<Event>,
    /// Since when nothing gets through.
    failing: Option<Instant>,
}

impl<'a> Work<'a> {
    fn new(cluster: &'a Cluster, server: &'a Arc<Server>, edge: &EdgeId, remote: Remote, state: &'a mut State) -> Self {
        let (events, inbox) = mpsc::channel(WAITING);
        let requests = Requests { server: server.clone(), remote: remote.clone(), edge: edge.clone() };
        Self {
            cluster,
            server,
            edge: edge.to_string().into(),
            remote,
            requests,
            state,
            planner: Planner::default(),
            started: Instant::now(),
            watches: BTreeMap::new(),
            events,
            inbox,
            failing: None,
        }
    }

    fn end(&mut self) {
        self.watches.values().for_each(JoinHandle::abort);
    }

    fn now(&self) -> Millis {
        self.started.elapsed().as_millis() as Millis
    }

    async fn run(&mut self) {
        // What changed before is found here as well.
        self.cluster.take_changed();
        for (key, record) in local::records(self.server) {
            self.planner.remember(&key, record);
        }
        let held = self.server.cache.snapshot(HELD);
        for object in held.items.range("", "") {
            self.want(&Key::from(&*object.key));
        }
        drop(held);
        loop {
            for key in self.cluster.take_changed() {
                self.want(&key);
            }
            for action in self.planner.next(self.now()) {
                self.carry_out(action).await;
            }
            if self.failing.is_some_and(|since| since.elapsed() > BEGIN_ANEW) {
                return;
            }
            let wake = self.planner.wake_at().map(|at| Duration::from_millis(at.saturating_sub(self.now())));
            // Something is looked at now and then even if nobody says anything.
            let wake = wake.unwrap_or(BEGIN_ANEW).min(BEGIN_ANEW);
            tokio::select! {
                () = self.cluster.wake.notified() => {}
                () = tokio::time::sleep(wake) => {}
                event = self.inbox.recv() => match event {
                    Some(event) => self.happened(event).await,
                    None => return,
                },
            }
        }
    }

    fn want(&mut self, key: &Key) {
        let wanted = local::outward_of(self.server, key).map(|(_, wanted)| wanted);
        self.planner.want(key, wanted);
    }

    async fn carry_out(&mut self, action: Action) {
        let (key, request) = match action {
            Action::Watch { collection, api_version, kind } => {
                let what = Followed { collection: collection.clone(), api_version, kind, edge: self.edge.clone() };
                let following = tokio::spawn(follow::follow(self.remote.client(), what, self.events.clone()));
                if let Some(former) = self.watches.insert(collection, following) {
                    former.abort();
                }
                return;
            }
            Action::Unwatch { collection } => {
                if let Some(former) = self.watches.remove(&collection) {
                    former.abort();
                }
                return;
            }
            Action::Say { key, refused } => {
                if let Some(reason) = &refused {
                    tracing::warn!(%key, reason, "the cluster does not take an object");
                }
                let noted =
                    local::change(self.server, &key, |value| inward::note(value, refused.as_deref(), None)).await;
                return self.written(&key, noted);
            }
            Action::Look { key } => (key, requests::What::Look),
            Action::Apply { key, adopted, known, uid } => (key, requests::What::Apply { adopted, known, uid }),
            Action::Delete { key, uid, version } => (key, requests::What::Delete { uid, version }),
            Action::Release { key, uid } => (key, requests::What::Release { uid }),
            Action::Forget { key } => (key, requests::What::Forget),
        };
        let (requests, events) = (self.requests.clone(), self.events.clone());
        let record = self.planner.record(&key).cloned();
        tokio::spawn(async move {
            let done = requests.carry_out(&key, record, request).await;
            // Whoever asked may have begun anew.
            let _ = events.send(Event::Done { key, done }).await;
        });
    }

    async fn happened(&mut self, event: Event) {
        match event {
            Event::Failing(reason) => return self.away(&reason).await,
            Event::Done { key, done } => {
                let now = self.now();
                if let (Outcome::Away, Some(reason)) = (&done.outcome, &done.why) {
                    self.away(reason).await;
                    return self.planner.done(&key, now, done.outcome);
                }
                self.planner.done(&key, now, done.outcome);
                if let Some(shown) = done.shown {
                    self.reflect(&key, &shown, Some(done.overruled.as_deref())).await;
                }
            }
            Event::Listed { collection, found } => {
                let mut shown = Vec::new();
                let mut all = Vec::new();
                for (key, found, state) in found {
                    if matches!(found.mark, Mark::Ours { .. }) {
                        shown.push((key.clone(), state));
                    }
                    all.push((key, found));
                }
                self.planner.listed(&collection, all);
                for (key, state) in shown {
                    self.reflect(&key, &state, None).await;
                }
            }
            Event::Unlisted { collection, served, reason } => {
                let now = self.now();
                self.planner.unlisted(&collection, now, served, reason);
            }
            Event::Seen { key, found, shown } => {
                let ours = matches!(found.mark, Mark::Ours { .. });
                self.planner.seen(&key, found);
                if ours {
                    self.reflect(&key, &shown, None).await;
                }
            }
            Event::Unseen { key, found } => self.planner.unseen(&key, &found),
        }
        self.failing = None;
        let url = self.remote.server.clone();
        self.state.show(self.server, &url, "Online", "").await;
    }

    async fn away(&mut self, reason: &str) {
        self.failing.get_or_insert_with(Instant::now);
        let url = self.remote.server.clone();
        self.state.show(self.server, &url, "Away", reason).await;
    }

    /// What the cluster shows is shown here.
    async fn reflect(&self, key: &Key, shown: &Shown, overruled: Option<Option<&str>>) {
        let Some(parsed) = ObjectKey::parse(key) else { return };
        let (refused, in_place) = (self.planner.refused(key), self.planner.is_in_place(key));
        let written = local::change(self.server, key, |value| {
            let noted = inward::note(value, refused, overruled);
            inward::reflect(parsed.collection, value, shown, in_place) || noted
        });
        self.written(key, written.await);
    }

    fn written(&self, key: &Key, written: Result<(), store::Error>) {
        if let Err(error) = written {
            tracing::warn!(%key, %error, "what the cluster says of an object cannot be written down here");
        }
    }
}
