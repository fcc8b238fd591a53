//! A Job in a world where Pods end in any order, caches are late and the controller dies between any two writes.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::{batch::v1::Job, core::v1::Pod},
    apimachinery::pkg::apis::meta::v1::Time,
};
use proptest::prelude::*;
use serde_json::json;

use super::{
    decide::{Plan, decide, with_made},
    finished, pod,
};
use crate::world::{Revision, Truth, at, parse};
use controllers::{cache::Key, written::Written};

pub struct World {
    pub jobs: Truth<Job>,
    pub pods: Truth<Pod>,
    written: Written,
    pub now: Timestamp,
    /// Uids of Pods that were let go after their end was written down.
    released: BTreeSet<String>,
    pub reasons: Vec<&'static str>,
    /// So many Pods the API takes at a time; the others it refuses.
    pub room: usize,
}

/// A write that the API refuses, or that a dying controller does not make.
struct Stopped;

impl World {
    pub fn new(spec: serde_json::Value) -> Self {
        let revision = Revision::default();
        let mut jobs = Truth::new(&revision);
        let mut spec = spec;
        spec["selector"] = json!({"matchLabels": {"job": "j"}});
        spec["template"] = json!({"metadata": {"labels": {"job": "j"}}, "spec": {"restartPolicy": "Never", "containers": [{"name": "c"}]}});
        jobs.create(parse(json!({"metadata": {"name": "j", "namespace": "ns"}, "spec": spec})));
        jobs.show_all();
        let pods = Truth::new(&revision);
        let (written, released) = (Written::default(), BTreeSet::new());
        Self { jobs, pods, written, now: at(0), released, reasons: Vec::new(), room: usize::MAX }
    }

    pub fn key() -> Key {
        Key::new("ns", "j")
    }

    pub fn job(&self) -> &Job {
        &self.jobs.objects[&Self::key()]
    }

    pub fn count(&self, is: impl Fn(&Pod) -> bool) -> usize {
        self.pods.objects.values().filter(|pod| is(pod)).count()
    }

    pub fn show_all(&mut self) {
        self.jobs.show_all();
        self.pods.show_all();
    }

    /// What the rim does, as far as `writes` go.
    pub fn reconcile(&mut self, writes: usize) {
        if !self.written.is_shown(&Self::key()) {
            return;
        }
        let Some(job) = self.jobs.cache.get(&Self::key()) else { return };
        let shown = self.pods.cache.all();
        let pods: Vec<&Pod> = shown.iter().map(|pod| &**pod).collect();
        let plan = decide(&job, &pods, self.now);
        let mut left = writes;
        let _ = self.act(&job, &pods, plan, &mut left);
    }

    fn act(&mut self, job: &Job, pods: &[&Pod], plan: Plan, left: &mut usize) -> Result<(), Stopped> {
        let key = Self::key();
        let mut write = || {
            *left = left.checked_sub(1).ok_or(Stopped)?;
            Ok(())
        };
        let named = |names: &[String]| -> Vec<Pod> {
            pods.iter()
                .filter(|pod| names.contains(pod.metadata.name.as_ref().unwrap()))
                .map(|pod| (*pod).clone())
                .collect()
        };
        for one in named(&plan.drop) {
            write()?;
            self.release(&one)?;
            write()?;
            self.delete(&one);
        }
        let (planned, mut made) = (plan.create.len(), 0);
        for one in plan.create.iter().take(self.room).cloned() {
            write()?;
            let pod = self.pods.create(one);
            made += 1;
            self.written.wrote(&key, &self.pods.cache, &pod);
            let most = usize::try_from(self.job().spec.as_ref().unwrap().parallelism.unwrap_or(1)).unwrap();
            assert!(self.count(pod::is_active) <= most, "more Pods than may run together");
        }
        let (release, delete) = (named(&plan.release), named(&plan.delete));
        let status = with_made(plan.status, planned, made);
        if job.status.clone().unwrap_or_default() != status {
            write()?;
            let truth = self.job();
            if truth.metadata.resource_version != job.metadata.resource_version {
                return Err(Stopped);
            }
            let before = truth.status.clone().unwrap_or_default();
            assert!(before.succeeded <= status.succeeded && before.failed <= status.failed, "counters never shrink");
            let made = self.jobs.change(&key, |job| job.status = Some(status)).unwrap();
            self.written.wrote(&key, &self.jobs.cache, &made);
        }
        self.reasons.extend(plan.notes.iter().map(|note| note.reason));
        for one in release {
            write()?;
            if self.release(&one)? {
                self.released.insert(pod::uid(&one).to_owned());
            }
        }
        for one in delete {
            write()?;
            self.delete(&one);
        }
        Ok(())
    }

    fn release(&mut self, seen: &Pod) -> Result<bool, Stopped> {
        let at = Key::of(seen);
        let Some(truth) = self.pods.objects.get(&at) else { return Ok(false) };
        if truth.metadata.resource_version != seen.metadata.resource_version {
            return Err(Stopped);
        }
        let was = pod::is_tracked(seen);
        if let Some(made) = self.pods.change(&at, |pod| pod.metadata.finalizers = None).filter(|_| was) {
            self.written.wrote(&Self::key(), &self.pods.cache, &made);
        }
        self.collect(&at);
        Ok(was)
    }

    pub fn delete(&mut self, seen: &Pod) {
        let key = Key::of(seen);
        self.pods.change(&key, |pod| {
            pod.metadata.deletion_timestamp.get_or_insert(Time(at(0)));
        });
        self.written.deleted(&Self::key(), &self.pods.cache, seen);
        self.collect(&key);
    }

    /// The API forgets what nobody holds any more.
    fn collect(&mut self, key: &Key) {
        let held = |pod: &Pod| pod::is_tracked(pod) || !pod::is_over(pod) && crate::pod::node(pod).is_some();
        if self.pods.objects.get(key).is_some_and(|pod| pod::is_terminating(pod) && !held(pod)) {
            self.pods.remove(key);
        }
    }

    pub fn end(&mut self, key: &Key, phase: &str) {
        if self.pods.objects.get(key).is_some_and(|pod| !pod::is_over(pod)) {
            self.pods.start(key, "n");
            let now = self.now;
            self.pods.change(key, |pod| {
                let status = pod.status.get_or_insert_default();
                status.phase = Some(phase.into());
                let code = i32::from(phase == "Failed");
                status.container_statuses = Some(vec![parse(
                    json!({"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                    "state": {"terminated": {"exitCode": code, "finishedAt": now.to_string()}}}),
                )]);
            });
            self.collect(key);
        }
    }

    pub fn all(&self) -> Vec<Key> {
        self.pods.objects.keys().cloned().collect()
    }

    /// Looks at everything until nothing changes.
    pub fn settle(&mut self) {
        for _ in 0..10 {
            self.show_all();
            self.reconcile(usize::MAX);
        }
        self.show_all();
    }

    pub fn wait(&mut self, seconds: i64) {
        self.now = self.now.checked_add(SignedDuration::from_secs(seconds)).unwrap();
    }
}

#[derive(Clone, Copy, Debug)]
enum Happens {
    Reconcile,
    /// The controller dies after so many writes, and knows nothing when it starts again.
    Die(usize),
    Show(usize),
    Relist,
    Start(usize),
    Succeed(usize),
    Fail(usize),
    Delete(usize),
    Wait(i64),
    Parallelism(i32),
    Suspend(bool),
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        6 => Just(Happens::Reconcile),
        1 => (0..4_usize).prop_map(Happens::Die),
        4 => (1..5_usize).prop_map(Happens::Show),
        1 => Just(Happens::Relist),
        2 => any::<usize>().prop_map(Happens::Start),
        3 => any::<usize>().prop_map(Happens::Succeed),
        2 => any::<usize>().prop_map(Happens::Fail),
        1 => any::<usize>().prop_map(Happens::Delete),
        1 => (1..700_i64).prop_map(Happens::Wait),
        1 => (0..4_i32).prop_map(Happens::Parallelism),
        1 => any::<bool>().prop_map(Happens::Suspend),
    ]
}

fn happen(world: &mut World, what: Happens) {
    let pick = |n: usize, world: &World| world.pods.pick(n);
    match what {
        Happens::Reconcile => world.reconcile(usize::MAX),
        Happens::Die(writes) => {
            world.reconcile(writes);
            world.written = Written::default();
            world.pods.relist();
            world.jobs.relist();
        }
        Happens::Show(events) => {
            world.pods.show(events);
            world.jobs.show(events);
        }
        Happens::Relist => world.pods.relist(),
        Happens::Wait(seconds) => world.wait(seconds),
        Happens::Parallelism(n) => {
            // One that takes away is slower than one that gives: the check counts what may run at the moment.
            if world.count(pod::is_active) <= usize::try_from(n).unwrap() {
                world.jobs.change(&World::key(), |job| job.spec.as_mut().unwrap().parallelism = Some(n));
                world.jobs.show_all();
            }
        }
        Happens::Suspend(suspend) => {
            world.jobs.change(&World::key(), |job| job.spec.as_mut().unwrap().suspend = Some(suspend));
        }
        Happens::Start(n) | Happens::Succeed(n) | Happens::Fail(n) | Happens::Delete(n) => {
            let Some(key) = pick(n, world) else { return };
            match what {
                Happens::Start(_) if !pod::is_over(&world.pods.objects[&key]) => world.pods.start(&key, "n"),
                Happens::Succeed(_) => world.end(&key, "Succeeded"),
                Happens::Fail(_) => world.end(&key, "Failed"),
                Happens::Delete(_) => {
                    let seen = world.pods.objects[&key].clone();
                    world.pods.change(&key, |pod| pod.metadata.deletion_timestamp = Some(Time(at(0))));
                    world.collect(&Key::of(&seen));
                }
                _ => {}
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 384, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_end_counts_once_and_the_job_ends(
        indexed in any::<bool>(), completions in 1..6_i32, parallelism in 1..4_i32, limit in 0..5_i32,
        events in prop::collection::vec(happens(), 0..100),
    ) {
        let mode = if indexed { "Indexed" } else { "NonIndexed" };
        let mut world = World::new(json!({"completions": completions, "parallelism": parallelism, "backoffLimit": limit,
            "completionMode": mode}));
        for event in events {
            happen(&mut world, event);
        }
        world.jobs.change(&World::key(), |job| {
            let spec = job.spec.as_mut().unwrap();
            (spec.suspend, spec.parallelism) = (Some(false), Some(spec.parallelism.unwrap_or(1).max(1)));
        });
        for _ in 0..40 {
            if finished(world.job()).is_some() {
                break;
            }
            world.settle();
            world.wait(700);
            for key in world.all() {
                world.end(&key, "Succeeded");
            }
        }
        world.settle();
        let status = world.job().status.clone().unwrap();
        let (succeeded, failed) = (status.succeeded.unwrap_or(0), status.failed.unwrap_or(0));
        let expected = if failed > limit { "Failed" } else { "Complete" };
        prop_assert_eq!(finished(world.job()), Some(expected), "{:?}", status);
        prop_assert!(expected == "Failed" || succeeded >= completions);
        if indexed {
            let indexes = super::indexes::parse(status.completed_indexes.as_deref().unwrap_or_default(), completions);
            prop_assert_eq!(usize::try_from(succeeded).unwrap(), indexes.len());
        } else {
            prop_assert_eq!(usize::try_from(succeeded + failed).unwrap(), world.released.len(), "{:?}", status);
        }
        prop_assert_eq!(world.count(|pod| pod::is_active(pod) || pod::is_tracked(pod)), 0);
        prop_assert_eq!((status.active, status.terminating), (None, Some(0)));
    }
}
