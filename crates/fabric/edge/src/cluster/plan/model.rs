//! The planner against a cluster that is made of one map: whatever happens, and in whatever order, in the end the cluster has what
//! the center wants, nothing is left of what it took away, and nobody else's objects were touched.

use std::collections::{BTreeMap, VecDeque};

use link::Key;
use proptest::prelude::*;

use super::*;
use crate::cluster::found::Mark;

const DEFINITION: &str = "apiextensions.k8s.io/customresourcedefinitions//widgets.example.com";
const KEYS: [&str; 8] = [
    "core/namespaces//shop",
    "core/namespaces//default",
    DEFINITION,
    "core/configmaps/shop/a",
    "core/configmaps/default/b",
    "apps/deployments/shop/web",
    "example.com/widgets/shop/w",
    "rbac.authorization.k8s.io/clusterroles//reader",
];

#[derive(Clone, Debug, Default, PartialEq)]
struct Object {
    found: Found,
    content: u128,
    /// Somebody in the cluster made it.
    theirs: bool,
}

/// What the watch of a kind has not delivered yet.
#[derive(Default)]
struct Following(VecDeque<(Key, Result<Found, Found>)>);

struct World {
    planner: Planner,
    now: Millis,
    wanted: BTreeMap<Key, u128>,
    records: BTreeMap<Key, Record>,
    cluster: BTreeMap<Key, Object>,
    watches: BTreeMap<String, Following>,
    asked: Vec<Action>,
    /// What requests have come to, of which the planner has not heard yet: the watch may be quicker.
    answers: Vec<(Key, Outcome)>,
    version: u64,
    said: BTreeMap<Key, String>,
    order: Vec<Key>,
}

fn wanted(hash: u128) -> Wanted {
    Wanted { api_version: "v1".into(), kind: "K".into(), hash, exclusive: false }
}

fn collection(key: &str) -> String {
    ObjectKey::parse(key).unwrap().collection.to_owned()
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            planner: Planner::default(),
            now: 1,
            wanted: BTreeMap::new(),
            records: BTreeMap::new(),
            cluster: BTreeMap::new(),
            watches: BTreeMap::new(),
            asked: Vec::new(),
            answers: Vec::new(),
            version: 1,
            said: BTreeMap::new(),
            order: Vec::new(),
        };
        world.make_theirs(KEYS[1]);
        world
    }

    fn next_version(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    // === the cluster ===

    fn serves(&self, collection: &str) -> bool {
        collection != "example.com/widgets" || self.cluster.get(DEFINITION).is_some_and(|crd| crd.found.served)
    }

    fn write(&mut self, key: &str, mut object: Object) {
        object.found.version = self.next_version();
        let before = self.cluster.insert(key.into(), object.clone());
        let marked = |object: &Object| object.found.mark != Mark::None;
        if let Some(following) = self.watches.get_mut(&collection(key)) {
            if marked(&object) {
                following.0.push_back((key.into(), Ok(object.found)));
            } else if before.as_ref().is_some_and(marked) {
                following.0.push_back((key.into(), Err(object.found)));
            }
        }
    }

    fn delete(&mut self, key: &str) {
        let Some(mut object) = self.cluster.remove(key) else { return };
        object.found.version = self.next_version();
        if let Some(following) = self.watches.get_mut(&collection(key))
            && object.found.mark != Mark::None
        {
            following.0.push_back((key.into(), Err(object.found)));
        }
        if let Some(home) = key.strip_prefix("core/namespaces//") {
            let inside = |key: &&str| ObjectKey::parse(key).is_some_and(|key| key.namespace == home);
            KEYS.into_iter().filter(inside).for_each(|key| self.delete(key));
        }
        if key == DEFINITION {
            self.delete(KEYS[6]);
            if self.watches.remove("example.com/widgets").is_some() {
                self.planner.unlisted("example.com/widgets", self.now, false, "not served".into());
            }
        }
    }

    fn make_theirs(&mut self, key: &str) {
        if self.cluster.contains_key(key) || !self.serves(&collection(key)) {
            return;
        }
        let uid = format!("u{}", self.next_version());
        let common = key.starts_with("core/namespaces/");
        let found = Found { uid, common, served: key == DEFINITION, ..Found::default() };
        self.write(key, Object { found, content: 0, theirs: true });
    }

    // === requests ===

    /// What is done in order, by whoever asks the planner, is done at once; requests are on their way for any time.
    fn take(&mut self) {
        for action in self.planner.next(self.now) {
            if let Action::Delete { key, .. } = &action {
                assert!(!self.wanted.contains_key(key), "{key} is wanted");
            }
            match &action {
                Action::Unwatch { collection } => {
                    self.watches.remove(collection);
                    self.asked.retain(
                        |asked| !matches!(asked, Action::Watch { collection: begun, .. } if begun == collection),
                    );
                }
                Action::Say { key, refused: Some(reason) } => drop(self.said.insert(key.clone(), reason.clone())),
                Action::Say { key, refused: None } => drop(self.said.remove(key)),
                _ => self.asked.push(action),
            }
        }
    }

    /// Carries out one of the requests. What is not heard of may have been done all the same.
    fn carry_out(&mut self, which: usize, heard: bool, arrives: bool, refuse: bool, late: bool) {
        if self.asked.is_empty() {
            return;
        }
        let action = self.asked.remove(which % self.asked.len());
        let key = match &action {
            Action::Watch { collection, .. } => {
                if !heard {
                    return self.asked.push(action.clone());
                }
                if !self.serves(collection) {
                    return self.planner.unlisted(collection, self.now, false, "not served".into());
                }
                let of_kind = self.cluster.iter().filter(|(key, _)| key.starts_with(&format!("{collection}/")));
                let marked = of_kind.filter(|(_, object)| object.found.mark != Mark::None);
                let found = marked.map(|(key, object)| (key.clone(), object.found.clone())).collect();
                self.watches.insert(collection.clone(), Following::default());
                return self.planner.listed(collection, found);
            }
            Action::Unwatch { .. } | Action::Say { .. } => return,
            Action::Look { key }
            | Action::Apply { key, .. }
            | Action::Delete { key, .. }
            | Action::Release { key, .. }
            | Action::Forget { key } => key.clone(),
        };
        if let Action::Apply { adopted, known: false, .. } = &action {
            let hash = self.wanted.get(&key).copied().unwrap_or_default();
            self.records.insert(key.clone(), wanted(hash).begun(*adopted));
        }
        let local = matches!(action, Action::Forget { .. });
        let outcome = match heard || arrives || local {
            true if refuse && !local => Outcome::Refused("because".into()),
            true => self.request(&action, &key),
            false => Outcome::Away,
        };
        if let Outcome::Applied(_, record) = &outcome
            && heard
        {
            self.records.insert(key.clone(), record.clone());
        }
        let outcome = if heard || local { outcome } else { Outcome::Away };
        self.answers.push((key, outcome));
        if !late {
            self.answer(usize::MAX);
        }
    }

    /// The planner hears of one.
    fn answer(&mut self, which: usize) {
        if self.answers.is_empty() {
            return;
        }
        let last = self.answers.len() - 1;
        let (key, outcome) = self.answers.remove(if which > last { last } else { which });
        let applied = matches!(outcome, Outcome::Applied(..));
        self.planner.done(&key, self.now, outcome);
        // What is shown of an object that was applied says as well that it is not refused.
        if applied && self.planner.refused(&key).is_none() {
            self.said.remove(&key);
        }
    }

    fn request(&mut self, action: &Action, key: &Key) -> Outcome {
        let there = self.cluster.get(key).cloned();
        let is_another = |uid: &str| !uid.is_empty() && there.as_ref().is_none_or(|object| object.found.uid != *uid);
        match action {
            Action::Look { .. } => Outcome::Looked(there.map(|object| object.found)),
            Action::Apply { adopted, uid, .. } => {
                let Some(hash) = self.wanted.get(key).copied() else {
                    return Outcome::Moot;
                };
                if !self.serves(&collection(key)) {
                    return Outcome::Refused("no such kind".into());
                }
                let home = ObjectKey::parse(key).unwrap().namespace;
                if !home.is_empty() && !self.cluster.contains_key(&*format!("core/namespaces//{home}")) {
                    return Outcome::Refused("no such namespace".into());
                }
                if is_another(uid) {
                    return Outcome::Gone;
                }
                let mut object = there.unwrap_or_else(|| Object {
                    found: Found { uid: format!("u{}", self.version + 1), ..Found::default() },
                    ..Object::default()
                });
                let ours = matches!(object.found.mark, Mark::Ours { .. });
                assert!(!object.theirs || object.found.common || ours, "{key} was somebody else's");
                object.content = hash;
                object.found.mark = Mark::Ours { adopted: *adopted };
                object.found.fields = u128::from(self.version) + 1;
                self.write(key, object);
                self.order.push(key.clone());
                let found = self.cluster[key].found.clone();
                let record =
                    Record { uid: found.uid.clone(), sent: hash, fields: found.fields, ..wanted(hash).begun(*adopted) };
                Outcome::Applied(found, record)
            }
            Action::Delete { uid, version, .. } => match there {
                Some(object) if object.found.uid == *uid && object.found.version != *version => {
                    Outcome::Refused("it has changed".into())
                }
                Some(object) if object.found.uid == *uid => {
                    assert!(!object.theirs, "{key} was somebody else's");
                    assert_eq!(object.found.mark, Mark::Ours { adopted: false }, "{key} carries no mark");
                    self.delete(key);
                    self.order.push(key.clone());
                    Outcome::Deleting
                }
                _ => Outcome::Gone,
            },
            Action::Release { uid, .. } => {
                if is_another(uid) {
                    return Outcome::Gone;
                }
                if let Some(mut object) = there {
                    object.found.mark = Mark::None;
                    object.found.fields = 0;
                    self.write(key, object);
                }
                Outcome::Released
            }
            Action::Forget { .. } => {
                self.records.remove(key);
                Outcome::Forgotten
            }
            _ => unreachable!(),
        }
    }

    fn deliver(&mut self, which: usize) {
        let waiting: Vec<String> = self
            .watches
            .iter()
            .filter(|(_, following)| !following.0.is_empty())
            .map(|(name, _)| name.clone())
            .collect();
        let Some(name) = waiting.get(which % waiting.len().max(1)) else { return };
        match self.watches.get_mut(name).and_then(|following| following.0.pop_front()) {
            Some((key, Ok(found))) => self.planner.seen(&key, found),
            Some((key, Err(last))) => self.planner.unseen(&key, &last),
            None => {}
        }
    }

    // === what happens ===

    fn happen(&mut self, what: &Happening) {
        match what {
            Happening::Want(n, hash) => {
                let key: Key = KEYS[n % KEYS.len()].into();
                match hash % 4 {
                    0 => {
                        // With the object goes what was noted on it.
                        self.said.remove(&key);
                        self.wanted.remove(&key);
                    }
                    hash => drop(self.wanted.insert(key.clone(), u128::from(hash))),
                }
                self.tell(&key);
            }
            Happening::Meddle(n, how) => {
                let key = KEYS[n % KEYS.len()];
                let there = self.cluster.get(key).cloned();
                // Applying cannot be told to make only what is new: between the look and that there is a moment that nobody can close.
                let makes = |action: &Action| matches!(action, Action::Apply { key: asked, uid, .. } if **asked == *key && uid.is_empty());
                let looked = self.planner.objects.get(key).is_some_and(|entry| entry.looked == Some(None));
                let none =
                    |(asked, outcome): &(Key, Outcome)| **asked == *key && matches!(outcome, Outcome::Looked(None));
                let racing = looked || self.answers.iter().any(none) || self.asked.iter().any(makes);
                match (how % 4, there) {
                    (0, None) if !racing => self.make_theirs(key),
                    (1, Some(_)) => self.delete(key),
                    (2, Some(mut object)) if object.found.mark != Mark::None => {
                        (object.content, object.found.fields) = (99, 99);
                        self.write(key, object);
                    }
                    (3, Some(mut object)) if object.found.mark != Mark::None => {
                        // Whoever takes the mark off something that was adopted has it back.
                        object.found.mark = Mark::None;
                        object.found.fields = 98;
                        self.write(key, object);
                    }
                    _ => {}
                }
            }
            Happening::Request(which, how) => {
                self.take();
                self.carry_out(*which, how % 4 != 0, how % 2 == 0, how % 7 == 6, how % 5 == 4);
            }
            Happening::Answer(which) => self.answer(which % self.answers.len().max(1)),
            Happening::Deliver(which) => self.deliver(*which),
            Happening::Establish => self.establish(),
            Happening::Later(time) => self.now += u64::from(*time),
            Happening::Crash => {
                self.planner = Planner::default();
                self.watches.clear();
                self.asked.clear();
                self.answers.clear();
                self.said.clear();
                for (key, record) in self.records.clone() {
                    self.planner.remember(&key, record);
                }
                KEYS.iter().for_each(|key| self.tell(&(*key).into()));
            }
        }
    }

    fn tell(&mut self, key: &Key) {
        self.planner.want(key, self.wanted.get(key).map(|hash| wanted(*hash)));
    }

    fn establish(&mut self) {
        if let Some(mut crd) = self.cluster.get(DEFINITION).filter(|crd| !crd.found.served).cloned() {
            crd.found.served = true;
            self.write(DEFINITION, crd);
        }
    }

    /// Everything goes well from now on.
    fn settle(&mut self) {
        for _ in 0..400 {
            while !self.answers.is_empty() {
                self.answer(0);
            }
            self.take();
            let quiet = self.asked.is_empty();
            while !self.asked.is_empty() {
                self.carry_out(0, true, true, false, false);
            }
            while self.watches.values().any(|following| !following.0.is_empty()) {
                self.deliver(0);
            }
            self.establish();
            match self.planner.wake_at().filter(|_| quiet) {
                Some(at) => self.now = self.now.max(at),
                None if quiet => {}
                None => self.now += 1,
            }
        }
    }

    fn check(&self) {
        for (key, hash) in &self.wanted {
            let there = self.cluster.get(key);
            let home = ObjectKey::parse(key).unwrap().namespace;
            let blocked = there.is_some_and(|object| object.found.mark == Mark::None)
                || !self.serves(&collection(key))
                || !home.is_empty() && !self.cluster.contains_key(&*format!("core/namespaces//{home}"));
            if blocked {
                assert!(self.planner.refused(key).is_some(), "nobody is told of {key}: {there:?}");
                assert!(self.said.contains_key(key), "{key}");
                continue;
            }
            let there = there.unwrap_or_else(|| panic!("{key} is missing: {:?}", self.planner.refused(key)));
            assert_eq!(there.content, *hash, "{key} {:?}", self.planner.refused(key));
            assert!(self.planner.is_in_place(key) && !self.said.contains_key(key), "{key}");
        }
        for (key, object) in self.cluster.iter().filter(|(key, _)| !self.wanted.contains_key(*key)) {
            assert_eq!(object.found.mark, Mark::None, "{key} is left over: {object:?}");
        }
        for key in self.records.keys() {
            assert!(self.wanted.contains_key(key), "{key} is still remembered");
        }
        assert!(self.cluster.get(KEYS[1]).is_none_or(|object| object.theirs || !object.found.common));
    }
}

#[derive(Clone, Debug)]
enum Happening {
    Want(usize, u8),
    Meddle(usize, u8),
    Request(usize, u8),
    Answer(usize),
    Deliver(usize),
    Establish,
    Later(u16),
    Crash,
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        4 => (any::<usize>(), any::<u8>()).prop_map(|(n, hash)| Happening::Want(n, hash)),
        2 => (any::<usize>(), any::<u8>()).prop_map(|(n, how)| Happening::Meddle(n, how)),
        8 => (any::<usize>(), any::<u8>()).prop_map(|(n, how)| Happening::Request(n, how)),
        2 => any::<usize>().prop_map(Happening::Answer),
        4 => any::<usize>().prop_map(Happening::Deliver),
        1 => Just(Happening::Establish),
        2 => any::<u16>().prop_map(Happening::Later),
        1 => Just(Happening::Crash),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn the_cluster_becomes_what_the_center_wants(happenings in proptest::collection::vec(happening(), 0..80)) {
        let mut world = World::new();
        for what in &happenings {
            world.happen(what);
        }
        world.settle();
        world.check();
    }
}

#[test]
fn in_order_and_back_again() {
    let mut world = World::new();
    let at = |world: &World, key: &str| world.order.iter().position(|one| &**one == key).unwrap();
    for n in (0..KEYS.len()).rev() {
        world.happen(&Happening::Want(n, 1));
    }
    world.settle();
    world.check();
    assert_eq!(world.order.len(), KEYS.len(), "each is applied once: {:?}", world.order);
    for (before, after) in [(0, 3), (0, 5), (2, 6), (7, 5), (3, 5), (4, 6)] {
        assert!(at(&world, KEYS[before]) < at(&world, KEYS[after]), "{:?}", world.order);
    }
    world.order.clear();
    for n in 0..KEYS.len() {
        world.happen(&Happening::Want(n, 0));
    }
    world.settle();
    world.check();
    assert_eq!(world.order.len(), KEYS.len() - 1, "what was there before stays: {:?}", world.order);
    for (before, after) in [(3, 0), (5, 3), (6, 2), (5, 7)] {
        assert!(at(&world, KEYS[before]) < at(&world, KEYS[after]), "{:?}", world.order);
    }
    assert!(world.watches.is_empty(), "nobody needs them");
}
