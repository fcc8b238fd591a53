//! From placements, objects, customizers and inventory to what each edge shall hold, and from what edges report to what people are
//! told. Pure: no I/O, no clock, no locks. `center` feeds it and carries out what it says.

pub mod customize;
mod fault;
pub mod health;
mod id;
pub mod rollout;

pub use customize::{Customizer, customize, customizer_of, keys_in};
pub use fault::Fault;
pub use id::{Id, Parameters};
