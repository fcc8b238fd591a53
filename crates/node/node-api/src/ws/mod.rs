//! WebSockets, from the side of a server.

pub mod connection;
pub mod frame;
pub mod handshake;
