//! Jobs: Pods until so many of them succeeded.

mod conditions;
mod decide;
mod failure;
mod indexes;
#[cfg(test)]
mod model;
mod pod;
#[cfg(test)]
mod tests;
mod wanted;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy},
};
use serde_json::json;

pub use conditions::{finished, succeeded_at};
#[cfg(test)]
pub use tests::CASES;

use crate::Setting;
use controllers::{
    Controller, Error, Reconciler,
    batch::slow_start,
    cache::{Cache, Key},
    code,
    dependents::Dependents,
    owner::{self, Selects},
    written::{CACHE_RETRY, Written},
};

/// A Job that may not be deleted here, because the center sent it, is tried again after so long.
const KEPT: Duration = Duration::from_secs(600);

pub fn controller(setting: &mut Setting) -> Controller {
    let (client, recorder) = setting.actor("job-controller", "job-controller");
    let (cleaner, _) = setting.actor("ttl-after-finished-controller", "ttl-after-finished-controller");
    let mut builder = setting.builder("job-controller");
    let jobs = builder.reconcile();
    let dependents = Dependents { client: client.clone(), pods: builder.read(), written: Written::default(), recorder };
    builder.on_adoptable(&dependents.pods, &jobs, selects);
    builder.build(Jobs { client, cleaner, jobs, dependents })
}

fn selects(job: &Job) -> Result<Selects, Error> {
    Selects::new(job.spec.as_ref().and_then(|spec| spec.selector.as_ref()))
}

struct Jobs {
    client: Client,
    cleaner: Client,
    jobs: Arc<Cache<Job>>,
    dependents: Dependents,
}

impl Reconciler for Jobs {
    async fn reconcile(&self, key: &Key) -> Result<Option<Duration>, Error> {
        // Asked before the Pods are read: what is shown by now is in what is read next.
        let is_shown = self.dependents.written.is_shown(key);
        let pods = self.dependents.pods.within(&key.namespace);
        let job = self.jobs.get(key);
        self.release_orphans(key, job.as_deref(), &pods).await?;
        let Some(job) = job else {
            self.dependents.written.forget(key);
            return Ok(None);
        };
        if !is_shown {
            return Ok(Some(CACHE_RETRY));
        }
        let now = Timestamp::now();
        if let Some(at) = decide::expires(&job).filter(|_| !owner::is_deleting(&job.metadata)) {
            match Duration::try_from(at.duration_since(now)) {
                Ok(left) if !left.is_zero() => {
                    let again = self.act(key, &job, pods, now).await?;
                    return Ok(Some(again.map_or(left, |again| again.min(left))));
                }
                _ => return self.expire(key, &job).await,
            }
        }
        self.act(key, &job, pods, now).await
    }
}

impl Jobs {
    async fn act(&self, key: &Key, job: &Job, pods: Vec<Arc<Pod>>, now: Timestamp) -> Result<Option<Duration>, Error> {
        let api: Api<Job> = Api::namespaced(self.client.clone(), &key.namespace);
        let mine = owner::claim_all(&api, job, &selects(job)?, &self.dependents.api(&key.namespace), pods).await?;
        let pods: Vec<&Pod> = mine.iter().map(|pod| &**pod).collect();
        let plan = decide::decide(job, &pods, now);
        let named = |names: &[String]| -> Vec<&Pod> {
            let is_named = |pod: &&Pod| pod.metadata.name.as_ref().is_some_and(|name| names.contains(name));
            pods.iter().copied().filter(is_named).collect()
        };
        let drop = async |pod: &Pod| {
            self.release(key, pod).await?;
            self.dependents.delete(job, pod).await
        };
        all(named(&plan.drop).iter().map(|pod| drop(pod))).await?;
        let (made, created) = self.create(job, &plan.create).await;
        let (release, delete) = (named(&plan.release), named(&plan.delete));
        // Nothing is let go of, or counted, before it is written down.
        let status = decide::with_made(plan.status, plan.create.len(), made);
        if job.status.clone().unwrap_or_default() != status {
            let changed = Job { status: Some(status), ..job.clone() };
            let made = api.replace_status(&key.name, &PostParams::default(), &changed).await?;
            self.dependents.written.wrote(key, &self.jobs, &made);
        }
        for note in &plan.notes {
            note.tell(&self.dependents.recorder, job);
        }
        all(release.iter().map(|pod| self.release(key, pod))).await?;
        all(delete.iter().map(|pod| self.dependents.delete(job, pod))).await?;
        created.map(|()| plan.again)
    }

    /// How many of them were made, also if not all could be.
    async fn create(&self, job: &Job, pods: &[Pod]) -> (usize, Result<(), Error>) {
        let made = AtomicUsize::new(0);
        let counter = &made;
        let one = |n: usize| async move {
            if let Some(pod) = pods.get(n)
                && self.dependents.create(job, pod).await?.is_some()
            {
                counter.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        };
        let done = slow_start(pods.len(), one).await;
        (made.into_inner(), done)
    }

    /// Takes the finalizer away from the Pod as it was seen: one that ended meanwhile is looked at again.
    async fn release(&self, key: &Key, one: &Pod) -> Result<(), Error> {
        if !pod::is_tracked(one) {
            return Ok(());
        }
        let others: Vec<&String> =
            one.metadata.finalizers.iter().flatten().filter(|name| *name != pod::FINALIZER).collect();
        let change = json!({"metadata": {"resourceVersion": one.metadata.resource_version, "uid": one.metadata.uid,
            "finalizers": others}});
        let name = one.metadata.name.as_deref().unwrap_or_default();
        let api = self.dependents.api(&key.namespace);
        match api.patch(name, &PatchParams::default(), &Patch::Merge(change)).await {
            Ok(made) => {
                self.dependents.written.wrote(key, &self.dependents.pods, &made);
                Ok(())
            }
            Err(error) if code(&error) == 404 => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Pods whose Job is gone would never go without this.
    async fn release_orphans(&self, key: &Key, job: Option<&Job>, pods: &[Arc<Pod>]) -> Result<(), Error> {
        let uid = job.and_then(|job| job.metadata.uid.as_ref());
        let is_left = |one: &&Arc<Pod>| {
            let owner = owner::controller_of(&one.metadata);
            pod::is_tracked(one)
                && owner::controller_key::<Job>(&one.metadata).as_ref() == Some(key)
                && owner.map(|owner| &owner.uid) != uid
        };
        all(pods.iter().filter(is_left).map(|one| self.release(key, one))).await
    }

    async fn expire(&self, key: &Key, job: &Job) -> Result<Option<Duration>, Error> {
        let api: Api<Job> = Api::namespaced(self.cleaner.clone(), &key.namespace);
        let preconditions = Preconditions { uid: job.metadata.uid.clone(), resource_version: None };
        let params = DeleteParams {
            propagation_policy: Some(PropagationPolicy::Foreground),
            preconditions: Some(preconditions),
            ..DeleteParams::default()
        };
        match api.delete(&key.name, &params).await {
            Ok(_) => Ok(None),
            Err(error) if matches!(code(&error), 404 | 409) => Ok(None),
            Err(error) if matches!(code(&error), 403 | 503) => {
                tracing::debug!(%key, %error, "a finished Job cannot be deleted here; its time is over");
                Ok(Some(KEPT))
            }
            Err(error) => Err(error.into()),
        }
    }
}

async fn all<F: Future<Output = Result<(), Error>>>(futures: impl Iterator<Item = F>) -> Result<(), Error> {
    join_all(futures).await.into_iter().collect()
}
