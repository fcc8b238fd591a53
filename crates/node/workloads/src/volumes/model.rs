//! Claims and volumes with controllers whose caches are late, and people who make and delete them at any time.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::{
    api::{
        core::v1::{PersistentVolume, PersistentVolumeClaim},
        storage::v1::StorageClass,
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use proptest::prelude::*;
use serde_json::json;

use super::{
    bind::status_of,
    claim::{self, Found},
    protect, tests, volume,
};
use crate::world::{Revision, Truth, at};
use controllers::{
    cache::{Key, Kind},
    written::Written,
};

#[derive(Clone, Debug)]
enum Happens {
    Claim(usize),
    Volume(usize),
    Protect,
    ShowClaims(usize),
    ShowVolumes(usize),
    Relist,
    /// Somebody makes a claim: of this size, and some with the volume's name.
    Ask(u8, Option<u8>),
    /// Somebody makes a volume, some reserved for a claim of that name.
    Offer(u8, Option<u8>),
    DropClaim(usize),
    DropVolume(usize),
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        6 => any::<usize>().prop_map(Happens::Claim),
        6 => any::<usize>().prop_map(Happens::Volume),
        2 => Just(Happens::Protect),
        3 => (1..4_usize).prop_map(Happens::ShowClaims),
        3 => (1..4_usize).prop_map(Happens::ShowVolumes),
        1 => Just(Happens::Relist),
        2 => (1..4_u8, prop::option::weighted(0.2, 0..6_u8)).prop_map(|(size, of)| Happens::Ask(size, of)),
        2 => (1..4_u8, prop::option::weighted(0.2, 0..6_u8)).prop_map(|(size, of)| Happens::Offer(size, of)),
        1 => any::<usize>().prop_map(Happens::DropClaim),
        1 => any::<usize>().prop_map(Happens::DropVolume),
    ]
}

struct World {
    revision: Revision,
    claims: Truth<PersistentVolumeClaim>,
    volumes: Truth<PersistentVolume>,
    written: Written,
    made: usize,
}

/// Writes as the API takes it: only on top of what was read.
fn replace<K: Kind>(truth: &mut Truth<K>, written: K) -> Option<K> {
    let key = Key::of(&written);
    let meta: &ObjectMeta = truth.objects.get(&key)?.meta();
    let is_current = meta.resource_version == written.meta().resource_version && meta.uid == written.meta().uid;
    let is_over =
        written.meta().deletion_timestamp.is_some() && written.meta().finalizers.as_ref().is_none_or(Vec::is_empty);
    match (is_current, is_over) {
        (false, _) => None,
        (true, true) => truth.remove(&key),
        (true, false) => truth.change(&key, |object| *object = written),
    }
}

fn drop_one<K: Kind>(truth: &mut Truth<K>, n: usize) {
    let Some(key) = truth.pick(n) else { return };
    truth.change(&key, |object| {
        object.meta_mut().deletion_timestamp.get_or_insert(Time(at(0)));
    });
}

impl World {
    fn new() -> Self {
        let revision = Revision::default();
        let (claims, volumes) = (Truth::new(&revision), Truth::new(&revision));
        Self { revision, claims, volumes, written: Written::default(), made: 0 }
    }

    fn reconcile_claim(&mut self, key: &Key) {
        let Some(claim) = self.claims.cache.get(key) else { return self.written.forget(key) };
        if !self.written.is_shown(key) {
            return;
        }
        let volumes = self.volumes.cache.all();
        let classes: [Arc<StorageClass>; 0] = [];
        let plan = claim::decide(&Found { claim: &claim, volumes: &volumes, classes: &classes, node: None });
        if let Some(volume) = plan.volume {
            let Some(made) = replace(&mut self.volumes, volume) else { return };
            self.written.wrote(key, &self.volumes.cache, &made);
        }
        let mut latest = (*claim).clone();
        if let Some(changed) = plan.claim {
            let Some(made) = replace(&mut self.claims, changed) else { return };
            self.written.wrote(key, &self.claims.cache, &made);
            latest = made;
        }
        if let Some(status) = plan.status {
            let status = status_of(&latest, &status);
            if let Some(made) = replace(&mut self.claims, PersistentVolumeClaim { status: Some(status), ..latest }) {
                self.written.wrote(key, &self.claims.cache, &made);
            }
        }
    }

    fn reconcile_volume(&mut self, key: &Key) {
        let Some(volume) = self.volumes.cache.get(key) else { return self.written.forget(key) };
        if !self.written.is_shown(key) {
            return;
        }
        let named = volume
            .spec
            .as_ref()
            .and_then(|spec| spec.claim_ref.as_ref())
            .map(|reference| Key::new(reference.namespace.as_deref().unwrap(), reference.name.as_deref().unwrap()));
        // As the API has it, as the rim asks.
        let claim = named.and_then(|key| self.claims.objects.get(&key)).cloned();
        let plan = volume::decide(&volume, claim.as_ref());
        let mut latest = (*volume).clone();
        if let Some(changed) = plan.volume {
            let Some(made) = replace(&mut self.volumes, changed) else { return };
            self.written.wrote(key, &self.volumes.cache, &made);
            latest = made;
        }
        if let Some((phase, _)) = plan.phase {
            latest.status.get_or_insert_default().phase = Some(phase.into());
            if let Some(made) = replace(&mut self.volumes, latest) {
                self.written.wrote(key, &self.volumes.cache, &made);
            }
        }
    }

    fn protect(&mut self) {
        for claim in self.claims.cache.all() {
            let next = protect::next(&claim.metadata, protect::CLAIM, || false);
            if next != protect::Next::Nothing {
                let mut changed = (*claim).clone();
                protect::change(&mut changed.metadata, protect::CLAIM, next);
                replace(&mut self.claims, changed);
            }
        }
        for volume in self.volumes.cache.all() {
            let next = protect::next(&volume.metadata, protect::VOLUME, || protect::is_volume_used(&volume));
            if next != protect::Next::Nothing {
                let mut changed = (*volume).clone();
                protect::change(&mut changed.metadata, protect::VOLUME, next);
                replace(&mut self.volumes, changed);
            }
        }
    }

    fn happen(&mut self, event: Happens) {
        match event {
            Happens::Claim(n) => _ = self.claims.pick(n).map(|key| self.reconcile_claim(&key)),
            Happens::Volume(n) => _ = self.volumes.pick(n).map(|key| self.reconcile_volume(&key)),
            Happens::Protect => self.protect(),
            Happens::ShowClaims(events) => self.claims.show(events),
            Happens::ShowVolumes(events) => self.volumes.show(events),
            Happens::Relist => {
                self.claims.relist();
                self.volumes.relist();
            }
            Happens::Ask(size, of) => {
                // Names come again after their objects are gone.
                let name = format!("c{}", self.made % 6);
                self.made += 1;
                let mut spec = json!({"resources": {"requests": {"storage": format!("{size}Gi")}}});
                if let Some(of) = of {
                    spec["volumeName"] = format!("v{of}").into();
                }
                let mut claim = tests::claim(&name, spec);
                claim.metadata.finalizers = Some(vec![protect::CLAIM.into()]);
                if !self.claims.objects.contains_key(&Key::of(&claim)) {
                    self.claims.create(claim);
                }
            }
            Happens::Offer(size, of) => {
                let name = format!("v{}", self.made % 6);
                self.made += 1;
                let spec = match of {
                    Some(of) => json!({"claimRef": {"namespace": "ns", "name": format!("c{of}")}}),
                    None => json!({}),
                };
                let mut volume = (*tests::volume(&name, &format!("{size}Gi"), spec)).clone();
                volume.metadata.finalizers = Some(vec![protect::VOLUME.into()]);
                volume.status.as_mut().unwrap().phase = Some("Pending".into());
                if !self.volumes.objects.contains_key(&Key::of(&volume)) {
                    self.volumes.create(volume);
                }
            }
            Happens::DropClaim(n) => drop_one(&mut self.claims, n),
            Happens::DropVolume(n) => drop_one(&mut self.volumes, n),
        }
    }

    /// No two claims ever have the same volume, and one that is bound has one that says the same.
    fn check(&self) {
        let mut owners: BTreeMap<String, String> = BTreeMap::new();
        for claim in self.claims.objects.values() {
            let (name, spec) = (claim.metadata.name.clone().unwrap(), claim.spec.as_ref().unwrap());
            if claim.status.as_ref().and_then(|status| status.phase.as_deref()) != Some("Bound") {
                continue;
            }
            let volume = spec.volume_name.clone().unwrap();
            if let Some(other) = owners.insert(volume.clone(), name.clone()) {
                panic!("{volume} belongs to {name} and {other}");
            }
            let Some(volume) = self.volumes.objects.get(&Key::new("", &volume)) else {
                panic!("the volume of {name} went away under it");
            };
            let reference = volume.spec.as_ref().unwrap().claim_ref.as_ref().unwrap();
            assert_eq!(reference.uid, claim.metadata.uid, "{name} has a volume that is another's");
        }
    }

    fn settle(&mut self) {
        for _ in 0..60 {
            self.claims.show_all();
            self.volumes.show_all();
            for key in self.claims.objects.keys().cloned().collect::<Vec<_>>() {
                self.reconcile_claim(&key);
            }
            for key in self.volumes.objects.keys().cloned().collect::<Vec<_>>() {
                self.reconcile_volume(&key);
            }
            self.protect();
            self.check();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nobody_shares_a_volume_and_nobody_waits_in_vain(events in prop::collection::vec(happens(), 0..120)) {
        let mut world = World::new();
        for event in events {
            world.happen(event);
            world.check();
        }
        world.settle();
        let before = world.revision.get();
        world.settle();
        assert_eq!(world.revision.get(), before, "nothing is left to do, and yet something is written");
        for claim in world.claims.objects.values() {
            assert!(claim.metadata.deletion_timestamp.is_none(), "a claim that nobody uses is held");
            let phase = claim.status.as_ref().unwrap().phase.clone().unwrap();
            let is_free = |volume: &PersistentVolume| {
                volume.spec.as_ref().unwrap().claim_ref.is_none() && volume.metadata.deletion_timestamp.is_none()
            };
            let could_have = world.volumes.objects.values().any(|volume| {
                is_free(volume) && super::matching::mismatch(volume, claim).is_none()
            });
            let asks_by_name = claim.spec.as_ref().unwrap().volume_name.is_some();
            assert!(phase != "Pending" || asks_by_name || !could_have, "{:?} waits in vain", claim.metadata.name);
        }
        for volume in world.volumes.objects.values() {
            let phase = volume.status.as_ref().unwrap().phase.as_deref().unwrap();
            assert!(volume.metadata.deletion_timestamp.is_none() || phase == "Bound", "a volume that nobody uses is held: {volume:?}");
        }
    }
}
