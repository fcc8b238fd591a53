//! What the agent and the keeper say to each other: frames of JSON with a number that an answer repeats, and frames of bytes for those who
//! attach. The keeper may be older than the agent, so fields and requests are only ever added.

use std::{net::Ipv4Addr, path::PathBuf};

use pods::runtime::{Container, ContainerId, Limits, Mount, Usage};
use serde::{Deserialize, Serialize};

use crate::{addresses::Range, images::Program, logs::Bounds, view::View};

/// Limits that the agent sets for all containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rules {
    /// The size at which a log file is rotated.
    pub log_bytes: u64,
    /// How many files a log has.
    pub log_files: u32,
    /// Only for keepers that are older than this one: it leaves the logs of pods that are gone to the agent.
    keep_logs_seconds: u64,
}

impl Default for Rules {
    fn default() -> Self {
        Self { log_bytes: 10 << 20, log_files: 2, keep_logs_seconds: 3600 }
    }
}

impl Rules {
    pub fn bounds(self) -> Bounds {
        Bounds { bytes: self.log_bytes, files: self.log_files }
    }
}

/// Files in a keeper's directory.
pub const SOCKET: &str = "socket";
pub const STATE: &str = "state";
pub const SAID: &str = "keeper.log";
/// The keeper writes this to stdout once it listens.
pub const LISTENING: &[u8] = b"listening\n";

/// Raised when an agent could not do with an older keeper; it then replaces it ([`Request::Replace`]).
pub const VERSION: u32 = 1;

/// A container's environment is the largest thing that is ever sent.
const LONGEST: usize = 8 << 20;

#[derive(Debug, Serialize, Deserialize)]
pub struct Asked {
    pub number: u64,
    pub ask: Request,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Answered {
    /// That of the request; 0 for what nobody asked for.
    pub number: u64,
    pub answer: Answer,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Request {
    Hello {
        version: u32,
        rules: Rules,
    },
    Start(Box<Start>),
    Signal {
        id: ContainerId,
        signal: i32,
    },
    Forget {
        id: ContainerId,
    },
    ForgetPod {
        pod: String,
    },
    Address {
        pod: String,
        range: Range,
    },
    List,
    /// As [`Request::List`], only this one.
    Find {
        id: ContainerId,
    },
    Usage,
    /// From now on [`Answer::Changed`] comes whenever something is different.
    Watch,
    /// With its open files: a terminal, or stdin, stdout and stderr. Ends with the connection.
    Exec {
        id: ContainerId,
        command: Vec<String>,
        terminal: bool,
    },
    /// What the container writes comes as frames of bytes from now on.
    Attach {
        id: ContainerId,
    },
    /// Of the terminal of the container that this connection is attached to.
    Resize {
        columns: u16,
        rows: u16,
    },
    /// Become this program, which goes on with everything.
    Replace {
        program: PathBuf,
    },
    /// End all containers, forget them, and leave.
    Stop,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Start {
    pub id: ContainerId,
    pub pod: String,
    pub image: String,
    pub program: Program,
    /// All of it.
    pub env: Vec<(String, String)>,
    /// Where it starts.
    pub dir: PathBuf,
    /// What begins the environment of every process of this container, so that they are found.
    pub mark: String,
    pub mounts: Vec<Mount>,
    /// None: mounts are links.
    #[serde(default)]
    pub view: Option<View>,
    pub limits: Limits,
    pub log: PathBuf,
    pub terminal: bool,
    pub stdin: bool,
    /// See [`pods::runtime::ContainerSpec::no_new_privileges`].
    #[serde(default)]
    pub no_new_privileges: bool,
    /// The bits of the capabilities that it may have. None: all that there are.
    #[serde(default)]
    pub capabilities: Option<u64>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Answer {
    Hello {
        version: u32,
        program: String,
        permitted: Permitted,
    },
    Done,
    Started(Container),
    Containers(Vec<Container>),
    Usage(Vec<Used>),
    Address(Option<Ipv4Addr>),
    Attached {
        terminal: bool,
    },
    Failed {
        reason: String,
        message: String,
    },
    Changed,
    /// Of a command, or of the container that somebody is attached to.
    Ended {
        code: i32,
    },
}

/// What can be held to here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Permitted {
    pub cpu: bool,
    pub memory: bool,
    pub processes: bool,
    /// Whether containers have a view of their own, see [`crate::view`].
    #[serde(default)]
    pub views: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Used {
    pub id: ContainerId,
    pub cpu_nanos: u64,
    pub memory_bytes: u64,
    pub processes: u64,
}

impl From<Used> for Usage {
    fn from(used: Used) -> Self {
        let Used { id, cpu_nanos, memory_bytes, processes } = used;
        Self { id: Some(id), cpu_nanos, memory_bytes, processes }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Json,
    Stdin,
    Stdout,
    Stderr,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Frame {
    pub kind: Kind,
    pub bytes: Vec<u8>,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    #[error("a frame of {0} bytes is too long")]
    TooLong(usize),
    #[error("there is no kind {0} of frames")]
    Kind(u8),
}

/// Length, kind, bytes.
pub fn frame(kind: Kind, bytes: &[u8], to: &mut Vec<u8>) {
    to.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
    to.push(kind as u8);
    to.extend_from_slice(bytes);
}

pub fn json(value: &impl Serialize) -> Vec<u8> {
    // Nothing that is sent can fail: there are no maps with keys that are no strings.
    let bytes = serde_json::to_vec(value).unwrap_or_default();
    let mut framed = Vec::with_capacity(bytes.len() + 5);
    frame(Kind::Json, &bytes, &mut framed);
    framed
}

/// Cuts what arrives into frames.
#[derive(Debug, Default)]
pub struct Frames {
    buffer: Vec<u8>,
}

impl Frames {
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    pub fn next(&mut self) -> Result<Option<Frame>, Wrong> {
        let Some((head, rest)) = self.buffer.split_at_checked(5) else { return Ok(None) };
        let length = u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize;
        if length > LONGEST {
            return Err(Wrong::TooLong(length));
        }
        let kind = match head[4] {
            0 => Kind::Json,
            1 => Kind::Stdin,
            2 => Kind::Stdout,
            3 => Kind::Stderr,
            other => return Err(Wrong::Kind(other)),
        };
        let Some(bytes) = rest.get(..length) else { return Ok(None) };
        let found = Frame { kind, bytes: bytes.to_vec() };
        self.buffer.drain(..5 + length);
        // The next long one is rare.
        self.buffer.shrink_to(16 << 10);
        Ok(Some(found))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn frames_arrive_however_they_are_cut(
            sent in prop::collection::vec((0..4_u8, prop::collection::vec(any::<u8>(), 0..40)), 0..8),
            cut in 1..20_usize,
        ) {
            let kinds = [Kind::Json, Kind::Stdin, Kind::Stdout, Kind::Stderr];
            let mut bytes = Vec::new();
            for (kind, content) in &sent {
                frame(kinds[usize::from(*kind)], content, &mut bytes);
            }
            let (mut frames, mut found) = (Frames::default(), Vec::new());
            for piece in bytes.chunks(cut) {
                frames.push(piece);
                while let Some(frame) = frames.next().unwrap() {
                    found.push((frame.kind as u8, frame.bytes));
                }
            }
            prop_assert_eq!(found, sent);
        }

        #[test]
        fn never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut frames = Frames::default();
            frames.push(&bytes);
            while let Ok(Some(frame)) = frames.next() {
                let _ = serde_json::from_slice::<Asked>(&frame.bytes);
            }
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let mut frames = Frames::default();
        frames.push(&[255, 255, 255, 255, 0]);
        assert_eq!(frames.next(), Err(Wrong::TooLong(u32::MAX as usize)));
        let mut frames = Frames::default();
        frames.push(&[0, 0, 0, 0, 9]);
        assert_eq!(frames.next(), Err(Wrong::Kind(9)));
    }

    #[test]
    fn a_newer_request_is_understood_as_far_as_it_goes() {
        let text = r#"{"number":1,"ask":{"address":{"pod":"p","range":{"base":"127.1.0.0","bits":17},"mood":"good"}},"more":1}"#;
        let asked: Asked = serde_json::from_str(text).unwrap();
        assert!(matches!(asked.ask, Request::Address { .. }));
        assert!(serde_json::from_str::<Asked>(r#"{"number":1,"ask":"dance"}"#).is_err());
    }
}
