//! Finding the keeper, and starting one where there is none.

use std::{
    fs::{self, OpenOptions},
    io::{self, Read},
    os::unix::{
        fs::{MetadataExt, OpenOptionsExt},
        net::UnixStream,
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::environment::PASSED;
use crate::{
    files,
    protocol::{LISTENING, SAID, SOCKET},
    wire::Short,
};

pub fn connect(dir: &Path) -> io::Result<UnixStream> {
    UnixStream::connect(Short::new(dir, SOCKET)?.path())
}

/// Which build this program is, whatever became of its file.
pub fn identity() -> String {
    let version = env!("CARGO_PKG_VERSION");
    match fs::metadata("/proc/self/exe") {
        Ok(file) => format!("{version} {}:{}:{}.{}", file.ino(), file.size(), file.mtime(), file.mtime_nsec()),
        Err(_) => version.to_owned(),
    }
}

/// Comes back when it listens. It is not ended with us: it has a session of its own.
pub fn launch(dir: &Path, program: Option<PathBuf>) -> Result<(), String> {
    let log = dir.join(SAID);
    let errors = OpenOptions::new().create(true).append(true).mode(0o600).open(&log);
    let errors = errors.map_err(|error| format!("{}: {error}", log.display()))?;
    let _ = errors.set_len(0);
    let program = program.unwrap_or_else(|| "/proc/self/exe".into());
    // Files of the shell that started the agent would stay open as long as the keeper lives.
    if let Err(error) = resident::keep_files_from_children() {
        tracing::warn!(%error, "the keeper of containers may inherit open files of the agent");
    }
    let mut child = Command::new(&program)
        .arg0("selvedge")
        .arg("keeper")
        .arg(dir)
        .env_clear()
        .envs(files::to_pass_on().map(|limit| (files::VARIABLE, limit)))
        .envs(PASSED.iter().filter_map(|name| Some((name, std::env::var_os(name)?))))
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::from(errors))
        .spawn()
        .map_err(|error| format!("{}: {error}", program.display()))?;
    let mut said = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        let _ = stdout.take(LISTENING.len() as u64).read_to_end(&mut said);
    }
    // Somebody has to see its end, and that is its parent while there is one.
    let waiting =
        tasks::spawn_thread_with("keeper", std::thread::Builder::new().stack_size(64 << 10), move || child.wait());
    if said == LISTENING {
        return Ok(());
    }
    if let Ok(waiting) = waiting {
        let _ = waiting.join();
    }
    let text = fs::read_to_string(&log).unwrap_or_default();
    Err(text.lines().last().unwrap_or("it said nothing").to_owned())
}
