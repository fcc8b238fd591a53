//! One pod's worker: does what the machine says, tells it what came of that, and reports.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc, time::Duration};

use futures::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use tokio::sync::Mutex;

use super::{
    claims,
    clock::Clock,
    events::Recorder,
    files,
    inbox::Inbox,
    logs, messages, probe,
    report::{self, Written},
    run::Options,
    services::Catalog,
    sources::{self, Source, Sources},
    start::Start,
    tokens::Held,
};
use crate::{
    downward::Place,
    handle::{Known, KnownContainer, Run},
    machine::{Action, Fact, Hook, Machine, Note, ProbeKind, Setting},
    referred::{self, Ref},
    resources::Amounts,
    runtime::{Container, ContainerId, Failure},
    spec::{self, Role},
    volumes::Claims,
};

/// A runtime that does not answer is as good as one that says no.
const PATIENCE: Duration = Duration::from_secs(60);
const RETRY: Duration = Duration::from_secs(2);
/// How often volumes that must not grow beyond a size are looked at, as a kubelet does.
const MEASURE: Duration = Duration::from_secs(10);
/// Most pods run a moment after they came: that they do not yet is not worth a write.
const A_MOMENT: Duration = Duration::from_millis(100);

/// What all workers share.
pub struct Shared {
    pub options: Options,
    pub clock: Clock,
    pub setting: Arc<Setting>,
    pub sources: Sources,
    pub catalog: Arc<Catalog>,
    pub recorder: Recorder,
    pub allocatable: Amounts,
    pub environment: Arc<[(String, String)]>,
}

/// What came of something.
enum Done {
    Heard(Fact),
    /// Volumes and where those of claims are, with when a token of them has to be renewed.
    Filled(Result<Arc<Claims>, String>, Option<Duration>),
    Reported(Box<PodStatus>, Written),
    Deleted(Written),
    /// Whether a volume has become too large: what to say of it.
    Measured(Option<String>),
    Nothing,
}

pub struct Worker {
    shared: Arc<Shared>,
    inbox: Arc<Inbox>,
    machine: Machine,
    doing: FuturesUnordered<BoxFuture<'static, Done>>,
    used: BTreeMap<Ref, Arc<Source>>,
    tokens: Arc<Mutex<Held>>,
    claims: Arc<Claims>,
    is_filled: bool,
    is_filling: bool,
    has_to_fill: bool,
    renew_at: Option<Duration>,
    reported: Option<PodStatus>,
    is_reporting: bool,
    has_to_delete: bool,
    /// After something could not be written.
    not_before: Duration,
    has_ended: bool,
    /// When it came.
    since: Duration,
    /// When to look how large its volumes are, if that matters.
    measure_at: Option<Duration>,
}

impl Worker {
    pub fn new(shared: Arc<Shared>, inbox: Arc<Inbox>, pod: Arc<Pod>) -> Self {
        let machine = Machine::new(shared.setting.clone(), pod.clone());
        let since = shared.clock.mono();
        Self {
            shared,
            inbox,
            machine,
            doing: FuturesUnordered::new(),
            used: BTreeMap::new(),
            tokens: Arc::default(),
            claims: Arc::default(),
            is_filled: false,
            is_filling: false,
            has_to_fill: false,
            renew_at: None,
            reported: pod.status.clone(),
            is_reporting: false,
            has_to_delete: false,
            not_before: Duration::ZERO,
            has_ended: false,
            since,
            measure_at: files::limited(&pod).next().map(|_| since + MEASURE),
        }
    }

    /// Until nothing of the pod is left.
    pub async fn run(mut self) {
        let mut changes = self.shared.sources.changes();
        self.take_news();
        loop {
            let now = self.shared.clock.now();
            for action in self.machine.plan(now) {
                self.act(action);
            }
            self.refresh(now.mono);
            self.measure(now.mono);
            if self.machine.is_over() {
                self.used.clear();
            }
            self.report();
            self.publish();
            if self.has_ended {
                break;
            }
            let wake = self.wake().map(|wake| self.shared.clock.instant(wake));
            let asleep = async {
                match wake {
                    Some(wake) => tokio::time::sleep_until(wake).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.inbox.arrived() => self.take_news(),
                Some(done) = self.doing.next(), if !self.doing.is_empty() => self.hear(done),
                Ok(()) = changes.changed() => {
                    self.machine.hear(Fact::Sources, self.shared.clock.now());
                    self.has_to_fill |= self.is_filled && !self.used.is_empty();
                }
                () = asleep => {}
            }
        }
        self.clean().await;
    }

    fn wake(&self) -> Option<Duration> {
        let again = (self.has_to_delete || self.is_behind()).then_some(self.not_before);
        let moment = Some(self.since + A_MOMENT).filter(|at| *at > self.shared.clock.mono());
        let again = again.filter(|_| !self.is_reporting);
        [self.machine.wake(), self.renew_at, self.measure_at, again, moment].into_iter().flatten().min()
    }

    fn is_behind(&self) -> bool {
        self.not_before > self.shared.clock.mono()
    }

    fn take_news(&mut self) {
        let news = self.inbox.take();
        let now = self.shared.clock.now();
        if let Some(pod) = news.pod {
            let before = self.machine.pod().clone();
            let is_told = |pod: &Pod| (pod.metadata.labels.clone(), pod.metadata.annotations.clone());
            self.has_to_fill |= self.is_filled && is_told(&before) != is_told(&pod);
            self.machine.hear(Fact::Pod(pod), now);
        }
        if let Some(refusal) = news.refusal {
            let (reason, message) = (refusal.reason, refusal.message);
            self.machine.hear(Fact::Rejected { reason, message }, now);
        }
        if let Some((asked, mut containers)) = news.containers {
            let dir = files::dir(&self.shared.options.data_dir, spec::uid(self.machine.pod()));
            for container in &mut containers {
                messages::fill(&dir, self.machine.pod(), container);
            }
            self.machine.hear(Fact::Containers { asked, containers }, now);
        }
        if news.is_gone {
            self.machine.hear(Fact::Gone, now);
            // Nobody can write to it any more.
            self.has_to_delete = false;
        }
    }

    fn hear(&mut self, done: Done) {
        let now = self.shared.clock.now();
        match done {
            Done::Heard(fact) => self.machine.hear(fact, now),
            Done::Filled(result, renew_at) => {
                self.is_filling = false;
                self.renew_at = renew_at;
                let is_first = !self.is_filled;
                self.is_filled |= result.is_ok();
                let result = result.map(|claims| self.claims = claims);
                match (is_first, result) {
                    (true, result) => self.machine.hear(Fact::Volumes(result), now),
                    (false, Err(message)) => {
                        let note = Note { is_warning: true, container: None, reason: "FailedMount", message };
                        self.shared.recorder.of_pod(self.machine.pod(), note);
                    }
                    (false, Ok(())) => {}
                }
            }
            Done::Reported(status, written) => {
                self.is_reporting = false;
                match written {
                    Written::Done | Written::Gone => self.reported = Some(*status),
                    Written::Failed => self.not_before = now.mono + RETRY,
                }
            }
            Done::Deleted(written) => {
                self.is_reporting = false;
                self.has_to_delete = written == Written::Failed;
                self.not_before = now.mono + RETRY;
            }
            Done::Measured(None) => self.measure_at = Some(now.mono + MEASURE),
            Done::Measured(Some(message)) => {
                let note = Note { is_warning: true, container: None, reason: "Evicted", message: message.clone() };
                self.shared.recorder.of_pod(self.machine.pod(), note);
                self.machine.hear(Fact::Rejected { reason: "Evicted".to_owned(), message }, now);
            }
            Done::Nothing => {}
        }
    }

    /// A pod whose directory grows beyond what it said ends, before it takes others' room.
    fn measure(&mut self, now: Duration) {
        if self.machine.is_over() {
            self.measure_at = None;
        }
        if self.measure_at.is_none_or(|at| now < at) {
            return;
        }
        self.measure_at = None;
        let pod = self.machine.pod().clone();
        let dir = files::dir(&self.shared.options.data_dir, spec::uid(&pod));
        self.start_step(async move {
            let measured = tasks::spawn_blocking("pod-usage", move || files::too_large(&dir, &pod)).await;
            Done::Measured(measured.unwrap_or_default())
        });
    }

    fn place(&self) -> Place {
        Place {
            host: self.shared.options.address,
            address: self.machine.address(),
            allocatable: self.shared.allocatable.clone(),
        }
    }

    fn target(&self) -> IpAddr {
        self.machine.address().unwrap_or(self.shared.options.address)
    }

    fn act(&mut self, action: Action) {
        let runtime = self.shared.options.runtime.clone();
        let pod = self.machine.pod().clone();
        match action {
            Action::Address => {
                let uid = spec::uid(&pod).to_owned();
                self.start_step(async move { Done::Heard(Fact::Address(patiently(runtime.address(&uid)).await)) });
            }
            Action::Volumes => self.fill(),
            Action::Image { container } => {
                let image = spec::container(&pod, &container).and_then(|container| container.image.clone());
                self.start_step(async move {
                    let result = patiently(runtime.image(&image.unwrap_or_default())).await;
                    Done::Heard(Fact::Image { container, result })
                });
            }
            Action::Start { id } => self.start(id),
            Action::Hook { id, hook, within } => {
                let container = spec::container(&pod, &id.name).map(std::borrow::Cow::into_owned);
                let lifecycle = container.as_ref().and_then(|container| container.lifecycle.clone());
                let handler = lifecycle.and_then(|lifecycle| match hook {
                    Hook::PostStart => lifecycle.post_start,
                    Hook::PreStop => lifecycle.pre_stop,
                });
                let target = self.target();
                self.start_step(async move {
                    let result = match (handler, container) {
                        (Some(handler), Some(container)) => {
                            probe::hook(runtime, id.clone(), handler, container, target, within).await
                        }
                        _ => Ok(()),
                    };
                    Done::Heard(Fact::Hooked { id, hook, result })
                });
            }
            Action::Probe { id, probe } => self.probe(id, probe, &pod),
            Action::Signal { id, signal } => self.start_step(async move {
                if let Err(failure) = patiently(runtime.signal(&id, signal)).await {
                    tracing::debug!(%failure, ?id, signal, "a signal did not arrive");
                }
                Done::Nothing
            }),
            Action::Forget { id } => {
                let log = logs::of(&self.shared.options.data_dir, &pod, &id);
                self.start_step(async move {
                    let _ = patiently(runtime.forget(&id)).await;
                    logs::forget(&log);
                    Done::Nothing
                });
            }
            Action::Record(note) => self.shared.recorder.of_pod(&pod, note),
            Action::Delete => self.has_to_delete = true,
            Action::End => self.has_ended = true,
        }
    }

    /// Runs something beside the worker. Its end is heard as a [`Done`].
    fn start_step(&mut self, doing: impl Future<Output = Done> + Send + 'static) {
        self.doing.push(Box::pin(doing));
    }

    fn probe(&mut self, id: ContainerId, kind: ProbeKind, pod: &Pod) {
        let container = spec::container(pod, &id.name).map(std::borrow::Cow::into_owned);
        let asked = container.as_ref().and_then(|container| kind.of(container).cloned());
        let (runtime, target) = (self.shared.options.runtime.clone(), self.target());
        self.start_step(async move {
            let result = match (asked, container) {
                (Some(asked), Some(container)) => probe::probe(runtime, id.clone(), asked, container, target).await,
                _ => Ok(()),
            };
            Done::Heard(Fact::Probed { id, probe: kind, result })
        });
    }

    /// Fills the volumes, for the first time or because something of them is different.
    fn fill(&mut self) {
        let pod = self.machine.pod().clone();
        self.shared.sources.follow(spec::namespace(&pod), referred::of(&pod), &mut self.used);
        let used = self.used.clone();
        let (shared, tokens, place) = (self.shared.clone(), self.tokens.clone(), self.place());
        self.is_filling = true;
        self.has_to_fill = false;
        self.renew_at = None;
        let of_volumes = referred::of_volumes(&pod);
        let used: BTreeMap<_, _> = used.into_iter().filter(|(used, _)| of_volumes.contains(used)).collect();
        let known = self.is_filled.then(|| self.claims.clone());
        let has_readers = self.has_readers();
        self.start_step(async move {
            let mut tokens = tokens.lock().await;
            let filling = async {
                let referred = sources::read(&used).await?;
                let tokens = tokens.get(&shared.options.client, &pod, shared.clock.mono()).await?;
                let dir = files::dir(&shared.options.data_dir, spec::uid(&pod));
                let claims = match known {
                    Some(known) => known,
                    None => Arc::new(claims::find(&shared.options.client, &pod).await?),
                };
                let (pod, claims) = (pod.clone(), claims);
                let filling = files::Filling { dir, pod, referred, tokens, claims: claims.clone(), place, has_readers };
                filling.fill().await.map(|warnings| (claims, warnings))
            };
            let result = filling.await.map(|(claims, warnings)| {
                for message in warnings {
                    let note = Note { is_warning: true, container: None, reason: "NotSupported", message };
                    shared.recorder.of_pod(&pod, note);
                }
                claims
            });
            Done::Filled(result, tokens.due())
        });
    }

    /// Whether a container of the pod runs.
    fn has_readers(&self) -> bool {
        self.machine.runs().any(|(_, _, current, _)| current.is_some_and(|run| run.exit.is_none()))
    }

    /// Volumes follow what they are made of as long as somebody may read them.
    fn refresh(&mut self, now: Duration) {
        let is_due = self.renew_at.is_some_and(|at| now >= at);
        let has_readers = self.has_readers();
        if is_due && !has_readers {
            self.renew_at = None;
        }
        if self.is_filled && !self.is_filling && (self.has_to_fill || is_due) && has_readers {
            self.fill();
        }
    }

    fn start(&mut self, id: ContainerId) {
        let shared = self.shared.clone();
        let pod = self.machine.pod().clone();
        // An ephemeral container may refer to more than the pod did at first.
        shared.sources.follow(spec::namespace(&pod), referred::of(&pod), &mut self.used);
        let start = Start {
            data: shared.options.data_dir.clone(),
            pod: pod.clone(),
            id: id.clone(),
            used: self.used.clone(),
            claims: self.claims.clone(),
            catalog: shared.catalog.clone(),
            place: self.place(),
            environment: shared.environment.clone(),
            resolver: shared.options.resolver,
        };
        self.start_step(async move {
            let runtime = &shared.options.runtime;
            let starting = async {
                let (spec, warnings) = start.spec().await?;
                if id.attempt == 0 {
                    for message in warnings {
                        let note = Note { is_warning: true, container: None, reason: "DNSConfigForming", message };
                        shared.recorder.of_pod(&pod, note);
                    }
                    for message in runtime.shortcomings(&spec) {
                        let container = Some(id.name.clone());
                        let note = Note { is_warning: true, container, reason: "NotSupported", message };
                        shared.recorder.of_pod(&pod, note);
                    }
                }
                patiently(runtime.start(spec)).await
            };
            Done::Heard(Fact::Started { result: starting.await, container: id.name })
        });
    }

    /// Writes the status if it is different, and takes the object away once its last status is written. One at a time.
    fn report(&mut self) {
        let now = self.shared.clock.now();
        if !self.machine.is_informed() {
            return;
        }
        let status = self.machine.status(now);
        if self.is_reporting || now.mono < self.not_before || self.has_ended {
            return;
        }
        let is_new = now.mono < self.since + A_MOMENT && !self.doing.is_empty();
        if is_new && status.phase.as_deref() == Some("Pending") {
            return;
        }
        let (client, pod) = (self.shared.options.client.clone(), self.machine.pod().clone());
        if self.reported.as_ref() != Some(&status) {
            self.is_reporting = true;
            self.start_step(async move {
                let written = report::write(client, &pod, &status).await;
                Done::Reported(Box::new(status), written)
            });
        } else if self.has_to_delete {
            self.is_reporting = true;
            self.start_step(async move { Done::Deleted(report::delete(client, &pod).await) });
        }
    }

    /// Shows the pod to whoever looks for it.
    fn publish(&self) {
        let pod = self.machine.pod();
        let data = &self.shared.options.data_dir;
        let run = |run: &Container| Run {
            id: run.id.clone(),
            log: logs::of(data, pod, &run.id),
            is_running: run.exit.is_none(),
            started_at: run.started_at.clone(),
        };
        let containers = self.machine.runs().map(|(name, role, current, previous)| KnownContainer {
            name: name.to_owned(),
            is_init: matches!(role, Role::Init | Role::Sidecar),
            current: current.map(run),
            previous: previous.map(run),
        });
        self.shared.options.pods.set(Known {
            uid: spec::uid(pod).to_owned(),
            namespace: spec::namespace(pod).to_owned(),
            name: spec::name(pod).to_owned(),
            address: self.machine.address(),
            pod: pod.clone(),
            containers: containers.collect(),
        });
    }

    /// Nothing of it stays but its logs, for a while.
    async fn clean(self) {
        let runtime = &self.shared.options.runtime;
        let uid = spec::uid(self.machine.pod());
        self.shared.options.pods.remove(uid);
        for (_, _, current, previous) in self.machine.runs() {
            for run in [current, previous].into_iter().flatten() {
                let _ = patiently(runtime.forget(&run.id)).await;
            }
        }
        let _ = patiently(runtime.forget_pod(uid)).await;
        let (data, uid) = (self.shared.options.data_dir.clone(), uid.to_owned());
        let _ = tasks::spawn_blocking("remove-pod-files", move || files::remove(&data, &uid)).await;
    }
}

async fn patiently<T>(asked: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::time::timeout(PATIENCE, asked).await.unwrap_or_else(|_| {
        let message = format!("the runtime did not answer within {} seconds", PATIENCE.as_secs());
        Err(Failure { reason: "RunContainerError", message })
    })
}
