//! Waits until something is written to a log, or its files change.

use std::{io, path::Path, time::Duration};

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use tokio::net::unix::pipe::Receiver;

/// Where the system gives no notice (it has none left, or the directory is not there yet), it is looked so often.
const LOOK: Duration = Duration::from_millis(200);

/// The directory is watched and not the file: a file that is begun is another one. Events are read as from a pipe.
pub struct Notice(Option<Receiver>);

impl Notice {
    pub fn of(log: &Path) -> Self {
        let watched = log.parent().ok_or(io::ErrorKind::NotFound.into()).and_then(watch);
        let watched = watched.inspect_err(|error| tracing::debug!(%error, log = %log.display(), "no notice of a log"));
        Self(watched.ok())
    }

    /// Comes back when something was written since it did so last.
    pub async fn written(&self) {
        let Some(watched) = &self.0 else { return tokio::time::sleep(LOOK).await };
        let mut events = [0; 4096];
        loop {
            if watched.readable().await.is_err() {
                return tokio::time::sleep(LOOK).await;
            }
            match watched.try_read(&mut events) {
                Ok(_) => return,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return tokio::time::sleep(LOOK).await,
            }
        }
    }
}

fn watch(directory: &Path) -> io::Result<Receiver> {
    let watched = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
    inotify::add_watch(&watched, directory, WatchFlags::MODIFY | WatchFlags::CREATE | WatchFlags::MOVED_TO)?;
    Receiver::from_owned_fd_unchecked(watched)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn notices_what_is_written_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("0.log");
        std::fs::write(&log, "a").unwrap();
        let notice = Notice::of(&log);
        assert!(notice.0.is_some());
        let soon = Duration::from_millis(50);
        for _ in 0..2 {
            assert!(tokio::time::timeout(soon, notice.written()).await.is_err(), "nothing was written");
            std::fs::write(&log, "b").unwrap();
            tokio::time::timeout(Duration::from_secs(10), notice.written()).await.unwrap();
        }
        std::fs::rename(&log, dir.path().join("0.log.1")).unwrap();
        std::fs::write(&log, "c").unwrap();
        tokio::time::timeout(Duration::from_secs(10), notice.written()).await.unwrap();
        // Without a directory it still goes on.
        Notice::of(&dir.path().join("none/0.log")).written().await;
    }
}
