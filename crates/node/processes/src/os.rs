//! Signals and files of the operating system that agent and keeper both need.

use std::{fs::OpenOptions, io, os::fd::OwnedFd};

use rustix::process::{Pid, Signal};

pub fn null() -> io::Result<OwnedFd> {
    Ok(OpenOptions::new().read(true).write(true).open("/dev/null")?.into())
}

pub fn signal(pid: i32, signal: Signal) {
    // Never 0 or below: that would be all processes.
    if let Some(pid) = Pid::from_raw(pid).filter(|pid| pid.as_raw_nonzero().get() > 1) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

pub fn kill(pid: i32) {
    signal(pid, Signal::KILL);
}
