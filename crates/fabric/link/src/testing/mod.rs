//! Pieces for tests and benchmarks of this crate and its users: a sample of every message and an edge's storage in
//! memory.

mod holding;
mod messages;

pub use holding::MemoryHolding;
pub use messages::messages;

use bytes::Bytes;

use crate::Message;
use crate::transport::{FrameDecoder, FrameError, encode_frame};

/// The message in its frame, compressed if that is worth it. Empty if the message is too long.
pub fn frame(message: &Message) -> Bytes {
    encode_frame(message, true).unwrap_or_default()
}

/// The messages of a stream that arrives in these pieces, and the words of the error that ended it.
pub fn read_frames(pieces: impl IntoIterator<Item = Bytes>) -> (Vec<Message>, Option<String>) {
    let (mut decoder, mut all) = (FrameDecoder::default(), Vec::new());
    let mut pieces = pieces.into_iter();
    let mut read = |all: &mut Vec<Message>| -> Result<(), FrameError> {
        for piece in pieces.by_ref() {
            decoder.push(piece)?;
            while let Some(message) = decoder.next()? {
                all.push(message);
            }
        }
        decoder.finish()
    };
    let ended = read(&mut all);
    (all, ended.err().map(|error| error.to_string()))
}
