//! A pod, a runtime that does what it is told at once, and a clock that is set by hand: what stories of pods are told with.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ContainerStatus, PodStatus};
use serde_json::{Value, json};

use super::*;
use crate::runtime::{Container, Exit};

/// A pod, a runtime that does what it is told at once, and a clock that is set by hand.
pub struct Story {
    pub machine: Machine,
    pub now: Now,
    pub containers: BTreeMap<(String, u32), Container>,
    /// Images that are not there.
    pub missing: Vec<&'static str>,
    pub refuses: Option<Failure>,
    pub volumes: Result<(), String>,
    /// Why the runtime cannot prepare the pod, if it cannot.
    pub unprepared: Option<&'static str>,
    /// What was done, in short words.
    pub done: Vec<String>,
    /// Hooks and probes that nobody has answered.
    pub open: Vec<Action>,
}

pub fn pod(spec: Value) -> Arc<Pod> {
    let pod = json!({"metadata": {"name": "web", "namespace": "shop", "uid": "u", "generation": 1}, "spec": spec});
    Arc::new(serde_json::from_value(pod).unwrap())
}

impl Story {
    pub fn new(spec: Value) -> Self {
        Self::of(pod(spec))
    }

    pub fn of(pod: Arc<Pod>) -> Self {
        let setting = Setting { host: "10.0.0.1".parse().unwrap(), scheme: "process".into() };
        let mut story = Self {
            machine: Machine::new(Arc::new(setting), pod),
            now: Now { mono: Duration::from_secs(100_000), wall: "2026-01-01T00:00:00Z".parse().unwrap() },
            containers: BTreeMap::new(),
            missing: Vec::new(),
            refuses: None,
            volumes: Ok(()),
            unprepared: None,
            done: Vec::new(),
            open: Vec::new(),
        };
        story.list();
        story
    }

    /// Until nothing is left to do.
    pub fn go(&mut self) -> &mut Self {
        for _ in 0..100 {
            let actions = self.machine.plan(self.now);
            let is_due = self.machine.wake().is_some_and(|wake| wake <= self.now.mono);
            if actions.is_empty() && !is_due {
                return self;
            }
            for action in actions {
                self.act(action);
            }
            self.machine.status(self.now);
        }
        panic!("it never rests: {:?}", self.done);
    }

    fn act(&mut self, action: Action) {
        match action.clone() {
            Action::Address => {
                let failure = |message: &str| Failure { reason: "RuntimeUnavailable", message: message.into() };
                let address = self.unprepared.map_or(Ok("127.1.0.5".parse().ok()), |why| Err(failure(why)));
                self.machine.hear(Fact::Address(address), self.now);
            }
            Action::Volumes => self.machine.hear(Fact::Volumes(self.volumes.clone()), self.now),
            Action::Image { container } => {
                let spec = spec::container(self.machine.pod(), &container).unwrap();
                let is_there = !self.missing.contains(&spec.image.as_deref().unwrap_or_default());
                let failure = Failure { reason: "ErrImagePull", message: "no such image".into() };
                let result = if is_there { Ok(()) } else { Err(failure) };
                self.machine.hear(Fact::Image { container, result }, self.now);
            }
            Action::Start { id } => {
                self.done.push(format!("start {}#{}", id.name, id.attempt));
                let name = id.name.clone();
                if let Some(failure) = self.refuses.clone() {
                    self.machine.hear(Fact::Started { container: name, result: Err(failure) }, self.now);
                    return;
                }
                assert!(
                    self.containers.values().all(|known| known.id.name != id.name || known.exit.is_some()),
                    "two runs of {name}"
                );
                let spec = spec::container(self.machine.pod(), &name).unwrap();
                let container = Container {
                    id: id.clone(),
                    image: spec.image.clone().unwrap_or_default(),
                    log: "log".into(),
                    started_at: self.now.wall.to_string(),
                    exit: None,
                };
                self.containers.insert((name.clone(), id.attempt), container.clone());
                self.machine.hear(Fact::Started { container: name, result: Ok(container) }, self.now);
            }
            Action::Hook { id, hook, .. } => {
                self.done.push(format!("{hook:?} {}", id.name));
                self.open.push(action);
            }
            Action::Probe { .. } => self.open.push(action),
            Action::Signal { id, signal } => {
                self.done.push(format!("signal {signal} {}", id.name));
                if signal == 9 {
                    self.end(&id.name, 137);
                }
            }
            Action::Forget { id } => {
                self.done.push(format!("forget {}#{}", id.name, id.attempt));
                self.containers.remove(&(id.name, id.attempt));
            }
            Action::Record(note) => self.done.push(format!("event {}: {}", note.reason, note.message)),
            Action::Delete => self.done.push("delete".into()),
            Action::End => self.done.push("end".into()),
        }
    }

    pub fn list(&mut self) {
        let containers = self.containers.values().cloned().collect();
        self.machine.hear(Fact::Containers { asked: self.now.mono, containers }, self.now);
    }

    /// The running run of a container ends.
    pub fn end(&mut self, name: &str, code: i32) -> &mut Self {
        let finished_at = self.now.wall.to_string();
        let running = self.containers.values_mut().find(|known| known.id.name == name && known.exit.is_none());
        running.unwrap_or_else(|| panic!("{name} does not run")).exit =
            Some(Exit { code, finished_at, ..Exit::default() });
        self.list();
        self.go()
    }

    /// Time passes, second by second.
    pub fn wait(&mut self, seconds: u64) -> &mut Self {
        for _ in 0..seconds {
            self.now.mono += Duration::from_secs(1);
            self.now.wall += Duration::from_secs(1);
            self.go();
        }
        self
    }

    pub fn change(&mut self, change: impl FnOnce(&mut Pod)) -> &mut Self {
        let mut pod = (**self.machine.pod()).clone();
        pod.status = Some(self.machine.status(self.now));
        change(&mut pod);
        self.machine.hear(Fact::Pod(Arc::new(pod)), self.now);
        self.go()
    }

    pub fn delete(&mut self, seconds: i64) -> &mut Self {
        self.change(|pod| {
            pod.metadata.deletion_timestamp =
                Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(Timestamp::UNIX_EPOCH));
            pod.metadata.deletion_grace_period_seconds = Some(seconds);
        })
    }

    /// Answers all hooks and probes of a container.
    pub fn answer(&mut self, name: &str, result: Result<(), &str>) -> &mut Self {
        for action in std::mem::take(&mut self.open) {
            match action {
                Action::Hook { id, hook, .. } if id.name == name => {
                    let result = result.map_err(str::to_owned);
                    self.machine.hear(Fact::Hooked { id, hook, result }, self.now);
                }
                Action::Probe { id, probe } if id.name == name => {
                    let result = result.map_err(|why| match why.strip_prefix("cannot ask: ") {
                        Some(why) => Miss::Errored(why.to_owned()),
                        None => Miss::Failed(why.to_owned()),
                    });
                    self.machine.hear(Fact::Probed { id, probe, result }, self.now);
                }
                other => self.open.push(other),
            }
        }
        self.go()
    }

    pub fn status(&mut self) -> PodStatus {
        self.machine.status(self.now)
    }

    pub fn phase(&mut self) -> String {
        self.status().phase.unwrap()
    }

    pub fn container(&mut self, name: &str) -> ContainerStatus {
        let status = self.status();
        let lists = [status.init_container_statuses, status.container_statuses, status.ephemeral_container_statuses];
        lists.into_iter().flatten().flatten().find(|status| status.name == name).unwrap()
    }

    /// `Waiting ContainerCreating`, `Running`, `Terminated Completed 0`.
    pub fn state(&mut self, name: &str) -> String {
        let state = self.container(name).state.unwrap();
        match (state.waiting, state.running, state.terminated) {
            (Some(waiting), _, _) => format!("Waiting {}", waiting.reason.unwrap()),
            (_, Some(_), _) => "Running".into(),
            (_, _, Some(ended)) => format!("Terminated {} {}", ended.reason.unwrap(), ended.exit_code),
            _ => "nothing".into(),
        }
    }

    /// `True`, or `False` with its reason and message.
    pub fn condition(&mut self, name: &str) -> String {
        let conditions = self.status().conditions.unwrap();
        let found = conditions.iter().find(|condition| condition.type_ == name).unwrap();
        let rest = [&found.reason, &found.message].into_iter().flatten().cloned().collect::<Vec<_>>().join(": ");
        format!("{} {rest}", found.status).trim().to_owned()
    }

    /// What was done since asked last, without Events.
    pub fn done(&mut self) -> Vec<String> {
        std::mem::take(&mut self.done).into_iter().filter(|done| !done.starts_with("event ")).collect()
    }

    pub fn events(&self) -> Vec<&str> {
        self.done.iter().filter_map(|done| done.strip_prefix("event ")).collect()
    }
}
