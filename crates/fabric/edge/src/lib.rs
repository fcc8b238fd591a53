//! The agent on an edge: it keeps what the center sent in the edge's own store, and reports what became of it.
//!
//! [`Agent::run`] keeps the link. A batch from the center is one commit ([`apply`]); what an object is made of is decided by
//! a pure function ([`place`]); what has to be reported is what differs from what was acked ([`report`]).

mod agent;
mod apply;
mod book;
pub mod cluster;
mod drive;
pub mod held;
pub mod join;
mod namespaces;
pub mod node;
pub mod owner;
mod place;
mod report;
mod scale;
pub mod show;
#[cfg(test)]
mod tests;
pub mod tunnel;
mod whole;
mod writer;

pub use agent::{Agent, Dialer, Opener};
pub use book::CLUSTER;
pub use held::Held;
