//! The three patches of the Kubernetes API: JSON patch (RFC 6902), merge patch (RFC 7386) and strategic merge patch.
//!
//! They work on JSON alone. Whether the result decodes and is valid is for the caller to find out.

pub mod apply;
mod json;
mod merge;
mod order;
mod strategic;

pub use json::{json, json_tested, json_to_any};
pub use merge::merge;
pub use strategic::strategic;

#[cfg(test)]
pub(crate) mod tests;
