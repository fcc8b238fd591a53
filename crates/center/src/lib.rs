//! What a center is besides an API server: the edges that are connected to it, what each of them should hold, and what
//! they report. The server knows nothing of it: it is mounted on the server's port and observes its changes.

mod fleet;

pub use fleet::Fleet;
