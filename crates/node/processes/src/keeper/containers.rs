//! A container from its start to its end, and what it reads and writes meanwhile.

use std::{
    fs,
    io::{self, Read},
    os::fd::{AsFd, OwnedFd},
    path::Path,
    time::{Duration, Instant},
};

use pods::runtime::{Container, ContainerId, Exit, NEVER_BEGAN};
use rustix::{
    event::epoll::EventFlags,
    pipe::PipeFlags,
    process::{Signal, WaitId, WaitIdOptions},
    pty::OpenptFlags,
};

use super::{
    Keeper, Source, Watched, Who, failed,
    spawn::{Handshake, Process, Spawn},
};
use crate::{
    journal::{Entry, Record},
    limits::Group,
    logs::{Log, Stream},
    os::{kill, null},
    protocol::{Answer, Kind, Start, Used},
    trampoline::Setup,
    tree,
};

/// Who killed it or was killed may hold its stdout a moment longer than it lives.
const DRAIN: Duration = Duration::from_secs(1);
/// What may wait to be read by a container.
const UNREAD: usize = 1 << 20;
/// A termination message, as kubelets cut it.
const MESSAGE: u64 = 4096;

/// A container that runs, or that is about to.
pub struct Live {
    pub start: Start,
    pub process: Process,
    pub handshake: Option<Handshake>,
    /// Who asked for it: connection and number.
    pub waiting: Vec<(u64, u64)>,
    pub log: Log,
    /// Stdout and stderr; with a terminal only the first.
    pub outputs: [Option<Watched<OwnedFd>>; 2],
    pub stdin: Option<Stdin>,
    pub attached: Vec<u64>,
    pub group: Option<Group>,
    /// How it ended, and until when its output is waited for.
    pub ended: Option<(Ending, Instant)>,
    /// Its pod is: nobody will ask how it ended.
    pub is_forgotten: bool,
}

pub struct Stdin {
    pub file: OwnedFd,
    pub unread: Vec<u8>,
    /// While there is something unread.
    pub token: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ending {
    Code(i32),
    Signal(i32),
}

impl Ending {
    /// As a shell has it.
    pub fn code(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128 + signal,
        }
    }
}

/// Reaps it, if it has ended.
pub fn wait(handle: impl AsFd) -> Option<Ending> {
    let status = rustix::process::waitid(WaitId::PidFd(handle.as_fd()), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
    let status = status.ok()??;
    let signal = status.terminating_signal().map(Ending::Signal);
    signal.or_else(|| status.exit_status().map(Ending::Code))
}

pub fn now() -> String {
    format!("{:.0}", jiff::Timestamp::now())
}

impl Live {
    pub fn is_running(&self) -> bool {
        self.handshake.is_none() && self.ended.is_none()
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.ended.as_ref().map(|(_, until)| *until)
    }

    /// Its limit of memory, if no control group sees to it.
    pub fn memory_without_group(&self) -> Option<u64> {
        let is_held = self.group.as_ref().is_some_and(|group| group.memory_bytes().is_some());
        self.start.limits.memory_bytes.filter(|_| !is_held)
    }

    /// Its first process and all others. They are stopped first, so that none of them can make more meanwhile.
    pub fn end(&self) {
        if self.ended.is_some() {
            return;
        }
        let mut all = tree::with_descendants(self.process.pid);
        for _ in 0..20 {
            if all.len() == 1 {
                break;
            }
            all.iter().for_each(|pid| super::signal(*pid, Signal::STOP));
            let again = tree::with_descendants(self.process.pid);
            if again.len() <= all.len() {
                break;
            }
            all = again;
        }
        if let Some(group) = &self.group {
            group.kill();
        }
        all.into_iter().for_each(kill);
    }

    fn used(&self) -> Used {
        let pids = match &self.group {
            Some(group) => group.processes(),
            None => tree::with_descendants(self.process.pid),
        };
        let stats: Vec<tree::Stat> = pids.iter().filter_map(|pid| tree::stat(*pid)).collect();
        let nanos_per_tick = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
        let group = self.group.as_ref();
        let ticks = || stats.iter().map(|stat| stat.ticks).sum::<u64>() * nanos_per_tick;
        let pages = || stats.iter().map(|stat| stat.resident_pages).sum::<u64>() * rustix::param::page_size() as u64;
        Used {
            id: self.start.id.clone(),
            cpu_nanos: group.and_then(Group::cpu_nanos).unwrap_or_else(ticks),
            memory_bytes: group.and_then(Group::memory_bytes).unwrap_or_else(pages),
            processes: stats.iter().filter(|stat| !stat.has_ended).count() as u64,
        }
    }
}

/// The keeper's ends and the container's.
struct Ends {
    input: OwnedFd,
    output: OwnedFd,
    errors: OwnedFd,
    stdin: Option<OwnedFd>,
    outputs: [Option<OwnedFd>; 2],
}

fn ends(start: &Start) -> io::Result<Ends> {
    if start.terminal {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = rustix::pty::openpt(flags)?;
        rustix::pty::unlockpt(&master)?;
        let input = rustix::pty::ioctl_tiocgptpeer(&master, flags)?;
        rustix::io::ioctl_fionbio(&master, true)?;
        let stdin = start.stdin.then(|| master.try_clone()).transpose()?;
        let (output, errors) = (input.try_clone()?, input.try_clone()?);
        return Ok(Ends { input, output, errors, stdin, outputs: [Some(master), None] });
    }
    let (out, output) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    let (err, errors) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    let (input, stdin) = match start.stdin {
        true => {
            let (input, stdin) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
            (input, Some(stdin))
        }
        false => (null()?, None),
    };
    // Only ours: the container's ends block, as programs expect.
    for end in [&out, &err].into_iter().chain(&stdin) {
        rustix::io::ioctl_fionbio(end, true)?;
    }
    Ok(Ends { input, output, errors, stdin, outputs: [Some(out), Some(err)] })
}

impl Keeper {
    pub fn start(&mut self, connection: u64, number: u64, start: Start) {
        let id = start.id.clone();
        if let Some(live) = self.live.get_mut(&id).filter(|live| live.handshake.is_some()) {
            return live.waiting.push((connection, number));
        }
        if let Some(record) = self.journal.state.containers.get(&id) {
            let container = record.container.clone();
            return self.answer(connection, number, Answer::Started(container));
        }
        if self.stopping.is_some() {
            return self.answer(connection, number, failed("RunContainerError", "the keeper is about to leave"));
        }
        if let Err((reason, error)) = self.try_start(connection, number, start) {
            let message = format!("cannot start container {}: {error}", id.name);
            self.answer(connection, number, failed(reason, message));
        }
    }

    fn try_start(&mut self, connection: u64, number: u64, start: Start) -> Result<(), (&'static str, io::Error)> {
        let id = start.id.clone();
        let create = |error| ("CreateContainerError", error);
        let log = Log::open(&start.log, self.rules.bounds()).map_err(|error| {
            create(io::Error::new(error.kind(), format!("its log {}: {error}", start.log.display())))
        })?;
        let group_name = format!("{}_{}_{}", id.pod, id.name, id.attempt);
        let group = self
            .groups
            .make(&group_name, &start.limits)
            .map_err(|error| create(io::Error::new(error.kind(), format!("its control group: {error}"))))?;
        let held = group.as_ref().is_some_and(|group| group.memory_bytes().is_some());
        let opened = match ends(&start) {
            Ok(opened) => opened,
            Err(error) => {
                group.into_iter().for_each(Group::remove);
                return Err(create(error));
            }
        };
        let setup = Setup {
            program: start.program.clone(),
            env: start.env.clone(),
            dir: start.dir.clone(),
            mounts: start.mounts.clone(),
            view: start.view.clone(),
            terminal: start.terminal,
            files: self.files,
            memory: start.limits.memory_bytes.filter(|_| !held),
            no_new_privileges: start.no_new_privileges,
            capabilities: start.capabilities,
            parent: std::process::id() as i32,
        };
        let who = Who::Container(id.clone());
        let names = [start.pod.as_str(), id.name.as_str()];
        let Ends { input, output, errors, stdin, outputs } = opened;
        let spawn = Spawn { setup, names, mark: &start.mark, input, output, errors, joins: None };
        let (process, handshake) = match self.spawn(&who, spawn) {
            Ok(spawned) => spawned,
            Err(error) => {
                group.into_iter().for_each(Group::remove);
                return Err(("RunContainerError", error));
            }
        };
        if let Some(Err(error)) = group.as_ref().map(|group| group.join(process.pid)) {
            self.unwatch(handshake.socket);
            self.let_go(process);
            group.into_iter().for_each(Group::remove);
            return Err(create(io::Error::new(error.kind(), format!("its control group: {error}"))));
        }
        let container = Container {
            id: id.clone(),
            image: start.image.clone(),
            log: start.log.clone(),
            started_at: now(),
            exit: None,
        };
        let started = tree::stat(process.pid).map_or(0, |stat| stat.started);
        let record = Record { container, pid: process.pid, started, boot: self.boot.clone() };
        self.journal.push(Entry::Begun(record));
        let mut live = Live {
            start,
            process,
            handshake: Some(handshake),
            waiting: vec![(connection, number)],
            log,
            outputs: [None, None],
            stdin: stdin.map(|file| Stdin { file, unread: Vec::new(), token: None }),
            attached: Vec::new(),
            group,
            ended: None,
            is_forgotten: false,
        };
        for ((output, stream), place) in
            outputs.into_iter().zip([Stream::Stdout, Stream::Stderr]).zip(&mut live.outputs)
        {
            let Some(output) = output else { continue };
            *place = self.watch(output, Source::Output(id.clone(), stream), EventFlags::IN).ok();
        }
        self.live.insert(id, live);
        self.fresh.push(who);
        Ok(())
    }

    pub fn container_runs(&mut self, id: &ContainerId) {
        let Some(live) = self.live.get_mut(id) else { return };
        let waiting = std::mem::take(&mut live.waiting);
        let Some(record) = self.journal.state.containers.get(id) else { return };
        let container = record.container.clone();
        self.changed = true;
        for (connection, number) in waiting {
            self.answer(connection, number, Answer::Started(container.clone()));
        }
        // It may have ended before it was heard that it began.
        self.ended(&Who::Container(id.clone()));
    }

    pub fn container_failed(&mut self, id: &ContainerId, message: &str) {
        let Some(live) = self.live.remove(id) else { return };
        for output in live.outputs.into_iter().flatten() {
            self.unwatch(output);
        }
        if let Some(token) = live.stdin.and_then(|stdin| stdin.token) {
            self.sources.remove(&token);
        }
        self.let_go(live.process);
        if let Some(group) = live.group {
            group.remove();
        }
        self.journal.push(Entry::Forgotten { id: id.clone() });
        for (connection, number) in live.waiting {
            self.answers.push((connection, number, failed(NEVER_BEGAN, message)));
        }
    }

    /// Whether there may be more.
    pub fn read_output(&mut self, id: &ContainerId, stream: Stream) -> bool {
        let Some(live) = self.live.get_mut(id) else { return false };
        let place = stream as usize;
        let Some(output) = &live.outputs[place] else { return false };
        let count = match rustix::io::read(&output.file, &mut self.buffer) {
            Ok(count) => count,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return false,
            // A terminal says so when nobody has its other end open any more.
            Err(_) => 0,
        };
        if count > 0 {
            let bytes = &self.buffer[..count];
            live.log.write(stream, bytes);
            let kind = if stream == Stream::Stdout { Kind::Stdout } else { Kind::Stderr };
            let (attached, bytes) = (live.attached.clone(), bytes.to_vec());
            attached.into_iter().for_each(|connection| self.pass(connection, kind, &bytes));
            return true;
        }
        if let Some(output) = live.outputs[place].take() {
            self.unwatch(output);
        }
        let Some(live) = self.live.get(id) else { return false };
        if live.ended.is_some() && live.outputs.iter().all(Option::is_none) {
            self.finish(id);
        }
        false
    }

    /// Its first process has ended. What others of it wrote until then is waited for, for a moment.
    pub fn container_ended(&mut self, id: &ContainerId) {
        let Some(live) = self.live.get_mut(id) else { return };
        if live.handshake.is_some() || live.ended.is_some() {
            return;
        }
        let Some(ending) = wait(&live.process.handle.file) else { return };
        live.ended = Some((ending, Instant::now() + DRAIN));
        let token = live.process.handle.token;
        self.sources.remove(&token);
        let _ = rustix::event::epoll::delete(&self.epoll, &live.process.handle.file);
        if let Some(group) = &live.group {
            group.kill();
        }
        self.bury_all();
        for stream in [Stream::Stdout, Stream::Stderr] {
            while self.read_output(id, stream) {}
        }
        // Without any output to wait for, nobody else calls it.
        if self.live.get(id).is_some_and(|live| live.outputs.iter().all(Option::is_none)) {
            self.finish(id);
        }
    }

    pub fn finish(&mut self, id: &ContainerId) {
        let Some(mut live) = self.live.remove(id) else { return };
        let Some((ending, _)) = live.ended else { return };
        for output in live.outputs.into_iter().flatten() {
            self.unwatch(output);
        }
        if let Some(token) = live.stdin.and_then(|stdin| stdin.token) {
            self.sources.remove(&token);
        }
        live.log.end();
        let exit = Exit {
            code: ending.code(),
            signal: if let Ending::Signal(signal) = ending { Some(signal) } else { None },
            finished_at: now(),
            out_of_memory: live.group.as_ref().is_some_and(Group::was_out_of_memory),
            message: message(&live.start),
            never_began: false,
        };
        if let Some(group) = live.group {
            group.remove();
        }
        // Told even if the disk is full just then: nobody asked for it, and who would restart it waits for it.
        self.journal.push(Entry::Ended { id: id.clone(), exit });
        if live.is_forgotten {
            self.journal.push(Entry::Forgotten { id: id.clone() });
        }
        self.changed = true;
        for connection in live.attached {
            self.answer(connection, 0, Answer::Ended { code: ending.code() });
        }
        let execs: Vec<u64> = self.execs.iter().filter(|(_, exec)| exec.of == *id).map(|(number, _)| *number).collect();
        for number in execs {
            if let Some(exec) = self.execs.get(&number) {
                tree::with_descendants(exec.process.pid).into_iter().for_each(kill);
            }
        }
    }

    /// What somebody who is attached types. Nothing at all is the end of it.
    pub fn type_in(&mut self, id: &ContainerId, bytes: &[u8]) {
        let Some(live) = self.live.get_mut(id) else { return };
        if bytes.is_empty() {
            if let Some(Stdin { token: Some(token), .. }) = live.stdin.take_if(|_| !live.start.terminal) {
                self.sources.remove(&token);
            }
            return;
        }
        let Some(stdin) = &mut live.stdin else { return };
        if stdin.unread.len() < UNREAD {
            stdin.unread.extend_from_slice(bytes);
        }
        self.feed(id);
    }

    pub fn feed(&mut self, id: &ContainerId) {
        let Some(stdin) = self.live.get_mut(id).and_then(|live| live.stdin.as_mut()) else { return };
        while !stdin.unread.is_empty() {
            match rustix::io::write(&stdin.file, &stdin.unread) {
                Ok(count) => _ = stdin.unread.drain(..count),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => break,
                Err(_) => stdin.unread.clear(),
            }
        }
        match (stdin.unread.is_empty(), stdin.token) {
            (true, Some(token)) => {
                let _ = rustix::event::epoll::delete(&self.epoll, &stdin.file);
                stdin.token = None;
                self.sources.remove(&token);
            }
            (false, None) => {
                self.last += 1;
                let data = rustix::event::epoll::EventData::new_u64(self.last);
                if rustix::event::epoll::add(&self.epoll, &stdin.file, data, EventFlags::OUT).is_ok() {
                    stdin.token = Some(self.last);
                    self.sources.insert(self.last, Source::Stdin(id.clone()));
                }
            }
            _ => {}
        }
    }

    pub fn usage(&self) -> Vec<Used> {
        self.live.values().filter(|live| live.is_running()).map(Live::used).collect()
    }
}

/// What it left in the file that is mounted for that.
fn message(start: &Start) -> String {
    let Some(mount) = start.mounts.iter().find(|mount| Path::new(&mount.at) == Path::new("/dev/termination-log"))
    else {
        return String::new();
    };
    let mut text = Vec::new();
    let Ok(file) = fs::File::open(&mount.from) else { return String::new() };
    let _ = file.take(MESSAGE).read_to_end(&mut text);
    String::from_utf8_lossy(&text).into_owned()
}
