//! From a request to a process: the trampoline is spawned, remembered on disk, told what to be, and heard.

use std::{
    fs::File,
    io::{self, Read, Write},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::{net::UnixStream, process::CommandExt},
    },
    process::{Command, Stdio},
};

use pods::runtime::ContainerId;
use rustix::{
    event::epoll::EventFlags,
    fs::MemfdFlags,
    process::{Pid, PidfdFlags},
};

use super::{Keeper, Source, Watched, Who, failed, kill};
use crate::{
    images::Program,
    protocol::Answer,
    trampoline::{READY, Setup},
    tree, wire,
};

/// A child of the keeper.
pub struct Process {
    pub pid: i32,
    /// Becomes readable when it has ended.
    pub handle: Watched<OwnedFd>,
}

/// What is between the keeper and a trampoline.
pub struct Handshake {
    pub socket: Watched<UnixStream>,
    /// Go out with the setup.
    pub files: Vec<OwnedFd>,
    pub said: Vec<u8>,
}

/// A command that runs in a container for somebody.
pub struct Exec {
    pub connection: u64,
    pub number: u64,
    pub of: ContainerId,
    pub process: Process,
    pub handshake: Option<Handshake>,
}

/// What a trampoline needs from its first moment.
pub struct Spawn<'a> {
    pub setup: Setup,
    /// For people who look at the list of processes.
    pub names: [&'a str; 2],
    /// See [`crate::protocol::Start::mark`].
    pub mark: &'a str,
    /// Stdin or the terminal.
    pub input: OwnedFd,
    pub output: OwnedFd,
    pub errors: OwnedFd,
    /// The container that a command is to join, if that has a view of its own.
    pub joins: Option<OwnedFd>,
}

impl Keeper {
    /// It waits to be told what to be.
    pub fn spawn(&mut self, who: &Who, spawn: Spawn<'_>) -> io::Result<(Process, Handshake)> {
        let written = rustix::fs::memfd_create("setup", MemfdFlags::CLOEXEC)?;
        File::from(written.try_clone()?).write_all(&serde_json::to_vec(&spawn.setup)?)?;
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let (name, value) = spawn.mark.split_once('=').unwrap_or(("SELVEDGE_ROOT", spawn.mark));
        // Itself, even if its file was replaced by a newer version meanwhile.
        let child = Command::new("/proc/self/exe")
            .arg0("selvedge")
            .arg("container")
            .args(spawn.names)
            .env_clear()
            .env(name, value)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::from(spawn.output))
            .stderr(Stdio::from(spawn.errors))
            .spawn()?;
        let pid = child.id() as i32;
        let watched = self.watch_both(who, pid, ours);
        match watched {
            Ok((handle, socket)) => {
                let files = [written, spawn.input].into_iter().chain(spawn.joins).collect();
                let handshake = Handshake { socket, files, said: Vec::new() };
                Ok((Process { pid, handle }, handshake))
            }
            Err(error) => {
                kill(pid);
                let _ = rustix::process::waitpid(Pid::from_raw(pid), rustix::process::WaitOptions::empty());
                Err(error)
            }
        }
    }

    fn watch_both(
        &mut self,
        who: &Who,
        pid: i32,
        socket: UnixStream,
    ) -> io::Result<(Watched<OwnedFd>, Watched<UnixStream>)> {
        let id = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidInput)?;
        let handle = rustix::process::pidfd_open(id, PidfdFlags::empty())?;
        let handle = self.watch(handle, Source::Process(who.clone()), EventFlags::IN)?;
        match self.watch(socket, Source::Handshake(who.clone()), EventFlags::IN) {
            Ok(socket) => Ok((handle, socket)),
            Err(error) => {
                self.unwatch(handle);
                Err(error)
            }
        }
    }

    fn handshake(&mut self, who: &Who) -> Option<&mut Option<Handshake>> {
        match who {
            Who::Container(id) => self.live.get_mut(id).map(|live| &mut live.handshake),
            Who::Exec(number) => self.execs.get_mut(number).map(|exec| &mut exec.handshake),
        }
    }

    /// It is on disk that the process is there: now it may become what it is for.
    pub fn release(&mut self, who: &Who) {
        let Some(Some(handshake)) = self.handshake(who) else { return };
        let files = std::mem::take(&mut handshake.files);
        if files.is_empty() {
            return;
        }
        let files: Vec<BorrowedFd<'_>> = files.iter().map(AsFd::as_fd).collect();
        if let Err(error) = wire::send(&handshake.socket.file, b"go", &files) {
            self.give_up(who, &format!("cannot talk to the new process: {error}"));
        }
    }

    /// The trampoline says something, or is gone: because it became the command, or because it could not.
    pub fn shake(&mut self, who: &Who) {
        let Some(Some(handshake)) = self.handshake(who) else { return };
        let mut said = [0; 1024];
        loop {
            match handshake.socket.file.read(&mut said) {
                Ok(0) => break,
                Ok(count) => handshake.said.extend_from_slice(&said[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        let said = std::mem::take(&mut handshake.said);
        self.hang_up(who);
        match said.split_first() {
            Some((&READY, [])) => self.runs(who),
            Some((&READY, message)) => self.give_up(who, &String::from_utf8_lossy(message)),
            Some(_) => self.give_up(who, &String::from_utf8_lossy(&said)),
            None => self.give_up(who, "the new process ended before it could be set up"),
        }
    }

    pub fn hang_up(&mut self, who: &Who) {
        if let Some(handshake) = self.handshake(who).and_then(Option::take) {
            self.unwatch(handshake.socket);
        }
    }

    fn runs(&mut self, who: &Who) {
        match who {
            Who::Container(id) => self.container_runs(id),
            Who::Exec(number) => {
                let Some(exec) = self.execs.get(number) else { return };
                let (connection, number) = (exec.connection, exec.number);
                self.answer(connection, number, Answer::Done);
            }
        }
    }

    /// It never became what it was for.
    pub fn give_up(&mut self, who: &Who, message: &str) {
        self.hang_up(who);
        match who {
            Who::Container(id) => self.container_failed(id, message),
            Who::Exec(number) => {
                let Some(exec) = self.execs.remove(number) else { return };
                self.answer(exec.connection, exec.number, failed("ExecError", message));
                self.let_go(exec.process);
            }
        }
    }

    /// A process that nobody wants any more becomes an orphan, which is killed and reaped.
    pub fn let_go(&mut self, process: Process) {
        tree::with_descendants(process.pid).into_iter().for_each(kill);
        self.sources.insert(process.handle.token, Source::Orphan(process.pid));
        self.orphans.insert(process.pid, process.handle);
        // It may have ended before anybody looked.
        self.bury(process.pid);
    }

    pub fn exec(&mut self, connection: u64, number: u64, id: &ContainerId, command: Vec<String>, terminal: bool) {
        let files = self.connections.get_mut(&connection).map(|found| std::mem::take(&mut found.files));
        let mut files = files.unwrap_or_default().into_iter();
        let (Some(live), Some(input)) = (self.live.get(id).filter(|live| live.is_running()), files.next()) else {
            let message = format!("container {} of pod {} does not run", id.name, id.pod);
            return self.answer(connection, number, failed("NotFound", message));
        };
        let setup = Setup {
            program: Program::Command(command),
            env: live.start.env.clone(),
            dir: live.start.dir.clone(),
            mounts: Vec::new(),
            view: live.start.view.clone(),
            terminal,
            files: self.files,
            memory: live.memory_without_group(),
            no_new_privileges: live.start.no_new_privileges,
            capabilities: live.start.capabilities,
            parent: std::process::id() as i32,
        };
        let (pod, mark) = (live.start.pod.clone(), live.start.mark.clone());
        let joins = live.start.view.as_ref().map(|_| live.process.handle.file.try_clone()).transpose();
        let opened = match terminal {
            true => input.try_clone().and_then(|output| Ok((output, input.try_clone()?))),
            false => {
                files.next().zip(files.next()).ok_or_else(|| io::Error::other("its stdout and stderr are missing"))
            }
        };
        let who = Who::Exec(self.number());
        let spawned = opened.and_then(|(output, errors)| {
            let names = [pod.as_str(), id.name.as_str()];
            self.spawn(&who, Spawn { setup, names, mark: &mark, input, output, errors, joins: joins? })
        });
        let joined = spawned.and_then(|(process, handshake)| {
            match self.live.get(id).and_then(|live| live.group.as_ref()).map(|group| group.join(process.pid)) {
                Some(Err(error)) => {
                    self.unwatch(handshake.socket);
                    self.let_go(process);
                    Err(error)
                }
                _ => Ok((process, handshake)),
            }
        });
        match (joined, &who) {
            (Ok((process, handshake)), Who::Exec(key)) => {
                let exec = Exec { connection, number, of: id.clone(), process, handshake: Some(handshake) };
                self.execs.insert(*key, exec);
                self.release(&who);
            }
            (Err(error), _) => self.answer(connection, number, failed("ExecError", error.to_string())),
            _ => {}
        }
    }
}
