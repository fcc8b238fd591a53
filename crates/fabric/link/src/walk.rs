//! The walk over two hash trees, from the root down: the center describes nodes, the edge answers where it differs.

use crate::message::Differences;
use crate::tree::{NodeSummary, Prefix, Tree};
use crate::types::Key;

/// A node with at most this many entries is described by its entries rather than by its children. Both take about the
/// same bytes, and entries save a round trip.
const MAX_INLINE_ENTRIES: u64 = 8;

/// Limits of one message: nodes asked for, and keys or key hashes listed.
const MAX_WANTED_NODES: usize = 64;
const MAX_LISTED_KEYS: usize = 512;

#[derive(Clone, Debug, PartialEq)]
pub enum TreeNode {
    Children(Prefix, Box<[NodeSummary; 16]>),
    /// Key hash and entry hash of every entry below the prefix.
    Entries(Prefix, Vec<(u64, u128)>),
}

/// The center's part of a walk: describes one node.
pub(crate) fn describe(tree: &(impl Tree + ?Sized), prefix: Prefix) -> TreeNode {
    let children = tree.children(prefix);
    let count: u64 = children.iter().map(|child| child.count).sum();
    if count > MAX_INLINE_ENTRIES && prefix.depth() < 16 {
        return TreeNode::Children(prefix, Box::new(children));
    }
    let mut entries = Vec::with_capacity(count as usize);
    tree.range(prefix.first(), prefix.last(), &mut |at, _, hash| entries.push((at, hash)));
    TreeNode::Entries(prefix, entries)
}

/// The edge's part of a walk: remembers the nodes that it still has to ask for.
#[derive(Debug, Default)]
pub(crate) struct TreeWalk {
    id: u64,
    todo: Vec<Prefix>,
}

impl TreeWalk {
    /// Returns the messages that answer these nodes. The last one asks for more nodes or ends the walk.
    pub fn answer(&mut self, tree: &(impl Tree + ?Sized), id: u64, nodes: &[TreeNode]) -> Vec<Differences> {
        if id != self.id {
            *self = Self { id, todo: Vec::new() };
        }
        let mut found = Differences::default();
        for node in nodes {
            match node {
                TreeNode::Children(prefix, children) => self.children(tree, *prefix, children, &mut found),
                TreeNode::Entries(prefix, entries) => compare(tree, *prefix, entries, &mut found),
            }
        }
        let mut messages = Vec::new();
        for need in found.need.chunks(MAX_LISTED_KEYS) {
            messages.push(Differences { walk: id, need: need.to_vec(), ..Default::default() });
        }
        for extra in found.extra.chunks(MAX_LISTED_KEYS) {
            messages.push(Differences { walk: id, extra: extra.to_vec(), ..Default::default() });
        }
        // The usual case: everything fits into one message.
        if found.need.len() + found.extra.len() <= MAX_LISTED_KEYS {
            messages = vec![Differences { walk: id, need: found.need, extra: found.extra, ..Default::default() }];
        }
        let want = self.todo.split_off(self.todo.len().saturating_sub(MAX_WANTED_NODES));
        if let Some(last) = messages.last_mut() {
            last.done = want.is_empty();
            last.want = want;
            last.all = found.all;
        }
        messages
    }

    fn children(
        &mut self,
        tree: &(impl Tree + ?Sized),
        prefix: Prefix,
        theirs: &[NodeSummary; 16],
        found: &mut Differences,
    ) {
        let mine = tree.children(prefix);
        for (digit, (mine, theirs)) in (0u8..).zip(mine.iter().zip(theirs)) {
            let Some(child) = prefix.child(digit).filter(|_| mine != theirs) else { continue };
            if mine.count == 0 {
                found.all.push(child);
            } else if theirs.count == 0 {
                tree.range(child.first(), child.last(), &mut |_, key, _| found.extra.push(key.clone()));
            } else {
                self.todo.push(child);
            }
        }
    }
}

fn compare(tree: &(impl Tree + ?Sized), prefix: Prefix, theirs: &[(u64, u128)], found: &mut Differences) {
    let mut mine: Vec<(u64, u128, Key)> = Vec::new();
    tree.range(prefix.first(), prefix.last(), &mut |at, key, hash| mine.push((at, hash, key.clone())));
    found.need.extend(
        theirs.iter().filter(|(at, hash)| !mine.iter().any(|(a, h, _)| a == at && h == hash)).map(|(at, _)| *at),
    );
    found.extra.extend(mine.into_iter().filter(|(at, hash, _)| !theirs.contains(&(*at, *hash))).map(|(.., key)| key));
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::tree::HashTree;

    /// Walks to the end. Returns the keys that the center would send and the number of round trips.
    fn walk(center: &HashTree, edge: &HashTree) -> (BTreeSet<Key>, usize) {
        let (mut keys, mut rounds) = (BTreeSet::new(), 0);
        let mut walk = TreeWalk::default();
        let mut nodes = vec![describe(center, Prefix::ROOT)];
        loop {
            rounds += 1;
            let mut next = Vec::new();
            let mut done = false;
            for found in walk.answer(edge, 1, &nodes) {
                for at in found.need {
                    center.range(at, at, &mut |_, key, _| keys.extend([key.clone()]));
                }
                for prefix in found.all {
                    center.range(prefix.first(), prefix.last(), &mut |_, key, _| keys.extend([key.clone()]));
                }
                keys.extend(found.extra);
                next.extend(found.want);
                done = found.done;
            }
            if done {
                return (keys, rounds);
            }
            nodes = next.into_iter().map(|prefix| describe(center, prefix)).collect();
        }
    }

    fn tree(objects: impl IntoIterator<Item = (u32, u8)>) -> HashTree {
        let mut tree = HashTree::default();
        for (key, content) in objects {
            tree.insert(&format!("g/r/n/{key}").into(), &[content]);
        }
        tree
    }

    #[test]
    fn large_differences_are_found_in_full() {
        for (center, edge) in [(3000, 0), (0, 3000), (3000, 1), (1, 3000)] {
            let (keys, _) = walk(&tree((0..center).map(|k| (k, 0))), &tree((0..edge).map(|k| (k, 0))));
            assert_eq!(keys.len() as u32, center.max(edge) - center.min(edge));
        }
        let (keys, rounds) = walk(&tree((0..3000).map(|k| (k, 0))), &tree((0..3000).map(|k| (k, 1))));
        assert_eq!(keys.len(), 3000);
        assert!(rounds < 40, "{rounds}");
    }

    proptest::proptest! {
        #[test]
        fn a_walk_finds_exactly_what_differs(
            shared in 0u32..80,
            center in proptest::collection::btree_map(0u32..120, 1u8..3, 0..20),
            edge in proptest::collection::btree_map(0u32..120, 1u8..3, 0..20),
        ) {
            let with = |own: &std::collections::BTreeMap<u32, u8>| {
                let mut all: std::collections::BTreeMap<u32, u8> = (0..shared).map(|k| (k, 0)).collect();
                all.extend(own);
                all
            };
            let (center, edge) = (with(&center), with(&edge));
            let (found, _) = walk(&tree(center.clone()), &tree(edge.clone()));
            let expected: BTreeSet<Key> = (0..120u32)
                .filter(|k| center.get(k) != edge.get(k))
                .map(|k| format!("g/r/n/{k}").into())
                .collect();
            proptest::prop_assert_eq!(found, expected);
        }
    }
}
