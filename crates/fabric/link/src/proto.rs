//! The messages of the link between center and edge.
//!
//! This file is generated from crates/fabric/link/src/proto.rs; the test `proto` of that crate compares the two.
//!
//! A message on the wire is one byte, its `MessageKind`, followed by the message of that name. A receiver skips fields
//! and kinds that it does not know. It refuses a message of more than 8 MiB or 16,384 fields before it decodes it.
//! Field numbers are never used again for something else.
//!
//! Keys are UTF-8 text of type `bytes`, so that a receiver need not copy them twice.
//!
//! Some `bytes` fields have a layout of their own, in which integers are big-endian:
//! - `Hashes`: 64-bit integers, one after the other.
//! - `Prefix`: one byte for the number of hexadecimal digits (at most 16), then the digits, two in a byte, the first
//!   one in the high half. Unused halves are zero.
//! - `Node`: one byte, 0 for children or 1 for entries, then a `Prefix`. Children are sixteen times a count (varint),
//!   followed by the digest (64 bits) if the count is not zero. Entries are pairs of key hash (64 bits) and entry hash
//!   (128 bits).

use bytes::Bytes;

/// The first byte of a message. HEARTBEAT has no fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum MessageKind {
    Unspecified = 0,
    Hello = 1,
    Welcome = 2,
    Nodes = 3,
    Differences = 4,
    Batch = 5,
    Ack = 6,
    Nack = 7,
    Report = 8,
    ReportAck = 9,
    Heartbeat = 10,
    Close = 11,
    Open = 12,
}

/// Edge: the first message of a session.
#[derive(prost::Message)]
pub(crate) struct WireHello {
    /// The protocol versions that the edge speaks.
    #[prost(uint64, tag = "1")]
    pub min_version: u64,
    #[prost(uint64, tag = "2")]
    pub max_version: u64,
    /// A bit for each optional ability.
    #[prost(uint64, tag = "3")]
    pub features: u64,
    /// The furthest position of the center's history that the edge depends on; incarnation 0 if there is none.
    #[prost(uint64, tag = "4")]
    pub seen_incarnation: u64,
    #[prost(uint64, tag = "5")]
    pub seen_revision: u64,
    /// Reports with a lower version are void.
    #[prost(uint64, tag = "6")]
    pub floor_epoch: u64,
    #[prost(uint64, tag = "7")]
    pub floor_counter: u64,
    /// Root of the edge's hash tree: 16 bytes, big-endian.
    #[prost(bytes = "bytes", tag = "8")]
    pub root: Bytes,
    /// Number of objects that the edge holds.
    #[prost(uint64, tag = "9")]
    pub holds: u64,
    /// Random number of this start of the edge's program; 0 for an edge of an earlier version.
    #[prost(uint64, tag = "10")]
    pub start: u64,
    /// Hashes: the starts before it, the last one first. At most eight are read.
    #[prost(bytes = "bytes", tag = "11")]
    pub before: Bytes,
    /// Where the edge is, for people. At most 160 bytes are read.
    #[prost(bytes = "bytes", tag = "12")]
    pub place: Bytes,
}

/// Center: the answer to Hello.
#[derive(prost::Message)]
pub(crate) struct WireWelcome {
    /// The protocol version of this session.
    #[prost(uint64, tag = "1")]
    pub version: u64,
    #[prost(uint64, tag = "2")]
    pub features: u64,
    #[prost(uint64, tag = "3")]
    pub session: u64,
    /// The center's position.
    #[prost(uint64, tag = "4")]
    pub incarnation: u64,
    #[prost(uint64, tag = "5")]
    pub revision: u64,
    /// The last revision that the center knows of the incarnation that the edge has seen, plus one; 0 if it knows
    /// nothing of it.
    #[prost(uint64, tag = "6")]
    pub through_plus_one: u64,
}

/// Center: nodes of the hash tree over the desired set.
#[derive(prost::Message)]
pub(crate) struct WireNodes {
    #[prost(uint64, tag = "1")]
    pub walk: u64,
    /// Each is a Node.
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub nodes: Vec<Bytes>,
}

/// Edge: where the nodes differ from what it holds.
#[derive(prost::Message)]
pub(crate) struct WireDifferences {
    #[prost(uint64, tag = "1")]
    pub walk: u64,
    /// This is the last message of the walk.
    #[prost(bool, tag = "2")]
    pub done: bool,
    /// Each is a Prefix: nodes to be described further.
    #[prost(bytes = "bytes", repeated, tag = "3")]
    pub want: Vec<Bytes>,
    /// Each is a Prefix: nodes of which the edge has nothing.
    #[prost(bytes = "bytes", repeated, tag = "4")]
    pub all: Vec<Bytes>,
    /// Hashes: keys of entries that the edge lacks or has otherwise.
    #[prost(bytes = "bytes", tag = "5")]
    pub need: Bytes,
    /// Keys that the edge has otherwise or that the center did not name.
    #[prost(bytes = "bytes", repeated, tag = "6")]
    pub extra: Vec<Bytes>,
}

/// Center: changes that the edge applies in one transaction.
#[derive(prost::Message)]
pub(crate) struct WireBatch {
    #[prost(uint64, tag = "1")]
    pub session: u64,
    /// Counts from 1 within the session.
    #[prost(uint64, tag = "2")]
    pub seq: u64,
    /// The center's position.
    #[prost(uint64, tag = "3")]
    pub incarnation: u64,
    #[prost(uint64, tag = "4")]
    pub revision: u64,
    /// The edge shall follow this center although its history is another one.
    #[prost(bool, tag = "5")]
    pub adopt: bool,
    #[prost(message, repeated, tag = "6")]
    pub changes: Vec<WireChange>,
}

/// Has either content or delete. A change with neither is an error: content in a form that is not known yet must not
/// be read as a deletion.
#[derive(prost::Message)]
pub(crate) struct WireChange {
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub content: Option<Bytes>,
    #[prost(bool, tag = "3")]
    pub delete: bool,
}

/// Edge: the batch is durable, except for the keys of an earlier Nack.
#[derive(prost::Message)]
pub(crate) struct WireAck {
    #[prost(uint64, tag = "1")]
    pub session: u64,
    #[prost(uint64, tag = "2")]
    pub seq: u64,
    /// Number of objects that the edge holds.
    #[prost(uint64, tag = "3")]
    pub holds: u64,
}

/// Edge: these keys could not be applied. Without keys: nothing could be written, and the edge tries again.
#[derive(prost::Message)]
pub(crate) struct WireNack {
    #[prost(uint64, tag = "1")]
    pub session: u64,
    #[prost(uint64, tag = "2")]
    pub seq: u64,
    #[prost(message, repeated, tag = "3")]
    pub keys: Vec<WireRefusedKey>,
    #[prost(bytes = "bytes", tag = "4")]
    pub reason: Bytes,
}

#[derive(prost::Message)]
pub(crate) struct WireRefusedKey {
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub reason: Bytes,
}

/// Edge: the latest state of objects.
#[derive(prost::Message)]
pub(crate) struct WireReport {
    #[prost(uint64, tag = "1")]
    pub seq: u64,
    #[prost(message, repeated, tag = "2")]
    pub reports: Vec<WireObjectState>,
}

/// Has either state or gone.
#[derive(prost::Message)]
pub(crate) struct WireObjectState {
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    /// Orders the states of one key.
    #[prost(uint64, tag = "2")]
    pub epoch: u64,
    #[prost(uint64, tag = "3")]
    pub counter: u64,
    #[prost(bytes = "bytes", optional, tag = "4")]
    pub state: Option<Bytes>,
    #[prost(bool, tag = "5")]
    pub gone: bool,
}

/// Center: the reports of that message are durable at this position.
#[derive(prost::Message)]
pub(crate) struct WireReportAck {
    #[prost(uint64, tag = "1")]
    pub seq: u64,
    #[prost(uint64, tag = "2")]
    pub incarnation: u64,
    #[prost(uint64, tag = "3")]
    pub revision: u64,
}

/// Either side: the session ends.
#[derive(prost::Message)]
pub(crate) struct WireClose {
    #[prost(enumeration = "CloseReason", tag = "1")]
    pub reason: i32,
    /// Milliseconds until the edge may come again, plus one; 0 if nothing is said.
    #[prost(uint64, tag = "2")]
    pub retry_after_plus_one: u64,
}

/// Center: the edge opens a tunnel and shows this ticket there.
#[derive(prost::Message)]
pub(crate) struct WireOpen {
    /// 16 bytes, big-endian.
    #[prost(bytes = "bytes", tag = "1")]
    pub ticket: Bytes,
}

/// Why a session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum CloseReason {
    /// Also any reason of a newer peer.
    Other = 0,
    /// Too many edges come at once.
    Busy = 1,
    /// The desired set is still being put together.
    NotReady = 2,
    /// No protocol version in common.
    Incompatible = 3,
    /// The edge opened another connection.
    Superseded = 4,
    /// A message makes no sense at this point.
    Protocol = 5,
    /// The reports could not be stored.
    Storage = 6,
    /// The edge is not known any more.
    Revoked = 7,
    /// Nothing was received for too long.
    Silent = 8,
    /// Another machine uses the same identity, and that one is let in.
    Shared = 9,
}
