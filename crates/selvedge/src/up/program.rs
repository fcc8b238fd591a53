//! One process of `selvedge up`: started, listened to, started again when it dies, ended when told.
//!
//! We hold the other end of its standard input. Closing it says "stop"; and should we die ourselves it closes too, so
//! nothing is ever left running behind us.

use std::{
    fs::{File, OpenOptions},
    io::{BufRead, BufReader, Read, Write},
    net::SocketAddr,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context, Result, anyhow, bail};

use super::words;
use crate::{cli::say, stop::HELD};

const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Who ran that long is not in a loop of dying.
const STEADY: Duration = Duration::from_secs(60);
/// Requests are finished and watches ended in this time, or not at all.
const END: Duration = Duration::from_secs(20);
/// A line of a log on the terminal is not longer.
const LINE: usize = 64 << 10;

/// The arguments besides the usual ones, looked up at every start.
pub type Arguments = Box<dyn Fn(&Path) -> Result<Vec<String>> + Send + Sync>;

pub struct Program {
    name: String,
    role: &'static str,
    width: usize,
    directory: PathBuf,
    arguments: Arguments,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    listen: SocketAddr,
    child: Option<Child>,
    stdin: Option<ChildStdin>,
    stopping: bool,
    /// When the kubeconfig was written that was there before the start.
    before: Option<SystemTime>,
    /// It has been ready once, so it will be again: no reason to give up.
    proven: bool,
    /// Why it is not running and will not be.
    over: Option<String>,
}

impl Program {
    pub fn start(
        name: &str,
        role: &'static str,
        width: usize,
        directory: PathBuf,
        listen: SocketAddr,
        arguments: Arguments,
    ) -> Result<Arc<Self>> {
        let state =
            State { listen, child: None, stdin: None, stopping: false, before: None, proven: false, over: None };
        let state = Mutex::new(state);
        let program = Self { name: name.to_owned(), role, width, directory, arguments, state, changed: Condvar::new() };
        let program = Arc::new(program);
        let kept = program.clone();
        let thread = std::thread::Builder::new().name(name.to_owned());
        thread.spawn(move || kept.keep_running()).with_context(|| format!("cannot start a thread for {name}"))?;
        Ok(program)
    }

    /// Waits until its API is ready, and says where that is.
    pub async fn ready(&self, patience: Duration) -> Result<String> {
        let since = Instant::now();
        loop {
            {
                let mut state = self.state();
                if let Some(why) = &state.over {
                    bail!("{} does not start: {why}", self.name);
                }
                if state.child.is_some()
                    && written(&self.kubeconfig()) != state.before
                    && let Some(address) = Address::read(&self.kubeconfig())
                {
                    // Who dies comes back at the same place, as others remember it.
                    state.listen = address.listening(state.listen);
                    state.proven = true;
                    return Ok(address.url);
                }
            }
            if since.elapsed() > patience {
                bail!("{} is not ready after {} s: see {}", self.name, patience.as_secs(), self.log().display());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub fn url(&self) -> Result<String> {
        let address = Address::read(&self.kubeconfig());
        Ok(address.with_context(|| format!("{} is not ready just now", self.name))?.url)
    }

    /// Says that it shall stop, and does not wait.
    pub fn let_go(&self) {
        let mut state = self.state();
        state.stopping = true;
        state.stdin = None;
        self.changed.notify_all();
    }

    /// Waits for its end, which will be soon.
    pub fn end(&self) {
        let since = Instant::now();
        let mut state = self.state();
        while state.over.is_none() {
            let left = END.saturating_sub(since.elapsed());
            if left.is_zero()
                && let Some(child) = &mut state.child
            {
                let _ = say(&self.line("does not stop, so it is killed"));
                let _ = child.kill();
            }
            let wait = left.max(Duration::from_secs(1));
            state = self.changed.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Ends what an edge has started and left running, if anything.
    pub fn end_containers(&self) {
        let keeper = self.directory.join("keeper");
        if keeper.exists()
            && let Ok(program) = std::env::current_exe()
        {
            let _ = Command::new(program).arg("keeper").arg(keeper).arg("--stop").stdin(Stdio::null()).output();
        }
    }

    fn keep_running(&self) {
        let mut pause = FIRST_PAUSE;
        let why = loop {
            let since = Instant::now();
            let ended = self.run_once();
            let mut state = self.state();
            if state.stopping {
                break "it was told to stop".to_owned();
            }
            let why = ended.unwrap_or_else(|error| format!("{error:#}"));
            if !state.proven {
                break why;
            }
            pause = if since.elapsed() > STEADY { FIRST_PAUSE } else { pause };
            let _ = say(&self.line(&format!("ended ({why}); started again in {:.1} s", pause.as_secs_f32())));
            let until = Instant::now() + pause;
            while !state.stopping && Instant::now() < until {
                let left = until.saturating_duration_since(Instant::now());
                state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
            }
            pause = LONGEST_PAUSE.min(pause * 2);
        };
        self.state().over = Some(why);
        self.changed.notify_all();
    }

    /// From start to end; says how it ended.
    fn run_once(&self) -> Result<String> {
        let arguments = (self.arguments)(&self.directory)?;
        // The file is the sign of readiness: an old one must not be taken for a new one. It may be somebody else's, so it stays.
        self.state().before = written(&self.kubeconfig());
        let mut log = OpenOptions::new().create(true).append(true).open(self.log());
        let (output, writer) = std::io::pipe()?;
        {
            let mut state = self.state();
            if state.stopping {
                return Ok("it was told to stop".into());
            }
            let program = std::env::current_exe().context("cannot find this program itself")?;
            let mut child = Command::new(program)
                .arg(self.role)
                .arg("--data-dir")
                .arg(&self.directory)
                .args(["--listen", &state.listen.to_string()])
                .args(arguments)
                .env(HELD, "1")
                .env("NO_COLOR", "1")
                .stdin(Stdio::piped())
                .stdout(writer.try_clone()?)
                .stderr(writer)
                // Ctrl-C is for us: we end the others, in order.
                .process_group(0)
                .spawn()
                .with_context(|| format!("cannot start {}", self.name))?;
            state.stdin = child.stdin.take();
            state.child = Some(child);
        }
        let last = self.listen_to(output, log.as_mut().ok());
        // Its output is closed, so it has ended or is about to.
        let child = self.state().child.take();
        let status = child.ok_or_else(|| anyhow!("it is gone"))?.wait()?;
        // Who ends in an orderly way has said why; who was killed has not.
        Ok(if status.code().is_some_and(|code| code != 0) && !last.is_empty() { last } else { status.to_string() })
    }

    /// Every line goes into the log, and shortened onto the terminal. The last one tells best why it ended.
    fn listen_to(&self, output: impl Read, mut log: Option<&mut File>) -> String {
        let mut output = BufReader::new(output);
        let (mut line, mut last) = (Vec::new(), String::new());
        while matches!(output.by_ref().take(LINE as u64).read_until(b'\n', &mut line), Ok(read) if read > 0) {
            if let Some(log) = &mut log {
                let _ = log.write_all(&line);
            }
            let text = String::from_utf8_lossy(&line);
            let plain = words::plain(text.trim_end());
            if !plain.is_empty() {
                let _ = say(&self.line(&words::short(plain)));
                last = plain.strip_prefix("selvedge: ").unwrap_or(plain).to_owned();
            }
            line.clear();
        }
        last
    }

    fn line(&self, text: &str) -> String {
        format!("{:width$} | {text}\n", self.name, width = self.width)
    }

    fn kubeconfig(&self) -> PathBuf {
        self.directory.join("admin.kubeconfig")
    }

    fn log(&self) -> PathBuf {
        self.directory.with_extension("log")
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn written(file: &Path) -> Option<SystemTime> {
    std::fs::metadata(file).and_then(|found| found.modified()).ok()
}

/// Where an API is, by the kubeconfig that it wrote.
pub struct Address {
    pub url: String,
    port: u16,
}

impl Address {
    pub fn read(kubeconfig: &Path) -> Option<Self> {
        let text = std::fs::read_to_string(kubeconfig).ok()?;
        let url = text.lines().find_map(|line| line.split_once("server: "))?.1.trim().trim_matches('"');
        let url = url.split("/clusters/").next().unwrap_or(url).trim_end_matches('/');
        let port = url.rsplit_once(':')?.1.parse().ok()?;
        Some(Self { url: url.to_owned(), port })
    }

    pub fn listening(&self, mut listen: SocketAddr) -> SocketAddr {
        listen.set_port(self.port);
        listen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_in_a_kubeconfig() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("admin.kubeconfig");
        assert!(Address::read(&path).is_none());
        for (line, url, port) in [
            ("    server: \"https://127.0.0.1:7001\"", "https://127.0.0.1:7001", 7001),
            ("    server: https://[::1]:7002/clusters/root:a", "https://[::1]:7002", 7002),
        ] {
            std::fs::write(&path, format!("clusters:\n- cluster:\n{line}\n")).unwrap();
            let address = Address::read(&path).unwrap();
            assert_eq!((&*address.url, address.port), (url, port));
            assert_eq!(address.listening(([0, 0, 0, 0], 0).into()), ([0, 0, 0, 0], port).into());
        }
    }
}
