//! Frames of SPDY/3.1: bytes in, frames out. Data is passed on as it comes, not frame by frame. No I/O.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::Violation;

/// What a control frame may be: headers are its largest part.
const LONGEST_CONTROL: usize = 64 << 10;
/// Data in one frame that is sent.
const LONGEST_DATA: usize = 32 << 10;
const VERSION: u16 = 3;
const FIN: u8 = 1;
/// Identifiers have 31 bits.
const ID: u32 = 0x7fff_ffff;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    SynStream {
        stream: u32,
        headers: Bytes,
        fin: bool,
    },
    Reset {
        stream: u32,
    },
    Ping {
        id: u32,
    },
    GoAway,
    /// Further headers: they mean nothing here, but belong to the compressed text.
    Headers {
        stream: u32,
        headers: Bytes,
        fin: bool,
    },
    /// Some of the data of a frame; `fin` comes with the last.
    Data {
        stream: u32,
        data: Bytes,
        fin: bool,
    },
    /// What needs no answer.
    Other,
}

#[derive(Default)]
pub struct Decoder {
    unread: BytesMut,
    /// Data that is still to come: of which stream, how much, and whether it ends there.
    under_way: Option<(u32, usize, bool)>,
}

impl Decoder {
    pub fn feed(&mut self, bytes: &[u8]) {
        self.unread.extend_from_slice(bytes);
    }

    pub fn next_frame(&mut self) -> Result<Option<Frame>, Violation> {
        if let Some((stream, left, fin)) = self.under_way {
            if self.unread.is_empty() {
                return Ok(None);
            }
            let data = self.unread.split_to(left.min(self.unread.len())).freeze();
            let left = left - data.len();
            self.under_way = (left > 0).then_some((stream, left, fin));
            return Ok(Some(Frame::Data { stream, data, fin: fin && left == 0 }));
        }
        let Some(mut head) = self.unread.get(..8) else { return Ok(None) };
        let (first, second) = (head.get_u32(), head.get_u32());
        let flags = second.to_be_bytes()[0];
        let length = (second & 0x00ff_ffff) as usize;
        let fin = flags & FIN != 0;
        if first & !ID == 0 {
            self.unread.advance(8);
            if length == 0 {
                return Ok(Some(Frame::Data { stream: first, data: Bytes::new(), fin }));
            }
            self.under_way = Some((first, length, fin));
            return self.next_frame();
        }
        let [_, _, high, low] = first.to_be_bytes();
        if (first >> 16) as u16 & 0x7fff != VERSION {
            return Err(Violation::Protocol);
        }
        if length > LONGEST_CONTROL {
            return Err(Violation::TooBig);
        }
        if self.unread.len() < 8 + length {
            return Ok(None);
        }
        self.unread.advance(8);
        let body = self.unread.split_to(length).freeze();
        control(u16::from_be_bytes([high, low]), body, fin).map(Some)
    }
}

fn control(kind: u16, mut body: Bytes, fin: bool) -> Result<Frame, Violation> {
    let mut number = |skip: usize| {
        let number = body.try_get_u32().map_err(|_| Violation::Protocol)?;
        if body.len() < skip {
            return Err(Violation::Protocol);
        }
        body.advance(skip);
        Ok(number)
    };
    Ok(match kind {
        // Behind the stream: the one it belongs to, a priority and a slot, none of which matters.
        1 => Frame::SynStream { stream: number(6)? & ID, headers: body, fin },
        3 => Frame::Reset { stream: number(4)? & ID },
        6 => Frame::Ping { id: number(0)? },
        7 => Frame::GoAway,
        8 => Frame::Headers { stream: number(0)? & ID, headers: body, fin },
        // Answers to what is never asked here, settings and windows.
        2 | 4 | 9 => Frame::Other,
        // Kinds that nobody knows are passed over.
        _ => Frame::Other,
    })
}

fn put_control(kind: u16, body: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(8 + body.len());
    out.put_u16(0x8000 | VERSION);
    out.put_u16(kind);
    out.put_u32(body.len() as u32);
    out.put_slice(body);
    out.freeze()
}

/// A stream was accepted. `headers` are packed.
pub fn reply(stream: u32, headers: &[u8]) -> Bytes {
    put_control(2, &[&stream.to_be_bytes(), headers].concat())
}

/// Why a stream is ended at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Cause {
    NoSuchStream = 2,
    Refused = 3,
    Cancelled = 5,
}

pub fn reset(stream: u32, cause: Cause) -> Bytes {
    put_control(3, &[stream.to_be_bytes(), (cause as u32).to_be_bytes()].concat())
}

pub fn ping(id: u32) -> Bytes {
    put_control(6, &id.to_be_bytes())
}

/// The last that is heard of this end. `last` is the last stream that was taken.
pub fn go_away(last: u32, is_error: bool) -> Bytes {
    put_control(7, &[last.to_be_bytes(), u32::from(is_error).to_be_bytes()].concat())
}

/// There is room for so much more.
pub fn window(stream: u32, more: u32) -> Bytes {
    put_control(9, &[stream.to_be_bytes(), more.to_be_bytes()].concat())
}

/// As many frames as it takes.
pub fn data(stream: u32, data: &[u8], fin: bool) -> Bytes {
    let pieces = data.len().div_ceil(LONGEST_DATA).max(1);
    let mut out = BytesMut::with_capacity(data.len() + 8 * pieces);
    for at in 0..pieces {
        let piece = &data[at * LONGEST_DATA..data.len().min((at + 1) * LONGEST_DATA)];
        let flags = if fin && at + 1 == pieces { FIN } else { 0 };
        out.put_u32(stream & ID);
        out.put_u32(u32::from(flags) << 24 | piece.len() as u32);
        out.put_slice(piece);
    }
    out.freeze()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(bytes: &[u8]) -> (Vec<Frame>, Result<(), Violation>) {
        let mut decoder = Decoder::default();
        decoder.feed(bytes);
        let mut all = Vec::new();
        loop {
            match decoder.next_frame() {
                Ok(Some(frame)) => all.push(frame),
                Ok(None) => return (all, Ok(())),
                Err(violation) => return (all, Err(violation)),
            }
        }
    }

    #[test]
    fn frames_and_what_they_are() {
        let with = |stream, data: &'static [u8], fin| Frame::Data { stream, data: Bytes::from_static(data), fin };
        let headers = Bytes::from_static(b"hh");
        for (name, bytes, frames, end) in [
            ("data", &[0, 0, 0, 1, 0, 0, 0, 2, b'h', b'i'][..], vec![with(1, b"hi", false)], Ok(())),
            ("the end of a stream", &[0, 0, 0, 3, 1, 0, 0, 0], vec![with(3, b"", true)], Ok(())),
            ("some of the data", &[0, 0, 0, 1, 1, 0, 0, 9, b'h', b'i'], vec![with(1, b"hi", false)], Ok(())),
            (
                "a stream",
                &[0x80, 3, 0, 1, 0, 0, 0, 12, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, b'h', b'h'],
                vec![Frame::SynStream { stream: 5, headers: headers.clone(), fin: false }],
                Ok(()),
            ),
            (
                "further headers",
                &[0x80, 3, 0, 8, 1, 0, 0, 6, 0, 0, 0, 5, b'h', b'h'],
                vec![Frame::Headers { stream: 5, headers, fin: true }],
                Ok(()),
            ),
            ("a reset", &[0x80, 3, 0, 3, 0, 0, 0, 8, 0, 0, 0, 5, 0, 0, 0, 5], vec![Frame::Reset { stream: 5 }], Ok(())),
            ("a ping", &[0x80, 3, 0, 6, 0, 0, 0, 4, 0, 0, 0, 7], vec![Frame::Ping { id: 7 }], Ok(())),
            ("the end", &[0x80, 3, 0, 7, 0, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0, 0], vec![Frame::GoAway], Ok(())),
            ("a window", &[0x80, 3, 0, 9, 0, 0, 0, 8, 0, 0, 0, 1, 0, 0, 1, 0], vec![Frame::Other], Ok(())),
            ("what nobody knows", &[0x80, 3, 1, 9, 0, 0, 0, 0], vec![Frame::Other], Ok(())),
            ("another version", &[0x80, 2, 0, 6, 0, 0, 0, 4, 0, 0, 0, 7], vec![], Err(Violation::Protocol)),
            ("a stream without a number", &[0x80, 3, 0, 1, 0, 0, 0, 2, 0, 0], vec![], Err(Violation::Protocol)),
            ("too much", &[0x80, 3, 0, 1, 0, 255, 0, 0], vec![], Err(Violation::TooBig)),
            ("half a head", &[0x80, 3, 0, 1], vec![], Ok(())),
        ] {
            assert_eq!(read(bytes), (frames, end), "{name}");
        }
    }

    #[test]
    fn what_is_sent() {
        assert_eq!(&reply(1, b"h")[..], [0x80, 3, 0, 2, 0, 0, 0, 5, 0, 0, 0, 1, b'h']);
        assert_eq!(&reset(1, Cause::Refused)[..], [0x80, 3, 0, 3, 0, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0, 3]);
        assert_eq!(&go_away(9, true)[..], [0x80, 3, 0, 7, 0, 0, 0, 8, 0, 0, 0, 9, 0, 0, 0, 1]);
        assert_eq!(&window(1, 256)[..], [0x80, 3, 0, 9, 0, 0, 0, 8, 0, 0, 0, 1, 0, 0, 1, 0]);
        assert_eq!(read(&ping(7)), (vec![Frame::Ping { id: 7 }], Ok(())));
    }

    proptest! {
        #[test]
        fn data_arrives_however_it_is_cut(sent in prop::collection::vec((1u32..9, prop::collection::vec(any::<u8>(), 0..70_000), any::<bool>()), 0..4), cut in 1usize..5000) {
            let bytes: Vec<u8> = sent.iter().flat_map(|(stream, bytes, fin)| data(*stream, bytes, *fin)).collect();
            let (mut decoder, mut got) = (Decoder::default(), Vec::<(u32, Vec<u8>, bool)>::new());
            let mut open = false;
            for piece in bytes.chunks(cut) {
                decoder.feed(piece);
                while let Some(frame) = decoder.next_frame().unwrap() {
                    let Frame::Data { stream, data, fin } = frame else { panic!("{frame:?}") };
                    match got.last_mut().filter(|(last, _, _)| open && *last == stream) {
                        Some(last) => { last.1.extend(&data); last.2 = fin; }
                        None => got.push((stream, data.to_vec(), fin)),
                    }
                    open = !fin;
                }
            }
            // Neighbours of one stream that do not end are one.
            let mut expected = Vec::<(u32, Vec<u8>, bool)>::new();
            for (stream, bytes, fin) in sent {
                match expected.last_mut().filter(|(last, _, ended)| !ended && *last == stream) {
                    Some(last) => { last.1.extend(&bytes); last.2 = fin; }
                    None => expected.push((stream, bytes, fin)),
                }
            }
            prop_assert_eq!(got, expected);
        }

        #[test]
        fn nothing_makes_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&bytes);
        }
    }
}
