//! StatefulSets: Pods with a number, a name and claims that stay.

mod decide;
#[cfg(test)]
mod model;
mod pod;
mod revision;
#[cfg(test)]
mod tests;
mod told;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::{
    apps::v1::{ControllerRevision, StatefulSet},
    core::v1::{PersistentVolumeClaim, Pod},
};
use kube::{
    Api, Client,
    api::{DeleteParams, PostParams, Preconditions},
};

#[cfg(test)]
pub use tests::CASES;

use self::{
    decide::{Found, Plan, decide},
    revision::Write,
};
use crate::Setting;
use controllers::{
    Controller, Error, Reconciler,
    batch::slow_start,
    cache::{Cache, Key},
    code,
    dependents::{is_namespace_terminating, message_of},
    events::Recorder,
    note::Note,
    owner::{self, Selects},
    written::{CACHE_RETRY, Written},
};

pub fn controller(setting: &mut Setting) -> Controller {
    let (client, recorder) = setting.actor("statefulset-controller", "statefulset-controller");
    let mut builder = setting.builder("statefulset-controller");
    let all = StatefulSets {
        client,
        recorder,
        sets: builder.reconcile(),
        pods: builder.read(),
        revisions: builder.read(),
        claims: builder.read(),
        written: Written::default(),
    };
    builder.on_adoptable(&all.pods, &all.sets, selects);
    builder.on_owned::<StatefulSet, _>(&all.revisions);
    let sets = all.sets.clone();
    builder.on(&all.claims, move |change, queue| {
        // A Pod may wait for a claim that is gone.
        let Some(claim) = change.states().last().filter(|_| change.new.is_none() || change.old.is_none()) else {
            return;
        };
        for set in sets.within(claim.metadata.namespace.as_deref().unwrap_or_default()) {
            if set.spec.as_ref().is_some_and(|spec| spec.volume_claim_templates.is_some()) {
                queue.add(Key::of(&*set));
            }
        }
    });
    builder.build(all)
}

fn selects(set: &StatefulSet) -> Result<Selects, Error> {
    Selects::new(set.spec.as_ref().map(|spec| &spec.selector))
}

struct StatefulSets {
    client: Client,
    recorder: Recorder,
    sets: Arc<Cache<StatefulSet>>,
    pods: Arc<Cache<Pod>>,
    revisions: Arc<Cache<ControllerRevision>>,
    claims: Arc<Cache<PersistentVolumeClaim>>,
    written: Written,
}

impl Reconciler for StatefulSets {
    async fn reconcile(&self, key: &Key) -> Result<Option<Duration>, Error> {
        let Some(set) = self.sets.get(key) else {
            self.written.forget(key);
            return Ok(None);
        };
        // Asked before anything else is read: what is shown by now is in what is read next.
        if !self.written.is_shown(key) {
            return Ok(Some(CACHE_RETRY));
        }
        let selects = selects(&set)?;
        let sets: Api<StatefulSet> = Api::namespaced(self.client.clone(), &key.namespace);
        let revisions = self.revisions.within(&key.namespace);
        let revisions = owner::claim_all(&sets, &*set, &selects, &self.api(key), revisions).await?;
        let mut pods = self.pods.within(&key.namespace);
        // A Pod whose name says that it is another's is not adopted.
        pods.retain(|one| owner::controller_of(&one.metadata).is_some() || pod::ordinal(&set, one).is_some());
        let pods = owner::claim_all(&sets, &*set, &selects, &self.api(key), pods).await?;
        let claims = self.claims.within(&key.namespace);
        let by_name = claims.iter().filter_map(|claim| Some((claim.metadata.name.clone()?, &**claim)));
        let found = Found {
            set: &set,
            revisions: &revisions.iter().map(|one| &**one).collect::<Vec<_>>(),
            pods: &pods.iter().map(|one| &**one).collect::<Vec<_>>(),
            claims: &by_name.collect::<BTreeMap<_, _>>(),
            now: Timestamp::now(),
        };
        let plan = decide(&found);
        let (status, done) = match self.act(key, &set, &plan, &found).await {
            Ok(true) => (plan.status, Ok(plan.again)),
            Ok(false) => {
                // Another revision has the name: the next hash is made with this number.
                let mut status = set.status.clone().unwrap_or_default();
                status.collision_count = Some(status.collision_count.unwrap_or(0).saturating_add(1));
                (status, Ok(plan.again))
            }
            // Whoever waits for the set shall see that it was looked at, and how it stands.
            Err(error) => (plan.counted, Err(error)),
        };
        if set.status.as_ref() != Some(&status) {
            let changed = StatefulSet { status: Some(status), ..(*set).clone() };
            let made = sets.replace_status(&key.name, &PostParams::default(), &changed).await?;
            self.written.wrote(key, &self.sets, &made);
        }
        done
    }
}

impl StatefulSets {
    fn api<K>(&self, key: &Key) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), &key.namespace)
    }

    /// False if the name of a new revision is taken.
    async fn act(&self, key: &Key, set: &StatefulSet, plan: &Plan, found: &Found<'_>) -> Result<bool, Error> {
        if !self.write_revision(key, set, plan.revision.as_ref()).await? {
            return Ok(false);
        }
        for name in &plan.forget {
            ignore_gone(self.api::<ControllerRevision>(key).delete(name, &DeleteParams::default()).await)?;
        }
        let claims = self.api::<PersistentVolumeClaim>(key);
        for claim in &plan.claims {
            match claims.create(&PostParams::default(), claim).await {
                Ok(made) => {
                    self.written.wrote(key, &self.claims, &made);
                    self.tell(set, told::claim(set, claim, None));
                }
                Err(error) if is_namespace_terminating(&error) || code(&error) == 409 => {}
                Err(error) => {
                    self.tell(set, told::claim(set, claim, Some(&message_of(&error))));
                    return Err(error.into());
                }
            }
        }
        for (name, owners) in &plan.owners {
            let Some(have) = found.claims.get(name) else { continue };
            let mut changed = (*have).clone();
            changed.metadata.owner_references = Some(owners.clone());
            ignore_gone(claims.replace(name, &PostParams::default(), &changed).await)?;
        }
        let pods = self.api::<Pod>(key);
        for one in
            found.pods.iter().filter(|one| one.metadata.name.as_ref().is_some_and(|name| plan.delete.contains(name)))
        {
            let preconditions = Preconditions { uid: one.metadata.uid.clone(), resource_version: None };
            let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
            match pods.delete(one.metadata.name.as_deref().unwrap_or_default(), &params).await {
                Err(error) if !matches!(code(&error), 404 | 409) => {
                    self.tell(set, told::pod(set, one, "Delete", Some(&message_of(&error))));
                    return Err(error.into());
                }
                _ => {
                    self.written.deleted(key, &self.pods, *one);
                    self.tell(set, told::pod(set, one, "Delete", None));
                }
            }
        }
        slow_start(plan.create.len(), |n| self.create(key, set, &pods, &plan.create[n])).await?;
        Ok(true)
    }

    async fn write_revision(&self, key: &Key, set: &StatefulSet, write: Option<&Write>) -> Result<bool, Error> {
        let api = self.api::<ControllerRevision>(key);
        let made = match write {
            None => return Ok(true),
            Some(Write::Renumber(one)) => {
                api.replace(one.metadata.name.as_deref().unwrap_or_default(), &PostParams::default(), one).await?
            }
            Some(Write::Create(one)) => match api.create(&PostParams::default(), one).await {
                Ok(made) => made,
                Err(error) if code(&error) == 409 => {
                    let there = api.get(one.metadata.name.as_deref().unwrap_or_default()).await?;
                    let ours =
                        owner::controller_of(&there.metadata).map(|owner| &owner.uid) == set.metadata.uid.as_ref();
                    if !ours || there.data != one.data {
                        return Ok(false);
                    }
                    there
                }
                Err(error) if is_namespace_terminating(&error) => return Ok(true),
                Err(error) => return Err(error.into()),
            },
        };
        self.written.wrote(key, &self.revisions, &made);
        Ok(true)
    }

    async fn create(&self, key: &Key, set: &StatefulSet, pods: &Api<Pod>, pod: &Pod) -> Result<(), Error> {
        match pods.create(&PostParams::default(), pod).await {
            Ok(made) => {
                self.written.wrote(key, &self.pods, &made);
                self.tell(set, told::pod(set, pod, "Create", None));
                Ok(())
            }
            Err(error) if is_namespace_terminating(&error) => Ok(()),
            Err(error) => {
                // Somebody else's Pod has the name: that is not told each time.
                if code(&error) != 409 {
                    self.tell(set, told::pod(set, pod, "Create", Some(&message_of(&error))));
                }
                Err(error.into())
            }
        }
    }

    fn tell(&self, set: &StatefulSet, note: Note) {
        note.tell(&self.recorder, set);
    }
}

fn ignore_gone<T>(result: Result<T, kube::Error>) -> Result<(), Error> {
    match result {
        Err(error) if code(&error) != 404 => Err(error.into()),
        _ => Ok(()),
    }
}
