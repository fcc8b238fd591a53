//! What a center is besides an API server: the edges that are connected to it, what each of them should hold, and what
//! they report. The server knows nothing of it: it is mounted on the server's port and observes its changes.

mod accounts;
mod allowance;
mod bodies;
mod bound;
mod conditions;
mod door;
mod edges;
mod fleet;
mod forward;
mod history;
mod instances;
mod intake;
mod intent;
pub mod join;
mod lead;
mod mailbox;
mod mailboxes;
mod news;
mod others;
mod placing;
mod refused;
mod removals;
mod reported;
mod reports;
mod resolved;
mod retries;
mod rollouts;
mod session;
mod set;
mod shared;
mod status;
mod target;
mod tenant_view;
mod tenures;
mod ticks;
mod tunnel;
mod view;

#[cfg(test)]
mod tests;

pub use fleet::{Fleet, GROUP};
pub use forward::REPLAYED;

/// At most this many connections may one edge have at a time. It needs three, and some may be left over from a link that
/// broke.
pub const EDGE_CONNECTIONS: flow::ConnectionLimit =
    flow::ConnectionLimit { group: identity::signing::EDGES, connections: 24 };
