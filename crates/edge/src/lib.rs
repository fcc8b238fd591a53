//! The agent on an edge: it keeps what the center sent in the edge's own store, and reports what became of it.

pub mod held;
pub mod owner;
