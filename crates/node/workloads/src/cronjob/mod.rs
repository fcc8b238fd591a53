//! CronJobs: a Job whenever the clock says so.

mod cron;
mod decide;
#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use kube::{
    Api, Client,
    api::{DeleteParams, PostParams, PropagationPolicy},
};

#[cfg(test)]
pub use tests::CASES;

use crate::{Setting, job::finished};
use controllers::{
    Controller, Error, Reconciler,
    cache::{Cache, Key},
    code,
    dependents::{is_namespace_terminating, message_of},
    events::{Recorder, Weight},
    owner,
    written::{CACHE_RETRY, Written},
};

/// A clock that was set is noticed after so long.
const LONGEST: Duration = Duration::from_secs(600);
/// So that a start is not looked for a moment too early.
const LITTLE: Duration = Duration::from_millis(50);

pub fn controller(setting: &mut Setting) -> Controller {
    let (client, recorder) = setting.actor("cronjob-controller", "cronjob-controller");
    let mut builder = setting.builder("cronjob-controller");
    let (crons, jobs) = (builder.reconcile(), builder.read());
    builder.on_owned::<CronJob, _>(&jobs);
    builder.build(CronJobs { client, recorder, crons, jobs, written: Written::default() })
}

struct CronJobs {
    client: Client,
    recorder: Recorder,
    crons: Arc<Cache<CronJob>>,
    jobs: Arc<Cache<Job>>,
    written: Written,
}

impl Reconciler for CronJobs {
    async fn reconcile(&self, key: &Key) -> Result<Option<Duration>, Error> {
        let Some(cron) = self.crons.get(key) else {
            self.written.forget(key);
            return Ok(None);
        };
        if !self.written.is_shown(key) {
            return Ok(Some(CACHE_RETRY));
        }
        let all = self.jobs.within(&key.namespace);
        let is_ours =
            |job: &&Job| owner::controller_of(&job.metadata).map(|owner| &owner.uid) == cron.metadata.uid.as_ref();
        let jobs: Vec<&Job> = all.iter().map(|job| &**job).filter(is_ours).collect();
        let plan = decide::decide(&cron, &jobs, Timestamp::now());
        let api: Api<Job> = Api::namespaced(self.client.clone(), &key.namespace);
        let named = |names: &[String]| -> Vec<&Job> {
            let is_named = |job: &&Job| job.metadata.name.as_ref().is_some_and(|name| names.contains(name));
            jobs.iter().copied().filter(is_named).collect()
        };
        for job in named(&plan.replace) {
            self.delete(key, &api, job).await?;
        }
        let mut status = plan.status;
        if let Some(wanted) = &plan.create {
            match self.create(key, &cron, &api, wanted).await? {
                Some(job) => status
                    .active
                    .get_or_insert_default()
                    .extend(finished(&job).is_none().then(|| decide::reference(&job))),
                None => return Ok(None),
            }
        }
        if cron.status.clone().unwrap_or_default() != status {
            let api: Api<CronJob> = Api::namespaced(self.client.clone(), &key.namespace);
            let changed = CronJob { status: Some(status), ..(*cron).clone() };
            let made = api.replace_status(&key.name, &PostParams::default(), &changed).await?;
            self.written.wrote(key, &self.crons, &made);
        }
        for job in named(&plan.delete) {
            self.delete(key, &api, job).await?;
        }
        for note in &plan.notes {
            note.tell(&self.recorder, &*cron);
        }
        Ok(plan.again.map(|again| (again + LITTLE).min(LONGEST)))
    }
}

impl CronJobs {
    async fn delete(&self, key: &Key, api: &Api<Job>, job: &Job) -> Result<(), Error> {
        let params =
            DeleteParams { propagation_policy: Some(PropagationPolicy::Background), ..DeleteParams::default() };
        match api.delete(job.metadata.name.as_deref().unwrap_or_default(), &params).await {
            Err(error) if code(&error) != 404 => Err(error.into()),
            _ => {
                self.written.deleted(key, &self.jobs, job);
                Ok(())
            }
        }
    }

    /// None if there is nothing to be made any more. One that is there already was made before a restart.
    async fn create(&self, key: &Key, cron: &CronJob, api: &Api<Job>, wanted: &Job) -> Result<Option<Job>, Error> {
        let made = match api.create(&PostParams::default(), wanted).await {
            Ok(made) => made,
            Err(error) if is_namespace_terminating(&error) => return Ok(None),
            Err(error) if code(&error) == 409 => {
                let there = api.get(wanted.metadata.name.as_deref().unwrap_or_default()).await?;
                if owner::controller_of(&there.metadata).map(|owner| &owner.uid) != cron.metadata.uid.as_ref() {
                    let message = format!("Error creating job: {}", message_of(&error));
                    self.recorder.tell(cron, Weight::Warning, "FailedCreate", message);
                    return Err(error.into());
                }
                there
            }
            Err(error) => {
                let message = format!("Error creating job: {}", message_of(&error));
                self.recorder.tell(cron, Weight::Warning, "FailedCreate", message);
                return Err(error.into());
            }
        };
        self.written.wrote(key, &self.jobs, &made);
        Ok(Some(made))
    }
}
