//! What a container sees of this machine: all of it, but for what it mounts and what it is called.
//!
//! Each has a mount namespace of its own, in which its volumes are where they say. Nothing is made on the machine for that: a directory that
//! lacks a mount point is put together anew in memory, from everything that was in it. Root needs no more; anybody else gets the right to
//! mount in a user namespace, in which there is nobody but itself. Where neither is permitted, mounts are links ([`crate::root`]).

mod build;
mod enter;
mod plan;
mod user;

pub use enter::{Way, join, start, try_it};
pub use user::Identity;

use std::path::{Component, Path, PathBuf};

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
