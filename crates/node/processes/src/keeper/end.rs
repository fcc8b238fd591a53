//! Ends: of processes that were asked for, of what they left behind, and of what a keeper before this one left.

use std::os::fd::OwnedFd;

use pods::runtime::{ContainerId, Exit};
use rustix::{
    event::epoll::EventFlags,
    process::{Pid, PidfdFlags},
};

use super::{
    Keeper, Source, Who,
    containers::{now, wait},
    kill, say,
};
use crate::{journal::Entry, protocol::Answer, tree};

impl Keeper {
    pub fn ended(&mut self, who: &Who) {
        match who {
            Who::Container(id) => {
                // A trampoline that ended has said why, or that it was ready, before.
                if self.live.get(id).is_some_and(|live| live.handshake.is_some()) {
                    self.shake(who);
                }
                self.container_ended(id);
            }
            Who::Exec(number) => {
                if self.execs.get(number).is_some_and(|exec| exec.handshake.is_some()) {
                    self.shake(who);
                }
                let Some(exec) = self.execs.get(number).filter(|exec| exec.handshake.is_none()) else { return };
                let Some(ending) = wait(&exec.process.handle.file) else { return };
                let Some(exec) = self.execs.remove(number) else { return };
                self.unwatch(exec.process.handle);
                self.bury_all();
                self.answer(exec.connection, exec.number, Answer::Ended { code: ending.code() });
            }
        }
    }

    /// Whatever is our child and was not asked for was left behind by a container or a command that has ended, as those that run keep
    /// their own. It ends, too.
    pub fn bury_all(&mut self) {
        for pid in tree::children(std::process::id() as i32) {
            let is_asked_for = self.live.values().any(|live| live.process.pid == pid && live.ended.is_none())
                || self.execs.values().any(|exec| exec.process.pid == pid);
            if is_asked_for || self.orphans.contains_key(&pid) {
                continue;
            }
            tree::with_descendants(pid).into_iter().for_each(kill);
            let handle = Pid::from_raw(pid).and_then(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok());
            if let Some(handle) = handle
                && let Ok(watched) = self.watch::<OwnedFd>(handle, Source::Orphan(pid), EventFlags::IN)
            {
                self.orphans.insert(pid, watched);
            }
        }
    }

    /// One of those has ended; what it leaves behind ends as well.
    pub fn bury(&mut self, pid: i32) {
        let Some(orphan) = self.orphans.get(&pid) else { return };
        if wait(&orphan.file).is_none() {
            return;
        }
        if let Some(orphan) = self.orphans.remove(&pid) {
            self.unwatch(orphan);
        }
        self.bury_all();
    }

    /// A keeper before this one was killed, or the machine was: nothing of its containers may go on unseen, and they are known to have
    /// ended.
    pub fn end_what_was_left(&mut self) {
        let left: Vec<(ContainerId, i32, u64, String)> = self
            .journal
            .state
            .containers
            .values()
            .filter(|record| record.container.exit.is_none())
            .map(|record| (record.container.id.clone(), record.pid, record.started, record.boot.clone()))
            .collect();
        let mark = format!("SELVEDGE_ROOT={}/", self.dir.join(super::super::agent::ROOTS).display());
        if left.iter().any(|(_, _, _, boot)| *boot == self.boot) {
            // Their first processes were to end with the keeper. Others of theirs are known by what they were given.
            // What another keeper looks after is not: its directory may have been moved away from this path.
            let of_others = tree::below_named(super::NAME);
            let of_theirs: Vec<i32> = tree::marked(&mark).into_iter().filter(|pid| !of_others.contains(pid)).collect();
            for pid in of_theirs.iter().flat_map(|pid| tree::with_descendants(*pid)) {
                kill(pid);
            }
            for (_, pid, started, boot) in &left {
                if *boot == self.boot && tree::stat(*pid).is_some_and(|stat| stat.started == *started) {
                    tree::with_descendants(*pid).into_iter().for_each(kill);
                }
            }
        }
        for (id, _, _, boot) in left {
            let why = if boot == self.boot { "its keeper was killed" } else { "the machine was started again" };
            say(&format!("container {} of pod {} has ended: {why}", id.name, id.pod));
            let exit = Exit { code: 137, signal: Some(9), finished_at: now(), ..Exit::default() };
            self.journal.push(Entry::Ended { id, exit });
        }
    }
}
