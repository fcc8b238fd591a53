//! Header blocks: name and value pairs, compressed by one zlib stream for all blocks of a direction. No I/O.

use miniz_oxide::inflate::{
    TINFLStatus,
    core::{DecompressorOxide, decompress, inflate_flags::TINFL_FLAG_HAS_MORE_INPUT},
};

use super::{Violation, dictionary};

/// What a block may be when it is unpacked.
const LONGEST: usize = 64 << 10;
const MOST: u32 = 256;
/// How far back compressed text may refer.
const WINDOW: usize = 32 << 10;

/// In the order in which they came, names in lower case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers(Vec<(String, String)>);

impl Headers {
    /// The value of a header, if it is there.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    fn parse(block: &[u8]) -> Option<Self> {
        let (count, mut rest) = number(block)?;
        if count > MOST {
            return None;
        }
        let mut text = || {
            let (length, behind) = number(rest)?;
            let (text, behind) = behind.split_at_checked(usize::try_from(length).ok()?)?;
            rest = behind;
            Some(String::from_utf8_lossy(text).into_owned())
        };
        let mut all = Vec::new();
        for _ in 0..count {
            all.push((text()?.to_ascii_lowercase(), text()?));
        }
        Some(Self(all))
    }
}

fn number(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (number, rest) = bytes.split_first_chunk::<4>()?;
    Some((u32::from_be_bytes(*number), rest))
}

/// Unpacks the blocks of one direction.
#[derive(Default)]
pub struct Unpacker {
    core: Box<DecompressorOxide>,
    /// What was unpacked last, around which references go: it begins with the dictionary.
    window: Vec<u8>,
    at: usize,
    has_begun: bool,
}

impl Unpacker {
    pub fn unpack(&mut self, packed: &[u8]) -> Result<Headers, Violation> {
        let block = self.inflate(packed).ok_or(Violation::Headers)?;
        Headers::parse(&block).ok_or(Violation::Headers)
    }

    fn inflate(&mut self, packed: &[u8]) -> Option<Vec<u8>> {
        let mut packed = if self.has_begun { packed } else { self.begin(packed)? };
        let mut out = Vec::new();
        loop {
            let (status, read, written) =
                decompress(&mut self.core, packed, &mut self.window, self.at, TINFL_FLAG_HAS_MORE_INPUT);
            out.extend_from_slice(self.window.get(self.at..self.at + written)?);
            self.at = (self.at + written) % WINDOW;
            packed = packed.get(read..)?;
            match status {
                TINFLStatus::HasMoreOutput if out.len() <= LONGEST => {}
                TINFLStatus::NeedsMoreInput if out.len() <= LONGEST => return Some(out),
                _ => return None,
            }
        }
    }

    /// Behind the head of the stream, with the window as the head says.
    fn begin<'a>(&mut self, packed: &'a [u8]) -> Option<&'a [u8]> {
        let (&[method, flags], mut rest) = packed.split_first_chunk::<2>()?;
        if method & 0x0f != 8 || u16::from_be_bytes([method, flags]) % 31 != 0 {
            return None;
        }
        self.window = vec![0; WINDOW];
        if flags & 0x20 != 0 {
            let (id, behind) = number(rest)?;
            if id != dictionary::ID {
                return None;
            }
            rest = behind;
            let words = dictionary::dictionary();
            self.window.get_mut(..words.len())?.copy_from_slice(&words);
            self.at = words.len();
        }
        self.has_begun = true;
        Some(rest)
    }
}

/// Packs blocks without making them smaller: what is answered has no headers worth it.
#[derive(Default)]
pub struct Packer {
    has_begun: bool,
}

impl Packer {
    /// A block without any headers.
    pub fn nothing(&mut self) -> Vec<u8> {
        let mut out = Vec::with_capacity(16);
        if !std::mem::replace(&mut self.has_begun, true) {
            out.extend([0x78, 0x01]);
        }
        // A stored block that is not the last one, of four bytes: the number of headers. Go's reader keeps what it has until the next block
        // begins, so an empty one follows, as a flush makes it.
        out.extend([0, 4, 0, 0xfb, 0xff, 0, 0, 0, 0]);
        out.extend([0, 0, 0, 0xff, 0xff]);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Made by zlib with the dictionary and a flush between them: `streamtype: error, port: 80, requestid: 0`, then the same with `data`.
    const FIRST: &str =
        "78bbe3c6a7c202253a703a2b294a4dcc851625aca9a0808614cb45a024cc64610024398b209198094adc8c0600000000ffff";
    const SECOND: &str = "c2aa15540a2512d209000000ffff";

    fn unhex(text: &str) -> Vec<u8> {
        (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
    }

    #[test]
    fn blocks_of_one_stream_refer_to_each_other_and_to_the_dictionary() {
        let mut unpacker = Unpacker::default();
        for (block, kind) in [(FIRST, "error"), (SECOND, "data")] {
            let headers = unpacker.unpack(&unhex(block)).unwrap();
            assert_eq!(
                [headers.get("streamtype"), headers.get("port"), headers.get("requestid"), headers.get("x")],
                [Some(kind), Some("80"), Some("0"), None]
            );
        }
        assert!(Unpacker::default().unpack(&unhex(SECOND)).is_err(), "the middle of a stream is no stream");
    }

    #[test]
    fn what_is_packed_can_be_unpacked() {
        let (mut packer, mut unpacker) = (Packer::default(), Unpacker::default());
        assert!(Packer::default().nothing().ends_with(&[0, 0, 0, 0xff, 0xff]), "kubectl waits for ever without it");
        for _ in 0..3 {
            assert_eq!(unpacker.unpack(&packer.nothing()), Ok(Headers::default()));
        }
    }

    #[test]
    fn the_window_goes_round() {
        // Stored blocks of 1,000 bytes, again and again: one header of 988.
        let mut block = vec![0, 0xe8, 3, 0x17, 0xfc, 0, 0, 0, 1, 0, 0, 0, 1, b'a', 0, 0, 3, 0xdb];
        block.resize(1005, b'x');
        let mut unpacker = Unpacker::default();
        for round in 0..100 {
            let head: &[u8] = if round == 0 { &[0x78, 0x01] } else { &[] };
            let headers = unpacker.unpack(&[head, &block].concat()).unwrap();
            assert_eq!(headers.get("a").map(str::len), Some(987), "{round}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for wrong in [
            &b""[..],
            &[0x78],
            &[0x78, 0x02],
            &[0x77, 0x01],
            &[0x78, 0xbb, 1, 2, 3, 4, 0, 0],
            &[0x78, 0x01, 0xff, 0xff],
            // A block that ends early, one that promises more headers than it has, and the end of the stream.
            &[0x78, 0x01, 0, 4, 0, 0xfb, 0xff, 0, 0],
            &[0x78, 0x01, 0, 4, 0, 0xfb, 0xff, 0, 0, 0, 1],
            &[0x78, 0x01, 0, 4, 0, 0xfb, 0xff, 255, 0, 0, 0],
            &[0x78, 0x01, 1, 4, 0, 0xfb, 0xff, 0, 0, 0, 0],
        ] {
            assert!(Unpacker::default().unpack(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn nobody_sends_a_little_that_becomes_a_lot() {
        // 128 KiB of zeros.
        let bomb = format!("78daecc13101000000c2a0f54fed610da0{}6e000000ffff", "00".repeat(127));
        assert_eq!(Unpacker::default().unpack(&unhex(&bomb)), Err(Violation::Headers));
    }
}
