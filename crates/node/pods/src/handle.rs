//! Through which others find the pods of this node: their containers, what they wrote, where they answer.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    path::PathBuf,
    sync::{Arc, PoisonError, RwLock},
};

use k8s_openapi::api::core::v1::Pod;
use tokio::sync::watch;

use crate::runtime::ContainerId;

/// A cheap handle. What it tells is as the runner last knew it.
#[derive(Clone, Default)]
pub struct Pods {
    known: Arc<RwLock<BTreeMap<String, Arc<Known>>>>,
    /// Grows whenever a container begins or ends.
    runs: Arc<watch::Sender<u64>>,
}

/// A pod of this node.
#[derive(Clone, Debug)]
pub struct Known {
    pub uid: String,
    pub namespace: String,
    pub name: String,
    /// Its own address; none if it has the node's.
    pub address: Option<IpAddr>,
    /// As last read from the API, with the status that was last written.
    pub pod: Arc<Pod>,
    /// Init containers first, then containers, each in the order of the spec.
    pub containers: Vec<KnownContainer>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownContainer {
    pub name: String,
    pub is_init: bool,
    /// The run that goes on, or the last one. None: it was never started.
    pub current: Option<Run>,
    /// The run before that, if it is not forgotten.
    pub previous: Option<Run>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    pub id: ContainerId,
    /// See [`crate::runtime::ContainerSpec::log`].
    pub log: PathBuf,
    pub is_running: bool,
    /// RFC 3339 in UTC.
    pub started_at: String,
}

impl Pods {
    pub fn find(&self, namespace: &str, name: &str) -> Option<Arc<Known>> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.values().find(|pod| pod.namespace == namespace && pod.name == name).cloned()
    }

    /// All of them, by uid.
    pub fn list(&self) -> Vec<Arc<Known>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Changes whenever a container begins or ends, or a pod goes.
    pub fn runs(&self) -> watch::Receiver<u64> {
        self.runs.subscribe()
    }

    pub(crate) fn set(&self, pod: Known) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let is_news = known.get(&pod.uid).is_none_or(|before| before.containers != pod.containers);
        known.insert(pod.uid.clone(), Arc::new(pod));
        drop(known);
        if is_news {
            self.runs.send_modify(|version| *version += 1);
        }
    }

    pub(crate) fn remove(&self, uid: &str) {
        self.known.write().unwrap_or_else(PoisonError::into_inner).remove(uid);
        self.runs.send_modify(|version| *version += 1);
    }
}

/// For whoever wants to see how others get on with some pods.
impl FromIterator<Known> for Pods {
    fn from_iter<I: IntoIterator<Item = Known>>(all: I) -> Self {
        let pods = Self::default();
        all.into_iter().for_each(|pod| pods.set(pod));
        pods
    }
}

impl Known {
    pub fn container(&self, name: &str) -> Option<&KnownContainer> {
        self.containers.iter().find(|container| container.name == name)
    }
}
