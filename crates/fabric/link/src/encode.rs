//! Messages into bytes: one byte for the kind, then the fields of [`proto`](crate::proto).

use bytes::{BufMut, Bytes, BytesMut};

use crate::message::{Batch, Differences, Hello, Message, Report, Welcome};
use crate::packed;
use crate::proto::{
    MessageKind, WireAck, WireBatch, WireChange, WireClose, WireDifferences, WireHello, WireNack, WireNodes,
    WireObjectState, WireOpen, WireRefusedKey, WireReport, WireReportAck, WireWelcome,
};
use crate::types::{Key, Position};

impl Message {
    pub fn encode(&self) -> Bytes {
        match self {
            Self::Hello(hello) => message(MessageKind::Hello, &hello_fields(hello)),
            Self::Welcome(welcome) => message(MessageKind::Welcome, &welcome_fields(welcome)),
            Self::Nodes { walk, nodes } => {
                let nodes = nodes.iter().map(packed::write_node).collect();
                message(MessageKind::Nodes, &WireNodes { walk: *walk, nodes })
            }
            Self::Differences(found) => message(MessageKind::Differences, &differences_fields(found)),
            Self::Batch(batch) => message(MessageKind::Batch, &batch_fields(batch)),
            Self::Ack { session, seq, holds } => {
                message(MessageKind::Ack, &WireAck { session: *session, seq: *seq, holds: *holds })
            }
            Self::Nack { session, seq, keys, reason } => {
                let keys = keys.iter().map(|(key, reason)| WireRefusedKey { key: text(key), reason: text(reason) });
                let (keys, reason) = (keys.collect(), text(reason));
                message(MessageKind::Nack, &WireNack { session: *session, seq: *seq, keys, reason })
            }
            Self::Report { seq, reports } => message(
                MessageKind::Report,
                &WireReport { seq: *seq, reports: reports.iter().map(state_fields).collect() },
            ),
            Self::ReportAck { seq, at: Position { incarnation, revision } } => message(
                MessageKind::ReportAck,
                &WireReportAck { seq: *seq, incarnation: *incarnation, revision: *revision },
            ),
            Self::Open { ticket } => {
                message(MessageKind::Open, &WireOpen { ticket: Bytes::copy_from_slice(&ticket.to_be_bytes()) })
            }
            Self::Close { reason, retry_after } => {
                let retry_after_plus_one = retry_after.map_or(0, |after| after.saturating_add(1));
                message(MessageKind::Close, &WireClose { reason: *reason as i32, retry_after_plus_one })
            }
            Self::Heartbeat => Bytes::from_static(&[MessageKind::Heartbeat as u8]),
            Self::Unknown(kind) => Bytes::copy_from_slice(&[*kind]),
        }
    }
}

fn message(kind: MessageKind, fields: &impl prost::Message) -> Bytes {
    let mut buffer = BytesMut::with_capacity(1 + fields.encoded_len());
    buffer.put_u8(kind as u8);
    fields.encode_raw(&mut buffer);
    buffer.freeze()
}

fn hello_fields(hello: &Hello) -> WireHello {
    WireHello {
        min_version: hello.min_version.into(),
        max_version: hello.max_version.into(),
        features: hello.features,
        // Incarnations are never zero.
        seen_incarnation: hello.seen.map_or(0, |seen| seen.incarnation),
        seen_revision: hello.seen.map_or(0, |seen| seen.revision),
        floor_epoch: hello.floor.epoch,
        floor_counter: hello.floor.counter,
        root: Bytes::copy_from_slice(&hello.root.to_be_bytes()),
        holds: hello.holds,
        start: hello.start,
        before: packed::write_hashes(&hello.before),
        place: text(&hello.place),
    }
}

fn welcome_fields(welcome: &Welcome) -> WireWelcome {
    WireWelcome {
        version: welcome.version.into(),
        features: welcome.features,
        session: welcome.session,
        incarnation: welcome.position.incarnation,
        revision: welcome.position.revision,
        through_plus_one: welcome.through.map_or(0, |through| through.saturating_add(1)),
    }
}

fn differences_fields(found: &Differences) -> WireDifferences {
    WireDifferences {
        walk: found.walk,
        done: found.done,
        want: found.want.iter().map(|prefix| packed::write_prefix(*prefix)).collect(),
        all: found.all.iter().map(|prefix| packed::write_prefix(*prefix)).collect(),
        need: packed::write_hashes(&found.need),
        extra: found.extra.iter().map(|key| text(key)).collect(),
    }
}

fn batch_fields(batch: &Batch) -> WireBatch {
    let change = |(key, content): &(Key, Option<Bytes>)| WireChange {
        key: text(key),
        content: content.clone(),
        delete: content.is_none(),
    };
    WireBatch {
        session: batch.session,
        seq: batch.seq,
        incarnation: batch.position.incarnation,
        revision: batch.position.revision,
        adopt: batch.adopt,
        changes: batch.changes.iter().map(change).collect(),
    }
}

fn state_fields(report: &Report) -> WireObjectState {
    WireObjectState {
        key: text(&report.key),
        epoch: report.version.epoch,
        counter: report.version.counter,
        state: report.state.clone(),
        gone: report.state.is_none(),
    }
}

fn text(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}
