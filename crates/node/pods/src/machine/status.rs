//! The status to report, field by field as a kubelet does.

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{
        Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
        ContainerStatus, HostIP, PodIP, PodStatus, ResourceRequirements, VolumeMountStatus,
    },
    apimachinery::pkg::apis::meta::v1::Time,
};

use super::{
    Machine, Now, Step,
    cell::{Cell, LOST, attempt_suffix},
};
use crate::{
    resources, runtime,
    spec::{self, Role},
};

impl Machine {
    /// What to report now. Also moves the phase, and remembers when conditions changed.
    pub fn status(&mut self, now: Now) -> PodStatus {
        self.start_time.get_or_insert(whole_seconds(now.wall));
        let (phase, reason, message) = self.next_phase();
        if self.verdict.is_some() && self.address == Step::Todo && self.cells.iter().all(|cell| cell.current.is_none())
        {
            return self.rejected(phase, reason, message, now);
        }
        let list = |roles: &[Role]| -> Option<Vec<ContainerStatus>> {
            let cells = self.cells.iter().filter(|cell| roles.contains(&cell.role));
            let statuses: Vec<ContainerStatus> = cells.filter_map(|cell| self.container_status(cell)).collect();
            (!statuses.is_empty()).then_some(statuses)
        };
        let mut init = list(&[Role::Init, Role::Sidecar]);
        let ephemeral = list(&[Role::Ephemeral]);
        let mut main = list(&[Role::Main]);
        if let Some(main) = &mut main {
            main.sort_by(|a, b| a.name.cmp(&b.name));
        }
        let all: Vec<&ContainerStatus> = init.iter().flatten().chain(main.iter().flatten()).collect();
        let is_ready_to_start = matches!((&self.address, &self.volumes), (Step::Done(_), Step::Done(())))
            || self.stop.is_none() && self.cells.iter().any(Cell::is_running);
        let is_ready_to_start = is_ready_to_start && !self.is_finished() && !spec::is_terminal(&phase);
        let conditions = self.next_conditions(&phase, &all, is_ready_to_start, now);
        drop(all);
        if self.is_finished() && spec::is_terminal(&phase) {
            close(init.as_deref_mut().unwrap_or_default(), main.as_deref_mut().unwrap_or_default());
        }
        self.phase.clone_from(&phase);
        let addresses = self.addresses();
        let spec = self.pod.spec.as_ref();
        PodStatus {
            phase: Some(phase),
            reason,
            message,
            conditions: Some(conditions),
            container_statuses: main,
            init_container_statuses: init,
            ephemeral_container_statuses: ephemeral,
            host_ip: Some(self.setting.host.to_string()),
            host_ips: Some(vec![HostIP { ip: self.setting.host.to_string() }]),
            pod_ip: addresses.first().cloned(),
            pod_ips: (!addresses.is_empty()).then(|| addresses.into_iter().map(|ip| PodIP { ip }).collect()),
            qos_class: Some(self.qos()),
            observed_generation: self.pod.metadata.generation,
            start_time: self.start_time.map(Time),
            resources: spec.and_then(|spec| spec.resources.clone()),
            ..PodStatus::default()
        }
    }

    /// A pod that the node did not take: only why.
    fn rejected(&mut self, phase: String, reason: Option<String>, message: Option<String>, _: Now) -> PodStatus {
        self.phase.clone_from(&phase);
        PodStatus {
            phase: Some(phase),
            reason,
            message,
            conditions: self.pod.status.as_ref().and_then(|status| status.conditions.clone()),
            qos_class: Some(self.qos()),
            observed_generation: self.pod.metadata.generation,
            start_time: self.start_time.map(Time),
            ..PodStatus::default()
        }
    }

    fn qos(&self) -> String {
        let said = self.pod.status.as_ref().and_then(|status| status.qos_class.clone());
        said.or_else(|| self.pod.spec.as_ref().map(|spec| resources::qos(spec).to_owned())).unwrap_or_default()
    }

    /// Kept after the pod has ended, as clients expect.
    fn addresses(&self) -> Vec<String> {
        let has_some = |machine: &Self| machine.cells.iter().any(|cell| cell.current.is_some());
        match &self.address {
            Step::Done(Some(address)) => vec![address.to_string()],
            Step::Done(None) => vec![self.setting.host.to_string()],
            _ if spec::is_on_host_network(&self.pod) && !has_some(self) => vec![self.setting.host.to_string()],
            _ => {
                let status = self.pod.status.as_ref();
                let said = status.and_then(|status| status.pod_ips.as_ref());
                said.map(|ips| ips.iter().map(|ip| ip.ip.clone()).collect()).unwrap_or_default()
            }
        }
    }

    fn container_status(&self, cell: &Cell) -> Option<ContainerStatus> {
        let spec = cell.spec(&self.pod)?;
        let mut status = match &cell.current {
            Some(run) => self.of_run(cell, run, &spec),
            None => self.of_none(cell, &spec),
        };
        let may_come = match cell.exit() {
            Some(_) => self.stop.is_none() && self.is_restarted(cell),
            None => !cell.is_running() || cell.is_hooking(),
        };
        if let Some(waiting) = cell.waiting.as_ref().filter(|_| may_come) {
            let state = status.state.take();
            if state.as_ref().is_some_and(|state| state.terminated.is_some()) {
                status.last_state = state;
            }
            status.state = Some(waiting_as(&waiting.reason, &waiting.message));
        }
        let is_running = status.state.as_ref().is_some_and(|state| state.running.is_some());
        status.started = Some(is_running && cell.is_started());
        status.ready = cell.is_ready() && (cell.role == Role::Init || is_running);
        Some(status)
    }

    fn of_run(&self, cell: &Cell, run: &runtime::Container, spec: &Container) -> ContainerStatus {
        // A container whose hook after the start has not ended counts as being made.
        let state = if cell.is_hooking() && run.exit.is_none() { self.not_yet(cell) } else { self.state_of(run) };
        let granted = self.granted(cell, run).unwrap_or_else(|| asked(spec));
        ContainerStatus {
            name: cell.name.clone(),
            image: run.image.clone(),
            image_id: run.image.clone(),
            container_id: Some(self.container_id(run)),
            restart_count: i32::try_from(run.id.attempt).unwrap_or(i32::MAX),
            state: Some(state),
            last_state: Some(match &cell.previous {
                Some(previous) => self.state_of(previous),
                None => self.last_in_api(cell),
            }),
            allocated_resources: granted.requests.clone(),
            resources: Some(granted),
            volume_mounts: mounts(spec),
            ..ContainerStatus::default()
        }
    }

    /// What a process was given when it began: it has that until it ends, whatever is asked for meanwhile.
    fn granted(&self, cell: &Cell, run: &runtime::Container) -> Option<ResourceRequirements> {
        let status = self.pod.status.as_ref()?;
        let lists = [&status.container_statuses, &status.init_container_statuses];
        let mut said = lists.into_iter().flatten().flatten();
        let same =
            said.find(|said| said.name == cell.name && said.container_id.as_ref() == Some(&self.container_id(run)));
        same?.resources.clone()
    }

    /// Whether a container that runs has been asked to have something else than it was given.
    pub(super) fn waits_for_resize(&self) -> bool {
        self.cells.iter().any(|cell| {
            let running = cell.current.as_ref().filter(|run| run.exit.is_none());
            let granted = running.and_then(|run| self.granted(cell, run));
            granted.zip(cell.spec(&self.pod)).is_some_and(|(granted, spec)| granted != asked(&spec))
        })
    }

    /// The runtime has nothing of it. What the API knew is kept.
    fn of_none(&self, cell: &Cell, spec: &Container) -> ContainerStatus {
        let mut status = ContainerStatus {
            name: cell.name.clone(),
            image: spec.image.clone().unwrap_or_default(),
            state: Some(self.not_yet(cell)),
            last_state: Some(ContainerState::default()),
            volume_mounts: mounts(spec),
            ..ContainerStatus::default()
        };
        if let Some(previous) = &cell.previous {
            // It begins anew with the whole pod.
            status.restart_count = i32::try_from(cell.next_attempt()).unwrap_or(i32::MAX);
            status.last_state = Some(self.state_of(previous));
            return status;
        }
        let Some(old) = &cell.old else { return status };
        let old_state = old.state.clone().unwrap_or_default();
        if old_state.terminated.is_some() {
            return old.clone();
        }
        status.restart_count = old.restart_count;
        status.last_state = old.last_state.clone().or(Some(ContainerState::default()));
        if old_state.running.is_some() {
            let terminated = ContainerStateTerminated {
                reason: Some("ContainerStatusUnknown".into()),
                message: Some(
                    "The container could not be located when the pod was deleted.  The container used to be Running"
                        .into(),
                ),
                exit_code: 137,
                ..ContainerStateTerminated::default()
            };
            status.last_state = Some(ContainerState { terminated: Some(terminated), ..ContainerState::default() });
            status.restart_count += i32::from(self.pod.metadata.deletion_timestamp.is_none());
        }
        status
    }

    fn not_yet(&self, cell: &Cell) -> ContainerState {
        let has_init = self.cells.iter().any(|cell| matches!(cell.role, Role::Init | Role::Sidecar));
        // For people: why it does not go on.
        let message = match (&self.address, &self.volumes) {
            (Step::Failed(_, message), _) | (_, Step::Failed(_, message)) => message,
            _ => "",
        };
        match cell.role {
            Role::Ephemeral => waiting_as("ContainerCreating", message),
            _ if has_init => waiting_as("PodInitializing", message),
            _ => waiting_as("ContainerCreating", message),
        }
    }

    fn last_in_api(&self, cell: &Cell) -> ContainerState {
        let old = cell.old.as_ref().filter(|old| {
            let attempt = cell.current.as_ref().map_or(0, |run| run.id.attempt);
            attempt > 0 && u32::try_from(old.restart_count).is_ok_and(|count| count <= attempt)
        });
        let Some(old) = old else { return ContainerState::default() };
        let is_same =
            old.container_id.is_some() && old.container_id == cell.current.as_ref().map(|run| self.container_id(run));
        let state = if is_same { old.last_state.clone() } else { old.state.clone() };
        state.filter(|state| state.terminated.is_some()).unwrap_or_default()
    }

    fn container_id(&self, run: &runtime::Container) -> String {
        format!("{}://{}", self.setting.scheme, attempt_suffix(&run.id))
    }

    fn state_of(&self, run: &runtime::Container) -> ContainerState {
        let started_at = time(&run.started_at);
        let Some(exit) = &run.exit else {
            return ContainerState { running: Some(ContainerStateRunning { started_at }), ..ContainerState::default() };
        };
        let reason = match exit.code {
            _ if exit.out_of_memory => "OOMKilled",
            _ if exit.message == LOST => "ContainerStatusUnknown",
            _ if exit.never_began => "StartError",
            0 => "Completed",
            _ => "Error",
        };
        let terminated = ContainerStateTerminated {
            container_id: Some(self.container_id(run)),
            exit_code: exit.code,
            finished_at: time(&exit.finished_at),
            message: (!exit.message.is_empty()).then(|| exit.message.clone()),
            reason: Some(reason.to_owned()),
            signal: None,
            started_at,
        };
        ContainerState { terminated: Some(terminated), ..ContainerState::default() }
    }
}

/// Of a pod that is over nothing waits any more: what should have run by then and of which no end is known is said to have ended.
fn close(init: &mut [ContainerStatus], main: &mut [ContainerStatus]) {
    let state = |status: &ContainerStatus| status.state.clone().unwrap_or_default();
    let has_ended = |status: &ContainerStatus| state(status).terminated.is_some();
    let has_run = |status: &ContainerStatus| {
        let last = status.last_state.as_ref().is_some_and(|last| last.terminated.is_some());
        last || state(status).waiting.is_none()
    };
    let is_past = |status: &ContainerStatus| {
        let ended = state(status).terminated;
        status.started == Some(true) || ended.is_some_and(|ended| ended.exit_code == 0)
    };
    let is_initialized = main.iter().any(has_run) || init.last().is_none_or(is_past);
    let begun = init.iter().rposition(has_run).map_or(0, |last| last + 1);
    let main = main.iter_mut().filter(|_| is_initialized);
    for status in init[..begun].iter_mut().chain(main).filter(|status| !has_ended(status)) {
        let terminated = ContainerStateTerminated {
            reason: Some("ContainerStatusUnknown".into()),
            message: Some(LOST.into()),
            exit_code: 137,
            ..ContainerStateTerminated::default()
        };
        status.state = Some(ContainerState { terminated: Some(terminated), ..ContainerState::default() });
    }
}

fn mounts(spec: &Container) -> Option<Vec<VolumeMountStatus>> {
    let mounts = spec.volume_mounts.as_ref()?.iter().map(|mount| VolumeMountStatus {
        name: mount.name.clone(),
        mount_path: mount.mount_path.clone(),
        read_only: mount.read_only.filter(|is| *is),
        recursive_read_only: mount.read_only.filter(|is| *is).map(|_| "Disabled".to_owned()),
        ..VolumeMountStatus::default()
    });
    Some(mounts.collect())
}

fn waiting_as(reason: &str, message: &str) -> ContainerState {
    let waiting = ContainerStateWaiting {
        reason: Some(reason.to_owned()),
        message: (!message.is_empty()).then(|| message.to_owned()),
    };
    ContainerState { waiting: Some(waiting), ..ContainerState::default() }
}

/// Times in the API have no parts of seconds.
pub fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

fn time(text: &str) -> Option<Time> {
    text.parse::<Timestamp>().ok().map(whole_seconds).map(Time)
}

fn asked(spec: &Container) -> ResourceRequirements {
    ResourceRequirements { claims: None, ..spec.resources.clone().unwrap_or_default() }
}
