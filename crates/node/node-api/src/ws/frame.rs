//! Frames of RFC 6455 as a server reads and writes them: bytes in, messages out. No I/O.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// A message may be so long, all its fragments together. Clients send 32 KiB at a time.
pub const LONGEST: usize = 1 << 20;
/// What control frames may carry.
const LONGEST_CONTROL: usize = 125;

const CONTINUATION: u8 = 0;
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// What came from the other end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Text or binary: whoever asked for a protocol knows which of them it has.
    Message(Bytes),
    Ping(Bytes),
    Pong,
    Close,
}

/// Why a connection cannot go on, as its last frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    #[error("the other end does not keep to the protocol")]
    Protocol,
    #[error("text that is no UTF-8")]
    Encoding,
    #[error("a message of more than 1 MiB")]
    TooBig,
}

impl Violation {
    pub fn code(self) -> u16 {
        match self {
            Self::Protocol => 1002,
            Self::Encoding => 1007,
            Self::TooBig => 1009,
        }
    }
}

#[derive(Default)]
pub struct Decoder {
    unread: BytesMut,
    /// The fragments of a message so far, and whether it is text.
    begun: Option<(bool, BytesMut)>,
}

struct Head {
    fin: bool,
    opcode: u8,
    mask: [u8; 4],
    length: usize,
    size: usize,
}

impl Decoder {
    pub fn feed(&mut self, bytes: &[u8]) {
        self.unread.extend_from_slice(bytes);
    }

    /// The next thing that is whole. After a violation nothing that follows means anything.
    pub fn next_event(&mut self) -> Result<Option<Event>, Violation> {
        loop {
            let Some(head) = self.head()? else { return Ok(None) };
            if self.unread.len() < head.size + head.length {
                return Ok(None);
            }
            self.unread.advance(head.size);
            let mut payload = self.unread.split_to(head.length);
            for (at, byte) in payload.iter_mut().enumerate() {
                *byte ^= head.mask[at % 4];
            }
            if let Some(event) = self.frame(&head, payload)? {
                return Ok(Some(event));
            }
        }
    }

    /// What the next frame is, once that is there to be read.
    fn head(&self) -> Result<Option<Head>, Violation> {
        let bytes = &self.unread[..];
        let [first, second, ..] = *bytes else { return Ok(None) };
        // Nobody agreed on extensions, and clients have to mask.
        if first & 0x70 != 0 || second & 0x80 == 0 {
            return Err(Violation::Protocol);
        }
        let (fin, opcode) = (first & 0x80 != 0, first & 0x0f);
        let (length, extended) = match second & 0x7f {
            126 => match bytes.get(2..4) {
                Some(mut two) => (u64::from(two.get_u16()), 2),
                None => return Ok(None),
            },
            127 => match bytes.get(2..10) {
                Some(mut eight) => (eight.get_u64(), 8),
                None => return Ok(None),
            },
            short => (u64::from(short), 0),
        };
        let length = usize::try_from(length).map_err(|_| Violation::TooBig)?;
        let is_control = opcode & 8 != 0;
        if is_control && (!fin || length > LONGEST_CONTROL) {
            return Err(Violation::Protocol);
        }
        let before = self.begun.as_ref().map_or(0, |(_, begun)| begun.len());
        if length > LONGEST || !is_control && before + length > LONGEST {
            return Err(Violation::TooBig);
        }
        let Some(&[a, b, c, d]) = bytes.get(2 + extended..6 + extended) else { return Ok(None) };
        Ok(Some(Head { fin, opcode, mask: [a, b, c, d], length, size: 6 + extended }))
    }

    fn frame(&mut self, head: &Head, payload: BytesMut) -> Result<Option<Event>, Violation> {
        let (is_text, whole) = match (head.opcode, self.begun.take()) {
            (CLOSE, _) if payload.len() == 1 => return Err(Violation::Protocol),
            (CLOSE, _) => return Ok(Some(Event::Close)),
            (PING, begun) => {
                self.begun = begun;
                return Ok(Some(Event::Ping(payload.freeze())));
            }
            (PONG, begun) => {
                self.begun = begun;
                return Ok(Some(Event::Pong));
            }
            (TEXT | BINARY, None) => (head.opcode == TEXT, payload),
            (CONTINUATION, Some((is_text, mut begun))) => {
                begun.extend_from_slice(&payload);
                (is_text, begun)
            }
            _ => return Err(Violation::Protocol),
        };
        if !head.fin {
            self.begun = Some((is_text, whole));
            return Ok(None);
        }
        if is_text && std::str::from_utf8(&whole).is_err() {
            return Err(Violation::Encoding);
        }
        Ok(Some(Event::Message(whole.freeze())))
    }
}

/// A whole message in one frame, put together of two parts: which channel it is for, and what it says.
pub fn message(is_text: bool, first: &[u8], rest: &[u8]) -> Bytes {
    frame(if is_text { TEXT } else { BINARY }, first, rest)
}

pub fn pong(payload: &[u8]) -> Bytes {
    frame(PONG, payload, &[])
}

pub fn close(code: u16) -> Bytes {
    frame(CLOSE, &code.to_be_bytes(), &[])
}

/// What a server sends is not masked.
fn frame(opcode: u8, first: &[u8], rest: &[u8]) -> Bytes {
    let length = first.len() + rest.len();
    let mut out = BytesMut::with_capacity(length + 10);
    out.put_u8(0x80 | opcode);
    match (u8::try_from(length), u16::try_from(length)) {
        (Ok(short), _) if short < 126 => out.put_u8(short),
        (_, Ok(medium)) => {
            out.put_u8(126);
            out.put_u16(medium);
        }
        _ => {
            out.put_u8(127);
            out.put_u64(length as u64);
        }
    }
    out.put_slice(first);
    out.put_slice(rest);
    out.freeze()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A frame as a client sends it.
    fn masked(fin: bool, opcode: u8, payload: &[u8]) -> Vec<u8> {
        let mut out = vec![opcode | if fin { 0x80 } else { 0 }];
        match payload.len() {
            short @ 0..126 => out.push(0x80 | short as u8),
            medium @ 126..65536 => {
                out.push(0x80 | 126);
                out.extend((medium as u16).to_be_bytes());
            }
            long => {
                out.push(0x80 | 127);
                out.extend((long as u64).to_be_bytes());
            }
        }
        let mask = [7, 0, 255, 42];
        out.extend(mask);
        out.extend(payload.iter().enumerate().map(|(at, byte)| byte ^ mask[at % 4]));
        out
    }

    fn heard(bytes: &[u8]) -> (Vec<Event>, Result<(), Violation>) {
        let mut decoder = Decoder::default();
        decoder.feed(bytes);
        let mut all = Vec::new();
        loop {
            match decoder.next_event() {
                Ok(Some(event)) => all.push(event),
                Ok(None) => return (all, Ok(())),
                Err(violation) => return (all, Err(violation)),
            }
        }
    }

    fn said(text: &'static str) -> Event {
        Event::Message(Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn frames_and_what_they_mean() {
        let join = |frames: &[Vec<u8>]| frames.concat();
        type Case = (&'static str, Vec<u8>, Vec<Event>, Result<(), Violation>);
        let cases: Vec<Case> = vec![
            ("binary", masked(true, BINARY, b"hello"), vec![said("hello")], Ok(())),
            ("text", masked(true, TEXT, "hä".as_bytes()), vec![said("hä")], Ok(())),
            ("empty", masked(true, BINARY, b""), vec![said("")], Ok(())),
            (
                "fragments with a ping between them",
                join(&[
                    masked(false, TEXT, b"a"),
                    masked(true, PING, b"p"),
                    masked(false, 0, b"b"),
                    masked(true, 0, b"c"),
                ]),
                vec![Event::Ping(Bytes::from_static(b"p")), said("abc")],
                Ok(()),
            ),
            (
                "a character in two fragments",
                join(&[masked(false, TEXT, &[0xc3]), masked(true, 0, &[0xa4])]),
                vec![said("ä")],
                Ok(()),
            ),
            (
                "close",
                join(&[masked(true, CLOSE, &[3, 232]), masked(true, PONG, b"")]),
                vec![Event::Close, Event::Pong],
                Ok(()),
            ),
            ("no UTF-8", masked(true, TEXT, &[0xff]), vec![], Err(Violation::Encoding)),
            ("half a reason for closing", masked(true, CLOSE, &[3]), vec![], Err(Violation::Protocol)),
            ("not masked", vec![0x82, 1, b'x'], vec![], Err(Violation::Protocol)),
            ("an extension", vec![0xc2, 0x80, 0, 0, 0, 0], vec![], Err(Violation::Protocol)),
            ("an unknown kind", masked(true, 3, b""), vec![], Err(Violation::Protocol)),
            ("a continuation of nothing", masked(true, 0, b""), vec![], Err(Violation::Protocol)),
            (
                "a message within another",
                join(&[masked(false, BINARY, b"a"), masked(true, BINARY, b"b")]),
                vec![],
                Err(Violation::Protocol),
            ),
            ("a long ping", masked(true, PING, &[0; 126]), vec![], Err(Violation::Protocol)),
            ("a ping in parts", masked(false, PING, b""), vec![], Err(Violation::Protocol)),
            ("more than there may be", vec![0x82, 0xff, 0, 0, 0, 1, 0, 0, 0, 0], vec![], Err(Violation::TooBig)),
            ("more than fits", [&[0x82, 0xff][..], &[255; 8]].concat(), vec![], Err(Violation::TooBig)),
            ("only half", masked(true, BINARY, b"hello")[..8].to_vec(), vec![], Ok(())),
        ];
        for (name, bytes, events, end) in cases {
            assert_eq!(heard(&bytes), (events, end), "{name}");
        }
        let many = masked(false, BINARY, &vec![0; LONGEST / 2 + 1]);
        let more = masked(true, 0, &vec![0; LONGEST / 2 + 1]);
        assert_eq!(heard(&[many, more].concat()), (vec![], Err(Violation::TooBig)));
    }

    #[test]
    fn what_is_sent_has_the_shortest_length() {
        for (length, head) in [
            (0, vec![0x82, 0]),
            (125, vec![0x82, 125]),
            (126, vec![0x82, 126, 0, 126]),
            (65535, vec![0x82, 126, 255, 255]),
            (65536, vec![0x82, 127, 0, 0, 0, 0, 0, 1, 0, 0]),
        ] {
            let sent = message(false, &[], &vec![1; length]);
            assert_eq!((&sent[..head.len()], sent.len()), (&head[..], head.len() + length));
        }
        assert_eq!(&message(true, b"1", b"x")[..], [0x81, 2, b'1', b'x']);
        assert_eq!(&close(1000)[..], [0x88, 2, 3, 232]);
        assert_eq!(&pong(b"p")[..], [0x8a, 1, b'p']);
    }

    proptest! {
        #[test]
        fn however_bytes_arrive_it_is_the_same(messages in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..300), 1usize..5), 0..8), cut in 1usize..64) {
            let mut bytes = Vec::new();
            for (message, parts) in &messages {
                let size = message.len().div_ceil(*parts).max(1);
                let pieces: Vec<&[u8]> = if message.is_empty() { vec![&[]] } else { message.chunks(size).collect() };
                for (at, piece) in pieces.iter().enumerate() {
                    bytes.extend(masked(at + 1 == pieces.len(), if at == 0 { BINARY } else { CONTINUATION }, piece));
                }
            }
            let (mut decoder, mut got) = (Decoder::default(), Vec::new());
            for piece in bytes.chunks(cut) {
                decoder.feed(piece);
                while let Some(event) = decoder.next_event().unwrap() {
                    got.push(event);
                }
            }
            let expected: Vec<Event> = messages.iter().map(|(message, _)| Event::Message(message.clone().into())).collect();
            prop_assert_eq!(got, expected);
        }

        #[test]
        fn nothing_makes_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = heard(&bytes);
        }
    }
}
