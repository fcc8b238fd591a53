//! A node that is part of this process: requests that a kubelet would answer go to it without a socket.

use super::destination::Io;

pub trait Node: Send + Sync + 'static {
    /// That of its Node object.
    fn name(&self) -> &str;

    /// Somebody who speaks HTTP/1.1, with upgrades, at the other end: what a kubelet's port answers.
    fn connect(&self) -> Box<dyn Io>;
}
