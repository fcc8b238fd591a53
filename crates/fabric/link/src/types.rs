//! Types that both sides share.

use std::sync::Arc;

use sha2::{Digest, Sha256};

/// The name of an object: opaque here, the store's key in practice. Shared, as queues hold many keys.
pub type Key = Arc<str>;

/// A time in milliseconds, from a monotonic clock with any origin.
pub type Millis = u64;

/// A point in the center's history: an incarnation of its store and a revision within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Position {
    /// Random and never zero. Chosen at every start of the center and stored there with the revision it began at.
    pub incarnation: u64,
    pub revision: u64,
}

/// The version of a reported state; orders the states of one key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// Time at which the edge's data directory was made, so that an edge with a new one counts above its predecessor.
    pub epoch: u64,
    /// Grows with every local change and is durable.
    pub counter: u64,
}

/// The position of a key in the hash tree.
pub fn key_hash(key: &str) -> u64 {
    let hash = Sha256::digest(key.as_bytes());
    let mut first = [0; 8];
    first.copy_from_slice(&hash[..8]);
    u64::from_be_bytes(first)
}

/// The hash of a key and its content in the tree. Equal hashes mean equal objects.
pub fn entry_hash(key: &str, content: &[u8]) -> u128 {
    let mut hasher = Sha256::new();
    hasher.update((key.len() as u64).to_be_bytes());
    hasher.update(key.as_bytes());
    hasher.update(content);
    let hash = hasher.finalize();
    let mut first = [0; 16];
    first.copy_from_slice(&hash[..16]);
    u128::from_be_bytes(first)
}
