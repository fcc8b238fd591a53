//! What center and edge say to each other.

use bytes::Bytes;

pub use crate::proto::CloseReason;
use crate::tree::Prefix;
use crate::types::{Key, Millis, Position, Version};
use crate::walk::Node;

#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    Hello(Hello),
    Welcome(Welcome),
    /// Center: what these nodes of the tree are like in the desired set.
    Nodes {
        walk: u64,
        nodes: Vec<Node>,
    },
    /// Edge: where that differs from what it holds.
    Differences(Differences),
    Batch(Batch),
    /// Edge: everything of this batch is durable, but for the keys that a nack named before. `holds` is the number of objects.
    Ack {
        session: u64,
        seq: u64,
        holds: u64,
    },
    /// Edge: these keys could not be applied and were left out. Without keys: the batch waits, the edge tries again.
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
    /// Center: open a tunnel and show this ticket there. Who drives the edge does so; the machines know nothing of tunnels.
    Open {
        ticket: u128,
    },
    /// From a newer peer; to be ignored.
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
    /// Which start of the edge's program this is: a random number, 0 for an edge of an earlier version.
    pub start: u64,
    /// The starts before it, the last one first, and where the edge is, for people. Both are said in the first session
    /// of a start, and after a session that the center ended in favour of another.
    pub before: Vec<u64>,
    pub place: String,
}

/// The starts of an edge's program that a hello speaks of, besides its own.
pub const STARTS: usize = 8;
/// The longest description of a place, in bytes.
pub const LONGEST_PLACE: usize = 160;

#[derive(Clone, Debug, PartialEq)]
pub struct Welcome {
    pub version: u32,
    pub features: u64,
    pub session: u64,
    pub position: Position,
    /// How far the center knows the incarnation that the edge has seen. Less than the edge has seen means that this
    /// center was restored from a backup, `None` that it is another one altogether.
    pub through: Option<u64>,
}

/// Ordered by `seq` from 1 within a session; applied in one transaction.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    pub session: u64,
    pub seq: u64,
    pub position: Position,
    /// Somebody decided that the edge shall follow this center although its history is another one. Reports start anew.
    pub adopt: bool,
    /// `None` deletes.
    pub changes: Vec<(Key, Option<Bytes>)>,
}

/// The latest state of an object at the edge.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    pub key: Key,
    pub version: Version,
    /// `None`: it is gone.
    pub state: Option<Bytes>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Differences {
    pub walk: u64,
    /// Nodes to be described further.
    pub want: Vec<Prefix>,
    /// Nodes of which the edge has nothing.
    pub all: Vec<Prefix>,
    /// Entries that the edge lacks or has otherwise, by the key's hash: the edge may not know the key.
    pub need: Vec<u64>,
    /// Keys that the edge has otherwise or that the center did not name.
    pub extra: Vec<Key>,
    /// Nothing more comes in this walk.
    pub done: bool,
}
