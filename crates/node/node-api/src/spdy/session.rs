//! Which streams there are, and what of all that comes concerns whom. No I/O.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::{
    Violation,
    frame::{self, Cause, Decoder, Frame},
    headers::{Headers, Packer, Unpacker},
};

/// Streams at one time.
pub const MOST: usize = 512;
/// A sender who keeps to windows is told after so much that there is room again.
const WINDOW_STEP: u32 = 32 << 10;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Somebody opened a stream: it is to be [accepted](Session::accept).
    Opened {
        stream: u32,
        headers: Headers,
    },
    Data {
        stream: u32,
        data: Bytes,
    },
    /// Nothing more comes on this stream.
    Ended {
        stream: u32,
    },
    /// Nothing more comes, and nobody listens.
    Reset {
        stream: u32,
    },
    /// Something to be sent.
    Answer(Bytes),
    /// The other end opens no more streams.
    GoAway,
}

#[derive(Default)]
struct Stream {
    /// How much came since the sender was told of room.
    untold: u32,
    theirs_ended: bool,
    ours_ended: bool,
}

#[derive(Default)]
pub struct Session {
    decoder: Decoder,
    unpacker: Unpacker,
    packer: Packer,
    streams: BTreeMap<u32, Stream>,
    /// The last that was opened.
    last: u32,
    /// What comes before anything else is read.
    waiting: Option<Event>,
}

impl Session {
    pub fn feed(&mut self, bytes: &[u8]) {
        self.decoder.feed(bytes);
    }

    pub fn next_event(&mut self) -> Result<Option<Event>, Violation> {
        loop {
            if let Some(event) = self.waiting.take() {
                return Ok(Some(event));
            }
            let Some(frame) = self.decoder.next_frame()? else { return Ok(None) };
            if let Some(event) = self.of(frame)? {
                return Ok(Some(event));
            }
        }
    }

    fn of(&mut self, frame: Frame) -> Result<Option<Event>, Violation> {
        Ok(match frame {
            Frame::SynStream { stream, headers, fin } => {
                // Read in any case: what comes later refers to it.
                let headers = self.unpacker.unpack(&headers)?;
                if stream % 2 == 0 || stream <= self.last {
                    return Err(Violation::Protocol);
                }
                self.last = stream;
                if self.streams.len() >= MOST {
                    return Ok(Some(Event::Answer(frame::reset(stream, Cause::Refused))));
                }
                self.streams.insert(stream, Stream { theirs_ended: fin, ..Stream::default() });
                self.waiting = fin.then_some(Event::Ended { stream });
                Some(Event::Opened { stream, headers })
            }
            Frame::Headers { stream, headers, fin } => {
                self.unpacker.unpack(&headers)?;
                (fin && self.end(stream)).then_some(Event::Ended { stream })
            }
            Frame::Data { stream, data, fin } => {
                let Some(known) = self.streams.get_mut(&stream).filter(|known| !known.theirs_ended) else {
                    // Of a stream that was there and is not any more, what was under way still comes.
                    let unknown = stream == 0 || stream > self.last;
                    return Ok(unknown.then(|| Event::Answer(frame::reset(stream, Cause::NoSuchStream))));
                };
                known.untold = known.untold.saturating_add(data.len() as u32);
                let told = (known.untold >= WINDOW_STEP && !fin).then(|| frame::window(stream, known.untold));
                if told.is_some() {
                    known.untold = 0;
                }
                let ended = (fin && self.end(stream)).then_some(Event::Ended { stream });
                if data.is_empty() {
                    return Ok(ended);
                }
                self.waiting = ended.or(told.map(Event::Answer));
                Some(Event::Data { stream, data })
            }
            Frame::Reset { stream } => self.streams.remove(&stream).map(|_| Event::Reset { stream }),
            // Ours would be even, and we send none.
            Frame::Ping { id } => (id % 2 == 1).then(|| Event::Answer(frame::ping(id))),
            Frame::GoAway => Some(Event::GoAway),
            Frame::Other => None,
        })
    }

    /// Their half has ended. False if that was known.
    fn end(&mut self, stream: u32) -> bool {
        let Some(known) = self.streams.get_mut(&stream).filter(|known| !known.theirs_ended) else { return false };
        known.theirs_ended = true;
        if known.ours_ended {
            self.streams.remove(&stream);
        }
        true
    }

    /// What tells the other end that its stream was taken.
    pub fn accept(&mut self, stream: u32) -> Bytes {
        frame::reply(stream, &self.packer.nothing())
    }

    /// Nothing more is sent on a stream: how to say so, if that was not said.
    pub fn finish(&mut self, stream: u32) -> Option<Bytes> {
        let known = self.streams.get_mut(&stream).filter(|known| !known.ours_ended)?;
        known.ours_ended = true;
        if known.theirs_ended {
            self.streams.remove(&stream);
        }
        Some(frame::data(stream, &[], true))
    }

    /// Whether anything may be sent on a stream.
    pub fn is_open(&self, stream: u32) -> bool {
        self.streams.get(&stream).is_some_and(|known| !known.ours_ended)
    }

    /// Nobody here wants to hear any more of a stream: how to say so.
    pub fn cancel(&mut self, stream: u32) -> Option<Bytes> {
        self.streams.remove(&stream).map(|_| frame::reset(stream, Cause::Cancelled))
    }

    /// The last that is sent.
    pub fn go_away(&self, is_error: bool) -> Bytes {
        frame::go_away(self.last, is_error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SYN_STREAM with one header, packed without being made smaller.
    fn open(stream: u32, fin: bool, is_first: bool) -> Vec<u8> {
        let mut headers = if is_first { vec![0x78, 0x01] } else { Vec::new() };
        headers.extend([0, 14, 0, 0xf1, 0xff, 0, 0, 0, 1, 0, 0, 0, 1, b'A', 0, 0, 0, 1, b'b']);
        let mut out = vec![0x80, 3, 0, 1, u8::from(fin), 0, 0, 10 + headers.len() as u8];
        out.extend(stream.to_be_bytes());
        out.extend([0; 6]);
        out.extend(headers);
        out
    }

    fn step(session: &mut Session, bytes: &[u8]) -> Vec<Event> {
        session.feed(bytes);
        std::iter::from_fn(|| session.next_event().unwrap()).collect()
    }

    fn names(events: &[Event]) -> String {
        let name = |event: &Event| match event {
            Event::Opened { stream, headers } => format!("open {stream} {}", headers.get("a").unwrap_or("-")),
            Event::Data { stream, data } => format!("data {stream} {}", data.len()),
            Event::Ended { stream } => format!("end {stream}"),
            Event::Reset { stream } => format!("reset {stream}"),
            Event::Answer(bytes) => format!("answer {}", bytes[3]),
            Event::GoAway => "go away".to_owned(),
        };
        events.iter().map(name).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn the_life_of_streams() {
        let mut session = Session::default();
        for (bytes, expected) in [
            (open(1, false, true), "open 1 b"),
            (open(3, true, false), "open 3 b, end 3"),
            (frame::data(1, b"hello", false).to_vec(), "data 1 5"),
            (frame::data(1, b"x", true).to_vec(), "data 1 1, end 1"),
            // After its end, and after the end of what was never there.
            (frame::data(1, b"more", false).to_vec(), ""),
            (frame::data(9, b"x", false).to_vec(), "answer 3"),
            (frame::ping(1).to_vec(), "answer 6"),
            (frame::ping(2).to_vec(), ""),
            (open(5, false, false), "open 5 b"),
            (frame::reset(5, Cause::Cancelled).to_vec(), "reset 5"),
            (frame::reset(5, Cause::Cancelled).to_vec(), ""),
            (open(7, false, false), "open 7 b"),
            (frame::data(7, &vec![0; 40_000], false).to_vec(), "data 7 32768, answer 9, data 7 7232"),
            (frame::go_away(0, false).to_vec(), "go away"),
        ] {
            assert_eq!(names(&step(&mut session, &bytes)), expected);
        }
        assert!(session.is_open(1) && !session.is_open(5));
        assert!(session.finish(1).is_some() && session.finish(1).is_none() && !session.is_open(1));
        assert!(session.cancel(7).is_some() && session.cancel(7).is_none());
        assert_eq!(session.streams.len(), 1, "3 is open from here");
    }

    #[test]
    fn who_goes_back_in_numbers_is_wrong() {
        for bytes in [open(2, false, true), [open(3, false, true), open(3, false, false)].concat()] {
            let mut session = Session::default();
            session.feed(&bytes);
            let end = loop {
                match session.next_event() {
                    Ok(Some(_)) => {}
                    other => break other,
                }
            };
            assert_eq!(end, Err(Violation::Protocol));
        }
    }

    #[test]
    fn there_are_only_so_many() {
        let mut session = Session::default();
        for at in 0..MOST as u32 {
            assert!(matches!(&step(&mut session, &open(2 * at + 1, false, at == 0))[..], [Event::Opened { .. }]));
        }
        let next = 2 * MOST as u32 + 1;
        assert_eq!(names(&step(&mut session, &open(next, false, false))), "answer 3");
        session.cancel(1);
        assert_eq!(names(&step(&mut session, &open(next + 2, false, false))), format!("open {} b", next + 2));
    }
}
