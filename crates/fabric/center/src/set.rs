//! One desired set: what the edges of a class shall hold, its hash tree, and what changed lately. Sessions share it by reference.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{
        Arc, PoisonError, RwLock, RwLockReadGuard,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use link::{DeliveryOrder, Desired, HashTree, Key, Position};
use placement::{Id, config::CONFIG, engine::Content};
use tokio::sync::watch;

use crate::{history::History, intent::Intent};

/// At most this many changes are remembered. A session that missed more compares again.
const LOG: usize = 4096;

#[derive(Default)]
pub struct Set {
    /// No other set of this process has it.
    pub id: u64,
    contents: RwLock<Contents>,
    /// Wakes those who follow: how many changes there were.
    head: watch::Sender<u64>,
    progress: Arc<Progress>,
    /// The set is known to be what it should be at this revision.
    good_at: AtomicU64,
}

/// How far all sets have followed the server's changes.
#[derive(Debug, Default)]
pub struct Progress {
    /// Changes up to this revision are on their way.
    coming: AtomicU64,
    done: watch::Sender<u64>,
}

impl Progress {
    /// A change of this revision will be taken up.
    pub fn expect(&self, revision: u64) {
        self.coming.fetch_max(revision, Ordering::AcqRel);
    }

    /// Everything up to this revision is in the sets.
    pub fn reach(&self, revision: u64) {
        self.done.send_if_modified(|done| {
            let further = revision > *done;
            *done = revision.max(*done);
            further
        });
    }

    /// Waits until what is on its way now is in the sets.
    pub async fn catch_up(&self) {
        let coming = self.coming.load(Ordering::Acquire);
        // An error means that nobody is left to wait for.
        let _ = self.done.subscribe().wait_for(|done| *done >= coming).await;
    }
}

#[derive(Default)]
struct Contents {
    objects: HashMap<Key, Bytes>,
    /// What cannot be made at present: an edge that has it keeps it.
    held: HashSet<Key>,
    tree: HashTree,
    ready: bool,
    log: VecDeque<Key>,
    head: u64,
    origins: Origins,
}

/// From which placement each object is. Most sets have one placement only, so the first one is understood.
#[derive(Default)]
struct Origins {
    placements: Vec<Id>,
    numbers: HashMap<Id, u32>,
    others: HashMap<Key, u32>,
    /// Of what is not in the set any more, as long as the change is remembered.
    former: HashMap<Key, u32>,
}

impl Origins {
    fn set(&mut self, key: &Key, placement: Option<Id>) {
        self.former.remove(key);
        let Some(placement) = placement else { return };
        let at = self.numbers.get(&placement).copied().unwrap_or_else(|| {
            let at = self.placements.len() as u32;
            self.placements.push(placement.clone());
            self.numbers.insert(placement, at);
            at
        });
        match at {
            0 => drop(self.others.remove(key)),
            at => drop(self.others.insert(key.clone(), at)),
        }
    }

    fn remove(&mut self, key: &Key) {
        let at = self.others.remove(key).unwrap_or_default();
        self.former.insert(key.clone(), at);
    }

    fn get(&self, key: &str) -> Option<&Id> {
        let at = self.former.get(key).or_else(|| self.others.get(key)).copied().unwrap_or_default();
        self.placements.get(at as usize).filter(|_| key != CONFIG)
    }
}

/// What changed since somebody looked.
#[derive(Debug, PartialEq)]
pub enum Since {
    Keys(Vec<Key>),
    /// Too much to say.
    Lost,
}

impl Set {
    pub fn new(progress: Arc<Progress>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self { id: NEXT.fetch_add(1, Ordering::Relaxed), progress, ..Self::default() }
    }

    pub fn follow(&self) -> watch::Receiver<u64> {
        self.head.subscribe()
    }

    /// Applies what objects became, and from which placement they are. Those who follow hear of it only if that makes a
    /// difference to edges.
    pub fn apply_of(&self, changes: impl IntoIterator<Item = (Key, Option<(Content, Option<Id>)>)>) {
        let mut contents = self.contents.write().unwrap_or_else(PoisonError::into_inner);
        let before = contents.head;
        for (key, content) in changes {
            let (content, of) = content.map_or((None, None), |(content, of)| (Some(content), of));
            if content.is_some() {
                contents.origins.set(&key, of);
            } else if contents.objects.contains_key(&key) {
                contents.origins.remove(&key);
            }
            contents.change(key, content);
        }
        let head = contents.head;
        drop(contents);
        if head != before {
            self.head.send_replace(head);
        }
    }

    #[cfg(test)]
    pub fn apply(&self, changes: impl IntoIterator<Item = (Key, Option<Content>)>) {
        self.apply_of(changes.into_iter().map(|(key, content)| (key, content.map(|content| (content, None)))));
    }

    /// The placements that these objects are from, or were when they were last in the set. Nothing of some if that is
    /// not known.
    pub fn origins<'a>(&self, keys: impl IntoIterator<Item = &'a Key>) -> Vec<(Key, Id)> {
        let contents = self.read();
        let of = |key: &Key| Some((key.clone(), contents.origins.get(key)?.clone()));
        keys.into_iter().filter_map(of).collect()
    }

    /// Everything that was there when the set was begun is in it.
    pub fn complete(&self) {
        self.contents.write().unwrap_or_else(PoisonError::into_inner).ready = true;
        self.head.send_modify(|_| {});
    }

    /// Nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.read().objects.is_empty()
    }

    pub fn len(&self) -> usize {
        self.read().objects.len()
    }

    /// All that is in it now.
    pub fn objects(&self) -> HashMap<Key, Bytes> {
        self.read().objects.clone()
    }

    /// Whether an edge of this set shall hold an object, or keep it as it is.
    pub fn has(&self, key: &str) -> bool {
        let contents = self.read();
        contents.objects.contains_key(key) || contents.held.contains(key)
    }

    pub fn content(&self, key: &str) -> Option<Bytes> {
        self.read().objects.get(key).cloned()
    }

    /// What changed lately; some of it may not be in the set any more.
    pub fn lately(&self) -> HashSet<Key> {
        self.read().log.iter().cloned().collect()
    }

    /// What cannot be made at present.
    pub fn held(&self) -> Vec<Key> {
        self.read().held.iter().cloned().collect()
    }

    /// The set as it is now; it stays so while the view is held. `newest` is a revision before which everything is applied or announced.
    pub fn view<'a>(&'a self, history: &'a History, newest: u64) -> View<'a> {
        let contents = self.read();
        let (coming, done) = (self.progress.coming.load(Ordering::Acquire), *self.progress.done.borrow());
        self.good_at.fetch_max(if done >= coming { done.max(newest) } else { done }, Ordering::AcqRel);
        let revision = self.good_at.load(Ordering::Acquire);
        View { contents, history, newest, revision, intent: None }
    }

    fn read(&self) -> RwLockReadGuard<'_, Contents> {
        self.contents.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Contents {
    fn change(&mut self, key: Key, content: Option<Content>) {
        let content = match content {
            Some(Content::Held(_)) => {
                // As it was, or not at all: half of it is worse than none.
                self.held.insert(key);
                return;
            }
            Some(Content::Whole(content)) => Some(content),
            None => None,
        };
        let was_held = self.held.remove(&key);
        if self.objects.get(&key) == content.as_ref() && !(was_held && content.is_none()) {
            return;
        }
        // One allocation for map, tree, log and every session's queue.
        let key = self.objects.get_key_value(&key).map_or(key, |(key, _)| key.clone());
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
        if self.log.len() > LOG
            && let Some(key) = self.log.pop_front()
        {
            self.origins.former.remove(&key);
        }
    }
}

pub struct View<'a> {
    contents: RwLockReadGuard<'a, Contents>,
    history: &'a History,
    newest: u64,
    revision: u64,
    intent: Option<&'a Intent>,
}

impl<'a> View<'a> {
    /// For the session of one edge: what owners intend to take away from it.
    pub fn with(self, intent: &'a Intent) -> Self {
        Self { intent: Some(intent), ..self }
    }

    /// How many changes there were.
    pub fn head(&self) -> u64 {
        self.contents.head
    }

    /// Everything that is in the set.
    pub fn objects(&self) -> impl Iterator<Item = (&Key, &Bytes)> {
        self.contents.objects.iter()
    }

    /// What changed since there were so many, each key once.
    pub fn since(&self, head: u64) -> Since {
        let missed = self.contents.head.saturating_sub(head) as usize;
        let Some(from) = self.contents.log.len().checked_sub(missed) else { return Since::Lost };
        let mut seen = HashSet::new();
        Since::Keys(self.contents.log.range(from..).filter(|key| seen.insert(*key)).cloned().collect())
    }
}

impl AsRef<HashTree> for View<'_> {
    fn as_ref(&self) -> &HashTree {
        &self.contents.tree
    }
}

impl Desired for View<'_> {
    fn ready(&self) -> bool {
        self.contents.ready
    }

    fn get(&self, key: &str) -> Option<Bytes> {
        self.contents.objects.get(key).cloned()
    }

    /// Kinds and namespaces before what is in them, workloads after what they read.
    fn delivery_order(&self, key: &str) -> DeliveryOrder {
        let is_one_of = |collections: &[&str]| collections.iter().any(|one| key.starts_with(one));
        if is_one_of(&["apiextensions.k8s.io/customresourcedefinitions/", "core/namespaces/"]) {
            DeliveryOrder::First
        } else if is_one_of(&["apps/", "batch/", "core/pods/", "core/replicationcontrollers/"]) {
            DeliveryOrder::Last
        } else {
            DeliveryOrder::Second
        }
    }

    fn is_held(&self, key: &str) -> bool {
        self.contents.held.contains(key)
    }

    fn is_intended(&self, key: &str) -> bool {
        self.intent.is_some_and(|intent| intent.covers(key))
    }

    fn is_incidental(&self, key: &str) -> bool {
        key == CONFIG
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
    use link::Tree;
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
            for (key, content, look) in edits {
                let key = format!("core/x//{key}");
                let content = content.map(|c| Bytes::from(vec![c]));
                set.apply([(key.as_str().into(), content.clone().map(Content::Whole))]);
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
                scratch.apply([(key.as_str().into(), Some(Content::Whole(content.clone())))]);
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
            set.apply([("core/x//a".into(), Some(Content::Whole(n.to_string().into())))]);
        }
        assert_eq!(set.view(&history, 0).since(0), Since::Keys(vec!["core/x//a".into()]));
        set.apply([("core/x//a".into(), Some(Content::Whole(Bytes::from_static(b"x"))))]);
        assert_eq!(set.view(&history, 0).since(0), Since::Lost);
        assert_eq!(set.view(&history, 0).since(LOG as u64 + 1), Since::Keys(vec![]));
    }

    #[test]
    fn positions_grow_and_claim_no_more_than_is_there() {
        let (history, progress) = (History::fresh(7), Arc::new(Progress::default()));
        let set = Set::new(progress.clone());
        progress.reach(10);
        assert_eq!(set.view(&history, 10).position().revision, 10);
        assert_eq!(set.view(&history, 50).position().revision, 50, "nothing of this set's happened since");
        progress.expect(60);
        assert_eq!(set.view(&history, 65).position().revision, 50, "60 is not applied yet");
        progress.reach(60);
        assert_eq!(set.view(&history, 65).position().revision, 65);
    }

    #[test]
    fn kinds_and_namespaces_go_first_and_workloads_last() {
        let (history, set) = (History::fresh(7), Set::default());
        let view = set.view(&history, 0);
        for (key, turn) in [
            ("apiextensions.k8s.io/customresourcedefinitions//a.b", DeliveryOrder::First),
            ("core/namespaces//shop", DeliveryOrder::First),
            ("core/configmaps/shop/a", DeliveryOrder::Second),
            ("rbac.authorization.k8s.io/roles/shop/a", DeliveryOrder::Second),
            ("apps/deployments/shop/web", DeliveryOrder::Last),
            ("core/pods/shop/web", DeliveryOrder::Last),
        ] {
            assert_eq!(view.delivery_order(key), turn, "{key}");
        }
    }

    #[test]
    fn a_set_knows_whose_its_objects_are_and_were() {
        let (one, two) = (Id::new("root:a", "one"), Id::new("root:b", "two"));
        let set = Set::default();
        let of = |id: &Id| Some((Content::Whole(Bytes::from_static(b"1")), Some(id.clone())));
        let keys = ["core/x//a", "core/x//b", CONFIG].map(Key::from);
        let [a, b, config] = keys.clone();
        set.apply_of([(a.clone(), of(&one)), (b.clone(), of(&two))]);
        set.apply([(config.clone(), Some(Content::Whole(Bytes::new())))]);
        let both = vec![(a.clone(), one.clone()), (b.clone(), two.clone())];
        assert_eq!(set.origins(&keys), both);
        set.apply_of([(a.clone(), None), (b.clone(), None), (config, None)]);
        assert_eq!(set.origins(&keys), both, "what was taken away is told as whose it was");
        set.apply_of([(b.clone(), of(&one))]);
        assert_eq!(set.origins([&b]), [(b.clone(), one)]);
    }

    #[test]
    fn what_cannot_be_made_stays_as_it_is() {
        let (history, set) = (History::fresh(7), Set::default());
        let held = || Some(Content::Held(placement::Fault::new("$", "broken")));
        let whole = |text: &'static str| Some(Content::Whole(Bytes::from_static(text.as_bytes())));
        set.apply([("core/x//a".into(), whole("1")), ("core/x//b".into(), held())]);
        set.apply([("core/x//a".into(), held())]);
        let view = set.view(&history, 0);
        assert_eq!((view.get("core/x//a"), view.get("core/x//b")), (Some(Bytes::from_static(b"1")), None));
        assert!(view.is_held("core/x//a") && view.is_held("core/x//b"));
        let head = view.head();
        drop(view);
        set.apply([("core/x//a".into(), whole("2")), ("core/x//b".into(), None)]);
        let view = set.view(&history, 0);
        assert!(!view.is_held("core/x//a") && !view.is_held("core/x//b"));
        let keys = ["core/x//a", "core/x//b"].map(Key::from).to_vec();
        assert_eq!(view.since(head), Since::Keys(keys), "an edge that kept it hears that it is gone");
    }
}
