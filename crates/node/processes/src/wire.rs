//! Bytes and open files over a unix socket, and where the socket is.

use std::{
    fs::File,
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
};

use rustix::{
    cmsg_space,
    fs::{Mode, OFlags},
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
        recvmsg, sendmsg,
    },
};

/// As many files as ever go with one message.
pub const FILES: usize = 64;

/// How much of `bytes` went out; the files went with the first byte.
pub fn send(socket: impl AsFd, bytes: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(FILES))];
    let mut with = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !with.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(io::Error::other("too many files for one message"));
    }
    Ok(sendmsg(socket, &[IoSlice::new(bytes)], &mut with, SendFlags::NOSIGNAL)?)
}

/// No bytes: the other side has closed.
pub fn receive(socket: impl AsFd, buffer: &mut [u8], files: &mut Vec<OwnedFd>) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(FILES))];
    let mut with = RecvAncillaryBuffer::new(&mut space);
    let got = recvmsg(socket, &mut [IoSliceMut::new(buffer)], &mut with, RecvFlags::CMSG_CLOEXEC)?;
    for message in with.drain() {
        if let RecvAncillaryMessage::ScmRights(found) = message {
            files.extend(found);
        }
    }
    Ok(got.bytes)
}

/// A file's name that is short whatever the directory is called: the path of a socket has room for a hundred bytes.
pub struct Short {
    directory: File,
    name: &'static str,
}

impl Short {
    pub fn new(directory: &Path, name: &'static str) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self { directory: File::from(rustix::fs::open(directory, flags, Mode::empty())?), name })
    }

    /// Good as long as this is there.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{}", self.directory.as_raw_fd(), self.name))
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        os::unix::net::{UnixListener, UnixStream},
    };

    use super::*;

    #[test]
    fn files_arrive() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (mut read, write) = std::io::pipe().unwrap();
        assert_eq!(send(&ours, b"take this", &[write.as_fd()]).unwrap(), 9);
        drop((write, ours));
        let (mut buffer, mut files) = ([0; 64], Vec::new());
        assert_eq!(receive(&theirs, &mut buffer, &mut files).unwrap(), 9);
        assert_eq!(files.len(), 1);
        File::from(files.remove(0)).write_all(b"through").unwrap();
        let mut text = String::new();
        read.read_to_string(&mut text).unwrap();
        assert_eq!(text, "through");
        assert_eq!(receive(&theirs, &mut buffer, &mut files).unwrap(), 0);
    }

    #[test]
    fn a_socket_in_a_directory_with_a_very_long_name() {
        let dir = tempfile::tempdir().unwrap();
        let long = dir.path().join("x".repeat(200));
        std::fs::create_dir(&long).unwrap();
        let short = Short::new(&long, "socket").unwrap();
        let _listener = UnixListener::bind(short.path()).unwrap();
        assert!(long.join("socket").exists());
        UnixStream::connect(short.path()).unwrap();
    }
}
