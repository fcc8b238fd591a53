//! Where the runner meets the world: the API, the runtime, files, sockets and the clock.

mod claims;
mod clock;
mod etc;
mod events;
mod files;
mod grpc;
mod http;
mod inbox;
mod lister;
mod logs;
mod messages;
mod node;
mod orphans;
mod probe;
mod report;
mod run;
mod services;
mod sources;
mod start;
mod tokens;
mod worker;

pub use run::{Options, run};
