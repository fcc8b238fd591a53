//! Where a keeper is: its directory, the lock that makes it the only keeper there, and its socket.
//!
//! The directory can be moved while the keeper runs, and another edge can then use the old path. So the directory is
//! held open, and the socket is known by its inode: a keeper never removes the socket of another one.

use std::{
    fs::{self, File},
    io,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::{
            fs::{MetadataExt, PermissionsExt},
            net::UnixListener,
        },
    },
    path::{Path, PathBuf},
};

use rustix::fs::{AtFlags, Mode, OFlags, inotify};
use serde::{Deserialize, Serialize};

use super::SOCKET;
use crate::tree;

pub const LOCK: &str = "lock";

/// One file, whatever it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inode {
    device: u64,
    number: u64,
}

impl Inode {
    pub fn of(file: &File) -> io::Result<Self> {
        file.metadata().map(|found| Self { device: found.dev(), number: found.ino() })
    }

    fn at(directory: impl AsFd, name: &str) -> Option<Self> {
        let found = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some(Self { device: found.st_dev, number: found.st_ino })
    }
}

pub struct Place {
    directory: OwnedFd,
    /// Held as long as this is the keeper.
    pub lock: File,
    /// The socket that this keeper has made.
    socket: Option<Inode>,
}

/// What became of the socket.
#[derive(Debug)]
pub enum Socket {
    /// It is there.
    Kept,
    /// It was gone, and this is a new one.
    Anew(UnixListener),
    /// It is gone and may not be made anew.
    Lost(&'static str),
}

impl Place {
    pub fn new(dir: &Path, lock: File) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self { directory: rustix::fs::open(dir, flags, Mode::empty())?, lock, socket: None })
    }

    /// The socket of a keeper that this one goes on for. A keeper of an earlier version does not say which it is.
    pub fn adopt(&mut self, socket: Option<Inode>) {
        self.socket = socket.or_else(|| Inode::at(&self.directory, SOCKET).filter(|_| self.is_ours()));
    }

    pub fn socket(&self) -> Option<Inode> {
        self.socket
    }

    /// Whether the lock in the directory is the one that is held. The directory's content may have been replaced.
    fn is_ours(&self) -> bool {
        Inode::of(&self.lock).is_ok_and(|ours| Inode::at(&self.directory, LOCK) == Some(ours))
    }

    /// Listens. Only the keeper that holds the lock does, so what is there is left from one that has ended.
    pub fn listen(&mut self) -> io::Result<UnixListener> {
        let path = PathBuf::from(format!("/proc/self/fd/{}/{SOCKET}", self.directory.as_raw_fd()));
        let _ = fs::remove_file(&path);
        let listener = UnixListener::bind(&path)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        self.socket = Inode::at(&self.directory, SOCKET);
        Ok(listener)
    }

    /// Makes the socket anew if somebody has removed it.
    pub fn check(&mut self) -> io::Result<Socket> {
        match Inode::at(&self.directory, SOCKET) {
            Some(found) if Some(found) == self.socket => Ok(Socket::Kept),
            _ if !self.is_ours() => Ok(Socket::Lost("its directory was removed, or is another keeper's")),
            Some(_) => Ok(Socket::Lost("something else is in the place of its socket")),
            None => self.listen().map(Socket::Anew),
        }
    }

    /// Removes the socket if it is this keeper's own.
    pub fn leave(&self) {
        if self.socket.is_some() && Inode::at(&self.directory, SOCKET) == self.socket {
            let _ = rustix::fs::unlinkat(&self.directory, SOCKET, AtFlags::empty());
        }
    }

    /// Becomes readable when something is removed from the directory.
    pub fn watch(&self) -> io::Result<OwnedFd> {
        let watcher = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
        let flags = inotify::WatchFlags::DELETE | inotify::WatchFlags::MOVED_FROM | inotify::WatchFlags::ONLYDIR;
        inotify::add_watch(&watcher, format!("/proc/self/fd/{}", self.directory.as_raw_fd()), flags)?;
        Ok(watcher)
    }
}

/// The directory that the lock is in, wherever it was moved.
pub fn directory_of(lock: &File) -> Option<PathBuf> {
    let path = fs::read_link(format!("/proc/self/fd/{}", lock.as_raw_fd())).ok()?;
    let is_it = fs::metadata(&path)
        .is_ok_and(|found| lock.metadata().is_ok_and(|ours| (found.dev(), found.ino()) == (ours.dev(), ours.ino())));
    path.parent().filter(|_| is_it).map(Path::to_owned)
}

/// The process that has this lock file open, other than this one.
pub fn holder(lock: &File) -> Option<i32> {
    let wanted = lock.metadata().ok()?;
    let is_it = |pid: &i32| {
        let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        files
            .filter_map(|file| fs::metadata(file.path()).ok())
            .any(|found| (found.dev(), found.ino()) == (wanted.dev(), wanted.ino()))
    };
    let own = std::process::id() as i32;
    tree::all().into_iter().filter(|pid| *pid != own).find(is_it)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    fn place(dir: &Path) -> Place {
        fs::create_dir_all(dir).unwrap();
        Place::new(dir, File::create(dir.join(LOCK)).unwrap()).unwrap()
    }

    #[test]
    fn a_keeper_leaves_the_socket_of_another_alone() {
        let dir = tempfile::tempdir().unwrap();
        let (here, aside) = (dir.path().join("keeper"), dir.path().join("aside"));
        let mut old = place(&here);
        let _listener = old.listen().unwrap();
        fs::rename(&here, &aside).unwrap();
        assert_eq!(directory_of(&old.lock).as_deref(), Some(&*aside));
        let mut new = place(&here);
        let _other = new.listen().unwrap();
        old.leave();
        assert!(here.join(SOCKET).exists() && !aside.join(SOCKET).exists());
        // The same in one directory: what is there is not the socket that was made.
        let _listener = old.listen().unwrap();
        fs::remove_file(aside.join(SOCKET)).unwrap();
        fs::write(aside.join(SOCKET), "").unwrap();
        old.leave();
        assert!(aside.join(SOCKET).exists());
        assert!(matches!(old.check(), Ok(Socket::Lost(_))));
    }

    #[test]
    fn a_socket_that_was_removed_is_made_anew_where_that_is_safe() {
        let dir = tempfile::tempdir().unwrap();
        let mut place = place(dir.path());
        let listener = place.listen().unwrap();
        assert!(matches!(place.check(), Ok(Socket::Kept)));
        drop(listener);
        fs::remove_file(dir.path().join(SOCKET)).unwrap();
        let Ok(Socket::Anew(_listener)) = place.check() else { panic!("it is not made anew") };
        UnixStream::connect(dir.path().join(SOCKET)).unwrap();
        // Somebody else has locked the directory meanwhile.
        fs::remove_file(dir.path().join(SOCKET)).unwrap();
        fs::remove_file(dir.path().join(LOCK)).unwrap();
        fs::write(dir.path().join(LOCK), "").unwrap();
        assert!(matches!(place.check(), Ok(Socket::Lost(_))));
        assert_eq!(directory_of(&place.lock), None);
        assert_eq!(holder(&place.lock), None);
    }
}
