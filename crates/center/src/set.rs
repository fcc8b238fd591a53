//! One desired set: what the edges of a class shall hold, its hash tree, and what changed lately. Sessions share it by reference.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{
        PoisonError, RwLock, RwLockReadGuard,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use link::{Desired, HashTree, Key, Position, Tree};
use tokio::sync::watch;

use crate::history::History;

/// So many changes are remembered. A session that missed more compares again.
const LOG: usize = 4096;

#[derive(Default)]
pub struct Set {
    contents: RwLock<Contents>,
    /// Wakes those who follow: how many changes there were.
    head: watch::Sender<u64>,
    /// Changes up to this revision are on their way into the set.
    coming: AtomicU64,
    /// The set is known to be what it should be at this revision.
    good_at: AtomicU64,
}

#[derive(Default)]
struct Contents {
    objects: HashMap<Key, Bytes>,
    tree: HashTree,
    revision: u64,
    ready: bool,
    log: VecDeque<Key>,
    head: u64,
}

/// What changed since somebody looked.
#[derive(Debug, PartialEq)]
pub enum Since {
    Keys(Vec<Key>),
    /// Too much to say.
    Lost,
}

impl Set {
    /// One that nothing is in, nor ever will be.
    pub fn empty() -> Self {
        let set = Self::default();
        set.complete();
        set
    }

    pub fn follow(&self) -> watch::Receiver<u64> {
        self.head.subscribe()
    }

    /// A change of this revision will be applied.
    pub fn expect(&self, revision: u64) {
        self.coming.fetch_max(revision, Ordering::AcqRel);
    }

    /// Applies what an object became at a revision. Those who follow hear of it only if that makes a difference to edges.
    pub fn apply(&self, key: &str, content: Option<Bytes>, revision: u64) {
        let mut contents = self.contents.write().unwrap_or_else(PoisonError::into_inner);
        contents.revision = contents.revision.max(revision);
        if contents.change(key, content) {
            let head = contents.head;
            drop(contents);
            self.head.send_replace(head);
        }
    }

    /// Everything that was there when the set was begun is in it.
    pub fn complete(&self) {
        self.contents.write().unwrap_or_else(PoisonError::into_inner).ready = true;
        self.head.send_modify(|_| {});
    }

    /// Waits until the set is complete.
    pub async fn wait(&self) {
        let mut changed = self.follow();
        while !self.read().ready && changed.changed().await.is_ok() {}
    }

    /// The set as it is now; it stays so while the view is held. `newest` is a revision before which everything is applied or announced.
    pub fn view<'a>(&'a self, history: &'a History, newest: u64) -> View<'a> {
        let contents = self.read();
        if contents.revision >= self.coming.load(Ordering::Acquire) {
            self.good_at.fetch_max(newest, Ordering::AcqRel);
        }
        let revision = contents.revision.max(self.good_at.load(Ordering::Acquire));
        View { contents, history, newest, revision }
    }

    fn read(&self) -> RwLockReadGuard<'_, Contents> {
        self.contents.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Contents {
    /// Whether that is another content than before.
    fn change(&mut self, key: &str, content: Option<Bytes>) -> bool {
        if self.objects.get(key) == content.as_ref() {
            return false;
        }
        // One allocation for map, tree, log and every session's queue.
        let key: Key = self.objects.get_key_value(key).map_or_else(|| key.into(), |(key, _)| key.clone());
        match content {
            Some(content) => {
                self.tree.insert(&key, &content);
                self.objects.insert(key.clone(), content);
            }
            None => {
                self.tree.remove(&key);
                self.objects.remove(&key);
            }
        }
        self.head += 1;
        self.log.push_back(key);
        if self.log.len() > LOG {
            self.log.pop_front();
        }
        true
    }
}

pub struct View<'a> {
    contents: RwLockReadGuard<'a, Contents>,
    history: &'a History,
    newest: u64,
    revision: u64,
}

impl View<'_> {
    /// How many changes there were.
    pub fn head(&self) -> u64 {
        self.contents.head
    }

    /// What changed since there were so many, each key once.
    pub fn since(&self, head: u64) -> Since {
        let missed = self.contents.head.saturating_sub(head) as usize;
        let Some(from) = self.contents.log.len().checked_sub(missed) else { return Since::Lost };
        let mut seen = HashSet::new();
        Since::Keys(self.contents.log.range(from..).filter(|key| seen.insert(*key)).cloned().collect())
    }
}

impl Tree for View<'_> {
    fn count(&self) -> u64 {
        self.contents.tree.count()
    }

    fn root(&self) -> u128 {
        self.contents.tree.root()
    }

    fn range(&self, from: u64, to: u64, visit: &mut dyn FnMut(u64, &Key, u128)) {
        self.contents.tree.range(from, to, visit);
    }
}

impl Desired for View<'_> {
    fn ready(&self) -> bool {
        self.contents.ready
    }

    fn get(&self, key: &str) -> Option<Bytes> {
        self.contents.objects.get(key).cloned()
    }

    fn position(&self) -> Position {
        Position { incarnation: self.history.current(), revision: self.revision }
    }

    fn through(&self, incarnation: u64) -> Option<u64> {
        self.history.through(incarnation, self.newest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// Incrementally or from scratch, with whoever follows catching up at any time.
        #[test]
        fn a_set_depends_on_what_is_in_it_only(
            edits in proptest::collection::vec((0u8..12, proptest::option::of(0u8..3), any::<bool>()), 0..80),
        ) {
            let (history, set) = (History::fresh(7), Set::default());
            let (mut model, mut follower, mut cursor) = (BTreeMap::new(), BTreeMap::new(), 0);
            for (n, (key, content, look)) in edits.into_iter().enumerate() {
                let key = format!("core/x//{key}");
                let content = content.map(|c| Bytes::from(vec![c]));
                set.apply(&key, content.clone(), n as u64 + 1);
                match content {
                    Some(content) => drop(model.insert(key, content)),
                    None => drop(model.remove(&key)),
                }
                if look {
                    let view = set.view(&history, 0);
                    let Since::Keys(keys) = view.since(cursor) else { panic!("lost") };
                    cursor = view.head();
                    for key in keys {
                        match view.get(&key) {
                            Some(content) => drop(follower.insert(key.to_string(), content)),
                            None => drop(follower.remove(&*key)),
                        }
                    }
                    prop_assert_eq!(&follower, &model);
                }
            }
            let scratch = Set::default();
            for (key, content) in &model {
                scratch.apply(key, Some(content.clone()), 1);
            }
            let (set, scratch) = (set.view(&history, 0), scratch.view(&history, 0));
            prop_assert_eq!((set.root(), set.count()), (scratch.root(), scratch.count()));
            for (key, content) in &model {
                prop_assert_eq!(set.get(key), Some(content.clone()));
            }
        }
    }

    #[test]
    fn who_misses_too_much_is_told_so() {
        let (history, set) = (History::fresh(7), Set::default());
        for n in 0..LOG as u64 {
            set.apply("core/x//a", Some(Bytes::from(n.to_string())), n + 1);
        }
        assert_eq!(set.view(&history, 0).since(0), Since::Keys(vec!["core/x//a".into()]));
        set.apply("core/x//a", Some(Bytes::from_static(b"x")), 1);
        assert_eq!(set.view(&history, 0).since(0), Since::Lost);
        assert_eq!(set.view(&history, 0).since(LOG as u64 + 1), Since::Keys(vec![]));
    }

    #[test]
    fn positions_grow_and_claim_no_more_than_is_there() {
        let (history, set) = (History::fresh(7), Set::default());
        set.apply("core/x//a", Some(Bytes::from_static(b"1")), 10);
        assert_eq!(set.view(&history, 10).position().revision, 10);
        assert_eq!(set.view(&history, 50).position().revision, 50, "nothing of this set's happened since");
        set.expect(60);
        assert_eq!(set.view(&history, 65).position().revision, 50, "60 is not applied yet");
        set.apply("core/x//a", None, 60);
        assert_eq!(set.view(&history, 65).position().revision, 65);
    }
}
