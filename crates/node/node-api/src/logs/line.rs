//! One line of a container's log, and what of it somebody wants to see. Pure.

use jiff::Timestamp;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stream {
    #[default]
    All,
    Stdout,
    Stderr,
}

/// `<time> <stream> <F|P> <text>`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    pub time: &'a str,
    pub stream: Stream,
    /// The line goes on in the next one.
    pub is_partial: bool,
    pub text: &'a [u8],
}

impl<'a> Line<'a> {
    /// Without the end of the line. None: it is no line of a log.
    pub fn parse(line: &'a [u8]) -> Option<Self> {
        let mut parts = line.splitn(4, |byte| *byte == b' ');
        let time = std::str::from_utf8(parts.next()?).ok().filter(|time| !time.is_empty())?;
        let stream = match parts.next()? {
            b"stdout" => Stream::Stdout,
            b"stderr" => Stream::Stderr,
            _ => return None,
        };
        // More tags may follow the first, behind colons.
        let is_partial = match parts.next()?.split(|byte| *byte == b':').next()? {
            b"P" => true,
            b"F" => false,
            _ => return None,
        };
        Some(Self { time, stream, is_partial, text: parts.next().unwrap_or_default() })
    }

    pub fn is_of(&self, stream: Stream) -> bool {
        stream == Stream::All || self.stream == stream
    }
}

/// What somebody wants to see of each line.
#[derive(Clone, Debug, Default)]
pub struct Picker {
    pub since: Option<Timestamp>,
    pub stream: Stream,
    pub timestamps: bool,
    /// Bytes that may still be shown.
    pub left: Option<u64>,
    /// The last line that was shown goes on.
    within: bool,
}

impl Picker {
    pub fn new(since: Option<Timestamp>, stream: Stream, timestamps: bool, limit: Option<u64>) -> Self {
        Self { since, stream, timestamps, left: limit, within: false }
    }

    /// Adds what is to be shown of a line. False: nothing more will be.
    pub fn pick(&mut self, line: &[u8], out: &mut Vec<u8>) -> bool {
        if self.left == Some(0) {
            return false;
        }
        let Some(line) = Line::parse(line).filter(|line| line.is_of(self.stream)) else { return true };
        if let Some(since) = self.since
            && line.time.parse::<Timestamp>().is_ok_and(|time| time < since)
        {
            return true;
        }
        let before = out.len();
        if self.timestamps && !self.within {
            out.extend_from_slice(line.time.as_bytes());
            out.push(b' ');
        }
        out.extend_from_slice(line.text);
        if !line.is_partial {
            out.push(b'\n');
        }
        self.within = line.is_partial;
        if let Some(left) = &mut self.left {
            let added = (out.len() - before) as u64;
            if added >= *left {
                out.truncate(before + usize::try_from(*left).unwrap_or(usize::MAX));
                *left = 0;
                return false;
            }
            *left -= added;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &[&str] = &[
        "2026-01-02T03:04:05.000000001Z stdout F one",
        "2026-01-02T03:04:06.000000000Z stderr F two  with spaces ",
        "2026-01-02T03:04:07.500000000Z stdout P thr",
        "2026-01-02T03:04:07.600000000Z stdout F ee",
        "nonsense",
        "2026-01-02T03:04:08.000000000Z stdin F no",
        "2026-01-02T03:04:08.000000000Z stdout X no",
        "2026-01-02T03:04:09.000000000Z stdout F",
    ];

    fn shown(mut picker: Picker) -> String {
        let mut out = Vec::new();
        for line in LOG {
            if !picker.pick(line.as_bytes(), &mut out) {
                break;
            }
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn what_is_shown() {
        let since = |text: &str| Some(text.parse().unwrap());
        for (name, picker, expected) in [
            ("everything", Picker::default(), "one\ntwo  with spaces \nthree\n\n"),
            ("one stream", Picker { stream: Stream::Stderr, ..Picker::default() }, "two  with spaces \n"),
            (
                "with times, once per line",
                Picker { timestamps: true, stream: Stream::Stdout, ..Picker::default() },
                "2026-01-02T03:04:05.000000001Z one\n2026-01-02T03:04:07.500000000Z three\n2026-01-02T03:04:09.000000000Z \n",
            ),
            ("since then", Picker { since: since("2026-01-02T03:04:07Z"), ..Picker::default() }, "three\n\n"),
            ("the very moment", Picker { since: since("2026-01-02T03:04:09Z"), ..Picker::default() }, "\n"),
            ("so many bytes", Picker { left: Some(6), ..Picker::default() }, "one\ntw"),
            ("up to the end of a line", Picker { left: Some(4), ..Picker::default() }, "one\n"),
            ("none", Picker { left: Some(0), ..Picker::default() }, ""),
        ] {
            assert_eq!(shown(picker), expected, "{name}");
        }
    }
}
