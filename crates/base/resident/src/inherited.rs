//! What a process inherits from the program that started it, and must not pass on: ignored and blocked signals, and
//! open files.

use std::{fs, io};

/// The kernel has 64 signals, and its sets of signals have a bit for each.
const SIGNALS: libc::c_long = 64;
const SET_BYTES: libc::c_long = 8;

/// What the kernel knows of a signal: how it is handled, and more, which is all zero for the default action. Larger
/// than it is on any platform.
type Action = [usize; 8];

/// Gives every ignored signal its default action and unblocks all signals. Has to be called before other threads start.
///
/// SIGPIPE stays ignored: every Rust program starts with that, and `std::process::Command` gives it its default
/// action in what it starts.
/// Handlers stay too, because the kernel removes them when another program is executed.
pub fn reset_signals() {
    for signal in (1..=SIGNALS).filter(|signal| *signal != libc::c_long::from(libc::SIGPIPE)) {
        let (mut known, default): (Action, Action) = ([0; 8], [0; 8]);
        let nothing = std::ptr::null_mut::<Action>();
        // Not by the C library's function: that refuses two signals that the library needs itself, and ignores in
        // whatever it spawns.
        // SAFETY: the kernel writes what it knows of the signal into `known`, which has room for it.
        let found = unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, nothing, &raw mut known, SET_BYTES) };
        if found == 0 && known[0] == libc::SIG_IGN {
            // SAFETY: the kernel reads `default`, which is as large as it expects. The default action runs no code of
            // this program.
            unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, &raw const default, nothing, SET_BYTES) };
        }
    }
    // SAFETY: the set is initialised by `sigemptyset` before it is read. Only the mask of this thread is changed.
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

/// Marks every open file but stdin, stdout and stderr, so that no program that is executed from now on inherits it.
pub fn keep_files_from_children() -> io::Result<()> {
    for entry in fs::read_dir("/proc/self/fd")? {
        let number: Option<i32> = entry?.file_name().to_str().and_then(|name| name.parse().ok());
        if let Some(number) = number.filter(|number| *number > libc::STDERR_FILENO) {
            // SAFETY: sets a flag of the file. The file stays open, and a number that is not open (any more) is only
            // an error.
            unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{os::fd::AsRawFd, process::Command};

    use super::*;

    /// The signals that this thread ignores, and those that it blocks.
    fn signals() -> (u64, u64) {
        let status = fs::read_to_string("/proc/thread-self/status").unwrap();
        let of = |name: &str| {
            let found = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            u64::from_str_radix(found.trim(), 16).unwrap()
        };
        (of("SigIgn:"), of("SigBlk:"))
    }

    /// The files that a program has open that is started now.
    fn files_of_child() -> Vec<i32> {
        let output = Command::new("ls").arg("/proc/self/fd").output().unwrap();
        String::from_utf8(output.stdout).unwrap().lines().filter_map(|line| line.parse().ok()).collect()
    }

    #[test]
    fn nothing_is_passed_on() {
        let file = fs::File::open("/dev/null").unwrap();
        // SAFETY: these ignore and block signals that this test does not use, and open a file under a number that
        // nothing else uses.
        unsafe {
            libc::signal(libc::SIGUSR2, libc::SIG_IGN);
            let mut some: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut some);
            libc::sigaddset(&raw mut some, libc::SIGUSR1);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const some, std::ptr::null_mut());
            libc::dup2(file.as_raw_fd(), 207);
        }
        let bit = |signal: i32| 1 << (signal - 1);
        let (ignored, blocked) = signals();
        assert!(ignored & bit(libc::SIGUSR2) != 0 && blocked & bit(libc::SIGUSR1) != 0);
        assert!(files_of_child().contains(&207));
        reset_signals();
        keep_files_from_children().unwrap();
        assert_eq!(signals(), (bit(libc::SIGPIPE), 0));
        // The one beyond the first three is the directory that `ls` reads.
        let files = files_of_child();
        assert!(files.len() <= 4 && !files.contains(&207), "{files:?}");
        // SAFETY: nothing else uses this number.
        unsafe { libc::close(207) };
    }
}
