//! Bytes into messages. Whatever comes, it is a message or an error, and costs no more memory than it is long.

use bytes::Bytes;

use crate::message::{Batch, CloseReason, Differences, Hello, LONGEST_PLACE, Message, Report, STARTS, Welcome};
use crate::tree::{Prefix, Summary};
use crate::types::{Key, Position, Version};
use crate::walk::Node;
use crate::wire::{Field, Reader, WireError};

impl Message {
    /// Contents are slices of the bytes given, not copies.
    pub fn decode(bytes: Bytes) -> Result<Self, WireError> {
        if bytes.len() > crate::MAX_MESSAGE {
            return Err(WireError::TooLong);
        }
        let mut r = Reader(bytes);
        Ok(match r.byte()? {
            1 => Self::Hello(read_hello(&mut r)?),
            2 => Self::Welcome(read_welcome(&mut r)?),
            3 => read_nodes(&mut r)?,
            4 => Self::Differences(read_differences(&mut r)?),
            5 => Self::Batch(read_batch(&mut r)?),
            6 => {
                let [session, seq, holds, ..] = uints(&mut r)?;
                Self::Ack { session, seq, holds }
            }
            7 => read_nack(&mut r)?,
            8 => read_report(&mut r)?,
            9 => {
                let [seq, incarnation, revision, ..] = uints(&mut r)?;
                Self::ReportAck { seq, at: Position { incarnation, revision } }
            }
            10 => Self::Heartbeat,
            11 => {
                let [reason, after, ..] = uints(&mut r)?;
                Self::Close { reason: close_reason(reason), retry_after: after.checked_sub(1) }
            }
            12 => Self::Open { ticket: read_ticket(&mut r)? },
            kind => Self::Unknown(kind),
        })
    }
}

fn read_prefix(r: &mut Reader) -> Result<Prefix, WireError> {
    let depth = r.byte()?;
    let mut bits = [0; 8];
    let digits = usize::from(depth.div_ceil(2));
    bits.get_mut(..digits).ok_or(WireError::Malformed)?.copy_from_slice(&r.take(digits as u64)?);
    Prefix::new(depth, u64::from_be_bytes(bits)).ok_or(WireError::Malformed)
}

fn read_node(r: &mut Reader) -> Result<Node, WireError> {
    let kind = r.byte()?;
    let prefix = read_prefix(r)?;
    match kind {
        0 => {
            let mut children = Box::new([Summary::default(); 16]);
            for child in children.iter_mut() {
                child.count = r.varint()?;
                if child.count > 0 {
                    child.digest = r.u64()?;
                }
            }
            Ok(Node::Children(prefix, children))
        }
        1 => {
            let mut entries = Vec::new();
            while !r.is_empty() {
                entries.push((r.u64()?, r.u128()?));
            }
            Ok(Node::Entries(prefix, entries))
        }
        _ => Err(WireError::Malformed),
    }
}

fn read_nodes(r: &mut Reader) -> Result<Message, WireError> {
    let (mut walk, mut nodes) = (0, Vec::new());
    while let Some(field) = r.field()? {
        match field {
            (1, Field::Uint(value)) => walk = value,
            (2, Field::Bytes(bytes)) => nodes.push(read_node(&mut Reader(bytes))?),
            _ => {}
        }
    }
    Ok(Message::Nodes { walk, nodes })
}

fn read_differences(r: &mut Reader) -> Result<Differences, WireError> {
    let mut found = Differences::default();
    while let Some(field) = r.field()? {
        match field {
            (1, Field::Uint(value)) => found.walk = value,
            (2, Field::Uint(value)) => found.done = value != 0,
            (3, Field::Bytes(bytes)) => found.want.push(read_prefix(&mut Reader(bytes))?),
            (4, Field::Bytes(bytes)) => found.all.push(read_prefix(&mut Reader(bytes))?),
            (5, Field::Bytes(bytes)) => {
                let mut r = Reader(bytes);
                while !r.is_empty() {
                    found.need.push(r.u64()?);
                }
            }
            (6, Field::Bytes(bytes)) => found.extra.push(key(&bytes)?),
            _ => {}
        }
    }
    Ok(found)
}

/// The first numbers of a message that has only numbers; later fields are left alone.
fn uints(r: &mut Reader) -> Result<[u64; 4], WireError> {
    let mut values = [0; 4];
    while let Some((number, field)) = r.field()? {
        let at = usize::try_from(number.wrapping_sub(1)).unwrap_or(usize::MAX);
        if let (Some(value), Field::Uint(given)) = (values.get_mut(at), field) {
            *value = given;
        }
    }
    Ok(values)
}

fn read_hello(r: &mut Reader) -> Result<Hello, WireError> {
    let (mut incarnation, mut revision) = (None, 0);
    let mut hello = Hello {
        min_version: 0,
        max_version: 0,
        features: 0,
        seen: None,
        floor: Version::default(),
        root: 0,
        holds: 0,
        start: 0,
        before: Vec::new(),
        place: String::new(),
    };
    while let Some(field) = r.field()? {
        match field {
            (1, Field::Uint(value)) => hello.min_version = u32::try_from(value).map_err(|_| WireError::Malformed)?,
            (2, Field::Uint(value)) => hello.max_version = u32::try_from(value).map_err(|_| WireError::Malformed)?,
            (3, Field::Uint(value)) => hello.features = value,
            (4, Field::Uint(value)) => incarnation = Some(value),
            (5, Field::Uint(value)) => revision = value,
            (6, Field::Uint(value)) => hello.floor.epoch = value,
            (7, Field::Uint(value)) => hello.floor.counter = value,
            (8, Field::Bytes(bytes)) => hello.root = Reader(bytes).u128()?,
            (9, Field::Uint(value)) => hello.holds = value,
            (10, Field::Uint(value)) => hello.start = value,
            (11, Field::Bytes(bytes)) => {
                let mut r = Reader(bytes);
                while !r.is_empty() && hello.before.len() < STARTS {
                    hello.before.push(r.u64()?);
                }
            }
            (12, Field::Bytes(bytes)) => {
                hello.place = String::from_utf8_lossy(&bytes[..bytes.len().min(LONGEST_PLACE)]).into_owned();
            }
            _ => {}
        }
    }
    hello.seen = incarnation.map(|incarnation| Position { incarnation, revision });
    Ok(hello)
}

fn read_welcome(r: &mut Reader) -> Result<Welcome, WireError> {
    let mut values = [0; 7];
    while let Some((number, field)) = r.field()? {
        let at = usize::try_from(number).unwrap_or(usize::MAX);
        if let (Some(value), Field::Uint(given)) = (values.get_mut(at), field) {
            *value = given;
        }
    }
    let [_, version, features, session, incarnation, revision, through] = values;
    Ok(Welcome {
        version: u32::try_from(version).map_err(|_| WireError::Malformed)?,
        features,
        session,
        position: Position { incarnation, revision },
        through: through.checked_sub(1),
    })
}

fn read_batch(r: &mut Reader) -> Result<Batch, WireError> {
    let position = Position { incarnation: 0, revision: 0 };
    let mut batch = Batch { session: 0, seq: 0, position, adopt: false, changes: Vec::new() };
    while let Some(field) = r.field()? {
        match field {
            (1, Field::Uint(value)) => batch.session = value,
            (2, Field::Uint(value)) => batch.seq = value,
            (3, Field::Uint(value)) => batch.position.incarnation = value,
            (4, Field::Uint(value)) => batch.position.revision = value,
            (5, Field::Uint(value)) => batch.adopt = value != 0,
            (6, Field::Bytes(bytes)) => batch.changes.push(read_change(bytes)?),
            _ => {}
        }
    }
    Ok(batch)
}

fn read_nack(r: &mut Reader) -> Result<Message, WireError> {
    let (mut session, mut seq, mut keys, mut whole) = (0, 0, Vec::new(), String::new());
    while let Some(field) = r.field()? {
        match field {
            (1, Field::Uint(value)) => session = value,
            (2, Field::Uint(value)) => seq = value,
            (3, Field::Bytes(bytes)) => keys.push(read_reason(bytes)?),
            (4, Field::Bytes(bytes)) => whole = String::from_utf8_lossy(&bytes).into_owned(),
            _ => {}
        }
    }
    Ok(Message::Nack { session, seq, keys, reason: whole })
}

fn read_report(r: &mut Reader) -> Result<Message, WireError> {
    let (mut seq, mut reports) = (0, Vec::new());
    while let Some(field) = r.field()? {
        match field {
            (1, Field::Uint(value)) => seq = value,
            (2, Field::Bytes(bytes)) => reports.push(read_state(bytes)?),
            _ => {}
        }
    }
    Ok(Message::Report { seq, reports })
}

/// A change without content that is not said to be a deletion is none that we understand.
fn read_change(bytes: Bytes) -> Result<(Key, Option<Bytes>), WireError> {
    let (mut r, mut name, mut content, mut delete) = (Reader(bytes), Key::default(), None, false);
    while let Some(field) = r.field()? {
        match field {
            (1, Field::Bytes(bytes)) => name = key(&bytes)?,
            (2, Field::Bytes(bytes)) => content = Some(bytes),
            (3, Field::Uint(value)) => delete = value != 0,
            _ => {}
        }
    }
    if delete == content.is_some() {
        return Err(WireError::Malformed);
    }
    Ok((name, content))
}

/// Without one there is nothing to be opened.
fn read_ticket(r: &mut Reader) -> Result<u128, WireError> {
    let mut ticket = None;
    while let Some(field) = r.field()? {
        if let (1, Field::Bytes(bytes)) = field {
            ticket = Some(Reader(bytes).u128()?);
        }
    }
    ticket.ok_or(WireError::Malformed)
}

fn read_reason(bytes: Bytes) -> Result<(Key, String), WireError> {
    let (mut r, mut name, mut reason) = (Reader(bytes), Key::default(), String::new());
    while let Some(field) = r.field()? {
        match field {
            (1, Field::Bytes(bytes)) => name = key(&bytes)?,
            (2, Field::Bytes(bytes)) => reason = String::from_utf8_lossy(&bytes).into_owned(),
            _ => {}
        }
    }
    Ok((name, reason))
}

fn read_state(bytes: Bytes) -> Result<Report, WireError> {
    let mut report = Report { key: Key::default(), version: Version::default(), state: None };
    let (mut r, mut gone) = (Reader(bytes), false);
    while let Some(field) = r.field()? {
        match field {
            (1, Field::Bytes(bytes)) => report.key = key(&bytes)?,
            (2, Field::Uint(value)) => report.version.epoch = value,
            (3, Field::Uint(value)) => report.version.counter = value,
            (4, Field::Bytes(bytes)) => report.state = Some(bytes),
            (5, Field::Uint(value)) => gone = value != 0,
            _ => {}
        }
    }
    if gone == report.state.is_some() {
        return Err(WireError::Malformed);
    }
    Ok(report)
}

fn key(bytes: &[u8]) -> Result<Key, WireError> {
    std::str::from_utf8(bytes).map(Key::from).map_err(|_| WireError::Malformed)
}

fn close_reason(number: u64) -> CloseReason {
    use CloseReason::*;
    [Other, Busy, NotReady, Incompatible, Superseded, Protocol, Storage, Revoked, Silent, Shared]
        .into_iter()
        .find(|reason| *reason as u64 == number)
        .unwrap_or(Other)
}
