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
use crate::{Setting, pod};
use controllers::{
    Controller, Error, Reconciler,
    cache::{Cache, Key},
    code,
    dependents::{is_namespace_terminating, message_of},
    events::{Recorder, Weight},
    owner::{self, Selects},
    written::{CACHE_RETRY, Written},
};

pub fn controller(setting: &mut Setting) -> Controller {
    let (client, recorder) = setting.actor("deployment-controller", "deployment-controller");
    let mut builder = setting.builder("deployment-controller");
    let all = Deployments {
        client,
        recorder,
        deployments: builder.reconcile(),
        sets: builder.read(),
        pods: builder.read(),
        written: Written::default(),
    };
    builder.on_adoptable(&all.sets, &all.deployments, selects);
    // A Deployment that recreates waits for the last of the old Pods.
    let (deployments, sets) = (all.deployments.clone(), all.sets.clone());
    builder.on(&all.pods, move |change, queue| {
        let ended = change.new.as_ref().is_none_or(|pod| pod::is_finished(pod));
        let owners = ended.then(|| owner::owners_of::<ReplicaSet>(change)).into_iter().flatten();
        for set in owners.filter_map(|set| sets.get(&set)) {
            let deployment = owner::controller_key::<Deployment>(&set.metadata).and_then(|key| deployments.get(&key));
            if let Some(deployment) = deployment.filter(|deployment| !bounds::is_rolling(deployment)) {
                queue.add(Key::of(&*deployment));
            }
        }
    });
    builder.build(all)
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
            return Ok(Some(CACHE_RETRY));
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
        if is_namespace_terminating(&refused) {
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
        let message = format!("Failed to create new replica set {name:?}: {}", message_of(&refused));
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
