//! What can be asked of a keeper.

use std::{collections::BTreeSet, time::Instant};

use pods::runtime::{Container, ContainerId};
use rustix::{
    process::Signal,
    termios::{Winsize, tcsetwinsize},
};

use super::{GRACE, Keeper, failed, signal};
use crate::{
    addresses::Range,
    agent::launch,
    journal::Entry,
    protocol::{Answer, Permitted, Request, VERSION},
};

impl Keeper {
    pub fn ask(&mut self, connection: u64, number: u64, request: Request) {
        let answer = match request {
            Request::Hello { rules, .. } => {
                self.rules = rules;
                let program = launch::identity();
                Answer::Hello {
                    version: VERSION,
                    program,
                    permitted: Permitted { views: self.views, ..self.groups.permitted() },
                }
            }
            Request::Start(start) => return self.start(connection, number, *start),
            Request::Signal { id, signal } => self.send(&id, signal),
            Request::Forget { id } => match self.live.contains_key(&id) {
                true => failed("RunContainerError", format!("container {} still runs", id.name)),
                false => {
                    if self.journal.state.containers.contains_key(&id) {
                        self.journal.push(Entry::Forgotten { id });
                    }
                    return self.answers.push((connection, number, Answer::Done));
                }
            },
            Request::ForgetPod { pod } => {
                self.forget_pod(&pod);
                return self.answers.push((connection, number, Answer::Done));
            }
            Request::Address { pod, range } => {
                let address = self.address(&pod, range);
                return self.answers.push((connection, number, address));
            }
            Request::List => {
                Answer::Containers(self.journal.state.containers.keys().filter_map(|id| self.find(id)).collect())
            }
            Request::Find { id } => Answer::Containers(self.find(&id).into_iter().collect()),
            Request::Usage => Answer::Usage(self.usage()),
            Request::Watch => {
                if let Some(connection) = self.connections.get_mut(&connection) {
                    connection.watches = true;
                }
                Answer::Done
            }
            Request::Exec { id, command, terminal } => return self.exec(connection, number, &id, command, terminal),
            Request::Attach { id } => self.attach(connection, id),
            Request::Resize { columns, rows } => self.resize(connection, columns, rows),
            Request::Replace { program } => {
                self.successor = Some(program);
                Answer::Done
            }
            Request::Stop => {
                self.live.values().for_each(|live| signal(live.process.pid, Signal::TERM));
                self.stopping = Some((connection, number, Instant::now() + GRACE));
                return;
            }
        };
        self.answer(connection, number, answer);
    }

    /// One that is not set up yet may still turn out to be none.
    fn find(&self, id: &ContainerId) -> Option<Container> {
        let is_there = self.live.get(id).is_none_or(|live| live.handshake.is_none());
        self.journal.state.containers.get(id).filter(|_| is_there).map(|record| record.container.clone())
    }

    /// One that has ended hears nothing, which is no failure.
    fn send(&mut self, id: &ContainerId, number: i32) -> Answer {
        let Some(live) = self.live.get(id).filter(|live| live.ended.is_none()) else { return Answer::Done };
        match Signal::from_named_raw(number) {
            Some(Signal::KILL) => live.end(),
            Some(number) => signal(live.process.pid, number),
            None => return failed("RunContainerError", format!("there is no signal {number}")),
        }
        Answer::Done
    }

    fn forget_pod(&mut self, pod: &str) {
        let state = &self.journal.state;
        let left: Vec<ContainerId> = state.containers.keys().filter(|id| id.pod == pod).cloned().collect();
        for id in left {
            match self.live.get_mut(&id) {
                // Nobody knows of it any more, so it must not go on; it is forgotten when it has ended.
                Some(live) => {
                    live.is_forgotten = true;
                    live.end();
                }
                None => self.journal.push(Entry::Forgotten { id }),
            }
        }
        if self.journal.state.addresses.contains_key(pod) {
            self.journal.push(Entry::PodForgotten { pod: pod.to_owned() });
        }
    }

    fn address(&mut self, pod: &str, range: Range) -> Answer {
        let state = &self.journal.state;
        if let Some(address) = state.addresses.get(pod) {
            return Answer::Address(Some(*address));
        }
        let taken: BTreeSet<_> = state.addresses.values().copied().collect();
        match range.next(&taken, state.last_address) {
            Some(address) => {
                self.journal.push(Entry::Address { pod: pod.to_owned(), address });
                Answer::Address(Some(address))
            }
            None => {
                failed("FailedCreatePodSandBox", format!("all addresses of {}/{} are taken", range.base, range.bits))
            }
        }
    }

    fn attach(&mut self, number: u64, id: ContainerId) -> Answer {
        let running = self.live.get_mut(&id).filter(|live| live.is_running());
        let (Some(live), Some(connection)) = (running, self.connections.get_mut(&number)) else {
            return failed("NotFound", format!("container {} of pod {} does not run", id.name, id.pod));
        };
        live.attached.push(number);
        connection.attached = Some(id);
        Answer::Attached { terminal: live.start.terminal }
    }

    fn resize(&mut self, connection: u64, columns: u16, rows: u16) -> Answer {
        let id = self.connections.get(&connection).and_then(|connection| connection.attached.as_ref());
        let live = id.and_then(|id| self.live.get(id)).filter(|live| live.start.terminal);
        if let Some(terminal) = live.and_then(|live| live.outputs[0].as_ref()) {
            let _ = tcsetwinsize(&terminal.file, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 });
        }
        Answer::Done
    }
}
