//! One file per verb.

pub mod create;
pub mod delete;
pub mod get;
pub mod list;
pub mod patch;
pub mod update;
pub mod watch;

mod options;
mod selection;
pub mod write;
