//! Runs the Pods of one node on any runtime, and reports them exactly as a kubelet does.
//!
//! What a Pod needs next is decided by a state machine without I/O; a [`runtime::Runtime`] does it.

mod handle;
pub mod runtime;

pub use handle::{Known, KnownContainer, Pods, Run};
