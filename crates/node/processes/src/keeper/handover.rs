//! A keeper becomes a newer program without letting go of anything.
//!
//! It stays the same process, so containers stay its children. Their open files go through a socket whose other end is stdin of the next
//! program, in the order in which a file lists them: so nobody has to trust a number to be an open file.

use std::{
    collections::VecDeque,
    fs::File,
    io::{self, Read, Seek, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::{
            net::{UnixListener, UnixStream},
            process::CommandExt,
        },
    },
    path::Path,
    process::Command,
};

use rustix::{
    event::epoll::EventFlags,
    fs::MemfdFlags,
    process::{Pid, PidfdFlags},
};
use serde::{Deserialize, Serialize};

use super::{
    Keeper, Rules, Source, Who,
    containers::{Live, Stdin},
    group_name,
    place::{self, Inode, Place},
    say,
    spawn::Process,
};
use crate::{
    limits::{Group, Groups},
    logs::{Log, Stream},
    protocol::Start,
    wire,
};

#[derive(Serialize, Deserialize)]
struct Left {
    rules: Rules,
    files: Option<u64>,
    /// A keeper of an earlier version does not say it.
    #[serde(default)]
    socket: Option<Inode>,
    containers: Vec<LeftContainer>,
}

#[derive(Serialize, Deserialize)]
struct LeftContainer {
    start: Start,
    pid: i32,
    group: Option<Group>,
    /// Which of its files come, in this order.
    stdout: bool,
    stderr: bool,
    stdin: bool,
}

impl Keeper {
    /// Returns only if the next program cannot be run; then all goes on as it was. Who is connected connects again.
    pub fn hand_over(&mut self, program: &Path) {
        // One that is just being set up or has just ended cannot be handed over; it takes a millisecond.
        let is_between = |live: &Live| live.handshake.is_some() || live.ended.is_some();
        if self.live.values().any(is_between) || !self.execs.is_empty() || self.journal.has_pending() {
            self.successor = Some(program.to_owned());
            return;
        }
        // Half a line is no open file.
        self.live.values_mut().for_each(|live| live.log.end());
        if let Err(error) = self.try_hand_over(program) {
            say(&format!("cannot become {}: {error}", program.display()));
        }
    }

    fn try_hand_over(&self, program: &Path) -> io::Result<()> {
        let containers = self
            .live
            .values()
            .map(|live| LeftContainer {
                start: live.start.clone(),
                pid: live.process.pid,
                group: live.group.clone(),
                stdout: live.outputs[0].is_some(),
                stderr: live.outputs[1].is_some(),
                stdin: live.stdin.is_some(),
            })
            .collect();
        let left = Left { rules: self.rules, files: self.files, socket: self.place.socket(), containers };
        let written = rustix::fs::memfd_create("left", MemfdFlags::CLOEXEC)?;
        File::from(written.try_clone()?).write_all(&serde_json::to_vec(&left)?)?;
        let (ours, theirs) = UnixStream::pair()?;
        // More than fits into the socket must fail rather than wait for a reader that is ourselves.
        ours.set_nonblocking(true)?;
        let mut files = vec![written.as_fd(), self.place.lock.as_fd(), self.listener.file.as_fd()];
        for live in self.live.values() {
            files.extend(live.outputs.iter().flatten().map(|output| output.file.as_fd()));
            files.extend(live.stdin.iter().map(|stdin| stdin.file.as_fd()));
        }
        for some in files.chunks(wire::FILES) {
            wire::send(&ours, b"f", some)?;
        }
        Err(Command::new(program)
            .arg0("selvedge")
            .arg("keeper")
            .arg(&self.dir)
            .arg("--again")
            .stdin(OwnedFd::from(theirs))
            .exec())
    }
}

/// The other half.
pub fn take_over(dir: &Path) -> io::Result<Keeper> {
    let socket = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    let mut files = Files { socket, came: VecDeque::new() };
    let mut text = Vec::new();
    let mut written = File::from(files.next()?);
    written.rewind()?;
    written.read_to_end(&mut text)?;
    let left: Left = serde_json::from_slice(&text)?;
    let lock = File::from(files.next()?);
    let listener = UnixListener::from(files.next()?);
    // The directory may have been moved since the keeper began.
    let dir = &place::directory_of(&lock).unwrap_or_else(|| dir.to_owned());
    let mut place = Place::new(dir, lock)?;
    place.adopt(left.socket);
    let mut keeper = Keeper::new(dir, place, listener, Groups::find(&group_name(dir)))?;
    (keeper.rules, keeper.files) = (left.rules, left.files);
    for one in left.containers {
        let id = one.start.id.clone();
        let mut take = |is_there: bool| is_there.then(|| files.next()).transpose();
        let outputs = [take(one.stdout)?, take(one.stderr)?];
        let stdin = take(one.stdin)?;
        let pid = Pid::from_raw(one.pid).ok_or(io::ErrorKind::InvalidData)?;
        let handle = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
        let handle = keeper.watch(handle, Source::Process(Who::Container(id.clone())), EventFlags::IN)?;
        let mut live = Live {
            log: Log::open(&one.start.log, keeper.rules.bounds())?,
            start: one.start,
            process: Process { pid: one.pid, handle },
            handshake: None,
            waiting: Vec::new(),
            outputs: [None, None],
            stdin: stdin.map(|file| Stdin { file, unread: Vec::new(), token: None }),
            attached: Vec::new(),
            group: one.group,
            ended: None,
            is_forgotten: false,
        };
        for ((output, stream), place) in
            outputs.into_iter().zip([Stream::Stdout, Stream::Stderr]).zip(&mut live.outputs)
        {
            let Some(output) = output else { continue };
            *place = Some(keeper.watch(output, Source::Output(id.clone(), stream), EventFlags::IN)?);
        }
        keeper.live.insert(id, live);
    }
    if let Ok(null) = crate::os::null() {
        let _ = rustix::stdio::dup2_stdin(null);
    }
    keeper.check_socket();
    Ok(keeper)
}

struct Files {
    socket: OwnedFd,
    came: VecDeque<OwnedFd>,
}

impl Files {
    fn next(&mut self) -> io::Result<OwnedFd> {
        if self.came.is_empty() {
            let mut files = Vec::new();
            wire::receive(&self.socket, &mut [0], &mut files)?;
            self.came.extend(files);
        }
        self.came.pop_front().ok_or_else(|| io::Error::other("a file is missing"))
    }
}
