//! A StatefulSet in a world where Pods come and go in any order and caches are late.

use std::collections::BTreeMap;

use k8s_openapi::api::{
    apps::v1::{ControllerRevision, StatefulSet},
    core::v1::{PersistentVolumeClaim, Pod},
};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    decide::{Found, Plan, decide},
    pod::{ordinal, revision},
    revision::Write,
};
use crate::{
    pod,
    world::{Revision, Truth, at, parse},
};
use controllers::{cache::Key, written::Written};

pub struct World {
    pub sets: Truth<StatefulSet>,
    pub pods: Truth<Pod>,
    pub revisions: Truth<ControllerRevision>,
    pub claims: Truth<PersistentVolumeClaim>,
    written: Written,
    /// Names, in the order in which they were made and deleted.
    pub made: Vec<String>,
    pub deleted: Vec<String>,
    /// Whether the API takes no Pods.
    pub refuses: bool,
}

impl World {
    pub fn new(spec: &Value) -> Self {
        let revision = Revision::default();
        let mut all = json!({
            "selector": {"matchLabels": {"app": "s"}}, "serviceName": "svc", "replicas": 3,
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
            "template": {"metadata": {"labels": {"app": "s"}}, "spec": {"containers": [{"name": "c", "image": "v1"}]}},
        });
        for (name, value) in spec.as_object().unwrap() {
            all[name] = value.clone();
        }
        let mut sets = Truth::new(&revision);
        sets.create(parse(json!({"metadata": {"name": "s", "namespace": "ns", "generation": 1}, "spec": all})));
        Self {
            sets,
            pods: Truth::new(&revision),
            revisions: Truth::new(&revision),
            claims: Truth::new(&revision),
            written: Written::default(),
            made: Vec::new(),
            deleted: Vec::new(),
            refuses: false,
        }
    }

    pub fn key() -> Key {
        Key::new("ns", "s")
    }

    pub fn set(&self) -> &StatefulSet {
        &self.sets.objects[&Self::key()]
    }

    pub fn change(&mut self, change: impl FnOnce(&mut Value)) {
        self.sets.change(&Self::key(), |set| {
            let mut spec = serde_json::to_value(set.spec.as_ref().unwrap()).unwrap();
            change(&mut spec);
            set.spec = Some(parse(spec));
        });
    }

    pub fn image(&mut self, image: &str) {
        self.change(|spec| spec["template"]["spec"]["containers"][0]["image"] = image.into());
    }

    pub fn show_all(&mut self) {
        self.show(usize::MAX);
    }

    fn show(&mut self, events: usize) {
        self.sets.show(events);
        self.pods.show(events);
        self.revisions.show(events);
        self.claims.show(events);
    }

    pub fn reconcile(&mut self) {
        if !self.written.is_shown(&Self::key()) {
            return;
        }
        let Some(set) = self.sets.cache.get(&Self::key()) else { return };
        let (pods, revisions, claims) = (self.pods.cache.all(), self.revisions.cache.all(), self.claims.cache.all());
        let found = Found {
            set: &set,
            revisions: &revisions.iter().map(|one| &**one).collect::<Vec<_>>(),
            pods: &pods.iter().map(|one| &**one).collect::<Vec<_>>(),
            claims: &claims.iter().map(|one| (one.metadata.name.clone().unwrap(), &**one)).collect::<BTreeMap<_, _>>(),
            now: at(0),
        };
        let plan = decide(&found);
        check(&found, &plan);
        self.act(&set, plan);
    }

    fn act(&mut self, set: &StatefulSet, plan: Plan) {
        let key = Self::key();
        match plan.revision {
            None => {}
            Some(Write::Create(one)) => {
                let made = self.revisions.create(*one);
                self.written.wrote(&key, &self.revisions.cache, &made);
            }
            Some(Write::Renumber(one)) => {
                let made = self.revisions.change(&Key::of(&*one), |there| there.revision = one.revision).unwrap();
                self.written.wrote(&key, &self.revisions.cache, &made);
            }
        }
        for name in plan.forget {
            self.revisions.remove(&Key::new("ns", &name));
        }
        for claim in plan.claims {
            let made = self.claims.create(claim);
            self.written.wrote(&key, &self.claims.cache, &made);
        }
        for (name, owners) in plan.owners {
            self.claims.change(&Key::new("ns", &name), |claim| claim.metadata.owner_references = Some(owners));
        }
        for name in plan.delete {
            let at = Key::new("ns", &name);
            if let Some(seen) = self.pods.objects.get(&at).cloned() {
                self.written.deleted(&key, &self.pods.cache, &seen);
                self.pods.terminate(&at);
            }
            self.deleted.push(name);
        }
        let status = if self.refuses && !plan.create.is_empty() { plan.counted } else { plan.status };
        for one in plan.create.into_iter().filter(|_| !self.refuses) {
            self.made.push(one.metadata.name.clone().unwrap());
            let made = self.pods.create(one);
            self.written.wrote(&key, &self.pods.cache, &made);
        }
        if self.set().metadata.resource_version == set.metadata.resource_version && set.status.as_ref() != Some(&status)
        {
            let made = self.sets.change(&key, |set| set.status = Some(status)).unwrap();
            self.written.wrote(&key, &self.sets.cache, &made);
        }
    }

    /// All that can start does, all that was deleted goes, until nothing changes.
    pub fn settle(&mut self) {
        for _ in 0..40 {
            self.show_all();
            self.reconcile();
            self.run_all();
        }
        self.show_all();
    }

    /// Once, without making anything ready.
    pub fn step(&mut self) {
        self.show_all();
        self.reconcile();
        self.show_all();
    }

    pub fn run_all(&mut self) {
        for key in self.pods.objects.keys().cloned().collect::<Vec<_>>() {
            self.run(&key);
        }
    }

    pub fn run(&mut self, key: &Key) {
        let one = &self.pods.objects[key];
        if pod::is_deleting(one) {
            self.pods.remove(key);
        } else if !pod::is_finished(one) {
            self.pods.start(key, "n");
            self.pods.set_ready(key, true, at(0));
        }
    }

    pub fn names(&self) -> Vec<String> {
        self.pods.objects.keys().map(|key| key.name.clone()).collect()
    }

    pub fn images(&self) -> Vec<String> {
        let image = |pod: &Pod| pod.spec.as_ref().unwrap().containers[0].image.clone().unwrap();
        self.pods.objects.values().map(image).collect()
    }

    pub fn status(&self) -> Value {
        serde_json::to_value(self.set().status.as_ref().unwrap()).unwrap()
    }
}

fn is_healthy(pod: &Pod) -> bool {
    pod::is_ready(pod) && pod::phase(pod) == "Running" && !pod::is_deleting(pod)
}

/// What holds of every plan, whatever was found.
fn check(found: &Found<'_>, plan: &Plan) {
    let spec = found.set.spec.as_ref().unwrap();
    let by_ordinal: BTreeMap<i32, &Pod> =
        found.pods.iter().filter_map(|pod| Some((ordinal(found.set, pod)?, *pod))).collect();
    let start = spec.ordinals.as_ref().and_then(|ordinals| ordinals.start).unwrap_or(0);
    let end = start + spec.replicas.unwrap_or(1);
    let ordered = spec.pod_management_policy.as_deref() != Some("Parallel");
    let rolling = spec.update_strategy.as_ref().unwrap().rolling_update.as_ref();
    let partition = rolling.and_then(|rolling| rolling.partition).unwrap_or(0);
    let several = rolling.is_some_and(|rolling| rolling.max_unavailable.is_some());
    assert!(!ordered || several || plan.create.len() + plan.delete.len() <= 1, "one after the other");
    for one in &plan.create {
        let ordinal = ordinal(found.set, one).unwrap();
        assert!((start..end).contains(&ordinal) && !by_ordinal.contains_key(&ordinal));
        let below = (start..ordinal).all(|below| by_ordinal.get(&below).is_some_and(|pod| is_healthy(pod)));
        assert!(!ordered || below, "{ordinal} before those below it");
    }
    for name in &plan.delete {
        let (ordinal, one) = by_ordinal.iter().find(|(_, pod)| pod.metadata.name.as_ref() == Some(name)).unwrap();
        assert!(!pod::is_deleting(one), "once is enough");
        if (start..end).contains(ordinal) && !pod::is_finished(one) {
            assert!(*ordinal >= start + partition, "{ordinal} is below the partition");
            assert!(Some(revision(one)) != plan.status.update_revision.as_deref(), "{ordinal} has the new revision");
            let above = by_ordinal
                .range(ordinal + 1..end)
                .all(|(_, pod)| is_healthy(pod) && Some(revision(pod)) == plan.status.update_revision.as_deref());
            assert!(above || several, "{ordinal} before those above it");
        } else if !(start..end).contains(ordinal) && ordered {
            let higher = by_ordinal.range(ordinal + 1..).any(|(other, _)| !(start..end).contains(other));
            assert!(!higher, "{ordinal} goes before a higher one");
        }
    }
}

#[derive(Clone, Debug)]
enum Happens {
    Reconcile,
    Show(usize),
    Relist,
    Run(usize),
    Unready(usize),
    End(usize),
    Delete(usize),
    Scale(i32),
    Image(u8),
    Partition(i32),
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        6 => Just(Happens::Reconcile),
        5 => (1..6_usize).prop_map(Happens::Show),
        1 => Just(Happens::Relist),
        6 => any::<usize>().prop_map(Happens::Run),
        1 => any::<usize>().prop_map(Happens::Unready),
        1 => any::<usize>().prop_map(Happens::End),
        1 => any::<usize>().prop_map(Happens::Delete),
        1 => (0..5_i32).prop_map(Happens::Scale),
        1 => (0..3_u8).prop_map(Happens::Image),
        1 => (0..4_i32).prop_map(Happens::Partition),
    ]
}

fn happen(world: &mut World, what: Happens) {
    match what {
        Happens::Reconcile => world.reconcile(),
        Happens::Show(events) => world.show(events),
        Happens::Relist => world.pods.relist(),
        Happens::Scale(replicas) => world.change(|spec| spec["replicas"] = replicas.into()),
        Happens::Image(image) => world.image(&format!("v{image}")),
        Happens::Partition(n) => world.change(|spec| spec["updateStrategy"]["rollingUpdate"]["partition"] = n.into()),
        Happens::Run(n) | Happens::Unready(n) | Happens::End(n) | Happens::Delete(n) => {
            let Some(key) = world.pods.pick(n) else { return };
            match what {
                Happens::Run(_) => world.run(&key),
                Happens::Unready(_) => world.pods.set_ready(&key, false, at(0)),
                Happens::End(_) => world.pods.end(&key, "Failed"),
                _ => world.pods.terminate(&key),
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn order_holds_and_the_end_is_right(
        parallel in any::<bool>(), several in any::<bool>(), start in 0..3_i32,
        events in prop::collection::vec(happens(), 0..120),
    ) {
        let policy = if parallel { "Parallel" } else { "OrderedReady" };
        let mut rolling = json!({"partition": 0});
        if several {
            rolling["maxUnavailable"] = 2.into();
        }
        let mut world = World::new(&json!({"podManagementPolicy": policy, "ordinals": {"start": start},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": rolling}}));
        for event in events {
            happen(&mut world, event);
        }
        world.change(|spec| spec["updateStrategy"]["rollingUpdate"]["partition"] = 0.into());
        world.settle();
        let spec = world.set().spec.clone().unwrap();
        let replicas = spec.replicas.unwrap();
        let mut names: Vec<String> = (start..start + replicas).map(|n| format!("s-{n}")).collect();
        names.sort();
        prop_assert_eq!(world.names(), names);
        let image = spec.template.spec.unwrap().containers[0].image.clone().unwrap();
        prop_assert!(world.images().iter().all(|one| *one == image), "{:?} instead of {}", world.images(), image);
        let status = world.set().status.clone().unwrap();
        prop_assert_eq!(
            (status.replicas, status.ready_replicas.unwrap_or(0), status.updated_replicas.unwrap_or(0), status.current_replicas.unwrap_or(0)),
            (replicas, replicas, replicas, replicas)
        );
        prop_assert_eq!(status.current_revision, status.update_revision);
        prop_assert!(world.written.is_shown(&World::key()), "nothing is waited for for ever");
    }
}
