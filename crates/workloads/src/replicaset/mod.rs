//! ReplicaSets: as many Pods of one template as were asked for.

mod decide;
#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use futures::future::{BoxFuture, join_all};
use jiff::Timestamp;
use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet},
    core::v1::Pod,
};
use kube::{Api, Client, api::PostParams};

pub use decide::some;
#[cfg(test)]
pub use decide::{Change, manage, status as set_status};
#[cfg(test)]
pub use tests::CASES;

use crate::{
    Setting,
    cache::{self, Cache, Key, Kind},
    dependents::Dependents,
    owner::{self, Selects},
    pod,
    queue::Queue,
    worker::{Error, Reconciler, slow_start, work},
    written::Written,
};

/// Caches that are late are asked again after so long, should no event come.
const LATE: Duration = Duration::from_secs(1);

pub fn controller(setting: &mut Setting) -> BoxFuture<'static, ()> {
    let (client, recorder) = setting.actor("replicaset-controller", "replicaset-controller");
    let (sets, pods) = (setting.caches.of::<ReplicaSet>(), setting.caches.of::<Pod>());
    let queue = Arc::new(Queue::default());
    let to = queue.clone();
    sets.listen(move |change| change.states().for_each(|set| to.add(Key::of(&**set))));
    let (to, of) = (queue.clone(), sets.clone());
    pods.listen(move |change| {
        owners_of::<ReplicaSet>(change).for_each(|owner| to.add(owner));
        if let Some(orphan) = new_orphan(change) {
            for set in of.within(orphan.metadata.namespace.as_deref().unwrap_or_default()) {
                if selects(&set).is_ok_and(|selects| selects.selects(&**orphan)) {
                    to.add(Key::of(&*set));
                }
            }
        }
    });
    let dependents = Dependents { client: client.clone(), pods: pods.clone(), written: Written::default(), recorder };
    let reconciler = ReplicaSets { client, sets: sets.clone(), dependents };
    let stop = setting.stop.clone();
    Box::pin(async move {
        sets.ready().await;
        pods.ready().await;
        work("replicaset", queue, reconciler, stop).await;
    })
}

/// Whoever of this kind controls an object, or did before the change.
pub fn owners_of<O: Kind>(change: &cache::Change<impl Kind>) -> impl Iterator<Item = Key> {
    let mut keys: Vec<Key> = change.states().filter_map(|object| owner::controller_key::<O>(object.meta())).collect();
    keys.dedup();
    keys.into_iter()
}

/// A Pod that nobody controls, if it could be somebody's since this change.
pub fn new_orphan<K: Kind>(change: &cache::Change<K>) -> Option<&Arc<K>> {
    let new = change.new.as_ref()?;
    if owner::controller_of(new.meta()).is_some() || owner::is_deleting(new.meta()) {
        return None;
    }
    let is_new = change
        .old
        .as_ref()
        .is_none_or(|old| old.meta().labels != new.meta().labels || owner::controller_of(old.meta()).is_some());
    is_new.then_some(new)
}

pub fn selects(set: &ReplicaSet) -> Result<Selects, Error> {
    Selects::new(set.spec.as_ref().map(|spec| &spec.selector))
}

struct ReplicaSets {
    client: Client,
    sets: Arc<Cache<ReplicaSet>>,
    dependents: Dependents,
}

impl Reconciler for ReplicaSets {
    async fn reconcile(&self, key: &Key) -> Result<Option<Duration>, Error> {
        let Some(set) = self.sets.get(key) else {
            self.dependents.written.forget(key);
            return Ok(None);
        };
        // Asked before the Pods are read: what is shown by now is in what is read next. A status that knows less than what was done already would
        // be worse than none: a Deployment decides by it.
        if !self.dependents.written.is_shown(key) {
            return Ok(Some(LATE));
        }
        let pods = self.dependents.pods.within(&key.namespace);
        let (api, selects) = (Api::namespaced(self.client.clone(), &key.namespace), selects(&set)?);
        let mine = owner::claim_all(&api, &*set, &selects, &self.dependents.api(&key.namespace), pods).await?;
        let now = Timestamp::now();
        let managed = if owner::is_deleting(&set.metadata) { Ok(()) } else { self.manage(&set, &mine, now).await };
        let failure = managed.as_ref().err().map(|(reason, error)| decide::Failure {
            reason,
            message: match error {
                Error::Api(error) => crate::dependents::told(error),
                other => other.to_string(),
            },
        });
        let (status, again) = decide::status(&set, &mine, failure, now);
        if set.status.as_ref() != Some(&status) {
            let changed = ReplicaSet { status: Some(status), ..(*set).clone() };
            api.replace_status(&key.name, &PostParams::default(), &changed).await?;
        }
        managed.map(|()| again).map_err(|(_, error)| error)
    }
}

impl ReplicaSets {
    async fn manage(
        &self,
        set: &Arc<ReplicaSet>,
        pods: &[Arc<Pod>],
        now: Timestamp,
    ) -> Result<(), (&'static str, Error)> {
        match decide::manage(set, pods, &self.related(set, pods), now) {
            decide::Change::Nothing => Ok(()),
            decide::Change::Create(count) => {
                let Some(template) = set.spec.as_ref().and_then(|spec| spec.template.as_ref()) else { return Ok(()) };
                let pod = pod::from_template(template, &**set);
                let create = |_| async { self.dependents.create(&**set, &pod).await.map(|_| ()) };
                slow_start(count, create).await.map_err(|error| ("FailedCreate", error))
            }
            decide::Change::Delete(surplus) => {
                let all = join_all(surplus.iter().map(|pod| self.dependents.delete(&**set, pod))).await;
                all.into_iter().collect::<Result<(), Error>>().map_err(|error| ("FailedDelete", error))
            }
        }
    }

    /// The Pods of all sets of the same Deployment.
    fn related(&self, set: &ReplicaSet, own: &[Arc<Pod>]) -> Vec<Arc<Pod>> {
        let Some(deployment) = owner::controller_key::<Deployment>(&set.metadata) else { return own.to_vec() };
        let sets = self.sets.within(&deployment.namespace);
        let siblings = sets
            .iter()
            .filter(|sibling| owner::controller_key::<Deployment>(&sibling.metadata).as_ref() == Some(&deployment));
        let uids: Vec<&String> = siblings.filter_map(|sibling| sibling.metadata.uid.as_ref()).collect();
        let mut pods = self.dependents.pods.within(&deployment.namespace);
        pods.retain(|pod| owner::controller_of(&pod.metadata).is_some_and(|owner| uids.contains(&&owner.uid)));
        pods
    }
}
