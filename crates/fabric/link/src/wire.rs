//! Fields on the wire: numbers and byte strings, each behind its tag, as protobuf lays them out. A reader skips the fields
//! it does not know, which is what lets an older side talk to a newer one.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Why bytes are no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    #[error("the message ends in the middle of a field")]
    Truncated,
    #[error("the message has a number or tag that is out of range")]
    Malformed,
    #[error("the message is longer than {} bytes", crate::MAX_MESSAGE)]
    TooLong,
}

pub(crate) enum Field {
    Uint(u64),
    Bytes(Bytes),
    /// A kind of field that no version of ours writes yet.
    Other,
}

#[derive(Default)]
pub(crate) struct Writer(pub BytesMut);

impl Writer {
    pub fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.put_u8(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.put_u8(value as u8);
    }

    /// Zero is what a missing number means, so it is not written.
    pub fn uint(&mut self, field: u32, value: u64) {
        if value != 0 {
            self.varint(u64::from(field) << 3);
            self.varint(value);
        }
    }

    pub fn bytes(&mut self, field: u32, value: &[u8]) {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(value.len() as u64);
        self.0.put_slice(value);
    }

    pub fn nested(&mut self, field: u32, write: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        write(&mut inner);
        self.bytes(field, &inner.0);
    }
}

pub(crate) struct Reader(pub Bytes);

impl Reader {
    pub fn varint(&mut self) -> Result<u64, WireError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            if shift == 63 && byte > 1 {
                return Err(WireError::Malformed);
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(WireError::Malformed)
    }

    pub fn byte(&mut self) -> Result<u8, WireError> {
        self.0.try_get_u8().map_err(|_| WireError::Truncated)
    }

    pub fn u64(&mut self) -> Result<u64, WireError> {
        self.0.try_get_u64().map_err(|_| WireError::Truncated)
    }

    pub fn u128(&mut self) -> Result<u128, WireError> {
        self.0.try_get_u128().map_err(|_| WireError::Truncated)
    }

    pub fn take(&mut self, length: u64) -> Result<Bytes, WireError> {
        let length = usize::try_from(length).map_err(|_| WireError::Truncated)?;
        if length > self.0.len() {
            return Err(WireError::Truncated);
        }
        Ok(self.0.split_to(length))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next field, `None` at the end.
    pub fn field(&mut self) -> Result<Option<(u64, Field)>, WireError> {
        if self.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let field = match tag & 7 {
            0 => Field::Uint(self.varint()?),
            1 => self.take(8).map(|_| Field::Other)?,
            2 => {
                let length = self.varint()?;
                Field::Bytes(self.take(length)?)
            }
            5 => self.take(4).map(|_| Field::Other)?,
            _ => return Err(WireError::Malformed),
        };
        Ok(Some((tag >> 3, field)))
    }
}
