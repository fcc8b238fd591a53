//! Writes of a controller that its caches do not show yet.
//!
//! A controller that decides by a cache that lags would make a Pod twice. So it remembers its own writes, and makes or
//! deletes nothing for a key before its caches show all earlier writes for this key.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use crate::cache::{Cache, Key, Kind};

/// The wait for a cache that does not show a write yet, should no change of it come before.
pub const CACHE_RETRY: Duration = Duration::from_secs(1);

type IsShown = Box<dyn Fn() -> bool + Send + Sync>;

#[derive(Default)]
pub struct Written {
    by_key: Mutex<HashMap<Key, Vec<IsShown>>>,
}

impl Written {
    /// An object was made or changed for `key`.
    pub fn wrote<K: Kind>(&self, key: &Key, cache: &Arc<Cache<K>>, written: &K) {
        let mark = cache.read(|shown| shown.mark(written.meta()));
        let cache = cache.clone();
        self.add(key, Box::new(move || cache.read(|shown| shown.shows(mark))));
    }

    /// An object was deleted for `key`: it is gone, or terminating.
    pub fn deleted<K: Kind>(&self, key: &Key, cache: &Arc<Cache<K>>, deleted: &K) {
        let cache = cache.clone();
        let (at, uid) = (Key::of(deleted), deleted.meta().uid.clone());
        self.add(
            key,
            Box::new(move || {
                cache.get(&at).is_none_or(|now| now.meta().uid != uid || now.meta().deletion_timestamp.is_some())
            }),
        );
    }

    fn add(&self, key: &Key, shown: IsShown) {
        self.by_key.lock().unwrap_or_else(PoisonError::into_inner).entry(key.clone()).or_default().push(shown);
    }

    /// Whether the caches show all that was done for `key`.
    pub fn is_shown(&self, key: &Key) -> bool {
        let mut by_key = self.by_key.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(writes) = by_key.get_mut(key) else { return true };
        writes.retain(|is_shown| !is_shown());
        let all = writes.is_empty();
        if all {
            by_key.remove(key);
        }
        all
    }

    /// The object of this key is gone.
    pub fn forget(&self, key: &Key) {
        self.by_key.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::Time};
    use kube::runtime::watcher::Event;

    use super::*;

    fn pod(uid: &str, revision: u64) -> Pod {
        let mut pod = Pod::default();
        pod.metadata.name = Some("p".into());
        pod.metadata.uid = Some(uid.into());
        pod.metadata.resource_version = Some(revision.to_string());
        pod
    }

    #[test]
    fn a_key_waits_for_its_own_writes_only() {
        let cache = Arc::new(Cache::<Pod>::default());
        let written = Written::default();
        let (mine, other) = (Key::new("ns", "mine"), Key::new("ns", "other"));
        written.wrote(&mine, &cache, &pod("1", 5));
        assert!(!written.is_shown(&mine) && written.is_shown(&other));
        cache.apply(Event::Apply(pod("1", 5)));
        assert!(written.is_shown(&mine));

        written.deleted(&mine, &cache, &pod("1", 5));
        assert!(!written.is_shown(&mine));
        let mut terminating = pod("1", 6);
        terminating.metadata.deletion_timestamp = Some(Time(Default::default()));
        cache.apply(Event::Apply(terminating));
        assert!(written.is_shown(&mine));

        // Another object of the same name is not the deleted one.
        written.deleted(&mine, &cache, &pod("1", 6));
        cache.apply(Event::Apply(pod("2", 9)));
        assert!(written.is_shown(&mine));
    }
}
