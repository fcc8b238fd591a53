//! Protobuf messages of objects, kept for their next readers.
//!
//! Controllers and kubelets read in protobuf, over and over. A message is made from an object's JSON once and then stays with the
//! object, as long as all that are kept fit into a fixed room: an edge with little memory never pays more than that.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Bytes of all kept messages of this process.
const ROOM: usize = 48 << 20;

static KEPT: AtomicUsize = AtomicUsize::new(0);

#[derive(Debug)]
pub struct Message(Box<[u8]>);

impl Message {
    /// Keeps a message if there is room for it, or gives it back.
    pub fn keep(bytes: Vec<u8>) -> Result<Self, Vec<u8>> {
        let length = bytes.len();
        let fits = KEPT.fetch_update(Relaxed, Relaxed, |kept| kept.checked_add(length).filter(|all| *all <= ROOM));
        if fits.is_ok() { Ok(Self(bytes.into())) } else { Err(bytes) }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        KEPT.fetch_sub(self.0.len(), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_room_is_bounded_and_comes_back() {
        let one = Message::keep(vec![7; ROOM / 2]).unwrap();
        assert_eq!(Message::keep(vec![0; ROOM]).unwrap_err().len(), ROOM);
        drop(one);
        drop(Message::keep(vec![0; ROOM / 2 + 1]).unwrap());
    }
}
