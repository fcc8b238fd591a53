//! A pod whose containers all begin anew, because one of them ended in a way that asks for it.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;

use super::{
    Machine, Now,
    cell::{Cell, Stage},
    killing::Killing,
};
use crate::spec::{self, Role};

impl Machine {
    /// Ends what still runs, and once nothing does, lets all of it begin from the first init container on. True while that is under way.
    pub(super) fn plan_anew(&mut self, now: Now) -> bool {
        if !self.cells.iter().any(|cell| asks(cell, &self.pod)) {
            return false;
        }
        let is_meant = |cell: &Cell| cell.role != Role::Ephemeral;
        let mut told = Vec::new();
        for cell in self.cells.iter_mut().filter(|cell| is_meant(cell)) {
            if matches!(cell.stage, Stage::Pulling | Stage::Pulled) {
                cell.stage = Stage::Idle;
            }
            if cell.is_running() && cell.stage != Stage::Starting && cell.killing.is_none() {
                // They have no time of their own: only the least that anybody has.
                cell.killing = Some(Killing::new(now.mono, Duration::ZERO, false));
                told.push(cell.name.clone());
            }
        }
        for name in told {
            self.note(false, Some(&name), "Killing", "killing");
        }
        let is_still = |cell: &Cell| !cell.is_running() && cell.stage != Stage::Starting;
        if !self.cells.iter().filter(|cell| is_meant(cell)).all(is_still) {
            return true;
        }
        for cell in self.cells.iter_mut().filter(|cell| is_meant(cell)) {
            cell.begin_anew();
        }
        false
    }

    /// Whether that is under way, as its condition says; nothing for a pod to which it cannot happen.
    pub(super) fn begins_anew(&self) -> Option<bool> {
        self.pod.spec.as_ref().filter(|spec| spec::can_begin_anew(spec))?;
        Some(self.stop.is_none() && self.cells.iter().any(|cell| asks(cell, &self.pod)))
    }
}

/// Whether its last run ended in such a way.
fn asks(cell: &Cell, pod: &Pod) -> bool {
    let ended = cell.exit().filter(|_| cell.role != Role::Ephemeral).zip(cell.spec(pod));
    ended.is_some_and(|(exit, container)| spec::begins_anew(&container, exit.code))
}
