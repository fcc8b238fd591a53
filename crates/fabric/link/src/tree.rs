//! The hash tree over `key → content`: sixteen children to a node, by the digits of the key's hash.
//!
//! A node's digest is the sum of its entries' hashes. A change therefore costs one addition at any size, and inner
//! nodes are not stored: the entries below a prefix are a range of key hashes.

use std::collections::BTreeMap;

use crate::types::{Key, entry_hash, key_hash};

/// A node of the tree: at most sixteen hexadecimal digits of a key hash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Prefix {
    depth: u8,
    bits: u64,
}

/// Size and digest of a node. Half of the digest is enough, as inner nodes only direct the search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeSummary {
    pub count: u64,
    pub digest: u64,
}

/// A set of objects that can be compared with the other side's.
pub trait Tree {
    fn count(&self) -> u64;
    /// The sum of all entry hashes, wrapping.
    fn root(&self) -> u128;
    /// Visits every entry whose key hash is within the inclusive bounds, in the order of the hashes.
    fn range(&self, from: u64, to: u64, visit: &mut dyn FnMut(u64, &Key, u128));

    fn summary(&self, prefix: Prefix) -> NodeSummary {
        let (mut count, mut sum) = (0, 0u128);
        self.range(prefix.first(), prefix.last(), &mut |_, _, hash| {
            count += 1;
            sum = sum.wrapping_add(hash);
        });
        NodeSummary { count, digest: (sum >> 64) as u64 }
    }

    /// The summaries of a node's children, in one pass.
    fn children(&self, prefix: Prefix) -> [NodeSummary; 16] {
        let mut sums = [(0u64, 0u128); 16];
        let shift = 60 - 4 * u32::from(prefix.depth.min(15));
        self.range(prefix.first(), prefix.last(), &mut |at, _, hash| {
            let child = &mut sums[(at >> shift & 15) as usize];
            *child = (child.0 + 1, child.1.wrapping_add(hash));
        });
        sums.map(|(count, sum)| NodeSummary { count, digest: (sum >> 64) as u64 })
    }
}

impl Prefix {
    pub const ROOT: Self = Self { depth: 0, bits: 0 };

    /// `None` when the digits do not fit the depth: such a prefix names no node.
    pub fn new(depth: u8, bits: u64) -> Option<Self> {
        let prefix = Self { depth, bits };
        (depth <= 16 && bits & prefix.rest() == 0).then_some(prefix)
    }

    pub fn depth(self) -> u8 {
        self.depth
    }

    /// The smallest key hash below this node.
    pub fn first(self) -> u64 {
        self.bits
    }

    /// The largest key hash below this node.
    pub fn last(self) -> u64 {
        self.bits | self.rest()
    }

    /// `None` for a node at full depth, which has entries only.
    pub fn child(self, digit: u8) -> Option<Self> {
        let shift = 60u32.checked_sub(4 * u32::from(self.depth))?;
        Self::new(self.depth + 1, self.bits | u64::from(digit & 15) << shift)
    }

    fn rest(self) -> u64 {
        u64::MAX.checked_shr(4 * u32::from(self.depth)).unwrap_or(0)
    }
}

/// A tree in memory.
#[derive(Clone, Debug, Default)]
pub struct HashTree {
    entries: BTreeMap<(u64, Key), u128>,
    root: u128,
}

impl HashTree {
    pub fn insert(&mut self, key: &Key, content: &[u8]) {
        self.insert_hash(key, entry_hash(key, content));
    }

    /// The same for a content of which only the [`entry_hash`] is known.
    pub fn insert_hash(&mut self, key: &Key, hash: u128) {
        let before = self.entries.insert((key_hash(key), key.clone()), hash);
        self.root = self.root.wrapping_sub(before.unwrap_or(0)).wrapping_add(hash);
    }

    pub fn get(&self, key: &Key) -> Option<u128> {
        self.entries.get(&(key_hash(key), key.clone())).copied()
    }

    pub fn remove(&mut self, key: &Key) {
        if let Some(before) = self.entries.remove(&(key_hash(key), key.clone())) {
            self.root = self.root.wrapping_sub(before);
        }
    }
}

impl AsRef<HashTree> for HashTree {
    fn as_ref(&self) -> &HashTree {
        self
    }
}

impl<T: AsRef<HashTree>> Tree for T {
    fn count(&self) -> u64 {
        self.as_ref().entries.len() as u64
    }

    fn root(&self) -> u128 {
        self.as_ref().root
    }

    fn range(&self, from: u64, to: u64, visit: &mut dyn FnMut(u64, &Key, u128)) {
        for ((at, key), hash) in self.as_ref().entries.range((from, Key::default())..) {
            if *at > to {
                break;
            }
            visit(*at, key, *hash);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_split_the_space() {
        assert_eq!((Prefix::ROOT.first(), Prefix::ROOT.last()), (0, u64::MAX));
        let mut next = 0u64;
        for digit in 0..16 {
            let child = Prefix::ROOT.child(digit).unwrap();
            assert_eq!(child.first(), next);
            next = child.last().wrapping_add(1);
        }
        assert_eq!(next, 0);
        let mut deep = Prefix::ROOT;
        while let Some(child) = deep.child(15) {
            deep = child;
        }
        assert_eq!((deep.depth(), deep.first(), deep.last()), (16, u64::MAX, u64::MAX));
        assert_eq!(Prefix::new(1, 0x0f00_0000_0000_0000), None);
        assert_eq!(Prefix::new(17, 0), None);
    }

    proptest::proptest! {
        #[test]
        fn the_root_depends_on_what_is_held_only(
            changes in proptest::collection::vec((0u8..20, proptest::option::of(0u8..4)), 0..60),
        ) {
            let mut tree = HashTree::default();
            let mut model = BTreeMap::new();
            for (key, content) in changes {
                let key: Key = format!("k/{key}").into();
                match content {
                    Some(content) => { tree.insert(&key, &[content]); model.insert(key, content); }
                    None => { tree.remove(&key); model.remove(&key); }
                }
            }
            let mut fresh = HashTree::default();
            for (key, content) in &model {
                fresh.insert(key, &[*content]);
            }
            proptest::prop_assert_eq!(tree.root(), fresh.root());
            proptest::prop_assert_eq!(tree.count(), model.len() as u64);
            let children = tree.children(Prefix::ROOT);
            for digit in 0..16 {
                proptest::prop_assert_eq!(children[digit as usize], tree.summary(Prefix::ROOT.child(digit).unwrap()));
            }
        }
    }
}
