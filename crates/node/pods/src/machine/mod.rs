//! What a pod needs next: a state machine without I/O. It is told facts and the time, and says what to do and what to report.
//!
//! Every action is said once, and answered by a fact. A machine does nothing before it has heard what the runtime has of its pod.

mod anew;
mod backoff;
mod cell;
mod conditions;
mod killing;
mod phase;
mod plan;
mod probing;
mod status;

#[cfg(test)]
mod model;
#[cfg(test)]
mod story;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, net::IpAddr, sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodCondition};

use self::{
    cell::{Cell, Stage, Waiting},
    killing::Killing,
    probing::Heard,
};
pub use self::{
    conditions::OWN as OWN_CONDITIONS,
    probing::{Miss, ProbeKind},
    status::whole_seconds,
};
use crate::{
    runtime::{self, ContainerId, Failure, NEVER_BEGAN},
    spec::{self, Role},
};

/// The time, twice: one that only goes forward to wait by, and the one to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    pub mono: Duration,
    pub wall: Timestamp,
}

/// What does not change as long as the agent runs.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The node's address.
    pub host: IpAddr,
    /// How the runtime's containers are told from others': `process`.
    pub scheme: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hook {
    PostStart,
    PreStop,
}

/// Something that the machine is told.
#[derive(Clone, Debug)]
pub enum Fact {
    /// The object as the API has it.
    Pod(Arc<Pod>),
    /// The API has it no more.
    Gone,
    /// All that the runtime has of this pod, as it said when asked at that time.
    Containers {
        asked: Duration,
        containers: Vec<runtime::Container>,
    },
    Address(Result<Option<IpAddr>, Failure>),
    /// Volumes are filled, or why not.
    Volumes(Result<(), String>),
    /// A ConfigMap, a Secret or the like is different.
    Sources,
    Image {
        container: String,
        result: Result<(), Failure>,
    },
    Started {
        container: String,
        result: Result<runtime::Container, Failure>,
    },
    Hooked {
        id: ContainerId,
        hook: Hook,
        result: Result<(), String>,
    },
    Probed {
        id: ContainerId,
        probe: ProbeKind,
        result: Result<(), Miss>,
    },
    /// The node does not take it.
    Rejected {
        reason: String,
        message: String,
    },
}

/// Something to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Address,
    Volumes,
    Image {
        container: String,
    },
    Start {
        id: ContainerId,
    },
    Hook {
        id: ContainerId,
        hook: Hook,
        within: Duration,
    },
    Probe {
        id: ContainerId,
        probe: ProbeKind,
    },
    Signal {
        id: ContainerId,
        signal: i32,
    },
    Forget {
        id: ContainerId,
    },
    Record(Note),
    /// Take the object out of the API, once its last status is written.
    Delete,
    /// Nothing of the pod is needed any more, and the machine has nothing to do.
    End,
}

/// An Event to record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    pub is_warning: bool,
    pub container: Option<String>,
    pub reason: &'static str,
    pub message: String,
}

/// Something that is needed once before containers start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Step<T> {
    #[default]
    Todo,
    UnderWay,
    Done(T),
    /// Not before that time again.
    Failed(Duration, String),
}

/// The whole pod has to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stop {
    since: Duration,
    deadline: Duration,
}

pub struct Machine {
    setting: Arc<Setting>,
    pod: Arc<Pod>,
    cells: Vec<Cell>,
    has_seen_runtime: bool,
    address: Step<Option<IpAddr>>,
    volumes: Step<()>,
    stop: Option<Stop>,
    /// Why it failed as a whole.
    verdict: Option<(String, String)>,
    is_gone: bool,
    is_deleted: bool,
    is_ended: bool,
    phase: String,
    start_time: Option<Timestamp>,
    /// As last reported, for when they last changed.
    conditions: Vec<PodCondition>,
    notes: Vec<Note>,
    wake: Option<Duration>,
}

impl Machine {
    pub fn new(setting: Arc<Setting>, pod: Arc<Pod>) -> Self {
        let old = pod.status.clone().unwrap_or_default();
        let mut machine = Self {
            setting,
            cells: Vec::new(),
            has_seen_runtime: false,
            address: Step::Todo,
            volumes: Step::Todo,
            stop: None,
            verdict: None,
            is_gone: false,
            is_deleted: false,
            is_ended: false,
            phase: old.phase.unwrap_or_else(|| "Pending".to_owned()),
            start_time: old.start_time.map(|time| time.0),
            conditions: old.conditions.unwrap_or_default(),
            notes: Vec::new(),
            wake: None,
            pod,
        };
        machine.take_containers();
        machine
    }

    /// When to plan again at the latest.
    pub fn wake(&self) -> Option<Duration> {
        self.wake
    }

    /// Whether it knows what the runtime has of its pod: before that there is nothing to report.
    pub fn is_informed(&self) -> bool {
        self.has_seen_runtime
    }

    /// Whether nothing of the pod runs, nor will again.
    pub fn is_over(&self) -> bool {
        self.is_finished()
    }

    pub fn pod(&self) -> &Arc<Pod> {
        &self.pod
    }

    /// Its own address, once it is known.
    pub fn address(&self) -> Option<IpAddr> {
        match &self.address {
            Step::Done(address) => *address,
            _ => None,
        }
    }

    /// The current and the previous run of each container, init containers first.
    pub fn runs(&self) -> impl Iterator<Item = (&str, Role, Option<&runtime::Container>, Option<&runtime::Container>)> {
        self.cells.iter().map(|cell| (&*cell.name, cell.role, cell.current.as_ref(), cell.previous.as_ref()))
    }

    pub fn hear(&mut self, fact: Fact, now: Now) {
        match fact {
            Fact::Pod(pod) => {
                self.pod = pod;
                self.take_containers();
            }
            Fact::Gone => self.is_gone = true,
            Fact::Containers { asked, containers } => self.see(containers, asked, now),
            Fact::Address(result) => {
                if let Err(failure) = &result {
                    let message = format!("Failed to create pod sandbox: {}", failure.message);
                    self.note(true, None, "FailedCreatePodSandBox", message);
                }
                self.address = step(result.map_err(|failure| failure.message), now);
            }
            Fact::Volumes(result) => {
                if let Err(message) = &result {
                    self.note(true, None, "FailedMount", message.clone());
                }
                self.volumes = step(result, now);
            }
            Fact::Sources => self.try_again(now),
            Fact::Image { container, result } => self.image_is(&container, result, now),
            Fact::Started { container, result } => self.has_started(&container, result, now),
            Fact::Hooked { id, hook, result } => self.has_hooked(&id, hook, result, now),
            Fact::Probed { id, probe, result } => self.has_probed(&id, probe, result, now),
            Fact::Rejected { reason, message } => self.verdict = Some((reason, message)),
        }
    }

    /// Containers that were not there before: at the beginning all, later ephemeral ones.
    fn take_containers(&mut self) {
        let status = self.pod.status.as_ref();
        let mut old: BTreeMap<&str, &ContainerStatus> = BTreeMap::new();
        if let Some(status) = status {
            let lists =
                [&status.init_container_statuses, &status.container_statuses, &status.ephemeral_container_statuses];
            old.extend(lists.into_iter().flatten().flatten().map(|status| (status.name.as_str(), status)));
        }
        let Some(spec) = &self.pod.spec else { return };
        let mut index = BTreeMap::<u8, usize>::new();
        for (role, container) in spec::containers(spec) {
            let list = match role {
                Role::Init | Role::Sidecar => 0,
                Role::Main => 1,
                Role::Ephemeral => 2,
            };
            let index = index.entry(list).or_default();
            if self.cells.iter().all(|cell| cell.name != container.name) {
                let old = old.get(&*container.name).map(|status| (*status).clone());
                self.cells.push(Cell::new(&container.name, role, *index, old));
            }
            *index += 1;
        }
    }

    fn see(&mut self, containers: Vec<runtime::Container>, asked: Duration, now: Now) {
        self.has_seen_runtime = true;
        let mut by_name: BTreeMap<String, Vec<runtime::Container>> = BTreeMap::new();
        for container in containers {
            by_name.entry(container.id.name.clone()).or_default().push(container);
        }
        for cell in &mut self.cells {
            cell.see(by_name.remove(&cell.name).unwrap_or_default(), asked, &self.pod, now);
        }
    }

    fn cell(&mut self, name: &str) -> Option<&mut Cell> {
        self.cells.iter_mut().find(|cell| cell.name == name)
    }

    /// The container whose run this is, if it still is.
    fn cell_of(&mut self, id: &ContainerId) -> Option<&mut Cell> {
        self.cells.iter_mut().find(|cell| cell.id() == Some(id) && cell.is_running())
    }

    fn note(&mut self, is_warning: bool, container: Option<&str>, reason: &'static str, message: impl Into<String>) {
        // Who plans takes them; a bound in case nobody does.
        if self.notes.len() < 100 {
            let container = container.map(str::to_owned);
            self.notes.push(Note { is_warning, container, reason, message: message.into() });
        }
    }

    /// What waits because of an object that was not there, or was wrong, may work now.
    fn try_again(&mut self, now: Now) {
        if let Step::Failed(at, _) = &mut self.volumes {
            *at = now.mono;
        }
        for cell in &mut self.cells {
            if cell.waiting.as_ref().is_some_and(|waiting| waiting.reason == "CreateContainerConfigError") {
                cell.not_before = now.mono;
            }
        }
    }

    fn image_is(&mut self, container: &str, result: Result<(), Failure>, now: Now) {
        let pod = self.pod.clone();
        let Some(cell) = self.cell(container).filter(|cell| cell.stage == Stage::Pulling) else { return };
        let spec = cell.spec(&pod);
        let image = spec.as_ref().and_then(|spec| spec.image.clone()).unwrap_or_default();
        let is_never = spec.is_some_and(|spec| spec.image_pull_policy.as_deref() == Some("Never"));
        let failure = match result {
            Ok(()) => {
                cell.stage = Stage::Pulled;
                cell.pulls.reset();
                cell.pull_wait_at = None;
                let message =
                    format!("Container image {image:?} already present on machine and can be accessed by the pod");
                return self.note(false, Some(container), "Pulled", message);
            }
            // Who does not want it to be pulled is not told why it could not be.
            Err(failure) if is_never && failure.reason == "ErrImagePull" => Failure {
                reason: "ErrImageNeverPull",
                message: format!("Container image {image:?} is not present with pull policy of Never"),
            },
            Err(failure) => failure,
        };
        cell.stage = Stage::Idle;
        cell.pulls.tried(now.mono, now.mono);
        cell.not_before = cell.pulls.until(now.mono);
        cell.pull_wait_at = Some(now.mono + plan::PULL_WAIT_SHOWN).filter(|_| failure.reason == "ErrImagePull");
        cell.waiting = Some(Waiting { reason: failure.reason.to_owned(), message: failure.message.clone() });
        let (reason, message) = match failure.reason {
            "ErrImagePull" => ("Failed", format!("Failed to pull image {image:?}: {}", failure.message)),
            "ErrImageNeverPull" => ("ErrImageNeverPull", failure.message),
            _ => ("Failed", format!("Failed to apply default image tag {image:?}: {}", failure.message)),
        };
        self.note(true, Some(container), reason, message);
        self.note(true, Some(container), "Failed", format!("Error: {}", failure.reason));
    }

    fn has_started(&mut self, container: &str, result: Result<runtime::Container, Failure>, now: Now) {
        let pod = self.pod.clone();
        let Some(cell) = self.cell(container).filter(|cell| cell.stage == Stage::Starting) else { return };
        match result {
            Ok(run) => {
                // A list may have told already that it runs, or even that it ended.
                let is_known = cell.current.as_ref().is_some_and(|known| known.id == run.id);
                if !is_known {
                    cell.begin(&pod, run, now);
                }
                let has_hook = cell.is_running() && hook_of(cell, &pod, Hook::PostStart);
                cell.stage = match (cell.is_running(), has_hook) {
                    (false, _) => Stage::Idle,
                    (true, true) => Stage::Fresh,
                    (true, false) => Stage::Up,
                };
                cell.waiting = None;
                self.note(false, Some(container), "Created", "Container created");
                self.note(false, Some(container), "Started", "Container started");
            }
            Err(failure) if failure.reason == NEVER_BEGAN => {
                cell.stage = Stage::Idle;
                cell.never_began(spec::uid(&pod), &pod, failure.message.clone(), now);
                let said = format!("Error: {}", failure.message);
                cell.waiting = Some(Waiting { reason: "RunContainerError".to_owned(), message: failure.message });
                self.note(true, Some(container), "Failed", said);
            }
            Err(failure) => {
                cell.stage = Stage::Idle;
                if failure.reason == "CreateContainerConfigError" {
                    cell.not_before = now.mono + plan::RETRY;
                } else {
                    cell.restarts.tried(now.mono, now.mono);
                    cell.not_before = cell.restarts.until(now.mono);
                    cell.is_counted = true;
                }
                cell.waiting = Some(Waiting { reason: failure.reason.to_owned(), message: failure.message.clone() });
                self.note(true, Some(container), "Failed", format!("Error: {}", failure.message));
            }
        }
    }

    fn has_hooked(&mut self, id: &ContainerId, hook: Hook, result: Result<(), String>, now: Now) {
        let (pod, grace) = (self.pod.clone(), spec::grace(&self.pod));
        let Some(cell) = self.cell_of(id) else { return };
        match (hook, &result) {
            (Hook::PreStop, _) => {
                if let Some(killing) = &mut cell.killing {
                    killing.hook_ended();
                }
            }
            (Hook::PostStart, Ok(())) if cell.stage == Stage::Hooking => cell.stage = Stage::Up,
            (Hook::PostStart, Err(message)) if cell.stage == Stage::Hooking => {
                cell.stage = Stage::Up;
                cell.waiting = Some(Waiting { reason: "PostStartHookError".into(), message: message.clone() });
                let has_hook = hook_of(cell, &pod, Hook::PreStop);
                cell.killing.get_or_insert_with(|| Killing::new(now.mono, grace, has_hook));
                self.note(false, Some(&id.name), "Killing", "FailedPostStartHook");
            }
            (Hook::PostStart, _) => return,
        }
        if let Err(message) = result {
            let (reason, what) = match hook {
                Hook::PreStop => ("FailedPreStopHook", "PreStopHook failed"),
                Hook::PostStart => ("FailedPostStartHook", "PostStartHook failed"),
            };
            self.note(true, Some(&id.name), reason, format!("{what}: {message}"));
        }
    }

    fn has_probed(&mut self, id: &ContainerId, kind: ProbeKind, result: Result<(), Miss>, now: Now) {
        let pod = self.pod.clone();
        let is_stopping = self.stop.is_some();
        let Some(cell) = self.cell_of(id) else { return };
        let spec = cell.spec(&pod);
        let Some(probe) = spec.as_deref().and_then(|container| kind.of(container)) else { return };
        let Some(probing) = &mut cell.probes[kind as usize] else { return };
        let said = match result {
            Err(Miss::Errored(why)) => {
                probing.pass(probe, now.mono);
                let message = format!("{} probe errored and resulted in unknown state: {why}", kind.name());
                return self.note(true, Some(&id.name), "Unhealthy", message);
            }
            Err(Miss::Failed(why)) => Some(why),
            Ok(()) => None,
        };
        let heard = probing.hear(probe, kind, said.is_none(), now.mono);
        let has_failed = probing.known == Some(false);
        if let Some(why) = said.filter(|_| heard == Heard::Counted) {
            self.note(true, Some(&id.name), "Unhealthy", format!("{} probe failed: {why}", kind.name()));
        }
        if kind == ProbeKind::Readiness || !has_failed || is_stopping {
            return;
        }
        let own =
            probe.termination_grace_period_seconds.map(|seconds| Duration::from_secs(seconds.max(1).unsigned_abs()));
        let grace = own.unwrap_or_else(|| spec::grace(&pod));
        let what = if kind == ProbeKind::Startup { "startup" } else { "liveness" };
        self.kill(id, grace, format!("Container {} failed {what} probe, will be restarted", id.name), now);
    }

    /// Ends one run, unless that is under way.
    fn kill(&mut self, id: &ContainerId, grace: Duration, why: String, now: Now) {
        let pod = self.pod.clone();
        let Some(cell) = self.cell_of(id).filter(|cell| cell.killing.is_none()) else { return };
        let has_hook = hook_of(cell, &pod, Hook::PreStop);
        cell.killing = Some(Killing::new(now.mono, grace, has_hook));
        self.note(false, Some(&id.name), "Killing", why);
    }
}

fn step<T>(result: Result<T, String>, now: Now) -> Step<T> {
    match result {
        Ok(value) => Step::Done(value),
        Err(message) => Step::Failed(now.mono + plan::RETRY, message),
    }
}

/// Whether the container has such a hook.
fn hook_of(cell: &Cell, pod: &Pod, hook: Hook) -> bool {
    let spec = cell.spec(pod);
    let lifecycle = spec.as_deref().and_then(|container| container.lifecycle.as_ref());
    lifecycle.is_some_and(|lifecycle| match hook {
        Hook::PostStart => lifecycle.post_start.is_some(),
        Hook::PreStop => lifecycle.pre_stop.is_some(),
    })
}
