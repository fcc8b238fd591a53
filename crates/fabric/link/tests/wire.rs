//! Messages survive the wire; nothing that comes over it panics; what is newer is skipped.
#![allow(clippy::unwrap_used, reason = "a test")]

use bytes::{BufMut, Bytes, BytesMut};
use proptest::prelude::*;
use selvedge_link::*;

fn messages() -> Vec<Message> {
    let position = Position { incarnation: u64::MAX, revision: 1 << 40 };
    let version = Version { epoch: 1_760_000_000_000, counter: 3 };
    let (a, b): (Key, Key) = ("apps/deployments/n/a".into(), "".into());
    let hello = Hello {
        min_version: 1,
        max_version: 9,
        features: 5,
        seen: Some(position),
        floor: version,
        root: u128::MAX - 7,
        holds: 3,
        start: u64::MAX - 1,
        before: vec![7, u64::MAX],
        place: "machine:/data".into(),
    };
    vec![
        Message::Hello(Hello { start: 0, before: vec![], place: String::new(), ..hello.clone() }),
        Message::Hello(Hello { seen: None, ..hello.clone() }),
        Message::Hello(hello),
        Message::Welcome(Welcome { version: 1, features: 0, session: 9, position, through: Some(0) }),
        Message::Welcome(Welcome { version: 1, features: 0, session: 9, position, through: None }),
        Message::Nodes {
            walk: 2,
            nodes: vec![
                Node::Children(Prefix::ROOT.child(3).unwrap(), Box::new([Summary { count: 300, digest: 5 }; 16])),
                Node::Entries(Prefix::new(16, 77).unwrap(), vec![(77, 1), (77, u128::MAX)]),
                Node::Entries(Prefix::ROOT, vec![]),
            ],
        },
        Message::Batch(Batch {
            session: 1,
            seq: 2,
            position,
            adopt: true,
            changes: vec![(a.clone(), Some(Bytes::from_static(b"{}"))), (b.clone(), None), (b, Some(Bytes::new()))],
        }),
        Message::Ack { session: 1, seq: 0, holds: 3 },
        Message::Nack { session: 1, seq: 2, keys: vec![(a.clone(), "no".into())], reason: "disk full".into() },
        Message::Report {
            seq: 4,
            reports: vec![
                Report { key: a.clone(), version, state: None },
                Report { key: a, version, state: Some(Bytes::new()) },
            ],
        },
        Message::ReportAck { seq: 4, at: position },
        Message::Heartbeat,
        Message::Open { ticket: u128::MAX - 1 },
        Message::Close { reason: CloseReason::Silent, retry_after: Some(0) },
        Message::Close { reason: CloseReason::Other, retry_after: None },
    ]
}

#[test]
fn messages_survive_and_unknown_fields_are_skipped() {
    for message in messages() {
        let bytes = message.encode();
        assert_eq!(Message::decode(bytes.clone()).unwrap(), message);
        let mut newer = BytesMut::from(&bytes[..]);
        // Field 90 as a number, as bytes and as a fixed number, which no version writes today.
        newer.put_slice(&[0xd0, 0x05, 0x07, 0xd2, 0x05, 0x02, 1, 2, 0xd5, 0x05, 0, 0, 0, 0]);
        assert_eq!(Message::decode(newer.freeze()).unwrap(), message);
    }
    assert_eq!(Message::decode(Bytes::from_static(&[200, 1])), Ok(Message::Unknown(200)));
}

#[test]
fn content_in_an_unknown_form_is_no_deletion() {
    // A batch with one change that has a key and a field 9.
    let bytes = Bytes::from_static(&[5, 0x32, 6, 0x0a, 1, b'k', 0x4a, 1, b'?']);
    assert_eq!(Message::decode(bytes), Err(WireError::Malformed));
}

#[test]
fn a_ticket_is_whole_or_none() {
    for bytes in [&[12][..], &[12, 0x0a, 2, 1, 2], &[12, 0x08, 1]] {
        assert!(Message::decode(Bytes::copy_from_slice(bytes)).is_err(), "{bytes:?}");
    }
}

proptest! {
    #[test]
    fn nothing_panics(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), kind in 0u8..14) {
        if let Some(first) = bytes.first_mut() {
            *first = kind;
        }
        let _ = Message::decode(bytes.into());
    }

    #[test]
    fn nothing_near_a_message_panics(which in any::<usize>(), at in any::<usize>(), with in any::<u8>(), cut in any::<usize>()) {
        let messages = messages();
        let mut bytes = messages[which % messages.len()].encode().to_vec();
        let (at, cut) = (at % bytes.len(), cut % bytes.len());
        bytes[at] = with;
        let _ = Message::decode(bytes.clone().into());
        bytes.truncate(cut);
        let _ = Message::decode(bytes.into());
    }
}
