//! gRPC's framing, without I/O: one byte that says whether the message is compressed, four for its length, the message.
//! A value of the first byte that gRPC does not have marks a refusal in JSON instead of a message.

use std::io::{Read, Write};

use bytes::{Buf, Bytes};
use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use serde::{Deserialize, Serialize};

use crate::{MAX_MESSAGE_BYTES, Message, WireError};

const PREFIX_BYTES: usize = 5;
/// The value of gRPC's compression flag that marks a refusal.
const REFUSED: u8 = 2;
const MAX_REFUSAL_BYTES: usize = 64 << 10;
/// Smaller messages are not compressed, as a compressor needs some hundred kilobytes while it works.
const MIN_COMPRESSED_BYTES: usize = 1 << 10;

#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    #[error("a message of {0} bytes is longer than the {MAX_MESSAGE_BYTES} that are allowed")]
    TooLong(usize),
    #[error("a compressed message cannot be read: {0}")]
    Compression(std::io::Error),
    #[error("a frame begins with {0}, which this version does not know")]
    Flag(u8),
    #[error("{}", .0.message)]
    Refused(Refusal),
    #[error("the stream ended within a message")]
    Truncated,
    #[error(transparent)]
    Message(#[from] WireError),
}

/// The reason why a session is refused, with an HTTP status code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    pub code: u16,
    pub message: String,
    /// Seconds until the edge may come again.
    #[serde(rename = "retryAfter", skip_serializing_if = "Option::is_none", default)]
    pub retry_after: Option<u64>,
}

pub fn refuse(refusal: &Refusal) -> Bytes {
    let mut frame = vec![0; PREFIX_BYTES];
    frame.extend_from_slice(serde_json::to_string(refusal).unwrap_or_default().as_bytes());
    with_length(frame, REFUSED)
}

/// One message in its frame.
pub fn encode(message: &Message, compress: bool) -> Result<Bytes, FrameError> {
    let payload = message.encode();
    if payload.len() > MAX_MESSAGE_BYTES {
        return Err(FrameError::TooLong(payload.len()));
    }
    if compress && payload.len() >= MIN_COMPRESSED_BYTES {
        let small = gzip(&payload).map_err(FrameError::Compression)?;
        if small.len() < PREFIX_BYTES + payload.len() {
            return Ok(with_length(small, 1));
        }
    }
    let mut frame = Vec::with_capacity(PREFIX_BYTES + payload.len());
    frame.extend_from_slice(&[0; PREFIX_BYTES]);
    frame.extend_from_slice(&payload);
    Ok(with_length(frame, 0))
}

/// Compresses the payload, with space for the prefix in front.
fn gzip(payload: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut out = Vec::with_capacity(PREFIX_BYTES + payload.len() / 3);
    out.extend_from_slice(&[0; PREFIX_BYTES]);
    let mut encoder = GzEncoder::new(out, Compression::fast());
    encoder.write_all(payload)?;
    let mut out = encoder.finish()?;
    out.shrink_to_fit();
    Ok(out)
}

fn with_length(mut frame: Vec<u8>, flag: u8) -> Bytes {
    // Fits: a message is at most `MAX_MESSAGE_BYTES` long.
    let length = (frame.len() - PREFIX_BYTES) as u32;
    frame[0] = flag;
    frame[1..PREFIX_BYTES].copy_from_slice(&length.to_be_bytes());
    frame.into()
}

/// Assembles messages from the pieces that arrive. Keeps no buffer between messages.
#[derive(Default)]
pub struct FrameDecoder {
    /// The beginning of an incomplete frame.
    pending: Vec<u8>,
    /// Received bytes that are not decoded yet; only while `pending` is empty.
    rest: Bytes,
}

impl FrameDecoder {
    /// Takes the next piece. Call [`next`](Self::next) until it returns `None` before the next call.
    pub fn push(&mut self, mut piece: Bytes) -> Result<(), FrameError> {
        if !self.pending.is_empty() {
            let prefix = PREFIX_BYTES.saturating_sub(self.pending.len()).min(piece.len());
            self.pending.extend_from_slice(&piece.split_to(prefix));
            if let Some(wanted) = frame_length(&self.pending)? {
                let more = wanted.saturating_sub(self.pending.len()).min(piece.len());
                self.pending.extend_from_slice(&piece.split_to(more));
                if self.pending.len() == wanted {
                    let whole = Bytes::from(std::mem::take(&mut self.pending));
                    // Rare: one piece has the end of one message and the beginning of the next.
                    self.rest = if piece.is_empty() { whole } else { [&whole[..], &piece[..]].concat().into() };
                }
            }
            return Ok(());
        }
        self.rest = piece;
        Ok(())
    }

    /// The next complete message.
    pub fn next(&mut self) -> Result<Option<Message>, FrameError> {
        let Some(wanted) = frame_length(&self.rest)? else { return self.keep() };
        if self.rest.len() < wanted {
            return self.keep();
        }
        let mut frame = self.rest.split_to(wanted);
        let flag = frame[0];
        frame.advance(PREFIX_BYTES);
        let payload = match flag {
            0 => frame,
            1 => gunzip(&frame)?,
            REFUSED => return Err(refusal(&frame)),
            other => return Err(FrameError::Flag(other)),
        };
        Ok(Some(Message::decode(payload)?))
    }

    fn keep(&mut self) -> Result<Option<Message>, FrameError> {
        let rest = std::mem::take(&mut self.rest);
        if !rest.is_empty() {
            self.pending = rest.to_vec();
        }
        Ok(None)
    }

    /// The stream ended: fails if a frame is incomplete.
    pub fn finish(&self) -> Result<(), FrameError> {
        if self.pending.is_empty() && self.rest.is_empty() { Ok(()) } else { Err(FrameError::Truncated) }
    }
}

/// Length of the frame that begins here, with its prefix. A frame that is too long is refused before it is read.
fn frame_length(bytes: &[u8]) -> Result<Option<usize>, FrameError> {
    let Some(prefix) = bytes.first_chunk::<PREFIX_BYTES>() else { return Ok(None) };
    let length = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]) as usize;
    if length > MAX_MESSAGE_BYTES {
        return Err(FrameError::TooLong(length));
    }
    Ok(Some(PREFIX_BYTES + length))
}

fn refusal(words: &[u8]) -> FrameError {
    match serde_json::from_slice(&words[..words.len().min(MAX_REFUSAL_BYTES)]) {
        Ok(refusal) => FrameError::Refused(refusal),
        Err(_) => FrameError::Flag(REFUSED),
    }
}

fn gunzip(small: &[u8]) -> Result<Bytes, FrameError> {
    let mut out = Vec::new();
    // One byte more than allowed tells a message that is too long from one that just fits.
    GzDecoder::new(small).take(MAX_MESSAGE_BYTES as u64 + 1).read_to_end(&mut out).map_err(FrameError::Compression)?;
    if out.len() > MAX_MESSAGE_BYTES {
        return Err(FrameError::TooLong(out.len()));
    }
    out.shrink_to_fit();
    Ok(out.into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Batch, Position};

    fn batch(contents: Vec<Vec<u8>>) -> Message {
        let changes = contents.into_iter().enumerate().map(|(i, c)| (format!("core/x//{i}").into(), Some(c.into())));
        let position = Position { incarnation: 1, revision: 2 };
        Message::Batch(Batch { session: 1, seq: 1, position, adopt: false, changes: changes.collect() })
    }

    fn read(pieces: impl IntoIterator<Item = Bytes>) -> Result<Vec<Message>, FrameError> {
        let (mut decoder, mut all) = (FrameDecoder::default(), Vec::new());
        for piece in pieces {
            decoder.push(piece)?;
            while let Some(message) = decoder.next()? {
                all.push(message);
            }
        }
        decoder.finish()?;
        Ok(all)
    }

    proptest! {
        #[test]
        fn messages_come_back_however_they_are_cut(
            contents in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..3000), 0..4),
            repeated in 0usize..20_000, cuts in proptest::collection::vec(1usize..5000, 1..40), compress: bool,
        ) {
            let sent = vec![Message::Heartbeat, batch(contents), batch(vec![vec![b'a'; repeated]]), Message::Heartbeat];
            let mut wire: Bytes =
                sent.iter().flat_map(|m| encode(m, compress).unwrap()).collect::<Vec<u8>>().into();
            let mut pieces = Vec::new();
            for cut in cuts.iter().cycle() {
                if wire.is_empty() { break }
                pieces.push(wire.split_to((*cut).min(wire.len())));
            }
            prop_assert_eq!(read(pieces).unwrap(), sent);
        }

        #[test]
        fn any_bytes_are_answered(bytes: Vec<u8>, cut in 1usize..20) {
            let _ = read(bytes.chunks(cut).map(Bytes::copy_from_slice));
        }
    }

    #[test]
    fn what_is_too_long_is_refused_before_it_is_read() {
        let mut prefix = vec![0];
        prefix.extend_from_slice(&(MAX_MESSAGE_BYTES as u32 + 1).to_be_bytes());
        assert!(matches!(read([prefix.clone().into()]), Err(FrameError::TooLong(_))));
        let (a, b) = prefix.split_at(3);
        assert!(matches!(read([a.to_vec().into(), b.to_vec().into()]), Err(FrameError::TooLong(_))));
        // Also what is short only on the wire.
        let bomb = gzip(&vec![0; MAX_MESSAGE_BYTES + 10]).unwrap();
        assert!(bomb.len() < 100_000);
        assert!(matches!(read([with_length(bomb, 1)]), Err(FrameError::TooLong(_))));
        let large = batch(vec![vec![0; MAX_MESSAGE_BYTES]]);
        assert!(matches!(encode(&large, true), Err(FrameError::TooLong(_))));
    }

    #[test]
    fn large_ones_are_compressed_if_that_helps() {
        let text = batch(vec![br#"{"kind":"ConfigMap"}"#.repeat(1000)]);
        assert!(encode(&text, true).unwrap().len() * 10 < encode(&text, false).unwrap().len());
        let small = batch(vec![b"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa".to_vec()]);
        assert_eq!(encode(&small, true).unwrap(), encode(&small, false).unwrap());
        assert_eq!(encode(&Message::Heartbeat, true).unwrap().len(), 6);
        assert!(matches!(read([Bytes::from_static(&[2, 0, 0, 0, 0])]), Err(FrameError::Flag(2))));
        assert!(matches!(read([Bytes::from_static(&[3, 0, 0, 0, 0])]), Err(FrameError::Flag(3))));
        let no = Refusal { code: 403, message: "not you".into(), retry_after: Some(5) };
        assert!(matches!(read([refuse(&no)]), Err(FrameError::Refused(found)) if found == no));
        assert!(matches!(read([Bytes::from_static(&[0, 0, 0])]), Err(FrameError::Truncated)));
    }
}
