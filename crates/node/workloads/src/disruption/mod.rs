//! PodDisruptionBudgets: how many Pods may be evicted now. The eviction subresource takes from what is written here.

mod decide;
#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

use std::{collections::HashMap, sync::Arc, time::Duration};

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
use crate::Setting;
use controllers::{
    Builder, Controller, Error, Reconciler,
    cache::{Cache, Key, Kind},
    events::{Recorder, Weight},
    owner,
};

pub fn controller(setting: &mut Setting) -> Controller {
    let (client, recorder) = setting.actor("disruption-controller", "controllermanager");
    let mut builder = setting.builder("disruption-controller");
    let all = Budgets {
        client,
        recorder,
        budgets: builder.reconcile(),
        pods: builder.read(),
        deployments: builder.read(),
        sets: builder.read(),
        stateful: builder.read(),
        controllers: builder.read(),
    };
    let budgets = all.budgets.clone();
    builder.on(&all.pods, move |change, queue| {
        for pod in change.states() {
            for budget in budgets.within(pod.metadata.namespace.as_deref().unwrap_or_default()) {
                if selects(&budget, pod) {
                    queue.add(Key::of(&*budget));
                }
            }
        }
    });
    on_size(&builder, &all.deployments, &all.budgets, |one| one.spec.as_ref().and_then(|spec| spec.replicas));
    on_size(&builder, &all.sets, &all.budgets, |one| one.spec.as_ref().and_then(|spec| spec.replicas));
    on_size(&builder, &all.stateful, &all.budgets, |one| one.spec.as_ref().and_then(|spec| spec.replicas));
    on_size(&builder, &all.controllers, &all.budgets, |one| one.spec.as_ref().and_then(|spec| spec.replicas));
    builder.build(all)
}

/// The expected number of Pods of a budget changes with the size of their controllers.
fn on_size<K: Kind>(
    builder: &Builder<'_>,
    cache: &Arc<Cache<K>>,
    budgets: &Arc<Cache<PodDisruptionBudget>>,
    size: fn(&K) -> Option<i32>,
) {
    let budgets = budgets.clone();
    builder.on(cache, move |change, queue| {
        let of = |state: &Option<Arc<K>>| state.as_ref().map(|one| size(one));
        let changed = of(&change.old) != of(&change.new);
        for one in change.states().take(1).filter(|_| changed) {
            let all = budgets.within(one.meta().namespace.as_deref().unwrap_or_default());
            all.iter().for_each(|budget| queue.add(Key::of(&**budget)));
        }
    });
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
