//! For models: an API without a server, and caches that see it as late as the model likes.

use std::{cell::Cell, collections::BTreeMap, rc::Rc, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Pod, PodCondition, PodStatus},
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::runtime::watcher::Event;

use controllers::cache::{Cache, Key, Kind};

/// A behaviour's name in `docs/controllers.md`, and its test.
pub type Case = (&'static str, fn());

/// Time of models: it stands still unless a model moves it.
pub fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + second).unwrap()
}

pub fn parse<K: serde::de::DeserializeOwned>(value: serde_json::Value) -> K {
    serde_json::from_value(value).unwrap()
}

/// One store has one revision, whatever the kind.
#[derive(Clone, Default)]
pub struct Revision(Rc<Cell<u64>>);

impl Revision {
    pub fn get(&self) -> u64 {
        self.0.get()
    }

    fn next(&self) -> u64 {
        self.0.set(self.0.get() + 1);
        self.0.get()
    }
}

/// What there really is of one kind, and what its cache shows of it.
pub struct Truth<K> {
    revision: Revision,
    pub objects: BTreeMap<Key, K>,
    log: Vec<Event<K>>,
    shown: usize,
    pub cache: Arc<Cache<K>>,
}

impl<K: Kind> Truth<K> {
    pub fn new(revision: &Revision) -> Self {
        let cache = Arc::new(Cache::default());
        cache.apply(Event::Init);
        cache.apply(Event::InitDone);
        Self { revision: revision.clone(), objects: BTreeMap::new(), log: Vec::new(), shown: 0, cache }
    }

    pub fn create(&mut self, mut object: K) -> K {
        let revision = self.revision.next();
        let meta = object.meta_mut();
        if let Some(start) = meta.generate_name.as_ref().filter(|_| meta.name.is_none()) {
            meta.name = Some(format!("{start}{revision}"));
        }
        meta.uid = Some(format!("uid-{revision}"));
        meta.resource_version = Some(revision.to_string());
        meta.creation_timestamp = Some(Time(at(0)));
        let key = Key::of(&object);
        assert!(!self.objects.contains_key(&key), "{key} is there already");
        self.objects.insert(key, object.clone());
        self.log.push(Event::Apply(object.clone()));
        object
    }

    pub fn change(&mut self, key: &Key, change: impl FnOnce(&mut K)) -> Option<K> {
        let object = self.objects.get_mut(key)?;
        change(object);
        object.meta_mut().resource_version = Some(self.revision.next().to_string());
        self.log.push(Event::Apply(object.clone()));
        Some(object.clone())
    }

    pub fn remove(&mut self, key: &Key) -> Option<K> {
        let mut object = self.objects.remove(key)?;
        object.meta_mut().resource_version = Some(self.revision.next().to_string());
        self.log.push(Event::Delete(object.clone()));
        Some(object)
    }

    /// The cache sees so many more events.
    pub fn show(&mut self, events: usize) {
        for _ in 0..events {
            let Some(event) = self.log.get(self.shown) else { return };
            self.cache.apply(event.clone());
            self.shown += 1;
        }
    }

    pub fn show_all(&mut self) {
        self.show(usize::MAX);
    }

    /// The watch broke: the cache lists anew.
    pub fn relist(&mut self) {
        self.cache.apply(Event::Init);
        for object in self.objects.values() {
            self.cache.apply(Event::InitApply(object.clone()));
        }
        self.cache.apply(Event::InitDone);
        self.shown = self.log.len();
    }

    /// One of the objects, whatever number comes.
    pub fn pick(&self, number: usize) -> Option<Key> {
        let count = self.objects.len();
        self.objects.keys().nth(if count == 0 { 0 } else { number % count }).cloned()
    }
}

impl Truth<Pod> {
    /// Deletes as the API does: a Pod that is on a node is only marked, until its node has ended it.
    pub fn terminate(&mut self, key: &Key) {
        let on_node = self.objects.get(key).is_some_and(|pod| crate::pod::node(pod).is_some());
        if on_node {
            self.change(key, |pod| pod.metadata.deletion_timestamp = Some(Time(at(0))));
        } else {
            self.remove(key);
        }
    }

    pub fn start(&mut self, key: &Key, node: &str) {
        self.change(key, |pod| {
            pod.spec.get_or_insert_default().node_name.get_or_insert_with(|| node.to_owned());
            let status = pod.status.get_or_insert_default();
            if status.phase.as_deref().unwrap_or("Pending") == "Pending" {
                status.phase = Some("Running".into());
            }
        });
    }

    pub fn set_ready(&mut self, key: &Key, ready: bool, since: Timestamp) {
        self.change(key, |pod| {
            let status = pod.status.get_or_insert_default();
            set_ready(status, ready, since);
        });
    }

    pub fn end(&mut self, key: &Key, phase: &str) {
        self.change(key, |pod| {
            let status = pod.status.get_or_insert_default();
            status.phase = Some(phase.into());
            set_ready(status, false, at(0));
        });
    }
}

pub fn set_ready(status: &mut PodStatus, ready: bool, since: Timestamp) {
    let text = if ready { "True" } else { "False" };
    let conditions = status.conditions.get_or_insert_default();
    if conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == text) {
        return;
    }
    conditions.retain(|condition| condition.type_ != "Ready");
    conditions.push(PodCondition {
        type_: "Ready".into(),
        status: text.into(),
        last_transition_time: Some(Time(since)),
        ..PodCondition::default()
    });
}
