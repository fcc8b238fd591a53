//! ReplicaSets and ReplicationControllers: as many Pods of one template as were asked for.

mod decide;
#[cfg(test)]
mod model;
mod replication;
#[cfg(test)]
mod tests;

use std::{borrow::Cow, sync::Arc, time::Duration};

use futures::future::join_all;
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

pub use decide::some;
#[cfg(test)]
pub use decide::{Change, manage, status as set_status};
#[cfg(test)]
pub use replication::tests::CASES as CONTROLLERS;
#[cfg(test)]
pub use tests::CASES;

use crate::{Setting, pod};
use controllers::{
    Controller, Error, Reconciler,
    batch::slow_start,
    cache::{Cache, Key, Kind},
    dependents::Dependents,
    owner::{self, Selects},
    written::{CACHE_RETRY, Written},
};

/// A kind that has as many Pods of one template as were asked for.
pub trait Set: Kind + Resource<Scope = NamespaceResourceScope> + Serialize {
    /// The controller's task.
    const NAME: &'static str;
    /// The controller's account, and how its events name it.
    const ACCOUNT: &'static str;

    /// The same as a ReplicaSet: all decisions are about those.
    fn as_set(&self) -> Cow<'_, ReplicaSet>;

    fn with_status(&self, status: ReplicaSetStatus) -> Self;
}

impl Set for ReplicaSet {
    const NAME: &'static str = "replicaset-controller";
    const ACCOUNT: &'static str = "replicaset-controller";

    fn as_set(&self) -> Cow<'_, ReplicaSet> {
        Cow::Borrowed(self)
    }

    fn with_status(&self, status: ReplicaSetStatus) -> Self {
        Self { status: Some(status), ..self.clone() }
    }
}

pub fn controller(setting: &mut Setting) -> Controller {
    make::<ReplicaSet>(setting)
}

pub fn of_controllers(setting: &mut Setting) -> Controller {
    make::<ReplicationController>(setting)
}

fn make<S: Set>(setting: &mut Setting) -> Controller {
    let (client, recorder) = setting.actor(S::ACCOUNT, S::ACCOUNT);
    let mut builder = setting.builder(S::NAME);
    let sets = builder.reconcile::<S>();
    let dependents = Dependents { client: client.clone(), pods: builder.read(), written: Written::default(), recorder };
    builder.on_adoptable(&dependents.pods, &sets, |set: &S| selects(&set.as_set()));
    builder.build(Sets { client, sets, dependents })
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
            return Ok(Some(CACHE_RETRY));
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
                Error::Api(error) => controllers::dependents::message_of(error),
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
