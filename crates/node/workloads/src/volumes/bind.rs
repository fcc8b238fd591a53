//! The binder: what claims and volumes say of each other is brought together.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::{
    core::v1::{Node, PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimStatus},
    storage::v1::StorageClass,
};
use kube::{Api, Client, api::PostParams};

use super::{
    claim::{self, Found, NODE, Status},
    matching::annotation,
    volume,
};
use crate::Setting;
use controllers::{
    Controller, Error, Reconciler,
    cache::{Cache, Key},
    code,
    events::Recorder,
    written::{CACHE_RETRY, Written},
};

pub fn controller(setting: &mut Setting) -> Controller {
    let (client, recorder) = setting.actor("persistent-volume-binder", "persistentvolume-controller");
    let mut builder = setting.builder("persistentvolume-binder-controller");
    let all = Binder {
        client,
        recorder,
        claims: builder.reconcile(),
        volumes: builder.reconcile(),
        classes: builder.read(),
        nodes: builder.read(),
        written: Written::default(),
    };
    let volumes = all.volumes.clone();
    builder.on(&all.claims, move |change, queue| {
        change.states().filter_map(|claim| to_volume(claim)).for_each(|volume| queue.add(volume));
        if change.new.is_none() {
            let gone = change.states().map(|claim| Key::of(&**claim)).next();
            let named = volumes.all().into_iter().filter(|volume| to_claim(volume) == gone);
            named.for_each(|volume| queue.add(Key::of(&*volume)));
        }
    });
    let claims = all.claims.clone();
    builder.on(&all.volumes, move |change, queue| {
        change.states().filter_map(|volume| to_claim(volume)).for_each(|claim| queue.add(claim));
        let key = change.states().map(|volume| Key::of(&**volume)).next();
        for claim in claims.all().iter().filter(|claim| waits(claim) || to_volume(claim) == key) {
            queue.add(Key::of(&**claim));
        }
    });
    let claims = all.claims.clone();
    builder.on(&all.classes, move |_, queue| {
        claims.all().iter().filter(|claim| waits(claim)).for_each(|claim| queue.add(Key::of(&**claim)));
    });
    builder.build(all)
}

/// Volumes have no namespace, claims have one: so one queue is enough.
fn to_volume(claim: &PersistentVolumeClaim) -> Option<Key> {
    let name = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).filter(|name| !name.is_empty());
    name.map(|name| Key::new("", name))
}

fn to_claim(volume: &PersistentVolume) -> Option<Key> {
    let reference = volume.spec.as_ref()?.claim_ref.as_ref()?;
    Some(Key::new(reference.namespace.as_deref()?, reference.name.as_deref()?))
}

fn waits(claim: &PersistentVolumeClaim) -> bool {
    claim.status.as_ref().and_then(|status| status.phase.as_deref()) != Some("Bound")
}

struct Binder {
    client: Client,
    recorder: Recorder,
    claims: Arc<Cache<PersistentVolumeClaim>>,
    volumes: Arc<Cache<PersistentVolume>>,
    classes: Arc<Cache<StorageClass>>,
    nodes: Arc<Cache<Node>>,
    written: Written,
}

impl Reconciler for Binder {
    async fn reconcile(&self, key: &Key) -> Result<Option<Duration>, Error> {
        let is_there =
            if key.namespace.is_empty() { self.volumes.get(key).is_some() } else { self.claims.get(key).is_some() };
        if !is_there {
            self.written.forget(key);
            return Ok(None);
        }
        // Asked before anything else is read: what is shown by now is in what is read next.
        if !self.written.is_shown(key) {
            return Ok(Some(CACHE_RETRY));
        }
        match if key.namespace.is_empty() { self.volume(key).await } else { self.claim(key).await } {
            // It went meanwhile, and the cache will say so.
            Err(error) if error.code() == 404 => Ok(None),
            done => done.map(|()| None),
        }
    }
}

impl Binder {
    async fn claim(&self, key: &Key) -> Result<(), Error> {
        let Some(claim) = self.claims.get(key) else { return Ok(()) };
        let node = annotation(&claim.metadata, NODE).and_then(|name| self.nodes.get(&Key::new("", name)));
        let plan = claim::decide(&Found {
            claim: &claim,
            volumes: &self.volumes.all(),
            classes: &self.classes.all(),
            node: node.as_deref(),
        });
        // With the revisions that were read: of two claims that chose the same volume, one is refused and chooses again.
        if let Some(volume) = &plan.volume {
            let name = volume.metadata.name.as_deref().unwrap_or_default();
            let made = self.volumes_api().replace(name, &PostParams::default(), volume).await?;
            self.written.wrote(key, &self.volumes, &made);
        }
        let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &key.namespace);
        let mut latest = (*claim).clone();
        if let Some(changed) = &plan.claim {
            latest = api.replace(&key.name, &PostParams::default(), changed).await?;
            self.written.wrote(key, &self.claims, &latest);
        }
        if let Some(status) = &plan.status {
            latest.status = Some(status_of(&latest, status));
            let made = api.replace_status(&key.name, &PostParams::default(), &latest).await?;
            self.written.wrote(key, &self.claims, &made);
        }
        if let Some(note) = &plan.note {
            note.tell(&self.recorder, &*claim);
        }
        Ok(())
    }

    async fn volume(&self, key: &Key) -> Result<(), Error> {
        let Some(volume) = self.volumes.get(key) else { return Ok(()) };
        let claim = self.claim_of(&volume).await?;
        let plan = volume::decide(&volume, claim.as_deref());
        let mut latest = (*volume).clone();
        if let Some(changed) = &plan.volume {
            latest = self.volumes_api().replace(&key.name, &PostParams::default(), changed).await?;
            self.written.wrote(key, &self.volumes, &latest);
        }
        if let Some((phase, message)) = plan.phase {
            let status = latest.status.get_or_insert_default();
            (status.phase, status.message) = (Some(phase.into()), message);
            let made = self.volumes_api().replace_status(&key.name, &PostParams::default(), &latest).await?;
            self.written.wrote(key, &self.volumes, &made);
        }
        if let Some(note) = &plan.note {
            note.tell(&self.recorder, &*volume);
        }
        Ok(())
    }

    /// The claim that a volume names. That it is gone has to be certain, as data may be removed for it: then the API is asked, not the cache.
    async fn claim_of(&self, volume: &PersistentVolume) -> Result<Option<Arc<PersistentVolumeClaim>>, Error> {
        let reference = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
        let (Some(key), Some(uid)) = (to_claim(volume), reference.and_then(|reference| reference.uid.clone())) else {
            return Ok(None);
        };
        let is_it = |claim: &PersistentVolumeClaim| claim.metadata.uid.as_ref() == Some(&uid);
        let known = self.claims.get(&key).filter(|claim| is_it(claim));
        let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
        if known.is_some() || matches!(phase, Some("Released" | "Failed")) {
            return Ok(known);
        }
        let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &key.namespace);
        match api.get(&key.name).await {
            Ok(claim) => Ok(Some(Arc::new(claim)).filter(|claim| is_it(claim))),
            Err(error) if code(&error) == 404 => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn volumes_api(&self) -> Api<PersistentVolume> {
        Api::all(self.client.clone())
    }
}

pub fn status_of(claim: &PersistentVolumeClaim, status: &Status) -> PersistentVolumeClaimStatus {
    let volume = match status {
        Status::Bound(volume) => volume.spec.as_ref(),
        Status::Pending | Status::Lost => None,
    };
    PersistentVolumeClaimStatus {
        phase: Some(status.phase().into()),
        access_modes: volume.and_then(|spec| spec.access_modes.clone()),
        capacity: volume.and_then(|spec| spec.capacity.clone()),
        ..claim.status.clone().unwrap_or_default()
    }
}
