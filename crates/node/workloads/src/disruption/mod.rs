//! PodDisruptionBudgets: how many Pods may be evicted now. The eviction subresource takes from what is written here.

mod decide;
#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::{
    api::{
        apps::v1::{Deployment, ReplicaSet, StatefulSet},
        core::v1::{Pod, ReplicationController},
        policy::v1::PodDisruptionBudget,
    },
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use kube::{
    Api, Client,
    api::PostParams,
    core::{Selector, SelectorExt},
};
#[cfg(test)]
pub use tests::CASES;

use self::decide::Expected;
use crate::{
    Setting,
    cache::{Cache, Key},
    events::{Recorder, Weight},
    owner,
    queue::Queue,
    worker::{Error, Reconciler, work},
};

pub fn controller(setting: &mut Setting) -> BoxFuture<'static, ()> {
    let (client, recorder) = setting.actor("disruption-controller", "controllermanager");
    let (budgets, pods) = (setting.caches.of::<PodDisruptionBudget>(), setting.caches.of::<Pod>());
    let (deployments, sets) = (setting.caches.of::<Deployment>(), setting.caches.of::<ReplicaSet>());
    let (stateful, controllers) = (setting.caches.of::<StatefulSet>(), setting.caches.of::<ReplicationController>());
    let queue = Arc::new(Queue::default());
    let to = queue.clone();
    budgets.listen(move |change| change.states().for_each(|budget| to.add(Key::of(&**budget))));
    let (to, of) = (queue.clone(), budgets.clone());
    pods.listen(move |change| {
        for pod in change.states() {
            for budget in of.within(pod.metadata.namespace.as_deref().unwrap_or_default()) {
                if selects(&budget, pod) {
                    to.add(Key::of(&*budget));
                }
            }
        }
    });
    // How many there should be changes with those who control them.
    let all = |queue: &Arc<Queue>, budgets: &Arc<Cache<PodDisruptionBudget>>| {
        let (to, of) = (queue.clone(), budgets.clone());
        move |namespace: &str| of.within(namespace).iter().for_each(|budget| to.add(Key::of(&**budget)))
    };
    let add = all(&queue, &budgets);
    deployments.listen(move |change| {
        let size =
            |one: &Option<Arc<Deployment>>| one.as_ref().map(|one| one.spec.as_ref().and_then(|spec| spec.replicas));
        if size(&change.old) != size(&change.new) {
            change.states().take(1).for_each(|one| add(one.metadata.namespace.as_deref().unwrap_or_default()));
        }
    });
    let add = all(&queue, &budgets);
    sets.listen(move |change| {
        let size =
            |one: &Option<Arc<ReplicaSet>>| one.as_ref().map(|one| one.spec.as_ref().and_then(|spec| spec.replicas));
        if size(&change.old) != size(&change.new) {
            change.states().take(1).for_each(|one| add(one.metadata.namespace.as_deref().unwrap_or_default()));
        }
    });
    let add = all(&queue, &budgets);
    stateful.listen(move |change| {
        let size =
            |one: &Option<Arc<StatefulSet>>| one.as_ref().map(|one| one.spec.as_ref().and_then(|spec| spec.replicas));
        if size(&change.old) != size(&change.new) {
            change.states().take(1).for_each(|one| add(one.metadata.namespace.as_deref().unwrap_or_default()));
        }
    });
    let add = all(&queue, &budgets);
    controllers.listen(move |change| {
        let size = |one: &Option<Arc<ReplicationController>>| {
            one.as_ref().map(|one| one.spec.as_ref().and_then(|spec| spec.replicas))
        };
        if size(&change.old) != size(&change.new) {
            change.states().take(1).for_each(|one| add(one.metadata.namespace.as_deref().unwrap_or_default()));
        }
    });
    let reconciler = Budgets {
        client,
        recorder,
        budgets: budgets.clone(),
        pods: pods.clone(),
        deployments: deployments.clone(),
        sets: sets.clone(),
        stateful: stateful.clone(),
        controllers: controllers.clone(),
    };
    let stop = setting.stop.clone();
    Box::pin(async move {
        budgets.ready().await;
        pods.ready().await;
        deployments.ready().await;
        sets.ready().await;
        stateful.ready().await;
        controllers.ready().await;
        work("disruption", queue, reconciler, stop).await;
    })
}

/// Here an empty selector is all Pods, and none is nobody.
fn selects(budget: &PodDisruptionBudget, pod: &Pod) -> bool {
    let selector: Option<&LabelSelector> = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    let selector = selector.and_then(|selector| Selector::try_from(selector.clone()).ok());
    selector.is_some_and(|selector| selector.matches(&pod.metadata.labels.clone().unwrap_or_default()))
}

struct Budgets {
    client: Client,
    recorder: Recorder,
    budgets: Arc<Cache<PodDisruptionBudget>>,
    pods: Arc<Cache<Pod>>,
    deployments: Arc<Cache<Deployment>>,
    sets: Arc<Cache<ReplicaSet>>,
    stateful: Arc<Cache<StatefulSet>>,
    controllers: Arc<Cache<ReplicationController>>,
}

impl Reconciler for Budgets {
    async fn reconcile(&self, key: &Key) -> Result<Option<Duration>, Error> {
        let Some(budget) = self.budgets.get(key) else { return Ok(None) };
        let mut pods = self.pods.within(&key.namespace);
        pods.retain(|pod| selects(&budget, pod));
        if pods.is_empty() && budget.status.as_ref().is_none_or(|status| status.observed_generation.is_none()) {
            self.recorder.tell(&*budget, Weight::Normal, "NoPods", "No matching pods found");
        }
        if let Some(message) = decide::unmanaged(&budget, &pods) {
            self.recorder.tell(&*budget, Weight::Warning, "UnmanagedPods", message);
        }
        let decision = decide::decide(&budget, &pods, &self.expected(&pods), Timestamp::now());
        for name in &decision.stayed {
            if let Some(pod) = self.pods.get(&Key::new(&key.namespace, name)) {
                let message = format!("Pod was expected by PDB {key} to be deleted but it wasn't");
                self.recorder.tell(&*pod, Weight::Warning, "NotDeleted", message);
            }
        }
        if let Some(failure) = decision.failure {
            let message = format!("Failed to calculate the number of expected pods: {failure}");
            self.recorder.tell(&*budget, Weight::Warning, "CalculateExpectedPodCountFailed", message);
        }
        if budget.status.as_ref() != Some(&decision.status) {
            // With the revision that was read: an eviction that came between is not forgotten.
            let changed = PodDisruptionBudget { status: Some(decision.status), ..(*budget).clone() };
            let api: Api<PodDisruptionBudget> = Api::namespaced(self.client.clone(), &key.namespace);
            api.replace_status(&key.name, &PostParams::default(), &changed).await?;
        }
        Ok(decision.again)
    }
}

impl Budgets {
    /// The sizes of all that control these Pods, each once. Pods that nobody controls do not count.
    fn expected(&self, pods: &[Arc<Pod>]) -> Expected {
        let mut sizes: HashMap<String, i32> = HashMap::new();
        for pod in pods {
            let Some(controller) = owner::controller_of(&pod.metadata) else { continue };
            let at = Key::new(pod.metadata.namespace.as_deref().unwrap_or_default(), &controller.name);
            let found = match controller.kind.as_str() {
                "ReplicaSet" => {
                    self.sets.get(&at).filter(|set| set.metadata.uid.as_ref() == Some(&controller.uid)).map(|set| {
                        let deployment = owner::controller_key::<Deployment>(&set.metadata);
                        match deployment.and_then(|key| self.deployments.get(&key)) {
                            Some(deployment) => (
                                deployment.metadata.uid.clone(),
                                deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1),
                            ),
                            None => (
                                set.metadata.uid.clone(),
                                set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1),
                            ),
                        }
                    })
                }
                "StatefulSet" => {
                    let set = self.stateful.get(&at);
                    let set = set.filter(|set| set.metadata.uid.as_ref() == Some(&controller.uid));
                    set.map(|set| {
                        (set.metadata.uid.clone(), set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1))
                    })
                }
                "ReplicationController" => {
                    let set = self.controllers.get(&at);
                    let set = set.filter(|set| set.metadata.uid.as_ref() == Some(&controller.uid));
                    set.map(|set| {
                        (set.metadata.uid.clone(), set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1))
                    })
                }
                kind => {
                    let name = pod.metadata.name.as_deref().unwrap_or_default();
                    return Expected::Unknown(format!(
                        "pod {name:?} is controlled by a {kind}, whose size cannot be known: use minAvailable with a number"
                    ));
                }
            };
            // One that is gone takes its Pods with it.
            if let Some((uid, size)) = found {
                sizes.insert(uid.unwrap_or_default(), size);
            }
        }
        Expected::Count(sizes.into_values().fold(0, i32::saturating_add))
    }
}
