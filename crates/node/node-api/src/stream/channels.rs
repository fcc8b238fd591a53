//! How several streams share one WebSocket: the first byte of each message says which one it is for. Pure.

use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::{Buf, Bytes};

use crate::ws::frame;

/// Of exec and attach.
pub const STDIN: u8 = 0;
pub const STDOUT: u8 = 1;
pub const STDERR: u8 = 2;
pub const ERROR: u8 = 3;
pub const RESIZE: u8 = 4;
/// Version 5: what follows is the number of a channel that is closed.
const CLOSE: u8 = 255;

/// What is spoken by exec and attach, the best last. Who asks for none has the first.
pub const SPOKEN: [&str; 6] = [
    "",
    "channel.k8s.io",
    "base64.channel.k8s.io",
    "v4.channel.k8s.io",
    "v4.base64.channel.k8s.io",
    "v5.channel.k8s.io",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channels {
    is_base64: bool,
    /// The end is a Status, and not just words.
    pub has_status: bool,
    can_close: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    Data { channel: u8, data: Bytes },
    Closed { channel: u8 },
}

impl Channels {
    pub fn of(protocol: &str) -> Self {
        Self {
            is_base64: protocol.contains("base64"),
            has_status: protocol.starts_with("v4.") || protocol.starts_with("v5."),
            can_close: protocol.starts_with("v5."),
        }
    }

    /// What a message says; nothing if it says nothing.
    pub fn decode(self, mut message: Bytes) -> Option<Said> {
        let first = message.try_get_u8().ok()?;
        if self.is_base64 {
            let channel = first.checked_sub(b'0').filter(|channel| *channel <= 9)?;
            return Some(Said::Data { channel, data: BASE64_STANDARD.decode(&message).ok()?.into() });
        }
        if self.can_close && first == CLOSE {
            return Some(Said::Closed { channel: message.try_get_u8().ok()? });
        }
        Some(Said::Data { channel: first, data: message })
    }

    /// The frame of a message.
    pub fn encode(self, channel: u8, data: &[u8]) -> Bytes {
        match self.is_base64 {
            true => frame::message(true, &[b'0' + channel], BASE64_STANDARD.encode(data).as_bytes()),
            false => frame::message(false, &[channel], data),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_messages_say() {
        let data =
            |channel, data: &'static str| Some(Said::Data { channel, data: Bytes::from_static(data.as_bytes()) });
        for (protocol, message, said) in [
            ("v5.channel.k8s.io", &b"\0hi"[..], data(0, "hi")),
            ("v5.channel.k8s.io", b"\xff\0", Some(Said::Closed { channel: 0 })),
            ("v5.channel.k8s.io", b"\xff", None),
            ("v4.channel.k8s.io", b"\xff\0", data(255, "\0")),
            ("channel.k8s.io", b"\x04{}", data(4, "{}")),
            ("", b"\0", data(0, "")),
            ("", b"", None),
            ("v4.base64.channel.k8s.io", b"0aGk=", data(0, "hi")),
            ("base64.channel.k8s.io", b"0!", None),
            ("base64.channel.k8s.io", b"/", None),
        ] {
            assert_eq!(Channels::of(protocol).decode(Bytes::from_static(message)), said, "{protocol} {message:?}");
        }
    }

    #[test]
    fn what_is_sent() {
        assert_eq!(&Channels::of("v5.channel.k8s.io").encode(STDOUT, b"hi")[..], b"\x82\x03\x01hi");
        assert_eq!(&Channels::of("base64.channel.k8s.io").encode(STDERR, b"hi")[..], b"\x81\x052aGk=");
        for protocol in SPOKEN {
            assert_eq!(Channels::of(protocol).has_status, protocol.starts_with('v'), "{protocol}");
        }
    }
}
