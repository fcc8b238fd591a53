//! Messages survive the wire; nothing that comes over it panics; what is newer is skipped.
#![allow(clippy::unwrap_used, reason = "a test")]

use bytes::{BufMut, Bytes, BytesMut};
use proptest::prelude::*;
use selvedge_link::*;

/// The bytes of every message as the first version wrote them: an edge of any age understands these.
const GOLDEN: &str = include_str!("golden/messages.txt");

fn messages() -> Vec<Message> {
    testing::messages().into_iter().map(|(_, message)| message).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(hex: &str) -> Bytes {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

#[test]
fn every_message_has_the_bytes_of_the_first_version() {
    let golden: Vec<(&str, &str)> = GOLDEN.lines().map(|line| line.split_once(' ').unwrap()).collect();
    let messages = testing::messages();
    let names: Vec<&str> = messages.iter().map(|(name, _)| *name).collect();
    let recorded: Vec<&str> = golden.iter().map(|(name, _)| *name).collect();
    assert_eq!(recorded, names, "a new sample is added to golden/messages.txt; a recorded one never changes");
    for ((name, golden), (_, message)) in golden.into_iter().zip(messages) {
        assert_eq!(hex(&message.encode()), golden, "{name}");
        assert_eq!(Message::decode(bytes(golden)).unwrap(), message, "{name}");
    }
}

#[test]
fn unknown_fields_and_kinds_are_skipped() {
    for message in messages() {
        let bytes = message.encode();
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
