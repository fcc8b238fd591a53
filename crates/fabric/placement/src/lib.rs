//! From placements, objects, customizers and inventory to what each edge shall hold, and from what edges report to what people are
//! told. Pure: no I/O, no clock, no locks. `center` feeds it and carries out what it says.

pub mod account;
pub mod aggregate;
pub mod class;
pub mod config;
pub mod customize;
pub mod engine;
pub mod facts;
mod fault;
pub mod health;
mod id;
mod join;
mod names;
pub mod projection;
pub mod rollout;
pub mod schedule;
pub mod slices;
pub mod summary;
pub mod tenure;
pub mod workspace;

#[cfg(test)]
mod example;
#[cfg(test)]
mod model;

pub use customize::{Customizer, customize, customizer_of, keys_in};
pub use fault::Fault;
pub use id::{Id, Parameters};

/// An object as the link names it: [`kinds::ObjectKey`] as text.
pub type Key = std::sync::Arc<str>;
