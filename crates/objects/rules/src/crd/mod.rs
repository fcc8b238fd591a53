//! CustomResourceDefinitions: what one definition says, compiled once, and what is done with it.
//!
//! * [`validate_definition`] refuses a bad definition, [`prepare`] and [`accept`] write its status.
//! * [`Definition::compile`] turns an accepted one into [`Version`]s, each with its structure (for server-side apply and
//!   decoding) and its tree of value rules.
//! * A [`Version`] prunes, defaults and validates objects, and reads and writes their scale.
//!
//! The way of an object, as upstream goes it: a request's body is pruned and defaulted by the version of the request,
//! converted to the storage version ([`Definition::relabel`] when the strategy is `None`, which prunes again) and stored.
//! What comes from the store is defaulted by the storage version and then converted, and pruned, to the version asked
//! for: defaults of a version that is not the storage version never reach objects that are only read through it.

mod accept;
mod body;
mod conversion;
mod correlate;
mod defaulting;
mod definition;
mod fieldpath;
mod light;
mod lists;
mod metadata;
mod prune;
mod publish;
mod rules;
mod scale;
mod structure;
mod values;
mod verify;

#[cfg(test)]
mod tests;

pub use accept::{Taken, accept, accept_beside, names_of, prepare, terminating};
pub use body::Body;
pub use conversion::{conversion_review, converted};
pub use definition::{Conversion, Definition, Names, Scale, Strategy, Subresources, Version, compare_versions};
pub use light::Light;
pub use metadata::finalizer_warnings;
pub use verify::{definition_warnings, is_about_cost, validate_definition};
