//! The scheduler: a node for each Pod, for one node or a few.
//!
//! There is one pass at a time over all Pods that wait, the most important first. What it decided counts at once, whether the
//! cache shows it or not.

mod affinity;
mod decide;
mod filter;
pub mod fit;
#[cfg(test)]
mod model;
mod neighbours;
mod place;
mod preempt;
#[cfg(test)]
mod preempt_tests;
mod request;
mod score;
mod spread;
#[cfg(test)]
mod spread_tests;
#[cfg(test)]
mod tests;
mod volumes;
#[cfg(test)]
mod volumes_tests;
mod write;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt, stream};
use k8s_openapi::api::{
    core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod},
    policy::v1::PodDisruptionBudget,
    storage::v1::StorageClass,
};
use kube::{Api, Client, api::ListParams};
use tokio::{sync::Mutex, time::Instant};
#[cfg(test)]
pub use {
    preempt_tests::CASES as PREEMPTION, spread_tests::CASES as SPREAD, tests::CASES, volumes_tests::CASES as VOLUMES,
};

use self::{
    affinity::{Namespaces, Wishes},
    decide::{Known, Scheduler, Verdict, by_priority, is_pending},
    preempt::Budget,
    volumes::Volumes,
};
use crate::{Setting, pod};
use controllers::{
    Controller, Error, Reconciler,
    cache::{Cache, Key},
    events::Recorder,
};

/// Bindings that are written at the same time.
const MAX_BINDINGS: usize = 16;
/// Pods that are decided about before other tasks have their turn.
const PODS_PER_TURN: usize = 16;
const RETRY_WAIT: Duration = Duration::from_secs(1);

pub fn controller(setting: &mut Setting) -> Controller {
    let (client, recorder) = setting.actor("system:kube-scheduler", decide::NAME);
    let mut builder = setting.builder("scheduler-controller").in_passes();
    let rim = Rim {
        client,
        recorder,
        nodes: builder.read(),
        pods: builder.read(),
        claims: builder.reconcile_all(),
        volumes: builder.reconcile_all(),
        classes: builder.reconcile_all(),
        budgets: builder.read(),
        assumed: HashMap::new(),
        told: HashMap::new(),
        nominated: HashMap::new(),
        going: HashSet::new(),
    };
    // Nodes report every few seconds that they are alive: that alone makes no room.
    builder.pass_if(&rim.nodes, |change| match (&change.old, &change.new) {
        (Some(old), Some(new)) => {
            let room = |node: &Node| node.status.as_ref().and_then(|status| status.allocatable.clone());
            old.spec != new.spec || old.metadata.labels != new.metadata.labels || room(old) != room(new)
        }
        _ => true,
    });
    builder.pass_if(&rim.pods, |change| {
        let waits = change.new.as_ref().is_some_and(|pod| is_pending(pod));
        let leaves = change.new.as_ref().is_none_or(|pod| pod::is_finished(pod));
        let moved = change.states().any(|pod| pod::node(pod).is_some())
            && change.old.as_ref().map(|old| &old.metadata.labels)
                != change.new.as_ref().map(|new| &new.metadata.labels);
        waits || leaves || moved
    });
    builder.build(Passes(Mutex::new(rim)))
}

/// The scheduler as a reconciler. There is one pass at a time.
struct Passes(Mutex<Rim>);

impl Reconciler for Passes {
    async fn reconcile(&self, _: &Key) -> Result<Option<Duration>, Error> {
        Ok(self.0.lock().await.pass().await)
    }
}

struct Rim {
    client: Client,
    recorder: Recorder,
    nodes: Arc<Cache<Node>>,
    pods: Arc<Cache<Pod>>,
    claims: Arc<Cache<PersistentVolumeClaim>>,
    volumes: Arc<Cache<PersistentVolume>>,
    classes: Arc<Cache<StorageClass>>,
    budgets: Arc<Cache<PodDisruptionBudget>>,
    /// Pods that were bound and are not shown so yet, by uid.
    assumed: HashMap<String, String>,
    /// What was said last of who found no place.
    told: HashMap<String, (String, Instant)>,
    /// Where Pods wait for others to go, as long as that is not shown.
    nominated: HashMap<String, String>,
    /// Pods that were told to go and are not shown so yet.
    going: HashSet<String>,
}

impl Rim {
    /// Tries all Pods that wait. The result is the time after which to try again although nothing happened.
    async fn pass(&mut self) -> Option<Duration> {
        let pods = self.pods.all();
        let by_uid: HashMap<&str, &Arc<Pod>> =
            pods.iter().filter_map(|pod| Some((pod.metadata.uid.as_deref()?, pod))).collect();
        self.assumed.retain(|uid, _| by_uid.get(uid.as_str()).is_some_and(|pod| pod::node(pod).is_none()));
        self.told.retain(|uid, _| by_uid.get(uid.as_str()).is_some_and(|pod| is_pending(pod)));
        self.nominated.retain(|uid, node| {
            by_uid.get(uid.as_str()).is_some_and(|pod| is_pending(pod) && nominated_of(pod) != Some(node))
        });
        self.going.retain(|uid| by_uid.get(uid.as_str()).is_some_and(|pod| !pod::is_deleting(pod)));
        let mut waiting: Vec<Arc<Pod>> =
            pods.iter().filter(|pod| is_pending(pod) && !self.assumed.contains_key(uid(pod))).cloned().collect();
        if waiting.is_empty() {
            return None;
        }
        waiting.sort_by(|a, b| by_priority(a, b));
        let nodes = self.nodes.all();
        let known = self.known(&pods, &waiting).await;
        let placed = |pod: &Pod| pod::node(pod).map(str::to_owned).or_else(|| self.assumed.get(uid(pod)).cloned());
        let nominated = |pod: &Pod| self.nominated.get(uid(pod)).or(nominated_of(pod)).cloned();
        let mut scheduler = Scheduler::new(&nodes, &pods, placed, nominated, self.going.clone(), &known);
        let mut verdicts: Vec<(Arc<Pod>, Verdict)> = Vec::with_capacity(waiting.len());
        for (number, pod) in waiting.into_iter().enumerate() {
            // A pass over a thousand Pods must not hold up other tasks.
            if number % PODS_PER_TURN == PODS_PER_TURN - 1 {
                tokio::task::yield_now().await;
            }
            let verdict = scheduler.schedule(&pod);
            verdicts.push((pod, verdict));
        }
        let (bindings, others): (Vec<_>, Vec<_>) =
            verdicts.into_iter().partition(|(_, verdict)| matches!(verdict, Verdict::Node(_)));
        let mut is_done = self.bind_all(bindings).await;
        for (pod, verdict) in others {
            is_done &= self.act(&pod, verdict).await;
        }
        (!is_done).then_some(RETRY_WAIT)
    }

    async fn bind_all(&mut self, verdicts: Vec<(Arc<Pod>, Verdict)>) -> bool {
        let mut bindings = Vec::new();
        for (pod, verdict) in verdicts {
            if let Verdict::Node(node) = verdict {
                self.assumed.insert(uid(&pod).to_owned(), node.clone());
                bindings.push((pod, node));
            }
        }
        let this = &*self;
        let failed: Vec<Arc<Pod>> = stream::iter(bindings)
            .map(|(pod, node)| async move { this.bind(&pod, &node).await.err().map(|()| pod) })
            .buffer_unordered(MAX_BINDINGS)
            .filter_map(async |failed| failed)
            .collect()
            .await;
        for pod in &failed {
            self.assumed.remove(uid(pod));
        }
        failed.is_empty()
    }

    /// What else comes of a Pod. Whether all of it could be written.
    async fn act(&mut self, pod: &Arc<Pod>, verdict: Verdict) -> bool {
        match verdict {
            Verdict::Node(_) => true,
            Verdict::Volumes(node, claims) => self.choose_node(&claims, &node).await,
            Verdict::Preempt { node, victims, why } => {
                let is_done = self.preempt(pod, &victims, &node).await;
                self.nominated.insert(uid(pod).to_owned(), node.clone());
                self.refuse(pod, why, Some(&node)).await;
                is_done
            }
            Verdict::Waits(why) => {
                let node = self.nominated.get(uid(pod)).or(nominated_of(pod)).cloned();
                self.refuse(pod, why, node.as_ref()).await;
                true
            }
            Verdict::None(why) => {
                self.nominated.remove(uid(pod));
                self.refuse(pod, why, None).await;
                true
            }
        }
    }

    /// As much as somebody asks for.
    async fn known(&self, pods: &[Arc<Pod>], waiting: &[Arc<Pod>]) -> Known {
        let mut volumes = Volumes::default();
        if waiting.iter().any(|pod| volumes::names(pod).next().is_some()) {
            let name = |name: &Option<String>| name.clone().unwrap_or_default();
            volumes = Volumes {
                claims: self.claims.all().into_iter().map(|claim| (Key::of(&*claim), claim)).collect(),
                volumes: self.volumes.all().into_iter().map(|one| (name(&one.metadata.name), one)).collect(),
                classes: self.classes.all().into_iter().map(|one| (name(&one.metadata.name), one)).collect(),
            };
        }
        let budgets = self.budgets.all().iter().filter_map(|budget| Budget::new(budget)).collect();
        Known { namespaces: self.namespaces(pods).await, volumes, budgets }
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

/// Where a Pod waits for others to go, as it says itself.
fn nominated_of(pod: &Pod) -> Option<&String> {
    pod.status.as_ref()?.nominated_node_name.as_ref().filter(|name| !name.is_empty())
}
