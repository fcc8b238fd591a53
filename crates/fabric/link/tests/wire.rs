//! Messages survive the wire; nothing that comes over it panics; what is newer is skipped.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

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
    for kind in [0, 13, 200, 255] {
        assert_eq!(Message::decode(Bytes::copy_from_slice(&[kind, 1])), Ok(Message::Unknown(kind)));
    }
    // A reason of a newer peer.
    let close = Message::decode(Bytes::from_static(&[11, 0x08, 99]));
    assert_eq!(close, Ok(Message::Close { reason: CloseReason::Other, retry_after: None }));
}

#[test]
fn content_in_an_unknown_form_is_no_deletion() {
    // A batch with one change that has a key and a field 9.
    let bytes = Bytes::from_static(&[5, 0x32, 6, 0x0a, 1, b'k', 0x4a, 1, b'?']);
    assert_eq!(Message::decode(bytes), Err(WireError::Malformed));
}

/// Empty elements cost two bytes on the wire and many more in memory.
#[test]
fn a_list_without_end_is_refused_before_it_is_decoded() {
    let elements: [(u8, &[u8]); 8] = [
        (3, &[0x12, 0]),
        (4, &[0x1a, 0]),
        (4, &[0x22, 0]),
        (4, &[0x32, 0]),
        (5, &[0x32, 0]),
        (7, &[0x1a, 0]),
        (8, &[0x12, 0]),
        (5, &[0x78, 1]),
    ];
    for (kind, element) in elements {
        let mut bytes = vec![kind];
        bytes.extend(element.repeat((16 << 10) + 1));
        assert_eq!(Message::decode(bytes.into()), Err(WireError::TooManyFields), "{kind} {element:?}");
    }
    // The longest lists that are sent.
    let extra = (0..2_000).map(|n| format!("core/configmaps/n/{n}").into()).collect();
    let long = Message::Differences(Differences { walk: 1, extra, ..Default::default() });
    assert_eq!(Message::decode(long.encode()), Ok(long));
    let bytes = Bytes::from(vec![10; MAX_MESSAGE_BYTES + 1]);
    assert_eq!(Message::decode(bytes), Err(WireError::TooLong));
}

#[test]
fn a_length_beyond_the_end_allocates_nothing() {
    for kind in 1..=12 {
        for field in 1..=12u8 {
            // The field claims 2^62 bytes and has one.
            let bytes = [kind, field << 3 | 2, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x40, 7];
            let decoded = Message::decode(Bytes::copy_from_slice(&bytes));
            assert!(decoded.is_err() || kind == 10, "{kind} {field} {decoded:?}");
        }
    }
}

#[test]
fn a_list_of_starts_and_a_place_are_cut_to_their_bounds() {
    let hello = testing::messages().into_iter().find_map(|(_, message)| match message {
        Message::Hello(hello) => Some(hello),
        _ => None,
    });
    let long = Hello { before: vec![1; 100], place: "x".repeat(1_000), ..hello.unwrap() };
    let expected = Hello { before: vec![1; MAX_EARLIER_STARTS], place: "x".repeat(MAX_PLACE_BYTES), ..long.clone() };
    assert_eq!(Message::decode(Message::Hello(long).encode()), Ok(Message::Hello(expected)));
    // Invalid bytes grow when they are replaced; found by the fuzzer.
    let mut invalid = vec![1, 12 << 3 | 2, 0xc8, 0x01];
    invalid.extend([0xff; 200]);
    let Ok(Message::Hello(hello)) = Message::decode(invalid.into()) else { panic!("no hello") };
    assert_eq!(hello.place, "\u{fffd}".repeat(MAX_PLACE_BYTES / 3));
}

#[test]
fn a_version_beyond_32_bits_is_refused_and_not_cut() {
    for kind in [1, 2] {
        let bytes = Bytes::copy_from_slice(&[kind, 0x08, 0x81, 0x80, 0x80, 0x80, 0x10]);
        assert_eq!(Message::decode(bytes), Err(WireError::Malformed));
    }
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
    fn nothing_near_a_message_panics(
        which in any::<usize>(), at in any::<usize>(), with in any::<u8>(), cut in any::<usize>(),
    ) {
        let messages = messages();
        let mut bytes = messages[which % messages.len()].encode().to_vec();
        let (at, cut) = (at % bytes.len(), cut % bytes.len());
        bytes[at] = with;
        let _ = Message::decode(bytes.clone().into());
        bytes.truncate(cut);
        let _ = Message::decode(bytes.into());
    }
}
