//! The life of nodes: one that falls silent is unreachable, one that is not well takes nobody, and who does not tolerate that goes.

mod decide;
#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        coordination::v1::Lease,
        core::v1::{Node, Pod},
    },
    apimachinery::pkg::apis::meta::v1::{MicroTime, Time},
};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
};
use serde_json::json;
#[cfg(test)]
pub use tests::CASES;
use tokio::time::Instant;

pub use self::decide::is_ready;

use crate::{Setting, pod, scheduler::fit};
use controllers::{
    Controller, Error, Reconciler,
    cache::{Cache, Key},
    code,
    events::{Recorder, Weight},
};

const LEASES: &str = "kube-node-lease";

pub fn controller(setting: &mut Setting) -> Controller {
    let (client, recorder) = setting.actor("node-controller", "node-controller");
    let mut builder = setting.builder("node-lifecycle-controller");
    let all = Nodes {
        client,
        recorder,
        nodes: builder.read(),
        pods: builder.read(),
        leases: builder.read(),
        heard: Mutex::default(),
    };
    // Whether any Pod is evicted depends on all nodes.
    let nodes = all.nodes.clone();
    builder.on(&all.nodes, move |change, queue| {
        let ready = |node: &Option<Arc<Node>>| node.as_ref().is_some_and(|node| is_ready(node));
        if ready(&change.old) == ready(&change.new) {
            change.states().take(1).for_each(|node| queue.add(Key::of(&**node)));
        } else {
            nodes.all().iter().for_each(|node| queue.add(Key::of(&**node)));
        }
    });
    builder.on(&all.leases, |change, queue| {
        if let Some(lease) = change.new.as_ref().filter(|lease| lease.metadata.namespace.as_deref() == Some(LEASES)) {
            queue.add(Key::new("", lease.metadata.name.as_deref().unwrap_or_default()));
        }
    });
    // A Pod may come to a node that is not well.
    let nodes = all.nodes.clone();
    builder.on(&all.pods, move |change, queue| {
        let node = |pod: &Option<Arc<Pod>>| pod.as_ref().and_then(|pod| pod::node(pod).map(str::to_owned));
        if let Some(name) = node(&change.new).filter(|name| node(&change.old).as_ref() != Some(name))
            && nodes.get(&Key::new("", &name)).is_some_and(|node| has_pods_to_leave(&node))
        {
            queue.add(Key::new("", &name));
        }
    });
    builder.build(all)
}

/// What a node said last, and when that was heard here: clocks of nodes may be wrong.
type Heard = HashMap<String, ((Option<MicroTime>, Option<Time>), Instant)>;

struct Nodes {
    client: Client,
    recorder: Recorder,
    nodes: Arc<Cache<Node>>,
    pods: Arc<Cache<Pod>>,
    leases: Arc<Cache<Lease>>,
    heard: Mutex<Heard>,
}

impl Reconciler for Nodes {
    async fn reconcile(&self, key: &Key) -> Result<Option<Duration>, Error> {
        let Some(node) = self.nodes.get(key) else {
            self.heard.lock().unwrap_or_else(PoisonError::into_inner).remove(&key.name);
            return Ok(None);
        };
        let now = Timestamp::now();
        let evicts = self.nodes.all().iter().any(|node| is_ready(node));
        let pods = if has_pods_to_leave(&node) { self.pods_on(&key.name) } else { Vec::new() };
        let plan = decide::decide(&node, &pods, self.silent_for(&node), evicts, now);
        let api: Api<Node> = Api::all(self.client.clone());
        if let Some(conditions) = plan.conditions {
            let change = json!({"metadata": {"uid": node.metadata.uid}, "status": {"conditions": conditions}});
            api.patch_status(&key.name, &PatchParams::default(), &Patch::Strategic(change)).await?;
            let message = format!("Node {} status is now: NodeNotReady", key.name);
            self.recorder.tell(&*node, Weight::Normal, "NodeNotReady", message);
        }
        if let Some(taints) = plan.taints {
            // With the revision that was read: the whole list is written, and others write taints, too.
            let change =
                json!({"metadata": {"resourceVersion": node.metadata.resource_version}, "spec": {"taints": taints}});
            api.patch(&key.name, &PatchParams::default(), &Patch::Merge(change)).await?;
        }
        for pod in &plan.mark {
            self.mark(pod, now).await?;
        }
        for pod in &plan.evict {
            self.evict(pod, now).await?;
        }
        Ok(plan.again)
    }
}

/// Whether anything on a node has to be told that it is not well.
fn has_pods_to_leave(node: &Node) -> bool {
    !is_ready(node) || fit::taints(node).iter().any(|taint| taint.effect == "NoExecute")
}

impl Nodes {
    fn silent_for(&self, node: &Node) -> Duration {
        let name = node.metadata.name.clone().unwrap_or_default();
        let lease = self.leases.get(&Key::new(LEASES, &name)).and_then(|lease| lease.spec.as_ref()?.renew_time.clone());
        let posted = node.status.as_ref().and_then(|status| {
            let ready = status.conditions.as_ref()?.iter().find(|condition| condition.type_ == "Ready")?;
            ready.last_heartbeat_time.clone()
        });
        let said = (lease, posted);
        let now = Instant::now();
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let (last, at) = heard.entry(name).or_insert_with(|| (said.clone(), now));
        if *last != said {
            (*last, *at) = (said, now);
        }
        now.duration_since(*at)
    }

    fn pods_on(&self, node: &str) -> Vec<Arc<Pod>> {
        let mut pods = self.pods.all();
        pods.retain(|pod| pod::node(pod) == Some(node));
        pods
    }

    /// Nobody knows whether it still answers.
    async fn mark(&self, pod: &Arc<Pod>, now: Timestamp) -> Result<(), Error> {
        let key = Key::of(&**pod);
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &key.namespace);
        let condition = json!({"type": "Ready", "status": "False", "lastTransitionTime": Time(now)});
        let change = json!({"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}});
        match api.patch_status(&key.name, &PatchParams::default(), &Patch::Strategic(change)).await {
            Err(error) if !matches!(code(&error), 404 | 409) => return Err(error.into()),
            _ => self.recorder.tell(&**pod, Weight::Warning, "NodeNotReady", "Node is not ready"),
        }
        Ok(())
    }

    async fn evict(&self, pod: &Arc<Pod>, now: Timestamp) -> Result<(), Error> {
        let key = Key::of(&**pod);
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &key.namespace);
        let condition = json!({
            "type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager",
            "message": "Taint manager: deleting due to NoExecute taint", "lastTransitionTime": Time(now),
        });
        let change = json!({"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}});
        let preconditions = Preconditions { uid: pod.metadata.uid.clone(), resource_version: None };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        let marked = api.patch_status(&key.name, &PatchParams::default(), &Patch::Strategic(change)).await;
        let deleted = match marked {
            Ok(_) => api.delete(&key.name, &params).await.map(|_| ()),
            Err(error) => Err(error),
        };
        match deleted {
            Err(error) if !matches!(code(&error), 404 | 409) => Err(error.into()),
            _ => {
                let message = format!("Marking for deletion Pod {key}");
                self.recorder.tell(&**pod, Weight::Normal, "TaintManagerEviction", message);
                Ok(())
            }
        }
    }
}
