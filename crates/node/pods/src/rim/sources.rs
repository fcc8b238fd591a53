//! ConfigMaps and Secrets, each read and watched by name as long as somebody uses it: a node may read no others.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use futures::StreamExt;
use k8s_openapi::{
    NamespaceResourceScope,
    api::core::v1::{ConfigMap, Secret},
};
use kube::{
    Api, Client, Resource,
    runtime::{WatchStreamExt, watcher},
};
use serde::de::DeserializeOwned;
use tasks::{Handle, Schedule, Tasks};
use tokio::sync::watch;

use crate::referred::{Data, Kind, Ref, Referred};

/// The time that a pod waits until its references have been read once.
const READ_TIMEOUT: Duration = Duration::from_secs(20);
const RESTART: Schedule = Schedule::new(Duration::from_millis(100), Duration::from_secs(60));

/// Nothing: not read yet. Nothing in it: it does not exist.
type Known = Option<Option<Arc<Data>>>;

/// Somebody's interest in one of them.
pub struct Source {
    known: watch::Receiver<Known>,
    task: Handle,
}

impl Drop for Source {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub struct Sources {
    client: Client,
    tasks: Tasks,
    watched: Mutex<BTreeMap<(String, Ref), Weak<Source>>>,
    /// Grows with every change.
    version: watch::Sender<u64>,
}

impl Sources {
    pub fn new(client: Client, tasks: Tasks) -> Self {
        Self { client, tasks, watched: Mutex::default(), version: watch::channel(0).0 }
    }

    pub fn changes(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Sees to it that all of these are followed, and no longer those that were in `used` before and are not asked for.
    pub fn follow(&self, namespace: &str, refs: BTreeSet<Ref>, used: &mut BTreeMap<Ref, Arc<Source>>) {
        used.retain(|known, _| refs.contains(known));
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        watched.retain(|_, source| source.strong_count() > 0);
        for wanted in refs {
            if used.contains_key(&wanted) {
                continue;
            }
            let key = (namespace.to_owned(), wanted.clone());
            let source = watched.get(&key).and_then(Weak::upgrade).unwrap_or_else(|| {
                let source = Arc::new(self.watch(namespace, &wanted));
                watched.insert(key, Arc::downgrade(&source));
                source
            });
            used.insert(wanted, source);
        }
    }

    fn watch(&self, namespace: &str, (kind, name): &Ref) -> Source {
        let (tell, known) = watch::channel(None);
        let (client, version) = (self.client.clone(), self.version.clone());
        let (namespace, name) = (namespace.to_owned(), name.clone());
        let kind = *kind;
        let task = self.tasks.spawn_until_shutdown("source-watch", RESTART, move || {
            let (client, namespace, name) = (client.clone(), namespace.clone(), name.clone());
            let (tell, version) = (tell.clone(), version.clone());
            async move {
                match kind {
                    Kind::ConfigMap => follow::<ConfigMap>(client, namespace, name, tell, version).await,
                    Kind::Secret => follow::<Secret>(client, namespace, name, tell, version).await,
                }
            }
        });
        Source { known, task }
    }
}

async fn follow<K>(
    client: Client,
    namespace: String,
    name: String,
    tell: watch::Sender<Known>,
    version: watch::Sender<u64>,
) where
    K: Resource<Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned + Send + 'static,
    K::DynamicType: Default,
    Data: From<K>,
{
    let api: Api<K> = Api::namespaced(client, &namespace);
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut events = watcher(api, config).default_backoff().boxed();
    let mut at_first = None;
    while let Some(event) = events.next().await {
        let now = match event {
            Ok(watcher::Event::Init) => {
                at_first = None;
                continue;
            }
            Ok(watcher::Event::InitApply(object)) => {
                at_first = Some(Arc::new(Data::from(object)));
                continue;
            }
            Ok(watcher::Event::InitDone) => at_first.take(),
            Ok(watcher::Event::Apply(object)) => Some(Arc::new(Data::from(object))),
            Ok(watcher::Event::Delete(_)) => None,
            Err(error) => {
                tracing::debug!(%error, %namespace, %name, "cannot read what a pod refers to");
                continue;
            }
        };
        let is_immutable = now.as_ref().is_some_and(|data| data.is_immutable);
        let is_news = tell.send_if_modified(|known| {
            let is_news = known.as_ref() != Some(&now);
            *known = Some(now);
            is_news
        });
        if is_news {
            version.send_modify(|version| *version += 1);
        }
        if is_immutable {
            // It can only be deleted, and who uses it goes on with what it has.
            return;
        }
    }
}

/// What each of them holds now. One that was never read is an error.
pub async fn read(used: &BTreeMap<Ref, Arc<Source>>) -> Result<Referred, String> {
    let mut found = Referred::new();
    for (wanted, source) in used {
        let mut known = source.known.clone();
        let known = tokio::time::timeout(READ_TIMEOUT, known.wait_for(Option::is_some)).await;
        match known {
            Ok(Ok(known)) => {
                if let Some(Some(data)) = &*known {
                    found.insert(wanted.clone(), data.clone());
                }
            }
            _ => {
                let (kind, name) = wanted;
                return Err(format!("failed to sync {} cache: {name} could not be read in time", kind.word()));
            }
        }
    }
    Ok(found)
}
