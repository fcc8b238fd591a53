//! `selvedge keeper DIR --stop`: ends the keeper that is in a directory, and all its containers.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    time::{Duration, Instant},
};

use super::{
    kill,
    place::{self, LOCK},
};
use crate::{
    agent::launch,
    protocol::{Answer, Answered, Asked, Frames, Request, json},
};

/// The keeper kills what does not end by itself after two seconds; a system that is busy takes longer.
const LIMIT: Duration = Duration::from_secs(60);
/// How long a killed keeper is waited for.
const KILLED: Duration = Duration::from_secs(10);

/// Comes back when the keeper is gone, and says what was done.
pub fn stop(dir: &Path) -> io::Result<String> {
    let shown = dir.display();
    if let Ok(stream) = launch::connect(dir) {
        let pid = said_pid(dir);
        let containers = ask_to_stop(stream)?;
        return Ok(format!("stopped the keeper in {shown} (pid {pid}), and {containers} containers with it"));
    }
    let lock = match OpenOptions::new().write(true).open(dir.join(LOCK)) {
        Ok(lock) => lock,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let below = dir.join("keeper");
            if below.join(LOCK).exists() {
                let message = format!("{shown} is no keeper's directory: say {}", below.display());
                return Err(io::Error::other(message));
            }
            return Ok(format!("there is no keeper in {shown}: nothing was stopped"));
        }
        Err(error) => return Err(io::Error::new(error.kind(), format!("{shown}/{LOCK}: {error}"))),
    };
    if lock.try_lock().is_ok() {
        return Ok(format!("no keeper runs in {shown}: nothing was stopped"));
    }
    kill_keeper(dir, &lock)
}

/// A keeper whose socket is gone cannot be asked. Its containers end with it.
fn kill_keeper(dir: &Path, lock: &File) -> io::Result<String> {
    let shown = dir.display();
    let Some(pid) = place::holder(lock) else {
        let message = format!(
            "a keeper has locked {shown}, but none can be found among the processes that this user may see (its lock \
             says pid {}): nothing was stopped. Try as the user that the edge runs as",
            said_pid(dir)
        );
        return Err(io::Error::other(message));
    };
    kill(pid);
    let until = Instant::now() + KILLED;
    while lock.try_lock().is_err() {
        if Instant::now() > until {
            return Err(io::Error::other(format!("the keeper in {shown} (pid {pid}) cannot be killed")));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let _ = lock.unlock();
    // What its containers left behind is ended as after any keeper that was killed.
    super::take_place(dir)?.leave();
    Ok(format!("killed the keeper in {shown} (pid {pid}), which had no socket any more, and its containers with it"))
}

/// The pid that a keeper writes into its lock.
pub fn said_pid(dir: &Path) -> String {
    let said = fs::read_to_string(dir.join(LOCK)).unwrap_or_default();
    if said.trim().is_empty() { "unknown".to_owned() } else { said.trim().to_owned() }
}

/// How many containers ran.
fn ask_to_stop(mut stream: UnixStream) -> io::Result<usize> {
    let until = Instant::now() + LIMIT;
    stream.write_all(&json(&Asked { number: 1, ask: Request::List }))?;
    stream.write_all(&json(&Asked { number: 2, ask: Request::Stop }))?;
    let (mut frames, mut buffer, mut running) = (Frames::default(), vec![0; 64 << 10], 0);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::other(format!("it has not ended after {} s", LIMIT.as_secs())));
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(running),
            Ok(count) => frames.push(&buffer[..count]),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            // It may leave before it has read everything.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(running),
            Err(error) => return Err(error),
        }
        while let Some(frame) = frames.next().map_err(io::Error::other)? {
            match serde_json::from_slice::<Answered>(&frame.bytes).map(|answered| answered.answer) {
                Ok(Answer::Containers(all)) => running = all.iter().filter(|one| one.exit.is_none()).count(),
                Ok(Answer::Failed { message, .. }) => return Err(io::Error::other(message)),
                _ => {}
            }
        }
    }
}
