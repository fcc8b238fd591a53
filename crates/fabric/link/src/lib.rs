//! The protocol between center and edge: two state machines without I/O, clock or threads.
//!
//! Whoever drives them passes in what happened (a message came, a transaction is durable, time passed) and carries out what
//! they return (send this, apply that). So the same code runs under a real connection and under the simulation in `tests/`,
//! which cuts, delays, crashes and fails everything it can. What the protocol promises is in
//! `docs/explanation/link.md`. The real connection is in [`transport`].

pub mod admission;
mod center;
mod decode;
mod desired;
mod edge;
mod encode;
mod fuse;
mod liveness;
mod message;
mod queue;
pub mod transport;
mod tree;
mod types;
mod walk;
mod wire;

pub use center::{Input as CenterInput, Output as CenterOutput, Session, Status as CenterStatus};
pub use desired::{Desired, Holding, MemoryDesired};
pub use edge::{Edge, Failure, Input as EdgeInput, Output as EdgeOutput, Start, Status as EdgeStatus};
pub use fuse::HANDFUL;
pub use message::{Batch, CloseReason, Hello, LONGEST_PLACE, Message, Report, STARTS, Welcome};
pub use queue::Turn;
pub use tree::{HashTree, Prefix, Summary, Tree};
pub use types::{Key, Millis, Position, Version, entry_hash, key_hash};
pub use walk::Node;
pub use wire::WireError;

/// The protocol versions that this build speaks. An older peer is spoken to in its own version; fields that it does not
/// know it skips.
pub const VERSIONS: std::ops::RangeInclusive<u32> = 1..=1;

/// No message is longer: the largest object with room to spare. A longer one is refused before it is read.
pub const MAX_MESSAGE: usize = 8 << 20;
