//! The names and shapes that center and edge agree on: our own kinds, annotations and keys. Pure data, no I/O.

mod edge;
pub mod forward;
mod key;
pub mod names;

pub use edge::EdgeId;
pub use key::ObjectKey;
