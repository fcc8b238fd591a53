//! An ordered map of shared entries whose snapshots cost one pointer.
//!
//! Sorted chunks behind `Arc`s: a snapshot is a clone of the outer pointer; a change copies one chunk (and the list of
//! chunks) only if a snapshot still looks at it.

use std::sync::Arc;

use crate::object::Object;

const CHUNK: usize = 128;

#[derive(Clone, Default)]
pub struct Ordered {
    chunks: Arc<Vec<Arc<Vec<Arc<Object>>>>>,
    len: usize,
}

impl Ordered {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn get(&self, key: &str) -> Option<&Arc<Object>> {
        let chunk = self.chunks.get(self.chunk_of(key)?)?;
        chunk.binary_search_by(|o| (*o.key).cmp(key)).ok().map(|i| &chunk[i])
    }

    /// Puts an object in its place and answers the one that was there.
    pub fn insert(&mut self, object: Arc<Object>) -> Option<Arc<Object>> {
        let at = self.chunk_of(&object.key).unwrap_or(0);
        let chunks = Arc::make_mut(&mut self.chunks);
        if chunks.is_empty() {
            chunks.push(Arc::default());
        }
        let chunk = Arc::make_mut(&mut chunks[at]);
        match chunk.binary_search_by(|o| o.key.cmp(&object.key)) {
            Ok(i) => Some(std::mem::replace(&mut chunk[i], object)),
            Err(i) => {
                chunk.insert(i, object);
                self.len += 1;
                if chunk.len() > CHUNK {
                    // Keys often arrive in order: then the full chunk stays full and the new one takes what follows.
                    let at_end = i + 1 == chunk.len();
                    let tail = chunk.split_off(if at_end { CHUNK } else { CHUNK / 2 });
                    chunk.shrink_to_fit();
                    chunks.insert(at + 1, Arc::new(tail));
                }
                None
            }
        }
    }

    pub fn remove(&mut self, key: &str) -> Option<Arc<Object>> {
        let at = self.chunk_of(key)?;
        let i = self.chunks.get(at)?.binary_search_by(|o| (*o.key).cmp(key)).ok()?;
        let chunks = Arc::make_mut(&mut self.chunks);
        let chunk = Arc::make_mut(&mut chunks[at]);
        let old = chunk.remove(i);
        if chunk.is_empty() {
            chunks.remove(at);
        }
        self.len -= 1;
        Some(old)
    }

    /// All objects whose key begins with `prefix` and is greater than `after`, in order. Only the ends are searched for: reading every
    /// key on the way would mean going to a new place in memory for each.
    pub fn range<'a>(&'a self, prefix: &str, after: &str) -> impl Iterator<Item = &'a Arc<Object>> + use<'a> {
        let (first, start) = self.end_of(|key| key < prefix || (key <= after && !after.is_empty()));
        let (last, end) = self.end_of(|key| key < prefix || key.starts_with(prefix));
        let chunks = self.chunks.get(first..=last).unwrap_or_default();
        chunks.iter().enumerate().flat_map(move |(at, chunk)| {
            let from = if at == 0 { start } else { 0 };
            let to = if first + at == last { end } else { chunk.len() };
            chunk.get(from..to).unwrap_or_default()
        })
    }

    /// Where those end that come first and that a test is true of: the chunk, and the place in it.
    fn end_of(&self, is_before: impl Fn(&str) -> bool) -> (usize, usize) {
        let begun = self.chunks.partition_point(|chunk| chunk.first().is_some_and(|o| is_before(&o.key)));
        let at = begun.saturating_sub(1);
        (at, self.chunks.get(at).map_or(0, |chunk| chunk.partition_point(|o| is_before(&o.key))))
    }

    /// The only chunk in which the key can be.
    fn chunk_of(&self, key: &str) -> Option<usize> {
        let behind = self.chunks.partition_point(|chunk| chunk.first().is_some_and(|o| &*o.key <= key));
        if self.chunks.is_empty() { None } else { Some(behind.saturating_sub(1)) }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn object(key: &str, revision: u64) -> Arc<Object> {
        Arc::new(Object::new(key.into(), Default::default(), 1, revision))
    }

    /// Random edits against a `BTreeMap`, with snapshots that must not change.
    #[test]
    fn agrees_with_a_btreemap() {
        let mut seed = 7u64;
        let mut random = move |n: u64| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed % n
        };
        let (mut map, mut model) = (Ordered::default(), BTreeMap::new());
        let mut snapshots = Vec::new();
        for revision in 0..20_000 {
            let key = format!("root/{}/{:04}", random(3), random(1500));
            if random(3) == 0 {
                assert_eq!(map.remove(&key).map(|o| o.revision), model.remove(&key));
            } else {
                assert_eq!(map.insert(object(&key, revision)).map(|o| o.revision), model.insert(key, revision));
            }
            if revision % 4000 == 0 {
                snapshots.push((map.clone(), model.clone()));
            }
        }
        snapshots.push((map, model));
        for (map, model) in &snapshots {
            assert_eq!(map.len(), model.len());
            for (prefix, after) in
                [("", ""), ("root/1/", ""), ("root/1/", "root/1/0700"), ("root/2/", "root/1/x"), ("x", "")]
            {
                let got: Vec<_> = map.range(prefix, after).map(|o| (o.key.to_string(), o.revision)).collect();
                let want: Vec<_> = model
                    .iter()
                    .filter(|(k, _)| k.starts_with(prefix) && k.as_str() > after)
                    .map(|(k, v)| (k.clone(), *v))
                    .collect();
                assert_eq!(got, want, "prefix {prefix:?} after {after:?}");
            }
            for (key, revision) in model {
                assert_eq!(map.get(key).map(|o| o.revision), Some(*revision));
            }
        }
    }
}
