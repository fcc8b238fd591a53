//! The protocol between center and edge: two state machines without I/O, clock or threads.
//!
//! A driver passes in events (a message came, a transaction is durable, time passed) and carries out the outputs (send
//! this, apply that). The same code runs under a real connection, which is in [`transport`], and under the simulation
//! in `tests/`, which cuts, delays, crashes and fails everything it can. The guarantees of the protocol are in
//! `docs/explanation/link.md`, the messages in `docs/reference/link.proto`.

pub mod admission;
mod center;
mod decode;
mod desired;
mod edge;
mod encode;
mod fuse;
mod liveness;
mod message;
mod packed;
mod proto;
mod queue;
#[cfg(feature = "testing")]
pub mod testing;
pub mod transport;
mod tree;
mod types;
mod walk;

pub use center::{CenterInput, CenterOutput, CenterStatus, Session};
pub use decode::WireError;
pub use desired::{Desired, Holding, MemoryDesired};
pub use edge::{ApplyFailure, Edge, EdgeInput, EdgeOutput, EdgeStatus, ProgramStart};
pub use fuse::MAX_UNHELD_DELETIONS;
pub use message::{
    Batch, CloseReason, Differences, Hello, MAX_EARLIER_STARTS, MAX_PLACE_BYTES, Message, Report, Welcome,
};
pub use queue::DeliveryOrder;
pub use tree::{HashTree, NodeSummary, Prefix, Tree};
pub use types::{Key, Millis, Position, Version, entry_hash, key_hash};
pub use walk::TreeNode;

/// The protocol versions that this build speaks. The center speaks to an older edge in the edge's version, and each
/// side skips fields that it does not know.
pub const VERSIONS: std::ops::RangeInclusive<u32> = 1..=1;

/// Limit of an encoded message in bytes: the largest object with room to spare. The receiver refuses a longer message
/// before it reads it.
pub const MAX_MESSAGE_BYTES: usize = 8 << 20;
