//! The wire format: tags, varints and lengths.

pub(super) const VARINT: u8 = 0;
pub(super) const FIXED64: u8 = 1;
pub(super) const BYTES: u8 = 2;
const FIXED32: u8 = 5;

pub(super) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub(super) fn varint_length(value: usize) -> usize {
    let bits = (usize::BITS - value.leading_zeros()).max(1) as usize;
    bits.div_ceil(7)
}

pub(super) fn put_tag(out: &mut Vec<u8>, number: u32, wire: u8) {
    put_varint(out, u64::from(number) << 3 | u64::from(wire));
}

pub(crate) fn put_bytes(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    put_tag(out, number, BYTES);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

pub(super) fn put_int(out: &mut Vec<u8>, number: u32, value: i64) {
    put_tag(out, number, VARINT);
    put_varint(out, value.cast_unsigned());
}

/// Opens a message whose length is not known yet; [`close`] with what this answers.
pub(super) fn open(out: &mut Vec<u8>, number: u32) -> usize {
    put_tag(out, number, BYTES);
    out.push(0);
    out.len()
}

/// Writes the length of the message that began at `start`. One byte was left for it; longer ones make room.
pub(super) fn close(out: &mut Vec<u8>, start: usize) {
    let mut length = out.len() - start;
    if length < 0x80 {
        out[start - 1] = length as u8;
        return;
    }
    let mut varint = [0; 10];
    let mut size = 0;
    while length >= 0x80 {
        varint[size] = length as u8 | 0x80;
        length >>= 7;
        size += 1;
    }
    varint[size] = length as u8;
    out.splice(start - 1..start, varint[..=size].iter().copied());
}

/// A field's content as it stands on the wire.
#[derive(Clone, Copy, Debug)]
pub(super) enum Content<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    Fixed32,
}

/// Walks the fields of a message.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The next field's number and content, or `None` at the end.
    pub(super) fn field(&mut self) -> Result<Option<(u32, Content<'a>)>, String> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let key = self.varint()?;
        let number = u32::try_from(key >> 3).ok().filter(|n| *n > 0).ok_or("proto: illegal tag")?;
        let content = match (key & 7) as u8 {
            VARINT => Content::Varint(self.varint()?),
            FIXED64 => {
                let bytes: [u8; 8] = self.take(8)?.try_into().map_err(|_| truncated())?;
                Content::Fixed64(u64::from_le_bytes(bytes))
            }
            BYTES => {
                let length = usize::try_from(self.varint()?).map_err(|_| truncated())?;
                Content::Bytes(self.take(length)?)
            }
            FIXED32 => {
                self.take(4)?;
                Content::Fixed32
            }
            wire => return Err(format!("proto: illegal wireType {wire}")),
        };
        Ok(Some((number, content)))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(super) fn varint(&mut self) -> Result<u64, String> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.rest.split_first().ok_or_else(truncated)?;
            self.rest = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err("proto: integer overflow".to_owned())
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], String> {
        if length > self.rest.len() {
            return Err(truncated());
        }
        let (taken, rest) = self.rest.split_at(length);
        self.rest = rest;
        Ok(taken)
    }
}

fn truncated() -> String {
    "unexpected EOF".to_owned()
}
