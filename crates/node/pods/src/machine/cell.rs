//! One container of a pod: its runs, what is being done about it, and why it waits.

use std::{borrow::Cow, path::PathBuf, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod};

use super::{
    Now,
    backoff::Backoff,
    killing::Killing,
    probing::{ProbeKind, Probing},
};
use crate::{
    runtime::{self, ContainerId, Exit},
    spec::{self, Role},
};

/// What is under way. Only one thing is at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stage {
    #[default]
    Idle,
    Pulling,
    /// Its image is there.
    Pulled,
    Starting,
    /// Runs, but its postStart hook has not begun.
    Fresh,
    /// Runs, but its postStart hook has not ended.
    Hooking,
    Up,
}

/// Why a container is not started, as its status shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    pub reason: String,
    pub message: String,
}

#[derive(Debug)]
pub struct Cell {
    pub name: String,
    pub role: Role,
    /// Among those of its list in the spec.
    index: usize,
    /// The run that goes on, or the last one, as the runtime tells.
    pub current: Option<runtime::Container>,
    pub previous: Option<runtime::Container>,
    /// What the API said when the runner first saw the pod.
    pub old: Option<ContainerStatus>,
    pub stage: Stage,
    pub waiting: Option<Waiting>,
    /// What failed is not tried before.
    pub not_before: Duration,
    pub restarts: Backoff,
    pub pulls: Backoff,
    /// When a failed pull is shown as a wait.
    pub pull_wait_at: Option<Duration>,
    /// When its last run was seen to have begun, and to have ended.
    pub begun: Duration,
    pub ended: Duration,
    /// Its last end has been counted as a reason to wait longer the next time.
    pub is_counted: bool,
    /// Runs that nobody needs: those that have ended, and those that should not be there at all.
    pub forgettable: Vec<ContainerId>,
    pub strays: Vec<ContainerId>,
    forgotten: u32,
    pub probes: [Option<Probing>; 3],
    pub killing: Option<Killing>,
    /// It was started once, so what comes after it need not wait any more.
    pub was_started: bool,
    /// Runs before this one are from before the pod began anew.
    floor: u32,
}

impl Cell {
    pub fn new(name: &str, role: Role, index: usize, old: Option<ContainerStatus>) -> Self {
        Self {
            name: name.to_owned(),
            role,
            index,
            current: None,
            previous: None,
            old,
            stage: Stage::Idle,
            waiting: None,
            not_before: Duration::ZERO,
            restarts: Backoff::default(),
            pulls: Backoff::default(),
            pull_wait_at: None,
            begun: Duration::ZERO,
            ended: Duration::ZERO,
            is_counted: false,
            forgettable: Vec::new(),
            strays: Vec::new(),
            forgotten: 0,
            probes: [None; 3],
            killing: None,
            was_started: false,
            floor: 0,
        }
    }

    pub fn spec<'a>(&self, pod: &'a Pod) -> Option<Cow<'a, Container>> {
        let spec = pod.spec.as_ref()?;
        match self.role {
            Role::Main => spec.containers.get(self.index).map(Cow::Borrowed),
            Role::Init | Role::Sidecar => spec.init_containers.as_ref()?.get(self.index).map(Cow::Borrowed),
            Role::Ephemeral => spec::container(pod, &self.name),
        }
    }

    pub fn is_running(&self) -> bool {
        self.current.as_ref().is_some_and(|run| run.exit.is_none())
    }

    /// Whether something is under way that may make it run.
    pub fn is_starting(&self) -> bool {
        matches!(self.stage, Stage::Pulling | Stage::Pulled | Stage::Starting)
    }

    /// Whether its hook after the start is still to come, or not over.
    pub fn is_hooking(&self) -> bool {
        matches!(self.stage, Stage::Fresh | Stage::Hooking)
    }

    pub fn exit(&self) -> Option<&Exit> {
        self.current.as_ref().and_then(|run| run.exit.as_ref())
    }

    pub fn id(&self) -> Option<&ContainerId> {
        self.current.as_ref().map(|run| &run.id)
    }

    /// The number of the next run.
    pub fn next_attempt(&self) -> u32 {
        match &self.current {
            Some(run) => run.id.attempt.saturating_add(1),
            None => self.attempts_before().max(self.floor),
        }
    }

    /// Runs that the API knows of and the runtime does not.
    pub fn attempts_before(&self) -> u32 {
        let Some(old) = &self.old else { return 0 };
        let state = old.state.as_ref();
        // What waits for its next run and has an id of one has had it, though the runtime may never have known of it.
        let has_run = old.container_id.is_some()
            || state.is_some_and(|state| state.running.is_some() || state.terminated.is_some());
        u32::try_from(old.restart_count).unwrap_or_default() + u32::from(has_run)
    }

    fn probing(&self, kind: ProbeKind) -> Option<&Probing> {
        self.probes[kind as usize].as_ref()
    }

    pub fn is_started(&self) -> bool {
        let is_known = |probing: &Probing| probing.known == Some(true);
        self.is_running() && self.stage == Stage::Up && self.probing(ProbeKind::Startup).is_none_or(is_known)
    }

    pub fn is_ready(&self) -> bool {
        if self.role == Role::Init {
            return self.exit().is_some_and(|exit| exit.code == 0);
        }
        let is_known = |probing: &Probing| probing.known == Some(true);
        self.is_started() && self.probing(ProbeKind::Readiness).is_none_or(is_known)
    }

    /// Takes what the runtime said, when it was asked at that time, that it has of this container.
    pub fn see(&mut self, mut runs: Vec<runtime::Container>, asked: Duration, pod: &Pod, now: Now) {
        runs.sort_by_key(|run| run.id.attempt);
        let known = self.current.as_ref().map(|run| run.id.attempt);
        if runs.last().map(|run| run.id.attempt) < known {
            // Either the answer is older than the run, or the runtime has lost it.
            if self.is_running() && asked > self.begun && !self.is_starting() {
                self.lose(now);
            }
            return;
        }
        if runs.last().is_some_and(|run| run.id.attempt < self.floor) {
            self.previous = runs.pop().filter(|run| run.exit.is_some()).or(self.previous.take());
            return self.forget(runs);
        }
        let Some(current) = runs.pop() else { return };
        let is_new = known != Some(current.id.attempt);
        let had_ended = !is_new && self.exit().is_some();
        if is_new {
            // Found, not started by us: whoever started it before has run its hooks.
            self.begin(pod, current.clone(), now);
            if self.stage != Stage::Starting {
                self.stage = Stage::Up;
            }
            self.remember();
        }
        self.strays = runs.iter().filter(|run| run.exit.is_none()).map(|run| run.id.clone()).collect();
        // Of what never began the runtime knows nothing.
        let own = self.previous.take().filter(|run| run.exit.as_ref().is_some_and(|exit| exit.never_began));
        let listed = runs.pop().filter(|run| run.exit.is_some());
        self.previous = [listed, own].into_iter().flatten().max_by_key(|run| run.id.attempt);
        self.forget(runs);
        // What has ended does not come back; an answer from before the end may say so.
        if had_ended {
            return;
        }
        let ended = current.exit.as_ref().map(|exit| exit.finished_at.parse::<Timestamp>().ok());
        self.current = Some(current);
        if let Some(ended) = ended {
            self.end(ended.map_or(now.mono, |ended| now.mono.saturating_sub(since(ended, now))));
        }
    }

    fn forget(&mut self, runs: Vec<runtime::Container>) {
        for run in runs {
            if run.exit.is_some() && run.id.attempt >= self.forgotten {
                self.forgotten = run.id.attempt + 1;
                self.forgettable.push(run.id);
            }
        }
    }

    /// As if it had never run, but for how often it did.
    pub fn begin_anew(&mut self) {
        self.floor = self.next_attempt();
        self.previous = self.current.take().or(self.previous.take());
        self.waiting = None;
        self.restarts.reset();
        self.was_started = false;
    }

    /// The runtime does not know of the run any more: how it ended, nobody knows.
    fn lose(&mut self, now: Now) {
        if let Some(run) = &mut self.current {
            let (finished_at, message) = (now.wall.to_string(), LOST.to_owned());
            run.exit = Some(Exit { code: 137, finished_at, message, ..Exit::default() });
        }
        self.end(now.mono);
    }

    /// A run has begun.
    pub fn begin(&mut self, pod: &Pod, run: runtime::Container, now: Now) {
        let age = run.started_at.parse::<Timestamp>().map_or(Duration::ZERO, |started| since(started, now));
        let started = now.mono.saturating_sub(age);
        let spec = self.spec(pod);
        let has_probes = matches!(self.role, Role::Main | Role::Sidecar);
        for kind in ProbeKind::ALL {
            let probe = spec.as_deref().and_then(|container| kind.of(container)).filter(|_| has_probes);
            self.probes[kind as usize] = probe.map(|probe| Probing::new(probe, started));
        }
        if self.current.as_ref().is_some_and(|known| known.id != run.id) {
            self.previous = self.current.take();
        }
        self.current = Some(run);
        self.begun = now.mono;
        self.is_counted = false;
        self.waiting = None;
        self.killing = None;
    }

    /// What was to be its next run is one that ended before it began.
    pub fn never_began(&mut self, uid: &str, pod: &Pod, message: String, now: Now) {
        let time = now.wall.to_string();
        let finished_at = time.clone();
        let exit = Exit { code: NOT_STARTED, finished_at, message, never_began: true, ..Exit::default() };
        let id = ContainerId { pod: uid.to_owned(), name: self.name.clone(), attempt: self.next_attempt() };
        let image = self.spec(pod).and_then(|container| container.image.clone()).unwrap_or_default();
        let run = runtime::Container { id, image, log: PathBuf::new(), started_at: time, exit: Some(exit) };
        self.begin(pod, run, now);
        self.end(now.mono);
    }

    /// A run has ended.
    fn end(&mut self, at: Duration) {
        self.ended = at;
        self.killing = None;
        self.probes = [None; 3];
        // A start that is under way is of the next run, or will hear of the end itself.
        if !self.is_starting() {
            self.stage = Stage::Idle;
        }
    }

    /// An agent that comes back finds what its probes had found: nothing is unready because the agent was away.
    fn remember(&mut self) {
        let Some(old) = &self.old else { return };
        let id = self.current.as_ref().map(|run| attempt_suffix(&run.id));
        let is_same = old.container_id.as_deref().zip(id).is_some_and(|(old, id)| old.ends_with(&id));
        if !is_same {
            return;
        }
        let (started, ready) = (old.started == Some(true), old.ready);
        for (kind, was) in [(ProbeKind::Startup, started), (ProbeKind::Readiness, ready)] {
            if let Some(probing) = self.probes[kind as usize].as_mut().filter(|_| was) {
                probing.known = Some(true);
            }
        }
    }
}

/// As runtimes of containers have it for what could not be started.
const NOT_STARTED: i32 = 128;

/// As a kubelet says it of a container that is not there any more.
pub const LOST: &str = "The container could not be located when the pod was terminated";

/// How a run is named in `containerID`, after the runtime's scheme.
pub fn attempt_suffix(id: &ContainerId) -> String {
    format!("{}/{}/{}", id.pod, id.name, id.attempt)
}

fn since(then: Timestamp, now: Now) -> Duration {
    Duration::try_from(now.wall.duration_since(then)).unwrap_or_default()
}
