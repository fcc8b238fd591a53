//! What is done with an object before it is stored: defaults, preparation, validation, conversion. Pure: no I/O, and no
//! clock but the time that a caller passes in.

pub mod convert;
pub mod crd;
pub mod defaults;
mod qos;
pub mod strategy;
pub mod validate;
