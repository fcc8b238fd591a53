//! The names and shapes that center and edge agree on: our own kinds, annotations and keys. Pure data, no I/O.

mod edge;
pub mod forward;
pub mod join;
mod key;
pub mod mailbox;
pub mod names;
pub mod upsync;

pub use edge::EdgeId;
pub use join::{JoinReply, JoinRequest, JoinToken};
pub use key::ObjectKey;
