//! Pieces for tests and benchmarks of this crate and its users: a sample of every message and an edge's storage in
//! memory.

mod messages;

pub use messages::messages;
