//! Into namespaces: new ones for a container, and those of a container for a command that joins it.

use std::{fs, os::fd::BorrowedFd, path::Path, process::ExitCode};

use pods::runtime::Mount;
use rustix::{
    mount::{MountFlags, MountPropagationFlags, mount, mount_change},
    thread::{ThreadNameSpaceType, UnshareFlags, move_into_thread_name_spaces},
};

use super::{Identity, View, build::build};

/// How we came to be where we may mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// By being root: whoever the container is to be is still to be assumed.
    Root,
    /// In a user namespace, where we are whoever the container is to be already.
    Mapped,
}

/// Makes the namespaces of a container.
pub fn start(view: &View, mounts: &[Mount]) -> Result<Way, String> {
    let way = separate(&view.user).map_err(|error| format!("cannot have namespaces of its own: {error}"))?;
    build(view, mounts)?;
    if !view.hostname.is_empty() {
        // Others' programs may ask for it; nothing of ours depends on it.
        let _ = rustix::system::sethostname(view.hostname.as_bytes());
    }
    Ok(way)
}

/// Goes where the process is.
pub fn join(process: BorrowedFd<'_>) -> Result<Way, String> {
    let both = ThreadNameSpaceType::MOUNT | ThreadNameSpaceType::HOST_NAME_AND_NIS_DOMAIN_NAME;
    let mapped = move_into_thread_name_spaces(process, both | ThreadNameSpaceType::USER).map(|()| Way::Mapped);
    // Nobody can enter the user namespace that it is in.
    let joined = mapped.or_else(|_| move_into_thread_name_spaces(process, both).map(|()| Way::Root));
    joined.map_err(|error| format!("cannot enter the container: {error}"))
}

/// Whether containers can have namespaces here, by doing all that needs a right. To be called in a process of its own.
pub fn try_it(dir: &Path) -> ExitCode {
    let tried = separate(&Identity::default()).is_ok()
        && mount("selvedge", dir, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, None).is_ok();
    if tried { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn separate(identity: &Identity) -> std::io::Result<Way> {
    let both = UnshareFlags::NEWNS | UnshareFlags::NEWUTS;
    let way = match unshare(both) {
        Ok(()) => Way::Root,
        Err(_) => {
            let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
            unshare(both | UnshareFlags::NEWUSER)?;
            fs::write("/proc/self/setgroups", "deny")?;
            fs::write("/proc/self/uid_map", format!("{} {user} 1", identity.user.unwrap_or(user)))?;
            fs::write("/proc/self/gid_map", format!("{} {group} 1", identity.group.unwrap_or(group)))?;
            Way::Mapped
        }
    };
    // What the machine mounts and unmounts later is seen, and what is mounted here is not seen elsewhere.
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?;
    Ok(way)
}

#[expect(deprecated, reason = "it is unsound with open files of its own only, and none are asked for")]
fn unshare(flags: UnshareFlags) -> rustix::io::Result<()> {
    rustix::thread::unshare(flags)
}
