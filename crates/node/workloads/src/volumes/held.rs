//! The finalizers of claims and volumes: they come with them, and go when nobody uses them any more.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::{
    Api, Client,
    api::{ListParams, PostParams},
};

use super::protect::{self, Next};
use crate::Setting;
use controllers::{
    Controller, Error, Reconciler,
    cache::{Cache, Key},
    code,
};

pub fn of_claims(setting: &mut Setting) -> Controller {
    let (client, _) = setting.actor("pvc-protection-controller", "pvc-protection-controller");
    let mut builder = setting.builder("persistentvolumeclaim-protection-controller");
    let all = Claims { client, claims: builder.read(), pods: builder.read() };
    builder.on(&all.claims, |change, queue| change.new.iter().for_each(|claim| queue.add(Key::of(&**claim))));
    let claims = all.claims.clone();
    builder.on(&all.pods, move |change, queue| {
        // Only the end of a Pod can set a claim free.
        let (Some(pod), None) = (&change.old, &change.new) else { return };
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        for key in protect::claims(pod).map(|name| Key::new(namespace, &name)) {
            if claims.get(&key).is_some_and(|claim| claim.metadata.deletion_timestamp.is_some()) {
                queue.add(key);
            }
        }
    });
    builder.build(all)
}

struct Claims {
    client: Client,
    claims: Arc<Cache<PersistentVolumeClaim>>,
    pods: Arc<Cache<Pod>>,
}

impl Reconciler for Claims {
    async fn reconcile(&self, key: &Key) -> Result<Option<Duration>, Error> {
        let Some(claim) = self.claims.get(key) else { return Ok(None) };
        let pods = self.pods.within(&key.namespace);
        let next = protect::next(&claim.metadata, protect::CLAIM, || protect::is_claim_used(&key.name, &pods));
        // A Pod that the cache does not show yet may use it.
        if next == Next::Nothing || next == Next::LetGo && self.is_used(key).await? {
            return Ok(None);
        }
        let mut changed = (*claim).clone();
        protect::change(&mut changed.metadata, protect::CLAIM, next);
        let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &key.namespace);
        written(api.replace(&key.name, &PostParams::default(), &changed).await)
    }
}

impl Claims {
    async fn is_used(&self, key: &Key) -> Result<bool, Error> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &key.namespace);
        let pods = api.list(&ListParams::default()).await?.items;
        Ok(protect::is_claim_used(&key.name, &pods.into_iter().map(Arc::new).collect::<Vec<_>>()))
    }
}

pub fn of_volumes(setting: &mut Setting) -> Controller {
    let (client, _) = setting.actor("pv-protection-controller", "pv-protection-controller");
    let mut builder = setting.builder("persistentvolume-protection-controller");
    let all = Volumes { client, volumes: builder.read() };
    builder.on(&all.volumes, |change, queue| change.new.iter().for_each(|volume| queue.add(Key::of(&**volume))));
    builder.build(all)
}

struct Volumes {
    client: Client,
    volumes: Arc<Cache<PersistentVolume>>,
}

impl Reconciler for Volumes {
    async fn reconcile(&self, key: &Key) -> Result<Option<Duration>, Error> {
        let Some(volume) = self.volumes.get(key) else { return Ok(None) };
        let next = protect::next(&volume.metadata, protect::VOLUME, || protect::is_volume_used(&volume));
        if next == Next::Nothing {
            return Ok(None);
        }
        let mut changed = (*volume).clone();
        protect::change(&mut changed.metadata, protect::VOLUME, next);
        let api: Api<PersistentVolume> = Api::all(self.client.clone());
        written(api.replace(&key.name, &PostParams::default(), &changed).await)
    }
}

/// One that is gone needs nothing any more.
fn written<K>(result: Result<K, kube::Error>) -> Result<Option<Duration>, Error> {
    match result {
        Err(error) if code(&error) != 404 => Err(error.into()),
        _ => Ok(None),
    }
}
