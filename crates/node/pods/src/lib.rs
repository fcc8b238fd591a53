//! Runs the Pods of one node on any runtime, and reports them exactly as a kubelet does.
//!
//! What a Pod needs next is decided by a state machine without I/O; a [`runtime::Runtime`] does it.

mod admit;
mod dns;
mod downward;
mod env_file;
mod environment;
mod expand;
mod handle;
mod hosts;
mod machine;
mod referred;
mod resources;
mod rim;
pub mod runtime;
mod security;
mod spec;
mod volumes;

pub use handle::{Known, KnownContainer, Pods, Run};
pub use rim::{Options, run};
