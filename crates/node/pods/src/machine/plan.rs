//! What to do now, from all that the machine was told.

use std::time::Duration;

use super::{
    Action, Hook, Machine, Now, ProbeKind, Step, Stop,
    backoff::in_words,
    cell::{Cell, Stage, Waiting},
    hook_of,
    killing::{Deed, KILL, Killing, TERM, signal_of},
};
use crate::{
    runtime::ContainerId,
    spec::{self, Role},
};

/// What failed because of something outside of the pod is tried again after that.
pub const RETRY: Duration = Duration::from_secs(10);
/// A failed pull is shown for so long before it is shown as a wait for the next.
pub const PULL_WAIT_SHOWN: Duration = Duration::from_secs(2);
/// A hook after the start may take as long as it likes, within reason.
const LONGEST_HOOK: Duration = Duration::from_secs(3600);

impl Machine {
    pub fn plan(&mut self, now: Now) -> Vec<Action> {
        self.wake = None;
        let mut actions = Vec::new();
        if self.is_ended || !self.has_seen_runtime {
            return actions;
        }
        self.observe_deadline(now);
        if self.has_to_stop() {
            self.begin_stop(now);
        }
        if self.stop.is_some() {
            self.plan_stop(now);
        } else if !self.plan_anew(now) {
            self.plan_run(now, &mut actions);
        }
        self.plan_hooks(&mut actions);
        self.plan_kills(now, &mut actions);
        self.plan_strays(&mut actions);
        self.plan_probes(now, &mut actions);
        if self.is_finished() {
            self.plan_end(&mut actions);
        }
        actions.extend(std::mem::take(&mut self.notes).into_iter().map(Action::Record));
        actions
    }

    /// Plan again at that time.
    fn at(&mut self, time: Duration) {
        self.wake = Some(self.wake.map_or(time, |wake| wake.min(time)));
    }

    fn observe_deadline(&mut self, now: Now) {
        let limit = self.pod.spec.as_ref().and_then(|spec| spec.active_deadline_seconds);
        let (Some(limit), Some(start), None) = (limit, self.start_time, &self.verdict) else { return };
        if self.stop.is_some() || spec::is_terminal(&self.phase) {
            return;
        }
        let limit = Duration::from_secs(limit.max(0).unsigned_abs());
        let age = Duration::try_from(now.wall.duration_since(start)).unwrap_or_default();
        if age < limit {
            return self.at(now.mono + (limit - age));
        }
        let message = "Pod was active on the node longer than the specified deadline";
        self.verdict = Some(("DeadlineExceeded".into(), message.into()));
        self.note(false, None, "DeadlineExceeded", message);
    }

    fn has_to_stop(&self) -> bool {
        self.is_gone
            || self.verdict.is_some()
            || self.pod.metadata.deletion_timestamp.is_some()
            || spec::is_terminal(spec::phase(&self.pod))
            || spec::is_terminal(&self.phase)
            || self.is_done()
    }

    /// Whether no container of it will ever run again by itself: all have ended for good, or it cannot be initialized.
    pub(super) fn is_done(&self) -> bool {
        let ended_for_good = |cell: &Cell| cell.exit().is_some() && !cell.is_starting() && !self.is_restarted(cell);
        let mut mains = self.cells.iter().filter(|cell| cell.role == Role::Main).peekable();
        let is_failed_init = |cell: &Cell| cell.role == Role::Init && ended_for_good(cell) && !cell.is_ready();
        mains.peek().is_some() && mains.all(ended_for_good)
            || !self.is_initialized() && self.cells.iter().any(is_failed_init)
    }

    /// Whether what has ended is started again.
    pub(super) fn is_restarted(&self, cell: &Cell) -> bool {
        let (Some(exit), Some(pod)) = (cell.exit(), self.pod.spec.as_ref()) else { return false };
        cell.spec(&self.pod).is_some_and(|container| spec::is_restarted(pod, &container, cell.role, exit.code))
    }

    /// Whether it got so far once that init containers do not matter any more.
    pub(super) fn is_initialized(&self) -> bool {
        self.cells.iter().any(|cell| cell.role == Role::Main && cell.current.is_some())
    }

    /// Whether it is being ended and nothing of it runs, nor can begin to.
    pub(super) fn is_finished(&self) -> bool {
        let is_still = |cell: &Cell| !cell.is_running() && cell.stage != Stage::Starting;
        self.stop.is_some() && self.cells.iter().all(is_still)
    }

    fn begin_stop(&mut self, now: Now) {
        let grace = spec::grace(&self.pod);
        match &mut self.stop {
            // Whoever deletes it again may give it less time.
            Some(stop) => {
                let deadline = stop.since + grace;
                if deadline < stop.deadline {
                    stop.deadline = deadline.max(now.mono);
                    let deadline = stop.deadline;
                    for killing in self.cells.iter_mut().filter_map(|cell| cell.killing.as_mut()) {
                        killing.deadline = killing.deadline.min(deadline);
                    }
                }
            }
            None => self.stop = Some(Stop { since: now.mono, deadline: now.mono + grace }),
        }
    }

    /// Who runs is told to end; nothing is begun.
    fn plan_stop(&mut self, now: Now) {
        let Some(stop) = self.stop else { return };
        let pod = self.pod.clone();
        let mut told = Vec::new();
        for cell in &mut self.cells {
            if matches!(cell.stage, Stage::Pulling | Stage::Pulled) {
                cell.stage = Stage::Idle;
            }
            if cell.is_running() && cell.stage != Stage::Starting && cell.killing.is_none() {
                let has_hook = hook_of(cell, &pod, Hook::PreStop);
                let grace = stop.deadline.saturating_sub(now.mono);
                cell.killing = Some(Killing::new(now.mono, grace, has_hook));
                told.push(cell.name.clone());
            }
        }
        for name in told {
            self.note(false, Some(&name), "Killing", format!("Stopping container {name}"));
        }
    }

    fn plan_run(&mut self, now: Now, actions: &mut Vec<Action>) {
        let is_on_host = spec::is_on_host_network(&self.pod);
        match &self.address {
            Step::Todo if is_on_host => self.address = Step::Done(None),
            Step::Todo => {
                self.address = Step::UnderWay;
                actions.push(Action::Address);
            }
            Step::Failed(at, _) => self.again(*at, now, |machine| machine.address = Step::Todo),
            _ => {}
        }
        match &self.volumes {
            Step::Todo => {
                self.volumes = Step::UnderWay;
                actions.push(Action::Volumes);
            }
            Step::Failed(at, _) => self.again(*at, now, |machine| machine.volumes = Step::Todo),
            _ => {}
        }
        if !matches!((&self.address, &self.volumes), (Step::Done(_), Step::Done(()))) {
            return;
        }
        if !self.plan_init(now, actions) {
            return;
        }
        let mut is_first_free = true;
        for index in 0..self.cells.len() {
            match self.cells[index].role {
                // One after the other: a hook after the start of one holds up the next.
                Role::Main if is_first_free => {
                    self.plan_start(index, now, actions);
                    let cell = &self.cells[index];
                    is_first_free = !cell.is_starting() && !cell.is_hooking();
                }
                Role::Sidecar => self.plan_start(index, now, actions),
                Role::Ephemeral => self.plan_start(index, now, actions),
                _ => {}
            }
        }
    }

    fn again(&mut self, at: Duration, now: Now, reset: impl FnOnce(&mut Self)) {
        if now.mono >= at {
            reset(self);
            // It is asked for in the next round, which is now.
            self.at(now.mono);
        } else {
            self.at(at);
        }
    }

    /// Init containers and sidecars in their order. True if all have done their part.
    fn plan_init(&mut self, now: Now, actions: &mut Vec<Action>) -> bool {
        if self.is_initialized() {
            return true;
        }
        for index in 0..self.cells.len() {
            let cell = &mut self.cells[index];
            let is_passed = match cell.role {
                Role::Init => cell.is_ready(),
                Role::Sidecar => {
                    cell.was_started |= cell.is_started();
                    cell.was_started
                }
                Role::Main | Role::Ephemeral => continue,
            };
            let needs_start = cell.role == Role::Sidecar || !is_passed;
            if needs_start {
                self.plan_start(index, now, actions);
            }
            if !is_passed {
                return false;
            }
        }
        true
    }

    /// Starts a container if it does not run and shall, and may now.
    fn plan_start(&mut self, index: usize, now: Now, actions: &mut Vec<Action>) {
        let cell = &self.cells[index];
        let is_changed = || {
            let wanted = cell.spec(&self.pod).and_then(|container| container.image.clone());
            cell.current.as_ref().is_some_and(|run| wanted.is_some_and(|wanted| wanted != run.image))
        };
        match cell.stage {
            Stage::Idle if !cell.is_running() => self.plan_next_run(index, now, actions),
            Stage::Pulled => {
                let id = next_id(cell, spec::uid(&self.pod));
                self.cells[index].stage = Stage::Starting;
                actions.push(Action::Start { id });
            }
            _ if cell.is_running() && cell.killing.is_none() && is_changed() => {
                if let Some(id) = cell.id().cloned() {
                    let why = format!("Container {} definition changed, will be restarted", cell.name);
                    self.kill(&id, spec::grace(&self.pod), why, now);
                }
            }
            _ => {}
        }
    }

    fn plan_next_run(&mut self, index: usize, now: Now, actions: &mut Vec<Action>) {
        let cell = &self.cells[index];
        let has_ended = cell.exit().is_some();
        if has_ended && !self.is_restarted(cell) {
            return;
        }
        let again = if has_ended && !cell.is_counted { cell.restarts.until(cell.ended) } else { Duration::ZERO };
        if let Some(shown) = cell.pull_wait_at {
            self.show_pull_wait(index, shown, now);
        }
        let cell = &self.cells[index];
        if now.mono < cell.not_before {
            return self.at(cell.not_before);
        }
        if now.mono < again {
            self.wait_for_restart(index);
            return self.at(again);
        }
        let name = cell.name.clone();
        let ended = cell.ended;
        let cell = &mut self.cells[index];
        if has_ended && !cell.is_counted {
            cell.restarts.tried(ended, now.mono);
            cell.is_counted = true;
        }
        cell.stage = Stage::Pulling;
        actions.push(Action::Image { container: name });
    }

    fn show_pull_wait(&mut self, index: usize, shown: Duration, now: Now) {
        if now.mono < shown {
            return self.at(shown);
        }
        let pod = self.pod.clone();
        let cell = &mut self.cells[index];
        cell.pull_wait_at = None;
        let image = cell.spec(&pod).and_then(|spec| spec.image.clone()).unwrap_or_default();
        let why = cell.waiting.take().map_or_else(String::new, |waiting| waiting.message);
        let message = format!("Back-off pulling image {image:?}: ErrImagePull: {why}");
        cell.waiting = Some(Waiting { reason: "ImagePullBackOff".into(), message });
        let name = cell.name.clone();
        self.note(false, Some(&name), "BackOff", format!("Back-off pulling image {image:?}"));
        self.note(true, Some(&name), "Failed", "Error: ImagePullBackOff");
    }

    fn wait_for_restart(&mut self, index: usize) {
        let full = spec::full_name(&self.pod);
        let cell = &mut self.cells[index];
        if cell.waiting.as_ref().is_some_and(|waiting| waiting.reason == "CrashLoopBackOff") {
            return;
        }
        let (name, wait) = (cell.name.clone(), in_words(cell.restarts.wait()));
        let message = format!("back-off {wait} restarting failed container={name} pod={full}");
        cell.waiting = Some(Waiting { reason: "CrashLoopBackOff".into(), message });
        let said = format!("Back-off restarting failed container {name} in pod {full}");
        self.note(true, Some(&name), "BackOff", said);
    }

    fn plan_hooks(&mut self, actions: &mut Vec<Action>) {
        for cell in self.cells.iter_mut().filter(|cell| cell.stage == Stage::Fresh && cell.killing.is_none()) {
            if let Some(id) = cell.current.as_ref().map(|run| run.id.clone()) {
                cell.stage = Stage::Hooking;
                actions.push(Action::Hook { id, hook: Hook::PostStart, within: LONGEST_HOOK });
            }
        }
    }

    fn plan_strays(&mut self, actions: &mut Vec<Action>) {
        for cell in &mut self.cells {
            actions.extend(std::mem::take(&mut cell.strays).into_iter().map(|id| Action::Signal { id, signal: KILL }));
            actions.extend(std::mem::take(&mut cell.forgettable).into_iter().map(|id| Action::Forget { id }));
        }
    }

    /// Runs on their way out.
    fn plan_kills(&mut self, now: Now, actions: &mut Vec<Action>) {
        for index in 0..self.cells.len() {
            let is_turn = self.is_turn(index);
            let pod = self.pod.clone();
            let cell = &mut self.cells[index];
            if !cell.is_running() {
                continue;
            }
            let container = cell.spec(&pod);
            let lifecycle = container.as_deref().and_then(|container| container.lifecycle.as_ref());
            let signal = lifecycle.and_then(|lifecycle| lifecycle.stop_signal.as_deref()).and_then(signal_of);
            let (Some(id), Some(killing)) = (cell.id().cloned(), &mut cell.killing) else { continue };
            let wait = loop {
                match killing.next(now.mono, is_turn) {
                    Deed::Hook(within) => actions.push(Action::Hook { id: id.clone(), hook: Hook::PreStop, within }),
                    Deed::Ask => actions.push(Action::Signal { id: id.clone(), signal: signal.unwrap_or(TERM) }),
                    Deed::Kill => actions.push(Action::Signal { id: id.clone(), signal: KILL }),
                    Deed::Wait(at) => break at,
                }
            };
            self.at(wait);
        }
    }

    /// Whether nobody has to end before it: sidecars end after what they serve, the last one first.
    fn is_turn(&self, index: usize) -> bool {
        if self.stop.is_none() || self.cells[index].role != Role::Sidecar {
            return true;
        }
        let runs = |cell: &Cell| cell.is_running() || cell.stage == Stage::Starting;
        self.cells.iter().enumerate().all(|(other, cell)| match cell.role {
            Role::Sidecar => other <= index || !runs(cell),
            _ => !runs(cell),
        })
    }

    fn plan_probes(&mut self, now: Now, actions: &mut Vec<Action>) {
        let is_stopping = self.stop.is_some();
        let mut wake = None;
        for cell in &mut self.cells {
            if !cell.is_running() || cell.stage != Stage::Up {
                continue;
            }
            let Some(id) = cell.id().cloned() else { continue };
            let is_started = cell.is_started();
            for kind in ProbeKind::ALL {
                let is_wanted = match kind {
                    ProbeKind::Startup => !is_started && !is_stopping && cell.killing.is_none(),
                    ProbeKind::Liveness => is_started && !is_stopping && cell.killing.is_none(),
                    ProbeKind::Readiness => is_started,
                };
                let Some(probing) = cell.probes[kind as usize].as_mut().filter(|_| is_wanted) else { continue };
                let Some(due) = probing.due() else { continue };
                if now.mono >= due {
                    probing.ask(now.mono);
                    actions.push(Action::Probe { id: id.clone(), probe: kind });
                } else {
                    wake = Some(wake.map_or(due, |wake: Duration| wake.min(due)));
                }
            }
        }
        if let Some(wake) = wake {
            self.at(wake);
        }
    }

    fn plan_end(&mut self, actions: &mut Vec<Action>) {
        if self.is_gone {
            self.is_ended = true;
            actions.push(Action::End);
        } else if self.pod.metadata.deletion_timestamp.is_some() && !self.is_deleted {
            self.is_deleted = true;
            actions.push(Action::Delete);
        }
    }
}

/// The next run of a container.
fn next_id(cell: &Cell, pod: &str) -> ContainerId {
    ContainerId { pod: pod.to_owned(), name: cell.name.clone(), attempt: cell.next_attempt() }
}
