//! What runs containers. The runner of pods asks for things; how they are done is the runtime's.
//!
//! A runtime outlives the agent: what it runs goes on while the agent is away, and [`Runtime::list`] tells an agent that comes back
//! what there is, what has ended meanwhile included. So every call can be repeated.

use std::{net::IpAddr, path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::{mpsc, oneshot},
};

/// One run of a container: the second one of the same container is another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ContainerId {
    /// The pod's uid.
    pub pod: String,
    /// The container's name in the pod.
    pub name: String,
    /// 0 for the first run, as `restartCount` counts.
    pub attempt: u32,
}

/// What to run, with everything resolved: no reference to any object is left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerSpec {
    pub id: ContainerId,
    /// Only so that people find it: `namespace/name` of the pod.
    pub pod: String,
    pub image: String,
    /// Instead of what the image starts, if not empty.
    pub command: Vec<String>,
    pub args: Vec<String>,
    pub env: Vec<(String, String)>,
    pub working_dir: Option<String>,
    pub mounts: Vec<Mount>,
    pub limits: Limits,
    /// The pod's address, if it has one of its own.
    pub address: Option<IpAddr>,
    /// Where stdout and stderr go, line by line as `<RFC 3339 with nanoseconds> <stdout|stderr> <F|P> <text>`. The runtime keeps it below a size, with
    /// what was before in `<path>.1`.
    pub log: PathBuf,
    pub tty: bool,
    /// Whether anything can be written to its stdin by attaching to it.
    pub stdin: bool,
    pub user: User,
    /// What the machine is called from within, where the runtime can do that.
    pub hostname: String,
    /// Programs that it executes gain no privileges, whatever their files say (`allowPrivilegeEscalation: false`).
    pub no_new_privileges: bool,
    pub capabilities: Capabilities,
    /// Other restrictions that it asks for, by the names of their fields. A runtime that does not hold them says so
    /// ([`Runtime::shortcomings`]).
    pub restrictions: Vec<String>,
}

/// What a container asks for beside what every container may, and without what.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capabilities {
    /// Names of capabilities, or `ALL`.
    pub add: Vec<String>,
    pub drop: Vec<String>,
    /// All of them, and it sees this machine as it is.
    pub privileged: bool,
}

/// As whom a container asks to run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    pub id: Option<u32>,
    pub group: Option<u32>,
    /// Those it has beside its own: the pod's supplemental ones, and that of its volumes.
    pub groups: Vec<u32>,
    /// Whoever it is, not root.
    pub is_not_root: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// A file or directory of this machine.
    pub from: PathBuf,
    /// Where the container sees it.
    pub at: String,
    pub read_only: bool,
}

/// Nothing means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    pub cpu_millis: Option<u64>,
    pub memory_bytes: Option<u64>,
    pub processes: Option<u64>,
}

/// A container that runs, or has ended and is not forgotten yet. Times are RFC 3339 in UTC.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Container {
    pub id: ContainerId,
    pub image: String,
    pub log: PathBuf,
    pub started_at: String,
    pub exit: Option<Exit>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// As a shell has it: 128 + signal for who was killed.
    pub code: i32,
    pub signal: Option<i32>,
    pub finished_at: String,
    /// It had more than its memory.
    pub out_of_memory: bool,
    /// What it wrote into its termination message file, if anything.
    pub message: String,
    /// It was made, but never began: `message` says why.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub never_began: bool,
}

/// The reason of a start that failed because of the container itself, such as a command that is not there: it counts as a run.
pub const NEVER_BEGAN: &str = "StartError";

/// Why something was not done, in the words that a container's status uses for it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}: {message}")]
pub struct Failure {
    /// `ErrImagePull`, `InvalidImageName`, `CreateContainerError`, `RunContainerError`…, or [`NEVER_BEGAN`].
    pub reason: &'static str,
    /// For people: what is wrong and what to do.
    pub message: String,
}

/// What was written by a command that has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    pub code: i32,
    /// Of both, cut at 16 KiB.
    pub text: Vec<u8>,
}

pub type Reader = Box<dyn AsyncRead + Send + Unpin>;
pub type Writer = Box<dyn AsyncWrite + Send + Unpin>;

/// A command that runs in a container, or the container itself, with somebody at its ends.
pub struct Attached {
    pub stdin: Option<Writer>,
    pub stdout: Option<Reader>,
    /// None with a terminal.
    pub stderr: Option<Reader>,
    /// Columns and rows.
    pub resize: Option<mpsc::Sender<(u16, u16)>>,
    /// Comes when it has ended; never for attaching to a container that goes on.
    pub exit: oneshot::Receiver<i32>,
}

/// What a container uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub id: Option<ContainerId>,
    /// Since its start.
    pub cpu_nanos: u64,
    pub memory_bytes: u64,
    pub processes: u64,
}

#[async_trait::async_trait]
pub trait Runtime: Send + Sync + 'static {
    /// As nodes show it: `process://0.1.0`.
    fn version(&self) -> String;

    /// Whether this image can be run here. The failure says what to do if not.
    async fn image(&self, image: &str) -> Result<(), Failure>;

    /// An address for a pod, the same as long as the pod is there. None: it has the node's.
    async fn address(&self, pod: &str) -> Result<Option<IpAddr>, Failure>;

    /// Starts a container, or finds that it was started already.
    async fn start(&self, container: ContainerSpec) -> Result<Container, Failure>;

    /// Sends a signal to the container's first process; SIGKILL to all of them.
    async fn signal(&self, id: &ContainerId, signal: i32) -> Result<(), Failure>;

    /// Forgets a container that has ended. Its log stays.
    async fn forget(&self, id: &ContainerId) -> Result<(), Failure>;

    /// Nothing of this pod is needed any more, its address included.
    async fn forget_pod(&self, pod: &str) -> Result<(), Failure>;

    /// All that run or have ended and were not forgotten.
    async fn list(&self) -> Result<Vec<Container>, Failure>;

    /// Waits until something may be different in [`Runtime::list`] than when this was called last.
    async fn changed(&self);

    /// Runs a command where the container runs. One that takes longer is killed, and the failure's reason is `DeadlineExceeded`.
    async fn exec(&self, id: &ContainerId, command: &[String], within: Duration) -> Result<Output, Failure>;

    /// Runs a command with somebody at its ends.
    async fn open(&self, id: &ContainerId, command: &[String], stdin: bool, tty: bool) -> Result<Attached, Failure>;

    /// Joins what the container reads and writes from now on.
    async fn attach(&self, id: &ContainerId, stdin: bool) -> Result<Attached, Failure>;

    async fn usage(&self) -> Result<Vec<Usage>, Failure>;

    /// What was not possible here, such as limits without control groups: said once per pod in an Event.
    fn shortcomings(&self, container: &ContainerSpec) -> Vec<String> {
        let _ = container;
        Vec::new()
    }
}
