//! What the kinds of the Kubernetes API look like, and the words that everything above uses to talk about objects. Pure.
//!
//! * [`Schema`] is the structure of kinds; [`builtin`] has that of the built-in ones and [`catalogue`] their resources.
//! * [`json_schema`] is a compiled `openAPIV3Schema`: the value rules of a custom resource.
//! * [`names`], [`quantity`], [`formats`] and [`selector`] read texts as upstream does.
//! * [`field`] and [`status`] are how a mistake is told to a client.

pub mod catalogue;
pub mod field;
pub mod formats;
pub mod go;
pub mod json_schema;
pub mod messages;
pub mod names;
pub mod quantity;
pub mod selector;
pub mod status;
mod types;

pub use types::*;
