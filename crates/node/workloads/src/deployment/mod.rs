//! Deployments: from one template to the next, without losing more Pods than allowed.

mod bounds;
mod decide;
#[cfg(test)]
mod model;
mod sets;
mod share;
mod status;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet},
    core::v1::Pod,
};
use kube::{
    Api, Client,
    api::{DeleteParams, PostParams, Preconditions},
};
#[cfg(test)]
pub use tests::CASES;

use self::decide::Step;
use crate::{
    Setting,
    cache::{Cache, Key},
    dependents::{is_going, told},
    events::{Recorder, Weight},
    owner::{self, Selects},
    pod,
    queue::Queue,
    replicaset::{new_orphan, owners_of},
    worker::{Error, Reconciler, code, work},
    written::Written,
};

/// Caches that are late are asked again after so long, should no event come.
const LATE: Duration = Duration::from_secs(1);

pub fn controller(setting: &mut Setting) -> BoxFuture<'static, ()> {
    let (client, recorder) = setting.actor("deployment-controller", "deployment-controller");
    let deployments = setting.caches.of::<Deployment>();
    let (sets, pods) = (setting.caches.of::<ReplicaSet>(), setting.caches.of::<Pod>());
    let queue = Arc::new(Queue::default());
    let to = queue.clone();
    deployments.listen(move |change| change.states().for_each(|deployment| to.add(Key::of(&**deployment))));
    let (to, of) = (queue.clone(), deployments.clone());
    sets.listen(move |change| {
        owners_of::<Deployment>(change).for_each(|owner| to.add(owner));
        if let Some(orphan) = new_orphan(change) {
            for deployment in of.within(orphan.metadata.namespace.as_deref().unwrap_or_default()) {
                if selects(&deployment).is_ok_and(|selects| selects.selects(&**orphan)) {
                    to.add(Key::of(&*deployment));
                }
            }
        }
    });
    // Who recreates waits for the last of the old Pods.
    let (to, of, its) = (queue.clone(), deployments.clone(), sets.clone());
    pods.listen(move |change| {
        let ended = change.new.as_ref().is_none_or(|pod| pod::is_finished(pod));
        let sets = ended.then(|| owners_of::<ReplicaSet>(change)).into_iter().flatten();
        for set in sets.filter_map(|set| its.get(&set)) {
            let deployment = owner::controller_key::<Deployment>(&set.metadata).and_then(|key| of.get(&key));
            if let Some(deployment) = deployment.filter(|deployment| !bounds::is_rolling(deployment)) {
                to.add(Key::of(&*deployment));
            }
        }
    });
    let reconciler = Deployments {
        client,
        recorder,
        deployments: deployments.clone(),
        sets: sets.clone(),
        pods: pods.clone(),
        written: Written::default(),
    };
    let stop = setting.stop.clone();
    Box::pin(async move {
        deployments.ready().await;
        sets.ready().await;
        pods.ready().await;
        work("deployment", queue, reconciler, stop).await;
    })
}

fn selects(deployment: &Deployment) -> Result<Selects, Error> {
    Selects::new(deployment.spec.as_ref().map(|spec| &spec.selector))
}

struct Deployments {
    client: Client,
    recorder: Recorder,
    deployments: Arc<Cache<Deployment>>,
    sets: Arc<Cache<ReplicaSet>>,
    pods: Arc<Cache<Pod>>,
    written: Written,
}

impl Reconciler for Deployments {
    async fn reconcile(&self, key: &Key) -> Result<Option<Duration>, Error> {
        let Some(deployment) = self.deployments.get(key) else {
            self.written.forget(key);
            return Ok(None);
        };
        if !self.written.is_shown(key) {
            return Ok(Some(LATE));
        }
        let api: Api<Deployment> = Api::namespaced(self.client.clone(), &key.namespace);
        let sets: Api<ReplicaSet> = Api::namespaced(self.client.clone(), &key.namespace);
        let all = self.sets.within(&key.namespace);
        let mine = owner::claim_all(&api, &*deployment, &selects(&deployment)?, &sets, all).await?;
        let uids: Vec<String> = mine.iter().filter_map(|set| set.metadata.uid.clone()).collect();
        let is_old_running = |new: Option<&str>| {
            self.pods.within(&key.namespace).iter().any(|pod| {
                let owner = owner::controller_of(&pod.metadata).map(|owner| &owner.uid);
                let is_old = owner.is_some_and(|owner| uids.contains(owner) && Some(owner.as_str()) != new);
                is_old && !pod::is_finished(pod)
            })
        };
        let mine = mine.iter().map(|set| (**set).clone()).collect();
        let mut plan = decide::plan(&deployment, mine, is_old_running, Timestamp::now());
        let mut done = Ok(());
        for step in &plan.steps {
            done = self.take(key, &deployment, &sets, step, &mut plan.deployment).await;
            if done.is_err() {
                break;
            }
        }
        // A set that was refused is said in the status; everything else is decided again by what is there then.
        let is_told = done.is_ok() || matches!(plan.steps.as_slice(), [Step::Create(_), ..]);
        let is_new = plan.deployment.status != deployment.status
            || plan.deployment.metadata.annotations != deployment.metadata.annotations;
        if is_told && is_new {
            let written = api.replace_status(&key.name, &PostParams::default(), &plan.deployment).await?;
            self.written.wrote(key, &self.deployments, &written);
        }
        done.map(|()| plan.again)
    }
}

impl Deployments {
    async fn take(
        &self,
        key: &Key,
        deployment: &Arc<Deployment>,
        sets: &Api<ReplicaSet>,
        step: &Step,
        next: &mut Deployment,
    ) -> Result<(), Error> {
        match step {
            Step::Create(set) => return self.create(key, deployment, sets, set, next).await,
            Step::Update(set, about) => {
                let name = set.metadata.name.as_deref().unwrap_or_default();
                let written = sets.replace(name, &PostParams::default(), set).await?;
                self.written.wrote(key, &self.sets, &written);
                if let Some(about) = about {
                    self.recorder.tell(&**deployment, Weight::Normal, "ScalingReplicaSet", about.clone());
                }
            }
            Step::Delete(set) => {
                let name = set.metadata.name.as_deref().unwrap_or_default();
                let preconditions = Preconditions {
                    uid: set.metadata.uid.clone(),
                    resource_version: set.metadata.resource_version.clone(),
                };
                let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
                match sets.delete(name, &params).await {
                    Err(error) if code(&error) != 404 => return Err(error.into()),
                    _ => self.written.deleted(key, &self.sets, set),
                }
            }
        }
        Ok(())
    }

    async fn create(
        &self,
        key: &Key,
        deployment: &Arc<Deployment>,
        sets: &Api<ReplicaSet>,
        set: &ReplicaSet,
        next: &mut Deployment,
    ) -> Result<(), Error> {
        let name = set.metadata.name.as_deref().unwrap_or_default();
        let refused = match sets.create(&PostParams::default(), set).await {
            Ok(made) => {
                self.written.wrote(key, &self.sets, &made);
                let size = decide_size(set);
                if size > 0 {
                    let about = format!("Scaled up replica set {name} from 0 to {size}");
                    self.recorder.tell(&**deployment, Weight::Normal, "ScalingReplicaSet", about);
                }
                return Ok(());
            }
            Err(error) => error,
        };
        // The status that the plan has speaks of a set that is there.
        next.status = deployment.status.clone();
        next.metadata.annotations = deployment.metadata.annotations.clone();
        if is_going(&refused) {
            return Ok(());
        }
        if code(&refused) == 409 {
            let other = sets.get_opt(name).await?;
            let template = deployment.spec.as_ref().map(|spec| &spec.template);
            let is_ours = other.as_ref().is_some_and(|other| {
                owner::controller_of(&other.metadata).map(|owner| &owner.uid) == deployment.metadata.uid.as_ref()
                    && template.is_some_and(|template| sets::is_same(template, other))
            });
            if is_ours {
                // The cache will show it.
                return Err(refused.into());
            }
            let status = next.status.get_or_insert_default();
            status.collision_count = Some(status.collision_count.unwrap_or(0).saturating_add(1));
            return Err(refused.into());
        }
        let message = format!("Failed to create new replica set {name:?}: {}", told(&refused));
        if status::deadline(deployment).is_some() {
            let status = next.status.get_or_insert_default();
            let condition = status::new_condition(
                status::PROGRESSING,
                "False",
                "ReplicaSetCreateError",
                message.clone(),
                Timestamp::now(),
            );
            status::set_condition(status, condition);
        }
        self.recorder.tell(&**deployment, Weight::Warning, "ReplicaSetCreateError", message);
        Err(refused.into())
    }
}

fn decide_size(set: &ReplicaSet) -> i32 {
    sets::replicas(set)
}
