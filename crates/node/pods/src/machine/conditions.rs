//! A pod's conditions, in a kubelet's words.

use k8s_openapi::{
    api::core::v1::{ContainerStatus, PodCondition, PodSpec},
    apimachinery::pkg::apis::meta::v1::Time,
};

use super::{Machine, Now};
use crate::spec::{self, Role};

/// Those that the runner says. All others are somebody else's, and are left as they are.
pub const OWN: [&str; 7] = [
    "PodReadyToStartContainers",
    "Initialized",
    "Ready",
    "ContainersReady",
    "PodScheduled",
    "AllContainersRestarting",
    "PodResizePending",
];

struct Said {
    is: bool,
    reason: Option<&'static str>,
    message: Option<String>,
}

impl Said {
    fn yes() -> Self {
        Self { is: true, reason: None, message: None }
    }

    fn no_more() -> Self {
        Self { is: false, reason: None, message: None }
    }

    fn because(is: bool, reason: &'static str) -> Self {
        Self { is, reason: Some(reason), message: None }
    }

    fn no(reason: &'static str, message: String) -> Self {
        Self { is: false, reason: Some(reason), message: Some(message) }
    }
}

fn resize_waits() -> Said {
    let message =
        "what a process may use is decided when it begins: the next run of the container has the new resources";
    Said { is: true, reason: Some("Deferred"), message: Some(message.to_owned()) }
}

impl Machine {
    /// All conditions of the pod, those of others included.
    pub(super) fn next_conditions(
        &mut self,
        phase: &str,
        statuses: &[&ContainerStatus],
        is_ready_to_start: bool,
        now: Now,
    ) -> Vec<PodCondition> {
        let in_api = self.pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        let foreign: Vec<PodCondition> =
            in_api.iter().filter(|condition| !OWN.contains(&condition.type_.as_str())).cloned().collect();
        let Some(pod) = self.pod.spec.as_ref() else { return foreign };
        let containers_ready = containers_ready(pod, phase, statuses);
        let ready = ready(pod, &containers_ready, &foreign);
        let said = [
            Some(if is_ready_to_start { Said::yes() } else { Said::no_more() }),
            Some(initialized(pod, phase, statuses)),
            Some(ready),
            Some(containers_ready),
            Some(Said::yes()),
            self.begins_anew().map(|is| anew(is, phase)),
            self.waits_for_resize().then(resize_waits),
        ];
        let mut conditions = foreign;
        for (name, said) in OWN.into_iter().zip(said).filter_map(|(name, said)| Some((name, said?))) {
            let status = if said.is { "True" } else { "False" };
            let before = self.conditions.iter().find(|condition| condition.type_ == name);
            let since =
                before.filter(|before| before.status == status).and_then(|same| same.last_transition_time.clone());
            conditions.push(PodCondition {
                type_: name.to_owned(),
                status: status.to_owned(),
                reason: said.reason.map(str::to_owned),
                message: said.message,
                last_transition_time: Some(since.unwrap_or_else(|| Time(super::status::whole_seconds(now.wall)))),
                observed_generation: self.pod.metadata.generation,
                ..PodCondition::default()
            });
        }
        self.conditions.clone_from(&conditions);
        conditions
    }
}

fn status_of<'a>(statuses: &[&'a ContainerStatus], name: &str) -> Option<&'a ContainerStatus> {
    statuses.iter().find(|status| status.name == name).copied()
}

/// Names as a kubelet lists them.
fn listed(what: &str, names: &[&str]) -> Option<String> {
    (!names.is_empty()).then(|| format!("containers with {what} status: [{}]", names.join(" ")))
}

fn initialized(pod: &PodSpec, phase: &str, statuses: &[&ContainerStatus]) -> Said {
    let (mut unknown, mut incomplete) = (Vec::new(), Vec::new());
    for (role, container) in spec::containers(pod) {
        let status = status_of(statuses, &container.name);
        let name = pod.init_containers.iter().flatten().find(|init| init.name == container.name);
        let Some(name) = name.map(|init| init.name.as_str()) else { continue };
        match (role, status) {
            (_, None) => unknown.push(name),
            (Role::Sidecar, Some(status)) if status.started != Some(true) => incomplete.push(name),
            (Role::Init, Some(status)) if !status.ready => incomplete.push(name),
            _ => {}
        }
    }
    if phase == "Succeeded" && unknown.is_empty() {
        return Said::because(true, "PodCompleted");
    }
    let has_started = |status: &ContainerStatus| {
        let has = |state: &Option<k8s_openapi::api::core::v1::ContainerState>| {
            state.as_ref().is_some_and(|state| state.running.is_some() || state.terminated.is_some())
        };
        has(&status.state) || has(&status.last_state)
    };
    let mut mains = pod.containers.iter().filter_map(|container| status_of(statuses, &container.name));
    if mains.any(has_started) {
        return Said::yes();
    }
    let messages: Vec<String> =
        [listed("unknown", &unknown), listed("incomplete", &incomplete)].into_iter().flatten().collect();
    if messages.is_empty() { Said::yes() } else { Said::no("ContainersNotInitialized", messages.join(", ")) }
}

fn containers_ready(pod: &PodSpec, phase: &str, statuses: &[&ContainerStatus]) -> Said {
    let sidecars = pod.init_containers.iter().flatten().filter(|init| init.restart_policy.as_deref() == Some("Always"));
    let (mut unknown, mut unready) = (Vec::new(), Vec::new());
    for container in sidecars.chain(&pod.containers) {
        match status_of(statuses, &container.name) {
            None => unknown.push(container.name.as_str()),
            Some(status) if !status.ready => unready.push(container.name.as_str()),
            Some(_) => {}
        }
    }
    match phase {
        "Succeeded" if unknown.is_empty() => return Said::because(false, "PodCompleted"),
        "Failed" => return Said::because(false, "PodFailed"),
        _ => {}
    }
    let messages: Vec<String> =
        [listed("unknown", &unknown), listed("unready", &unready)].into_iter().flatten().collect();
    if messages.is_empty() { Said::yes() } else { Said::no("ContainersNotReady", messages.join(", ")) }
}

/// Whether all containers are about to begin anew.
fn anew(is: bool, phase: &str) -> Said {
    match phase {
        "Succeeded" => Said::because(false, "PodCompleted"),
        "Failed" => Said::because(false, "PodFailed"),
        _ if is => Said {
            is,
            reason: Some("RestartAllContainersStarted"),
            message: Some("container exited with restart policy rule".to_owned()),
        },
        _ => Said::no_more(),
    }
}

fn ready(pod: &PodSpec, containers: &Said, foreign: &[PodCondition]) -> Said {
    if !containers.is {
        return Said { is: false, reason: containers.reason, message: containers.message.clone() };
    }
    let mut messages = Vec::new();
    for gate in pod.readiness_gates.iter().flatten() {
        let gate = &gate.condition_type;
        match foreign.iter().find(|condition| condition.type_ == *gate) {
            None => messages.push(format!("corresponding condition of pod readiness gate {gate:?} does not exist.")),
            Some(condition) if condition.status != "True" => messages
                .push(format!("the status of pod readiness gate {gate:?} is not \"True\", but {}", condition.status)),
            Some(_) => {}
        }
    }
    if messages.is_empty() { Said::yes() } else { Said::no("ReadinessGatesNotReady", messages.join(", ")) }
}
