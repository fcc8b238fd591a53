//! Whose an object's parts are, and what becomes of a write to what is the center's.

pub mod diff;
pub mod part;
