//! Kubernetes object machinery, pure: no I/O, and no clock but what a caller passes in.

pub mod apply;
pub mod catalogue;
pub mod convert;
pub mod crd;
pub mod decode;
pub mod defaults;
pub mod field;
pub mod names;
pub mod openapi;
pub mod patch;
pub mod proto;
pub mod quantity;
pub mod schema;
pub mod selector;
pub mod status;
pub mod strategy;
pub mod table;
pub mod validate;
