//! How large a terminal is, as clients tell: one JSON object after the other, in pieces as they come. Pure.

use serde::Deserialize;

/// What waits for its end. A size needs 30 bytes.
const LONGEST: usize = 4096;

#[derive(Default)]
pub struct Sizes(Vec<u8>);

#[derive(Deserialize)]
struct Size {
    #[serde(rename = "Width")]
    width: u16,
    #[serde(rename = "Height")]
    height: u16,
}

impl Sizes {
    /// Columns and rows as they are now, if anything was said of them.
    pub fn feed(&mut self, bytes: &[u8]) -> Option<(u16, u16)> {
        self.0.extend_from_slice(bytes);
        let mut last = None;
        let mut all = serde_json::Deserializer::from_slice(&self.0).into_iter::<Size>();
        let read = loop {
            match all.next() {
                Some(Ok(size)) => last = Some((size.width, size.height)),
                // Its end is still to come.
                Some(Err(error)) if error.is_eof() => break all.byte_offset(),
                Some(Err(_)) => break self.0.len(),
                None => break all.byte_offset(),
            }
        };
        self.0.drain(..read);
        if self.0.len() > LONGEST {
            self.0.clear();
        }
        last.filter(|(width, height)| *width > 0 && *height > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_come_in_pieces() {
        let mut sizes = Sizes::default();
        for (piece, expected) in [
            ("{\"Width\":80,\"Height\":24}\n", Some((80, 24))),
            ("{\"Width\":1", None),
            ("00,\"Height\":30}{\"Width\":101,\"Height\":31}", Some((101, 31))),
            ("{\"Width\":0,\"Height\":0}", None),
            ("nonsense", None),
            ("{\"Width\":99999999,\"Height\":1}", None),
            ("{\"Width\":81,\"Height\":25}", Some((81, 25))),
        ] {
            assert_eq!(sizes.feed(piece.as_bytes()), expected, "{piece}");
        }
        for _ in 0..100 {
            sizes.feed(&[b' '; 1000]);
            sizes.feed(b"{");
        }
        assert!(sizes.0.len() <= LONGEST);
    }
}
