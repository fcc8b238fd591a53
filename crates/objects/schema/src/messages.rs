//! Messages by field number, as decoding needs them; made once for a schema.

use crate::{Schema, Shape, Struct};

/// What the fields of a message mean, sorted by number.
#[derive(Debug, Default)]
pub struct Message {
    entries: Vec<(u32, Entry)>,
}

#[derive(Debug)]
pub enum Entry {
    /// The index of a field of the struct.
    Field(u32),
    /// A message whose fields JSON shows as fields of the struct itself.
    Inline(Message),
}

impl Message {
    pub fn get(&self, number: u32) -> Option<&Entry> {
        self.entries.binary_search_by_key(&number, |(n, _)| *n).ok().map(|i| &self.entries[i].1)
    }

    fn of(s: &Struct) -> Self {
        let mut message = Self::default();
        for (index, field) in (0u32..).zip(&s.fields) {
            message.add(&field.numbers, index);
        }
        message
    }

    fn add(&mut self, path: &[u32], index: u32) {
        let Some((number, rest)) = path.split_first() else { return };
        let at = match self.entries.binary_search_by_key(number, |(n, _)| *n) {
            Ok(at) => at,
            Err(at) => {
                let entry = if rest.is_empty() { Entry::Field(index) } else { Entry::Inline(Self::default()) };
                self.entries.insert(at, (*number, entry));
                at
            }
        };
        if let Entry::Inline(inner) = &mut self.entries[at].1 {
            inner.add(rest, index);
        }
    }
}

impl Schema {
    /// The message of each type that is a struct; empty ones for all other types.
    pub fn messages(&self) -> &[Message] {
        self.messages.get_or_init(|| {
            let message =
                |shape: &Shape| if let Shape::Struct(s) = shape { Message::of(s) } else { Message::default() };
            self.types.iter().map(|t| message(&t.shape)).collect()
        })
    }
}
