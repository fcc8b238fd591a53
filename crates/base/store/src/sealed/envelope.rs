//! The envelope around one value: what it looks like, how it is closed and opened. No I/O.
//!
//! ```text
//! 0 S E A L 1 │ key id (8) │ nonce (12) + wrapped data key (32) + tag (16) │ nonce (12) │ sealed value │ tag (16)
//! ```
//!
//! A *key* (of the key file) wraps *data keys*, and a data key seals values; both with AES-256-GCM.
//!
//! Why the nonces may be random: a random 96-bit nonce is safe for about 2^32 uses of one key. A data key is used for
//! at most 2^20 values and then replaced, so the chance that a nonce repeats is below 2^-57; and the key of the file
//! wraps only one data key per start of a server or 2^20 writes, so it never comes near the bound. One data key per
//! value would have moved all writes onto the key of the file, and would cost a second encryption for each.
//!
//! The value's place in the store and its whole header are authenticated with it: a value that was moved to another
//! key, or given another header, does not open. An older value of the same key does; only history could tell it.

use aws_lc_rs::{
    aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey},
    digest::{SHA256, digest},
    rand,
};
use bytes::Bytes;

/// No JSON begins with a zero byte, so plain values cannot be taken for sealed ones.
const MAGIC: &[u8; 6] = b"\0SEAL1";
const ID: usize = 8;
const NONCE: usize = 12;
const TAG: usize = 16;
pub(super) const KEY: usize = 32;
const WRAPPED: usize = NONCE + KEY + TAG;
const HEADER: usize = MAGIC.len() + ID + WRAPPED;

/// What a value may be: the library says no more than that it does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Fault {
    #[error("the system gives no random numbers")]
    Random,
    #[error("it is cut off")]
    Cut,
    #[error("it was changed, or moved here from elsewhere")]
    Foreign,
}

/// Says which key of the file closed an envelope: the beginning of the key's hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct KeyId(pub(super) [u8; ID]);

/// A key of the key file. It wraps data keys.
pub(super) struct Key {
    pub(super) id: KeyId,
    key: LessSafeKey,
    /// For writing the file anew.
    pub(super) bytes: [u8; KEY],
}

/// A key that seals values, with the header that they get: it carries the data key itself, wrapped.
pub(super) struct DataKey {
    pub(super) by: KeyId,
    header: [u8; HEADER],
    key: LessSafeKey,
}

/// A wrapped data key, as it stands in an envelope.
pub(super) type Wrapped = [u8; WRAPPED];

/// An envelope, taken apart but not opened.
pub(super) struct Envelope<'a> {
    pub(super) by: KeyId,
    pub(super) wrapped: Wrapped,
    header: &'a [u8],
    nonce: [u8; NONCE],
    value: &'a [u8],
    tag: &'a [u8],
}

impl std::fmt::Display for KeyId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

pub(super) fn is_sealed(value: &[u8]) -> bool {
    value.starts_with(MAGIC)
}

// === impl Key ===

impl Key {
    pub(super) fn new(bytes: [u8; KEY]) -> Result<Self, Fault> {
        let mut id = [0; ID];
        id.copy_from_slice(&digest(&SHA256, &bytes).as_ref()[..ID]);
        Ok(Self { id: KeyId(id), key: cipher(&bytes)?, bytes })
    }

    pub(super) fn random() -> Result<Self, Fault> {
        Self::new(random()?)
    }

    /// A new data key, wrapped by this one.
    pub(super) fn data_key(&self) -> Result<DataKey, Fault> {
        let (mut secret, nonce): ([u8; KEY], [u8; NONCE]) = (random()?, random()?);
        let key = cipher(&secret)?;
        let mut header = [0; HEADER];
        let start = MAGIC.len() + ID;
        header[..MAGIC.len()].copy_from_slice(MAGIC);
        header[MAGIC.len()..start].copy_from_slice(&self.id.0);
        let aad = Aad::from(self.id.0);
        let tag = self.key.seal_in_place_separate_tag(Nonce::assume_unique_for_key(nonce), aad, &mut secret);
        let tag = tag.map_err(|_| Fault::Foreign)?;
        header[start..start + NONCE].copy_from_slice(&nonce);
        header[start + NONCE..start + NONCE + KEY].copy_from_slice(&secret);
        header[start + NONCE + KEY..].copy_from_slice(tag.as_ref());
        Ok(DataKey { by: self.id, header, key })
    }

    pub(super) fn unwrap_key(&self, wrapped: &Wrapped) -> Result<LessSafeKey, Fault> {
        let (nonce, sealed) = wrapped.split_at(NONCE);
        let (sealed, tag) = sealed.split_at(KEY);
        let mut secret = [0; KEY];
        self.key
            .open_separate_gather(nonce_of(nonce)?, Aad::from(self.id.0), sealed, tag, &mut secret)
            .map_err(|_| Fault::Foreign)?;
        cipher(&secret)
    }
}

// === impl DataKey ===

impl DataKey {
    /// The envelope of a value that lies at `place`.
    pub(super) fn seal(&self, place: &str, value: &[u8]) -> Result<Bytes, Fault> {
        let nonce: [u8; NONCE] = random()?;
        let mut out = Vec::with_capacity(HEADER + NONCE + value.len() + TAG);
        out.extend_from_slice(&self.header);
        out.extend_from_slice(&nonce);
        out.extend_from_slice(value);
        let aad = Aad::from(beside(&self.header, place));
        let sealed = &mut out[HEADER + NONCE..];
        let tag = self.key.seal_in_place_separate_tag(Nonce::assume_unique_for_key(nonce), aad, sealed);
        out.extend_from_slice(tag.map_err(|_| Fault::Foreign)?.as_ref());
        Ok(out.into())
    }
}

// === impl Envelope ===

impl<'a> Envelope<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, Fault> {
        let (header, rest) = bytes.split_at_checked(HEADER).ok_or(Fault::Cut)?;
        let (nonce, rest) = rest.split_first_chunk::<NONCE>().ok_or(Fault::Cut)?;
        let (value, tag) = rest.split_last_chunk::<TAG>().ok_or(Fault::Cut)?;
        let (id, wrapped) = header[MAGIC.len()..].split_first_chunk::<ID>().ok_or(Fault::Cut)?;
        let wrapped = wrapped.try_into().map_err(|_| Fault::Cut)?;
        Ok(Self { by: KeyId(*id), wrapped, header, nonce: *nonce, value, tag })
    }

    pub(super) fn open(&self, place: &str, key: &LessSafeKey) -> Result<Bytes, Fault> {
        let mut out = vec![0; self.value.len()];
        let aad = Aad::from(beside(self.header, place));
        key.open_separate_gather(Nonce::assume_unique_for_key(self.nonce), aad, self.value, self.tag, &mut out)
            .map_err(|_| Fault::Foreign)?;
        Ok(out.into())
    }
}

fn beside(header: &[u8], place: &str) -> Vec<u8> {
    [header, place.as_bytes()].concat()
}

fn cipher(bytes: &[u8; KEY]) -> Result<LessSafeKey, Fault> {
    UnboundKey::new(&AES_256_GCM, bytes).map(LessSafeKey::new).map_err(|_| Fault::Foreign)
}

fn nonce_of(bytes: &[u8]) -> Result<Nonce, Fault> {
    Nonce::try_assume_unique_for_key(bytes).map_err(|_| Fault::Cut)
}

fn random<const N: usize>() -> Result<[u8; N], Fault> {
    let mut bytes = [0; N];
    rand::fill(&mut bytes).map_err(|_| Fault::Random)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn open(key: &Key, place: &str, bytes: &[u8]) -> Result<Bytes, Fault> {
        let envelope = Envelope::parse(bytes)?;
        envelope.open(place, &key.unwrap_key(&envelope.wrapped)?)
    }

    #[test]
    fn two_envelopes_of_one_value_differ() {
        let data = Key::random().unwrap().data_key().unwrap();
        assert_ne!(data.seal("a", b"x").unwrap(), data.seal("a", b"x").unwrap());
    }

    proptest! {
        #[test]
        fn what_was_sealed_opens_in_its_place_only(value: Vec<u8>, place: String, other: String) {
            let key = Key::random().unwrap();
            let sealed = key.data_key().unwrap().seal(&place, &value).unwrap();
            prop_assert!(is_sealed(&sealed) && Envelope::parse(&sealed).unwrap().by == key.id);
            prop_assert_eq!(open(&key, &place, &sealed).unwrap(), value);
            prop_assert!(place == other || open(&key, &other, &sealed) == Err(Fault::Foreign));
            prop_assert_eq!(open(&Key::random().unwrap(), &place, &sealed), Err(Fault::Foreign));
        }

        #[test]
        fn no_bit_can_be_changed_and_nothing_cut(value: Vec<u8>, at: prop::sample::Index, bit in 0..8_u8) {
            let key = Key::random().unwrap();
            let sealed = key.data_key().unwrap().seal("p", &value).unwrap().to_vec();
            let mut changed = sealed.clone();
            // The magic says whether it is sealed at all, which is not asked here.
            let at = MAGIC.len() + at.index(sealed.len() - MAGIC.len());
            changed[at] ^= 1_u8 << bit;
            let id_only = at < MAGIC.len() + ID;
            prop_assert!(open(&key, "p", &changed).is_err(), "id: {}", id_only);
            prop_assert!(open(&key, "p", &sealed[..at]).is_err());
        }

        #[test]
        fn garbage_never_panics(bytes: Vec<u8>) {
            let bytes = [MAGIC.as_slice(), &bytes].concat();
            let _ = open(&Key::random().unwrap(), "p", &bytes);
        }
    }
}
