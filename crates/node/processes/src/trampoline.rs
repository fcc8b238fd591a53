//! Between the keeper and a container: a process that makes itself what the container asks for, and then becomes it.
//!
//! Its stdin is a socket. One message comes from there, with a file in which everything is written, and with the stdin of the container or its
//! terminal. `ready` goes back; then the socket closes because the command runs, or a message says why it does not.

use std::{
    ffi::{CString, OsString},
    fs::{self, File},
    io::{Read, Seek, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::{fs::chown, net::UnixStream, process::CommandExt},
    },
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use pods::runtime::Mount;
use rustix::{
    fs::{FileType, Mode},
    process::{Resource, Rlimit, Signal, Uid},
};
use serde::{Deserialize, Serialize};

use crate::{
    capabilities, home,
    images::Program,
    samples,
    view::{self, View, Way},
    wire,
};

/// What goes back when all is done but the last step.
pub const READY: u8 = b'+';

/// As runtimes of containers have it for what could not be started.
const NOT_STARTED: u8 = 128;

/// What a container asks for.
#[derive(Debug, Serialize, Deserialize)]
pub struct Setup {
    pub program: Program,
    pub env: Vec<(String, String)>,
    pub dir: PathBuf,
    pub mounts: Vec<Mount>,
    /// What it sees; with a process to join, what that sees.
    pub view: Option<View>,
    pub terminal: bool,
    /// How many files it may have open: the keeper itself may more.
    pub files: Option<u64>,
    /// In place of a control group.
    pub memory: Option<u64>,
    /// Whether what it executes can gain no privileges, neither by setuid nor by capabilities of files.
    pub no_new_privileges: bool,
    /// The bits of the capabilities that it may have. None: all that there are.
    pub capabilities: Option<u64>,
    /// The keeper: if it is gone already, nobody wants this any more.
    pub parent: i32,
}

/// Open files that come with it.
struct Given {
    input: OwnedFd,
    joins: Option<OwnedFd>,
}

const USAGE: &str = "\
A container of the process runtime before it runs its command. The keeper of an edge's containers starts it.

Usage: selvedge container POD NAME
";

pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.collect();
    if args.iter().any(|arg| arg == "--help" || arg == "-h") {
        return crate::usage(USAGE, None);
    }
    let is_socket = |found: rustix::fs::Stat| FileType::from_raw_mode(found.st_mode) == FileType::Socket;
    if !rustix::fs::fstat(rustix::stdio::stdin()).is_ok_and(is_socket) {
        return crate::usage(
            USAGE,
            Some("only the keeper of containers can start a container: its stdin is no socket"),
        );
    }
    // A shell starts what is in its background with signals ignored. A container begins without that, as with every
    // container runtime.
    resident::reset_signals();
    let Ok(keeper) = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3) else {
        return ExitCode::from(NOT_STARTED);
    };
    let keeper = UnixStream::from(keeper);
    match receive(&keeper).and_then(|(setup, given)| become_it(setup, given, &keeper)) {
        Ok(code) => code,
        Err(message) => {
            let _ = (&keeper).write_all(message.as_bytes());
            ExitCode::from(NOT_STARTED)
        }
    }
}

fn receive(keeper: &UnixStream) -> Result<(Setup, Given), String> {
    let mut files = Vec::new();
    let count = wire::receive(keeper, &mut [0; 16], &mut files).map_err(|error| format!("the keeper: {error}"))?;
    let mut files = files.into_iter();
    let (Some(written), Some(input), true) = (files.next(), files.next(), count > 0) else {
        return Err("the keeper said nothing".into());
    };
    let (mut written, mut text) = (File::from(written), Vec::new());
    written.rewind().and_then(|()| written.read_to_end(&mut text)).map_err(|error| format!("the keeper: {error}"))?;
    let setup = serde_json::from_slice(&text).map_err(|error| format!("the keeper: {error}"))?;
    Ok((setup, Given { input, joins: files.next() }))
}

/// Comes back only for a sample that has ended, or for what could not be started.
fn become_it(mut setup: Setup, given: Given, keeper: &UnixStream) -> Result<ExitCode, String> {
    die_with(setup.parent)?;
    let _ = rustix::process::setsid();
    // What its children leave behind is its own, so that all of it is found below it. It stays so when the command runs.
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    rustix::process::umask(Mode::from_raw_mode(0o022));
    // When memory ends, containers end before the edge does.
    let _ = fs::write("/proc/self/oom_score_adj", "500");
    limit(Resource::Nofile, setup.files);
    limit(Resource::Data, setup.memory);
    connect(given.input, setup.terminal).map_err(|error| format!("cannot open its stdin: {error}"))?;
    match &setup.view {
        Some(view) => look(view, &setup, given.joins)?,
        None => {
            start_in(&setup.dir)?;
            setup.capabilities.map_or(Ok(()), capabilities::bound)?;
        }
    }
    setup.capabilities.map_or(Ok(()), capabilities::keep_only)?;
    die_with(setup.parent)?;
    if setup.no_new_privileges {
        rustix::thread::set_no_new_privs(true)
            .map_err(|error| format!("cannot keep it from gaining privileges: {error}"))?;
    }
    home::add(&mut setup.env);
    match setup.program {
        Program::Command(words) => Err(run(&words, &setup.env, &setup.dir, keeper)),
        Program::Sample { name, args } => {
            let Some(sample) = samples::find(&name) else { return Err(format!("there is no sample {name:?}")) };
            if let Ok(name) = CString::new(name) {
                let _ = rustix::thread::set_name(&name);
            }
            (&*keeper).write_all(&[READY]).map_err(|error| error.to_string())?;
            keeper.shutdown(std::net::Shutdown::Both).map_err(|error| error.to_string())?;
            Ok(samples::run(sample, args, setup.env))
        }
    }
}

/// Sees what its container is to see, as whoever it is to be.
fn look(view: &View, setup: &Setup, joins: Option<OwnedFd>) -> Result<(), String> {
    let way = match &joins {
        Some(process) => view::join(process.as_fd())?,
        None => view::start(view, &setup.mounts)?,
    };
    setup.capabilities.map_or(Ok(()), capabilities::bound)?;
    // Its own directory may be hidden by what it mounts.
    let is_hidden = setup.dir == view.stage && !setup.dir.is_dir();
    start_in(if is_hidden { Path::new("/") } else { &setup.dir })?;
    if way == Way::Root {
        if let Some(user) = view.user.user {
            if joins.is_none() {
                let _ = chown(&view.stage, Some(user), view.user.group);
            }
            own_streams(user);
        }
        view.user.assume().map_err(|error| format!("cannot become user {:?}: {error}", view.user))?;
    }
    Ok(())
}

fn start_in(dir: &Path) -> Result<(), String> {
    std::env::set_current_dir(dir).map_err(|error| format!("cannot start in {}: {error}", dir.display()))
}

/// What a program opens again by name, as `/dev/stdout` is, has to be its own. What is others' too, as `/dev/null` is, stays theirs.
fn own_streams(user: u32) {
    for stream in [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()] {
        let is_pipe = rustix::fs::fstat(stream)
            .is_ok_and(|found| matches!(FileType::from_raw_mode(found.st_mode), FileType::Fifo | FileType::Socket));
        if is_pipe || rustix::termios::isatty(stream) {
            let _ = rustix::fs::fchown(stream, Some(Uid::from_raw(user)), None);
        }
    }
}

/// Without the keeper nobody would read what it writes, nor see its end. Whoever becomes somebody else has to say so again.
fn die_with(parent: i32) -> Result<(), String> {
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    let has = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get());
    if has == Some(parent) { Ok(()) } else { Err("the keeper is gone".into()) }
}

fn limit(resource: Resource, most: Option<u64>) {
    if let Some(most) = most {
        let maximum = rustix::process::getrlimit(resource).maximum;
        let current = Some(maximum.map_or(most, |maximum| most.min(maximum)));
        // A hard limit of memory, so that the container cannot raise it; the one of files stays as it was.
        let maximum = if resource == Resource::Data { current } else { maximum };
        let _ = rustix::process::setrlimit(resource, Rlimit { current, maximum });
    }
}

fn connect(input: OwnedFd, terminal: bool) -> rustix::io::Result<()> {
    if terminal {
        rustix::process::ioctl_tiocsctty(input.as_fd())?;
        rustix::stdio::dup2_stdout(input.as_fd())?;
        rustix::stdio::dup2_stderr(input.as_fd())?;
    }
    rustix::stdio::dup2_stdin(input.as_fd())
}

/// Becomes the command, or says why not.
fn run(words: &[String], env: &[(String, String)], dir: &Path, mut keeper: &UnixStream) -> String {
    let Some((program, args)) = words.split_first() else { return "there is no command".into() };
    if let Err(error) = keeper.write_all(&[READY]) {
        return error.to_string();
    }
    let variables = env.iter().map(|(name, value)| (name, value));
    let error = Command::new(program).args(args).env_clear().envs(variables).exec();
    format!("cannot run {program:?} in {}: {error}", dir.display())
}
