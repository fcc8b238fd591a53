//! DaemonSets: one Pod on each node that suits.

mod decide;
#[cfg(test)]
mod model;
mod revision;
#[cfg(test)]
mod tests;

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use backoff::{Retries, Schedule};
use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::api::{
    apps::v1::{ControllerRevision, DaemonSet},
    core::v1::Node,
};
use kube::{
    Api, Client,
    api::{DeleteParams, PostParams},
};
#[cfg(test)]
pub use tests::CASES;
use tokio::time::Instant;

use self::{
    decide::{Seen, Why},
    revision::Write,
};
use crate::{Setting, pod};
use controllers::{
    Controller, Error, Reconciler,
    batch::slow_start,
    cache::{Cache, Key},
    code,
    dependents::Dependents,
    events::Weight,
    owner::{self, Selects},
    written::{CACHE_RETRY, Written},
};

/// The wait before the next Pod of a set on a node where its last one failed.
const POD_RETRY: Schedule = Schedule::new(Duration::from_secs(1), MAX_POD_WAIT).exact();
const MAX_POD_WAIT: Duration = Duration::from_secs(15 * 60);

pub fn controller(setting: &mut Setting) -> Controller {
    let (client, recorder) = setting.actor("daemon-set-controller", "daemonset-controller");
    let mut builder = setting.builder("daemonset-controller");
    let all = DaemonSets {
        sets: builder.reconcile(),
        nodes: builder.read(),
        revisions: builder.read(),
        dependents: Dependents { client: client.clone(), pods: builder.read(), written: Written::default(), recorder },
        client,
        failures: Mutex::new(Retries::new(POD_RETRY)),
    };
    builder.on_owned::<DaemonSet, _>(&all.revisions);
    builder.on_adoptable(&all.dependents.pods, &all.sets, selects);
    // Nodes report every few seconds that they are alive. Only labels and taints decide which sets suit.
    let sets = all.sets.clone();
    builder.on(&all.nodes, move |change, queue| {
        let same = match (&change.old, &change.new) {
            (Some(old), Some(new)) => old.spec == new.spec && old.metadata.labels == new.metadata.labels,
            _ => false,
        };
        if !same {
            sets.all().iter().for_each(|set| queue.add(Key::of(&**set)));
        }
    });
    builder.build(all)
}

fn selects(set: &DaemonSet) -> Result<Selects, Error> {
    Selects::new(set.spec.as_ref().map(|spec| &spec.selector))
}

/// Failures of the Pods of a set on a node, by the key of the set and the node's name.
type Failures = Retries<(Key, String), Instant>;

struct DaemonSets {
    client: Client,
    sets: Arc<Cache<DaemonSet>>,
    nodes: Arc<Cache<Node>>,
    revisions: Arc<Cache<ControllerRevision>>,
    dependents: Dependents,
    failures: Mutex<Failures>,
}

impl Reconciler for DaemonSets {
    async fn reconcile(&self, key: &Key) -> Result<Option<Duration>, Error> {
        let Some(set) = self.sets.get(key) else {
            self.dependents.written.forget(key);
            self.failures().retain(|(of, _)| of != key);
            return Ok(None);
        };
        if !self.dependents.written.is_shown(key) {
            return Ok(Some(CACHE_RETRY));
        }
        let api: Api<DaemonSet> = Api::namespaced(self.client.clone(), &key.namespace);
        let selects = selects(&set)?;
        let known = self.revisions(key, &set, &api, &selects).await?;
        let Some((hash, write)) = revision::current(&set, &known) else { return Ok(None) };
        let revisions: Api<ControllerRevision> = Api::namespaced(self.client.clone(), &key.namespace);
        self.write_revision(key, &set, &api, &revisions, write).await?;
        let pods = self.dependents.pods.within(&key.namespace);
        let pods = owner::claim_all(&api, &*set, &selects, &self.dependents.api(&key.namespace), pods).await?;
        let nodes = self.nodes.all();
        let is_there = |name: &str| nodes.iter().any(|node| node.metadata.name.as_deref() == Some(name));
        self.failures().retain(|(of, node)| of != key || is_there(node));
        let back_off = |node: &str| self.back_off(key, node);
        let seen =
            Seen { set: &set, nodes: &nodes, pods: &pods, hash: &hash, back_off: &back_off, now: Timestamp::now() };
        let (status, status_again) = seen.status();
        let mut plan = decide::Plan::default();
        if !owner::is_deleting(&set.metadata) {
            plan = seen.plan();
            let used: Vec<String> =
                pods.iter().filter_map(|pod| pod.metadata.labels.as_ref()?.get(revision::HASH).cloned()).collect();
            for old in revision::forgotten(&set, &known, &hash, &used) {
                match revisions.delete(old.metadata.name.as_deref().unwrap_or_default(), &DeleteParams::default()).await
                {
                    Err(error) if code(&error) != 404 => return Err(error.into()),
                    _ => self.dependents.written.deleted(key, &self.revisions, old),
                }
            }
        }
        let done = self.carry_out(key, &set, &hash, &plan).await;
        if set.status.as_ref() != Some(&status) {
            let changed = DaemonSet { status: Some(status), ..(*set).clone() };
            api.replace_status(&key.name, &PostParams::default(), &changed).await?;
        }
        done.map(|()| [plan.again, status_again].into_iter().flatten().min())
    }
}

impl DaemonSets {
    fn failures(&self) -> std::sync::MutexGuard<'_, Failures> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn back_off(&self, key: &Key, node: &str) -> Option<Duration> {
        self.failures().remaining(&(key.clone(), node.to_owned()), Instant::now())
    }

    fn count_failure(&self, key: &Key, node: &str) {
        let (at, now) = ((key.clone(), node.to_owned()), Instant::now());
        let mut failures = self.failures();
        // Nothing is due by itself: the set is looked at when `remaining` is over.
        failures.take(now);
        failures.forget_older(MAX_POD_WAIT, now);
        failures.failed(at, now);
    }

    async fn revisions(
        &self,
        key: &Key,
        set: &Arc<DaemonSet>,
        api: &Api<DaemonSet>,
        selects: &Selects,
    ) -> Result<Vec<ControllerRevision>, Error> {
        let all = self.revisions.within(&key.namespace);
        let of: Api<ControllerRevision> = Api::namespaced(self.client.clone(), &key.namespace);
        let mine = owner::claim_all(api, &**set, selects, &of, all).await?;
        Ok(mine.iter().map(|one| (**one).clone()).collect())
    }

    async fn write_revision(
        &self,
        key: &Key,
        set: &Arc<DaemonSet>,
        api: &Api<DaemonSet>,
        revisions: &Api<ControllerRevision>,
        write: Write,
    ) -> Result<(), Error> {
        let written = match write {
            Write::Nothing => return Ok(()),
            Write::Create(made) => match revisions.create(&PostParams::default(), &made).await {
                // Another template has this name: the next hash counts one collision more.
                Err(error) if code(&error) == 409 => {
                    let mut changed = (**set).clone();
                    let status = changed.status.get_or_insert_default();
                    status.collision_count = Some(status.collision_count.unwrap_or(0).saturating_add(1));
                    api.replace_status(&key.name, &PostParams::default(), &changed).await?;
                    return Err(error.into());
                }
                made => made?,
            },
            Write::Renumber(changed) => {
                let name = changed.metadata.name.as_deref().unwrap_or_default();
                revisions.replace(name, &PostParams::default(), &changed).await?
            }
        };
        self.dependents.written.wrote(key, &self.revisions, &written);
        Ok(())
    }

    async fn carry_out(&self, key: &Key, set: &Arc<DaemonSet>, hash: &str, plan: &decide::Plan) -> Result<(), Error> {
        let template = decide::template(set, hash);
        let create = |number: usize| {
            let mut pod = pod::from_template(&template, &**set);
            if let (Some(spec), Some(node)) = (&mut pod.spec, plan.create.get(number)) {
                decide::nail(spec, node);
            }
            async move { self.dependents.create(&**set, &pod).await.map(|_| ()) }
        };
        let created = slow_start(plan.create.len(), create).await;
        let delete = plan.delete.iter().map(|(pod, why)| {
            let node = decide::node_of(pod).unwrap_or_default();
            let at = Key::of(&**pod);
            match why {
                Why::Surplus => {}
                Why::Failed => {
                    self.count_failure(key, node);
                    let message = format!("Found failed daemon pod {at} on node {node}, will try to kill it");
                    self.dependents.recorder.tell(&**set, Weight::Warning, "FailedDaemonPod", message);
                }
                Why::Succeeded => {
                    let message = format!("Found succeeded daemon pod {at} on node {node}, will try to delete it");
                    self.dependents.recorder.tell(&**set, Weight::Normal, "SucceededDaemonPod", message);
                }
            }
            self.dependents.delete(&**set, pod)
        });
        let deleted: Result<(), Error> = join_all(delete).await.into_iter().collect();
        created.and(deleted)
    }
}
