//! The objects of one kind, kept by one watch for all controllers of the process.
//!
//! A cache lags behind the API. A [`Mark`] of a write tells whether the cache shows it by now: see [`crate::written`].

use std::{
    any::{Any, TypeId},
    collections::{BTreeMap, HashMap},
    fmt::Debug,
    ops::Bound,
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::Duration,
};

use backoff::{Backoff, Schedule};
use futures::StreamExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Api, Client, Resource,
    runtime::watcher::{self, Event, watcher},
};
use serde::de::DeserializeOwned;
use tasks::Tasks;
use tokio::sync::watch;

use crate::RESTART;

const WATCH_RETRY: Schedule = Schedule::new(Duration::from_millis(100), Duration::from_secs(30));

/// A kind that a controller can follow.
pub trait Kind: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static {}
impl<K> Kind for K where K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static {}

/// Namespace and name of an object. The namespace is empty for objects of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub namespace: String,
    pub name: String,
}

impl Key {
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned() }
    }

    pub fn of(object: &impl Resource) -> Self {
        Self::of_meta(object.meta())
    }

    pub fn of_meta(meta: &ObjectMeta) -> Self {
        Self { namespace: meta.namespace.clone().unwrap_or_default(), name: meta.name.clone().unwrap_or_default() }
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// An object before and after a change. At least one of them is there.
pub struct Change<K> {
    pub old: Option<Arc<K>>,
    pub new: Option<Arc<K>>,
}

impl<K> Change<K> {
    /// Both states, the old one first.
    pub fn states(&self) -> impl Iterator<Item = &Arc<K>> {
        self.old.iter().chain(&self.new)
    }
}

/// A write that a cache shows, or does not show yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    revision: u64,
    lists: u64,
}

/// The cache without its watch.
#[derive(Debug)]
pub struct Shown<K> {
    objects: BTreeMap<Key, Arc<K>>,
    listing: Option<BTreeMap<Key, Arc<K>>>,
    /// The newest revision that was seen.
    revision: u64,
    lists_begun: u64,
    /// The newest list that is complete, by its number.
    listed: u64,
}

impl<K> Default for Shown<K> {
    fn default() -> Self {
        Self { objects: BTreeMap::new(), listing: None, revision: 0, lists_begun: 0, listed: 0 }
    }
}

pub fn revision_of(meta: &ObjectMeta) -> u64 {
    meta.resource_version.as_deref().and_then(|version| version.parse().ok()).unwrap_or(0)
}

impl<K: Kind> Shown<K> {
    /// Takes an event in and returns what it changed, for the listeners.
    pub fn apply(&mut self, event: Event<K>) -> Vec<Change<K>> {
        match event {
            Event::Init => {
                self.lists_begun += 1;
                self.listing = Some(BTreeMap::new());
                Vec::new()
            }
            Event::InitApply(object) => {
                let object = self.take(object);
                self.listing.get_or_insert_default().insert(Key::of(&*object), object);
                Vec::new()
            }
            Event::InitDone => {
                let listed = self.listing.take().unwrap_or_default();
                self.listed = self.lists_begun;
                let mut before = std::mem::replace(&mut self.objects, listed);
                let mut changes: Vec<Change<K>> = Vec::new();
                for (key, object) in &self.objects {
                    let old = before.remove(key);
                    let same = |old: &Arc<K>| old.meta().resource_version == object.meta().resource_version;
                    if !old.as_ref().is_some_and(same) {
                        changes.push(Change { old, new: Some(object.clone()) });
                    }
                }
                changes.extend(before.into_values().map(|old| Change { old: Some(old), new: None }));
                changes
            }
            Event::Apply(object) => {
                let object = self.take(object);
                let old = self.objects.insert(Key::of(&*object), object.clone());
                vec![Change { old, new: Some(object) }]
            }
            Event::Delete(object) => {
                let object = self.take(object);
                let old = self.objects.remove(&Key::of(&*object)).unwrap_or(object);
                vec![Change { old: Some(old), new: None }]
            }
        }
    }

    fn take(&mut self, mut object: K) -> Arc<K> {
        self.revision = self.revision.max(revision_of(object.meta()));
        object.meta_mut().managed_fields = None;
        Arc::new(object)
    }

    pub fn mark(&self, written: &ObjectMeta) -> Mark {
        Mark { revision: revision_of(written), lists: self.lists_begun }
    }

    /// Whether everything up to a write is shown. A list that began after the write shows it as well, or that the object
    /// is gone.
    pub fn shows(&self, mark: Mark) -> bool {
        self.revision >= mark.revision && self.listing.is_none() || self.listed > mark.lists
    }

    pub fn get(&self, key: &Key) -> Option<Arc<K>> {
        self.objects.get(key).cloned()
    }

    pub fn all(&self) -> Vec<Arc<K>> {
        self.objects.values().cloned().collect()
    }

    pub fn within(&self, namespace: &str) -> Vec<Arc<K>> {
        let from = Key::new(namespace, "");
        let range = self.objects.range((Bound::Included(from), Bound::Unbounded));
        range.take_while(|(key, _)| key.namespace == namespace).map(|(_, object)| object.clone()).collect()
    }
}

type Listener<K> = Box<dyn Fn(&Change<K>) + Send + Sync>;

pub struct Cache<K> {
    shown: RwLock<Shown<K>>,
    listeners: Mutex<Vec<Listener<K>>>,
    synced: watch::Sender<bool>,
}

impl<K: Kind> Default for Cache<K> {
    fn default() -> Self {
        Self { shown: RwLock::default(), listeners: Mutex::default(), synced: watch::Sender::new(false) }
    }
}

impl<K: Kind> Cache<K> {
    /// Reads what is shown. The lock is held meanwhile.
    pub fn read<T>(&self, ask: impl FnOnce(&Shown<K>) -> T) -> T {
        ask(&self.shown.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn get(&self, key: &Key) -> Option<Arc<K>> {
        self.read(|shown| shown.get(key))
    }

    pub fn all(&self) -> Vec<Arc<K>> {
        self.read(Shown::all)
    }

    pub fn within(&self, namespace: &str) -> Vec<Arc<K>> {
        self.read(|shown| shown.within(namespace))
    }

    /// Calls a function with every change from now on. It must neither wait nor write: it adds keys to a queue.
    pub fn listen(&self, listener: impl Fn(&Change<K>) + Send + Sync + 'static) {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(listener));
    }

    /// True as soon as the first list is complete.
    pub fn synced(&self) -> watch::Receiver<bool> {
        self.synced.subscribe()
    }

    pub fn apply(&self, event: Event<K>) {
        let done = matches!(event, Event::InitDone);
        let changes = self.shown.write().unwrap_or_else(PoisonError::into_inner).apply(event);
        let listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        for change in &changes {
            for listener in listeners.iter() {
                listener(change);
            }
        }
        if done {
            self.synced.send_replace(true);
        }
    }

    async fn follow(self: Arc<Self>, client: Client) {
        let mut stream = Box::pin(watcher(Api::<K>::all(client), watcher::Config::default()));
        let mut backoff = Backoff::following(WATCH_RETRY);
        while let Some(event) = stream.next().await {
            match event {
                Ok(event) => {
                    // The begin of a list does not say that it will be answered.
                    if !matches!(event, Event::Init) {
                        backoff.reset();
                    }
                    self.apply(event);
                }
                Err(error) => {
                    tracing::debug!(kind = %K::kind(&()), %error, "a watch failed; it begins again");
                    tokio::time::sleep(backoff.next()).await;
                }
            }
        }
    }
}

type StartWatch = Box<dyn FnOnce(&Tasks) + Send>;

/// The caches of one process. A kind that no controller asked for is not watched.
pub struct Caches {
    client: Client,
    by_kind: HashMap<TypeId, Box<dyn Any + Send>>,
    watches: Vec<StartWatch>,
}

impl Caches {
    pub fn new(client: Client) -> Self {
        Self { client, by_kind: HashMap::new(), watches: Vec::new() }
    }

    /// The process's only cache of this kind.
    pub fn of<K: Kind>(&mut self) -> Arc<Cache<K>> {
        let known = self.by_kind.get(&TypeId::of::<K>()).and_then(|any| any.downcast_ref::<Arc<Cache<K>>>());
        if let Some(cache) = known {
            return cache.clone();
        }
        let cache = Arc::new(Cache::<K>::default());
        self.by_kind.insert(TypeId::of::<K>(), Box::new(cache.clone()));
        let (watched, client) = (cache.clone(), self.client.clone());
        self.watches.push(Box::new(move |tasks| {
            // A watch that begins again lists everything anew.
            let make = move || watched.clone().follow(client.clone());
            tasks.spawn_until_shutdown("cache-watch", RESTART, make);
        }));
        cache
    }

    /// Starts the watches. All listeners must be there by then.
    pub fn start(self, tasks: &Tasks) {
        self.watches.into_iter().for_each(|start| start(tasks));
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    fn object(name: &str, revision: u64) -> ConfigMap {
        let mut object = ConfigMap::default();
        object.metadata.namespace = Some("ns".into());
        object.metadata.name = Some(name.into());
        object.metadata.resource_version = Some(revision.to_string());
        object
    }

    fn listed(objects: &[ConfigMap]) -> Shown<ConfigMap> {
        let mut shown = Shown::default();
        shown.apply(Event::Init);
        for object in objects {
            shown.apply(Event::InitApply(object.clone()));
        }
        shown.apply(Event::InitDone);
        shown
    }

    #[test]
    fn a_new_list_tells_only_what_differs() {
        let mut shown = listed(&[object("same", 1), object("changed", 2), object("gone", 3)]);
        shown.apply(Event::Init);
        shown.apply(Event::InitApply(object("same", 1)));
        shown.apply(Event::InitApply(object("changed", 5)));
        shown.apply(Event::InitApply(object("new", 6)));
        assert_eq!(shown.all().len(), 3, "a list that is not complete shows nothing");
        let changes = shown.apply(Event::InitDone);
        let told: Vec<(Option<String>, Option<String>)> = changes
            .iter()
            .map(|change| {
                let name = |object: &Option<Arc<ConfigMap>>| object.as_ref().map(|object| Key::of(&**object).name);
                (name(&change.old), name(&change.new))
            })
            .collect();
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(told, [(text("changed"), text("changed")), (None, text("new")), (text("gone"), None)]);
    }

    #[test]
    fn a_write_is_shown_by_its_event_or_by_a_list_that_began_later() {
        let mut shown = listed(&[object("a", 1)]);
        let mark = shown.mark(&object("b", 7).metadata);
        assert!(!shown.shows(mark));
        shown.apply(Event::Apply(object("a", 6)));
        assert!(!shown.shows(mark));
        // Somebody deleted it before the cache saw it: only that the list began later says so.
        shown.apply(Event::Init);
        assert!(!shown.shows(mark));
        shown.apply(Event::InitApply(object("a", 6)));
        shown.apply(Event::InitDone);
        assert!(shown.shows(mark));
        let mark = shown.mark(&object("c", 9).metadata);
        shown.apply(Event::Apply(object("c", 9)));
        assert!(shown.shows(mark));
    }

    #[test]
    fn a_half_read_list_shows_no_write() {
        let mut shown = listed(&[]);
        shown.apply(Event::Init);
        let mark = shown.mark(&object("b", 7).metadata);
        shown.apply(Event::InitApply(object("z", 8)));
        assert!(!shown.shows(mark), "the revision was seen, but what is shown is still the old list");
        shown.apply(Event::InitDone);
        // It began before the write, but what it holds is newer.
        assert!(shown.shows(mark));
    }

    #[test]
    fn namespaces_lie_apart() {
        let mut other = object("x", 3);
        other.metadata.namespace = Some("ns2".into());
        let mut before = object("x", 4);
        before.metadata.namespace = Some("nr".into());
        let shown = listed(&[object("a", 1), object("b", 2), other, before]);
        assert_eq!(shown.within("ns").len(), 2);
        assert!(shown.within("n").is_empty());
    }
}
