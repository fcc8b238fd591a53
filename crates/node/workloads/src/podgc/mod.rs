//! The Pod garbage collector: ends Pods whose node is gone, those that nobody else can end, and the oldest of too many that have ended.
//!
//! Upstream's looks every 20 seconds. This one looks when something happened that it has to do with, and sleeps otherwise.

mod decide;
#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures::{StreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Node, Pod},
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
};
use serde_json::json;
#[cfg(test)]
pub use tests::CASES;
use tokio::{sync::Mutex, time::Instant};

use self::decide::{Missing, Why};
use crate::{Setting, nodes::is_ready, pod, scheduler::fit};
use controllers::{
    Controller, Error, Reconciler,
    cache::{Cache, Key},
    code,
};

/// Pods that are deleted at the same time.
const MAX_DELETIONS: usize = 8;
const RETRY_WAIT: Duration = Duration::from_secs(20);

pub fn controller(setting: &mut Setting) -> Controller {
    let client = (setting.clients)("pod-garbage-collector");
    let kept = setting.options.terminated_pods;
    let mut builder = setting.builder("pod-garbage-collector-controller").in_passes();
    let collector =
        Collector { client, nodes: builder.read(), pods: builder.read(), kept, missing: Mutex::new(Missing::new()) };
    builder.pass_if(&collector.nodes, |change| {
        let view = |node: &Option<Arc<Node>>| node.as_ref().map(|node| (is_ready(node), fit::taints(node).to_vec()));
        view(&change.old) != view(&change.new)
    });
    let nodes = collector.nodes.clone();
    builder.pass_if(&collector.pods, move |change| {
        let Some(new) = &change.new else { return false };
        let was = |is: fn(&Pod) -> bool| change.old.as_ref().is_some_and(|old| is(old));
        let ended = pod::is_finished(new) && !was(pod::is_finished);
        let goes = pod::is_deleting(new) && !was(pod::is_deleting);
        let is_away = |name: &str| nodes.get(&Key::new("", name)).is_none();
        let came = change.old.as_ref().is_none_or(|old| pod::node(old).is_none());
        ended || goes || came && pod::node(new).is_some_and(is_away)
    });
    builder.build(collector)
}

struct Collector {
    client: Client,
    nodes: Arc<Cache<Node>>,
    pods: Arc<Cache<Pod>>,
    kept: usize,
    missing: Mutex<Missing>,
}

impl Reconciler for Collector {
    async fn reconcile(&self, _: &Key) -> Result<Option<Duration>, Error> {
        Ok(self.pass(&mut *self.missing.lock().await).await)
    }
}

impl Collector {
    async fn pass(&self, missing: &mut Missing) -> Option<Duration> {
        let mut plan = decide::decide(&self.pods.all(), &self.nodes.all(), missing, self.kept, Instant::now());
        let mut failed = false;
        let mut not_gone: BTreeSet<String> = BTreeSet::new();
        for name in plan.gone() {
            match Api::<Node>::all(self.client.clone()).get_metadata_opt(&name).await {
                Ok(None) => {}
                Ok(Some(_)) => drop(not_gone.insert(name)),
                Err(error) => {
                    tracing::debug!(node = name, %error, "whether a node is gone could not be asked; trying again");
                    not_gone.insert(name);
                    failed = true;
                }
            }
        }
        plan.delete
            .retain(|(pod, why)| *why != Why::NodeGone || !pod::node(pod).is_some_and(|node| not_gone.contains(node)));
        let deleted = stream::iter(plan.delete).map(|(pod, why)| self.delete(pod, why)).buffer_unordered(MAX_DELETIONS);
        let all: Vec<bool> = deleted.collect().await;
        failed |= all.contains(&false);
        [plan.again, failed.then_some(RETRY_WAIT)].into_iter().flatten().min()
    }

    /// Nobody ends it in an orderly way any more: it failed, and is gone at once.
    async fn delete(&self, pod: Arc<Pod>, why: Why) -> bool {
        let key = Key::of(&*pod);
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &key.namespace);
        let written = async {
            if !pod::is_finished(&pod) {
                let mut status = json!({"phase": "Failed", "observedGeneration": pod.metadata.generation});
                if why == Why::NodeGone {
                    status["conditions"] = json!([{
                        "type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC",
                        "message": "PodGC: node no longer exists", "lastTransitionTime": Time(Timestamp::now()),
                        "observedGeneration": pod.metadata.generation,
                    }]);
                }
                let change = json!({"metadata": {"uid": pod.metadata.uid}, "status": status});
                api.patch_status(&key.name, &PatchParams::default(), &Patch::Strategic(change)).await?;
            }
            let preconditions = Preconditions { uid: pod.metadata.uid.clone(), resource_version: None };
            let params = DeleteParams {
                grace_period_seconds: Some(0),
                preconditions: Some(preconditions),
                ..DeleteParams::default()
            };
            api.delete(&key.name, &params).await.map(|_| ())
        };
        match written.await {
            Ok(()) => {
                tracing::info!(pod = %key, ?why, "a pod that nobody needs any more was deleted");
                true
            }
            // It is gone already.
            Err(error) if matches!(code(&error), 404 | 409) => true,
            Err(error) => {
                tracing::warn!(pod = %key, %error, "a pod that nobody needs any more was not deleted; trying again");
                false
            }
        }
    }
}
