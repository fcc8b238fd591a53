//! The process that containers are children of. It waits for them, writes down what they write and how they ended, and does what the agent
//! asks; everything is one loop over what has become ready, in one thread.

mod containers;
mod end;
mod handover;
mod place;
mod requests;
mod spawn;
mod stop;
mod talk;

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::{self, OpenOptions},
    io::{self, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::{
            fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
            net::UnixListener,
            process::CommandExt,
        },
    },
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

use pods::runtime::ContainerId;
use rustix::{
    event::epoll::{self, EventData, EventFlags},
    process::{Resource, Rlimit},
};

use self::{
    containers::Live,
    place::{LOCK, Place, Socket},
    spawn::Exec,
    talk::Connection,
};
use crate::{
    files,
    journal::Journal,
    limits::Groups,
    logs::Stream,
    os::{kill, signal},
    protocol::{Answer, LISTENING, Rules, SOCKET, STATE},
    tree,
};

/// Without anything to keep and anybody to talk to, it leaves after so long.
const IDLE: Duration = Duration::from_secs(10);
/// How long it is waited for a keeper to be gone.
const LOCKED: Duration = Duration::from_secs(5);
/// When the disk was full.
const AGAIN: Duration = Duration::from_secs(1);
/// How long who is told to end has for it when the keeper itself is to leave.
const GRACE: Duration = Duration::from_secs(2);

/// What it is called among processes.
const NAME: &std::ffi::CStr = c"selvedge-keeper";
/// Something with an open file that the loop waits for.
struct Watched<T> {
    file: T,
    token: u64,
}

#[derive(Clone, Debug)]
enum Source {
    Listener,
    Directory,
    Connection(u64),
    Output(ContainerId, Stream),
    Stdin(ContainerId),
    Handshake(Who),
    Process(Who),
    Orphan(i32),
}

/// A process that was asked for.
#[derive(Clone, Debug, PartialEq)]
enum Who {
    Container(ContainerId),
    Exec(u64),
}

struct Keeper {
    dir: PathBuf,
    place: Place,
    listener: Watched<UnixListener>,
    /// Says that something was removed from the directory. None where the system has no room for it.
    directory: Option<Watched<OwnedFd>>,
    epoll: OwnedFd,
    sources: BTreeMap<u64, Source>,
    /// The last number that was given to anything.
    last: u64,
    journal: Journal,
    groups: Groups,
    /// Whether containers have a view of their own here.
    views: bool,
    rules: Rules,
    boot: String,
    /// How many files a container may have open.
    files: Option<u64>,
    live: BTreeMap<ContainerId, Live>,
    execs: BTreeMap<u64, Exec>,
    orphans: BTreeMap<i32, Watched<OwnedFd>>,
    connections: BTreeMap<u64, Connection>,
    /// Spawned, and told what to be once it is on disk that they are there.
    fresh: Vec<Who>,
    /// Answers that wait for the disk: connection, number, answer.
    answers: Vec<(u64, u64, Answer)>,
    changed: bool,
    retry: Option<Instant>,
    idle_since: Option<Instant>,
    /// Who wants it to leave, and when it becomes impatient.
    stopping: Option<(u64, u64, Instant)>,
    /// The next program, see [`handover`].
    successor: Option<PathBuf>,
    buffer: Vec<u8>,
}

const USAGE: &str = "\
The keeper of an edge's containers (--runtime process). The edge starts it by itself.

Usage: selvedge keeper DIR           Be the keeper in this directory, which is <data-dir>/keeper of an edge
       selvedge keeper DIR --stop    End the keeper that is there and all its containers
";

/// `selvedge keeper DIR`. With `--again` it is the next program of a keeper that was there before; with `--stop` it ends the one that is there, and
/// all containers with it.
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.collect();
    let words: Vec<&str> = args.iter().map(|arg| arg.to_str().unwrap_or_default()).collect();
    let dir = match words.as_slice() {
        [.., "--help" | "-h"] => return crate::usage(USAGE, None),
        [] => return crate::usage(USAGE, Some("the keeper's directory is missing")),
        [dir, ..] if dir.starts_with('-') => return crate::usage(USAGE, Some("the first argument is a directory")),
        [_] | [_, "--again" | "--stop"] => std::path::absolute(&args[0]),
        _ => return crate::usage(USAGE, Some("only --stop may follow the directory")),
    };
    // It reaps its children, which an ignored SIGCHLD would keep it from.
    resident::reset_signals();
    // What was open in the agent's shell is nothing to containers.
    if let Err(error) = resident::keep_files_from_children() {
        say(&format!("containers may inherit open files of the keeper: {error}"));
    }
    let done = dir.and_then(|dir| match words.get(1) {
        Some(&"--again") => handover::take_over(&dir).and_then(Keeper::run),
        Some(&"--stop") => stop::stop(&dir).and_then(|done| writeln!(io::stdout(), "{done}")),
        _ => begin(&dir).and_then(Keeper::run),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if words.get(1) == Some(&"--stop") => {
            let _ = writeln!(io::stderr(), "selvedge: {error}");
            ExitCode::FAILURE
        }
        Err(error) => {
            say(&format!("the keeper in {} cannot go on: {error}", args[0].display()));
            ExitCode::FAILURE
        }
    }
}

/// Into its log, which is its stderr.
fn say(text: &str) {
    let _ = writeln!(io::stderr(), "{} {text}", crate::logs::now());
}

fn begin(dir: &Path) -> io::Result<Keeper> {
    let keeper = take_place(dir)?;
    // The process that started the keeper waits for this line.
    let _ = io::stdout().write_all(LISTENING).and_then(|()| io::stdout().flush());
    if let Ok(null) = OpenOptions::new().write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(null);
    }
    Ok(keeper)
}

/// Becomes the keeper of a directory, and ends what another one left there.
fn take_place(dir: &Path) -> io::Result<Keeper> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let mut lock = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(dir.join(LOCK))?;
    // One that was just killed closes its files one after the other.
    let until = Instant::now() + LOCKED;
    while lock.try_lock().is_err() {
        if Instant::now() > until {
            let (pid, shown) = (stop::said_pid(dir), dir.display());
            return Err(io::Error::other(format!(
                "another keeper (pid {pid}) is there and does not answer at {shown}/{SOCKET}. \
                 `selvedge keeper {shown} --stop` ends it with its containers; the edge then starts both anew"
            )));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    lock.set_len(0)?;
    // For people and for tests: whom to look at.
    writeln!(lock, "{}", std::process::id())?;
    let _ = rustix::process::setsid();
    let mut place = Place::new(dir, lock)?;
    let listener = place.listen()?;
    let groups = Groups::find(&group_name(dir));
    groups.remove_left();
    let mut keeper = Keeper::new(dir, place, listener, groups)?;
    keeper.end_what_was_left();
    keeper.journal.commit()?;
    Ok(keeper)
}

/// A process of its own finds out, because there is no way back from namespaces.
fn may_have_views(dir: &Path) -> bool {
    let tried = Command::new("/proc/self/exe").arg0("selvedge").arg("try-view").arg(dir).stdin(Stdio::null()).status();
    tried.is_ok_and(|status| status.success())
}

impl Keeper {
    fn new(dir: &Path, place: Place, listener: UnixListener, groups: Groups) -> io::Result<Self> {
        std::env::set_current_dir("/")?;
        let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
        let _ = rustix::thread::set_name(NAME);
        listener.set_nonblocking(true)?;
        let limit = rustix::process::getrlimit(Resource::Nofile);
        let _ = rustix::process::setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut keeper = Self {
            dir: dir.to_owned(),
            place,
            // The number 0 is nothing else's.
            listener: Watched { file: listener, token: 0 },
            directory: None,
            epoll,
            sources: BTreeMap::new(),
            last: 0,
            journal: Journal::open(&dir.join(STATE))?,
            groups,
            views: may_have_views(dir),
            rules: Rules::default(),
            boot: tree::boot(),
            // Who was started by a keeper with the larger limit would not know the smaller one.
            files: files::of_containers(std::env::var(files::VARIABLE).ok().as_deref(), limit.current),
            live: BTreeMap::new(),
            execs: BTreeMap::new(),
            orphans: BTreeMap::new(),
            connections: BTreeMap::new(),
            fresh: Vec::new(),
            answers: Vec::new(),
            changed: false,
            retry: None,
            idle_since: Some(Instant::now()),
            stopping: None,
            successor: None,
            buffer: vec![0; 16 << 10],
        };
        epoll::add(&keeper.epoll, &keeper.listener.file, EventData::new_u64(0), EventFlags::IN)?;
        keeper.sources.insert(0, Source::Listener);
        let watcher = keeper.place.watch();
        match watcher.and_then(|watcher| keeper.watch(watcher, Source::Directory, EventFlags::IN)) {
            Ok(watcher) => keeper.directory = Some(watcher),
            Err(error) => say(&format!("if its socket is removed, it is not made anew: {error}")),
        }
        Ok(keeper)
    }

    fn run(mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(64);
        loop {
            let timeout = self.next_deadline().map(|at| {
                let left = at.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
                rustix::event::Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() }
            });
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in events.drain(..) {
                let token = event.data.u64();
                self.ready(token);
            }
            self.pass_deadlines();
            self.commit();
            self.flush();
            if let Some(program) = self.successor.take() {
                self.hand_over(&program);
            }
            if self.is_done() {
                return Ok(());
            }
        }
    }

    fn ready(&mut self, token: u64) {
        match self.sources.get(&token).cloned() {
            None => {}
            Some(Source::Listener) => self.accept(),
            Some(Source::Directory) => self.look_after_socket(),
            Some(Source::Connection(number)) => self.hear(number),
            Some(Source::Output(id, stream)) => _ = self.read_output(&id, stream),
            Some(Source::Stdin(id)) => self.feed(&id),
            Some(Source::Handshake(who)) => self.shake(&who),
            Some(Source::Process(who)) => self.ended(&who),
            Some(Source::Orphan(pid)) => self.bury(pid),
        }
    }

    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn watch<T: AsFd>(&mut self, file: T, source: Source, flags: EventFlags) -> io::Result<Watched<T>> {
        let token = self.number();
        epoll::add(&self.epoll, &file, EventData::new_u64(token), flags)?;
        self.sources.insert(token, source);
        Ok(Watched { file, token })
    }

    fn unwatch<T: AsFd>(&mut self, watched: Watched<T>) -> T {
        let _ = epoll::delete(&self.epoll, &watched.file);
        self.sources.remove(&watched.token);
        watched.file
    }

    /// What happened goes to disk, all of it at once; then those are told who wait for it.
    fn commit(&mut self) {
        let result = self.journal.commit();
        let error = result.err().map(|error| error.to_string());
        self.retry = error.is_some().then(|| Instant::now() + AGAIN);
        for (connection, number, mut answer) in std::mem::take(&mut self.answers) {
            if let Some(error) = &error {
                answer = failed("RunContainerError", format!("the keeper cannot write its state: {error}"));
            }
            self.answer(connection, number, answer);
        }
        for who in std::mem::take(&mut self.fresh) {
            match &error {
                None => self.release(&who),
                Some(error) => self.give_up(&who, &format!("the keeper cannot write its state: {error}")),
            }
        }
        if std::mem::take(&mut self.changed) {
            self.tell_watchers();
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        let draining = self.live.values().filter_map(Live::deadline);
        let idle = self.idle_since.map(|since| since + IDLE);
        let stop = self.stopping.map(|(_, _, until)| until);
        draining.chain(idle).chain(stop).chain(self.retry).min()
    }

    fn pass_deadlines(&mut self) {
        let now = Instant::now();
        let late: Vec<ContainerId> = self
            .live
            .iter()
            .filter(|(_, live)| live.deadline().is_some_and(|at| at <= now))
            .map(|(id, _)| id.clone())
            .collect();
        late.iter().for_each(|id| self.finish(id));
        if let Some((_, _, until)) = &mut self.stopping
            && *until <= now
        {
            *until = now + GRACE;
            self.live.values().for_each(Live::end);
        }
        let is_idle = self.live.is_empty() && self.execs.is_empty() && self.connections.is_empty();
        self.idle_since = is_idle.then(|| self.idle_since.unwrap_or(now));
    }

    /// Whether there is nothing left to stay for.
    fn is_done(&mut self) -> bool {
        let stopped = match self.stopping {
            Some((connection, number, _)) if self.live.is_empty() && self.execs.is_empty() => {
                self.answer(connection, number, Answer::Done);
                self.flush();
                true
            }
            _ => false,
        };
        let idle = self.idle_since.is_some_and(|since| since.elapsed() >= IDLE);
        if stopped || idle {
            self.leave();
        }
        stopped || idle
    }

    fn leave(&self) {
        self.place.leave();
        self.groups.remove();
    }

    /// Something was removed from the directory. Without its socket nobody could ask it anything any more.
    fn look_after_socket(&mut self) {
        let Some(directory) = &self.directory else { return };
        while rustix::io::read(&directory.file, &mut self.buffer).is_ok_and(|count| count > 0) {}
        self.check_socket();
    }

    fn check_socket(&mut self) {
        match self.place.check() {
            Ok(Socket::Kept) => {}
            Ok(Socket::Anew(listener)) => match self.watch(listener, Source::Listener, EventFlags::IN) {
                Ok(watched) => {
                    let before = std::mem::replace(&mut self.listener, watched);
                    self.unwatch(before);
                    say("its socket was removed; it is there again");
                }
                Err(error) => say(&format!("its socket was removed and cannot be made anew: {error}")),
            },
            Ok(Socket::Lost(why)) => say(&format!("nobody can reach this keeper any more: {why}")),
            Err(error) => say(&format!("its socket was removed and cannot be made anew: {error}")),
        }
    }
}

fn failed(reason: &str, message: impl Into<String>) -> Answer {
    Answer::Failed { reason: reason.to_owned(), message: message.into() }
}

/// One of this directory's own, the same for every keeper in it. It goes with the directory when that is moved: at the
/// old path there may be another edge.
fn group_name(dir: &Path) -> String {
    let name = |found: fs::Metadata| format!("selvedge-{:x}-{:x}", found.dev(), found.ino());
    fs::metadata(dir).map_or_else(|_| "selvedge-unknown".to_owned(), name)
}
