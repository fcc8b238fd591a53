//! A Deployment with its sets and Pods in a world where everything happens in any order and every cache is late.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet},
    core::v1::Pod,
};
use proptest::prelude::*;
use serde_json::json;

use super::{
    bounds,
    decide::{Step, plan},
    sets, status,
    tests::deployment,
};
use crate::{
    pod,
    replicaset::{Change, manage, set_status},
    world::{Revision, Truth, at},
};
use controllers::{cache::Key, owner, written::Written};

#[derive(Clone, Debug)]
enum Happens {
    Deployment,
    ReplicaSet(usize),
    ShowDeployments(usize),
    ShowSets(usize),
    ShowPods(usize),
    Relist,
    Start(usize),
    Ready(usize),
    Gone(usize),
    /// A new template.
    Image(usize),
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        6 => Just(Happens::Deployment),
        8 => any::<usize>().prop_map(Happens::ReplicaSet),
        2 => (1..4_usize).prop_map(Happens::ShowDeployments),
        4 => (1..4_usize).prop_map(Happens::ShowSets),
        6 => (1..6_usize).prop_map(Happens::ShowPods),
        1 => Just(Happens::Relist),
        6 => any::<usize>().prop_map(Happens::Start),
        6 => any::<usize>().prop_map(Happens::Ready),
        4 => any::<usize>().prop_map(Happens::Gone),
        1 => (0..4_usize).prop_map(Happens::Image),
    ]
}

struct World {
    deployments: Truth<Deployment>,
    sets: Truth<ReplicaSet>,
    pods: Truth<Pod>,
    of_deployment: Written,
    of_sets: Written,
    revision: Revision,
}

impl World {
    fn new(deployment: Deployment) -> Self {
        let revision = Revision::default();
        let mut deployments = Truth::new(&revision);
        deployments.create(deployment);
        deployments.show_all();
        Self {
            deployments,
            sets: Truth::new(&revision),
            pods: Truth::new(&revision),
            of_deployment: Written::default(),
            of_sets: Written::default(),
            revision,
        }
    }

    fn key() -> Key {
        Key::new("ns", "web")
    }

    /// What the rim does, with the optimistic locking that the API has.
    fn deployment(&mut self) {
        let key = Self::key();
        if !self.of_deployment.is_shown(&key) {
            return;
        }
        let seen = self.deployments.cache.get(&key).unwrap();
        let sets: Vec<ReplicaSet> = self.sets.cache.all().iter().map(|set| (**set).clone()).collect();
        let pods = self.pods.cache.all();
        let is_old_running = |new: Option<&str>| {
            let is_old = |pod: &Arc<Pod>| owner::controller_of(&pod.metadata).map(|owner| owner.uid.as_str()) != new;
            pods.iter().any(|pod| is_old(pod) && !pod::is_finished(pod))
        };
        let next = plan(&seen, sets, is_old_running, at(0));
        for step in next.steps {
            match step {
                Step::Create(mut set) => {
                    set.metadata.generation = Some(1);
                    assert!(!self.sets.objects.contains_key(&Key::of(&set)), "its own set is there, and shown");
                    let made = self.sets.create(set);
                    self.of_deployment.wrote(&key, &self.sets.cache, &made);
                }
                Step::Update(mut set, _) => {
                    let at = Key::of(&set);
                    if self.sets.objects[&at].spec != set.spec {
                        *set.metadata.generation.get_or_insert(0) += 1;
                    }
                    if self.sets.objects[&at].metadata.resource_version != set.metadata.resource_version {
                        return;
                    }
                    let made = self.sets.change(&at, |now| *now = set).unwrap();
                    self.of_deployment.wrote(&key, &self.sets.cache, &made);
                }
                Step::Delete(set) => {
                    assert_eq!(
                        self.sets.objects[&Key::of(&set)].metadata.resource_version,
                        set.metadata.resource_version
                    );
                    self.sets.remove(&Key::of(&set));
                    self.of_deployment.deleted(&key, &self.sets.cache, &set);
                }
            }
        }
        if self.deployments.objects[&key].metadata.resource_version == next.deployment.metadata.resource_version
            && *seen != next.deployment
        {
            let made = self.deployments.change(&key, |now| *now = next.deployment).unwrap();
            self.of_deployment.wrote(&key, &self.deployments.cache, &made);
        }
    }

    fn set(&mut self, number: usize) {
        let shown = self.sets.cache.all();
        if shown.is_empty() {
            return;
        }
        let set = shown[number % shown.len()].clone();
        let key = Key::of(&*set);
        if !self.of_sets.is_shown(&key) {
            return;
        }
        let mut pods = self.pods.cache.all();
        pods.retain(|pod| owner::controller_of(&pod.metadata).map(|owner| &owner.uid) == set.metadata.uid.as_ref());
        match manage(&set, &pods, &pods, at(0)) {
            Change::Nothing => {}
            Change::Create(count) => {
                let template = set.spec.as_ref().unwrap().template.as_ref().unwrap();
                for _ in 0..count {
                    let made = self.pods.create(pod::from_template(template, &*set));
                    self.of_sets.wrote(&key, &self.pods.cache, &made);
                }
            }
            Change::Delete(surplus) => {
                for pod in surplus {
                    self.pods.terminate(&Key::of(&*pod));
                    self.of_sets.deleted(&key, &self.pods.cache, &*pod);
                }
            }
        }
        let (status, _) = set_status(&set, &pods, None, at(0));
        let now = self.sets.objects.get(&key).map(|now| now.metadata.resource_version.clone());
        if now.is_some_and(|now| now == set.metadata.resource_version) && set.status.as_ref() != Some(&status) {
            self.sets.change(&key, |now| now.status = Some(status));
        }
    }

    fn happen(&mut self, what: &Happens) {
        match *what {
            Happens::Deployment => self.deployment(),
            Happens::ReplicaSet(n) => self.set(n),
            Happens::ShowDeployments(events) => self.deployments.show(events),
            Happens::ShowSets(events) => self.sets.show(events),
            Happens::ShowPods(events) => self.pods.show(events),
            Happens::Relist => {
                self.sets.relist();
                self.pods.relist();
            }
            Happens::Image(n) => {
                let template = deployment(&format!("v{n}"), json!({})).spec.unwrap().template;
                self.deployments.change(&Self::key(), |deployment| {
                    deployment.spec.as_mut().unwrap().template = template;
                    *deployment.metadata.generation.get_or_insert(1) += 1;
                });
            }
            Happens::Start(n) | Happens::Ready(n) | Happens::Gone(n) => {
                let Some(key) = self.pods.pick(n) else { return };
                let pod = &self.pods.objects[&key];
                match what {
                    Happens::Start(_) => self.pods.start(&key, "n"),
                    Happens::Ready(_) if pod::phase(pod) == "Running" => self.pods.set_ready(&key, true, at(0)),
                    Happens::Gone(_) if pod::is_deleting(pod) => {
                        self.pods.remove(&key);
                    }
                    _ => {}
                }
            }
        }
    }

    fn show_all(&mut self) {
        self.deployments.show_all();
        self.sets.show_all();
        self.pods.show_all();
    }

    fn counts(&self) -> (i32, i32) {
        let active = self.pods.objects.values().filter(|pod| pod::is_active(pod));
        active.fold((0, 0), |(all, ready), pod| (all + 1, ready + i32::from(pod::is_ready(pod))))
    }

    /// Everything happens until nothing does any more.
    fn settle(&mut self) {
        for _ in 0..60 {
            let before = self.revision.get();
            self.show_all();
            self.deployment();
            self.show_all();
            for number in 0..self.sets.objects.len() {
                self.set(number);
            }
            for key in self.pods.objects.keys().cloned().collect::<Vec<_>>() {
                if pod::is_deleting(&self.pods.objects[&key]) {
                    self.pods.remove(&key);
                } else if !pod::is_ready(&self.pods.objects[&key]) {
                    self.pods.start(&key, "n");
                    self.pods.set_ready(&key, true, at(0));
                }
            }
            if self.revision.get() == before {
                break;
            }
        }
        self.show_all();
    }
}

fn images(world: &World) -> BTreeMap<String, usize> {
    let mut images = BTreeMap::new();
    for pod in world.pods.objects.values().filter(|pod| pod::is_active(pod)) {
        *images.entry(pod.spec.as_ref().unwrap().containers[0].image.clone().unwrap()).or_default() += 1;
    }
    images
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    /// Pods only become ready or are taken away by the controllers: then there are never fewer available than the minimum once there were
    /// enough, and never more than the surge allows, however late every cache is. In the end all are of the last template.
    #[test]
    fn a_rolling_update_stays_within_its_bounds(
        (surge, unavailable) in prop_oneof![Just((1, 0)), Just((0, 1)), Just((2, 1)), Just((0, 4)), Just((4, 0))],
        events in prop::collection::vec(happens(), 0..250),
    ) {
        let how = json!({"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}});
        let mut world = World::new(deployment("v0", how));
        world.settle();
        let wanted = bounds::replicas(&world.deployments.objects[&World::key()]);
        prop_assert_eq!(world.counts(), (wanted, wanted));
        for event in &events {
            world.happen(event);
            let (all, ready) = world.counts();
            prop_assert!(all <= wanted + surge, "{all} are too many after {event:?}");
            prop_assert!(ready >= wanted - unavailable, "{ready} are too few after {event:?}");
        }
        world.settle();
        let end = &world.deployments.objects[&World::key()];
        let image = end.spec.as_ref().unwrap().template.spec.as_ref().unwrap().containers[0].image.clone().unwrap();
        prop_assert_eq!(images(&world), BTreeMap::from([(image, 4)]));
        prop_assert!(status::is_complete(end, end.status.as_ref().unwrap()));
        // Every template has one set, and the newest the highest revision.
        let revisions: Vec<i64> = world.sets.objects.values().map(|set| sets::revision(&set.metadata)).collect();
        let unique: std::collections::BTreeSet<&i64> = revisions.iter().collect();
        prop_assert_eq!(unique.len(), revisions.len());
    }

    /// With `Recreate` Pods of two templates are never there together.
    #[test]
    fn recreate_never_mixes(events in prop::collection::vec(happens(), 0..250)) {
        let mut world = World::new(deployment("v0", json!({"strategy": {"type": "Recreate"}})));
        world.settle();
        for event in &events {
            world.happen(event);
            let there: std::collections::BTreeSet<_> =
                world.pods.objects.values().map(|pod| pod.spec.as_ref().unwrap().containers[0].image.clone()).collect();
            prop_assert!(there.len() <= 1, "{there:?} after {event:?}");
        }
        world.settle();
        prop_assert_eq!(images(&world).values().sum::<usize>(), 4);
    }
}
