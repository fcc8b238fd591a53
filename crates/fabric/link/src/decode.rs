//! Bytes into messages. Any input is a message or an error. Decoding allocates no more than the message is long, plus
//! a bounded number of list elements: [`MAX_FIELDS`].

use bytes::{Buf, Bytes};
use prost::encoding::{DecodeContext, decode_key, skip_field};

use crate::message::{
    Batch, CloseReason, Differences, Hello, MAX_EARLIER_STARTS, MAX_PLACE_BYTES, Message, Report, Welcome,
};
use crate::packed;
use crate::proto::{
    MessageKind, WireAck, WireBatch, WireChange, WireClose, WireDifferences, WireHello, WireNack, WireNodes,
    WireObjectState, WireOpen, WireReport, WireReportAck, WireWelcome,
};
use crate::types::{Key, Position, Version};

/// A message with more fields, list elements included, is refused before any of them is decoded. Our own messages have
/// fewer than 2,000; an element takes up to a hundred bytes of memory but only two on the wire.
const MAX_FIELDS: usize = 16 << 10;

/// Why bytes are no message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    #[error("the message ends in the middle of a field")]
    Truncated,
    #[error("the message has a field with a value that is out of range")]
    Malformed,
    #[error("the message is longer than {} bytes", crate::MAX_MESSAGE_BYTES)]
    TooLong,
    #[error("the message has more than {MAX_FIELDS} fields")]
    TooManyFields,
    #[error("the message cannot be decoded: {0}")]
    Fields(#[from] prost::DecodeError),
}

impl From<bytes::TryGetError> for WireError {
    fn from(_: bytes::TryGetError) -> Self {
        Self::Truncated
    }
}

impl Message {
    /// Contents are slices of the bytes given, not copies.
    pub fn decode(mut bytes: Bytes) -> Result<Self, WireError> {
        if bytes.len() > crate::MAX_MESSAGE_BYTES {
            return Err(WireError::TooLong);
        }
        let number = bytes.try_get_u8()?;
        let Ok(kind) = MessageKind::try_from(i32::from(number)) else { return Ok(Self::Unknown(number)) };
        match kind {
            MessageKind::Hello => hello(fields(bytes)?).map(Self::Hello),
            MessageKind::Welcome => welcome(&fields(bytes)?).map(Self::Welcome),
            MessageKind::Nodes => {
                let WireNodes { walk, nodes } = fields(bytes)?;
                Ok(Self::Nodes { walk, nodes: each(nodes, packed::read_node)? })
            }
            MessageKind::Differences => differences(fields(bytes)?).map(Self::Differences),
            MessageKind::Batch => batch(fields(bytes)?).map(Self::Batch),
            MessageKind::Ack => {
                let WireAck { session, seq, holds } = fields(bytes)?;
                Ok(Self::Ack { session, seq, holds })
            }
            MessageKind::Nack => {
                let WireNack { session, seq, keys, reason } = fields(bytes)?;
                let keys = each(keys, |refused| Ok((key(&refused.key)?, lossy(&refused.reason))))?;
                Ok(Self::Nack { session, seq, keys, reason: lossy(&reason) })
            }
            MessageKind::Report => {
                let WireReport { seq, reports } = fields(bytes)?;
                Ok(Self::Report { seq, reports: each(reports, report)? })
            }
            MessageKind::ReportAck => {
                let WireReportAck { seq, incarnation, revision } = fields(bytes)?;
                Ok(Self::ReportAck { seq, at: Position { incarnation, revision } })
            }
            MessageKind::Heartbeat => Ok(Self::Heartbeat),
            MessageKind::Close => {
                let WireClose { reason, retry_after_plus_one } = fields(bytes)?;
                let reason = CloseReason::try_from(reason).unwrap_or(CloseReason::Other);
                Ok(Self::Close { reason, retry_after: retry_after_plus_one.checked_sub(1) })
            }
            MessageKind::Open => {
                let WireOpen { mut ticket } = fields(bytes)?;
                Ok(Self::Open { ticket: ticket.try_get_u128()? })
            }
            MessageKind::Unspecified => Ok(Self::Unknown(number)),
        }
    }
}

fn fields<M: prost::Message + Default>(bytes: Bytes) -> Result<M, WireError> {
    check_fields(&bytes)?;
    Ok(M::decode(bytes)?)
}

/// Counts the fields without decoding them, so that a list cannot grow beyond [`MAX_FIELDS`].
fn check_fields(mut bytes: &[u8]) -> Result<(), WireError> {
    let mut count = 0;
    while bytes.has_remaining() {
        count += 1;
        if count > MAX_FIELDS {
            return Err(WireError::TooManyFields);
        }
        let (tag, wire_type) = decode_key(&mut bytes)?;
        skip_field(wire_type, tag, &mut bytes, DecodeContext::default())?;
    }
    Ok(())
}

fn each<A, B>(list: Vec<A>, read: impl FnMut(A) -> Result<B, WireError>) -> Result<Vec<B>, WireError> {
    list.into_iter().map(read).collect()
}

fn hello(mut hello: WireHello) -> Result<Hello, WireError> {
    let seen = Position { incarnation: hello.seen_incarnation, revision: hello.seen_revision };
    hello.place.truncate(MAX_PLACE_BYTES);
    Ok(Hello {
        min_version: version(hello.min_version)?,
        max_version: version(hello.max_version)?,
        features: hello.features,
        seen: (seen.incarnation != 0).then_some(seen),
        floor: Version { epoch: hello.floor_epoch, counter: hello.floor_counter },
        root: if hello.root.is_empty() { 0 } else { hello.root.try_get_u128()? },
        holds: hello.holds,
        start: hello.start,
        before: packed::read_hashes(hello.before, MAX_EARLIER_STARTS)?,
        place: cut(lossy(&hello.place), MAX_PLACE_BYTES),
    })
}

fn version(number: u64) -> Result<u32, WireError> {
    u32::try_from(number).map_err(|_| WireError::Malformed)
}

fn welcome(welcome: &WireWelcome) -> Result<Welcome, WireError> {
    Ok(Welcome {
        version: version(welcome.version)?,
        features: welcome.features,
        session: welcome.session,
        position: Position { incarnation: welcome.incarnation, revision: welcome.revision },
        through: welcome.through_plus_one.checked_sub(1),
    })
}

fn differences(found: WireDifferences) -> Result<Differences, WireError> {
    let prefix = |mut bytes: Bytes| packed::read_prefix(&mut bytes);
    Ok(Differences {
        walk: found.walk,
        want: each(found.want, prefix)?,
        all: each(found.all, prefix)?,
        need: packed::read_hashes(found.need, usize::MAX)?,
        extra: each(found.extra, |bytes| key(&bytes))?,
        done: found.done,
    })
}

fn batch(batch: WireBatch) -> Result<Batch, WireError> {
    Ok(Batch {
        session: batch.session,
        seq: batch.seq,
        position: Position { incarnation: batch.incarnation, revision: batch.revision },
        adopt: batch.adopt,
        changes: each(batch.changes, change)?,
    })
}

/// A change without content that is not marked as a deletion has content in a form that this version does not know.
fn change(change: WireChange) -> Result<(Key, Option<Bytes>), WireError> {
    if change.delete == change.content.is_some() {
        return Err(WireError::Malformed);
    }
    Ok((key(&change.key)?, change.content))
}

fn report(report: WireObjectState) -> Result<Report, WireError> {
    if report.gone == report.state.is_some() {
        return Err(WireError::Malformed);
    }
    let version = Version { epoch: report.epoch, counter: report.counter };
    Ok(Report { key: key(&report.key)?, version, state: report.state })
}

fn key(bytes: &[u8]) -> Result<Key, WireError> {
    std::str::from_utf8(bytes).map(Key::from).map_err(|_| WireError::Malformed)
}

fn lossy(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}

/// The replacement of an invalid byte is three bytes long, so lossy text can be longer than what was received.
fn cut(mut text: String, limit: usize) -> String {
    text.truncate(text.floor_char_boundary(limit));
    text
}
