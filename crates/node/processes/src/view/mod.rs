//! What a container sees of this machine: all of it, but for what it mounts and what it is called.
//!
//! Each has a mount namespace of its own, in which its volumes are where they say. Nothing is made on the machine for that: a directory that
//! lacks a mount point is put together anew in memory, from everything that was in it. Root needs no more; anybody else gets the right to
//! mount in a user namespace, in which there is nobody but itself. Where neither is permitted, mounts are links ([`crate::root`]).

mod build;
mod enter;
mod plan;
mod user;

pub use enter::{Way, join, start};
pub use user::Identity;

use std::{
    ffi::OsString,
    path::{Component, Path, PathBuf},
    process::ExitCode,
};

use serde::{Deserialize, Serialize};

/// What a container asks to see.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct View {
    /// An empty directory of its own, in which things are put together.
    pub stage: PathBuf,
    /// Absolute; is made if it is nowhere.
    pub working_dir: Option<PathBuf>,
    pub hostname: String,
    pub user: Identity,
    /// Directories of this machine that it does not see, but for its stage in one of them.
    #[serde(default)]
    pub hidden: Vec<PathBuf>,
}

/// Without `.`, `..` and whatever is not a name.
pub fn absolute(path: &Path) -> PathBuf {
    let mut found = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::Normal(name) => found.push(name),
            // As `..` of `/` is `/`.
            Component::ParentDir => _ = found.pop(),
            _ => {}
        }
    }
    found
}

const USAGE: &str = "\
Tells by its exit code whether containers can have namespaces of their own on this machine. The keeper of containers
runs it.

Usage: selvedge try-view DIR    DIR is there and is mounted over in a namespace of this process's own
";

/// `selvedge try-view DIR`.
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.collect();
    match args.as_slice() {
        [arg] if arg == "--help" || arg == "-h" => crate::usage(USAGE, None),
        [dir] if Path::new(dir).is_dir() => enter::try_it(Path::new(dir)),
        _ => crate::usage(USAGE, Some("a directory that is there has to be named, and nothing else")),
    }
}
