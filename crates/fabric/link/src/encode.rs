//! Messages into bytes: one byte for the kind, then fields. Field numbers are never used again for something else.

use bytes::{BufMut, Bytes};

use crate::message::Message;
use crate::tree::Prefix;
use crate::types::{Position, Version};
use crate::walk::Node;
use crate::wire::Writer;

impl Message {
    pub fn encode(&self) -> Bytes {
        let mut w = Writer::default();
        w.0.put_u8(self.kind());
        match self {
            Self::Hello(hello) => {
                w.uint(1, hello.min_version.into());
                w.uint(2, hello.max_version.into());
                w.uint(3, hello.features);
                position(&mut w, 4, hello.seen);
                version(&mut w, 6, hello.floor);
                w.bytes(8, &hello.root.to_be_bytes());
                w.uint(9, hello.holds);
                if hello.start != 0 {
                    w.uint(10, hello.start);
                }
                if !hello.before.is_empty() {
                    w.nested(11, |w| hello.before.iter().for_each(|start| w.0.put_u64(*start)));
                }
                if !hello.place.is_empty() {
                    w.bytes(12, hello.place.as_bytes());
                }
            }
            Self::Welcome(welcome) => {
                w.uint(1, welcome.version.into());
                w.uint(2, welcome.features);
                w.uint(3, welcome.session);
                position(&mut w, 4, Some(welcome.position));
                w.uint(6, welcome.through.map_or(0, |through| through + 1));
            }
            Self::Nodes { walk, nodes } => {
                w.uint(1, *walk);
                nodes.iter().for_each(|node| w.nested(2, |w| write_node(w, node)));
            }
            Self::Differences(found) => {
                w.uint(1, found.walk);
                w.uint(2, found.done.into());
                found.want.iter().for_each(|prefix| w.nested(3, |w| write_prefix(w, *prefix)));
                found.all.iter().for_each(|prefix| w.nested(4, |w| write_prefix(w, *prefix)));
                if !found.need.is_empty() {
                    w.nested(5, |w| found.need.iter().for_each(|at| w.0.put_u64(*at)));
                }
                found.extra.iter().for_each(|key| w.bytes(6, key.as_bytes()));
            }
            Self::Batch(batch) => {
                w.uint(1, batch.session);
                w.uint(2, batch.seq);
                position(&mut w, 3, Some(batch.position));
                w.uint(5, batch.adopt.into());
                for (key, content) in &batch.changes {
                    w.nested(6, |w| {
                        w.bytes(1, key.as_bytes());
                        // Said outright: content in a form that is not known yet must not read as a deletion.
                        match content {
                            Some(content) => w.bytes(2, content),
                            None => w.uint(3, 1),
                        }
                    });
                }
            }
            Self::Ack { session, seq, holds } => {
                w.uint(1, *session);
                w.uint(2, *seq);
                w.uint(3, *holds);
            }
            Self::Nack { session, seq, keys, reason } => {
                w.uint(1, *session);
                w.uint(2, *seq);
                for (key, reason) in keys {
                    w.nested(3, |w| {
                        w.bytes(1, key.as_bytes());
                        w.bytes(2, reason.as_bytes());
                    });
                }
                if !reason.is_empty() {
                    w.bytes(4, reason.as_bytes());
                }
            }
            Self::Report { seq, reports } => {
                w.uint(1, *seq);
                for report in reports {
                    w.nested(2, |w| {
                        w.bytes(1, report.key.as_bytes());
                        version(w, 2, report.version);
                        match &report.state {
                            Some(state) => w.bytes(4, state),
                            None => w.uint(5, 1),
                        }
                    });
                }
            }
            Self::ReportAck { seq, at } => {
                w.uint(1, *seq);
                position(&mut w, 2, Some(*at));
            }
            Self::Open { ticket } => w.bytes(1, &ticket.to_be_bytes()),
            Self::Heartbeat | Self::Unknown(_) => {}
            Self::Close { reason, retry_after } => {
                w.uint(1, *reason as u64);
                w.uint(2, retry_after.map_or(0, |after| after.saturating_add(1)));
            }
        }
        w.0.freeze()
    }

    fn kind(&self) -> u8 {
        match self {
            Self::Hello(_) => 1,
            Self::Welcome(_) => 2,
            Self::Nodes { .. } => 3,
            Self::Differences(_) => 4,
            Self::Batch(_) => 5,
            Self::Ack { .. } => 6,
            Self::Nack { .. } => 7,
            Self::Report { .. } => 8,
            Self::ReportAck { .. } => 9,
            Self::Heartbeat => 10,
            Self::Close { .. } => 11,
            Self::Open { .. } => 12,
            Self::Unknown(kind) => *kind,
        }
    }
}

/// Incarnations are never zero, so a missing one says that there is no position.
fn position(w: &mut Writer, field: u32, position: Option<Position>) {
    if let Some(position) = position {
        w.uint(field, position.incarnation);
        w.uint(field + 1, position.revision);
    }
}

fn version(w: &mut Writer, field: u32, version: Version) {
    w.uint(field, version.epoch);
    w.uint(field + 1, version.counter);
}

fn write_prefix(w: &mut Writer, prefix: Prefix) {
    w.0.put_u8(prefix.depth());
    let digits = usize::from(prefix.depth().div_ceil(2));
    w.0.put_slice(&prefix.first().to_be_bytes()[..digits]);
}

fn write_node(w: &mut Writer, node: &Node) {
    match node {
        Node::Children(prefix, children) => {
            w.0.put_u8(0);
            write_prefix(w, *prefix);
            for child in children.iter() {
                w.varint(child.count);
                if child.count > 0 {
                    w.0.put_u64(child.digest);
                }
            }
        }
        Node::Entries(prefix, entries) => {
            w.0.put_u8(1);
            write_prefix(w, *prefix);
            for (at, hash) in entries {
                w.0.put_u64(*at);
                w.0.put_u128(*hash);
            }
        }
    }
}
