//! The scheduler: a node for each Pod, for one node or a few.
//!
//! There is one pass at a time over all Pods that wait, the most important first. What it decided counts at once, whether the
//! cache shows it or not.

mod affinity;
mod decide;
pub mod fit;
#[cfg(test)]
mod model;
mod request;
#[cfg(test)]
mod tests;

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures::{
    StreamExt,
    future::{BoxFuture, Either},
    stream,
};
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Binding, Namespace, Node, ObjectReference, Pod},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::{
    Api, Client,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;
#[cfg(test)]
pub use tests::CASES;
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};

use self::{
    affinity::{Namespaces, Wishes},
    decide::{Scheduler, Verdict, by_priority, is_pending},
};
use crate::{
    Setting,
    cache::{Cache, Key},
    dependents::told,
    events::{Recorder, Weight},
    pod,
    worker::code,
};

/// So many bindings are written at the same time.
const TOGETHER: usize = 16;
/// Who finds no place is told so again after so long, at the earliest.
const TELL_AGAIN: Duration = Duration::from_secs(60);
const AFTER_FAILURE: Duration = Duration::from_secs(1);

pub fn controller(setting: &mut Setting) -> BoxFuture<'static, ()> {
    let (client, recorder) = setting.actor("system:kube-scheduler", decide::NAME);
    let (nodes, pods) = (setting.caches.of::<Node>(), setting.caches.of::<Pod>());
    let wake = Arc::new(Notify::new());
    let to = wake.clone();
    // Nodes report every few seconds that they are alive: that alone makes no room.
    nodes.listen(move |change| {
        let matters = match (&change.old, &change.new) {
            (Some(old), Some(new)) => {
                let room = |node: &Node| node.status.as_ref().and_then(|status| status.allocatable.clone());
                old.spec != new.spec || old.metadata.labels != new.metadata.labels || room(old) != room(new)
            }
            _ => true,
        };
        if matters {
            to.notify_one();
        }
    });
    let to = wake.clone();
    pods.listen(move |change| {
        let waits = change.new.as_ref().is_some_and(|pod| is_pending(pod));
        let leaves = change.new.as_ref().is_none_or(|pod| pod::is_finished(pod));
        let moved = change.states().any(|pod| pod::node(pod).is_some())
            && change.old.as_ref().map(|old| &old.metadata.labels)
                != change.new.as_ref().map(|new| &new.metadata.labels);
        if waits || leaves || moved {
            to.notify_one();
        }
    });
    let stop = setting.stop.clone();
    let rim = Rim { client, recorder, nodes, pods, assumed: HashMap::new(), told: HashMap::new() };
    Box::pin(rim.run(wake, stop))
}

struct Rim {
    client: Client,
    recorder: Recorder,
    nodes: Arc<Cache<Node>>,
    pods: Arc<Cache<Pod>>,
    /// Pods that were bound and are not shown so yet, by uid.
    assumed: HashMap<String, String>,
    /// What was said last of who found no place.
    told: HashMap<String, (String, Instant)>,
}

impl Rim {
    async fn run(mut self, wake: Arc<Notify>, mut stop: watch::Receiver<bool>) {
        self.nodes.ready().await;
        self.pods.ready().await;
        loop {
            let again = self.pass().await;
            let timer =
                again.map_or(Either::Left(std::future::pending()), |wait| Either::Right(tokio::time::sleep(wait)));
            tokio::select! {
                () = wake.notified() => {}
                () = timer => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
        }
    }

    /// Tries all who wait. What comes back is after how long to try again although nothing happened.
    async fn pass(&mut self) -> Option<Duration> {
        let pods = self.pods.all();
        let by_uid: HashMap<&str, &Arc<Pod>> =
            pods.iter().filter_map(|pod| Some((pod.metadata.uid.as_deref()?, pod))).collect();
        self.assumed.retain(|uid, _| by_uid.get(uid.as_str()).is_some_and(|pod| pod::node(pod).is_none()));
        self.told.retain(|uid, _| by_uid.get(uid.as_str()).is_some_and(|pod| is_pending(pod)));
        let mut waiting: Vec<Arc<Pod>> =
            pods.iter().filter(|pod| is_pending(pod) && !self.assumed.contains_key(uid(pod))).cloned().collect();
        if waiting.is_empty() {
            return None;
        }
        waiting.sort_by(|a, b| by_priority(a, b));
        let nodes = self.nodes.all();
        let namespaces = self.namespaces(&pods).await;
        let placed = |pod: &Pod| pod::node(pod).map(str::to_owned).or_else(|| self.assumed.get(uid(pod)).cloned());
        let mut scheduler = Scheduler::new(&nodes, &pods, placed, &namespaces);
        let verdicts: Vec<(Arc<Pod>, Verdict)> =
            waiting.into_iter().map(|pod| (pod.clone(), scheduler.schedule(&pod))).collect();
        let mut bindings = Vec::new();
        for (pod, verdict) in verdicts {
            match verdict {
                Verdict::Node(node) => {
                    self.assumed.insert(uid(&pod).to_owned(), node.clone());
                    bindings.push((pod, node));
                }
                Verdict::None(why) => self.refuse(&pod, why).await,
            }
        }
        let this = &*self;
        let failed: Vec<Arc<Pod>> = stream::iter(bindings)
            .map(|(pod, node)| async move { this.bind(&pod, &node).await.err().map(|()| pod) })
            .buffer_unordered(TOGETHER)
            .filter_map(async |failed| failed)
            .collect()
            .await;
        for pod in &failed {
            self.assumed.remove(uid(pod));
        }
        (!failed.is_empty()).then_some(AFTER_FAILURE)
    }

    async fn bind(&self, pod: &Arc<Pod>, node: &str) -> Result<(), ()> {
        let key = Key::of(&**pod);
        let binding = Binding {
            metadata: ObjectMeta {
                name: Some(key.name.clone()),
                namespace: Some(key.namespace.clone()),
                uid: pod.metadata.uid.clone(),
                ..ObjectMeta::default()
            },
            target: ObjectReference {
                kind: Some("Node".into()),
                name: Some(node.to_owned()),
                ..ObjectReference::default()
            },
        };
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &key.namespace);
        let bound: Result<kube::core::Status, kube::Error> =
            api.create_subresource("binding", &key.name, &PostParams::default(), &binding).await;
        match bound {
            Ok(_) => {
                let message = format!("Successfully assigned {key} to {node}");
                self.recorder.tell(&**pod, Weight::Normal, "Scheduled", message);
                Ok(())
            }
            // It is gone, or somebody else was faster: the cache will say so.
            Err(error) if matches!(code(&error), 404 | 409) => Err(()),
            Err(error) => {
                self.recorder.tell(
                    &**pod,
                    Weight::Warning,
                    "FailedScheduling",
                    format!("binding rejected: {}", told(&error)),
                );
                Err(())
            }
        }
    }

    async fn refuse(&mut self, pod: &Arc<Pod>, why: String) {
        let now = Instant::now();
        let last = self.told.get(uid(pod));
        if last.is_some_and(|(last, at)| *last == why && now.duration_since(*at) < TELL_AGAIN) {
            return;
        }
        self.recorder.tell(&**pod, Weight::Warning, "FailedScheduling", why.clone());
        let is_said = pod::condition(pod, "PodScheduled")
            .is_some_and(|condition| condition.status == "False" && condition.message.as_ref() == Some(&why));
        if !is_said {
            let since = pod::condition(pod, "PodScheduled").filter(|condition| condition.status == "False");
            let since = since.and_then(|condition| condition.last_transition_time.clone());
            let condition = json!({
                "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why,
                "lastProbeTime": null, "lastTransitionTime": since.unwrap_or_else(|| Time(Timestamp::now())),
                "observedGeneration": pod.metadata.generation,
            });
            let key = Key::of(&**pod);
            let api: Api<Pod> = Api::namespaced(self.client.clone(), &key.namespace);
            let change = json!({"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}});
            let written = api.patch_status(&key.name, &PatchParams::default(), &Patch::Strategic(change)).await;
            if let Err(error) = written {
                tracing::debug!(pod = %key, %error, "the condition of a pod that found no node was not written");
            }
        }
        self.told.insert(uid(pod).to_owned(), (why, now));
    }

    /// Only where somebody selects by the labels of namespaces.
    async fn namespaces(&self, pods: &[Arc<Pod>]) -> Namespaces {
        if !pods.iter().any(|pod| Wishes::of(pod).needs_namespaces()) {
            return Namespaces::new();
        }
        let all: Api<Namespace> = Api::all(self.client.clone());
        let all = all.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default();
        let named =
            all.into_iter().filter_map(|one| Some((one.metadata.name?, one.metadata.labels.unwrap_or_default())));
        named.collect()
    }
}

fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}
