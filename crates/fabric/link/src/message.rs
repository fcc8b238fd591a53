//! The messages between center and edge. Their encoding is described in `docs/reference/link.proto`.

use bytes::Bytes;

pub use crate::proto::CloseReason;
use crate::tree::Prefix;
use crate::types::{Key, Millis, Position, Version};
use crate::walk::TreeNode;

#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    Hello(Hello),
    Welcome(Welcome),
    /// Center: nodes of the hash tree over the desired set.
    Nodes {
        walk: u64,
        nodes: Vec<TreeNode>,
    },
    /// Edge: where these nodes differ from what it holds.
    Differences(Differences),
    Batch(Batch),
    /// Edge: everything of this batch is durable, except for the keys of an earlier nack. `holds` is the number of
    /// objects that the edge has now.
    Ack {
        session: u64,
        seq: u64,
        holds: u64,
    },
    /// Edge: these keys could not be applied and were left out. Without keys, nothing could be written, and the edge
    /// tries again.
    Nack {
        session: u64,
        seq: u64,
        keys: Vec<(Key, String)>,
        reason: String,
    },
    Report {
        seq: u64,
        reports: Vec<Report>,
    },
    /// Center: these reports are durable, at this position of its history.
    ReportAck {
        seq: u64,
        at: Position,
    },
    Heartbeat,
    Close {
        reason: CloseReason,
        retry_after: Option<Millis>,
    },
    /// Center: open a tunnel and show this ticket there. The driver of the edge does this; the state machines ignore
    /// it.
    Open {
        ticket: u128,
    },
    /// A kind of message that only a newer peer knows. It is ignored.
    Unknown(u8),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Hello {
    pub min_version: u32,
    pub max_version: u32,
    /// A bit for each optional ability.
    pub features: u64,
    pub seen: Option<Position>,
    pub floor: Version,
    pub root: u128,
    pub holds: u64,
    /// Random number of this start of the edge's program; 0 for an edge of an earlier version.
    pub start: u64,
    /// The starts before this one, the last one first. Sent, like `place`, in the first session of a start and after a
    /// session that the center ended in favour of another.
    pub before: Vec<u64>,
    /// Machine and data directory of the edge, for people.
    pub place: String,
}

/// Limit of earlier starts in a hello.
pub const MAX_EARLIER_STARTS: usize = 8;
/// Limit of the description of an edge's place, in bytes.
pub const MAX_PLACE_BYTES: usize = 160;

#[derive(Clone, Debug, PartialEq)]
pub struct Welcome {
    pub version: u32,
    pub features: u64,
    pub session: u64,
    pub position: Position,
    /// The last revision that the center knows of the incarnation that the edge has seen. A revision below the one seen
    /// means that the center was restored from a backup; `None` means that it is another center.
    pub through: Option<u64>,
}

/// Changes that the edge applies in one transaction. `seq` counts from 1 within a session.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    pub session: u64,
    pub seq: u64,
    pub position: Position,
    /// An operator decided that the edge follows this center although its history is another one. The edge then makes
    /// all reports again.
    pub adopt: bool,
    /// `None` deletes the object.
    pub changes: Vec<(Key, Option<Bytes>)>,
}

/// The latest state of an object at the edge.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    pub key: Key,
    pub version: Version,
    /// `None` if the object is gone.
    pub state: Option<Bytes>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Differences {
    pub walk: u64,
    /// Nodes to be described further.
    pub want: Vec<Prefix>,
    /// Nodes under which the edge holds nothing.
    pub all: Vec<Prefix>,
    /// Hashes of keys that the edge lacks or holds with other content. The edge may not know the key itself.
    pub need: Vec<u64>,
    /// Keys that the edge holds with other content or that the center did not describe.
    pub extra: Vec<Key>,
    /// This is the last message of the walk.
    pub done: bool,
}
