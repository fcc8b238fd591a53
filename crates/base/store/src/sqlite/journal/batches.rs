//! Batches as bytes.

use bytes::Bytes;

use crate::{Batch, Entry, Event, Revision};

pub(super) fn encode(batch: &Batch, buffer: &mut Vec<u8>) {
    let text = |bytes: &[u8], buffer: &mut Vec<u8>| {
        // What is longer than 4 GiB does not fit into the journal anyway.
        buffer.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
        buffer.extend_from_slice(bytes);
    };
    buffer.extend_from_slice(&batch.revision.to_le_bytes());
    buffer.extend_from_slice(&u32::try_from(batch.events.len()).unwrap_or(u32::MAX).to_le_bytes());
    for event in &batch.events {
        text(event.key().as_bytes(), buffer);
        match event {
            Event::Put(entry) => {
                buffer.extend_from_slice(&entry.created.to_le_bytes());
                text(&entry.value, buffer);
            }
            // No entry was created before the first revision.
            Event::Delete { .. } => buffer.extend_from_slice(&0_u64.to_le_bytes()),
        }
    }
}

/// All batches of a record. `None` if the bytes are not batches.
pub(super) fn decode(body: &[u8]) -> Option<Vec<Batch>> {
    let mut reader = Reader(body);
    let mut batches = Vec::new();
    while !reader.0.is_empty() {
        batches.push(reader.batch()?);
    }
    Some(batches)
}

pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let length = u32::from_le_bytes(self.array()?);
        self.take(length as usize)
    }

    fn batch(&mut self) -> Option<Batch> {
        let revision = Revision::from_le_bytes(self.array()?);
        let count = u32::from_le_bytes(self.array()?);
        let events = (0..count).map(|_| self.event(revision)).collect::<Option<Vec<_>>>()?;
        Some(Batch { revision, events })
    }

    fn event(&mut self, revision: Revision) -> Option<Event> {
        let key = String::from_utf8(self.text()?.to_vec()).ok()?;
        match Revision::from_le_bytes(self.array()?) {
            0 => Some(Event::Delete { key, revision }),
            created => {
                let value = Bytes::copy_from_slice(self.text()?);
                Some(Event::Put(Entry { key, value, created, modified: revision }))
            }
        }
    }
}
