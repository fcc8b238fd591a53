//! Containers of pods that the API does not know any more: they are ended and forgotten.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use super::files;
use crate::runtime::{Container, Runtime};

/// How long they have to end.
const GRACE: Duration = Duration::from_secs(10);
pub const LOOK_AGAIN: Duration = Duration::from_secs(2);

#[derive(Default)]
pub struct Orphans {
    /// When each pod's containers were first found without it.
    since: BTreeMap<String, Duration>,
}

/// What to do about them.
#[derive(Debug, PartialEq, Eq)]
pub enum Deed {
    Ask(Container),
    Kill(Container),
    /// Everything of the pod has ended.
    Forget(String, Vec<Container>),
}

impl Orphans {
    /// Decides what to do about containers that belong to nobody in `known`.
    pub fn decide(&mut self, containers: &[Container], known: &BTreeSet<String>, now: Duration) -> Vec<Deed> {
        let mut by_pod: BTreeMap<&str, Vec<&Container>> = BTreeMap::new();
        for container in containers.iter().filter(|container| !known.contains(&container.id.pod)) {
            by_pod.entry(&container.id.pod).or_default().push(container);
        }
        self.since.retain(|pod, _| by_pod.contains_key(pod.as_str()));
        let mut deeds = Vec::new();
        for (pod, containers) in by_pod {
            let running: Vec<&Container> =
                containers.iter().copied().filter(|container| container.exit.is_none()).collect();
            if running.is_empty() {
                deeds.push(Deed::Forget(pod.to_owned(), containers.into_iter().cloned().collect()));
                continue;
            }
            let is_new = !self.since.contains_key(pod);
            let since = *self.since.entry(pod.to_owned()).or_insert(now);
            if is_new {
                deeds.extend(running.into_iter().cloned().map(Deed::Ask));
            } else if now >= since + GRACE {
                deeds.extend(running.into_iter().cloned().map(Deed::Kill));
            }
        }
        deeds
    }

    pub fn is_empty(&self) -> bool {
        self.since.is_empty()
    }
}

pub async fn act(runtime: Arc<dyn Runtime>, data: PathBuf, deed: Deed) {
    let signal = |container: Container, signal| {
        let runtime = runtime.clone();
        async move {
            if let Err(failure) = runtime.signal(&container.id, signal).await {
                tracing::warn!(%failure, id = ?container.id, "a container of a pod that is gone could not be ended");
            }
        }
    };
    match deed {
        Deed::Ask(container) => {
            tracing::info!(id = ?container.id, "ending a container whose pod is gone");
            signal(container, 15).await;
        }
        Deed::Kill(container) => signal(container, 9).await,
        Deed::Forget(pod, containers) => {
            for container in containers {
                let _ = runtime.forget(&container.id).await;
            }
            let _ = runtime.forget_pod(&pod).await;
            let _ = tasks::spawn_blocking("remove-orphan", move || files::remove(&data, &pod)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::{ContainerId, Exit};

    #[test]
    fn orphans_are_asked_then_killed_then_forgotten() {
        let container = |pod: &str, has_ended: bool| Container {
            id: ContainerId { pod: pod.into(), name: "a".into(), attempt: 0 },
            image: String::new(),
            log: PathBuf::new(),
            started_at: String::new(),
            exit: has_ended.then(Exit::default),
        };
        let known = BTreeSet::from(["mine".to_owned()]);
        let mut orphans = Orphans::default();
        let at = Duration::from_secs;
        let listed = [container("mine", false), container("gone", false)];
        assert_eq!(orphans.decide(&listed, &known, at(0)), [Deed::Ask(listed[1].clone())]);
        assert_eq!(orphans.decide(&listed, &known, at(9)), []);
        assert_eq!(orphans.decide(&listed, &known, at(10)), [Deed::Kill(listed[1].clone())]);
        let ended = [container("mine", true), container("gone", true)];
        assert_eq!(orphans.decide(&ended, &known, at(11)), [Deed::Forget("gone".into(), vec![ended[1].clone()])]);
        assert_eq!(orphans.decide(&ended[..1], &known, at(12)), []);
        assert!(orphans.is_empty());
    }
}
