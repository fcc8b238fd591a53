//! ReplicaSets and ReplicationControllers: as many Pods of one template as were asked for.

mod controllers;
mod decide;
#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

use std::{borrow::Cow, sync::Arc, time::Duration};

use futures::future::{BoxFuture, join_all};
use jiff::Timestamp;
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        apps::v1::{Deployment, ReplicaSet, ReplicaSetStatus},
        core::v1::{Pod, ReplicationController},
    },
};
use kube::{Api, Client, Resource, api::PostParams};
use serde::Serialize;

#[cfg(test)]
pub use controllers::tests::CASES as CONTROLLERS;
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

/// A kind that has as many Pods of one template as were asked for.
pub trait Set: Kind + Resource<Scope = NamespaceResourceScope> + Serialize {
    /// The controller, in `--controllers`' words.
    const NAME: &'static str;
    /// The controller's account, and how its events name it.
    const ACCOUNT: &'static str;

    /// The same as a ReplicaSet: all decisions are about those.
    fn as_set(&self) -> Cow<'_, ReplicaSet>;

    fn with_status(&self, status: ReplicaSetStatus) -> Self;
}

impl Set for ReplicaSet {
    const NAME: &'static str = "replicaset";
    const ACCOUNT: &'static str = "replicaset-controller";

    fn as_set(&self) -> Cow<'_, ReplicaSet> {
        Cow::Borrowed(self)
    }

    fn with_status(&self, status: ReplicaSetStatus) -> Self {
        Self { status: Some(status), ..self.clone() }
    }
}

pub fn controller(setting: &mut Setting) -> BoxFuture<'static, ()> {
    run::<ReplicaSet>(setting)
}

pub fn of_controllers(setting: &mut Setting) -> BoxFuture<'static, ()> {
    run::<ReplicationController>(setting)
}

fn run<S: Set>(setting: &mut Setting) -> BoxFuture<'static, ()> {
    let (client, recorder) = setting.actor(S::ACCOUNT, S::ACCOUNT);
    let (sets, pods) = (setting.caches.of::<S>(), setting.caches.of::<Pod>());
    let queue = Arc::new(Queue::default());
    let to = queue.clone();
    sets.listen(move |change| change.states().for_each(|set| to.add(Key::of(&**set))));
    let (to, of) = (queue.clone(), sets.clone());
    pods.listen(move |change| {
        owners_of::<S>(change).for_each(|owner| to.add(owner));
        if let Some(orphan) = new_orphan(change) {
            for set in of.within(orphan.metadata.namespace.as_deref().unwrap_or_default()) {
                if selects(&set.as_set()).is_ok_and(|selects| selects.selects(&**orphan)) {
                    to.add(Key::of(&*set));
                }
            }
        }
    });
    let dependents = Dependents { client: client.clone(), pods: pods.clone(), written: Written::default(), recorder };
    let reconciler = Sets { client, sets: sets.clone(), dependents };
    let stop = setting.stop.clone();
    Box::pin(async move {
        sets.ready().await;
        pods.ready().await;
        work(S::NAME, queue, reconciler, stop).await;
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

struct Sets<S> {
    client: Client,
    sets: Arc<Cache<S>>,
    dependents: Dependents,
}

impl<S: Set> Reconciler for Sets<S> {
    async fn reconcile(&self, key: &Key) -> Result<Option<Duration>, Error> {
        let Some(owner) = self.sets.get(key) else {
            self.dependents.written.forget(key);
            return Ok(None);
        };
        let set = owner.as_set();
        // Asked before the Pods are read: what is shown by now is in what is read next. A status that knows less than what was done already would
        // be worse than none: a Deployment decides by it.
        if !self.dependents.written.is_shown(key) {
            return Ok(Some(LATE));
        }
        let pods = self.dependents.pods.within(&key.namespace);
        let (api, selects) = (Api::<S>::namespaced(self.client.clone(), &key.namespace), selects(&set)?);
        let mine = owner::claim_all(&api, &*owner, &selects, &self.dependents.api(&key.namespace), pods).await?;
        let now = Timestamp::now();
        let managed =
            if owner::is_deleting(&set.metadata) { Ok(()) } else { self.manage(&owner, &set, &mine, now).await };
        let failure = managed.as_ref().err().map(|(reason, error)| decide::Failure {
            reason,
            message: match error {
                Error::Api(error) => crate::dependents::told(error),
                other => other.to_string(),
            },
        });
        let (status, again) = decide::status(&set, &mine, failure, now);
        let changed = owner.with_status(status);
        if set.status != changed.as_set().status {
            api.replace_status(&key.name, &PostParams::default(), &changed).await?;
        }
        managed.map(|()| again).map_err(|(_, error)| error)
    }
}

impl<S: Set> Sets<S> {
    async fn manage(
        &self,
        owner: &S,
        set: &ReplicaSet,
        pods: &[Arc<Pod>],
        now: Timestamp,
    ) -> Result<(), (&'static str, Error)> {
        match decide::manage(set, pods, &self.related(set, pods), now) {
            decide::Change::Nothing => Ok(()),
            decide::Change::Create(count) => {
                let Some(template) = set.spec.as_ref().and_then(|spec| spec.template.as_ref()) else { return Ok(()) };
                let pod = pod::from_template(template, owner);
                let create = |_| async { self.dependents.create(owner, &pod).await.map(|_| ()) };
                slow_start(count, create).await.map_err(|error| ("FailedCreate", error))
            }
            decide::Change::Delete(surplus) => {
                let all = join_all(surplus.iter().map(|pod| self.dependents.delete(owner, pod))).await;
                all.into_iter().collect::<Result<(), Error>>().map_err(|error| ("FailedDelete", error))
            }
        }
    }

    /// The Pods of all sets of the same Deployment.
    fn related(&self, set: &ReplicaSet, own: &[Arc<Pod>]) -> Vec<Arc<Pod>> {
        let Some(deployment) = owner::controller_key::<Deployment>(&set.metadata) else { return own.to_vec() };
        let sets = self.sets.within(&deployment.namespace);
        let is_sibling =
            |sibling: &&Arc<S>| owner::controller_key::<Deployment>(sibling.meta()).as_ref() == Some(&deployment);
        let uids: Vec<&String> =
            sets.iter().filter(is_sibling).filter_map(|sibling| sibling.meta().uid.as_ref()).collect();
        let mut pods = self.dependents.pods.within(&deployment.namespace);
        pods.retain(|pod| owner::controller_of(&pod.metadata).is_some_and(|owner| uids.contains(&&owner.uid)));
        pods
    }
}
