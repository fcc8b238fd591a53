//! A pod's phase, from the status of its containers, as a kubelet finds it.

use super::{Machine, cell::Cell};
use crate::spec::{self, Role};

/// What a container counts as.
enum Count {
    Waiting,
    Running,
    Stopped { code: i32 },
}

impl Machine {
    /// The phase that its containers make, before what is known of the pod as a whole.
    fn phase_of_containers(&self) -> &'static str {
        let count = |cell: &Cell| match (&cell.current, cell.exit()) {
            _ if cell.is_hooking() && cell.previous.is_none() => Count::Waiting,
            (Some(_), None) => Count::Running,
            (Some(_), Some(exit)) => Count::Stopped { code: exit.code },
            // The runtime knows nothing of it, but the API did.
            (None, _) => match cell.last_known() {
                Some(code) => Count::Stopped { code },
                None => Count::Waiting,
            },
        };
        let (mut pending_init, mut failed_init) = (0, 0);
        let (mut waiting, mut running, mut stopped, mut succeeded, mut restarted) = (0, 0, 0, 0, 0);
        for cell in &self.cells {
            match (cell.role, count(cell)) {
                (Role::Init, Count::Stopped { code: 0 }) => {}
                (Role::Init, Count::Stopped { .. }) => failed_init += i32::from(!self.is_restarted(cell)),
                (Role::Init, _) => pending_init += 1,
                (Role::Sidecar, Count::Running) => {
                    running += 1;
                    pending_init += i32::from(!cell.is_started() && !self.is_initialized());
                }
                (Role::Sidecar, Count::Waiting) => {
                    waiting += 1;
                    pending_init += i32::from(!self.is_initialized());
                }
                (Role::Main, Count::Running) => running += 1,
                (Role::Main, Count::Waiting) => waiting += 1,
                (Role::Main, Count::Stopped { code }) => {
                    stopped += 1;
                    succeeded += i32::from(code == 0);
                    restarted += i32::from(cell.current.is_none() || self.is_restarted(cell));
                }
                (Role::Sidecar, Count::Stopped { .. }) | (Role::Ephemeral, _) => {}
            }
        }
        let is_over = self.is_finished();
        if failed_init > 0 && !self.is_initialized() {
            return "Failed";
        }
        // Also what never began is over then, as far as anybody who waits for it is concerned.
        if is_over {
            return if stopped > 0 && waiting == 0 && pending_init == 0 && stopped == succeeded {
                "Succeeded"
            } else {
                "Failed"
            };
        }
        if pending_init > 0 || waiting > 0 {
            return "Pending";
        }
        match (running, stopped) {
            (0, 0) => "Pending",
            (0, _) if restarted > 0 => "Running",
            (0, _) if stopped == succeeded => "Succeeded",
            (0, _) => "Failed",
            _ => "Running",
        }
    }

    /// The phase to report, with its reason and message. It never goes back.
    pub(super) fn next_phase(&self) -> (String, Option<String>, Option<String>) {
        let status = self.pod.status.as_ref();
        let kept = (status.and_then(|status| status.reason.clone()), status.and_then(|status| status.message.clone()));
        let in_api = spec::phase(&self.pod);
        if spec::is_terminal(in_api) {
            return (in_api.to_owned(), kept.0, kept.1);
        }
        if spec::is_terminal(&self.phase) {
            let (reason, message) = self.verdict.clone().unzip();
            return (self.phase.clone(), reason, message);
        }
        let found = match &self.verdict {
            Some(_) if self.is_finished() => "Failed",
            _ => self.phase_of_containers(),
        };
        // What has ended is said only when nothing runs any more.
        let is_early = spec::is_terminal(found) && self.cells.iter().any(Cell::is_running);
        let is_back = found == "Pending" && self.phase == "Running";
        let phase = if is_early || is_back { self.phase.clone() } else { found.to_owned() };
        match &self.verdict {
            Some((reason, message)) if phase == "Failed" => (phase, Some(reason.clone()), Some(message.clone())),
            _ if phase == self.phase => (phase, kept.0, kept.1),
            _ => (phase, None, None),
        }
    }
}

impl Cell {
    /// How it ended as far as the API knew, if the runtime knows nothing of it.
    fn last_known(&self) -> Option<i32> {
        let state = self.old.as_ref()?.state.as_ref()?;
        match (&state.running, &state.terminated) {
            (Some(_), _) => Some(137),
            (_, Some(terminated)) => Some(terminated.exit_code),
            _ => {
                let last = self.old.as_ref()?.last_state.as_ref()?.terminated.as_ref()?;
                Some(last.exit_code)
            }
        }
    }
}
